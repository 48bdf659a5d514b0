"""`docs/architecture.md` names the layers, the files and the names that the code has.

What a failure names is edited there; the levels of run/ are written by `python -m tools.reference`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from itertools import zip_longest
from pathlib import Path

import grimp
import pytest

from tools import reference

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "pytest_imgedit"
PAGE = "docs/architecture.md"
#: Where a path on the page may begin.
FOLDERS = (PACKAGE, ROOT, ROOT / "tests", ROOT / "docs")

BACKTICKS = re.compile(r"`([^`]+)`")
NAME = r"[A-Za-z_][\w.]*"
#: `file` (`name`, `name`), and `name` (`file`)
NAMES_AFTER_FILE = re.compile(rf"`([\w/]+\.py)` \((`{NAME}`(?:, `{NAME}`)*)\)")
FILE_AFTER_NAME = re.compile(rf"`({NAME})` \(`([\w/]+\.py)`\)")


def lines():
    """Numbered lines of the page, those that `tools.reference` writes left out."""
    is_generated = False
    for number, line in enumerate((ROOT / PAGE).read_text().splitlines(), 1):
        if line.startswith("<!-- from code: "):
            is_generated = True
        elif line == "<!-- end -->":
            is_generated = False
        if not is_generated:
            yield number, line


def package_rows():
    """Line number and modules of each row of the table of packages."""
    for number, line in lines():
        cell = line.partition(" | ")[0]
        if re.fullmatch(r"\|( `\w+(?:/|\.py)`)+", cell):
            modules = {name.removesuffix(".py").rstrip("/") for name in BACKTICKS.findall(cell)}
            yield number, modules


def layers():
    """Modules of each layer that `lint-imports` holds, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [part for part in settings["contracts"] if part["type"] == "layers"]
    return [set(layer.split(" | ")) for layer in contract["layers"]]


def test_each_row_of_packages_is_a_layer_of_the_import_contract():
    problems = []
    for row, layer in zip_longest(package_rows(), layers(), fillvalue=None):
        if row is None:
            problems.append(f"{PAGE}: no row for the layer {sorted(layer)} of pyproject.toml")
        elif row[1] != layer:
            wanted = sorted(layer) if layer else "none"
            problems.append(
                f"{PAGE}:{row[0]}: the row has {sorted(row[1])}, "
                f"the layer in pyproject.toml ([tool.importlinter]) has {wanted}"
            )
    assert not problems, "\n".join(problems)


def test_each_package_and_module_is_in_one_row():
    children = reference.import_graph().find_children("pytest_imgedit")
    modules = {module.rpartition(".")[2] for module in children}
    in_rows = Counter(module for _, row in package_rows() for module in row)
    assert modules - set(in_rows) == set(), f"in no row of the table of packages of {PAGE}"
    assert set(in_rows) - modules == set(), f"in a row of {PAGE}, and not in pytest_imgedit/"
    assert max(in_rows.values()) == 1, f"in two rows of {PAGE}"


def paths():
    """Line number and text of each path in backticks, and of each in the diagram."""
    is_code = False
    for number, line in lines():
        if line.startswith("```"):
            is_code = not is_code
        elif is_code:
            yield from ((number, path) for path in re.findall(r"\b\w+/\w*", line))
        else:
            for text in BACKTICKS.findall(line):
                if re.fullmatch(r"[\w./*<>-]+", text) and ("/" in text or text.endswith(".py")):
                    yield number, text


def exists(path):
    pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))
    return any(any(folder.glob(name)) for folder in FOLDERS for name in (pattern, f"{pattern}.py"))


def test_each_path_on_the_page_exists():
    problems = [
        f"{PAGE}:{number}: `{path}` is not in pytest_imgedit/, the repository, tests/ or docs/"
        for number, path in paths()
        if not exists(path)
    ]
    assert not problems, "\n".join(problems)


@cache
def names_of(path):
    """What a file defines: functions, classes, `Class.method`, variables."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef(name=name, body=body):
                names.add(name)
                methods = (part for part in body if isinstance(part, ast.FunctionDef))
                names.update(f"{name}.{method.name}" for method in methods)
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names


def names_of_files():
    """Line number, file and name of each name that the page puts into a file."""
    for number, line in lines():
        for path, names in NAMES_AFTER_FILE.findall(line):
            yield from ((number, path, name) for name in BACKTICKS.findall(names))
        for name, path in FILE_AFTER_NAME.findall(line):
            yield number, path, name


def test_each_name_beside_a_file_is_defined_there():
    problems = []
    for number, path, name in names_of_files():
        if not (PACKAGE / path).is_file():
            problems.append(f"{PAGE}:{number}: `{path}`, which has `{name}`, is no file")
        elif name not in names_of(PACKAGE / path):
            problems.append(f"{PAGE}:{number}: `{name}` is not defined in `{path}`")
    assert len(list(names_of_files())) > 8
    assert not problems, "\n".join(problems)


def test_each_class_and_function_on_the_page_is_defined_somewhere():
    defined = set().union(*map(names_of, PACKAGE.rglob("*.py")))
    problems = [
        f"{PAGE}:{number}: `{text}` is defined nowhere in pytest_imgedit/"
        for number, line in lines()
        for text in BACKTICKS.findall(line)
        if re.fullmatch(r"[A-Z]\w+|\w+_\w+", text) and text not in defined
    ]
    assert not problems, "\n".join(problems)


@pytest.fixture
def graph(monkeypatch):
    """A graph of imports that `tools.reference` takes for that of the package."""
    graph = grimp.ImportGraph()
    for module in ("a", "a.low", "a.middle", "a.high"):
        graph.add_module(module)
    monkeypatch.setattr(reference, "import_graph", lambda: graph)
    return graph


def test_a_level_is_the_longest_chain_of_imports(graph):
    graph.add_import(importer="a.middle", imported="a.low")
    graph.add_import(importer="a.high", imported="a.low")
    graph.add_import(importer="a.high", imported="a.middle")
    graph.add_import(importer="a.high", imported="other")
    assert reference.level_of_modules("a") == {"a.low": 1, "a.middle": 2, "a.high": 3}


def test_a_circle_of_imports_has_no_levels(graph):
    graph.add_import(importer="a.low", imported="a.high")
    graph.add_import(importer="a.high", imported="a.low")
    with pytest.raises(ValueError, match=r"circle, a\.(low -> a\.high|high -> a\.low) -> "):
        reference.level_of_modules("a")
