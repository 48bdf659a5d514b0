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


def test_the_simulation_shows_what_its_page_says():
    spec = importlib.util.spec_from_file_location("gate_simulation", ROOT / "docs" / "gate_simulation.py")
    simulation = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = simulation
    spec.loader.exec_module(simulation)
    page = (ROOT / "docs" / "gates.md").read_text()
    for kind in simulation.KINDS:
        shares = {**simulation.simulate(kind, 60), **simulation.coverage(kind, 300)}
        false = [share for name, share in shares.items() if name.startswith("false alarm, gates")]
        caught = [share for name, share in shares.items() if "caught" in name]
        assert len(false) == len(caught) == 2
        assert max(false) <= 0.14  # 0.05 and three standard errors of 60 runs
        assert min(caught) >= 0.9
        assert shares["false alarm, 'any mean fell'"] > 0.9
        assert shares["95% interval holds the true mean, n = 50"] > 0.89
        falls = re.findall(r"fell by ([0-9.]+) \(2 MDE\)", " ".join(shares))
        assert all(fall in page for fall in falls), falls
