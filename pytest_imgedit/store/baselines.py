"""Baselines: a run's scores with their provenance, in a small JSON file that users commit and
compare with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictInt, ValidationError

from pytest_imgedit.core.errors import UsageError, first_problem
from pytest_imgedit.core.files import write_text
from pytest_imgedit.core.images import look_alike
from pytest_imgedit.core.pairs import slug
from pytest_imgedit.core.results import (
    RESULTS_SCHEMA,
    BlobPath,
    Category,
    Commit,
    ComputedIn,
    EditorInfo,
    Item,
    JudgeInfo,
    Machine,
    PairId,
    Part,
    Results,
    SeedResult,
    Sha256,
    Signature,
    SuiteInfo,
    once,
)
from pytest_imgedit.core.sanitize import did_you_mean
from pytest_imgedit.store.documents import as_results, read_document

BASELINE_SCHEMA = "imgedit.baseline/2"
#: Where baselines stand, below pytest's root folder.
FOLDER = Path("benchmarks", "baselines")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_name(name: str) -> None:
    """Raise `UsageError` for a name that `--imgedit-save` cannot make a file of."""
    if not _NAME.fullmatch(name) or name == "latest":
        raise UsageError(
            f"--imgedit-save={name}: expected a name of letters, digits, '.', '_' and '-', not "
            "'latest'"
        )


class BaselineSeed(Part):
    """One repetition of a pair: its score, and the SHA-256 and the signature of its edit."""

    seed: StrictInt
    score: float | None = Field(default=None, ge=0, le=10)
    edit: Sha256 | None = None
    signature: Signature | None = None

    def is_alike(self, other: BaselineSeed) -> bool:
        """Tell whether the edits of two runs look alike; those of which one is not known do not."""
        if self.edit == other.edit:
            return self.edit is not None
        return (
            self.signature is not None
            and other.signature is not None
            and look_alike(self.signature, other.signature)
        )


class BaselineItem(Part):
    """One pair: `sha256` covers what was asked (`content_sha256`), `source` names the blob of its
    source image.
    """

    id: PairId
    category: Category
    sha256: Sha256
    source: BlobPath | None
    score: float | None = Field(strict=True, ge=0, le=10)
    seeds: Annotated[tuple[BaselineSeed, ...], once("seed")]

    @property
    def cluster(self) -> str:
        """What pairs that are not independent share: the source image."""
        return self.source or self.id

    @property
    def edits(self) -> tuple[str | None, ...]:
        """The SHA-256 of the edit of each seed."""
        return tuple(seed.edit for seed in self.seeds)


class BaselineCategory(Part):
    """A category's counts and mean score."""

    n: int
    scored: int
    mean: float | None


class Baseline(Part):
    """A run's scores, with their provenance; scores are rounded to six digits."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        validate_by_name=True,
    )

    schema_name: Literal["imgedit.baseline/2"] = Field(default="imgedit.baseline/2", alias="schema")
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
    seeds: StrictInt
    not_needed: int = 0
    overall: float | None = None
    categories: dict[str, BaselineCategory] = Field(default_factory=dict)
    items: Annotated[tuple[BaselineItem, ...], once("id")]


def make_baseline(results: Results, name: str) -> Baseline:
    """Reduce results to what later runs are compared with."""
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
        seeds=results.run.options.editor.seeds,
        not_needed=sum(item.status == "not_needed" for item in results.items),
        overall=_rounded(results.overall.macro.mean),
        categories={
            category: BaselineCategory(n=row.n, scored=row.scored, mean=_rounded(row.mean))
            for category, row in results.categories.items()
        },
        items=tuple(sorted(map(reduced, results.items), key=lambda item: item.id)),
    )


def reduced(item: Item) -> BaselineItem:
    """Reduce an item of a run to what is compared of it."""
    return BaselineItem(
        id=item.id,
        category=item.category,
        sha256=content_sha256(item.asked),
        source=item.source,
        score=_rounded(item.score),
        seeds=tuple(map(_reduced_seed, item.seeds)),
    )


def _reduced_seed(result: SeedResult) -> BaselineSeed:
    reduced: dict[str, object] = {"seed": result.seed}
    if result.verdict is not None:
        reduced["score"] = _rounded(result.verdict.score)
    if result.edit is not None:
        reduced["edit"], reduced["signature"] = result.edit.blob, result.edit.signature or None
    return BaselineSeed.model_validate(reduced)


def _rounded(score: float | None) -> float | None:
    if score is None:
        return None
    return round(score, 6)


def content_sha256(asked: Sequence[str | None]) -> str:
    """Hash what was asked about a pair: category, instruction, description, reference text, and
    images as blobs.
    """
    return hashlib.sha256(json.dumps(list(asked)).encode()).hexdigest()


def write_baseline(folder: Path, baseline: Baseline) -> Path:
    """Write `folder/NAME.json`, one item a line so that a diff shows which pairs changed; raises
    `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{baseline.name}.json"
    document = baseline.model_dump(mode="json")
    head = json.dumps({**document, "items": []}, ensure_ascii=False, indent=1, allow_nan=False)
    lines = ",\n  ".join(
        json.dumps(item, ensure_ascii=False, allow_nan=False) for item in document["items"]
    )
    write_text(path, head.removesuffix("[]\n}") + f"[\n  {lines}\n ]\n}}\n")
    return path


def read_baseline(reference: str, folder: Path, base: Path) -> Baseline:
    """Read what `--imgedit-compare` names: a NAME in `folder`, `latest` there, or a path below
    `base`.

    A path may be that of a baseline, of a results.json, or of a run's folder. Raises `UsageError`
    for one that is not there, cannot be read, is of a newer format, or lacks what a comparison
    needs.
    """
    if reference == "latest":
        return _latest(folder)
    if _NAME.fullmatch(reference) and not reference.endswith(".json"):
        path = folder / f"{reference}.json"
        if not path.exists():
            known = sorted(one.stem for one in folder.glob("*.json"))
            if known:
                have = f"expected one of: {', '.join(known)}"
            else:
                have = "none is saved there, see --imgedit-save"
            raise UsageError(
                f"baseline {reference!r}: no {path}; {have}{did_you_mean(reference, known)}"
            )
        return as_baseline(path)
    path = Path(base, reference)
    return as_baseline(path / "results.json" if path.is_dir() else path)


def _latest(folder: Path) -> Baseline:
    """Return the baseline of the run that finished last: times of files do not survive a
    checkout.
    """
    baselines = [as_baseline(path) for path in sorted(folder.glob("*.json"))]
    if not baselines:
        raise UsageError(f"baseline 'latest': no baseline in {folder}, see --imgedit-save")
    return max(baselines, key=lambda baseline: baseline.finished)


def as_baseline(path: Path) -> Baseline:
    """Read a baseline, or a results.json as one; raise `UsageError`."""
    document = read_document(path, (BASELINE_SCHEMA, RESULTS_SCHEMA))
    if document["schema"] == RESULTS_SCHEMA:
        return make_baseline(as_results(path, document), slug(path.parent.name))
    try:
        return Baseline.model_validate(document)
    except ValidationError as error:
        expected = "expected a baseline as --imgedit-save writes it, or a results.json"
        raise UsageError(f"{path}: {first_problem(error)}, {expected}") from None


def unlike_judges(baseline: Baseline, judge: Mapping[str, object], seeds: int) -> str | None:
    """Say why verdicts cannot be compared, as far as can be told by what is known of a `judge`,
    fields of `JudgeInfo`.

    A judge is what its fingerprint says, wherever it lies; its spec counts only where there is no
    fingerprint.
    """
    there = baseline.judge
    another = f"another judge: {there.spec} there, {judge.get('spec')} here"
    if "rubric" in judge and (judge["rubric"] is None) != (
        there.rubric is None
    ):  # one of them only measures
        return another
    names = {
        "params": "judge parameters",
        "rubric": "rubric",
        "rubric_sha256": "content of the rubric",
    }
    for key, name in names.items():
        was = getattr(there, key)
        if key in judge and judge[key] != was:
            return f"another {name}: {_short(was)} there, {_short(judge[key])} here"
    if "fingerprint" in judge and judge["fingerprint"] != there.fingerprint:
        if there.spec != judge.get("spec"):
            return another
        was, now = _short(there.fingerprint), _short(judge["fingerprint"])
        return f"another judge's weights or code: {was} there, {now} here"
    if seeds != baseline.seeds:
        return f"another number of seeds: {baseline.seeds} there, {seeds} here"
    return None


def unlike_losses(baseline: Baseline, lossy: Sequence[str]) -> str | None:
    """Say why a gate cannot tell a worse model from a faster one: other parameters that trade
    quality for speed.
    """
    was = baseline.editor.lossy
    if was == tuple(lossy):
        return None
    named = (", ".join(one) or "nothing" for one in (was, lossy))
    return (
        "an editor made faster with loss by {} there, by {} here; a gate on it would mix the "
        "two".format(*named)
    )


def unlike_items(baseline: Baseline, items: Iterable[tuple[str, str, Sequence[int]]]) -> str | None:
    """Say why pairs cannot be compared; `items` are (id, `content_sha256`, seeds) of this run's
    pairs.
    """
    known = {item.id: item for item in baseline.items}
    for name, sha256, seeds in items:
        if name not in known:
            return f"pair {name!r} is not in it"
        if known[name].sha256 != sha256:
            return f"pair {name!r} had another category, text or image"
        theirs = [seed.seed for seed in known[name].seeds]
        if theirs != list(seeds):
            return f"pair {name!r} was edited with seeds {theirs}, here with {list(seeds)}"
    return None


def refuse(baseline: Baseline, reason: str | None) -> None:
    """Raise `UsageError` if there is a reason not to compare with a baseline."""
    if reason:
        raise UsageError(f"baseline {baseline.name}: cannot be compared with, {reason}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if re.fullmatch("[0-9a-f]{64}", text):
        return f"{text[:12]}…"
    return text[:80]
