"""Checks in three tiers, in the environment that calls them: `nox -s quick`, `nox -s everyday`,
`nox -s full`; `nox -s coverage` and `nox -s lock`.

docs/development.md says what belongs where.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nox

# Programs of this environment are found although nobody has activated it.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
nox.options.default_venv_backend = "none"
nox.options.sessions = ["quick"]

EVERYDAY = ("pytest", "tests", "-n", "3", "--dist", "worksteal")


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types and the import contract."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run(
        "mypy",
        "--strict",
        "pytest_imgedit",
        "packages/imgedit-verl/imgedit_verl",
        "tools",
        "noxfile.py",
        "tests/plugin/typed_user.py",
    )
    with session.chdir("perf"):  # scripts, which import each other by their names
        session.run(
            *("mypy", "--strict", "."),
            *("--config-file", "../pyproject.toml", "--cache-dir", "../.mypy_cache"),
        )
    # imgedit-verl, whose imports the contract covers too, need not be installed
    session.run("lint-imports", env={"PYTHONPATH": "packages/imgedit-verl"})


@nox.session
def quick(session: nox.Session) -> None:
    """Lint, types, tests without a process or a model, and one run end to end."""
    lint(session)
    session.run("pytest", "-q", "tests", "--tier=quick", "-n", "2")
    with tempfile.TemporaryDirectory() as out:
        session.run("pytest", "-q", "benchmarks", "-k", "physics-0000", f"--imgedit-out={out}")


@nox.session
def lock(session: nox.Session) -> None:
    """Pin in constraints.txt what all extras and the tests need; what is pinned there stays, unless
    `-- --upgrade` is given.
    """
    extras = ("test", "docs", "fp8", "metrics", "wandb")
    session.run(
        *("uv", "pip", "compile", "--quiet", "--python-version", "3.11", "--universal"),
        *("--no-header", "--annotation-style=line", "--no-emit-package", "pytest-imgedit"),
        *(f"--extra={extra}" for extra in extras),
        *("--output-file", "constraints.txt", *session.posargs),
        *("pyproject.toml", "packages/imgedit-verl/pyproject.toml"),
        "tests/installed/requirements.txt",
    )


@nox.session
def everyday(session: nox.Session) -> None:
    """What the README's test command runs."""
    session.run(*EVERYDAY, *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """The everyday tests, and which lines and branches of the package they take."""
    session.run("coverage", "erase")
    # a failed test, which `everyday` is there to find, is no reason to have no report; tests that
    # run as another user cannot write their coverage
    command = ["coverage", "run", "-m", *EVERYDAY, "-k", "not another_user", *session.posargs]
    session.run(*command, success_codes=[0, 1])
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", "--skip-covered", "--sort=miss")


@nox.session
def full(session: nox.Session) -> None:
    """What is marked `full`."""
    session.run(*EVERYDAY, "--tier=full", *session.posargs)
