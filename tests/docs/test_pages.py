"""What the documentation names is there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from pytest_imgedit.cli.main import COMMANDS, make_parser
from pytest_imgedit.kinds.registry import BUILTIN, kind_at
from pytest_imgedit.report.tables import CATEGORY_HEADER
from pytest_imgedit.report.terminal import ONLY_COUNTS, ONLY_VERBOSE
from pytest_imgedit.suites.public import BENCHMARKS
from tools import reference

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))
EVERY_PAGE = "\n".join(path.read_text() for path in sorted(DOCS.rglob("*.md")))
RELIABILITY = (DOCS / "reliability.md").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"test_\w+…?(?=`)", RELIABILITY))))
def test_promise_is_held_by_a_test_that_exists(name):
    pattern = rf"def {name.rstrip('…')}\w*\(" if name.endswith("…") else rf"def {name}\("
    assert re.search(pattern, TESTS), name


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)?\w+\.py)", RELIABILITY))))
def test_file_of_tests_exists(path):
    assert any((folder / path).is_file() for folder in (ROOT / "tests", ROOT))


PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted(DOCS.rglob("*.md")),
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
    page = (DOCS / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)
    assert len(messages) > 15
    code = [path.read_text() for path in (ROOT / "pytest_imgedit").rglob("*.py")]
    known = "\n".join(text for module in code for text in templates(module))
    assert [message for message in messages if message not in known] == []


@pytest.fixture(scope="module")
def filled_pages():
    return reference.pages()


@pytest.mark.parametrize(
    "page", [*reference.page_paths(), reference.SCHEMA], ids=lambda path: path.name
)
def test_page_takes_from_code_what_the_code_says(filled_pages, page):
    assert filled_pages[page] == page.read_text(), "run python -m tools.reference"


def test_every_parameter_of_a_built_in_kind_is_on_a_page():
    places = re.findall(r"<!-- from code: parameters (\S+) (\S+) -->", EVERY_PAGE)
    documented = {parameter for place in places for parameter in parameters_of(*place)}
    for role, names in BUILTIN.items():
        for name in names:
            missing = parameters_of(role, name) - documented
            place = f"<!-- from code: parameters {role} {name} -->"
            assert not missing, f"put {place} and <!-- end --> on a page of docs/"


def parameters_of(role, name):
    """Names and meanings of what a built-in kind takes."""
    params = kind_at(role, name, BUILTIN[role][name]).Params
    fields = params.model_fields if params else {}
    return {(field, value.description) for field, value in fields.items()}


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-run.md"])
def test_printed_table_has_the_columns_of_the_terminal(page):
    left_out = {*ONLY_VERBOSE, *ONLY_COUNTS}
    columns = " ".join(name for name in CATEGORY_HEADER if name not in left_out).split()
    [header] = re.findall(r"^category .+", (ROOT / page).read_text(), re.MULTILINE)
    shown = header.split()
    assert shown[: len(columns)] == columns
    assert shown[len(columns) :] in ([], ["instruction", "preservation", "realism"])


def test_every_setting_parameter_and_attribute_has_a_meaning():
    empty = re.compile(r"^\|.*\|  \|$", re.MULTILINE)
    pages = (DOCS / f"{name}.md" for name in ("reference", "models", "metrics", "kinds", "pytest"))
    assert {page.name: empty.findall(page.read_text()) for page in pages} == {
        "reference.md": [],
        "models.md": [],
        "metrics.md": [
            "| `package.module:Class` | Your own class that measures. | no fixed scale | higher |  |"
        ],
        "kinds.md": [],
        "pytest.md": [],
    }


EXAMPLES = re.findall(
    r"^imgedit (.*?)(?: *#.*)?$", (DOCS / "commands.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_a_command_is_one(example):
    name = make_parser().parse_args(example.split()).subcommand
    assert name in [command.name for command in COMMANDS]


def test_every_command_has_an_example():
    assert {command.name for command in COMMANDS} == {example.split()[0] for example in EXAMPLES}


def test_the_benchmark_folder_holds_a_copy_of_the_shipped_item_and_the_root_holds_no_test():
    shipped = ROOT / "pytest_imgedit" / "benchmark" / "test_image_edit.py"
    assert (ROOT / "benchmarks" / "test_image_edit.py").read_bytes() == shipped.read_bytes()
    assert not list(ROOT.glob("test_*.py"))


CONFIGS = sorted((ROOT / "pytest_imgedit" / "benchmark" / "configs").glob("*.toml"))
#: The judges that ready configs and public benchmarks name, and that anybody can serve.
JUDGES = {
    *re.findall(r"\bqwen-vl:([\w./-]+)", "".join(path.read_text() for path in CONFIGS)),
    *(
        f"Qwen/{name}"
        for benchmark in BENCHMARKS
        for name in re.findall(r"\bQwen[\w.-]+", benchmark.judge)
    ),
}


@pytest.mark.parametrize("judge", sorted(JUDGES))
def test_every_recommended_judge_has_a_line_that_serves_it(judge):
    assert f"`vllm serve {judge} --port 8000 " in (DOCS / "vllm.md").read_text()


def test_every_dependency_is_in_the_table_that_says_what_it_is_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    required = [text for entries in lists for text in entries]
    names = {re.match(r"[\w-]+", text)[0] for text in required} - {"pytest-imgedit"}
    page = (DOCS / "development.md").read_text()
    table = page[page.index("| package | what it is for |") :].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    named = {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}
    extras = set(re.findall(r"extra `([\w-]+)`", " ".join(cells)))
    assert names <= named
    assert extras == set(project["optional-dependencies"])
