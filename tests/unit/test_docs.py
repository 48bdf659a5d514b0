"""What the documentation names is there."""

from __future__ import annotations

import ast
import importlib.util
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
    assert any((folder / path).is_file() for folder in (ROOT / "tests", ROOT))


PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "packages").glob("*/README.md")),
]


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_links_lead_to_files(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def templates(code):
    """Texts of a module, with `…` for what an f-string puts in."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "…" for part in node.values
            )


def test_messages_of_troubleshooting_are_those_of_the_package():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)
    assert len(messages) > 15
    code = [path.read_text() for path in (ROOT / "pytest_imgedit").rglob("*.py")]
    known = "\n".join(text for module in code for text in templates(module))
    assert [message for message in messages if message not in known] == []


def test_options_and_keys_are_as_the_reference_says_and_each_has_a_meaning():
    made = script("settings_table")
    assert made.page() == made.PAGE.read_text(), "run python tools/settings_table.py"
    inner = ("run.config_file",)
    assert [key for key, _, text in made.settings() if not text and key not in inner] == []


def test_the_benchmark_folder_holds_a_copy_of_the_shipped_item_and_the_root_holds_no_test():
    shipped = ROOT / "pytest_imgedit" / "benchmark" / "test_image_edit.py"
    assert (ROOT / "benchmarks" / "test_image_edit.py").read_bytes() == shipped.read_bytes()
    assert not list(ROOT.glob("test_*.py"))


def script(name):
    """A script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_pipelines_are_as_their_page_says():
    made = script("pipeline_table")
    assert made.table() in (ROOT / "docs" / "pipelines.md").read_text(), (
        "run python tools/pipeline_table.py"
    )


def test_parameters_are_as_their_page_says():
    made = script("parameter_table")
    for page in made.PAGES:
        assert made.filled(page) == page.read_text(), "run python tools/parameter_table.py"


def test_every_parameter_has_a_line_of_its_own():
    from pytest_imgedit.kinds.registry import BUILTIN, kind_at

    for role, kinds in BUILTIN.items():
        for name, path in kinds.items():
            params = kind_at(role, name, path).Params
            for key, field in params.model_fields.items() if params else ():
                assert field.description, f"{role} {name}: {key}"
