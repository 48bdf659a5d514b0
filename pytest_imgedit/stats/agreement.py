"""Rank agreement of two ratings of the same pairs, with intervals that respect shared source
images.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

MEASURES = ("spearman", "kendall", "pairwise")
#: Resamples of the bootstrap; clusters are drawn, not pairs.
RESAMPLES = 2_000


def agreement(
    scores: Sequence[float], ratings: Sequence[float], clusters: Sequence[str]
) -> dict[str, Any]:
    """Return `n` and, for each of `MEASURES`, `value` in [-1, 1] ([0, 1] for `pairwise`) and
    `ci95`.

    Spearman's ρ, Kendall's τ-b, and pairwise accuracy: of all two pairs that the ratings rank, the
    share that the scores rank alike, a tie in the scores counting half. The interval is the
    percentile interval of a bootstrap over clusters (pairs that share a source image), always with
    the same random numbers. `None` where a measure is not defined: correlations under three pairs
    or with all alike on one side, `pairwise` with no two different ratings; an interval also under
    three clusters, and where that holds for many resamples.
    """
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(ratings, dtype=np.float64)
    names = np.asarray(clusters)
    members = [np.flatnonzero(names == name) for name in dict.fromkeys(clusters)]
    value = _measure(x, y)
    drawn: list[Floats] = []
    if len(members) > 2 and not np.isnan(value).all():
        generator = np.random.default_rng(0)
        for _ in range(RESAMPLES):
            places = np.concatenate(
                [members[i] for i in generator.integers(0, len(members), len(members))]
            )
            drawn.append(_measure(x[places], y[places]))
    found: dict[str, Any] = {"n": len(x)}
    for column, name in enumerate(MEASURES):
        resampled = np.asarray([row[column] for row in drawn])
        resampled = resampled[~np.isnan(resampled)]
        enough = not np.isnan(value[column]) and len(resampled) > 0.9 * RESAMPLES
        found[name] = {
            "value": None if np.isnan(value[column]) else float(value[column]),
            "ci95": [float(end) for end in np.quantile(resampled, [0.025, 0.975])]
            if enough
            else None,
        }
    return found


def _measure(x: Floats, y: Floats) -> Floats:
    """Spearman, Kendall τ-b and pairwise accuracy of two samples; NaN where one is not defined."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.array([np.nan, np.nan, pairwise_accuracy(x, y)])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return np.array(
            [stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0], pairwise_accuracy(x, y)]
        )


def pairwise_accuracy(scores: Floats, ratings: Floats) -> float:
    """Share of the two pairs with different ratings that the scores rank alike, ties in the scores
    counting half.
    """
    wanted = np.sign(ratings[:, None] - ratings[None, :])
    given = np.sign(scores[:, None] - scores[None, :])
    ranked = wanted > 0
    if ranked.any():
        return float((0.5 + 0.5 * given[ranked]).mean())
    return float("nan")
