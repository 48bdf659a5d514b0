"""Rank agreement of a judge with people, overall and among the edits of one source image."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_imgedit.core import results
from pytest_imgedit.core.results import Item
from pytest_imgedit.stats.estimates import Floats
from pytest_imgedit.stats.resampling import (
    Indices,
    Statistic,
    divided,
    resample,
    rounded,
    spearman,
    sum_over_two,
    with_interval,
)


@dataclass(frozen=True)
class Agreement:
    """How alike `n` pairs of so many `sources` are ranked by a judge and by people.

    `spearman` (ρ) and `kendall` (τ-b) lie in [-1, 1]. `pairwise` is, of all two pairs that people
    rank, the share in [0, 1] that the judge ranks alike; a tie in the scores counts half.
    `within_source` is the same of the two pairs that share a source image, `ranked_within` of which
    people rank.
    """

    n: int
    sources: int
    spearman: Statistic
    kendall: Statistic
    pairwise: Statistic
    within_source: Statistic
    ranked_within: int


def agreement(
    scores: Sequence[float], ratings: Sequence[float], clusters: Sequence[str]
) -> Agreement:
    """Compare the scores of pairs with their mean ratings.

    `clusters` names the source image of each pair. Intervals are those of a bootstrap over sources.
    A statistic is `None` where it is not defined: correlations under three pairs or with all alike
    on one side, shares with no two different ratings. An interval is `None` also under three
    sources, and where many resamples have no such statistic.
    """
    x = rounded(np.asarray(scores, dtype=np.float64))
    y = rounded(np.asarray(ratings, dtype=np.float64))
    if not len(x):
        absent = Statistic(None, None)
        return Agreement(0, 0, absent, absent, absent, absent, 0)
    samples = resample(clusters)

    def alike(rows: Indices, columns: Indices) -> Floats:
        return _order(x, rows, columns) * _order(y, rows, columns)

    def scored_apart(rows: Indices, columns: Indices) -> Floats:
        return np.abs(_order(x, rows, columns))

    def rated_apart(rows: Indices, columns: Indices) -> Floats:
        return np.abs(_order(y, rows, columns))

    alike_overall, alike_within = sum_over_two(alike, samples)
    scored_overall, _ = sum_over_two(scored_apart, samples)
    rated_overall, rated_within = sum_over_two(rated_apart, samples)
    has_three = samples.totals(np.ones(len(x))) >= 3
    has_tau = has_three & (scored_overall > 0) & (rated_overall > 0)
    tau = divided(alike_overall, np.sqrt(scored_overall * rated_overall), has_tau)
    return Agreement(
        n=len(x),
        sources=samples.clusters,
        spearman=with_interval(spearman(x, y, samples)),
        kendall=with_interval(tau),
        pairwise=with_interval(_accuracy(alike_overall, rated_overall)),
        within_source=with_interval(_accuracy(alike_within, rated_within)),
        ranked_within=int(rated_within[0]) // 2,
    )


def describe_agreement(items: Iterable[Item], measure: str, is_judge: bool) -> results.Agreement:
    """Say how a measure goes with the score, over the items that have both; `is_judge` says that
    both are scores.
    """
    pairs = [
        (item.score, value, item.cluster)
        for item in items
        if item.score is not None and (value := item.value(measure)) is not None
    ]
    rho, difference = Statistic(None, None), None
    if pairs:
        scores, values, clusters = zip(*pairs, strict=True)
        rho = with_interval(
            spearman(rounded(np.array(scores)), rounded(np.array(values)), resample(clusters))
        )
        difference = float(np.mean(np.array(values) - np.array(scores)))
    return results.Agreement(
        n=len(pairs),
        spearman=rho.value,
        ci95=rho.ci95,
        difference=difference if is_judge else None,
    )


def _order(values: Floats, rows: Indices, columns: Indices) -> Floats:
    """1, 0 or -1: whether the value of a row is above, equal to or below that of a column."""
    return np.sign(values[rows, None] - values[None, columns])


def _accuracy(alike: Floats, ranked: Floats) -> Floats:
    """Share of the `ranked` two pairs that are ranked alike, from the number ranked alike minus the
    number ranked the other way.
    """
    return 0.5 + 0.5 * divided(alike, ranked, ranked > 0)
