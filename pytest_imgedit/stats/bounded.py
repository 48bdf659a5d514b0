"""What scores on a bounded scale show of their mean, however they are distributed: rare
catastrophes may be unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]
#: Values, and a weight in (0, 1] for each.
Stratum = tuple[Floats, Floats]

#: Shares of the largest possible bet over which `evidence_above` averages.
BETS = (np.arange(24) + 0.5) / 24
#: Steps of a category's mean, from one end of the scale to the other, among which the least
#: favourable is looked for.
STEPS = 200
#: Resamples of the interval; always the same random numbers.
RESAMPLES = 8_000


def evidence_above(strata: Sequence[Stratum], limit: float, lowest: float, highest: float) -> float:
    """E-value against "the mean of the strata's means is not over `limit`", for values from
    `lowest` to `highest`.

    What a gambler has made of a stake of 1 who bets on every value being over the mean m of its
    stratum: the mean over bets of Π(1 + bet·w·(x − m)/(m − lowest)), with the strata's means m that
    are worst for the gambler of all whose mean is the limit. Under the hypothesis no strategy gains
    on average, so that the e-value reaches 1/α with a chance of α at most, whatever the
    distributions (Waudby-Smith and Ramdas, JRSS B 2024).
    """
    if limit - lowest < 1e-9:
        if any((values > limit).any() for values, _ in strata):
            return float("inf")
        return 1.0
    if limit >= highest:
        return 1.0
    if len(strata) == 1:
        logs = _log_gains(strata[0], np.array([limit - lowest]), lowest)[:, 0]
    else:
        logs = _log_least_gains(strata, limit, lowest, highest)
    gain = logsumexp(logs) - np.log(len(BETS))
    assert not np.isnan(gain), "a value beyond the scale"
    return float(np.exp(min(700.0, gain)))


def _log_least_gains(
    strata: Sequence[Stratum], limit: float, lowest: float, highest: float
) -> Floats:
    """Logarithm of the gain of each bet under the strata's means that are worst for it.

    The logarithm of a stratum's gain is convex and falls with its mean, so that the worst means are
    found by raising, step by step, the mean that costs most. Means are rounded up, which takes from
    the gain.
    """
    step = (highest - lowest) / STEPS
    rooms = step * np.arange(1.0, STEPS + 1)
    gains = np.stack([_log_gains(stratum, rooms, lowest) for stratum in strata], axis=1)
    raises = min(
        len(strata) * STEPS, int(np.ceil((limit - lowest) * len(strata) / step)) + len(strata)
    ) - len(strata)
    steps = np.sort(np.diff(gains, axis=2).reshape(len(BETS), -1), axis=1)
    return np.asarray(gains[:, :, 0].sum(axis=1) + steps[:, :raises].sum(axis=1))


def _log_gains(stratum: Stratum, rooms: Floats, lowest: float) -> Floats:
    """Logarithm of the gain of each bet (row) where the mean is so much over the `lowest` value
    (column).
    """
    values, weights = stratum
    shares = BETS[:, None] * weights
    gains = np.zeros((len(BETS), len(rooms)))
    for value, share in zip(values - lowest, shares.T, strict=True):
        gains += np.log1p(share[:, None] * (value / rooms - 1))
    return gains


def interval(
    mean: float,
    deviations: Floats,
    weights: Floats,
    falls: tuple[float, float],
    level: float = 0.95,
) -> tuple[float, float]:
    """Two-sided interval of a weighted mean over independent clusters of values on a bounded scale.

    A Bayesian bootstrap over clusters (exponential weights), with one cluster more than was seen:
    it lies at the lower end of the scale for the lower limit, at the upper end for the upper
    (Gaffke 2005; Learned-Miller and Thomas, arXiv 1905.06208). `deviations` are the clusters'
    weighted sums of deviations from the mean, `falls` how far the ends of the scale lie from the
    mean. The unseen cluster weighs Σw²: as much as each, where all weigh the same.
    """
    shares = _shares(len(weights))
    unseen = shares[:, 0] * (weights**2).sum()
    total = shares[:, 1:] @ weights + unseen
    moves = shares[:, 1:] @ deviations
    low, high = (1 - level) / 2, (1 + level) / 2
    return (
        mean + float(np.quantile((moves + unseen * falls[0]) / total, low)),
        mean + float(np.quantile((moves + unseen * falls[1]) / total, high)),
    )


@lru_cache(maxsize=4)
def _shares(clusters: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_exponential(
        (RESAMPLES, clusters + 1), dtype=np.float32
    )


def strata(cluster: NDArray[np.intp], category: NDArray[np.intp], scores: Floats) -> list[Stratum]:
    """Divide pairs into strata of independent values, whose means have the macro mean as their
    mean.

    A stratum is a category, and a value the mean of a cluster, which weighs as many pairs as it
    has. Where categories share clusters there is one stratum: a value is the weighted mean of a
    cluster, which weighs what its pairs weigh in the macro mean. Since Σ w·(μ − m) = 0 holds for
    the clusters' means μ, no bet on them gains either.
    """
    counts, sums = (
        _table(cluster, category, weights) for weights in (np.ones(len(scores)), scores)
    )
    if ((counts > 0).sum(axis=1) > 1).any():
        shares = 1 / counts.sum(axis=0)
        weights = counts @ shares
        return [(sums @ shares / weights, weights / weights.max())]
    members = [counts[:, kind] > 0 for kind in range(counts.shape[1])]
    return [
        (sums[inside, kind] / counts[inside, kind], counts[inside, kind] / counts[:, kind].max())
        for kind, inside in enumerate(members)
    ]


def _table(cluster: NDArray[np.intp], category: NDArray[np.intp], weights: Floats) -> Floats:
    """Sum weights by cluster (row) and category (column)."""
    table = np.zeros((int(cluster.max()) + 1, int(category.max()) + 1))
    np.add.at(table, (cluster, category), weights)
    return table
