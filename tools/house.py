"""Measures the package: how much it holds, how dense its lines are, and how tall one of its folders
is.

    python -m tools.house [FOLDER]

FOLDER is the package, by default `pytest_imgedit`. Statements are `ast.stmt`; figures leave out
`scenes`, which is drawing code. The levels of a folder are the modules of its longest chain of
imports.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: The folder that drives a run.
DRIVER = "run"
COLUMNS = 100


def main(package: Path) -> None:
    """Print the figures, one a line."""
    paths = [
        path
        for path in sorted(package.rglob("*.py"))
        if "scenes" not in path.relative_to(package).parts
    ]
    texts = [path.read_text("utf-8") for path in paths]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    figures = {
        "statements": f"{_count(nodes, ast.stmt):,}",
        "lines that are not blank": f"{len(lines):,}",
        f"lines over {COLUMNS} columns": f"{sum(len(line) > COLUMNS for line in lines):,}",
        "conditional expressions per 1,000 "
        "lines": f"{1000 * _count(nodes, ast.IfExp) / len(lines):.1f}",
        "boolean operators per 1,000 lines": f"{1000 * _count(nodes, ast.BoolOp) / len(lines):.1f}",
        "comprehensions per 1,000 "
        "lines": f"{1000 * _count(nodes, ast.comprehension) / len(lines):.1f}",
        "docstring lines of public names": f"{sum(map(_docstring_lines, nodes)):,}",
        f"files in {DRIVER}/": str(len(_modules(package / DRIVER))),
        f"levels of {DRIVER}/": str(levels(package / DRIVER)),
    }
    for name, figure in figures.items():
        print(f"{figure:>8}  {name}")


def _count(nodes: list[ast.AST], kind: type[ast.AST]) -> int:
    return sum(isinstance(node, kind) for node in nodes)


def _docstring_lines(node: ast.AST) -> int:
    """Count the lines of the docstring of a module, or of a class or function whose name is
    public.
    """
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return 0
    if getattr(node, "name", "").startswith("_"):
        return 0
    return len((ast.get_docstring(node) or "").splitlines())


def _modules(folder: Path) -> dict[str, Path]:
    """Return the files of a folder and those below it by the names of their modules, without
    `__init__.py`.
    """
    top = folder.parent.parent
    return {
        ".".join(path.relative_to(top).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
        if path.name != "__init__.py"
    }


def levels(folder: Path) -> int:
    """Return how many modules of a folder the longest chain of imports between them has."""
    modules = _modules(folder)
    imports = {name: set(_imports(path)) & set(modules) - {name} for name, path in modules.items()}

    @cache
    def height(name: str) -> int:
        return 1 + max((height(below) for below in imports[name]), default=0)

    return max(map(height, modules))


def _imports(path: Path) -> Iterator[str]:
    """Yield the names of the modules that a file may import, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pytest_imgedit"))
