"""Options, the ini key and the config file, gathered into raw settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.config.options import INI_KEY, OPTIONS, Tables, assign, further_name
from pytest_imgedit.core.errors import UsageError

if TYPE_CHECKING:
    import pytest

    from pytest_imgedit.config.toml_file import ConfigFile

#: What stands between two metrics: a comma inside a path is followed by more of the path.
_COMMA = re.compile(r",\s*(?=[\w.-]+\s*(?:[:,]|$))")


def refuse_unknown_options(arguments: Iterable[str]) -> None:
    """Raise `UsageError` for an option `--imgedit-…` that does not exist, with the nearest one that
    does.
    """
    known = ["--imgedit"] + [option.flag for option in OPTIONS]
    for argument in arguments:
        name, _, _ = argument.partition("=")
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
    """Raise `UsageError` for an ini key that starts with `imgedit_` and is not `INI_KEY`."""
    for key in getattr(config, "_inicfg", {}):  # `getini` knows declared keys only
        if key.startswith("imgedit_") and key != INI_KEY:
            place = _place_in_config(key)
            raise UsageError(
                f"{config.inipath or '-o'}: unknown key {key!r}, expected {INI_KEY} = FILE, "
                f"a TOML config{place}, or the table [tool.imgedit] in pyproject.toml"
            )


def _place_in_config(key: str) -> str:
    """Return ` with [SECTION] NAME` for an ini key that is the name of an option with that place in
    a TOML config; an empty text for one of the section `run`, and for other keys.
    """
    for option in OPTIONS:
        if option.dest == key and option.toml is not None:
            section, _, name = option.toml.partition(".")
            return "" if section == "run" else f" with [{section}] {name}"
    return ""


def find_config(config: pytest.Config, near: Path) -> ConfigFile:
    """Return the config that the command line names, or else the repository's config for items in
    the folder `near`; an empty one if there is none.

    The repository's config is the one that the ini key names, or one of `configs_of`. Raises
    `UsageError` if these are two files, or if a config cannot be read.
    """
    from pytest_imgedit.config.toml_file import ConfigFile, configs_of

    root = config.rootpath
    path_of_option = config.getoption(INI_KEY)
    if path_of_option:
        return ConfigFile.read_config(Path(config.invocation_params.dir, path_of_option))
    configs = configs_of(root, near)
    name = config.getini(INI_KEY)
    if name:
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
    """Return raw settings as `{section: {key: value}}`.

    The command line overrides the config key by key. `run` also holds the `config_file`, and as
    `asked` the keys that the command line gives. Raises `UsageError` for an unknown ini key, a text
    that is not UTF-8, a malformed `--imgedit-set`, and two judges or metrics of one name.
    """
    _refuse_unknown_keys(config)
    command_line = explicit_options(config)
    check_texts(config)
    merged: Tables = {section: dict(table) for section, table in file.tables.items()}
    judges = command_line.pop("imgedit_judge", [])
    _drop_keys_of_kind(merged, "suite", command_line.get("imgedit_suite"))
    _drop_keys_of_kind(merged, "editor", command_line.get("imgedit_editor"))
    _drop_keys_of_kind(merged, "judge", next(iter(judges), None))
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
    asked = {option.toml for option in OPTIONS if option.dest in command_line and option.toml}
    if judges:
        asked.add("judge.spec")
    for text in assignments:
        key, _, _ = text.partition("=")
        section_and_name = key.strip().split(".")[:2]
        asked.add(".".join(section_and_name))
    merged["run"] = {**merged.get("run", {}), "config_file": file, "asked": frozenset(asked)}
    return merged


def _drop_keys_of_kind(merged: Tables, role: str, spec: str | None) -> None:
    """Drop the config's parameters of a suite or model if the command line's `spec` is of another
    kind than the config's; the keys of `_KEPT_KEYS` stay.
    """
    table = merged.get(role, {})
    if spec is None or "spec" not in table:
        return
    if _kind(role, spec) != _kind(role, str(table["spec"])):
        merged[role] = {key: value for key, value in table.items() if key in _KEPT_KEYS[role]}


def split_metrics(text: str) -> list[str]:
    """Return the metrics of a text, split at the commas before a name; a URL keeps its commas, and
    so comes last.
    """
    names, scheme, rest = text.partition("://")
    specs = _COMMA.split(names)
    specs[-1] += scheme + rest
    return specs


def _name_further(merged: Tables, section: str, specs: Iterable[str]) -> None:
    """Add judges or metrics of the command line to a section, each by the name that its spec gives
    it; other keys of a name that the config has stay.

    Raises `UsageError` if two of them have one name.
    """
    named: set[str] = set()
    for spec in specs:
        name = further_name(spec)
        if name in named:
            option = section.removesuffix("s")
            raise UsageError(
                f"--imgedit-{option}={spec}: another one is named {name!r}, expected "
                f"[{section}.NAME] in a config, with its spec"
            )
        named.add(name)
        tables = dict(merged.get(section, {}))
        tables[name] = {**tables.get(name, {}), "spec": spec}
        merged[section] = tables


#: Keys of a section that hold for a suite or model of any kind.
_KEPT_KEYS = {
    "suite": ("language", "categories", "limit", "min_score"),
    "editor": ("seeds", "rewrites"),
    "judge": ("protocol", "variant", "prompts", "any_version", "reasks", "controls", "repeats"),
}


def _kind(role: str, spec: str) -> str:
    """Return the kind of suite or model that a spec names: its name, `a file` for the path of a
    suite. A user's class is a kind by itself.
    """
    from pytest_imgedit.config.toml_file import SUITE_SUFFIXES
    from pytest_imgedit.kinds.registry import known

    name, _, _ = spec.partition(":")
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
    """Raise `UsageError` for a value, or a text of a list, that cannot be encoded as UTF-8."""
    texts = value if isinstance(value, list) else [str(value)]
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name}: {ascii(text)[1:-1]}, expected UTF-8") from None


def _apply(merged: Tables, values: dict[str, Any]) -> None:
    """Set the keys of `merged` to the values of the options that belong to them, by destination;
    options without a key are left out.
    """
    for option in OPTIONS:
        if option.toml is not None and option.dest in values:
            section, key = option.toml.split(".")
            merged.setdefault(section, {})[key] = values[option.dest]
