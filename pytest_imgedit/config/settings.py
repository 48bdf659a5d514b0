"""Checked settings: pydantic models over what `plugin.command_line` gathered, with one-line
errors.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pytest_imgedit.config import options, toml_file
from pytest_imgedit.core import errors, measures, pairs, redaction, results
from pytest_imgedit.core.text import did_you_mean
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
    """Return a value as it is; raise `ValueError` for a text that is no number in plain digits,
    such as `1_0`, which Python takes for one.
    """
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
    """`[suite]`: which pairs, in which language, and the score that an item must reach."""

    spec: str = "scenes"
    """The pairs (`docs/own-data.md`)."""
    language: Literal["en", "zh"] = "en"
    """`"zh"` takes the Chinese texts, with English as the fallback."""
    categories: tuple[str, ...] = ()
    """The suite is the pairs of these categories alone, by slug or by the suite's own names:
    `["物理", "social"]`. `-k` selects within it.
    """
    limit: Count | None = None
    """The first N pairs of each category."""
    min_score: float | None = Field(default=None, ge=0, le=10)
    """An item with a lower score fails."""
    root: Path | None = None
    """The folder that holds the images of a suite file, by default the file's."""
    fields: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    """Names of fields in the suite's files; of `image` and `image_b64` also a list with a field
    for each source.
    """

    @field_validator("fields", mode="before")
    @classmethod
    def _check_names(cls, value: object) -> object:
        """Raise one error for a field that is no name and no list of names."""
        named = value.items() if isinstance(value, dict) else ()
        for key, names in named:
            listed = names if isinstance(names, list | tuple) else [names]
            if not all(isinstance(name, str) for name in listed):
                raise ValueError(f"{key} is {names!r:.80}, expected the name of a field")
        return value


class EditorSettings(_OpenSection):
    """`[editor]`: the spec, and how edits are made. Further keys are parameters of the editor."""

    spec: str = DEFAULT
    """The model under test (`docs/own-model.md`)."""
    seeds: Count = 1
    """Edits per pair, averaged within the pair before any statistics."""
    seed: Annotated[int, BeforeValidator(_plain_digits), Field(ge=0, lt=2**63)] = 0
    """A base seed, mixed into the seed of every pair: runs with two base seeds are independent."""
    batch_size: AutoOrCount = "auto"
    """Edits in one call of the editor, of sources of one size. It is part of an edit's recipe, as
    it decides how the edit rounds. `"auto"` is 8 for the embedded editor and 1 for all others; the
    plan shows the padding (`docs/performance.md`).
    """
    rewrites: Path | None = None
    """A JSON file with an instruction for the editor by the id of each pair; the judge is asked
    about the pair's own. Runs with and without are not compared.
    """


class JudgeSettings(_OpenSection):
    """`[judge]`: the spec, and how edits are judged. Further keys are parameters of the judge."""

    spec: str = DEFAULT
    """What scores each edit (`docs/judges.md`). Repeated on the command line, the option names
    further judges, which score the same edits.
    """
    protocol: str = "auto"
    """How edits are judged (`docs/protocols.md`): `aspects`, `seeds`, `gedit`, `gedit-qwen`,
    `imgedit`, `kris`, `omnicontext`, `risebench`, one of `[protocols.NAME]`, or a class. `"auto"`
    is the suite's.
    """
    duel_protocol: str = "duel"
    """How two edits are judged against each other (`docs/duels.md`): `duel`, `duel-tie`,
    `duel-aspects`, `genarena`, `gedit-v2`, or one of `[protocols.NAME]`.
    """
    variant: results.Variant = "strict"
    """`"strict"`: a reply that cannot be read is an error; `"compat"`: it is treated as by the
    authors' script (`docs/protocols.md`).
    """
    prompts: Path | None = None
    """The folder of a public benchmark with its own prompts, by default the suite's."""
    any_version: bool = False
    """Take prompts of another version than was tested; results name their SHA-256."""
    reasks: int = Field(default=2, ge=0)
    """How often the judge is asked again after an unreadable reply."""
    batch_size: AutoOrCount = "auto"
    """Edits that are judged at once."""
    gpus_per_replica: int = Field(default=1, ge=1)
    """Spread one judge over several GPUs."""
    controls: Literal["auto"] | bool = "auto"
    """Try the judge on edits of known quality; a run whose judge cannot tell them apart is INVALID.
    `"auto"` does so if a gate rests on its scores.
    """
    repeats: Annotated[int, BeforeValidator(_plain_digits), Field(ge=0)] = 0
    """Judge every edit K more times (other batches, images in the other order, JPEG, resized) and
    print the judge's noise.
    """

    @property
    def scores(self) -> bool:
        """Whether this judge scores edits; with one that does not, a run ends with its edits."""
        kind = kind_of("judge", self.spec)
        return kind is None or kind.scores


class MetricSettings(_OpenSection):
    """`[metrics.NAME]`: the spec, by default the name, edits a call, and arguments for the
    metric.
    """

    spec: str = ""
    batch_size: AutoOrCount = "auto"


class WorkersSettings(_Section):
    """`[workers]`: GPUs, processes and deadlines."""

    gpus: str = "auto"
    """`0-5`, `0,2` or `0-3,6`; `auto`: all visible GPUs, else the CPU; `none`: the CPU."""
    judge_gpus: str | None = None
    """GPUs for the judge alone, such as `"4-5"`; editors use the others, and scoring overlaps
    editing.
    """
    gpus_per_worker: Count = 1
    """Shard one editor over K GPUs (`docs/scaling.md`)."""
    executor: Literal["local", "ray"] = "local"
    """Where workers run: this machine (`"local"`), or a Ray cluster (`"ray"`)."""
    ray_address: str | None = None
    """The cluster of `--imgedit-executor=ray`, by default a local one that is started."""
    cpu_workers: int = Field(default=1, ge=1)
    """Worker processes where no GPU is used; they share the cores (`OMP_NUM_THREADS`,
    `OMP_WAIT_POLICY` and `GOMP_SPINCOUNT` override).
    """
    load_concurrency: AutoOrCount = "auto"
    """Models that load at the same time on a machine. `"auto"` is one on every GPU if the host
    memory holds the checkpoint and the processes, else one.
    """
    placement: Literal["auto", "swap", "resident"] = "auto"
    """`"resident"`: editor and judge share the GPUs, and scoring overlaps editing; `"swap"`: one
    after the other; `"auto"`: resident if both fit.
    """
    edit_timeout: float = Field(default=1800, gt=0, allow_inf_nan=False)
    """Seconds for one edit; then the process is killed and the job tried once more."""
    judge_timeout: float = Field(default=900, gt=0, allow_inf_nan=False)
    """Seconds for one batch of the judge."""
    load_timeout: float = Field(default=3600, gt=0, allow_inf_nan=False)
    """Seconds for the start of a process, and for loading a model."""
    editor_python: str | None = None
    """The interpreter of editor workers, by default this one."""
    judge_python: str | None = None
    """The interpreter of judge workers, by default this one."""

    @field_validator("gpus", "judge_gpus", mode="before")
    @classmethod
    def _gpu_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


#: The gate of duels without another one.
NO_LOSS = {measures.OVERALL: 0.5}


class GatesSettings(results.GateOptions):
    """`[gates]`."""

    # `_on_scale` refuses what is not finite, in words.
    model_config = ConfigDict(hide_input_in_errors=True, allow_inf_nan=True)

    baselines: Path | None = None
    """The folder of the baselines that names mean, by default `benchmarks/baselines`."""
    baseline_store: Path | None = None
    """The folder of the edits that baselines keep (`--imgedit-save-edits`), by default `edits` in
    that of the baselines.
    """

    @model_validator(mode="before")
    @classmethod
    def _require_no_loss(cls, values: Any) -> Any:
        """Give a duel without a gate the gate `overall:0.5`."""
        if isinstance(values, dict) and values.get("duel") and not values.get("min_win"):
            return {**values, "min_win": NO_LOSS}
        return values

    @field_validator("compare")
    @classmethod
    def _none_if_empty(cls, value: str | None) -> str | None:
        return value or None

    @field_validator("fail_under", "max_drop", "min_win", mode="before")
    @classmethod
    def _by_slug(cls, value: object, info: ValidationInfo) -> object:
        """Return the limits, in texts FIELD:NUMBER or a table, by field as `core.measures` names
        it, so that no alias hides a second gate; any other value as it is.

        Raises `ValueError` for a text of another form, and for a field that is there twice.
        """
        if isinstance(value, dict):
            gates = list(value.items())
        elif isinstance(value, list):
            is_share = info.field_name == "min_win"
            example = "FIELD:SHARE, such as overall:0.5" if is_share else _LIMIT
            gates = [_split_gate(text, example) for text in value]
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
        """Raise `ValueError` for a limit that is not finite, or not on the scale of the score; that
        of another measure is checked where its scale is known.
        """
        for name, limit in value.items():
            is_of_score = measures.Field.parse(name).measure == measures.SCORE
            if is_of_score and not 0 <= limit <= 10:
                raise ValueError(f"{name}: {limit}, expected a number from 0 to 10")
            if not math.isfinite(limit):
                raise ValueError(f"{name}: {limit}, expected a number")
        return value

    @field_validator("min_win")
    @classmethod
    def _is_share(cls, value: dict[str, float]) -> dict[str, float]:
        """Raise `ValueError` for a limit that is no share."""
        for name, limit in value.items():
            if not 0 <= limit <= 1:
                raise ValueError(f"{name}: {limit}, expected a share from 0 to 1")
        return value

    @field_validator("max_errors", "max_collapsed", mode="before")
    @classmethod
    def _count_or_fraction(cls, value: object) -> object:
        """Return a text as the count, or with a point as the fraction, that it is; any other value
        as it is.

        Raises `ValueError` for a text that is no number, a fraction that is not from 0 to 1, a
        negative count, and true or false.
        """
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


#: How a limit on scores is given.
_LIMIT = "FIELD:NUMBER, such as overall:7.0"


def _split_gate(text: object, expected: str) -> tuple[str, str]:
    """Return the field and the limit of FIELD:NUMBER; raise `ValueError` for any other text, which
    says what is `expected`.
    """
    name, colon, limit = str(text).rpartition(":")
    if not colon or not name:
        raise ValueError(f"{text!r}: expected {expected}")
    return name, limit


class RunSettings(_Section):
    """Where results go and which stages run; only `reuse` can also be set in a config."""

    stage: Literal["all", "edit", "score", "report"] = "all"
    """`edit` only edits; `score` never starts an editor; `report` starts nothing."""
    shard: pairs.Shard | None = None
    """Shard I of N, for `imgedit merge` (`docs/scaling.md`)."""
    out: Path = Path(".imgedit")
    """The store, by default in pytest's root folder; one run at a time can hold it."""
    fresh: bool = False
    """Ignore stored edits and verdicts."""
    reuse: Literal["exact", "compatible", "any"] = "compatible"
    """Which stored results count: those of the `exact` same environment (versions, device and GPU),
    of a `compatible` one (device kind, major and minor versions of the libraries), or `any`.
    """
    name: str | None = None
    """Name the run: letters, digits, `.`, `_`, `-`. Several runs may have one name; it means the
    newest of them.
    """
    save: str | None = None
    """Save a run in which all gates and items pass as the baseline NAME."""
    save_edits: bool = False
    """Keep the edits of the saved run too, for duels with later ones (`gates.baseline_store`)."""
    json_path: Path | None = None
    """An extra copy of results.json."""
    md_path: Path | None = None
    """An extra copy of the Markdown report."""
    html_path: Path | None = None
    """An extra copy of the HTML report, with a folder of thumbnails."""
    html_embed: bool = False
    """HTML reports as one file, with the thumbnails inside."""

    @field_validator("shard", mode="before")
    @classmethod
    def _parse_shard(cls, value: object) -> object:
        return pairs.Shard.parse(value) if isinstance(value, str) else value

    @property
    def copies(self) -> dict[str, Path]:
        """Where extra copies of the reports go, by their formats: `json`, `md`, `html`."""
        paths = {"json": self.json_path, "md": self.md_path, "html": self.html_path}
        return {format_: path for format_, path in paths.items() if path is not None}

    config_file: toml_file.ConfigFile = Field(default_factory=toml_file.ConfigFile)
    asked: frozenset[str] = frozenset()
    """The keys, such as `gates.fail_under`, that the command line sets."""


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
        """Raise `ValueError` for a name that no field of a gate could hold."""
        for name in value:
            if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII) or name == measures.SCORE:
                raise ValueError(f"{name!r} cannot be a name: expected letters, digits, . _ or -")
        return value

    @property
    def additional_scorers(self) -> dict[str, "AdditionalScorer"]:
        """The additional judges and the metrics by name; a metric's settings are made those of a
        judge.
        """
        judges = {
            name: AdditionalScorer("judge", name, self.model_copy(update={"judge": judge}))
            for name, judge in self.judges.items()
        }
        metrics = {}
        for name, metric in self.metrics.items():
            fields = {"spec": metric.spec or name, "batch_size": metric.batch_size}
            judge = JudgeSettings.model_validate({**metric.params, **fields})
            settings = self.model_copy(update={"judge": judge})
            metrics[name] = AdditionalScorer("metric", name, settings)
        return {**judges, **metrics}

    @property
    def has_additional_scores(self) -> bool:
        """Whether additional judges and metrics score the edits: in every run but one that only
        edits although its judge scores.
        """
        return self.run.stage != "edit" or not self.judge.scores

    @property
    def tries_judge(self) -> bool:
        """Whether the judge is tried on edits of known quality; by default if a gate or a
        comparison rests on its scores.
        """
        has_gate = bool(self.gates.fail_under or self.gates.max_drop or self.gates.compare)
        return has_gate if self.judge.controls == "auto" else self.judge.controls

    @property
    def redactor(self) -> redaction.Redactor:
        """A redactor of the secrets of this process's environment, of the editor and judge, and of
        the keys of servers.
        """
        params = [self.editor.params, self.judge.params]
        params += [judge.params for judge in self.judges.values()]
        params += [metric.params for metric in self.metrics.values()]
        keys = [redaction.server_key(of_model) for of_model in params]
        return redaction.Redactor(os.environ, *params, *keys)

    def place(self, section: str, key: str) -> str:
        """Return `file:line: ` of this key in the config file; an empty text if it is not there, or
        the command line sets it.
        """
        if f"{section}.{key}" in self.run.asked:
            return ""
        return self.run.config_file.place(section, key)


class AdditionalScorer(NamedTuple):
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
    """Return the tables of a config as `make_settings` takes them; `None` is an empty config.

    Raises `UsageError` as `ConfigFile.read_config` does.
    """
    file = toml_file.ConfigFile() if config is None else toml_file.ConfigFile.read_config(config)
    tables = {section: dict(table) for section, table in file.tables.items()}
    return {**tables, "run": {**tables.get("run", {}), "config_file": file}}


def make_settings(raw: options.Tables) -> Settings:
    """Return checked settings; raise `UsageError` with one line for the first thing that is wrong.

    A run whose judge does not score has only the stage `edit`.
    """
    _check_raw(raw)
    try:
        settings = Settings.model_validate(raw)
    except ValidationError as error:
        raise errors.UsageError(_first_problem(error, raw)) from None
    in_both = settings.judges.keys() & settings.metrics.keys()
    if in_both:
        raise errors.UsageError(
            f"metrics.{min(in_both)}: a judge has this name too, expected another one"
        )
    return settings if settings.judge.scores else _edits_only(settings)


def _check_raw(raw: options.Tables) -> None:
    """Raise `UsageError` for a key of `run` that no config may set, and for parameters that cannot
    go into keys and results: these hold JSON types and finite numbers only.
    """
    file: toml_file.ConfigFile = raw["run"]["config_file"]
    for key in file.tables.get("run", {}):
        if key != "reuse":
            raise errors.UsageError(
                f"{file.place('run', key)}run.{key}: not a key of a config, expected run.reuse"
            )
    for section in ("editor", "judge", "judges", "metrics"):
        for key, value in raw.get(section, {}).items():
            try:
                json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
            except (TypeError, ValueError):
                raise errors.UsageError(
                    f"{file.place(section, key)}{section}.{key}: {value!r}, expected finite plain "
                    "values"
                ) from None


def _edits_only(settings: Settings) -> Settings:
    """Return settings with the stage `edit`; raise `UsageError` if they ask for scores."""
    stage = settings.run.stage
    if stage not in ("all", "edit"):
        raise errors.UsageError(
            f"--imgedit-stage={stage}: judge {settings.judge.spec!r} does not score edits; choose "
            "another judge"
        )
    run = settings.run.model_copy(update={"stage": "edit"})
    return settings.model_copy(update={"run": run})


def _first_problem(error: ValidationError, raw: options.Tables) -> str:
    """Return the first thing that is wrong with raw settings, with its place in the config or its
    option, what was expected and found, and the number of other problems.
    """
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    section = path[0]
    key = path[1] if len(path) > 1 else ""
    if section in ("judges", "metrics") and len(path) > 2:
        section = f"{section}.{key}"
        key = path[2]
    name = f"{section}.{key}" if key else f"[{section}]"
    location = raw["run"]["config_file"].place(section, key)
    if not location:
        name = next((option.flag for option in options.OPTIONS if option.toml == name), name)
    problem = first["msg"].removeprefix("Value error, ")
    near = ""
    if first["type"] == "extra_forbidden":
        model = type(getattr(Settings(), section)) if key else Settings
        known = [name for name in model.model_fields if name != "run"]
        problem = f"unknown {'key' if key else 'section'}, expected one of: {', '.join(known)}"
        near = did_you_mean(key or section, known)
    value = raw.get(section, {}).get(key)
    if isinstance(value, str | int | float) and value != "" and not redaction.is_secret(key):
        problem += f", found {value!r}"
    if error.error_count() > 1:
        problem += f" (and {error.error_count() - 1} more)"
    return f"{location}{name}: {problem}{near}"
