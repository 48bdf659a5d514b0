"""The items of a run: the repetitions of each pair, joined."""

from collections.abc import Mapping, Sequence

from pytest_imgedit.core import results
from pytest_imgedit.run.further import FurtherScorer, mean_values
from pytest_imgedit.run.work import Work, by_pair


def make_items(
    plan: Sequence[Work],
    needs_verdict: bool,
    stopped_by: str,
    further: Sequence[FurtherScorer] = (),
) -> list[results.Item]:
    """Join the repetitions of each pair; a pair is scored only if every repetition is. The same
    holds for the values of each of the `further` scorers.

    Unfinished work without an error was cut off when the run was `stopped_by` someone or something.
    Its status is `interrupted`, which counts neither as scored nor as an error. Without
    `needs_verdict` (stage `edit`), an edit is enough, and the status is `edited`. Work that no gate
    needed any more is `not_needed`.
    """
    for work in plan:
        if work.error is None and (work.edit is None or (needs_verdict and work.verdict is None)):
            _interrupt(work, stopped_by)
        for scored in work.scored.values():
            if scored.error is None and scored.verdict is None:
                _interrupt(scored, stopped_by)
    return [_item(works, needs_verdict, further) for works in by_pair(plan).values()]


def _interrupt(work: Work, stopped_by: str) -> None:
    work.error = results.ItemError(
        "edit" if work.edit is None else "score",
        "interrupted",
        f"the run was stopped before this was done, by {stopped_by}",
    )


def _item(
    works: Sequence[Work], needs_verdict: bool, further: Sequence[FurtherScorer]
) -> results.Item:
    pair, inputs = works[0].pair, works[0].inputs
    error = next((work.error for work in works if work.error is not None), None)
    score, aspects = _means(works) if error is None and needs_verdict else (None, {})
    missing: list[str] = []
    for scorer in further:
        values = scorer.means([work.scored.get(scorer.name) for work in works])
        if values is None:
            missing += scorer.measures
        else:
            aspects |= values
    return results.Item(
        id=pair.id,
        category=pair.category,
        instruction=pair.instruction,
        rewritten=pair.rewritten,
        description=pair.description,
        reference_text=pair.reference_text,
        source=inputs[-2],
        reference=inputs[-1],
        tags=tuple(pair.tags),
        difficulty=pair.difficulty,
        status=_status(works, error, needs_verdict),
        score=score,
        aspects=aspects,
        missing=tuple(missing),
        seeds=tuple(map(seed_result, works)),
        error=error,
    )


def seed_result(work: Work) -> results.SeedResult:
    """Return how one repetition of a pair ended."""
    return results.SeedResult(
        work.seed,
        work.edit,
        work.verdict,
        work.error,
        {
            name: outcome
            for name, scored in work.scored.items()
            if (outcome := scored.verdict or scored.error) is not None
        },
    )


#: Errors that are a status of their own.
_STATUS_OF: Mapping[str, results.Status] = {
    "not_needed": "not_needed",
    "refused": "refused",
    "dropped": "dropped",
}


def _status(
    works: Sequence[Work], error: results.ItemError | None, needs_verdict: bool
) -> results.Status:
    if error is None:
        return "scored" if needs_verdict else "edited"
    if error.kind in _STATUS_OF:
        return _STATUS_OF[error.kind]
    if all(work.error is None or work.error.kind == "interrupted" for work in works):
        return "interrupted"
    return "edit_error" if error.stage == "edit" else "judge_error"


def _means(works: Sequence[Work]) -> tuple[float, dict[str, float]]:
    verdicts = [work.verdict for work in works if work.verdict is not None]
    aspects = mean_values([verdict.aspects for verdict in verdicts])
    return sum(verdict.score for verdict in verdicts) / len(verdicts), aspects
