"""What the documentation names is there."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md", "docs/reliability.md"])
def test_links_lead_to_files(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_setting_of_workers_is_in_the_readme():
    from pytest_imgedit.config import WorkersSettings
    from pytest_imgedit.options import OPTIONS

    readme = (ROOT / "README.md").read_text()
    by_option = {option.toml for option in OPTIONS}
    for name in WorkersSettings.model_fields:
        if f"workers.{name}" not in by_option:
            assert re.search(rf"`(workers)?\.{name}`", readme), name
