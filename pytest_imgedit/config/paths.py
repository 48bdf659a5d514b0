"""Paths in a config are relative to the config's folder: here they become paths that work from where pytest runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

#: Suffixes by which a suite's spec is known to be a file.
SUITE_SUFFIXES = (".json", ".jsonl", ".csv", ".toml")
#: Schemes whose argument is always a path on this machine.
_PATH_SCHEMES = ("folder", "native", "risebench")
#: Schemes whose argument is a path or a hub id.
_MODEL_SCHEMES = ("diffusers", "qwen-vl")


def rebase_paths(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tables of a config in `folder` with each relative path made relative to the working directory.

    Parameters of a class of the user's own stay as they are: nothing says which of them are paths.
    """
    base = os.path.relpath(folder)
    if base == ".":
        return tables
    result = {section: dict(table) if isinstance(table, dict) else table for section, table in tables.items()}
    for section in ("suite", "editor", "judge"):
        _replace(result.get(section), "spec", lambda spec: _rebase_spec(spec, base))
    for section, key in (("suite", "root"), ("judge", "adapter"), ("gates", "baselines")):
        _replace(result.get(section), key, lambda path: _join(base, path))
    _replace(result.get("gates"), "compare", lambda ref: _join(base, ref) if _is_path(ref) else ref)
    for key in ("editor_python", "judge_python"):
        _replace(result.get("workers"), key, lambda python: _join(base, python) if "/" in python else python)
    editor, rubrics = result.get("editor"), result.get("rubrics")
    if isinstance(editor, dict) and isinstance(editor.get("loras"), list):
        editor["loras"] = [_rebase_key(lora, "path", base) for lora in editor["loras"]]
    if isinstance(rubrics, dict):
        result["rubrics"] = {name: _rebase_key(table, "file", base) for name, table in rubrics.items()}
    return result


def _replace(table: Any, key: str, change: Any) -> None:
    """Change a text in a table; what is no text is refused where settings are checked."""
    if isinstance(table, dict) and isinstance(table.get(key), str):
        table[key] = change(table[key])


def _rebase_key(table: Any, key: str, base: str) -> Any:
    copy = dict(table) if isinstance(table, dict) else table
    _replace(copy, key, lambda path: _join(base, path))
    return copy


def _rebase_spec(spec: str, base: str) -> str:
    scheme, colon, argument = spec.partition(":")
    if not colon:
        return _join(base, spec) if Path(spec).suffix.lower() in SUITE_SUFFIXES else spec
    if scheme in _PATH_SCHEMES:
        return f"{scheme}:{_join(base, argument)}"
    if scheme in _MODEL_SCHEMES and (argument.startswith(".") or Path(base, argument).is_dir()):
        return f"{scheme}:{_join(base, argument)}"
    return spec


def _is_path(reference: str) -> bool:
    """Tell the path of a baseline from its name."""
    return "/" in reference or reference.endswith(".json")


def _join(base: str, path: str) -> str:
    """Join without following links; an absolute path, or none, stays as it is."""
    return os.path.normpath(Path(base, path)) if path and not Path(path).is_absolute() else path
