"""Intervals of a judge's agreement with people hold a planted accuracy, in simulated sets."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

ROOT = Path(__file__).parent.parent.parent
#: Simulated sets: fewer than the script draws.
SETS = 60


@pytest.fixture(scope="module")
def simulation() -> Any:
    path = ROOT / "perf" / "people_choices.py"
    spec = importlib.util.spec_from_file_location("people_choices", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with patch.object(sys, "path", [str(ROOT / "perf"), *sys.path]):
        spec.loader.exec_module(module)
    return module


@pytest.mark.everyday_for("4-0.75-0.3")
@pytest.mark.parametrize(("of_source", "right", "ties"), [(1, 0.62, 0.0), (4, 0.75, 0.3)])
def test_intervals_hold_the_planted_accuracy(
    simulation: Any, of_source: int, right: float, ties: float
) -> None:
    design = simulation.Design(120, of_source, right, ties)
    _, found = simulation.coverage((design, SETS))
    # four standard errors under what the script asks of 300 sets
    least = simulation.LEAST_COVERAGE - 4 * (0.05 * 0.95 / SETS) ** 0.5
    assert found.accuracy >= least
    assert found.ceiling >= least
    assert 0.1 < found.width < 0.3


def test_the_planted_accuracy_is_that_of_a_large_set(simulation: Any) -> None:
    import numpy as np

    from pytest_imgedit.stats.choices import AskedBy, describe_judge, describe_people

    design = simulation.Design(2_000, 1, 0.75, 0.3)
    choices = design.draw(np.random.default_rng(2))
    judged = describe_judge(choices, AskedBy(way="scores"), alpha=0.05)
    assert judged.accuracy["overall"].share == pytest.approx(design.accuracy, abs=0.03)
    assert judged.ties.share == pytest.approx(0.3, abs=0.04)
    assert describe_people(choices).ceiling.share == pytest.approx(simulation.ceiling(), abs=0.03)
