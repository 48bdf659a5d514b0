"""The config that pytest's ini key names, read without pytest."""

import configparser
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_imgedit.config.options import INI_KEY
from pytest_imgedit.config.toml_file import ConfigFile, configs_of
from pytest_imgedit.core import files

#: Files that configure pytest by being there, and those that do so by a section, in its order.
_OWN = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
_SHARED = ("pyproject.toml", "tox.ini", "setup.cfg")


def configs_here() -> list[ConfigFile]:
    """Return the configs of the working directory, as pytest finds them where this is its root
    folder: the one that the ini key names, then those of `configs_of`.

    Raises `UsageError` for a file that cannot be read.
    """
    here = Path.cwd()
    named = _named_by_ini_key(here)
    found = [] if named is None else [ConfigFile.read_config(named)]
    return [*found, *configs_of(here, here).values()]


def _named_by_ini_key(root: Path) -> Path | None:
    """Return the path that the ini key has in the first file of a folder that configures pytest."""
    for name in (*_OWN, *_SHARED):
        path = root / name
        if not path.is_file():
            continue
        keys = _toml_keys(path) if path.suffix == ".toml" else _ini_keys(path)
        if keys is not None or name in _OWN:
            value = (keys or {}).get(INI_KEY)
            return root / value if isinstance(value, str) and value else None
    return None


def _toml_keys(path: Path) -> dict[str, Any] | None:
    """Return pytest's table of a TOML file; `None` if there is none."""
    tables = ConfigFile.read(path).tables
    if path.name in _OWN:
        return _table(tables, "pytest")
    table = _table(_table(tables, "tool") or {}, "pytest") or {}
    return _table(table, "ini_options") or table or None


def _table(tables: dict[str, Any], name: str) -> dict[str, Any] | None:
    table = tables.get(name)
    return table if isinstance(table, dict) else None


def _ini_keys(path: Path) -> dict[str, Any] | None:
    """Return pytest's section of an ini file, as far as the file is well-formed; `None` if there is
    none.
    """
    section = "tool:pytest" if path.name == "setup.cfg" else "pytest"
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    with suppress(configparser.Error):  # pytest says what is wrong with it
        parser.read_string(files.read_utf8(path, files.MAX_TEXT_BYTES, "an ini file"))
    return dict(parser[section]) if section in parser else None
