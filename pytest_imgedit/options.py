"""The plugin's options: one table that declares them and gathers what the user set; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from pytest_imgedit.config_file import ConfigFile


@dataclass(frozen=True)
class Option:
    """One `--imgedit-NAME` option with its key in the TOML config."""

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
        "scenes, scenes:full, scenes:n=N,seed=S, a JSON/JSONL/CSV/TOML file, risebench:DIR (default: scenes)",
        "suite.spec",
        "SPEC",
    ),
    Option(
        "editor",
        "scenes, diffusers:MODEL, openai-images:URL#MODEL, folder:DIR, folder:DIR?PATTERN, identity, oracle, shuffled, "
        "blank, noise, package.module:Class (default: scenes)",
        "editor.spec",
        "SPEC",
    ),
    Option(
        "judge",
        "scenes, qwen-vl:MODEL, openai:URL#MODEL, reference, none (edits only), package.module:Class (default: scenes)",
        "judge.spec",
        "SPEC",
    ),
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
    Option("save", "save the run as NAME.json in the folder of baselines if it passes its gates", "run.save", "NAME"),
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


#: The one ini key; everything else is in the config that it names.
INI_KEY = "imgedit_config"


def refuse_unknown_options(arguments: Iterable[str]) -> None:
    """Raise `UsageError` for an option `--imgedit-…` that does not exist, with the nearest one that does."""
    known = ["--imgedit", *(option.flag for option in OPTIONS)]
    for argument in arguments:
        name = argument.partition("=")[0]
        if name.startswith("--imgedit-") and name not in known:
            from pytest_imgedit.text import did_you_mean

            raise UsageError(f"{name}: no such option{did_you_mean(name, known)}")


def add_options(parser: pytest.Parser) -> None:
    """Declare every option on the command line, and the ini key."""
    group = parser.getgroup("imgedit", "evaluation of image editing models")
    group.addoption(
        "--imgedit",
        dest="imgedit",
        action="store_true",
        default=False,
        help="run the benchmark item that the package ships, in any folder; in place of testpaths, beside given paths",
    )
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
    parser.addini(INI_KEY, "TOML config, relative to the ini file's folder", type="string", default=None)


def given(config: pytest.Config) -> dict[str, Any]:
    """Return the options that the user gave on the command line, by destination."""
    values = {option.dest: config.getoption(option.dest) for option in OPTIONS}
    return {dest: value for dest, value in values.items() if value is not None}


def _refuse_unknown_keys(config: pytest.Config) -> None:
    """Raise `UsageError` for another ini key `imgedit_…`: it was meant to do something."""
    keys = getattr(config, "_inicfg", {})  # pytest tells only of keys that somebody declared
    for key in keys:
        if key.startswith("imgedit_") and key != INI_KEY:
            section, _, name = next((o.toml for o in OPTIONS if o.dest == key and o.toml), "").partition(".")
            instead = f"a TOML config with [{section}] {name}" if name and section != "run" else "a TOML config"
            raise UsageError(
                f"{config.inipath or '-o'}: unknown key {key!r}, expected {INI_KEY} = FILE, {instead}, "
                "or the table [tool.imgedit] in pyproject.toml"
            )


def find_config(config: pytest.Config, near: Path) -> ConfigFile:
    """Read the config that the command line names, else the one that the repository has for items in the folder `near`.

    That is what the ini key names, or one of `configs_of`. Raises `UsageError` if there are two.
    """
    from pytest_imgedit.config_file import ConfigFile, configs_of

    root = config.rootpath
    if path := config.getoption(INI_KEY):
        return ConfigFile.read_config(Path(config.invocation_params.dir, path))
    found = configs_of(root, near)
    if name := config.getini(INI_KEY):
        path = Path(config.inipath.parent if config.inipath is not None else root, name)
        file = ConfigFile.read_config(path)
        others = {key: other for key, other in found.items() if other.path is None or not path.samefile(other.path)}
        found = {f"{INI_KEY} = {name}": file, **others}
    if len(found) > 1:
        raise UsageError(f"{' and '.join(found)}: expected one config, or --imgedit-config=FILE")
    return next(iter(found.values()), ConfigFile.empty())


def gather(config: pytest.Config, file: ConfigFile) -> dict[str, dict[str, Any]]:
    """Collect raw settings as `{section: {key: value}}`; the command line wins over the config, key by key.

    Parameters that the config has for an editor or judge do not count for one of another kind that the command line
    names. Raises `UsageError` for a malformed `--imgedit-set`.
    """
    _refuse_unknown_keys(config)
    command_line = given(config)
    check_texts(config)
    merged: dict[str, dict[str, Any]] = {section: dict(table) for section, table in file.tables.items()}
    for role in ("editor", "judge"):
        spec, table = command_line.get(f"imgedit_{role}"), merged.get(role, {})
        if spec is not None and "spec" in table and _kind(role, spec) != _kind(role, str(table["spec"])):
            merged[role] = {key: value for key, value in table.items() if key in _OWN_KEYS[role]}
    assignments = command_line.get("imgedit_set", ())
    assign(merged, assignments)
    if "imgedit_out" in command_line:
        command_line["imgedit_out"] = str(Path(config.invocation_params.dir, command_line["imgedit_out"]))
    _apply(merged, command_line)
    asked = {option.toml for option in OPTIONS if option.dest in command_line and option.toml}
    asked |= {".".join(text.partition("=")[0].strip().split(".")[:2]) for text in assignments}
    merged["run"] = {**merged.get("run", {}), "config_file": file, "asked": frozenset(asked)}
    return merged


#: Keys of a section that do not belong to the model which its spec names.
_OWN_KEYS = {"editor": ("seeds",), "judge": ("rubric", "reasks", "controls", "repeats")}


def _kind(role: str, spec: str) -> str:
    """Return what kind of model a spec names; a class of the user's own is a kind by itself."""
    from pytest_imgedit.models.specs import known

    name = spec.partition(":")[0]
    return name if name in known(role) else spec


def check_texts(config: pytest.Config) -> None:
    """Raise `UsageError` for an option, or a folder that pytest-xdist sends to its workers, that is not UTF-8."""
    for dest, value in given(config).items():
        _require_utf8(f"--{dest.replace('_', '-')}", value)
    if getattr(config.option, "tx", None) or getattr(config.option, "numprocesses", None):
        _require_utf8("-n: the folder", str(config.rootpath))


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
