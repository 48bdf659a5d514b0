"""The plugin's options: one table that declares them and gathers what the user set; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


@dataclass(frozen=True)
class Option:
    """One `--imgedit-NAME` option with its ini key `imgedit_NAME` and its key in the TOML config."""

    name: str
    help: str
    toml: str | None = None
    metavar: str = "VALUE"
    kind: Literal["value", "flag", "list"] = "value"

    @property
    def dest(self) -> str:
        return f"imgedit_{self.name.replace('-', '_')}"

    @property
    def flag(self) -> str:
        return f"--imgedit-{self.name}"


OPTIONS = (
    Option("config", "TOML file with [suite] [editor] [judge] [workers] [gates] [rubrics.NAME]", None, "FILE"),
    Option("set", "override one TOML key, such as editor.num_inference_steps=10", None, "KEY=VALUE", "list"),
    Option(
        "suite",
        "scenes, scenes:full, a JSON/JSONL/TOML file, risebench:DIR (default: scenes)",
        "suite.spec",
        "SPEC",
    ),
    Option(
        "editor",
        "scenes, diffusers:MODEL, folder:DIR, identity, oracle, shuffled, blank, noise, package.module:Class",
        "editor.spec",
        "SPEC",
    ),
    Option("judge", "scenes, qwen-vl:MODEL, reference, package.module:Class", "judge.spec", "SPEC"),
    Option("gpus", "0-5, or 0,2 or 0-3,6, or auto (all visible, else CPU), or none", "workers.gpus", "GPUS"),
    Option("gpus-per-worker", "spread one editor over K GPUs (default: 1)", "workers.gpus_per_worker", "K"),
    Option("executor", "where workers run: local or ray (default: local)", "workers.executor", "NAME"),
    Option("stage", "all, edit, score or report (default: all)", "run.stage", "STAGE"),
    Option("limit", "only the first N pairs of each category", "suite.limit", "N"),
    Option("seeds", "edits a pair; they are averaged inside the pair (default: 1)", "editor.seeds", "N"),
    Option("out", "folder of the store and the runs (default: .imgedit)", "run.out", "DIR"),
    Option("fresh", "ignore stored edits and verdicts", "run.fresh", kind="flag"),
    Option(
        "reuse",
        "which stored results count: of the exact environment, a compatible one, or any (default: compatible)",
        "run.reuse",
        "POLICY",
    ),
    Option(
        "fail-under",
        "fail when FIELD (overall or a category) is under MIN",
        "gates.fail_under",
        "FIELD:MIN",
        "list",
    ),
    Option(
        "max-drop",
        "fail when FIELD (overall or a category) fell by more than DROP; needs --imgedit-compare",
        "gates.max_drop",
        "FIELD:DROP",
        "list",
    ),
    Option("compare", "compare with a baseline: NAME, latest, or a path", "gates.compare", "REF"),
    Option("save", "save the run as benchmarks/baselines/NAME.json if it passes its gates", "run.save", "NAME"),
    Option(
        "max-errors",
        "pairs, or fraction of pairs, that may end without a score (default: 0)",
        "gates.max_errors",
        "N",
    ),
    Option(
        "max-collapsed",
        "pairs, or fraction of pairs, that may have fallen far against the baseline (default: 0)",
        "gates.max_collapsed",
        "N",
    ),
    Option(
        "min-coverage",
        "fail when less than this fraction of the baseline's pairs is compared (default: 0)",
        "gates.min_coverage",
        "FRACTION",
    ),
    Option(
        "until",
        "decided: edit and score in random order, and stop once every gate on a mean is decided (default: all)",
        "gates.until",
        "WHEN",
    ),
    Option(
        "controls",
        "try the judge on edits of known worth (default: where a gate is set)",
        "judge.controls",
        kind="flag",
    ),
    Option("judge-repeats", "judge every edit K times more, to measure the judge's own noise", "judge.repeats", "K"),
    Option("json", "an extra copy of results.json", "run.json_path", "PATH"),
    Option("md", "an extra copy of the Markdown report", "run.md_path", "PATH"),
    Option("html", "an extra copy of the HTML report, with its images in a folder beside it", "run.html_path", "PATH"),
    Option("html-embed", "HTML reports of one file, with reduced images inside", "run.html_embed", kind="flag"),
)


def add_options(parser: pytest.Parser) -> None:
    """Declare every option on the command line and as an ini key."""
    group = parser.getgroup("imgedit", "evaluation of image editing models")
    for option in OPTIONS:
        if option.kind == "flag":
            group.addoption(option.flag, dest=option.dest, action="store_true", default=None, help=option.help)
        else:
            action = "append" if option.kind == "list" else "store"
            group.addoption(
                option.flag,
                dest=option.dest,
                action=action,
                default=None,
                metavar=option.metavar,
                help=option.help,
            )
        parser.addini(
            option.dest,
            option.help,
            type={"flag": "bool", "list": "linelist", "value": "string"}[option.kind],  # type: ignore[arg-type]
            default=None,
        )


def _from_ini(config: pytest.Config) -> dict[str, Any]:
    values = {}
    for option in OPTIONS:
        try:
            values[option.dest] = config.getini(option.dest)
        except Exception as error:  # pytest's own message names neither the key nor the file
            raise UsageError(f"{config.inipath or '-o'}: {option.dest}: {error}") from None
    return {dest: value for dest, value in values.items() if value not in (None, [], "")}


def _from_command_line(config: pytest.Config) -> dict[str, Any]:
    values = {option.dest: config.getoption(option.dest) for option in OPTIONS}
    return {dest: value for dest, value in values.items() if value is not None}


def refuse_unknown_keys(config: pytest.Config) -> None:
    """Raise `UsageError` for an ini key `imgedit_…` that no option has: it was meant to do something."""
    known = {option.dest for option in OPTIONS}
    given = getattr(config, "_inicfg", {})  # pytest tells only of keys that somebody declared
    for key in given:
        if key.startswith("imgedit_") and key not in known:
            raise UsageError(
                f"{config.inipath or '-o'}: unknown key {key!r}, expected one of: {', '.join(sorted(known))}"
            )


def is_configured(config: pytest.Config) -> bool:
    """Tell whether the user set any option, on the command line or as an ini key."""
    return bool(_from_command_line(config) or _from_ini(config))


def gather(config: pytest.Config) -> dict[str, dict[str, Any]]:
    """Collect raw settings as `{section: {key: value}}`; command line wins over TOML, TOML over ini, key by key.

    Raises `UsageError` for a config file that cannot be read or parsed and for a malformed `--imgedit-set`.
    """
    from pytest_imgedit.config_file import ConfigFile

    ini, command_line = _from_ini(config), _from_command_line(config)
    for option in OPTIONS:
        _require_utf8(option.flag, {**ini, **command_line}.get(option.dest))
    if getattr(config.option, "tx", None) or getattr(config.option, "numprocesses", None):
        _require_utf8("-n: the folder", str(config.rootpath))  # which pytest-xdist sends to its workers
    base = config.rootpath if "imgedit_config" not in command_line else config.invocation_params.dir
    path = command_line.get("imgedit_config") or ini.get("imgedit_config")
    file = ConfigFile.read(Path(base, path)) if path else ConfigFile.empty()
    file.require_sections()

    merged: dict[str, dict[str, Any]] = {}
    _apply(merged, ini)
    assign(merged, ini.get("imgedit_set", ()))
    for section, table in file.tables.items():
        merged.setdefault(section, {}).update(table)
    assign(merged, command_line.get("imgedit_set", ()))
    if "imgedit_out" in command_line:
        command_line["imgedit_out"] = str(Path(config.invocation_params.dir, command_line["imgedit_out"]))
    _apply(merged, command_line)
    merged["run"] = {**merged.get("run", {}), "config_file": file}
    return merged


def _require_utf8(name: str, value: Any) -> None:
    """Raise `UsageError` for a text, or one of a list, that is not UTF-8 and so could not be written anywhere."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise UsageError(f"{name}: {ascii(text)[1:-1]}, expected UTF-8") from None


def assign(merged: dict[str, dict[str, Any]], assignments: Iterable[str], flag: str = "--imgedit-set") -> None:
    """Apply texts SECTION.KEY=VALUE, as `flag` takes them; raise `UsageError` for one that is malformed."""
    from pytest_imgedit.config_file import parse_value

    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        section, dot, name = key.strip().partition(".")
        if not (equals and dot and name) or (section == "run" and name != "reuse"):
            raise UsageError(f"{flag}={assignment}: expected SECTION.KEY=VALUE with a section of the TOML config")
        target = merged.setdefault(section, {})
        *parents, name = name.split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise UsageError(f"{flag}={assignment}: {section}.{parent} is {target!r}, expected a table")
        target[name] = parse_value(text)


def _apply(merged: dict[str, dict[str, Any]], values: dict[str, Any]) -> None:
    for option in OPTIONS:
        if option.toml is not None and option.dest in values:
            section, key = option.toml.split(".")
            merged.setdefault(section, {})[key] = values[option.dest]
