"""TOML configs: the line of each key, and paths, which are relative to the config's folder."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, files
from pytest_imgedit.kinds.base import ROLES, Role
from pytest_imgedit.kinds.registry import DEFAULT, kind_of

#: Suffixes by which a suite's spec is known to be a file.
SUITE_SUFFIXES = (".json", ".jsonl", ".csv", ".toml", ".parquet")


@dataclass(frozen=True)
class ConfigFile:
    """A parsed TOML config that can tell the line on which a key stands.

    `prefix` is the table of the file that holds the config's sections, such as `tool.imgedit`.
    """

    path: Path | None = None
    text: str = ""
    tables: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""

    @classmethod
    def read(cls, path: Path, expected: str = "a TOML file") -> ConfigFile:
        """Return a parsed TOML file; raise `UsageError` if it cannot be read, or naming file and
        line if it is not valid TOML.
        """
        text = files.read_utf8(path, files.MAX_TEXT_BYTES, expected)
        try:
            return cls(path, text, tomllib.loads(text))
        except (ValueError, RecursionError) as error:  # also for thousands of digits or brackets
            match = re.search(r"at line (\d+)", str(error))
            line = match[1] if match else 1
            hint = ": cut short?" if str(error).endswith("(at end of document)") else ""
            raise errors.UsageError(f"{path}:{line}: not valid TOML: {error}{hint}") from error

    @classmethod
    def read_config(cls, path: Path) -> ConfigFile:
        """Return a config, with its paths, relative to its folder, made relative to the working
        directory; raise `UsageError` as `read` does, and for a key outside of all sections.
        """
        return cls.read(path)._as_config()

    @classmethod
    def read_project(cls, path: Path) -> ConfigFile:
        """Return `[tool.imgedit]` of a pyproject.toml as a config; an empty one without the file or
        the table. Raises as `read_config` does, also if that is no table.
        """
        file = cls.read(path) if os.path.lexists(path) else cls()
        tool = file.tables.get("tool")
        table = tool.get("imgedit") if isinstance(tool, dict) else None
        if table is None:
            return cls()
        if not isinstance(table, dict):
            raise errors.UsageError(f"{path}: tool.imgedit is {table!r:.40}, expected a table")
        return cls(path, file.text, table, "tool.imgedit")._as_config()

    def _as_config(self) -> ConfigFile:
        """Return this file with its paths made relative to the working directory; raise
        `UsageError` for a key outside of all sections.
        """
        assert self.path is not None
        for name, table in self.tables.items():
            if not isinstance(table, dict):
                raise errors.UsageError(
                    f"{self.path}:{_line_of_key(self.text, self.prefix, name)}: top-level key "
                    f"{name!r}, expected it in a section"
                )
        return replace(self, tables=rebase_paths(self.tables, self.path.absolute().parent))

    def place(self, section: str, key: str) -> str:
        """Return `file:line: ` of a key, or of a section for an empty key; an empty text if the
        file does not hold it.
        """
        table: Any = self.tables
        for name in section.split(".", 1):  # a judge or metric may have a dot in its name
            table = table.get(name) if isinstance(table, dict) else None
        if self.path is None or not isinstance(table, dict) or (key and key not in table):
            return ""
        header = f"{self.prefix}.{section}".removeprefix(".")
        return f"{self.path}:{_line_of_key(self.text, header, key)}: "


def configs_of(root: Path, near: Path) -> dict[str, ConfigFile]:
    """Return the configs that a repository has by its files alone, by what messages call them.

    These are `[tool.imgedit]` of the pyproject.toml in its `root`, and the nearest `imgedit.toml`:
    in the folder `near` or in `benchmarks` below it, or in those of its parents up to the root.
    """
    project = ConfigFile.read_project(root / "pyproject.toml")
    configs = {"[tool.imgedit] in pyproject.toml": project} if project.path is not None else {}
    parents = [folder for folder in near.parents if folder.is_relative_to(root)]
    for folder in dict.fromkeys((near, *parents, root)):
        for path in (folder / "imgedit.toml", folder / "benchmarks" / "imgedit.toml"):
            if os.path.lexists(path):  # one that cannot be read is no reason to take the defaults
                return {**configs, str(path): ConfigFile.read_config(path)}
    return configs


def _line_of_key(text: str, section: str, key: str) -> int:
    """Return the line of a key, or of the header of its own table; else the line of the section's
    header, or 1 without one.
    """
    key_pattern = re.compile(rf"""["']?{re.escape(key)}["']?\s*[=.]""")
    current = ""
    header_line = 1
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        header = re.match(r"\[([^\[\]]+)\]", line)
        if header is not None:
            current = header[1].strip().replace('"', "")
            if current == f"{section}.{key}":
                return number
            if current == section:
                header_line = number
        elif current == section and key and key_pattern.match(line):
            return number
    return header_line


def parse_value(text: str) -> Any:
    """Return the VALUE of `--imgedit-set`, parsed as TOML; a text that is not TOML as it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


#: Sections and keys with paths, and the pattern of those texts that are paths.
_PATHS = (
    ("suite", "root", ""),
    ("judge", "prompts", ""),
    ("editor", "rewrites", ""),
    ("gates", "baselines", ""),
    ("gates", "baseline_store", ""),
    ("gates", "compare", r"/|\.json$"),
    ("workers", "editor_python", "/"),
    ("workers", "judge_python", "/"),
)


def rebase_paths(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tables of a config in `folder` with each relative path made relative to the
    working directory.

    Parameters of a custom class stay as they are, since nothing says which of them are paths. If
    `folder` is the working directory, the same `tables` are returned.
    """
    base = os.path.relpath(folder)
    if base == ".":
        return tables
    join = partial(_join, base)
    result = deepcopy(tables)
    _replace(result.get("suite"), "spec", partial(_rebase_suite, join))
    for role in ROLES:
        _rebase_model(role, result.get(role), base)
    for section, role in _FURTHER.items():
        for name, table in _tables_in(result, section).items():
            _rebase_model(role, table, base, name)
            _replace(table, "prompts", join)
    for section, key, pattern in _PATHS:
        _replace(result.get(section), key, join, pattern)
    for protocol in _tables_in(result, "protocols").values():
        _replace(protocol, "file", join)
    return result


def _tables_in(tables: dict[str, Any], section: str) -> dict[str, Any]:
    """Return what a section names; nothing for one that is missing, or is no table."""
    named = tables.get(section)
    return named if isinstance(named, dict) else {}


def _replace(table: Any, key: str, change: Callable[[str], str], pattern: str = "") -> None:
    """Change the text at a key of a table in place, if it matches a pattern.

    Anything but a text, or but a table, stays: it is refused where settings are checked.
    """
    value = table.get(key) if isinstance(table, dict) else None
    if isinstance(value, str) and re.search(pattern, value):
        table[key] = change(value)


#: Suites whose argument is a path, which a query may follow.
_SUITES_WITH_PATHS = (
    "native",
    "gedit",
    "gedit-v2",
    "genarena",
    "imgedit",
    "kris",
    "omnicontext",
    "re-edit",
    "risebench",
    "seeds",
)


def suite_path(spec: str) -> Path | None:
    """Return the file or the folder that the spec of a suite names; `None` if it names none."""
    name, colon, argument = spec.partition(":")
    if colon and name in _SUITES_WITH_PATHS:
        return Path(argument.partition("?")[0])
    return Path(spec) if Path(spec).suffix.lower() in SUITE_SUFFIXES else None


def _rebase_suite(join: Callable[[str], str], spec: str) -> str:
    """Return the spec of a suite with its path, if it has one, changed by `join`."""
    name, colon, argument = spec.partition(":")
    if colon and name and "/" not in name:  # a path may hold a colon
        if name in _SUITES_WITH_PATHS:
            path, mark, query = argument.partition("?")
            return f"{name}:{join(path)}{mark}{query}"
    elif Path(spec).suffix.lower() in SUITE_SUFFIXES:
        return join(spec)
    return spec


#: Sections of further models by name, and their roles.
_FURTHER: dict[str, Role] = {"judges": "judge", "metrics": "metric"}


def _rebase_model(role: Role, table: Any, base: str, usual: str = DEFAULT) -> None:
    """Join to `base`, in place, the path in the spec of a model, and the parameters that its kind
    says are paths; `usual` is the spec of a table that has none.

    A table without a known kind stays as it is.
    """
    spec = table.get("spec", usual) if isinstance(table, dict) else None
    if not isinstance(spec, str):
        return
    kind = kind_of(role, spec)
    if kind is None:
        return
    name, colon, argument = spec.partition(":")
    is_path = kind.argument_is == "path"
    if kind.argument_is == "checkpoint":
        is_path = argument.startswith(".") or Path(base, argument).is_dir()
    if colon and is_path:
        table["spec"] = f"{name}:{_join(base, argument)}"
    for key in kind.names_files:
        _replace(table, key, partial(_join, base))
        if isinstance(table.get(key), list):
            for entry in table[key]:
                _replace(entry, "path", partial(_join, base))


def _join(base: str, path: str) -> str:
    """Return a path joined to a folder, links not followed; an absolute or empty one as it is."""
    if not path or Path(path).is_absolute():
        return path
    return os.path.normpath(Path(base, path))
