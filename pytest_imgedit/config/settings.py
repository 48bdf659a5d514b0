"""Checked settings: pydantic models over what `plugin.command_line` gathered, with one-line
errors.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from pytest_imgedit.config import options, toml_file
from pytest_imgedit.core import errors, measures, pairs, redaction, results
from pytest_imgedit.core.sanitize import did_you_mean
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.kinds.registry import DEFAULT, kind_of


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )


class _OpenSection(BaseModel):
    """A section whose further keys are parameters of the editor or judge that it names."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _plain_digits(value: object) -> object:
    """Refuse texts such as `1_0` that Python alone takes for a number."""
    if isinstance(value, str) and not re.fullmatch(r"[+-]?\d+(\.\d+)?", value, re.ASCII):
        raise ValueError("expected a number")
    return value


def _auto_or_count(value: object) -> object:
    if value != "auto" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError("expected 'auto' or a count of at least 1")
    return value


AutoOrCount = Annotated[Literal["auto"] | int, BeforeValidator(_auto_or_count)]
Count = Annotated[int, BeforeValidator(_plain_digits), Field(ge=1)]


class SuiteSettings(_Section):
    """`[suite]`: which pairs, in which language, and the score an item must reach.

    `categories`, by slug or by the suite's own name, makes the suite smaller. Images of a suite
    file are below the folder `root`, by default that of the file. `fields` maps fields to their
    names in the file.
    """

    spec: str = "scenes"
    language: Literal["en", "zh"] = "en"
    categories: tuple[str, ...] = ()
    limit: Count | None = None
    min_score: float | None = Field(default=None, ge=0, le=10)
    root: Path | None = None
    fields: dict[str, str] = Field(default_factory=dict)


class EditorSettings(_OpenSection):
    """`[editor]`: the spec, edits a pair, edits a call of the editor, and arguments for the editor.

    `rewrites` is a JSON file with an instruction for the editor by the id of each pair; the judge
    is asked about the pair's own.

    The base seed `seed` is mixed into the seed of every pair: runs with two base seeds are
    independent.
    """

    spec: str = DEFAULT
    seeds: Count = 1
    seed: Annotated[int, BeforeValidator(_plain_digits), Field(ge=0, lt=2**63)] = 0
    batch_size: AutoOrCount = "auto"
    rewrites: Path | None = None


class JudgeSettings(_OpenSection):
    """`[judge]`: the spec, the protocol, re-asks after an unreadable reply, batch size, trials of
    the judge.

    `protocol` is by default that of the suite. Its `variant` is `strict`, where a reply that cannot
    be read is an error, or `compat`, which does what the authors' script does. `prompts` is the
    folder of a benchmark with its own prompts, by default the suite's; those of another version
    than was tested are refused unless `any_version` is set. `controls`: the judge is tried on edits
    of known quality; `auto` does so where a gate rests on its scores.
    """

    spec: str = DEFAULT
    protocol: str = "auto"
    variant: results.Variant = "strict"
    prompts: Path | None = None
    any_version: bool = False
    reasks: int = Field(default=2, ge=0)
    batch_size: AutoOrCount = "auto"
    gpus_per_replica: int = Field(default=1, ge=1)
    controls: Literal["auto"] | bool = "auto"
    repeats: Annotated[int, BeforeValidator(_plain_digits), Field(ge=0)] = 0

    @property
    def scores(self) -> bool:
        """Tell whether this is a judge at all; with the judge `none`, a run ends with its edits."""
        kind = kind_of("judge", self.spec)
        return kind is None or kind.scores


class MetricSettings(_OpenSection):
    """`[metrics.NAME]`: the spec, by default the name, edits a call, and arguments for the
    metric.
    """

    spec: str = ""
    batch_size: AutoOrCount = "auto"


class WorkersSettings(_Section):
    """`[workers]`: GPUs and processes. `cpu_workers` applies only if no GPU is used.

    The judge alone uses `judge_gpus`, and the editors run beside it on the other GPUs. `placement`:
    editor and judge share the GPUs (`resident`) or follow each other (`swap`); `auto` shares them
    if both fit. `load_concurrency` is the number of models that load at the same time on a machine;
    `auto` is one on every GPU if the host memory holds the checkpoint and the processes, else one.
    `ray_address` names the cluster of the executor `ray`, which starts a local one by default.

    Timeouts are in seconds: for one edit, for one batch of the judge, and for startup or loading. A
    process that takes longer is killed. One edit of 50 steps takes about a minute on an H200, and
    several minutes on older or shared GPUs.
    """

    gpus: str = "auto"
    judge_gpus: str | None = None
    gpus_per_worker: Count = 1
    executor: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    cpu_workers: int = Field(default=1, ge=1)
    load_concurrency: AutoOrCount = "auto"
    placement: Literal["auto", "swap", "resident"] = "auto"
    edit_timeout: float = Field(default=1800, gt=0, allow_inf_nan=False)
    judge_timeout: float = Field(default=900, gt=0, allow_inf_nan=False)
    load_timeout: float = Field(default=3600, gt=0, allow_inf_nan=False)
    editor_python: str | None = None
    judge_python: str | None = None

    @field_validator("gpus", "judge_gpus", mode="before")
    @classmethod
    def _gpu_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class GatesSettings(results.GateOptions):
    """`[gates]`; `baselines` is the folder of the baselines that names mean."""

    model_config = ConfigDict(
        hide_input_in_errors=True, allow_inf_nan=True
    )  # what is not finite is refused in words

    baselines: Path | None = None

    @field_validator("compare")
    @classmethod
    def _none_if_empty(cls, value: str | None) -> str | None:
        return value or None

    @field_validator("fail_under", "max_drop", mode="before")
    @classmethod
    def _by_slug(cls, value: object) -> object:
        """Read FIELD:NUMBER texts or a table; name each field as `core.measures` does, so that no
        alias hides a second gate.
        """
        if isinstance(value, dict):
            gates = list(value.items())
        elif isinstance(value, list):
            gates = [_split_gate(text) for text in value]
        else:
            return value
        limits: dict[str, Any] = {}
        for name, limit in gates:
            field = str(measures.Field.parse(name))
            if field in limits:
                raise ValueError(f"gate on {field!r} given twice")
            limits[field] = limit
        return limits

    @field_validator("fail_under", "max_drop")
    @classmethod
    def _on_scale(cls, value: dict[str, float]) -> dict[str, float]:
        """Refuse limits beyond the scale of the score; those of other measures are checked where
        their scales are known.
        """
        for name, limit in value.items():
            is_of_score = measures.Field.parse(name).measure == measures.SCORE
            if is_of_score and not 0 <= limit <= 10:
                raise ValueError(f"{name}: {limit}, expected a number from 0 to 10")
            if not math.isfinite(limit):
                raise ValueError(f"{name}: {limit}, expected a number")
        return value

    @field_validator("max_errors", "max_collapsed", mode="before")
    @classmethod
    def _count_or_fraction(cls, value: object) -> object:
        if isinstance(value, str):
            try:
                _plain_digits(value)
                value = float(value) if "." in value else int(value)
            except ValueError:
                raise ValueError(
                    f"{value!r}: expected a count or a fraction such as 0.05"
                ) from None
        if isinstance(value, float) and not 0 <= value <= 1:
            raise ValueError(f"{value}: expected a count, or a fraction from 0.0 to 1.0")
        if isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{value}: expected a count of at least 0")
        return value


def _split_gate(text: object) -> tuple[str, str]:
    name, colon, limit = str(text).rpartition(":")
    if not colon or not name:
        raise ValueError(f"{text!r}: expected FIELD:NUMBER, such as overall:7.0")
    return name, limit


class RunSettings(_Section):
    """Where results go and which stages run; only `reuse` can also be set in a config.

    `reuse` says which stored edits and verdicts count: those of the `exact` same environment, of a
    `compatible` one (the same device kind and the same major and minor versions of the libraries),
    or `any`. `asked` names the keys, such as `gates.fail_under`, that the command line sets.
    """

    stage: Literal["all", "edit", "score", "report"] = "all"
    shard: pairs.Shard | None = None
    out: Path = Path(".imgedit")
    fresh: bool = False
    reuse: Literal["exact", "compatible", "any"] = "compatible"
    name: str | None = None
    save: str | None = None
    json_path: Path | None = None
    md_path: Path | None = None
    html_path: Path | None = None
    html_embed: bool = False

    @field_validator("shard", mode="before")
    @classmethod
    def _parse_shard(cls, value: object) -> object:
        return pairs.Shard.parse(value) if isinstance(value, str) else value

    @property
    def copies(self) -> list[Path]:
        """Where extra copies of the reports go."""
        return [path for path in (self.json_path, self.md_path, self.html_path) if path is not None]

    config_file: toml_file.ConfigFile = Field(default_factory=toml_file.ConfigFile)
    asked: frozenset[str] = frozenset()


class Settings(_Section):
    """Everything a run was asked to do."""

    suite: SuiteSettings = Field(default_factory=SuiteSettings)
    editor: EditorSettings = Field(default_factory=EditorSettings)
    judge: JudgeSettings = Field(default_factory=JudgeSettings)
    workers: WorkersSettings = Field(default_factory=WorkersSettings)
    gates: GatesSettings = Field(default_factory=GatesSettings)
    judges: dict[str, JudgeSettings] = Field(default_factory=dict)
    metrics: dict[str, MetricSettings] = Field(default_factory=dict)
    protocols: options.Tables = Field(default_factory=dict)
    run: RunSettings = Field(default_factory=RunSettings)

    @field_validator("judges", "metrics")
    @classmethod
    def _named(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Refuse names that no field of a gate could hold."""
        for name in value:
            if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII) or name == measures.SCORE:
                raise ValueError(f"{name!r} cannot be a name: expected letters, digits, . _ or -")
        return value

    @property
    def further(self) -> dict[str, "Further"]:
        """The further judges and the metrics by name."""
        judges = {
            name: Further("judge", name, self.model_copy(update={"judge": judge}))
            for name, judge in self.judges.items()
        }
        metrics = {}
        for name, metric in self.metrics.items():
            fields = {"spec": metric.spec or name, "batch_size": metric.batch_size}
            as_judge = JudgeSettings.model_validate({**metric.params, **fields})
            settings = self.model_copy(update={"judge": as_judge})
            metrics[name] = Further("metric", name, settings)
        return {**judges, **metrics}

    @property
    def scores_further(self) -> bool:
        """Tell whether further judges and metrics score the edits: unless a run with a judge is to
        edit alone.
        """
        return self.run.stage != "edit" or not self.judge.scores

    @property
    def tries_judge(self) -> bool:
        """Tell whether the judge is tried on edits of known quality."""
        has_gate = bool(self.gates.fail_under or self.gates.max_drop or self.gates.compare)
        return has_gate if self.judge.controls == "auto" else self.judge.controls

    @property
    def redactor(self) -> redaction.Redactor:
        """A redactor of the secrets of this process's environment, of the editor and judge, and of
        the keys of servers.
        """
        further = (*self.judges.values(), *self.metrics.values())
        params = [section.params for section in (self.editor, self.judge, *further)]
        return redaction.Redactor(os.environ, *params, *map(redaction.server_key, params))

    def place(self, section: str, key: str) -> str:
        """Return `file:line: ` where the config file sets this key, and nothing overrides it; else
        an empty string.
        """
        if f"{section}.{key}" in self.run.asked:
            return ""
        return self.run.config_file.place(section, key)


class Further(NamedTuple):
    """A judge or metric that scores every edit beside the judge, with the `settings` of a run whose
    only judge it would be.
    """

    role: Role
    name: str
    settings: Settings

    @property
    def section(self) -> str:
        """The table of a config that names it."""
        return f"{self.role}s.{self.name}"


def read_tables(config: Path | None) -> options.Tables:
    """Read the tables of a config, if there is one, as `make_settings` takes them."""
    file = toml_file.ConfigFile() if config is None else toml_file.ConfigFile.read_config(config)
    tables = {section: dict(table) for section, table in file.tables.items()}
    return {**tables, "run": {**tables.get("run", {}), "config_file": file}}


def make_settings(raw: options.Tables) -> Settings:
    """Check raw settings; raise `UsageError` with one line for the first thing that is wrong.

    A run whose judge is `none` has only the stage `edit`.
    """
    file: toml_file.ConfigFile = raw["run"]["config_file"]
    if unknown := next((key for key in file.tables.get("run", {}) if key != "reuse"), None):
        raise errors.UsageError(
            f"{file.place('run', unknown)}run.{unknown}: not a key of a config, expected run.reuse"
        )
    for section in ("editor", "judge", "judges", "metrics"):
        for key, value in raw.get(section, {}).items():
            try:  # whether it can go into keys and results: JSON types and finite numbers only
                json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
            except (TypeError, ValueError):
                raise errors.UsageError(
                    f"{file.place(section, key)}{section}.{key}: {value!r}, expected finite plain "
                    "values"
                ) from None
    try:
        settings = Settings.model_validate(raw)
    except ValidationError as error:
        raise errors.UsageError(_first_problem(error, raw)) from None
    if twice := settings.judges.keys() & settings.metrics.keys():
        raise errors.UsageError(
            f"metrics.{min(twice)}: a judge has this name too, expected another one"
        )
    if settings.judge.scores:
        return settings
    if (stage := settings.run.stage) not in ("all", "edit"):
        raise errors.UsageError(
            f"--imgedit-stage={stage}: judge {settings.judge.spec!r} scores nothing, name one"
        )
    return settings.model_copy(update={"run": settings.run.model_copy(update={"stage": "edit"})})


def _first_problem(error: ValidationError, raw: options.Tables) -> str:
    """Say the first thing that is wrong with raw settings, by its location in the config or its
    option.
    """
    first = error.errors()[0]
    section, *keys = map(str, first["loc"])
    key = keys[0] if keys else ""
    if section in ("judges", "metrics") and len(keys) > 1:
        section, key = f"{section}.{key}", keys[1]
    name = f"{section}.{key}" if key else f"[{section}]"
    location = raw["run"]["config_file"].place(section, key)
    if not location:
        name = next((option.flag for option in options.OPTIONS if option.toml == name), name)
    what, near = first["msg"].removeprefix("Value error, "), ""
    if first["type"] == "extra_forbidden":
        model = type(getattr(Settings(), section)) if key else Settings
        known = [name for name in model.model_fields if name != "run"]
        what = f"unknown {'key' if key else 'section'}, expected one of: {', '.join(known)}"
        near = did_you_mean(key or section, known)
    value = raw.get(section, {}).get(key)
    if isinstance(value, str | int | float) and value != "" and not redaction.is_secret(key):
        what += f", found {value!r}"
    if error.error_count() > 1:
        what += f" (and {error.error_count() - 1} more)"
    return f"{location}{name}: {what}{near}"
