"""Agreement of raters among each other, which bounds the agreement that a judge can reach."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pytest_imgedit.stats.estimates import ROUNDING, Floats
from pytest_imgedit.stats.resampling import (
    Samples,
    Statistic,
    divided,
    resample,
    rounded,
    spearman,
    with_interval,
)


@dataclass(frozen=True)
class RaterAgreement:
    """How alike so many `raters` rate the same pairs.

    `alpha` is Krippendorff's α with the interval metric, at most 1, and 0 if raters agree as by
    chance. `against_others` is the human ceiling: the mean over raters of Spearman's ρ between a
    rater and the mean of the other raters. `against_rater` is the mean ρ over all two raters, which
    lies between `least` and `most`. Two that share fewer than three pairs do not count.
    """

    raters: int
    alpha: Statistic
    against_others: Statistic
    against_rater: Statistic
    least: float | None
    most: float | None


def rater_agreement(ratings: Floats, clusters: Sequence[str]) -> RaterAgreement:
    """Compare raters by their ratings, in shape (raters, pairs) with NaN for a missing one.

    `clusters` names the source image of each pair. Intervals are those of a bootstrap over sources.
    A statistic is `None` where no pair is rated twice, or all ratings are alike.
    """
    ratings = rounded(ratings)
    samples = resample(clusters)
    against_others = [_against_others(ratings, rater, samples) for rater in range(len(ratings))]
    against_rater = []
    for first, second in combinations(ratings, 2):
        shared = ~np.isnan(first) & ~np.isnan(second)
        if shared.sum() >= 3:
            against_rater.append(spearman(first[shared], second[shared], samples.subset(shared)))
    values = [float(rho[0]) for rho in against_rater if not np.isnan(rho[0])]
    return RaterAgreement(
        raters=int((~np.isnan(ratings)).any(axis=1).sum()),
        alpha=with_interval(_alpha(ratings, samples)),
        against_others=with_interval(_mean(against_others, samples)),
        against_rater=with_interval(_mean(against_rater, samples)),
        least=min(values, default=None),
        most=max(values, default=None),
    )


def _alpha(ratings: Floats, samples: Samples) -> Floats:
    """Krippendorff's α in each sample: 1 - observed / expected disagreement, which are mean squared
    differences of ratings of one pair and of all pairs.

    The formula for missing ratings and the interval metric is that of Krippendorff, "Computing
    Krippendorff's Alpha-Reliability" (2011). With n ratings, of pairs that have two or more,
    Σ(v - v')² over all two of m values is m·Σv² - (Σv)². NaN where all ratings are alike.
    """
    counts = (~np.isnan(ratings)).sum(axis=0)
    repeated = counts >= 2
    counts, samples = counts[repeated].astype(np.float64), samples.subset(repeated)
    values = ratings[:, repeated]
    if not values.size:
        return np.full(samples.draws.shape[1], np.nan)
    values = values - np.nanmedian(values)  # for precision: α does not depend on the origin
    sums, squares = np.nansum(values, axis=0), np.nansum(values**2, axis=0)
    n, whole_square = samples.totals(counts), samples.totals(squares)
    observed = samples.totals((counts * squares - sums**2) / (counts - 1)) * (n - 1)
    expected = n * whole_square - samples.totals(sums) ** 2
    return 1 - divided(observed, expected, expected > ROUNDING * n * whole_square)


def _against_others(ratings: Floats, rater: int, samples: Samples) -> Floats:
    """Spearman's ρ in each sample between a rater and the mean of the others."""
    rated = ~np.isnan(ratings[rater])
    others = np.delete(ratings[:, rated], rater, axis=0)
    counts = (~np.isnan(others)).sum(axis=0)
    shared = counts > 0
    means = rounded(np.nansum(others[:, shared], axis=0) / counts[shared])
    return spearman(ratings[rater, rated][shared], means, samples.subset(rated).subset(shared))


def _mean(correlations: Sequence[Floats], samples: Samples) -> Floats:
    """Mean in each sample of the correlations that are defined there, of those that are defined in
    the data.
    """
    total = np.zeros(samples.draws.shape[1])
    count = np.zeros(samples.draws.shape[1])
    for rho in correlations:
        if not np.isnan(rho[0]):
            total += np.nan_to_num(rho)
            count += ~np.isnan(rho)
    return divided(total, count, count > 0)
