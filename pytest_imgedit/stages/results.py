"""From finished work to item results and the `imgedit.results/1` document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.pairs import Edit, ItemError, ItemResult, SeedResult, Verdict, in_order
from pytest_imgedit.stats.estimates import Summary, macro, summarize
from pytest_imgedit.stats.gates import Observation, estimate_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_imgedit.stages.plan import Work


@dataclass
class Run:
    """A finished run: items by id, and the results document."""

    items: dict[str, ItemResult]
    document: dict[str, Any]


def item_results(plan: Sequence[Work], needs_verdict: bool, stopped_by: str) -> list[ItemResult]:
    """Join the repetitions of each pair; a pair is scored only if every repetition is.

    Work that has neither error nor what it was to get was cut off when the run was `stopped_by` someone or
    something: its status is `interrupted`, which counts neither as scored nor as an error. Without `needs_verdict`
    (stage `edit`) an edit is enough, and the status is `edited`. Work that no gate needed any more is `not_needed`.
    """
    by_pair: dict[str, list[Work]] = {}
    for work in plan:
        if work.error is None and (work.edit is None or (needs_verdict and work.verdict is None)):
            stage: Literal["edit", "score"] = "edit" if work.edit is None else "score"
            work.error = ItemError(stage, "interrupted", f"the run was stopped before this was done, by {stopped_by}")
        by_pair.setdefault(work.pair.id, []).append(work)
    return [_item(works, needs_verdict) for works in by_pair.values()]


def _item(works: Sequence[Work], needs_verdict: bool) -> ItemResult:
    pair = works[0].pair
    seeds = tuple(SeedResult(work.seed, work.edit, work.verdict, work.error) for work in works)
    error = next((work.error for work in works if work.error is not None), None)
    verdicts = [work.verdict for work in works if work.verdict is not None]
    status: Any = "scored" if needs_verdict else "edited"
    if error is not None:
        status = "edit_error" if error.stage == "edit" else "judge_error"
        if all(work.error is None or work.error.kind == "interrupted" for work in works):
            status = "interrupted"
        if error.kind == "not_needed":
            status = "not_needed"
    if error is not None or not needs_verdict:
        return ItemResult(pair.id, pair.category, status, None, {}, seeds, error)
    score = sum(verdict.score for verdict in verdicts) / len(verdicts)
    shared = [name for name in verdicts[0].aspects if all(name in verdict.aspects for verdict in verdicts)]
    aspects = {name: sum(verdict.aspects[name] for verdict in verdicts) / len(verdicts) for name in shared}
    return ItemResult(pair.id, pair.category, status, score, aspects, seeds, None)


def observe(items: Sequence[ItemResult], sources: Mapping[str, str]) -> list[Observation]:
    """Return the score of every item as statistics and gates take it; `sources` names each pair's source image."""
    return [Observation(item.category, sources[item.id], item.score) for item in items]


def summarize_items(
    items: Sequence[ItemResult], sources: Mapping[str, str]
) -> tuple[dict[str, Summary], Summary, Summary]:
    """Summarize by category, and overall as macro and micro; `sources` names each pair's source image."""
    order = in_order(item.category for item in items)
    categories = {name: _summary([item for item in items if item.category == name], sources) for name in order}
    micro, whole = _summary(items, sources), estimate_field("overall", observe(items, sources))
    return categories, macro(list(categories.values()), whole, (micro.n, micro.scored, micro.errors)), micro


def _summary(items: Sequence[ItemResult], sources: Mapping[str, str]) -> Summary:
    scored = [item for item in items if item.score is not None]
    errors = count_errors(items)
    clusters = [sources[item.id] for item in scored]
    return summarize([item.score or 0.0 for item in scored], clusters, errors, len(items) - len(scored) - errors)


def count_errors(items: Sequence[ItemResult]) -> int:
    """Count the items that ended in an error."""
    return sum(item.status in ("edit_error", "judge_error") for item in items)


def asked_document(work: Work) -> dict[str, Any]:
    """Return what was asked about the pair of a work: category, texts, and images as blobs."""
    return {
        "category": work.pair.category,
        "instruction": work.pair.instruction,
        "description": work.pair.description,
        "reference_text": work.pair.reference_text,
        "source": work.source and work.source.blob_name,
        "reference": work.reference and work.reference.blob_name,
    }


def item_document(item: ItemResult, work: Work) -> dict[str, Any]:
    """Return one entry of `items` in results.json; `work` is any repetition of the item's pair."""
    return {
        "id": item.id,
        **asked_document(work),
        "tags": list(work.pair.tags),
        "difficulty": work.pair.difficulty,
        "status": item.status,
        "score": item.score,
        "aspects": dict(item.aspects),
        "seeds": [
            {
                "seed": seed.seed,
                "edit": seed.edit and asdict(seed.edit),
                "verdict": seed.verdict and asdict(seed.verdict),
                "error": seed.error and error_document(seed.error),
            }
            for seed in item.seeds
        ],
        "error": item.error and error_document(item.error),
    }


def error_document(error: ItemError) -> dict[str, Any]:
    """Return an error as it stands in results.json, with the raw reply where a judge gave one."""
    document: dict[str, Any] = {"stage": error.stage, "kind": error.kind, "message": error.message}
    return document if error.reply is None else {**document, "reply": error.reply}


def read_run(document: dict[str, Any], min_score: float | None, store: Path) -> Run:
    """Make a run from its document; `store` is the folder of the store that holds its images."""
    report = store / "runs" / document["run"]["id"] / "report.html"
    items = (_read_item(item, min_score, store, report) for item in document["items"])
    return Run({item.id: item for item in items}, document)


def _read_item(document: Mapping[str, Any], min_score: float | None, store: Path, report: Path) -> ItemResult:
    def error(value: Mapping[str, Any] | None) -> ItemError | None:
        return None if value is None else ItemError(**value)

    seeds = tuple(
        SeedResult(
            seed["seed"],
            None if seed["edit"] is None else Edit(**seed["edit"]),
            None if seed["verdict"] is None else Verdict(**seed["verdict"]),
            error(seed["error"]),
        )
        for seed in document["seeds"]
    )
    edit = next((seed.edit for seed in seeds if seed.edit is not None), None)
    blobs = {name: document[name] for name in ("source", "reference")}
    blobs["edited"] = edit and f"{edit.blob[:2]}/{edit.blob}.png"
    paths = {name: store / "blobs" / blob for name, blob in blobs.items() if blob is not None}
    return ItemResult(
        document["id"],
        document["category"],
        document["status"],
        document["score"],
        document["aspects"],
        seeds,
        error(document["error"]),
        document["instruction"],
        {**paths, "report": report},
        min_score,
    )
