"""What the documentation names is there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from unittest.mock import patch

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
    from pytest_imgedit.config.options import OPTIONS
    from pytest_imgedit.config.settings import Settings

    readme = (ROOT / "README.md").read_text()
    for option in OPTIONS:
        assert option.name in ("json", "md", "html") or f"`{option.flag}" in readme, option.flag
    by_option = {option.toml for option in OPTIONS}
    for name in Settings.model_fields[section].annotation.model_fields:
        if f"{section}.{name}" not in by_option:
            assert re.search(rf"`({section})?\.{name}`", readme), name


def test_the_benchmark_folder_holds_a_copy_of_the_shipped_item_and_the_root_holds_no_test():
    shipped = ROOT / "pytest_imgedit" / "benchmark" / "test_image_edit.py"
    assert (ROOT / "benchmarks" / "test_image_edit.py").read_bytes() == shipped.read_bytes()
    assert not list(ROOT.glob("test_*.py"))


def script(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_pipelines_are_as_their_page_says():
    made = script("pipeline_table")
    assert made.table() in (ROOT / "docs" / "pipelines.md").read_text(), "run python docs/pipeline_table.py"


def test_parameters_are_as_their_page_says():
    made = script("parameter_table")
    assert made.page() == made.PAGE.read_text(), "run python docs/parameter_table.py"


def test_every_parameter_has_a_line_of_its_own():
    from pytest_imgedit.models.specs import BUILTIN, kind_at

    for role, kinds in BUILTIN.items():
        for name, path in kinds.items():
            params = kind_at(role, name, path).Params
            for key, field in params.model_fields.items() if params else ():
                assert field.description, f"{role} {name}: {key}"


#: Simulated runs: fewer than the 2,000 of the page, whose shares must be within four standard errors of these.
RUNS = 100
CELLS = [
    ("limit", "10 pairs", "zeros"),
    ("limit", "50 pairs", "tens"),
    ("limit", "5×10", "middle"),
    ("limit", "sources 20, 9×1", "root"),
    ("baseline", "5×10", "middle"),
    ("baseline", "5×10", "zeros"),
    ("allowed", "11×20", "tens"),
    ("tail", "5×10", "zeros"),
    ("series", "5×10", "tens"),
    ("until", "5×10", "root"),
]


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("simulated_gates", ROOT / "perf" / "gates.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with patch.object(sys, "path", [str(ROOT / "perf"), *sys.path]):
        spec.loader.exec_module(module)
    return module


def ranges(column):
    """The ranges of a column of the table in docs/gates.md, by measure."""
    lines = (ROOT / "docs" / "gates.md").read_text().splitlines()
    header, *rows = [line.strip("| ").split(" | ") for line in lines if "–" in line or "| share of runs" in line]
    place = header.index(column)
    rows = [row for row in rows if len(row) > place and re.fullmatch(r"[0-9.]+–[0-9.]+%", row[place])]
    return {row[0]: [float(end) / 100 for end in row[place].strip("%").split("–")] for row in rows}


@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
def test_gates_are_as_often_wrong_as_their_page_says(simulation, cell):
    what, layout, family = cell
    with patch("pytest_imgedit.stats.gates.pairs_needed"):
        _, _, shares = simulation.simulate((what, layout, family, RUNS))
    column = next(name for name, layouts in simulation.COLUMNS.items() if layout in layouts)
    said = ranges(column)
    for measure, share in shares.items():
        low, high = said[measure]
        assert low - 4 * error(low) <= share <= high + 4 * error(high), measure


def error(share):
    return (share * (1 - share) / RUNS) ** 0.5 + 0.01


def test_the_page_promises_what_gates_must_hold(simulation):
    for column in simulation.COLUMNS:
        for measure, (low, high) in ranges(column).items():
            if "pairs needed" in measure:
                continue
            if any(words in measure for words in ("nothing change", "at the limit", "all fell by 0.5", "is noisy")):
                assert high <= 0.06 + 0.005, (column, measure)  # 2,000 runs have an error of half a point
            elif "holds the truth" in measure:
                assert low >= 0.93, (column, measure)
            elif "where the default does not" in measure:
                assert high == 0
