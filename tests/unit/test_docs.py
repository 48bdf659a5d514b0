"""What the documentation names is there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))
RELIABILITY = (ROOT / "docs" / "reliability.md").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"test_\w+…?(?=`)", RELIABILITY))))
def test_promise_is_held_by_a_test_that_exists(name):
    pattern = rf"def {name.rstrip('…')}\w*\(" if name.endswith("…") else rf"def {name}\("
    assert re.search(pattern, TESTS), name


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)?\w+\.py)", RELIABILITY))))
def test_file_of_tests_exists(path):
    assert (ROOT / "tests" / path).is_file()


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_to_files(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("section", ["workers", "gates"])
def test_every_option_and_setting_is_in_the_readme(section):
    from pytest_imgedit.config import Settings
    from pytest_imgedit.options import OPTIONS

    readme = (ROOT / "README.md").read_text()
    for option in OPTIONS:
        assert option.name in ("json", "md", "html") or f"`{option.flag}" in readme, option.flag
    by_option = {option.toml for option in OPTIONS}
    for name in Settings.model_fields[section].annotation.model_fields:
        if f"{section}.{name}" not in by_option:
            assert re.search(rf"`({section})?\.{name}`", readme), name


def test_pipelines_are_as_their_page_says():
    spec = importlib.util.spec_from_file_location("pipeline_table", ROOT / "docs" / "pipeline_table.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.table() in (ROOT / "docs" / "pipelines.md").read_text(), "run python docs/pipeline_table.py"


#: Simulated runs: fewer than the 2,000 of the page, whose shares must be within four standard errors of these.
RUNS = 500


@pytest.fixture(scope="module")
def simulated():
    """Shares by kind of scores, as `docs/gate_simulation.py` prints them."""
    spec = importlib.util.spec_from_file_location("gate_simulation", ROOT / "docs" / "gate_simulation.py")
    simulation = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = simulation
    spec.loader.exec_module(simulation)
    return {
        kind.name: {**simulation.simulate(kind, RUNS), **simulation.coverage(kind, RUNS)} for kind in simulation.KINDS
    }


def test_gates_are_as_often_wrong_as_their_page_says(simulated):
    page = (ROOT / "docs" / "gates.md").read_text()
    rows = re.findall(r"^\|[^|]+\| ([0-9.%, ]+) \| ([0-9.%, ]+) \|$", page, re.MULTILINE)
    for place, kind in enumerate(("middle", "ceiling")):
        shares = simulated[kind]
        printed = [float(text) / 100 for row in rows for text in row[place].replace("%", "").split(",")]
        simulation = list(shares.values())[:5]
        by_n = list(shares.values())[5:]
        simulation += [*by_n[1::3], *by_n[2::3], *by_n[0::3]]  # the page has a row where the script has a block
        assert len(printed) == len(simulation)
        for said, found in zip(printed, simulation, strict=True):
            assert found == pytest.approx(said, abs=4 * (said * (1 - said) / RUNS) ** 0.5 + 0.001), shares
        falls = re.findall(r"fell by ([0-9.]+) \(2 MDE\)", " ".join(shares))
        assert all(fall in page for fall in falls), falls


@pytest.mark.parametrize("kind", ["middle", "ceiling"])
def test_false_alarms_power_and_coverage_are_what_gates_promise(simulated, kind):
    shares = simulated[kind]
    alarms = [share for name, share in shares.items() if name.startswith("false alarm, gates")]
    assert len(alarms) == 2
    assert max(alarms) <= 0.06
    assert min(share for name, share in shares.items() if "caught" in name) >= 0.9
    assert shares["false alarm, 'any mean fell'"] > 0.9  # what gates on bare means would do
    assert 0.93 <= shares["95% interval holds the true mean, n = 50"] <= 0.97
    assert max(share for name, share in shares.items() if "fail_under fails" in name) <= 0.06
