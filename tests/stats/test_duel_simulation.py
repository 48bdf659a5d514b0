"""The gate on duels is as often wrong in simulated runs as docs/duels.md says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

ROOT = Path(__file__).parent.parent.parent
_, _, PAGE = (ROOT / "docs" / "duels.md").read_text("utf-8").partition("## How sure the gate is")
#: Simulated runs: fewer than the 1,000 of the page.
RUNS = 60


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("duel_gate", ROOT / "perf" / "duel_gate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with patch.object(sys, "path", [str(ROOT / "perf"), *sys.path]):
        spec.loader.exec_module(module)
    return module


def rows(header):
    """The rows of the table of the page whose header begins so."""
    table = PAGE[PAGE.index(header) :].partition("\n\n")[0]
    _, _, *lines = table.splitlines()
    return [line.strip("| ").split(" | ") for line in lines]


def test_the_page_promises_what_the_gate_must_hold(simulation):
    shares = [
        float(text[:-1]) / 100 for row in rows("| pairs | edits a source") for text in row[2:]
    ]
    assert len(shares) == 24
    assert max(shares) <= simulation.MOST_ALARMS


def test_the_page_and_the_script_name_one_seed(simulation):
    assert re.search(r"seed (\d+)", PAGE)[1] == str(simulation.SEED)


@pytest.mark.full
@pytest.mark.parametrize("place", [0, 3])
def test_false_alarms_are_as_rare_as_the_page_says(simulation, place):
    pairs, edits, *_ = rows("| pairs | edits a source")[1]
    leaning = simulation.LEANINGS[place // 2]
    design = simulation.Design(int(pairs), int(edits), leaning, simulation.TIES[place % 2])
    with patch("pytest_imgedit.stats.planning.pairs_needed", lambda *_: None):
        _, states = simulation.alarms((design, RUNS))
    assert states.failed <= 0.05 + 4 * (0.05 * 0.95 / RUNS) ** 0.5


@pytest.mark.full
def test_duels_find_what_the_page_says(simulation):
    by_shift = {float(row[0]): row for row in rows("| fall")}
    with patch("pytest_imgedit.stats.planning.pairs_needed", lambda *_: None):
        _, shares = simulation.power(((100, 0.3), RUNS))
    said = [float(text.strip("%")) / 100 for text in by_shift[0.3][1:5]]
    for share, promised in zip(shares, said, strict=True):
        assert abs(share - promised) <= 4 * (promised * (1 - promised) / RUNS) ** 0.5 + 0.02


def test_a_judge_that_is_mostly_wrong_never_passes(simulation):
    _, shares = simulation.trials((0.6, 20))
    assert shares["all"] == 0
