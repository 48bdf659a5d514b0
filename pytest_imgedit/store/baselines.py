"""Documents that outlive a run: results.json, and baselines, which users commit and compare with.

A baseline holds a run's scores with their provenance in a small JSON file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, StrictInt, ValidationError

from pytest_imgedit.core import errors, files, images, pairs, repetitions, strict_json
from pytest_imgedit.core.measures import SCORE
from pytest_imgedit.core.results import (
    BlobPath,
    Category,
    Commit,
    ComputedIn,
    Controls,
    EditorInfo,
    FurtherInfo,
    Item,
    JudgeInfo,
    Machine,
    Measure,
    PairId,
    Part,
    Results,
    Score,
    SeedResult,
    Sha256,
    Signature,
    Status,
    SuiteInfo,
    once,
)
from pytest_imgedit.core.text import escaped_json, first_of, printable, shorten

SCHEMA = "imgedit.baseline/5"
#: The largest document that is read.
MAX_BYTES = 256 * 2**20
#: The folder of baselines, below pytest's root folder.
FOLDER = Path("benchmarks", "baselines")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def usual_folder(config: Path | None, root: Path) -> Path:
    """Return the folder of the baselines of a project that names none: beside a config in a folder
    `benchmarks`, or else below pytest's root folder.
    """
    if config is not None and config.absolute().parent.name == FOLDER.parent.name:
        return config.absolute().parent / FOLDER.name
    return root / FOLDER


def check_name(option: str, name: str) -> None:
    """Raise `UsageError` for a name that an option cannot give to a baseline or a run."""
    if not _NAME.fullmatch(name) or name == "latest":
        raise errors.UsageError(
            f"{option}={name}: expected a name of letters, digits, '.', '_' and '-', not 'latest'"
        )


@dataclass(frozen=True, slots=True)
class BaselineSeed:
    """One repetition of a pair: its score, and the SHA-256 and the signature of its edit."""

    seed: StrictInt
    score: Score | None = None
    edit: Sha256 | None = None
    signature: Signature | None = None

    def is_alike(self, other: BaselineSeed) -> bool:
        """Return whether the edits of two runs look alike; `False` if one of them is unknown."""
        if self.edit == other.edit:
            return self.edit is not None
        if self.signature is None or other.signature is None:
            return False
        return images.look_alike(self.signature, other.signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineItem:
    """One pair: `sha256` covers its texts and images (`content_sha256`), `source` names the blob of
    its source image, of several that of the edited one, whose place is `edited_source`; `further`
    names the others. `status` is how the pair ended. `score` is the mean of the seeds' scores.
    `values` are those of measures beside the score, `missing` the measures that it failed to get.
    """

    id: PairId
    category: Category
    sha256: Sha256
    source: BlobPath | None
    further: tuple[BlobPath, ...] = ()
    edited_source: int = 1
    tags: tuple[str, ...] = ()
    difficulty: str = ""
    status: Status
    score: Annotated[Score | None, Field(strict=True)]
    values: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    seeds: Annotated[tuple[BaselineSeed, ...], once("seed")]

    @property
    def cluster(self) -> str:
        """The source image, which dependent pairs share."""
        return self.source or self.id

    def value(self, measure: str) -> float | None:
        """Return the value of a measure, if it has one."""
        return self.score if measure == SCORE else self.values.get(measure)

    @property
    def edits(self) -> tuple[str | None, ...]:
        """The SHA-256 of the edit of each seed."""
        return tuple(seed.edit for seed in self.seeds)


@dataclass(frozen=True, kw_only=True)
class PairContent:
    """What a pair is made of: `source`, `further` and `edited_source` are those of its sources'
    blobs, `sha256` is its `content_sha256`.

    `is_plain` says that there is no text but the instruction, and no reference.
    """

    category: str
    source: str | None
    further: tuple[str, ...] = ()
    edited_source: int = 1
    sha256: str
    seeds: tuple[int, ...]
    is_plain: bool = False

    def unlike(self, before: PairContent) -> str:
        """Name the first thing that has changed since, with its article; an empty text if nothing
        has.
        """
        if before.sha256 == self.sha256:
            return ""
        if before.category != self.category:
            return "the category"
        unlike_sources = self._unlike_sources(before)
        if unlike_sources:
            return unlike_sources
        return "the instruction" if self.is_plain else "the instruction, description or reference"

    def _unlike_sources(self, before: PairContent) -> str:
        """Name the source that has changed since, of several the first; an empty text if none
        has.
        """
        there = pairs.in_order_of_sources(before.source, before.further, before.edited_source)
        here = pairs.in_order_of_sources(self.source, self.further, self.edited_source)
        if len(there) != len(here):
            return "the number of source images"
        for place, (old, new) in enumerate(zip(there, here, strict=True), 1):
            if old != new:
                return f"source image {place}" if self.further else "the source image"
        return "the edited source" if before.edited_source != self.edited_source else ""


class BaselineCategory(Part):
    """A category's counts and mean score."""

    n: int
    scored: int
    mean: float | None


class Baseline(Part):
    """A run's scores, with their provenance; scores are rounded to six digits, and `overall` and
    `categories` are made of the rounded ones. `controls` are without their trials.
    """

    schema_name: Literal["imgedit.baseline/5"] = Field(default="imgedit.baseline/5", alias="schema")
    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")
    run: str
    finished: str
    commit: Commit | None
    machine: Machine | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    environments: dict[str, ComputedIn] = Field(default_factory=dict)
    suite: SuiteInfo | None = None
    editor: EditorInfo
    judge: JudgeInfo
    further: dict[str, FurtherInfo] = Field(default_factory=dict)
    seeds: StrictInt
    not_needed: int = 0
    measures: dict[str, Measure] = Field(default_factory=dict)
    overall: float | None = None
    categories: dict[str, BaselineCategory] = Field(default_factory=dict)
    controls: Controls | None = None
    items: Annotated[tuple[BaselineItem, ...], once("id")]

    @cached_property
    def contents(self) -> dict[str, PairContent]:
        """What must be equal where runs are compared, by the ids of the pairs."""
        return {item.id: _content_of(item) for item in self.items}

    @property
    def is_named(self) -> bool:
        """Whether it has a name beside the id of its run."""
        return self.name != pairs.slug(self.run)


def _content_of(item: BaselineItem) -> PairContent:
    return PairContent(
        category=item.category,
        source=item.source,
        further=item.further,
        edited_source=item.edited_source,
        sha256=item.sha256,
        seeds=tuple(seed.seed for seed in item.seeds),
    )


def make_baseline(results: Results, name: str) -> Baseline:
    """Reduce results to the values that later runs are compared with, under a name."""
    controls = results.controls
    if controls is not None:
        controls = controls.model_copy(update={"trials": ()})
    items = tuple(sorted(map(reduced, results.items), key=lambda item: item.id))
    overall, categories = means_of(items)
    return Baseline(
        name=name,
        run=results.run.id,
        finished=results.run.finished,
        commit=results.run.commit,
        machine=results.run.machine,
        versions=results.run.versions,
        environments=results.environments,
        suite=results.suite,
        editor=results.editor,
        judge=results.judge,
        further=results.further,
        seeds=results.run.options.editor.seeds,
        not_needed=_count_not_needed(items),
        measures={name: measured.bare for name, measured in results.measures.items()},
        overall=overall,
        categories=categories,
        controls=controls,
        items=items,
    )


def means_of(
    items: Iterable[BaselineItem],
) -> tuple[float | None, dict[str, BaselineCategory]]:
    """Return the mean of the category means, `None` if a category has no score, and the counts and
    the mean of each category; pairs that were not needed count nowhere.
    """
    scores: dict[str, list[float | None]] = {}
    for item in items:
        if item.status != "not_needed":
            scores.setdefault(item.category, []).append(item.score)
    means: list[float | None] = []
    rows: dict[str, BaselineCategory] = {}
    for category in pairs.in_order(scores):
        known = [score for score in scores[category] if score is not None]
        means.append(fmean(known) if known else None)
        rows[category] = BaselineCategory(
            n=len(scores[category]), scored=len(known), mean=_rounded(means[-1])
        )
    return _rounded(repetitions.mean_score(means)), rows


def _count_not_needed(items: Iterable[BaselineItem]) -> int:
    return sum(item.status == "not_needed" for item in items)


def reduced(item: Item) -> BaselineItem:
    """Reduce an item of a run to the values that are compared."""
    seeds = tuple(map(_reduced_seed, item.seeds))
    score = None if item.score is None else _mean_score(seeds)
    return BaselineItem(
        id=item.id,
        category=item.category,
        sha256=content_sha256(item.content),
        source=item.source,
        further=item.further,
        edited_source=item.edited_source,
        tags=item.tags,
        difficulty=item.difficulty,
        status=item.status,
        score=score,
        values={name: round(value, 6) for name, value in item.aspects.items()},
        missing=item.missing,
        seeds=seeds,
    )


def _mean_score(seeds: Sequence[BaselineSeed]) -> float | None:
    return _rounded(repetitions.mean_score([seed.score for seed in seeds]))


def _reduced_seed(result: SeedResult) -> BaselineSeed:
    """Reduce a repetition to its rounded score and its edit; what it lacks is `None`."""
    score = _rounded(result.verdict.score) if result.verdict else None
    if result.edit is None:
        return BaselineSeed(seed=result.seed, score=score)
    return BaselineSeed(
        seed=result.seed,
        score=score,
        edit=result.edit.blob,
        signature=result.edit.signature or None,
    )


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 6)


def content_sha256(content: Sequence[str | None]) -> str:
    """Hash the category, instruction, description, reference text and image blobs of a pair."""
    return hashlib.sha256(json.dumps(list(content)).encode()).hexdigest()


def write_baseline(folder: Path, baseline: Baseline) -> Path:
    """Write `folder/NAME.json`, and return its path; raise `OSError` if it cannot be written, and
    `StoreError` for a baseline that contradicts itself.

    A digest of the whole is in its head, so that git finds a conflict wherever two branches saved
    it. Each item has a line, so that a diff shows which pairs changed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{baseline.name}.json"
    problem = contradiction(path, contradictions(baseline))
    if problem is not None:
        raise errors.StoreError(f"{problem}: it is not saved")
    document = baseline.model_dump(mode="json")
    signed = {"schema": SCHEMA, "digest": digest_of(document), **document}
    head = json.dumps({**signed, "items": []}, ensure_ascii=False, indent=1, allow_nan=False)
    items = ",\n  ".join(
        json.dumps(item, ensure_ascii=False, allow_nan=False) for item in document["items"]
    )
    text = head.removesuffix("[]\n}") + f"[\n  {items}\n ]\n}}\n"
    files.write_text(path, escaped_json(text))
    return path


def digest_of(document: strict_json.JsonObject) -> str:
    """Return the SHA-256, in hex, of all that a baseline says beside its digest; the layout of the
    file does not count.
    """
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def contradictions(baseline: Baseline) -> Iterator[str]:
    """Yield where a baseline says something twice, and not alike."""
    for index, item in enumerate(baseline.items):
        place = f"items.{index} ({item.id})"
        score = _mean_score(item.seeds) if item.status == "scored" else None
        yield from unlike(f"{place}.score", item.score, score, "its status and its seeds")
        if item.status == "scored" and item.score is None:
            yield f"{place}.status: scored, its score: none"
        yield from unlike(
            f"{place}.seeds", len(item.seeds), baseline.seeds, "the seeds of the baseline"
        )
        for name in item.values.keys() & set(item.missing):
            yield f"{place}.values: {name!r}, which is missing too"
    overall, categories = means_of(baseline.items)
    for name in {**categories, **baseline.categories}:
        told = baseline.categories.get(name)
        made = categories.get(name)
        if told is None or made is None:
            yield f"categories.{name}: {_presence(told)}, its items: {_presence(made)}"
        else:
            for key, value in told:
                yield from unlike(
                    f"categories.{name}.{key}", value, getattr(made, key), "its items"
                )
    yield from unlike("overall", baseline.overall, overall, "its items")
    yield from unlike(
        "not_needed", baseline.not_needed, _count_not_needed(baseline.items), "its items"
    )
    yield from _unlike_environments(baseline)


def _unlike_environments(baseline: Baseline) -> Iterator[str]:
    """Compare the environments, if there are any, with their digests, and the sums of their counts
    with the edits and verdicts of the items.
    """
    places = baseline.environments
    if not places:
        return
    yield from unlike_digests(places)
    seeds = [seed for item in baseline.items for seed in item.seeds]
    edits = sum(seed.edit is not None for seed in seeds)
    verdicts = sum(seed.score is not None for seed in seeds)
    for name, made in {"edits": edits, "verdicts": verdicts}.items():
        told = sum(getattr(place, name) for place in places.values())
        yield from unlike(f"environments: {name}", told, made, "its items")


def unlike_digests(environments: Mapping[str, ComputedIn]) -> Iterator[str]:
    """Yield the environments whose names are not their digests."""
    for name, environment in environments.items():
        yield from unlike(f"environments.{name}", name, environment.bare.digest, "its digest")


def unlike(place: str, told: object, made: object, source: str) -> Iterator[str]:
    """Yield a contradiction if what is `told` at a place is not what its source has `made` it."""
    if told != made:
        yield f"{place}: {_shown(told)}, {source}: {_shown(made)}"


def _presence(row: object) -> str:
    return "not there" if row is None else "there"


def _shown(value: object) -> str:
    return "none" if value is None else shorten(printable(str(value)), 60)


def contradiction(path: Path, found: Iterable[str]) -> str | None:
    """Return a line about the first two contradictions that were found in a document; `None` if
    there are none.
    """
    remaining = iter(found)
    first_two = list(islice(remaining, 2))
    if not first_two:
        return None
    has_more = next(remaining, None) is not None
    more = ", and more" if has_more else ""
    return f"{path}: contradicts itself: {printable('; '.join(first_two))}{more}"


def baseline_path(reference: str, folder: Path) -> Path | None:
    """Return the file of the baseline of this name; `None` if a folder has none."""
    path = folder / f"{reference}.json"
    return path if _NAME.fullmatch(reference) and path.exists() else None


def baseline_of(path: Path, document: strict_json.JsonObject) -> Baseline:
    """Return the baseline that a document holds, whose digest is taken out of it.

    Raise `UsageError`, which names the file and the places, for anything else, and for a baseline
    that contradicts itself.
    """
    told = document.pop("digest", None)
    try:
        baseline = Baseline.model_validate(document)
    except ValidationError as error:
        raise errors.UsageError(
            f"{path}: {errors.first_problem(error)}, expected a baseline as --imgedit-save "
            "writes it, or a results.json"
        ) from None
    other_digest = unlike("digest", told, digest_of(document), "its content")
    problem = contradiction(path, chain(contradictions(baseline), other_digest))
    if problem is not None:
        raise errors.UsageError(
            f"{problem}: merged by hand or by git? take one side's file whole, or "
            "remove it and save it again (--imgedit-save)"
        )
    return baseline


def read_document(path: Path, schemas: Sequence[str]) -> strict_json.JsonObject:
    """Return the JSON object of a file; raise `UsageError` if it cannot be read, or its `schema` is
    none of these.
    """
    document = files.read_json(path, MAX_BYTES, "a baseline or a results.json", strict_json.loads)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in schemas:
        expected = " or ".join(map(repr, schemas))
        if isinstance(schema, str) and schema.startswith(("imgedit.baseline/", "imgedit.results/")):
            raise errors.UsageError(
                f"{path}: schema {_shown(schema)}, expected {expected}: of another version, "
                "remove it and save it again (--imgedit-save)"
            )
        raise errors.UsageError(
            f"{path}: schema {_shown(schema)}, expected {expected}: not a file of these"
        )
    return dict(document)


def unlike_judges(baseline: Baseline, judge: Mapping[str, object], seeds: int) -> str | None:
    """Say why the verdicts of a run cannot be compared: another judge, by the fields of `JudgeInfo`
    that are known of it, or another number of seeds. `None` if they can.
    """
    reason = unlike_judge(baseline.judge, judge)
    if reason is not None:
        return reason
    if seeds != baseline.seeds:
        return f"another number of seeds: {baseline.seeds} there, {seeds} here"
    return None


def unlike_further(baseline: Baseline, further: Mapping[str, Mapping[str, object]]) -> str | None:
    """Say why values of a further judge or metric that both have cannot be compared, by the fields
    of `JudgeInfo` that are known of this run's; `None` if all can.
    """
    for name in baseline.further.keys() & further.keys():
        reason = unlike_judge(baseline.further[name], further[name])
        if reason is not None:
            return f"{reason} ({baseline.further[name].role} {name})"
    return None


def unlike_judge(there: JudgeInfo, judge: Mapping[str, object]) -> str | None:
    """Say in what a judge differs from the one of a baseline, by the fields of `JudgeInfo` that are
    known of it; `None` if in nothing.

    Specs alone do not count: judges of one fingerprint are the same under any spec.
    """
    another = f"another judge: {there.spec} there, {judge.get('spec')} here"
    # A judge without a protocol measures.
    if "protocol" in judge and (judge["protocol"] is None) != (there.protocol is None):
        return another
    for key, name in (
        ("params", "set of judge parameters"),
        ("protocol", "protocol"),
        ("variant", "variant of the protocol"),
        ("protocol_sha256", "content of the protocol"),
    ):
        value_there = getattr(there, key)
        if key in judge and judge[key] != value_there:
            return f"another {name}: {_short(value_there)} there, {_short(judge[key])} here"
    if "fingerprint" in judge and judge["fingerprint"] != there.fingerprint:
        if there.spec != judge.get("spec"):
            return another
        return (
            f"another judge's weights or code: {_short(there.fingerprint)} there, "
            f"{_short(judge['fingerprint'])} here"
        )
    return None


def unlike_losses(baseline: Baseline, lossy: Sequence[str]) -> str | None:
    """Say why a gate cannot separate a worse model from a faster one: the parameters that trade
    quality for speed differ. `None` if they do not.
    """
    if baseline.editor.lossy == tuple(lossy):
        return None
    there = ", ".join(baseline.editor.lossy) or "nothing"
    here = ", ".join(lossy) or "nothing"
    return (
        f"an editor made faster with loss by {there} there, by {here} here; a gate on it would mix "
        "the two"
    )


def unlike_rewrites(baseline: Baseline, is_rewritten: bool) -> str | None:
    """Say why edits cannot be compared: instructions were rewritten on one side alone. `None` if
    they were on both sides, or on neither.
    """
    there = baseline.editor.rewrites is not None
    if there == is_rewritten:
        return None
    names = {True: "rewritten instructions", False: "the suite's instructions"}
    return f"edits by {names[there]} there, by {names[is_rewritten]} here (editor.rewrites)"


def unlike_items(baseline: Baseline, items: Mapping[str, PairContent]) -> str | None:
    """Say why pairs cannot be compared, `None` if they can; `items` are this run's by their ids.

    Each must be in the baseline, with the same content and the same seeds.
    """
    known = baseline.contents
    absent = [name for name in items if name not in known]
    if absent:
        return f"{len(absent)} of {len(items)} pairs are not in it ({first_of(absent)})"
    changed: dict[str, list[str]] = {}
    for name, content in items.items():
        part = content.unlike(known[name])
        if part:
            changed.setdefault(part, []).append(name)
    if changed:
        return ", ".join(
            f"{part} of {len(names)} of {len(items)} pairs has changed ({first_of(names)})"
            for part, names in changed.items()
        )
    for name, content in items.items():
        if known[name].seeds != content.seeds:
            there = list(known[name].seeds)
            here = list(content.seeds)
            return f"pair {name!r} was edited with seeds {there}, here with {here}"
    return None


def refuse(baseline: Baseline, reason: str | None) -> None:
    """Raise `UsageError` if there is a reason not to compare with a baseline."""
    if reason:
        raise errors.UsageError(f"baseline {baseline.name}: not comparable: {reason}")


def _short(value: object) -> str:
    """Return a value as text of at most 80 characters, a SHA-256 as its first 12 digits."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{text[:12]}…" if re.fullmatch("[0-9a-f]{64}", text) else text[:80]
