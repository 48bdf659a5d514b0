"""The results document of a run, `results.json`, and its parts.

`Results` is the product: reports, baselines, comparisons and the command line read nothing else.
`imgedit schema` prints its JSON schema. Scores are on a scale from 0 to 10 and times in seconds.
Images are named by the path of their blob below the store's folder `blobs`, or by the SHA-256 of
their PNG.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pytest_imgedit.core.environments import Environment, Reuse
from pytest_imgedit.core.pairs import named_images
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import escaped_json

RESULTS_SCHEMA = "imgedit.results/3"

Stage = Literal["edit", "score"]
Status = Literal[
    "scored",
    "edited",
    "edit_error",
    "judge_error",
    "refused",
    "dropped",
    "interrupted",
    "not_needed",
]
#: What a protocol does with a reply that cannot be read.
Variant = Literal["strict", "compat"]
State = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "NOT SELECTED"]
#: Results of `core.pairs.slug` and `core.pairs.category_slug`: safe as a part of a path.
PairId = Annotated[str, Field(pattern=r"^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=128)]
Category = Annotated[str, Field(pattern=r"^\.*[\w-][\w.-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
#: A result of `core.images.signature`.
Signature = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{1366}==$")]
Score = Annotated[float, Field(ge=0, le=10)]
#: A result of `kinds.change.change`.
Change = Annotated[float, Field(ge=0, le=255)]
BlobPath = Annotated[str, Field(pattern=r"^[0-9a-f]{2}/[0-9a-f]{64}\.(png|jpg|webp)$")]


def once(name: str) -> AfterValidator:
    """Return a validator that raises `ValueError` if two parts have the same value of a field."""

    def check(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the parts as they are, or raise."""
        values = [getattr(part, name) for part in parts]
        if len(set(values)) < len(values):
            [(value, _)] = Counter(values).most_common(1)
            raise ValueError(f"{name} {value!r} occurs twice, expected it once")
        return parts

    return AfterValidator(check)


class Part(BaseModel):
    """A part of a results document."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        serialize_by_alias=True,
        validate_by_name=True,
    )


# The results of a pair


@dataclass(frozen=True, slots=True)
class Edit:
    """One edited image: `blob` is the SHA-256 of its PNG in the store.

    `seconds` is the edit's equal share of the editor's time for a call of `batch_size` edits,
    including padding.

    `sources` counts the source images that the editor was given. `change` says how much the edit
    changes what the edited source shows, from 0 to 255 (`kinds/change.py`). `near_copy` says that
    it hardly differs from one of the sources, `reframed` that its aspect ratio differs from the
    edited source's by over 3%, `composited` that the editor's image had transparent pixels, and was
    laid over white, `leaked` that it equals its pair's reference, which differs from the source
    (`kinds/edit_checks.py`). `width` and `height` are in pixels. `compiled` says
    that it comes from a compiled network, whose images differ from others by rounding. `signature`
    is that of `images.signature`. `key` is the key of its record in the store, `environment` the
    digest of its environment.
    """

    blob: Sha256
    seconds: float
    worker: str
    near_copy: bool = False
    compiled: bool = False
    width: int = 0
    height: int = 0
    reframed: bool = False
    composited: bool = False
    sources: int = 1
    batch_size: int = 1
    signature: Signature | Literal[""] = ""
    key: str = ""
    environment: str = ""
    change: Change | None = None
    leaked: bool = False

    @property
    def blob_path(self) -> str:
        """The path of the image below the store's folder `blobs`."""
        return f"{self.blob[:2]}/{self.blob}.png"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge's replies about one edit amount to: aspects, and a score in [0, 10]; or the
    value of a metric, `score`, on its own scale.

    `replies` holds the raw replies by the protocol's calls. `aspects` are the values that the
    protocol makes of them, on their own scales. `batch_size` is the largest number of questions
    that were asked in one call. If aspects and score are expectations over the judge's
    probabilities, `greedy` is the score of the literal reply, and `off_scale` the largest
    probability in [0, 1] that the judge gave to anything but a grade. `measured` says that the
    judge returned a score instead of a reply. `touched` names calls whose reply lacks a number, on
    which `compat` applied the authors' rule. `keys` are those of the records in the store by call,
    `environment` is the digest of the environment.
    """

    replies: Mapping[str, str]
    aspects: Mapping[str, float]
    score: float
    batch_size: int = 1
    greedy: Score | None = None
    off_scale: float | None = None
    measured: bool = False
    touched: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""


@dataclass(frozen=True, slots=True)
class ItemError:
    """Why a pair has no score: the stage, a short kind such as `worker_died`, one line of text, and
    the raw reply.
    """

    stage: Stage
    kind: str
    message: str
    reply: str | None = None

    def __str__(self) -> str:
        return f"{self.message} ({self.stage} error: {self.kind})"


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One repetition of a pair: its edit and verdict, or the error that ended it.

    `further` holds the verdict of each further judge and metric by name, or its error.
    """

    seed: int
    edit: Edit | None = None
    verdict: Verdict | None = None
    error: ItemError | None = None
    further: Mapping[str, Verdict | ItemError] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PairInputs:
    """What a pair consists of: its category, its texts, and the blobs of its images, as paths below
    the store's `blobs` folder. `edited_source` is the place of `source` among all sources.
    """

    category: str
    instruction: str
    description: str | None
    reference_text: str | None
    source: str | None
    reference: str | None
    further: tuple[str, ...] = ()
    edited_source: int = 1

    @property
    def parts(self) -> tuple[str | None, ...]:
        """All of it, as a baseline hashes it; a pair of one source has nothing on the others."""
        parts = (
            self.category,
            self.instruction,
            self.description,
            self.reference_text,
            self.source,
            self.reference,
        )
        if not self.further:
            return parts
        return (*parts, str(self.edited_source), *self.further)


class Item(Part):
    """One selected pair: its texts and images, and its results.

    `score` and `aspects` are means over the seeds. If a seed has no verdict, `score` is `None` and
    `aspects` is empty. `aspects` also holds the values of metrics, as `NAME`, and those of further
    judges, as `NAME.score` and `NAME.ASPECT`; `missing` names the values that could not be
    obtained. In stage `edit`, pairs end as `edited`. `interrupted` pairs were stopped before they
    finished; `not_needed` pairs were skipped because every gate was already decided. `source`, the
    image that is edited, `further`, the other source images, and `reference` name blobs; the edited
    one has the place `edited_source` among all sources, which begins at 1. `rewritten` is the
    instruction that the editor received instead of the pair's own.
    """

    id: PairId
    category: Category
    instruction: str
    rewritten: str = ""
    description: str = ""
    reference_text: str = ""
    source: BlobPath | None
    further: tuple[BlobPath, ...] = ()
    edited_source: Annotated[int, Field(ge=1)] = 1
    reference: BlobPath | None = None
    tags: tuple[str, ...] = ()
    difficulty: str = ""
    status: Status
    score: Score | None
    aspects: dict[str, float]
    missing: tuple[str, ...] = ()
    seeds: Annotated[tuple[SeedResult, ...], once("seed")]
    error: ItemError | None = None

    def value(self, measure: str) -> float | None:
        """Return the value of a measure, if it has one."""
        return self.score if measure == "score" else self.aspects.get(measure)

    @property
    def cluster(self) -> str:
        """The source image, which dependent pairs share."""
        return self.source or self.id

    @property
    def sources(self) -> dict[str, str]:
        """The blobs of its source images by the names that calls use, in the pair's order."""
        return named_images(self.source, self.further, None, self.edited_source)

    @property
    def content(self) -> tuple[str | None, ...]:
        """The content of the pair: category, texts, and images by their blobs."""
        return PairInputs(
            category=self.category,
            instruction=self.instruction,
            description=self.description,
            reference_text=self.reference_text,
            source=self.source,
            reference=self.reference,
            further=self.further,
            edited_source=self.edited_source,
        ).parts

    @property
    def edits(self) -> list[Edit]:
        """The edits of all seeds that have one."""
        return [seed.edit for seed in self.seeds if seed.edit is not None]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts of all seeds that have one."""
        return [seed.verdict for seed in self.seeds if seed.verdict is not None]

    @property
    def is_judged(self) -> bool:
        """Whether the pair counts in the tables of a protocol: `compat` may have dropped it."""
        return self.status in ("scored", "dropped")


# Numbers


@dataclass(frozen=True)
class Summary:
    """One row of a table: counts, and statistics of the pairs that have a value (`scored`), on the
    scale of the measure.

    `refused` counts the pairs whose edit or verdict a content filter refused; `errors` does not
    hold them.

    `std` is the sample standard deviation (n − 1), `None` for fewer than two pairs. `ci95` is the
    95% interval of the mean, which allows for rare unseen scores, and `se` the standard error of
    the mean; both are `None` for fewer than two clusters (pairs that share a source image are one
    cluster). `mde` is the distance of the true mean from a threshold that a one-sided test at 5%
    detects in 80% of runs; it is `None` if there are too few clusters or no spread. All are `None`
    if nothing was scored.
    """

    n: int
    scored: int
    errors: int
    refused: int = 0
    mean: float | None = None
    std: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    ci95: tuple[float, float] | None = None
    se: float | None = None
    mde: float | None = None
    clusters: int = 0


class Measure(Part):
    """A number that items end with: the score, a value of the protocol, or a metric.

    `scale` holds its lowest and its highest value, `None` where it has no end. One that `is_main`
    stands beside the score in the terminal's table.
    """

    scale: tuple[float | None, float | None] = (None, None)
    lower_is_better: bool = False
    is_main: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of its scale; infinite where it has none."""
        lowest, highest = self.scale
        if lowest is None:
            lowest = -math.inf
        if highest is None:
            highest = math.inf
        return lowest, highest

    @property
    def is_bounded(self) -> bool:
        """Whether its scale has two ends."""
        return None not in self.scale

    @property
    def range(self) -> str:
        """Its scale in words, such as `0 to 10`."""
        lowest, highest = self.scale
        if lowest is None and highest is None:
            return "no fixed scale"
        if highest is None:
            return f"{lowest:g} or more"
        if lowest is None:
            return f"{highest:g} or less"
        return f"{lowest:g} to {highest:g}"

    @property
    def decimals(self) -> int:
        """The number of decimals that are shown: two on a scale wider than 2 that has two ends."""
        lowest, highest = self.ends
        return 2 if 2 < highest - lowest < math.inf else 3


class MeasuredGroups(Measure):
    """A measure with its statistics by group: `overall`, categories, `difficulty=NAME`, and
    `tag=NAME`.

    The mean of `overall` is the macro mean, that of `micro` the mean over all pairs (`Overall`).
    """

    rows: dict[str, Summary]
    micro: Summary

    @property
    def is_uneven(self) -> bool:
        """Whether categories differ in their numbers of values, and so the macro mean from the mean
        over pairs.
        """
        categories = (group for group in self.rows if group != "overall" and "=" not in group)
        return len({self.rows[category].scored for category in categories}) > 1

    @property
    def bare(self) -> Measure:
        """The measure without the statistics."""
        return Measure(**self.model_dump(exclude={"rows", "micro"}))


class Overall(Part):
    """Statistics of the scores of all pairs.

    The mean of `macro` is that of the category means, `None` if a category has no score; the mean
    of `micro` is over pairs. Each has its own `ci95`, `se` and `mde`; all else is equal.
    """

    macro: Summary
    micro: Summary


@dataclass(frozen=True)
class GateResult:
    """The result of a gate: `value` against `limit`, and the reason for its state in one line.

    `p` is the one-sided p value after Holm's correction over the gates of the kind. `mde` is the
    smallest distance beyond the limit that this gate detects in 80% of runs; it is `None` if there
    are too few pairs or no spread. `warns` says of an INCONCLUSIVE gate that it fails a run only
    where `gates.inconclusive` is `fail`: for want of pairs alone, and nothing speaks of ruin.
    """

    field: str
    kind: Literal[
        "fail_under",
        "max_drop",
        "min_win",
        "max_collapsed",
        "min_coverage",
        "max_errors",
        "controls",
        "duel_controls",
    ]
    limit: float | None
    value: float | None
    state: State
    why: str
    p: float | None = None
    mde: float | None = None
    warns: bool = False


class ComparisonRow(Part):
    """A measure over one group against the baseline: means of the `n` pairs that have a value on
    both sides.

    `p` is the p value of a drop and `p_rise` that of a rise, one-sided after Holm's correction over
    `overall` and all categories, or over all difficulties and tags. `finding` is their conclusion,
    or the state of a gate on this row, whose p and MDE are then those of the row.
    """

    n: int
    before: float | None
    now: float | None
    difference: float | None
    ci95: tuple[float, float] | None
    p: float | None
    p_rise: float | None
    finding: str
    mde: float | None


class ComparedPair(Part):
    """A pair of the baseline: its score, and the SHA-256 of its `edits` by seed. `alike` says that
    the edits of both runs look alike.
    """

    before: float | None
    difference: float | None
    edits: tuple[Sha256 | None, ...]
    alike: bool


class MovedPair(Part):
    """A pair whose score differs from that in the baseline."""

    id: PairId
    before: float
    now: float
    difference: float


class Commit(Part):
    """The commit of the git repository in which a run was started."""

    sha: str
    branch: str | None = None
    dirty: bool = False


class Comparison(Part):
    """A run against a baseline; `name`, `run`, `editor` and `commit` are the baseline's, `size` is
    its number of pairs.

    `rows` are those of the score by category, `measures` those of every measure of both, by group.
    `environment` lists the differences of the environments. `fell` and `rose` name the pairs that
    moved most, `collapsed` those that fell by `gates.collapse` points or more. `failed_alike` holds
    the pairs that have no score on either side for the same reason: they are left out.
    """

    name: str
    run: str
    editor: str
    commit: Commit | None
    environment: tuple[str, ...]
    size: int
    rows: dict[str, ComparisonRow]
    measures: dict[str, dict[str, ComparisonRow]]
    pairs: dict[PairId, ComparedPair]
    fell: tuple[MovedPair, ...]
    rose: tuple[MovedPair, ...]
    collapsed: tuple[str, ...] = ()
    failed_alike: dict[PairId, Status] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ControlRow(Summary):
    """The judge's scores of one control.

    `auc`, with its interval `auc_ci95`, is the probability that an edit of the better control,
    `below`, scores higher than this control's. `p` is the one-sided p value of the hypothesis that
    this control is not worse on the same pairs. `pending` counts missing verdicts.
    """

    control: str
    pending: int
    below: str = "oracle"
    p: float | None = None
    auc: float | None = None
    auc_ci95: tuple[float, float] | None = None
    state: State | None = None


@dataclass(frozen=True, slots=True)
class ControlTrial:
    """The judge's score of one control's edit of a pair; `pending` says that it was not asked.

    `cluster` is the SHA-256 of the source, which dependent pairs share.
    """

    control: str
    pair: PairId
    cluster: str
    score: Score | None
    pending: bool = False


class Controls(Part):
    """The judge's scores of edits of known quality, best control first.

    Without references (`has_oracle` is false), the run's own edits take the place of right ones:
    `own_mean` is the mean score of those of the tried pairs. `untried` says what the judge was not
    asked about.
    """

    pairs: int
    sources: int
    has_oracle: bool
    own_mean: Score | None = None
    untried: str = ""
    rows: tuple[ControlRow, ...]
    trials: tuple[ControlTrial, ...]


class NoiseRow(Part):
    """One repetition of the judging: `n` pairs that have a score in both judgings, `errors` and
    `pending` of the others.

    `shift` is the change of the overall (macro) score, `sd` the root mean square change of a pair's
    score, and `changed` the number of visibly changed scores.
    """

    perturbation: str
    n: int
    errors: int
    pending: int
    changed: int
    shift: float | None
    sd: float | None


class Noise(Part):
    """The judge's noise; `floor` is the root mean square of the shifts, without those of another
    order.
    """

    rows: tuple[NoiseRow, ...]
    floor: float | None


# The provenance of results


class Machine(Part):
    """A machine, without its name; `gpus` are the products of the GPUs in use."""

    system: str
    architecture: str
    cpus: int | None
    gpus: tuple[str, ...]


class HostOrigin(Part):
    """A host that ran workers, other than the one that started the run."""

    name: str
    versions: dict[str, str]
    machine: Machine


class ModelOptions(Part):
    """Options of the editor: the base seed, edits per pair, edits per call, and its sharding."""

    seed: int
    seeds: int
    batch_size: int
    shard: JsonObject | None = None


class GateOptions(Part):
    """The gates: limits of means and of their drops by field, and the allowed errors and collapsed
    pairs, a count (int) or a fraction (float).
    """

    fail_under: dict[str, float] = Field(default_factory=dict)
    """Fail if the mean of a field is under MIN. A field is `[MEASURE@]GROUP` (`docs/gates.md`)."""
    max_drop: dict[str, float] = Field(default_factory=dict)
    """Fail if the mean of a field fell by more than DROP; needs `compare`."""
    min_win: dict[str, float] = Field(default_factory=dict)
    """Fail if the share of duels that a field wins is under SHARE; needs `duel`, whose default is
    `overall = 0.5`.
    """
    duel: bool = False
    """Ask the judge which of two edits is better, this run's or the one in `compare`
    (`docs/duels.md`).
    """
    compare: str | None = None
    """The baseline or run to compare with: its name, its id, `latest` (the newest run of all pairs)
    or a path.
    """
    max_errors: int | float = 0
    """Pairs (`3`) or a fraction of them (`0.05`) that may end without a score; their items are
    xfailed. If the images of more pairs cannot be read, the run stops before a model loads.
    """
    max_collapsed: int | float = 0
    """Pairs, or a fraction of them, that may drop by `collapse` points or more against the
    baseline, beyond chance (`docs/gates.md`).
    """
    collapse: float = Field(default=3.0, gt=0, le=10)
    """A pair that drops by this many points has collapsed."""
    min_coverage: float = Field(default=0.0, ge=0, le=1)
    """Fail if less than this fraction of the baseline's pairs is compared."""
    max_near_copies: float = Field(default=0.5, ge=0, le=1)
    """If a larger fraction of edits hardly differs from the source, no gate on a mean passes."""
    environment: Literal["any", "same"] = "any"
    """`"same"`: a baseline of another environment is refused."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """The probability of a false alarm of all gates on drops, on duels and on the tail together,
    and again of all gates on scores (`docs/gates.md`).
    """
    margin: float = Field(default=0.5, gt=0, le=10)
    """The smallest effect that a passing gate must be able to detect, in 80% of runs."""
    strict: bool = False
    """PASS only if the rule is shown to hold; implies `inconclusive = "fail"`."""
    inconclusive: Literal["warn", "fail"] = "warn"
    """`"warn"`: a gate that lacks pairs warns, and does not fail the run (`docs/gates.md`);
    `"fail"`: every INCONCLUSIVE gate fails it.
    """
    until: Literal["all", "decided"] = "all"
    """`"decided"`: edit in an order given by hashes, and stop once every gate on a mean is decided
    (`docs/gates.md`).
    """
    partial: Literal["skip", "decide"] = "skip"
    """What happens to a gate of the config if some of its pairs are not selected: `"skip"` leaves
    it NOT SELECTED, `"decide"` decides it on the selected ones.
    """

    def alpha_of(self, kind: str) -> float:
        """Return the probability of a false alarm of all gates of a kind; the kinds against a
        baseline share α equally: those on drops and on duels, if there are any, and that on the
        tail.
        """
        if kind not in ("max_drop", "min_win", "max_collapsed"):
            return self.alpha
        return self.alpha / (1 + bool(self.max_drop) + bool(self.min_win))

    def only_warns(self, gate: GateResult) -> bool:
        """Return whether a gate is INCONCLUSIVE and only warns: it does not fail the run."""
        is_lenient = self.inconclusive == "warn" and not self.strict
        return is_lenient and gate.state == "INCONCLUSIVE" and gate.warns


class RunOptions(Part):
    """Options of the run."""

    stage: Literal["all", "edit", "score", "report"] = "all"
    fresh: bool = False
    reuse: Reuse = "compatible"


class Options(Part):
    """The settings that are necessary to repeat the run; only named settings, so never a secret."""

    suite: JsonObject
    editor: ModelOptions
    judge: JsonObject
    workers: JsonObject
    gates: GateOptions
    run: RunOptions


def stopped(by: str) -> str:
    """Return in words what stopped a run, given its `stopped_by`."""
    return "stopped by the user" if by == "the user" else f"stopped: {by}"


class RunInfo(Part):
    """The time, place, versions and options of a run; `name` is that of `--imgedit-name`.

    A run that was stopped is `incomplete`; `stopped_by` is the reason, and `trials_left` counts the
    remaining trials of the judge.
    """

    id: str
    name: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,128}$")
    started: str
    finished: str
    status: Literal["complete", "incomplete"]
    stopped_by: str | None = None
    trials_left: int = 0
    versions: dict[str, str]
    machine: Machine
    hosts: tuple[HostOrigin, ...] = ()
    commit: Commit | None = None
    options: Options

    @property
    def stopped(self) -> str:
        """What stopped it, in words; an empty text if nothing did."""
        return stopped(self.stopped_by) if self.stopped_by else ""


class SuiteInfo(Part):
    """The suite: `sha256` covers every text of every pair, but no image. `labels` has the suite's
    own names of categories, where they differ from the slugs.
    """

    name: str
    sha256: str
    pairs: int
    remarks: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)


class ShardInfo(Part):
    """The shard of a run; `ids` are the selected pairs of all shards, in the order of the suite."""

    index: int = Field(ge=1)
    count: int = Field(ge=1)
    ids: tuple[PairId, ...]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


class SelectionInfo(Part):
    """The number of `selected` pairs, and of the `whole` suite; neither includes pairs `skipped` by
    marks.

    If the run is one `shard`, these are the numbers of all shards.
    """

    selected: int
    whole: int
    skipped: int
    shard: ShardInfo | None = None


class ModelInfo(Part):
    """What identifies an editor or judge. `recipe` is the SHA-256 of all that decides what it
    computes, but for the environment. `files` holds, by their paths in `params`, the first 12 hex
    digits of the SHA-256 of what files contain, or of the digests of a folder's files.
    """

    spec: str
    fingerprint: str | None = None
    recipe: str | None = None
    commit: str | None = None
    params: JsonObject = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    dtype: str | None = None


class SeedTrial(Part):
    """Whether a served editor `repeats` its edit for one seed, and `varies` it with another one."""

    repeats: bool
    varies: bool


class EditorInfo(ModelInfo):
    """The editor. `lossy` names the parameters that trade quality for speed. `compiled` is `None`
    if only some edits come from a compiled network. `batch_sizes` holds how many edits its calls
    made at a time, if that influences rounding. `rewrites` is the SHA-256 of the instructions that
    replaced the suite's. `seeds` is known of a served editor that is sent seeds.
    """

    compiled: bool | None = None
    lossy: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    rewrites: Sha256 | None = None
    seeds: SeedTrial | None = None


class PublishedRow(Part):
    """A published number: the `value` of `row` for a `model` over `pairs` pairs, and what its
    source states about how it was obtained. `date` is the month of the source.
    """

    row: str
    model: str
    value: float
    pairs: int
    source: str
    date: str
    judge: str
    provider: str = "not stated"
    order: str = "not stated"
    sampling: str = "not stated"
    rewriting: str = "not stated"


class ProtocolRow(Part):
    """A row of the protocol's own tables, on its own scale: a mean of `n` values with its 95%
    interval. A row that `is_detail` is shown by `-v` and reports alone.
    """

    name: str
    n: int
    value: float
    ci95: tuple[float, float] | None
    scale: tuple[float, float]
    decimals: int
    is_detail: bool = False


class ProtocolCall(Part):
    """A call as the first pair has it: the order of texts (`text`) and images (by name), and how
    images are sent. An empty `codec` leaves that to the judge.
    """

    name: str
    order: tuple[str, ...]
    codec: str
    quality: int | None
    max_side: int | None
    at_source_size: bool
    detail: str


class ProtocolTable(Part):
    """The protocol's own tables, and published rows that stand beside them.

    `totals` says how rows are made, where two ways are in use. `problem` says why there are no
    rows. `touched` counts the replies on which `compat` applied the authors' rule. If `sees_change`
    is false, no call shows what was changed, so that the score cannot tell an untouched source from
    an edit.
    """

    name: str
    calls: tuple[ProtocolCall, ...]
    rows: tuple[ProtocolRow, ...]
    published: tuple[PublishedRow, ...]
    totals: str = ""
    problem: str = ""
    touched: int = 0
    sees_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What a judge says of two edits of a pair in one order.

    `first` names the edit that was shown first: this run's (`now`) or that of the other run
    (`before`). `values` holds, by measure, 1 where this run's edit is better, 0 where the other one
    is, and 0.5 for a tie; it is empty on an `error`. `replies` holds the raw replies by call, and
    `keys` those of their records in the store.

    A judge that measures is shown no two edits: its vote compares the `scores` of both, `before`
    and `now`, and has no `first`.
    """

    first: Literal["now", "before", ""]
    values: Mapping[str, float] = field(default_factory=dict)
    replies: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    scores: tuple[float, float] | None = None
    error: ItemError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DuelSeed:
    """The duel of the edits that two runs made of one seed: their SHA-256, `None` for one that is
    missing, and the votes, one an order. Equal edits need no vote.
    """

    seed: int
    before: Sha256 | None
    now: Sha256 | None
    votes: tuple[Vote, ...] = ()

    @property
    def is_identical(self) -> bool:
        """Whether both runs made the same image, byte by byte."""
        return self.before is not None and self.before == self.now

    def bounds(self, measure: str) -> tuple[float, float]:
        """Return the lowest and the highest share of this run's edit that the votes allow: equal
        ones if no vote is missing, and 0.5 for equal edits.
        """
        if self.is_identical:
            return 0.5, 0.5
        if not self.votes:
            return 0.0, 1.0
        lows = [vote.values.get(measure, 0.0) for vote in self.votes]
        highs = [vote.values.get(measure, 1.0) for vote in self.votes]
        return sum(lows) / len(lows), sum(highs) / len(highs)


class DuelPair(Part):
    """The duels of one pair, one a seed."""

    seeds: Annotated[tuple[DuelSeed, ...], once("seed")]

    def bounds(self, measure: str) -> tuple[float, float]:
        """Return the lowest and the highest mean over the seeds that their votes allow."""
        lows, highs = zip(*(seed.bounds(measure) for seed in self.seeds), strict=True)
        return sum(lows) / len(lows), sum(highs) / len(highs)

    def value(self, measure: str) -> float | None:
        """Return the share of this run's edits in [0, 1]; `None` if a vote is missing."""
        low, high = self.bounds(measure)
        return low if low == high else None


class Share(Part):
    """A share in [0, 1] of `n` pairs with its 95% interval; `None` without any."""

    n: int
    share: float | None
    ci95: tuple[float, float] | None


class DuelRow(Share):
    """The share of duels that this run's edits win over one group, a tie counting half.

    `p` is the p value of a share under a half, `p_rise` that of one over it, one-sided after Holm's
    correction over `overall` and all categories, or over all difficulties and tags. `finding` is
    their conclusion, or the state of a gate on this row, whose p and MDE are then those of the row.
    """

    p: float | None
    p_rise: float | None
    finding: str
    mde: float | None


class DuelControl(Share):
    """The share of duels that better edits win over those of a control, both of known quality.

    `better` is the editor of the better ones: `oracle`, or `own` for this run's where the suite has
    no references. `p` is the one-sided p value of a share of a half or less. `errors` and `pending`
    count the pairs without a vote, `sources` the source images of the others. `first` is the share
    of votes for the edit that is shown first, `None` where a judge measures.
    """

    control: str
    better: Literal["oracle", "own"]
    sources: int = 0
    errors: int = 0
    pending: int = 0
    first: float | None = None
    p: float | None = None
    state: State


class Duel(Part):
    """The edits of a run against those of another, asked directly: `name`, `run` and `editor` are
    the other's.

    `by_scores` says that the judge measures, so that the difference of its two scores is the vote.
    Otherwise `protocol`, `variant`, `protocol_sha256` and `calls` say what was asked. The shares of
    `disagreement` and `first` are those of votes that change with the order, and of votes for the
    edit that is shown first, by measure. `measures` holds the rows by measure and group.
    `identical` counts the pairs whose edits are equal, which count half, and `errors` those without
    a vote.
    """

    name: str
    run: str
    editor: str
    by_scores: bool
    protocol: str | None = None
    variant: Variant | None = None
    protocol_sha256: str | None = None
    calls: tuple[ProtocolCall, ...] = ()
    measures: dict[str, dict[str, DuelRow]]
    disagreement: dict[str, Share] = Field(default_factory=dict)
    first: dict[str, Share] = Field(default_factory=dict)
    identical: int
    errors: int
    pairs: dict[PairId, DuelPair]
    controls: tuple[DuelControl, ...] = ()


class Usage(Part):
    """The usage of a judge behind a server; `cost` is `None` without prices."""

    tokens_in: int
    tokens_out: int
    cost: float | None


class CanaryGrade(Part):
    """A grade that differs before and after a run. In place of the edit, the judge saw the `own`
    picture of the first pair or the picture of an `other` pair.
    """

    picture: Literal["own", "other"]
    name: str
    before: float
    after: float


class Canary(Part):
    """What a served judge answered to the same two questions before, during and after a run, or to
    one if no other pair has another picture.

    `rounds` counts how often they were asked, `answers` all answers, `repeats` those after the
    first to a question, `differing` those with another text than the first, and `failed` the
    questions without an answer. `grades` are those that differ between the first round and the
    last, and `models` what the server says has answered, with fingerprints; more than one means
    that it has changed.
    """

    rounds: int
    answers: int = 0
    repeats: int
    differing: int
    failed: int
    grades: tuple[CanaryGrade, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def has_changed(self) -> bool:
        """Whether the judge was another one after the run than before it."""
        return bool(self.grades) or len(self.models) > 1


class PeopleShare(Share):
    """The share of people's choices between two edits in which the scores of a judge agree with the
    majority, a tie of the judge counting half; `people` names the choices.
    """

    people: str


class JudgeInfo(ModelInfo):
    """The judge and its protocol; a judge that measures has none.

    `returned` counts the answers by the model that the server says has given them. A `canary` has
    only a served judge that was put many questions. `people` is what the store knew at the end of
    the run of the same judge, asked by the same protocol.
    """

    decoder: str | None = None
    usage: Usage | None = None
    protocol: str | None = None
    variant: Variant | None = None
    protocol_sha256: str | None = None
    returned: dict[str, int] = Field(default_factory=dict)
    canary: Canary | None = None
    people: tuple[PeopleShare, ...] = ()


class Agreement(Part):
    """How a further judge or metric agrees with the judge over the `n` pairs that both have scored:
    Spearman's rho with its 95% interval, and, of a judge, its mean score less that of the judge.
    """

    n: int
    spearman: float | None
    ci95: tuple[float, float] | None
    difference: float | None


class FurtherInfo(JudgeInfo):
    """A further judge or a metric, with its agreement with the judge; `None` without a judge."""

    role: Literal["judge", "metric"]
    agreement: Agreement | None


class ComputedIn(Environment):
    """An environment, with the number of edits and verdicts of the run that were computed in it;
    `further` are the verdicts of further judges and metrics.
    """

    edits: int
    verdicts: int
    further: int = 0

    @property
    def bare(self) -> Environment:
        """The environment without the counts."""
        return Environment(**self.model_dump(exclude={"edits", "verdicts", "further"}))


class ReuseInfo(Part):
    """The number of edits and verdicts that were computed in another environment than that of the
    run, and its differences.
    """

    policy: Reuse
    edits: int = 0
    verdicts: int = 0
    differences: tuple[str, ...] = ()


class Timing(Part):
    """Wall times in seconds, and counts.

    `edit_s` includes `load_s`, the time until the first editor is loaded. `swap_s` is the time from
    the last edit to the first loaded judge, `first_verdict_s` that to the first verdict, and
    `score_s` that from the loaded judge to the last verdict. If scoring overlaps editing, `swaps`
    is 0 and `score_s` is the time after the last edit. `duel_s` is the time of duels; `votes`
    counts those that were made, and `votes_cached` those of the store. `further_s` is the time of
    further judges and metrics, with their loading. `edit_gpu_busy` and `score_gpu_busy` are the
    fractions of each stage, from its first loaded worker on, in which its GPUs computed.
    """

    model_config = ConfigDict(frozen=False)

    edit_s: float = 0.0
    load_s: float = 0.0
    swap_s: float = 0.0
    first_verdict_s: float = 0.0
    score_s: float = 0.0
    trials_s: float = 0.0
    duel_s: float = 0.0
    further_s: float = 0.0
    swaps: int = 0
    edits: int = 0
    verdicts: int = 0
    edits_cached: int = 0
    verdicts_cached: int = 0
    votes: int = 0
    votes_cached: int = 0
    edit_gpu_busy: float | None = None
    score_gpu_busy: float | None = None


class WorkerInfo(Part):
    """The work of one worker in a stage, or of a further judge or metric (`further` is its name);
    `ready_s` is the time from the start of the stage until it was loaded.

    `batch_size` is the largest number of edits or questions of one call at its end. `probe` is that
    of its environment. `gpu_peak` and `host_peak` are its peak memory in bytes: PyTorch's memory on
    one of its GPUs, and its resident set.
    """

    name: str
    device: str
    stage: Stage
    jobs: int
    batch_size: int
    busy_s: float
    load_s: float
    ready_s: float
    gpu_peak: int | None
    host_peak: int | None
    further: str = ""
    probe: str | None = None


class Section(Part):
    """A section of the reports that users add."""

    title: str
    body: str


class Results(Part):
    """The results of a run. Every selected pair is in `items` exactly once."""

    schema_name: Literal["imgedit.results/3"] = Field(default="imgedit.results/3", alias="schema")
    run: RunInfo
    suite: SuiteInfo
    selection: SelectionInfo
    editor: EditorInfo
    judge: JudgeInfo
    further: dict[str, FurtherInfo] = Field(default_factory=dict)
    environments: dict[str, ComputedIn]
    reuse: ReuseInfo
    timing: Timing
    workers: tuple[WorkerInfo, ...]
    categories: dict[str, Summary]
    overall: Overall
    measures: dict[str, MeasuredGroups]
    gates: tuple[GateResult, ...]
    comparison: Comparison | None = None
    duel: Duel | None = None
    controls: Controls | None = None
    noise: Noise | None = None
    protocol: ProtocolTable | None = None
    items: Annotated[tuple[Item, ...], once("id")]
    sections: tuple[Section, ...] = ()

    def to_json(self) -> str:
        """Return the text of results.json, one value a line; raises `ValueError` for NaN and
        infinity.
        """
        text = self.model_dump_json(indent=1)
        # A line that ends in one of these is no text: that ends in a quotation mark.
        if re.search(r"(?:NaN|Infinity),?$", text, re.MULTILINE):
            raise ValueError("a number of the results is NaN or infinite, expected a finite one")
        return escaped_json(text)
