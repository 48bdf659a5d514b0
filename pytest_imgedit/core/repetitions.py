"""What the repetitions of a pair amount to: its status, score and values."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from pytest_imgedit.core.measures import further_score
from pytest_imgedit.core.results import ItemError, SeedResult, Status, Verdict

#: Errors that are a status of their own.
_STATUS_OF: Mapping[str, Status] = {
    "not_needed": "not_needed",
    "refused": "refused",
    "dropped": "dropped",
}


def first_error(seeds: Sequence[SeedResult]) -> ItemError | None:
    """Return the first error of the repetitions of a pair, which is that of the pair; `None` if
    there is none.
    """
    return next((seed.error for seed in seeds if seed.error is not None), None)


def status_of(seeds: Sequence[SeedResult], needs_verdict: bool) -> Status:
    """Return how a pair ended: by its first error, or `interrupted` if nothing else went wrong.

    A pair without an error is `scored`, or `edited` if it needs no verdict.
    """
    error = first_error(seeds)
    if error is None:
        return "scored" if needs_verdict else "edited"
    if error.kind in _STATUS_OF:
        return _STATUS_OF[error.kind]
    if all(seed.error is None or seed.error.kind == "interrupted" for seed in seeds):
        return "interrupted"
    return "edit_error" if error.stage == "edit" else "judge_error"


def mean_score(scores: Sequence[float | None]) -> float | None:
    """Return the mean score of the repetitions; `None` if one has none, or there are none."""
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    return fmean(known) if len(known) > 1 else known[0]  # a single score keeps its type


def score_of(seeds: Sequence[SeedResult], needs_verdict: bool) -> float | None:
    """Return the score of a pair; `None` if it needs no verdict, or if a repetition has none or
    ended in an error.
    """
    if first_error(seeds) is not None or not needs_verdict:
        return None
    scores: list[float | None] = []
    for seed in seeds:
        scores.append(seed.verdict.score if seed.verdict else None)
    return mean_score(scores)


def mean_values(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of those values that all repetitions have; those of a single one as they
    are.
    """
    if len(values) == 1:
        return dict(values[0])
    means: dict[str, float] = {}
    for name in values[0]:
        known = [repetition[name] for repetition in values if name in repetition]
        if len(known) == len(values):
            means[name] = fmean(known)
    return means


def aspects_of(seeds: Sequence[SeedResult], needs_verdict: bool) -> dict[str, float]:
    """Return the values beside the score that the judge gives a pair; none if it has no score."""
    if score_of(seeds, needs_verdict) is None:
        return {}
    return mean_values([seed.verdict.aspects for seed in seeds if seed.verdict is not None])


def values_of(
    name: str, is_judge: bool, ends: Sequence[Verdict | ItemError | None]
) -> dict[str, float] | None:
    """Return the values of a further judge or metric by measure, given how its work on each
    repetition ended.

    They are empty for a pair that was not to be scored (no repetition, or one without an end), and
    `None` if a repetition ended in an error.
    """
    if not ends or any(end is None for end in ends):
        return {}
    verdicts = [end for end in ends if isinstance(end, Verdict)]
    if len(verdicts) < len(ends):
        return None
    return mean_values([_values(name, is_judge, verdict) for verdict in verdicts])


def _values(name: str, is_judge: bool, verdict: Verdict) -> dict[str, float]:
    """Return the value of a metric, or the score and the aspects of a further judge, by measure."""
    if not is_judge:
        return {name: verdict.score}
    aspects = {f"{name}.{aspect}": value for aspect, value in verdict.aspects.items()}
    return {further_score(name): verdict.score, **aspects}
