"""Rank agreement of a judge with people, overall and among the edits of one source image."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_imgedit.core import results
from pytest_imgedit.core.results import Item
from pytest_imgedit.stats.estimates import Floats
from pytest_imgedit.stats.resampling import (
    ORIGINAL,
    Indices,
    Statistic,
    divided,
    resample,
    rounded,
    spearman,
    sum_over_two,
    with_interval,
)


@dataclass(frozen=True, kw_only=True)
class RankAgreement:
    """Agreement of a judge and people on the ranks of `n` pairs of `sources` source images.

    `spearman` (ρ) and `kendall` (τ-b) lie in [-1, 1]. `pairwise` is the share, in [0, 1], that the
    judge ranks as people do, of every two pairs that people rank; a tie in the scores counts half.
    `within_source` is the same share of every two pairs of one source image that people rank, and
    `ranked_within` the number of these.
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
) -> RankAgreement:
    """Compare the scores of pairs with their mean ratings.

    `clusters` names the source image of each pair. Intervals are those of a bootstrap over sources.
    A statistic is `None` where it is not defined: correlations of fewer than three pairs or with
    all alike on one side, shares with no two different ratings. An interval is also `None` with
    fewer than three sources, and where many resamples have no such statistic.
    """
    score = rounded(np.asarray(scores, dtype=np.float64))
    rating = rounded(np.asarray(ratings, dtype=np.float64))
    if not len(score):
        absent = Statistic(None, None)
        return RankAgreement(
            n=0,
            sources=0,
            spearman=absent,
            kendall=absent,
            pairwise=absent,
            within_source=absent,
            ranked_within=0,
        )
    samples = resample(clusters)

    def alike(rows: Indices, columns: Indices) -> Floats:
        return _order(score, rows, columns) * _order(rating, rows, columns)

    def scored_apart(rows: Indices, columns: Indices) -> Floats:
        return np.abs(_order(score, rows, columns))

    def rated_apart(rows: Indices, columns: Indices) -> Floats:
        return np.abs(_order(rating, rows, columns))

    alike_overall, alike_within = sum_over_two(alike, samples)
    scored_overall, _ = sum_over_two(scored_apart, samples)
    rated_overall, rated_within = sum_over_two(rated_apart, samples)
    has_three = samples.totals(np.ones(len(score))) >= 3
    # τ-b: those ranked alike minus those ranked the other way, over the geometric mean of those
    # that each side ranks
    has_tau = has_three & (scored_overall > 0) & (rated_overall > 0)
    tau = divided(alike_overall, np.sqrt(scored_overall * rated_overall), has_tau)
    return RankAgreement(
        n=len(score),
        sources=samples.clusters,
        spearman=with_interval(spearman(score, rating, samples)),
        kendall=with_interval(tau),
        pairwise=with_interval(_accuracy(alike_overall, rated_overall)),
        within_source=with_interval(_accuracy(alike_within, rated_within)),
        ranked_within=int(rated_within[ORIGINAL]) // 2,
    )


def describe_agreement(items: Iterable[Item], measure: str, is_judge: bool) -> results.Agreement:
    """Describe the rank agreement of a measure with the score, over the items that have both.

    `is_judge` says that the measure is the score of a further judge, whose mean difference from the
    score is then given. Without such items everything but `n` is `None`.
    """
    scores = []
    values = []
    clusters = []
    for item in items:
        value = item.value(measure)
        if item.score is not None and value is not None:
            scores.append(item.score)
            values.append(value)
            clusters.append(item.cluster)
    if not scores:
        return results.Agreement(n=0, spearman=None, ci95=None, difference=None)
    samples = resample(clusters)
    rho = with_interval(spearman(rounded(np.array(scores)), rounded(np.array(values)), samples))
    difference = float(np.mean(np.array(values) - np.array(scores)))
    return results.Agreement(
        n=len(scores),
        spearman=rho.value,
        ci95=rho.ci95,
        difference=difference if is_judge else None,
    )


def _order(values: Floats, rows: Indices, columns: Indices) -> Floats:
    """Return 1, 0 or -1 where the value of a row is above, equal to or below that of a column."""
    return np.sign(values[rows, None] - values[None, columns])


def _accuracy(alike: Floats, ranked: Floats) -> Floats:
    """Return the share of the `ranked` two pairs that are ranked alike, NaN where there are none.

    `alike` is the number ranked alike minus the number ranked the other way; ties count half.
    """
    return 0.5 + 0.5 * divided(alike, ranked, ranked > 0)
