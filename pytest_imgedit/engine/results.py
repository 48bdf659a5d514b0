"""From finished work to the items of results.json, and from results to what tests see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_imgedit.core.items import ItemResult
from pytest_imgedit.core.results import Item, ItemError, Results, SeedResult, Stage, Status
from pytest_imgedit.engine.work import Work


@dataclass
class FinishedRun:
    """A finished run: `items` by pair id as tests see them, and its `results`."""

    items: Mapping[str, ItemResult]
    results: Results

    @classmethod
    def of(cls, results: Results, min_score: float | None, store: Path) -> FinishedRun:
        """Make a run from its results; `store` is the folder of the store that holds its images."""
        report = store / "runs" / results.run.id / "report.html"
        return cls({item.id: ItemResult.of(item, min_score, store, report) for item in results.items}, results)


def make_items(plan: Sequence[Work], needs_verdict: bool, stopped_by: str) -> list[Item]:
    """Join the repetitions of each pair; a pair is scored only if every repetition is.

    Work that has neither error nor what it was to get was cut off when the run was `stopped_by` someone or
    something: its status is `interrupted`, which counts neither as scored nor as an error. Without `needs_verdict`
    (stage `edit`) an edit is enough, and the status is `edited`. Work that no gate needed any more is `not_needed`.
    """
    by_pair: dict[str, list[Work]] = {}
    for work in plan:
        if work.error is None and (work.edit is None or (needs_verdict and work.verdict is None)):
            stage: Stage = "edit" if work.edit is None else "score"
            work.error = ItemError(stage, "interrupted", f"the run was stopped before this was done, by {stopped_by}")
        by_pair.setdefault(work.pair.id, []).append(work)
    return [_item(works, needs_verdict) for works in by_pair.values()]


def _item(works: Sequence[Work], needs_verdict: bool) -> Item:
    pair, asked = works[0].pair, works[0].asked
    error = next((work.error for work in works if work.error is not None), None)
    score, aspects = _means(works) if error is None and needs_verdict else (None, {})
    return Item(
        id=pair.id,
        category=pair.category,
        instruction=pair.instruction,
        description=pair.description,
        reference_text=pair.reference_text,
        source=asked[-2],
        reference=asked[-1],
        tags=tuple(pair.tags),
        difficulty=pair.difficulty,
        status=_status(works, error, needs_verdict),
        score=score,
        aspects=aspects,
        seeds=tuple(SeedResult(work.seed, work.edit, work.verdict, work.error) for work in works),
        error=error,
    )


def _status(works: Sequence[Work], error: ItemError | None, needs_verdict: bool) -> Status:
    if error is None:
        return "scored" if needs_verdict else "edited"
    if error.is_any_of("not_needed"):
        return "not_needed"
    if all(work.error is None or work.error.is_any_of("interrupted") for work in works):
        return "interrupted"
    return "edit_error" if error.stage == "edit" else "judge_error"


def _means(works: Sequence[Work]) -> tuple[float, dict[str, float]]:
    """Mean score over the seeds, and means of the aspects that all of them have."""
    verdicts = [work.verdict for work in works if work.verdict is not None]
    shared = [name for name in verdicts[0].aspects if all(name in verdict.aspects for verdict in verdicts)]
    aspects = {name: sum(verdict.aspects[name] for verdict in verdicts) / len(verdicts) for name in shared}
    return sum(verdict.score for verdict in verdicts) / len(verdicts), aspects
