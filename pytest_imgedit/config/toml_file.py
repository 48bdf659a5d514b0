"""TOML files that can tell the line of a key, and single TOML values."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_imgedit.config.paths import rebase_paths
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import read_utf8

MAX_TOML_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ConfigFile:
    """A parsed TOML config that can tell the line on which a key stands.

    `prefix` is the table of the file that holds the config's sections, such as `tool.imgedit`.
    """

    path: Path | None
    text: str
    tables: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""

    @classmethod
    def empty(cls) -> ConfigFile:
        return cls(None, "")

    @classmethod
    def read(cls, path: Path, expected: str = "a TOML file") -> ConfigFile:
        """Parse a TOML file; raise `UsageError` naming file and line."""
        text = read_utf8(path, MAX_TOML_BYTES, expected)
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            raise UsageError(f"{path}:{line[1] if line else 1}: not valid TOML: {error}") from error
        except (
            ValueError,
            RecursionError,
        ) as error:  # a number of thousands of digits, thousands of brackets
            raise UsageError(f"{path}:1: not valid TOML: {error}") from error

    @classmethod
    def read_config(cls, path: Path) -> ConfigFile:
        """Read a config, its paths relative to its own folder; raise `UsageError` for a key outside
        of all sections.
        """
        return cls.read(path)._as_config()

    @classmethod
    def read_project(cls, path: Path) -> ConfigFile:
        """Read `[tool.imgedit]` of a pyproject.toml; empty if the file or the table is not
        there.
        """
        if not os.path.lexists(path):
            return cls.empty()
        file = cls.read(path)
        tool = file.tables.get("tool")
        table = tool.get("imgedit") if isinstance(tool, dict) else None
        if table is None:
            return cls.empty()
        if not isinstance(table, dict):
            raise UsageError(f"{path}: tool.imgedit is {table!r:.40}, expected a table")
        return cls(path, file.text, table, "tool.imgedit")._as_config()

    def _as_config(self) -> ConfigFile:
        assert self.path is not None
        for name, table in self.tables.items():
            if not isinstance(table, dict):
                line = _line_of_key(self.text, self.prefix, name)
                raise UsageError(
                    f"{self.path}:{line}: top-level key {name!r}, expected it in a section"
                )
        return replace(self, tables=rebase_paths(self.tables, self.path.absolute().parent))

    def place(self, section: str, key: str) -> str:
        """Return `file:line: ` of a key, or an empty string if the file does not hold it."""
        table = self.tables.get(section)
        if self.path is None or table is None:
            return ""
        if key and key not in table:
            return ""
        name = f"{self.prefix}.{section}" if self.prefix else section
        return f"{self.path}:{_line_of_key(self.text, name, key)}: "


def configs_of(root: Path, near: Path) -> dict[str, ConfigFile]:
    """Read the configs that a repository has by its files alone, by what they are called.

    These are `[tool.imgedit]` of the pyproject.toml in its `root`, and the nearest `imgedit.toml`:
    in the folder `near` or in `benchmarks` below it, or in those of its parents up to the root.
    """
    project = ConfigFile.read_project(root / "pyproject.toml")
    found = {"[tool.imgedit] in pyproject.toml": project} if project.path is not None else {}
    parents = [folder for folder in near.parents if folder == root or folder.is_relative_to(root)]
    for folder in dict.fromkeys((near, *parents, root)):
        for path in (folder / "imgedit.toml", folder / "benchmarks" / "imgedit.toml"):
            if os.path.lexists(path):  # one that cannot be read is no reason to take the defaults
                return {**found, str(path): ConfigFile.read_config(path)}
    return found


def _line_of_key(text: str, section: str, key: str) -> int:
    current, header_line = "", 1
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if header := re.match(r"\[([^\[\]]+)\]", line):
            current = header[1].strip().replace('"', "")
            if current == f"{section}.{key}":
                return number
            if current == section:
                header_line = number
        elif (
            current == section and key and re.match(rf"""["']?{re.escape(key)}["']?\s*[=.]""", line)
        ):
            return number
    return header_line


def parse_value(text: str) -> Any:
    """Parse the VALUE of `--imgedit-set` as TOML; text that is not TOML is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
