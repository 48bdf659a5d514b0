"""Measures how much thought a line of the package asks of its reader, and fails beyond the limits.

    python -m tools.house [--places] [PACKAGE]

PACKAGE is a folder, by default `pytest_imgedit`; `scenes`, which is drawing code, is left out.

What is limited:

- dense statements: of the statements without a body, those with two or more of conditional
  expression, comprehension, assignment expression and lambda (`ast.walk` below the statement);
- large statements: of the statements without a body, those with over 30 `ast.expr`;
- parallel assignments: a tuple on both sides;
- stars: `ast.Starred`;
- long functions: over 60 lines, decorators left out;
- calls by position: calls of functions and classes that the package defines, recognised by their
  name, with over five positional arguments.

The first two are counted per 1,000 `ast.stmt`, the next two per 1,000 lines that are not blank, the
last two as they are. What has no limit is only printed. `--places` lists each place that counts.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

MOST_PER_1000_STATEMENTS = {"dense statements": 4.0, "large statements": 6.5}
MOST_PER_1000_LINES = {"parallel assignments": 1.5, "stars": 10.0}
MOST = {"long functions": 0, "calls by position": 0}

_CHOICES = (
    ast.IfExp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.NamedExpr,
    ast.Lambda,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LARGE_EXPRESSIONS = 30
_LONG_LINES = 60
_MANY_POSITIONAL = 5


@dataclass
class House:
    """What was counted; `places` are (file, line) by the name of a figure."""

    files: int = 0
    lines: int = 0
    statements: int = 0
    conditionals: int = 0
    comprehensions: int = 0
    places: dict[str, list[tuple[Path, int]]] = field(default_factory=lambda: defaultdict(list))

    def figures(self) -> dict[str, tuple[float, float]]:
        """Return each limited figure and its limit."""
        figures: dict[str, tuple[float, float]] = {}
        for name, most in MOST_PER_1000_STATEMENTS.items():
            figures[f"{name} per 1,000 statements"] = (self._share(name, self.statements), most)
        for name, most in MOST_PER_1000_LINES.items():
            figures[f"{name} per 1,000 lines"] = (self._share(name, self.lines), most)
        for name, most in MOST.items():
            figures[name] = (len(self.places[name]), most)
        return figures

    def _share(self, name: str, whole: int) -> float:
        return 1000 * len(self.places[name]) / max(1, whole)


def measure(package: Path) -> House:
    """Count the files of a package."""
    paths = [
        path
        for path in sorted(package.rglob("*.py"))
        if "scenes" not in path.relative_to(package).parts
    ]
    trees = {path: ast.parse(path.read_text("utf-8")) for path in paths}
    own_names = _defined_names(list(trees.values()))
    house = House(files=len(paths))
    for path, tree in trees.items():
        text = path.read_text("utf-8")
        house.lines += sum(bool(line.strip()) for line in text.splitlines())
        for node in ast.walk(tree):
            _count_node(house, node)
            for name in _names_of(node, own_names):
                line: int = node.lineno  # type: ignore[attr-defined]
                house.places[name].append((path, line))
    return house


def _defined_names(trees: list[ast.Module]) -> set[str]:
    names: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
                names.add(node.name)
    return names


def _count_node(house: House, node: ast.AST) -> None:
    house.statements += isinstance(node, ast.stmt)
    house.conditionals += isinstance(node, ast.IfExp)
    house.comprehensions += isinstance(node, ast.comprehension)


def _names_of(node: ast.AST, own_names: set[str]) -> list[str]:
    """Return the figures that a node counts for."""
    names: list[str] = []
    if isinstance(node, ast.stmt) and not hasattr(node, "body"):
        below = list(ast.walk(node))
        if sum(isinstance(part, _CHOICES) for part in below) >= 2:
            names.append("dense statements")
        if sum(isinstance(part, ast.expr) for part in below) > _LARGE_EXPRESSIONS:
            names.append("large statements")
    if _is_parallel(node):
        names.append("parallel assignments")
    if isinstance(node, ast.Starred):
        names.append("stars")
    if isinstance(node, _FUNCTIONS) and _lines_of(node) > _LONG_LINES:
        names.append("long functions")
    if isinstance(node, ast.Call) and _is_by_position(node, own_names):
        names.append("calls by position")
    return names


def _is_parallel(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def _lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def _is_by_position(call: ast.Call, own_names: set[str]) -> bool:
    return _called_name(call) in own_names and len(call.args) > _MANY_POSITIONAL


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return ""


def main(arguments: list[str]) -> int:
    """Print the figures, one a line; return 1 if one is beyond its limit."""
    parser = argparse.ArgumentParser(prog="python -m tools.house")
    parser.add_argument("package", nargs="?", type=Path, default=Path("pytest_imgedit"))
    parser.add_argument("--places", action="store_true")
    options = parser.parse_args(arguments)
    house = measure(options.package)
    if options.places:
        for name, places in sorted(house.places.items()):
            for path, line in places:
                print(f"{path}:{line}: {name}")
    print(f"{house.files:>8,}  files")
    print(f"{house.lines:>8,}  lines that are not blank")
    print(f"{house.statements:>8,}  statements")
    for name, count in (
        ("conditional expressions", house.conditionals),
        ("comprehensions", house.comprehensions),
    ):
        print(f"{1000 * count / max(1, house.lines):>8.1f}  {name} per 1,000 lines")
    is_beyond = False
    for name, (figure, most) in house.figures().items():
        note = f"at most {most:g}"
        if figure > most:
            is_beyond = True
            note += ": beyond (see --places)"
        print(f"{figure:>8.1f}  {name}, {note}")
    return int(is_beyond)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
