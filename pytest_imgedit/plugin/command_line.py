"""Options, the ini key and the config file, gathered into raw settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.config.options import OPTIONS, Tables, assign, further_name
from pytest_imgedit.core.errors import UsageError

if TYPE_CHECKING:
    import pytest

    from pytest_imgedit.config.toml_file import ConfigFile

#: The only ini key. It names the config, which holds everything else.
INI_KEY = "imgedit_config"
#: What stands between two metrics: a comma inside a path is followed by more of the path.
_COMMA = re.compile(r",\s*(?=[\w.-]+\s*(?:[:,]|$))")


def refuse_unknown_options(arguments: Iterable[str]) -> None:
    """Raise `UsageError` for an option `--imgedit-…` that does not exist, with the nearest one that
    does.
    """
    known = ["--imgedit"] + [option.flag for option in OPTIONS]
    for argument in arguments:
        name = argument.partition("=")[0]
        if name.startswith("--imgedit-") and name not in known:
            from pytest_imgedit.core.text import did_you_mean

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
        arguments: dict[str, Any] = {"action": "store_true"}
        if option.kind != "flag":
            action = "append" if option.kind == "list" else "store"
            arguments = {"action": action, "metavar": option.metavar}
        group.addoption(option.flag, dest=option.dest, default=None, help=option.help, **arguments)
    parser.addini(
        INI_KEY, "TOML config, relative to the ini file's folder", type="string", default=None
    )


def explicit_options(config: pytest.Config) -> dict[str, Any]:
    """Return the options of the command line that have a value, by destination."""
    values = {option.dest: config.getoption(option.dest) for option in OPTIONS}
    return {dest: value for dest, value in values.items() if value is not None}


def _refuse_unknown_keys(config: pytest.Config) -> None:
    """Raise `UsageError` for any other ini key that starts with `imgedit_`."""
    for key in getattr(config, "_inicfg", {}):  # `getini` knows declared keys only
        if key.startswith("imgedit_") and key != INI_KEY:
            table = _table_of(key)
            raise UsageError(
                f"{config.inipath or '-o'}: unknown key {key!r}, expected {INI_KEY} = FILE, "
                f"a TOML config{table}, or the table [tool.imgedit] in pyproject.toml"
            )


def _table_of(key: str) -> str:
    """Say which key of a TOML config a key of an ini file is, if an option has its name."""
    for option in OPTIONS:
        if option.dest == key and option.toml is not None:
            section, _, name = option.toml.partition(".")
            return "" if section == "run" else f" with [{section}] {name}"
    return ""


def find_config(config: pytest.Config, near: Path) -> ConfigFile:
    """Read the config that the command line names, or else the repository's config for items in
    the folder `near`.

    The repository's config is the one that the ini key names, or one of `configs_of`. Raises
    `UsageError` if there are two.
    """
    from pytest_imgedit.config.toml_file import ConfigFile, configs_of

    root = config.rootpath
    if path := config.getoption(INI_KEY):
        return ConfigFile.read_config(Path(config.invocation_params.dir, path))
    configs = configs_of(root, near)
    if name := config.getini(INI_KEY):
        path = Path(config.inipath.parent if config.inipath is not None else root, name)
        file = ConfigFile.read_config(path)
        others = {
            key: other
            for key, other in configs.items()
            if other.path is None or not path.samefile(other.path)
        }
        configs = {f"{INI_KEY} = {name}": file, **others}
    if len(configs) > 1:
        raise UsageError(f"{' and '.join(configs)}: expected one config, or --imgedit-config=FILE")
    return next(iter(configs.values()), ConfigFile())


def gather(config: pytest.Config, file: ConfigFile) -> Tables:
    """Collect raw settings as `{section: {key: value}}`.

    The command line overrides the config key by key. Parameters of the config's editor or judge are
    dropped if the command line names a model of another kind, and so are the root and the fields of
    the config's suite. Raises `UsageError` for a malformed
    `--imgedit-set`.
    """
    _refuse_unknown_keys(config)
    command_line = explicit_options(config)
    check_texts(config)
    merged: Tables = {section: dict(table) for section, table in file.tables.items()}
    judges = command_line.pop("imgedit_judge", [])
    specs = {
        "suite": command_line.get("imgedit_suite"),
        "editor": command_line.get("imgedit_editor"),
        "judge": next(iter(judges), None),
    }
    for role, spec in specs.items():
        table = merged.get(role, {})
        if (
            spec is not None
            and "spec" in table
            and _kind(role, spec) != _kind(role, str(table["spec"]))
        ):
            merged[role] = {key: value for key, value in table.items() if key in _OWN_KEYS[role]}
    if judges:
        merged["judge"] = {**merged.get("judge", {}), "spec": judges[0]}
    _name_further(merged, "judges", judges[1:])
    metrics = map(split_metrics, command_line.pop("imgedit_metric", []))
    _name_further(merged, "metrics", chain.from_iterable(metrics))
    assignments = command_line.get("imgedit_set", ())
    assign(merged, assignments)
    if "imgedit_out" in command_line:
        command_line["imgedit_out"] = str(
            Path(config.invocation_params.dir, command_line["imgedit_out"])
        )
    _apply(merged, command_line)
    keys = {option.toml for option in OPTIONS if option.dest in command_line and option.toml}
    keys |= {"judge.spec"} if judges else set()
    keys |= {".".join(text.partition("=")[0].strip().split(".")[:2]) for text in assignments}
    merged["run"] = {**merged.get("run", {}), "config_file": file, "asked": frozenset(keys)}
    return merged


def split_metrics(text: str) -> list[str]:
    """Split metrics at the commas before a name; a URL keeps its commas, and so comes last."""
    names, scheme, rest = text.partition("://")
    specs = _COMMA.split(names)
    specs[-1] += scheme + rest
    return specs


def _name_further(merged: Tables, section: str, specs: Iterable[str]) -> None:
    """Add judges or metrics of the command line, each by the name that its spec gives it.

    Raises `UsageError` if two of them have one name.
    """
    named: set[str] = set()
    for spec in specs:
        name = further_name(spec)
        if name in named:
            raise UsageError(
                f"--imgedit-{section[:-1]}={spec}: another one is named {name!r}, expected "
                f"[{section}.NAME] in a config, with its spec"
            )
        named.add(name)
        tables = dict(merged.get(section, {}))
        tables[name] = {**tables.get(name, {}), "spec": spec}
        merged[section] = tables


#: Keys of a section that do not belong to the suite or model which its spec names.
_OWN_KEYS = {
    "suite": ("language", "categories", "limit", "min_score"),
    "editor": ("seeds", "rewrites"),
    "judge": ("protocol", "variant", "prompts", "any_version", "reasks", "controls", "repeats"),
}


def _kind(role: str, spec: str) -> str:
    """Return the kind of suite or model that a spec names; a user's class is a kind by itself."""
    from pytest_imgedit.config.toml_file import SUITE_SUFFIXES
    from pytest_imgedit.kinds.registry import known

    name = spec.partition(":")[0]
    if role == "suite":
        return "a file" if Path(spec).suffix.lower() in SUITE_SUFFIXES else name
    return name if name in known(role) else spec


def check_texts(config: pytest.Config) -> None:
    """Raise `UsageError` for an option that is not UTF-8, or such a root folder under xdist, whose
    workers receive it as text.
    """
    for dest, value in explicit_options(config).items():
        _require_utf8(f"--{dest.replace('_', '-')}", value)
    if getattr(config.option, "tx", None) or getattr(config.option, "numprocesses", None):
        _require_utf8("-n: the folder", str(config.rootpath))


def check_values(config: pytest.Config) -> None:
    """Raise `UsageError` for a command line value that no config can make valid."""
    if not explicit_options(config):
        return
    from pytest_imgedit.config import settings, toml_file

    settings.make_settings(gather(config, toml_file.ConfigFile()))


def _require_utf8(name: str, value: Any) -> None:
    """Raise `UsageError` for a text, or a text of a list, that cannot be encoded as UTF-8."""
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
