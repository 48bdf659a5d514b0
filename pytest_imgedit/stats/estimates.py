"""Summary statistics and tests of scores, which respect pairs that share a source image; plain numbers in and out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtr, stdtrit  # scipy.stats has them too, and takes half a second to import

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Share of true effects of the size `mde` that a test finds.
POWER = 0.8
#: With fewer clusters nothing is ruled out: a few equal numbers say little of the spread.
ENOUGH = 8
#: Up to so many clusters all 2^G sign flips are counted, beyond it `FLIPS` random ones.
EXACT_CLUSTERS = 13
FLIPS = 10_000


@dataclass(frozen=True)
class Summary:
    """What a table row says: counts, and statistics of the scored pairs on the 0..10 scale.

    `std` is the sample standard deviation (n − 1), `None` under two pairs; `ci95` the 95% interval of the mean, cut
    at the ends of the scale, `se` the standard error of the mean, both `None` under two clusters (pairs that share a
    source image are one cluster); `mde` how far the true mean must lie from a threshold for a one-sided test at 5% to
    find it in 80% of runs, `None` where so few clusters cannot. All are `None` where nothing was scored.
    """

    n: int
    scored: int
    errors: int
    mean: float | None = None
    std: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    ci95: tuple[float, float] | None = None
    se: float | None = None
    mde: float | None = None
    clusters: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Estimate:
    """The mean of one number a pair, and what is known of its error.

    `se` is `None` under two clusters, in any one category for a macro mean. `freedom` are the degrees of freedom of
    Student's t. `sums` and `weights` hold for each cluster the sum of weighted values, and of the weights, which add
    up to 1.
    """

    n: int
    mean: float
    se: float | None
    freedom: float
    sums: Floats
    weights: Floats

    @property
    def clusters(self) -> int:
        return len(self.sums)

    def can_show(self, alpha: float) -> bool:
        """Tell whether so many clusters can show anything at `alpha`, and enough of it to say that nothing is there."""
        return self.clusters >= ENOUGH and 0.5**self.clusters <= alpha

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Two-sided interval of the mean from Student's t."""
        if self.se is None:
            return None
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.se
        return (self.mean - half, self.mean + half)

    def p_below(self, limit: float) -> float:
        """One-sided p value of "the true mean is not under `limit`"; 1 where there is no standard error.

        The larger of Student's t over clusters and the sign-flip test, which needs no normal distribution and
        guards small samples in which all values happen to be equal: G clusters never give less than 2^-G.
        """
        if self.se is None:
            return 1.0
        if self.se == 0:
            student = float(self.mean >= limit)
        else:
            student = float(stdtr(self.freedom, (self.mean - limit) / self.se))
        return max(student, sign_flip(self.sums - limit * self.weights))

    def p_above(self, limit: float) -> float:
        """One-sided p value of "the true mean is not over `limit`"."""
        return Estimate(self.n, -self.mean, self.se, self.freedom, -self.sums, self.weights).p_below(-limit)

    def mde(self, alpha: float) -> float | None:
        """Smallest distance of the true mean from a limit that a one-sided test at `alpha` finds in 80% of runs.

        (t₁₋α + t_power)·SE; `None` if so few clusters can never give a p under `alpha`, and under `ENOUGH` of them.
        """
        if self.se is None or not self.can_show(alpha):
            return None
        return float(stdtrit(self.freedom, 1 - alpha) + stdtrit(self.freedom, POWER)) * self.se


def estimate(values: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """Mean over pairs (micro) of at least one value, with the cluster-robust error; `clusters` names the sources.

    SE = √[G/(G−1) · Σ_g(Σ_{i∈g}(s_i − s̄))²] / n over G clusters (Miller, arXiv 2411.00640, eq. 4, with the
    small-sample factor), G − 1 degrees of freedom.
    """
    scores = np.asarray(values, dtype=np.float64)
    _, inverse = np.unique(np.asarray(clusters), return_inverse=True)
    groups, mean = int(inverse.max()) + 1, float(scores.mean())
    error = None
    if groups > 1:
        deviations = _by_cluster(inverse, scores - mean)
        error = float(np.sqrt(groups / (groups - 1) * (deviations**2).sum())) / len(scores)
        if np.ptp(scores) == 0:
            error, mean = 0.0, float(scores[0])  # not what rounding leaves
    share = np.full(len(scores), 1 / len(scores))
    sums, weights = _by_cluster(inverse, scores * share), _by_cluster(inverse, share)
    return Estimate(len(scores), mean, error, groups - 1, sums, weights)


def estimate_macro(values: Sequence[float], clusters: Sequence[str], categories: Sequence[str]) -> Estimate:
    """Mean of the category means, every category with the same weight.

    SE = √Σ_g u_g², where u_g = Σ_k √[G_k/(G_k−1)] · Σ_{i∈g∩k}(s_i − s̄_k) / (K n_k). If no source image is in two
    categories, that is √ΣSE²/K, and the degrees of freedom are Welch-Satterthwaite's; else they are at most G − 1.
    """
    names, scores = np.asarray(categories), np.asarray(values, dtype=np.float64)
    kinds = list(dict.fromkeys(categories))
    parts: list[Estimate] = []
    share, deviations = np.zeros(len(names)), np.zeros(len(names))
    for name in kinds:
        members = np.flatnonzero(names == name)
        part = estimate(scores[members].tolist(), [clusters[i] for i in members.tolist()])
        parts.append(part)
        share[members] = 1 / (len(kinds) * len(members))
        if part.se:
            spread = np.sqrt(part.clusters / (part.clusters - 1))
            deviations[members] = spread * (scores[members] - part.mean) * share[members]
    _, inverse = np.unique(np.asarray(clusters), return_inverse=True)
    groups = int(inverse.max()) + 1
    known = [(part.se, part.freedom) for part in parts if part.se is not None]
    error, freedom = None, 1.0
    if len(known) == len(parts):
        error = float(np.sqrt((_by_cluster(inverse, deviations) ** 2).sum()))
        fourths = sum(se**4 / own for se, own in known)
        # Equal values everywhere leave the degrees of freedom undefined and the standard error zero.
        freedom = sum(se**2 for se, _ in known) ** 2 / fourths if fourths > 0 else 1.0
        if sum(part.clusters for part in parts) > groups:
            freedom = max(1.0, min(freedom, groups - 1))
    mean = sum(part.mean for part in parts) / len(parts)
    return Estimate(len(names), mean, error, freedom, _by_cluster(inverse, scores * share), _by_cluster(inverse, share))


def _by_cluster(inverse: NDArray[np.intp], values: Floats) -> Floats:
    return np.asarray(np.bincount(inverse, weights=values), dtype=np.float64)


def sign_flip(contributions: Floats) -> float:
    """One-sided p value that the sum over clusters is as small as it is if every cluster's sign were a coin's.

    Exact up to `EXACT_CLUSTERS` clusters; beyond, the share of `FLIPS` random flips, which are always the same. What
    never occurs among them is given the smallest p that there is, 2^-G.
    """
    observed = contributions.sum()
    limit = observed + 1e-9 * max(1e-300, float(np.abs(contributions).sum()))
    signs = _signs(len(contributions))
    count = sum(int((block @ contributions <= limit).sum()) for block in np.array_split(signs, len(signs) // 1000 + 1))
    return max(count / len(signs), float(0.5 ** len(contributions)))


@lru_cache(maxsize=4)
def _signs(clusters: int) -> NDArray[np.int8]:
    if clusters <= EXACT_CLUSTERS:
        bits = np.arange(2**clusters)[:, None] >> np.arange(clusters) & 1
    else:
        bits = np.random.default_rng(0).integers(0, 2, size=(FLIPS, clusters), dtype=np.int8)
    return (1 - 2 * bits).astype(np.int8)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values so that the chance of any false alarm in the family stays under α (Holm, 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def summarize(scores: Sequence[float], clusters: Sequence[str], errors: int = 0, pending: int = 0) -> Summary:
    """Summarize the scores of a category, one a pair; `clusters` names the source image of each pair.

    `errors` counts pairs that ended without a score, `pending` those that were never to get one in this run.
    """
    n = len(scores) + errors + pending
    if not scores:
        return Summary(n, 0, errors)
    return _summary(estimate(scores, clusters), scores, (n, len(scores), errors))


def macro(categories: Sequence[Summary], whole: Estimate | None, counts: tuple[int, int, int]) -> Summary:
    """Summarize over categories, each with the same weight; `counts` is (n, scored, errors) over all pairs.

    `whole` is the macro estimate over the scored pairs. `std`, `median`, `min` and `max` are over the category means.
    Categories without a scored pair leave the macro mean undefined rather than shrink it.
    """
    means = [category.mean for category in categories if category.mean is not None]
    if whole is None or len(means) != len(categories):
        return Summary(*counts)
    return _summary(whole, means, counts)


def _summary(found: Estimate, spread: Sequence[float], counts: tuple[int, int, int]) -> Summary:
    """Summarize an estimate; `std`, `median`, `min` and `max` are those of `spread`."""
    interval = found.interval()
    return Summary(
        *counts,
        mean=found.mean,
        std=float(np.std(spread, ddof=1)) if len(spread) > 1 else None,
        median=float(np.median(spread)),
        min=float(min(spread)),
        max=float(max(spread)),
        ci95=None if interval is None else (max(0.0, interval[0]), min(10.0, interval[1])),
        se=found.se,
        mde=found.mde(0.05),
        clusters=found.clusters,
    )
