"""Rank agreement of two ratings of the same pairs, with intervals that respect shared source
images.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from pytest_imgedit.stats.estimates import Floats

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
    members = [np.flatnonzero(np.asarray(clusters) == name) for name in dict.fromkeys(clusters)]
    values = _measure(x, y)
    drawn: list[Floats] = []
    if len(members) > 2 and not np.isnan(values).all():
        generator = np.random.default_rng(0)
        for _ in range(RESAMPLES):
            pairs = np.concatenate(
                [members[pick] for pick in generator.integers(0, len(members), len(members))]
            )
            drawn.append(_measure(x[pairs], y[pairs]))
    rows: dict[str, Any] = {"n": len(x)}
    for column, (name, value) in enumerate(zip(MEASURES, values.tolist(), strict=True)):
        resampled = [row[column] for row in drawn if not np.isnan(row[column])]
        rows[name] = {"value": None if np.isnan(value) else value, "ci95": None}
        if not np.isnan(value) and len(resampled) > 0.9 * RESAMPLES:
            rows[name]["ci95"] = np.quantile(resampled, [0.025, 0.975]).tolist()
    return rows


def _measure(x: Floats, y: Floats) -> Floats:
    """Spearman, Kendall τ-b and pairwise accuracy of two samples; NaN where one is not defined."""
    rho = tau = np.nan
    if len(x) >= 3 and np.ptp(x) > 0 and np.ptp(y) > 0:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            rho, tau = stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0]
    return np.array([rho, tau, pairwise_accuracy(x, y)])


def pairwise_accuracy(scores: Floats, ratings: Floats) -> float:
    """Share of the pairs of different ratings that the scores rank alike, ties in the scores
    counting half; NaN without such pairs.
    """
    ranked = ratings[:, None] > ratings[None, :]
    if ranked.any():
        return float((0.5 + 0.5 * np.sign(scores[:, None] - scores[None, :])[ranked]).mean())
    return float("nan")
