"""Checks in three tiers, in the environment that calls them: `nox -s quick`, `nox -s everyday`,
`nox -s full`.

docs/development.md says what belongs where.
"""

from __future__ import annotations

import tempfile

import nox

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
    )
    with session.chdir("perf"):  # scripts, which import each other by their names
        session.run("mypy", "--strict", "--config-file", "../pyproject.toml", ".")
    session.run("lint-imports")


@nox.session
def quick(session: nox.Session) -> None:
    """Lint, types, tests without a process or a model, and one run end to end."""
    lint(session)
    session.run("pytest", "-q", "tests", "--tier=quick", "-n", "2")
    with tempfile.TemporaryDirectory() as out:
        session.run("pytest", "-q", "benchmarks", "-k", "physics-0000", f"--imgedit-out={out}")


@nox.session
def everyday(session: nox.Session) -> None:
    """What the README's test command runs."""
    session.run(*EVERYDAY, *session.posargs)


@nox.session
def full(session: nox.Session) -> None:
    """What is marked `full`."""
    session.run(*EVERYDAY, "--tier=full", *session.posargs)
