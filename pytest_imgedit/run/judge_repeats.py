"""Repeats: the run's own edits are judged again, which shows the noise of the judge."""

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np

from pytest_imgedit.core import results
from pytest_imgedit.run.questions import PERTURBATIONS
from pytest_imgedit.run.work import Judgement, Work, grouped
from pytest_imgedit.stats import estimates

#: Points by which a score must move to show in two decimals.
VISIBLE = 0.005


def plan_repeats(works: Sequence[Work], count: int, has_order: bool) -> list[Judgement]:
    """Return judgements that judge the edits of works `count` more times, each time with the next
    perturbation in turn; without `has_order`, images keep their order.
    """
    perturbations = [name for name in PERTURBATIONS if has_order or name != "order"]
    edits = [work for work in works if work.error is None]
    repeats: list[Judgement] = []
    for repeat in range(count):
        perturbation = perturbations[repeat % len(perturbations)]
        for work in edits:
            repeats.append(Judgement(work, repeat=repeat + 1, perturbation=perturbation))
    return repeats


def describe_noise(judged: Sequence[Judgement], repeats: Sequence[Judgement]) -> results.Noise:
    """Describe how far scores move when only the judging changes.

    Each row is one repeat, and counts pairs: `n` have a score both times, the others are
    `errors` or `pending`. `shift` is that of the overall (macro) score, `sd` the root mean square
    change of a pair's score, and `changed` how many scores moved by `VISIBLE` points. `floor` is
    the root mean square of the shifts, `None` without any. Repeats with another `order` do not
    count there, since runs that are compared show images in the same order.
    """
    before = _mean_scores(judged)
    by_repeat = grouped(repeats, attrgetter("repeat"))
    rows = [_noise_row(before, repeat) for repeat in by_repeat.values()]
    shifts = [row.shift for row in rows if row.shift is not None and row.perturbation != "order"]
    floor = None
    if shifts:
        floor = math.sqrt(sum(shift**2 for shift in shifts) / len(shifts))
    return results.Noise(rows=tuple(rows), floor=floor)


def _noise_row(before: Mapping[str, float], repeat: Sequence[Judgement]) -> results.NoiseRow:
    """Describe how far one repeat moves scores from those `before`, which are given by pair."""
    after = _mean_scores(repeat)
    categories = {judgement.pair.id: judgement.pair.category for judgement in repeat}
    moves = {pair: score - before[pair] for pair, score in after.items() if pair in before}
    pending = {judgement.pair.id for judgement in repeat if judgement.is_open} - moves.keys()
    shift = sd = None
    if moves:
        distances = list(moves.values())
        groups = [categories[pair] for pair in moves]
        shift = estimates.estimate(distances, list(moves), groups).mean
        sd = float(np.sqrt(np.mean(np.square(distances))))
    return results.NoiseRow(
        perturbation=repeat[0].perturbation,
        n=len(moves),
        errors=len(categories) - len(moves) - len(pending),
        pending=len(pending),
        changed=sum(abs(move) >= VISIBLE for move in moves.values()),
        shift=shift,
        sd=sd,
    )


def _mean_scores(judgements: Sequence[Judgement]) -> dict[str, float]:
    """Return the mean score over the seeds of each pair whose seeds all have a verdict."""
    means = {}
    for pair, seeds in grouped(judgements, attrgetter("pair.id")).items():
        scores = [judgement.verdict.score for judgement in seeds if judgement.verdict is not None]
        if len(scores) == len(seeds):
            means[pair] = sum(scores) / len(scores)
    return means
