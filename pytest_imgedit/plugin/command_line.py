"""What the user gave pytest: options, the ini key and the config file, gathered into raw
settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.config.options import OPTIONS, Tables, assign
from pytest_imgedit.core.errors import UsageError

if TYPE_CHECKING:
    import pytest

    from pytest_imgedit.config.toml_file import ConfigFile

#: The one ini key; everything else is in the config that it names.
INI_KEY = "imgedit_config"


def refuse_unknown_options(arguments: Iterable[str]) -> None:
    """Raise `UsageError` for an option `--imgedit-…` that does not exist, with the nearest one that
    does.
    """
    known = ["--imgedit", *(option.flag for option in OPTIONS)]
    for argument in arguments:
        name = argument.partition("=")[0]
        if name.startswith("--imgedit-") and name not in known:
            from pytest_imgedit.core.sanitize import did_you_mean

            raise UsageError(f"{name}: no such option{did_you_mean(name, known)}")


def add_options(parser: pytest.Parser) -> None:
    """Declare every option on the command line, and the ini key."""
    group = parser.getgroup("imgedit", "evaluation of image editing models")
    group.addoption(
        "--imgedit",
        dest="imgedit",
        action="store_true",
        default=False,
        help="run the built-in test, in any folder; testpaths is ignored, paths on the command "
        "line still run",
    )
    for option in OPTIONS:
        how: dict[str, Any] = {"action": "store_true"}
        if option.kind != "flag":
            how = {
                "action": "append" if option.kind == "list" else "store",
                "metavar": option.metavar,
            }
        group.addoption(option.flag, dest=option.dest, default=None, help=option.help, **how)
    parser.addini(
        INI_KEY, "TOML config, relative to the ini file's folder", type="string", default=None
    )


def given(config: pytest.Config) -> dict[str, Any]:
    """Return the options that the user gave on the command line, by destination."""
    values = {option.dest: config.getoption(option.dest) for option in OPTIONS}
    return {dest: value for dest, value in values.items() if value is not None}


def _refuse_unknown_keys(config: pytest.Config) -> None:
    """Raise `UsageError` for another ini key `imgedit_…`: it was meant to do something."""
    keys = getattr(config, "_inicfg", {})  # pytest tells only of keys that somebody declared
    for key in keys:
        if key.startswith("imgedit_") and key != INI_KEY:
            section, _, name = next(
                (o.toml for o in OPTIONS if o.dest == key and o.toml), ""
            ).partition(".")
            if name and section != "run":
                instead = f"a TOML config with [{section}] {name}"
            else:
                instead = "a TOML config"
            raise UsageError(
                f"{config.inipath or '-o'}: unknown key {key!r}, expected {INI_KEY} = FILE, "
                f"{instead}, "
                "or the table [tool.imgedit] in pyproject.toml"
            )


def find_config(config: pytest.Config, near: Path) -> ConfigFile:
    """Read the config that the command line names, else the one that the repository has for items
    in the folder `near`.

    That is what the ini key names, or one of `configs_of`. Raises `UsageError` if there are two.
    """
    from pytest_imgedit.config.toml_file import ConfigFile, configs_of

    root = config.rootpath
    if path := config.getoption(INI_KEY):
        return ConfigFile.read_config(Path(config.invocation_params.dir, path))
    found = configs_of(root, near)
    if name := config.getini(INI_KEY):
        path = Path(config.inipath.parent if config.inipath is not None else root, name)
        file = ConfigFile.read_config(path)
        others = {
            key: other
            for key, other in found.items()
            if other.path is None or not path.samefile(other.path)
        }
        found = {f"{INI_KEY} = {name}": file, **others}
    if len(found) > 1:
        raise UsageError(f"{' and '.join(found)}: expected one config, or --imgedit-config=FILE")
    return next(iter(found.values()), ConfigFile.empty())


def gather(config: pytest.Config, file: ConfigFile) -> Tables:
    """Collect raw settings as `{section: {key: value}}`; the command line wins over the config, key
    by key.

    Parameters that the config has for an editor or judge do not count for one of another kind that
    the command line names. Raises `UsageError` for a malformed `--imgedit-set`.
    """
    _refuse_unknown_keys(config)
    command_line = given(config)
    check_texts(config)
    merged: Tables = {section: dict(table) for section, table in file.tables.items()}
    for role in ("editor", "judge"):
        spec, table = command_line.get(f"imgedit_{role}"), merged.get(role, {})
        if (
            spec is not None
            and "spec" in table
            and _kind(role, spec) != _kind(role, str(table["spec"]))
        ):
            merged[role] = {key: value for key, value in table.items() if key in _OWN_KEYS[role]}
    assignments = command_line.get("imgedit_set", ())
    assign(merged, assignments)
    if "imgedit_out" in command_line:
        command_line["imgedit_out"] = str(
            Path(config.invocation_params.dir, command_line["imgedit_out"])
        )
    _apply(merged, command_line)
    asked = {option.toml for option in OPTIONS if option.dest in command_line and option.toml}
    asked |= {".".join(text.partition("=")[0].strip().split(".")[:2]) for text in assignments}
    merged["run"] = {**merged.get("run", {}), "config_file": file, "asked": frozenset(asked)}
    return merged


#: Keys of a section that do not belong to the model which its spec names.
_OWN_KEYS = {"editor": ("seeds",), "judge": ("rubric", "reasks", "controls", "repeats")}


def _kind(role: str, spec: str) -> str:
    """Return what kind of model a spec names; a class of the user's own is a kind by itself."""
    from pytest_imgedit.kinds.registry import known

    name = spec.partition(":")[0]
    if name in known(role):
        return name
    return spec


def check_texts(config: pytest.Config) -> None:
    """Raise `UsageError` for an option, or a folder that pytest-xdist sends to its workers, that is
    not UTF-8.
    """
    for dest, value in given(config).items():
        _require_utf8(f"--{dest.replace('_', '-')}", value)
    if getattr(config.option, "tx", None) or getattr(config.option, "numprocesses", None):
        _require_utf8("-n: the folder", str(config.rootpath))


def check_values(config: pytest.Config) -> None:
    """Raise `UsageError` for a value on the command line that is wrong by itself, whatever a config
    says.
    """
    if not given(config):
        return
    from pytest_imgedit.config.settings import make_settings
    from pytest_imgedit.config.toml_file import ConfigFile

    make_settings(gather(config, ConfigFile.empty()))


def _require_utf8(name: str, value: Any) -> None:
    """Raise `UsageError` for a text, or one of a list, that is not UTF-8 and so could not be
    written anywhere.
    """
    for text in value if isinstance(value, list) else [str(value)]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name}: {ascii(text)[1:-1]}, expected UTF-8") from None


def _apply(merged: Tables, values: dict[str, Any]) -> None:
    for option in OPTIONS:
        if option.toml is not None and option.dest in values:
            section, key = option.toml.split(".")
            merged.setdefault(section, {})[key] = values[option.dest]
