"""Changes one thing in each of some modules, and tells which changes the everyday tests catch.

    python -m coverage run -m pytest tests -n 2 -k "not another_user"
    python -m coverage combine
    python -m tools.mutants --seed 41 --count 20

Tests that run as another user are left out, as that user cannot write their coverage.

A seed chooses modules, and in each one change in a line that the tests execute (`.coverage`): a
comparison, an arithmetic or boolean operator turned around, a number that is one more, a condition
that is negated. The tests that execute the line run first, then the others, up to the first
failure; `--near` leaves the others out. Nothing else may use the working tree meanwhile.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from coverage import CoverageData

PACKAGE = Path("pytest_imgedit")
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
#: Seconds after which tests hang: all of them take ten minutes beside other work.
PATIENCE = 1200
EVERYDAY = ["-n", "2", "--dist", "worksteal", "-x", "-q", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Mutant:
    """A module with one thing changed."""

    path: Path
    line: int
    change: str
    source: str


def mutants(path: Path, executed: set[int]) -> Iterator[Mutant]:
    """Yield all changes of a module in lines inside functions that are executed."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside: set[int] = set()
    for function in functions:
        for part in function.body:
            inside.update(map(id, ast.walk(part)))
    for position, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if id(node) not in inside or line not in executed:
            continue
        mutated = copy.deepcopy(tree)
        twin = next(islice(ast.walk(mutated), position, None))
        change = _change(twin)
        if change:
            yield Mutant(path, line, change, ast.unparse(ast.fix_missing_locations(mutated)))


def _change(node: ast.AST) -> str:
    """Change a node in its place and say how; an empty text if there is nothing to change."""
    before = ast.unparse(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        node.ops[0] = OPERATORS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
    elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(
        node.test, ast.Compare | ast.BoolOp
    ):
        before = ast.unparse(node.test)
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return f"{before} → not ({before})"
    else:
        return ""
    return f"{before} → {ast.unparse(node)}"


def tests_of(mutant: Mutant, data: CoverageData) -> list[str]:
    """Arguments of pytest for the tests that execute a line, or else for those that import its
    module.

    What a thread executes belongs to no test.
    """
    contexts = data.contexts_by_lineno(str(mutant.path.absolute())).get(mutant.line, [])
    names = sorted(context.rpartition(".")[::2] for context in contexts if context)
    if names:
        files = sorted(
            {str(file) for module, _ in names for file in Path("tests").rglob(f"{module}.py")}
        )
        selection = " or ".join(name for _, name in names)
        return files + ["-k", selection]
    module = ".".join(mutant.path.with_suffix("").parts)
    imports = re.compile(rf"(from|import) {re.escape(module)}\b")
    return [
        str(path)
        for path in sorted(Path("tests").glob("*/test_*.py"))
        if imports.search(path.read_text())
    ]


def catches(mutant: Mutant, *selections: list[str]) -> str:
    """Return the test that fails with a mutant, in one selection of tests after the other; an empty
    text if none.
    """
    original = mutant.path.read_text()
    mutant.path.write_text(mutant.source)
    try:
        for tests in filter(None, selections):
            command = [sys.executable, "-m", "pytest"] + tests + EVERYDAY
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                return f"pytest hangs for {PATIENCE} s"
            if done.returncode not in (0, 5):
                failed = [
                    line
                    for line in done.stdout.splitlines()
                    if line.startswith(("FAILED", "ERROR"))
                ]
                return failed[-1] if failed else f"pytest ended with {done.returncode}"
    finally:
        mutant.path.write_text(original)
    return ""


def main() -> int:
    described = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    described.add_argument("--seed", type=int, default=0)
    described.add_argument("--count", type=int, default=20)
    described.add_argument(
        "--near", action="store_true", help="run only the tests that execute the changed line"
    )
    options = described.parse_args()
    chosen = random.Random(options.seed)
    data = CoverageData()
    data.read()
    modules = [path for path in sorted(PACKAGE.rglob("*.py")) if "scenes" not in path.parts]
    survivors = 0
    caught = 0
    for path in chosen.sample(modules, len(modules)):
        candidates = list(mutants(path, set(data.lines(str(path.absolute())) or ())))
        if not candidates:
            continue
        mutant = chosen.choice(candidates)
        test = catches(mutant, tests_of(mutant, data), [] if options.near else ["tests"])
        state = "SURVIVED"
        if test:
            state = "caught"
            caught += 1
        else:
            survivors += 1
        print(f"{state}  {path}:{mutant.line}  {mutant.change}  {test}", flush=True)
        if caught + survivors == options.count:
            break
    print(f"{caught} of {caught + survivors} caught")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
