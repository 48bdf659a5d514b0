"""The items of a run: the repetitions of each pair, joined."""

from collections.abc import Sequence

from pytest_imgedit.core import repetitions, results
from pytest_imgedit.run.further import FurtherScorer
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
        f"{results.stopped(stopped_by)}, before this was done",
    )


def _item(
    works: Sequence[Work], needs_verdict: bool, further: Sequence[FurtherScorer]
) -> results.Item:
    pair, inputs = works[0].pair, works[0].inputs
    seeds = tuple(map(seed_result, works))
    aspects = repetitions.aspects_of(seeds, needs_verdict)
    missing: list[str] = []
    for scorer in further:
        ends = [seed.further.get(scorer.name) for seed in seeds]
        values = repetitions.values_of(scorer.name, scorer.is_judge, ends)
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
        status=repetitions.status_of(seeds, needs_verdict),
        score=repetitions.score_of(seeds, needs_verdict),
        aspects=aspects,
        missing=tuple(missing),
        seeds=seeds,
        error=repetitions.first_error(seeds),
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
