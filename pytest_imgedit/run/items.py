"""The items of a run: the repetitions of each pair, joined."""

from collections.abc import Sequence

from pytest_imgedit.core import repetitions, results
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import Work, by_pair


def make_items(
    works: Sequence[Work],
    needs_verdict: bool,
    stopped_by: str,
    additional: Sequence[Scorer] = (),
) -> list[results.Item]:
    """Join the repetitions of each pair; a pair is scored only if every repetition is. The same
    holds for the values of each of the `additional` judges and metrics.

    Unfinished work without an error was cut off when the run was `stopped_by` someone or something.
    It is given that error here, and its status is `interrupted`, which counts neither as scored nor
    as an error. Without `needs_verdict` (stage `edit`), an edit is enough, and the status is
    `edited`. Work that no gate needed any more is `not_needed`.
    """
    for work in works:
        _interrupt_unfinished(work, needs_verdict, stopped_by)
    return [_item(group, needs_verdict, additional) for group in by_pair(works).values()]


def _interrupt_unfinished(work: Work, needs_verdict: bool, stopped_by: str) -> None:
    """Give what was cut off its error: the edit, or judgements of it."""
    message = f"{results.stopped(stopped_by)}, before this was done"
    judgements = list(work.additional_judgements.values())
    if needs_verdict:
        judgements.append(work.judgement)
    if work.edit is None and work.error is None:
        work.fail("interrupted", message)
    for judgement in judgements:
        if judgement.error is None and judgement.verdict is None:
            judgement.fail("interrupted", message)


def _item(works: Sequence[Work], needs_verdict: bool, additional: Sequence[Scorer]) -> results.Item:
    """Join the repetitions of one pair. What an additional judge or metric measures is `missing`
    unless it has measured every repetition.
    """
    first = works[0]
    pair = first.pair
    inputs = first.inputs
    seeds = tuple(map(seed_result, works))
    aspects = repetitions.aspects_of(seeds, needs_verdict)
    missing: list[str] = []
    for scorer in additional:
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
        source=inputs.source,
        further=inputs.further,
        edited_source=inputs.edited_source,
        reference=inputs.reference,
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
    ends: dict[str, results.Verdict | results.ItemError] = {}
    for name, judgement in work.additional_judgements.items():
        end = judgement.verdict or judgement.error
        if end is not None:
            ends[name] = end
    return results.SeedResult(
        seed=work.seed, edit=work.edit, verdict=work.verdict, error=work.error, further=ends
    )
