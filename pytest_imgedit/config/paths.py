"""Paths in a config are relative to the config's folder: here they become paths that work from
where pytest runs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pytest_imgedit.kinds.base import ROLES, Role
from pytest_imgedit.kinds.registry import DEFAULT, kind_of

#: Suffixes by which a suite's spec is known to be a file.
SUITE_SUFFIXES = (".json", ".jsonl", ".csv", ".toml")
#: By what the path of a baseline is told from a name.
_PATH = re.compile(r"/|\.json$")
#: Suites whose argument is a path.
_SUITES_OF_PATHS = ("native", "risebench")


def rebase_paths(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tables of a config in `folder` with each relative path made relative to the
    working directory.

    Parameters of a class of the user's own stay as they are: nothing says which of them are paths.
    """
    base = os.path.relpath(folder)
    if base == ".":
        return tables
    result = {
        section: dict(table) if isinstance(table, dict) else table
        for section, table in tables.items()
    }
    _replace(result.get("suite"), "spec", lambda spec: _rebase_suite(spec, base))
    for role in ROLES:
        _rebase_model(role, result.get(role), base)
    for section, key in (("suite", "root"), ("gates", "baselines")):
        _replace(result.get(section), key, lambda path: _join(base, path))
    _replace(
        result.get("gates"), "compare", lambda ref: _join(base, ref) if _PATH.search(ref) else ref
    )
    for key in ("editor_python", "judge_python"):
        _replace(
            result.get("workers"),
            key,
            lambda python: _join(base, python) if "/" in python else python,
        )
    rubrics = result.get("rubrics")
    if isinstance(rubrics, dict):
        result["rubrics"] = {
            name: _rebase_key(table, "file", base) for name, table in rubrics.items()
        }
    return result


def _replace(table: Any, key: str, change: Any) -> None:
    """Change a text in a table; what is no text is refused where settings are checked."""
    if isinstance(table, dict) and isinstance(table.get(key), str):
        table[key] = change(table[key])


def _rebase_key(table: Any, key: str, base: str) -> Any:
    copy = dict(table) if isinstance(table, dict) else table
    _replace(copy, key, lambda path: _join(base, path))
    return copy


def _rebase_suite(spec: str, base: str) -> str:
    name, colon, argument = spec.partition(":")
    if not colon or not name or "/" in name:  # a path may hold a colon
        if Path(spec).suffix.lower() in SUITE_SUFFIXES:
            return _join(base, spec)
        return spec
    if name in _SUITES_OF_PATHS:
        return f"{name}:{_join(base, argument)}"
    return spec


def _rebase_model(role: Role, table: Any, base: str) -> None:
    """Rebase the spec of an editor or judge, and the parameters that are paths, as its kind
    says.
    """
    if not isinstance(table, dict):
        return
    spec = table.get("spec", DEFAULT)
    if not isinstance(spec, str) or (kind := kind_of(role, spec)) is None:
        return
    name, colon, argument = spec.partition(":")
    is_path = kind.argument_is == "path"
    if kind.argument_is == "checkpoint":
        is_path = argument.startswith(".") or Path(base, argument).is_dir()
    if colon and is_path:
        table["spec"] = f"{name}:{_join(base, argument)}"
    for key in kind.names_files:
        _replace(table, key, lambda path: _join(base, path))
        if isinstance(table.get(key), list):
            table[key] = [_rebase_key(entry, "path", base) for entry in table[key]]


def _join(base: str, path: str) -> str:
    """Join without following links; an absolute path, or none, stays as it is."""
    if path and not Path(path).is_absolute():
        return os.path.normpath(Path(base, path))
    return path
