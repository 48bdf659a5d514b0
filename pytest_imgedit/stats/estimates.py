"""Estimates of mean scores: errors and tests clustered by source image, and bounds from the ends of
the scale, beyond which no unseen score can lie.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# scipy.stats has the functions of Student's t too, and takes half a second to import
from scipy.special import logsumexp, stdtr, stdtrit

from pytest_imgedit.core.results import Share, Summary
from pytest_imgedit.stats.planning import TABLE_ALPHA, mde

Floats = NDArray[np.float64]
#: The clusters of pairs: names, or numbers, which are faster to sort.
Clusters = Sequence[str] | Sequence[int]
#: Values, and a weight in (0, 1] for each.
Stratum = tuple[Floats, Floats]

#: A standard error under this, in points, is what rounding leaves of none.
ROUNDING = 1e-9
#: With fewer clusters nothing is ruled out: a few equal numbers say little of the spread.
ENOUGH = 8
#: Most clusters of which all 2^G sign flips are counted.
EXACT_CLUSTERS = 13
#: Random sign flips of more clusters.
FLIPS = 10_000
#: Chance that a 95% interval misses the truth.
ALPHA = 0.05
#: Most that a logarithm of evidence is taken for, as `exp` of 710 overflows.
LARGEST_LOG = 700.0
#: Shares of the largest possible bet over which `evidence_above` averages.
BETS = (np.arange(24) + 0.5) / 24
#: Steps of a category's mean, from one end of the scale to the other, in the search for the least
#: favourable means.
STEPS = 200
#: Resamples of `bounded_intervals`; always the same random numbers.
RESAMPLES = 8_000
#: Random numbers that are in memory at a time, about.
BLOCK = 1_000_000
#: Most clusters whose signs are cached, as many statistics use the same: at most 60 MB.
KEPT_SIGNS = 250
#: Most clusters whose shares are cached, in at most 32 MB.
KEPT_SHARES = 1_000
#: Means over equally many clusters whose intervals are computed at once, in 64 MB.
MEANS_AT_ONCE = 250


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The mean of one number a pair, and what is known of its error.

    `alone` names the categories of one cluster only, where `se` is `None` unless `estimate` pools.
    `freedom` are the degrees of freedom of Student's t. `sums`, `deviations` and `weights`
    hold for each cluster the sums of weighted values, of their deviations from their category's
    mean, and of the weights, which add up to 1. `centers` are the lowest and the highest mean of a
    category; `strata` independent values with their weights, as `strata` returns them.
    """

    n: int
    mean: float
    se: float | None
    freedom: float
    alone: tuple[str, ...]
    sums: Floats
    deviations: Floats
    weights: Floats
    centers: tuple[float, float]
    strata: tuple[Stratum, ...]

    @property
    def clusters(self) -> int:
        return len(self.sums)

    def can_show(self, alpha: float) -> bool:
        """Tell whether the clusters can reach a p value of `alpha`, and are worth `ENOUGH` of equal
        weight.
        """
        return self.even_clusters > ENOUGH - ROUNDING and 0.5**self.clusters <= alpha

    @property
    def even_clusters(self) -> float:
        """The number of clusters of equal weight that give the same precision, 1/Σw²: at most 4 if
        one has half of the weight.
        """
        return float(1 / (self.weights**2).sum())

    def interval(self, alpha: float = ALPHA) -> tuple[float, float] | None:
        """Return the two-sided interval of the mean from Student's t, which misses it with a chance
        of `alpha`; `None` without a standard error.
        """
        if self.se is None:
            return None
        half = float(stdtrit(self.freedom, 1 - alpha / 2)) * self.se
        return (self.mean - half, self.mean + half)

    def bounded_interval(
        self, lowest: float, highest: float, alpha: float = ALPHA
    ) -> tuple[float, float] | None:
        """Return the two-sided interval of `bounded_intervals` of the mean of values from `lowest`
        to `highest`; `None` without a standard error.

        It allows for rare values that were not seen, and misses the mean with a chance of `alpha`.
        """
        (interval,) = bounded_intervals([self], [(lowest, highest)], alpha)
        return interval

    def p_below(self, limit: float) -> float:
        """Return the one-sided p value of "the true mean is not under `limit`"; 1 without a
        standard error.

        The larger of Student's t over clusters and the sign-flip test, which needs no normal
        distribution and guards small samples in which all values happen to be equal: G clusters
        never give less than 2^-G.
        """
        return max(self.student_below(limit), sign_flip(self.sums - limit * self.weights))

    def student_below(self, limit: float) -> float:
        """Return the p value of `p_below` from Student's t alone: 1 without a standard error, and 0
        or 1 where that is 0.
        """
        if self.se is None:
            return 1.0
        if self.se == 0:
            return float(self.mean >= limit - ROUNDING)
        return float(stdtr(self.freedom, (self.mean - limit) / self.se))

    def p_above(self, limit: float) -> float:
        """Return the one-sided p value of "the true mean is not over `limit`": that of `p_below`
        with the signs of all values reversed.
        """
        return replace(self, mean=-self.mean, sums=-self.sums).p_below(-limit)

    def p_shown_above(self, limit: float, lowest: float, highest: float) -> float:
        """Return the one-sided p value of "the true mean is not over `limit`" for values from
        `lowest` to `highest`: 1/e of the e-value e of `evidence_above`, at most 1.

        It holds at every sample size and for every distribution, unlike `p_above`, which rare low
        values mislead.
        """
        return min(1.0, 1 / evidence_above(self.strata, limit, lowest, highest))

    def mde(self, alpha: float) -> float | None:
        """Return the smallest distance of the true mean from a limit that a one-sided test at
        `alpha` finds in 80% of runs.

        `None` unless `can_show` holds, and without a standard error over 0.
        """
        if not self.se or not self.can_show(alpha):
            return None
        return mde(self.se, self.freedom, alpha)


def estimate(
    values: Sequence[float],
    clusters: Clusters,
    categories: Sequence[str] | None = None,
    enough: float = ENOUGH,
    pools_alone: bool = False,
) -> Estimate:
    """Return the mean of the category means, with its cluster-robust standard error.

    There is at least one value. `clusters` names the source of each pair; without `categories` all
    pairs are in one, and the mean is that over pairs. The variance is the sum over clusters of (Σ_k
    √a_gk·d_gk)², where d_gk is the sum of cluster g's weighted deviations in category k. The
    factors a and the degrees of freedom are those that make the variance unbiased under a working
    model, with Satterthwaite's approximation (CR2: Bell and McCaffrey 2002; Pustejovsky and Tipton
    2018); of the two models "pairs are independent" and "pairs of a source are alike" the less
    favourable counts. With clusters of one size that is Student's t; over categories the degrees of
    freedom are Welch-Satterthwaite's, or fewer where categories share sources. A category of fewer
    than `enough` clusters has at least the variance that is usual in all, with the degrees of
    freedom of all. A category of a single cluster, whose own variance is not known, has the usual
    one if `pools_alone`, as if its pairs were one. Otherwise, or if no category has more clusters,
    there is no standard error.
    """
    scores = np.asarray(values, dtype=np.float64)
    if categories is None:
        categories = [""] * len(scores)
    names, category = np.unique(categories, return_inverse=True)
    _, cluster = np.unique(clusters, return_inverse=True)
    counts = np.bincount(category).astype(np.float64)
    means = _sums(category, scores) / counts
    share = 1 / (len(names) * counts[category])  # of each pair in the mean
    weights = _sums(cluster, share)
    mean = float(means.mean())
    deviations = (scores - means[category]) * share
    if np.ptp(scores) == 0:  # equal scores: leave out what rounding adds
        mean = float(scores[0])
        deviations = np.zeros_like(scores)
    spreads = []
    for index in range(len(names)):
        members = np.flatnonzero(category == index)
        spread = _spread_within(cluster[members], deviations[members], share[members])
        spreads.append(spread)
    error, freedom = _error_of_mean(spreads, weights, enough, pools_alone)
    return Estimate(
        n=len(scores),
        mean=mean,
        se=error,
        freedom=freedom,
        alone=_alone(names.tolist(), spreads),
        sums=_sums(cluster, scores * share),
        deviations=_sums(cluster, deviations),
        weights=weights,
        centers=(float(means.min()), float(means.max())),
        strata=tuple(strata(cluster, category, scores)),
    )


def estimate_of_errors(value: float, moves: Floats, weights: Floats) -> Estimate:
    """Return an estimate of which each cluster's part in the error is known to first order.

    `moves` add up to 0, `weights` are each cluster's share of the information, in any unit; both
    have the shape (clusters,). The variance and the degrees of freedom are those of `estimate` for
    a mean of clusters of these weights. With a cluster that has all the weight there is no standard
    error.
    """
    weights = weights / weights.sum()
    error = None
    freedom = 1.0
    if weights.max() < 1 - ROUNDING:
        scales, freedom = _working_models(weights)
        error = float(np.sqrt((scales * moves**2).sum()))
    if error is not None and error < ROUNDING:
        error = 0.0
    return Estimate(
        n=len(moves),
        mean=value,
        se=error,
        freedom=freedom,
        alone=(),
        sums=moves + value * weights,
        deviations=moves,
        weights=weights,
        centers=(value, value),
        strata=(),
    )


@dataclass(frozen=True, kw_only=True)
class _Spread:
    """What a category adds to the error of a mean.

    `clusters` are the indices of its clusters, and `moves` their deviations, scaled so that the sum
    of squares is an unbiased variance with `freedom` degrees of freedom. The variance of pairs that
    are alike is in proportion to `squared_weight`.
    """

    clusters: NDArray[np.intp]
    moves: Floats
    freedom: float
    squared_weight: float

    @property
    def variance(self) -> float:
        return float((self.moves**2).sum())

    @property
    def is_alone(self) -> bool:
        """Whether it has one cluster only, so that its own variance is not known."""
        return len(self.clusters) == 1


def _spread_within(cluster: NDArray[np.intp], deviations: Floats, share: Floats) -> _Spread:
    """Return the spread of a category from the clusters of its pairs, their weighted deviations and
    their shares in the mean.

    A single cluster tells no variance: it has no degree of freedom, and weighs as one pair would.
    """
    clusters, inverse = np.unique(cluster, return_inverse=True)
    if len(clusters) == 1:
        return _Spread(
            clusters=clusters,
            moves=np.zeros(1),
            freedom=0.0,
            squared_weight=float(share.sum() ** 2),
        )
    scales, freedom = _working_models(np.bincount(inverse) / len(cluster))
    return _Spread(
        clusters=clusters,
        moves=np.sqrt(scales) * np.bincount(inverse, weights=deviations),
        freedom=freedom,
        squared_weight=float((share**2).sum()),
    )


def _alone(names: Sequence[str], spreads: Sequence[_Spread]) -> tuple[str, ...]:
    """Return the names of the categories of one cluster."""
    return tuple(name for name, spread in zip(names, spreads, strict=True) if spread.is_alone)


def _error_of_mean(
    spreads: Sequence[_Spread], weights: Floats, enough: float, pools_alone: bool
) -> tuple[float | None, float]:
    """Return the standard error of the mean of all categories and its degrees of freedom.

    `weights` are those of all clusters, `enough` and `pools_alone` as in `estimate`. The error is
    `None` if a category has one cluster, and is not to be pooled or has none to be pooled with.
    Where categories share clusters, the degrees of freedom are at most those of all clusters.
    """
    alone = sum(spread.is_alone for spread in spreads)
    can_pool = pools_alone and alone < len(spreads)
    if alone and not can_pool:
        return None, 1.0
    errors = np.zeros(len(weights))
    for spread in spreads:
        errors[spread.clusters] += spread.moves
    error, freedom = _standard_error(errors, spreads, enough)
    if alone:  # what is pooled is known no better than what it is pooled from
        freedom = min(freedom, sum(spread.freedom for spread in spreads))
    shares_clusters = sum(len(spread.clusters) for spread in spreads) > len(weights)
    if shares_clusters:
        _, freedom_of_all_clusters = _working_models(weights)
        freedom = max(1.0, min(freedom, freedom_of_all_clusters))
    return error, freedom


def _standard_error(
    errors: Floats, spreads: Sequence[_Spread], enough: float
) -> tuple[float, float]:
    """Return the standard error of the mean from the scaled deviations of each cluster, summed over
    categories, with its degrees of freedom.

    Categories of fewer than `enough` clusters have the larger of their own variance and the one
    that is usual in all: a few values that happen to be near each other say little of their spread.
    That is too large on average (by 37% for 3 clusters whose variance is usual), which makes up for
    giving them the degrees of freedom of all categories. With their own, two for 3 clusters, one
    wide category would hide a drop of all.
    """
    variances = np.array([spread.variance for spread in spreads])
    freedoms = np.array([spread.freedom for spread in spreads])
    squared_weights = np.array([spread.squared_weight for spread in spreads])
    is_small = np.array([len(spread.clusters) < enough for spread in spreads])
    # the mean variance of one pair, weighted by degrees of freedom, times each Σ share²
    usual = sum(freedoms * variances / squared_weights) / sum(freedoms) * squared_weights
    raised = np.where(is_small, np.maximum(variances, usual), variances)
    error = float(np.sqrt((errors**2).sum() + (sum(raised) - sum(variances))))
    if error < ROUNDING:  # equal values everywhere leave the degrees of freedom undefined
        return 0.0, 1.0
    freedoms = np.where(is_small, sum(freedoms), freedoms)
    # Welch-Satterthwaite: (Σ V)² / Σ (V² / f) for variances V with f degrees of freedom
    return error, float(sum(raised) ** 2 / sum(raised**2 / freedoms))


def _sums(index: NDArray[np.intp], values: Floats) -> Floats:
    """Sum the values of each index, from 0 on."""
    return np.asarray(np.bincount(index, weights=values), dtype=np.float64)


def _working_models(weights: Floats) -> tuple[Floats, float]:
    """Return the factors a of the clusters' squared deviations, and degrees of freedom, for weights
    w that add up to 1.

    The larger factor and the fewer degrees of freedom of two working models. In each, the factors
    make Σ a_g·d_g² unbiased for the deviations d_g = w_g·(mean of g − mean of all), and the degrees
    of freedom are (Σ_g C_gg)² / Σ_gh C_gh², where C is the covariance matrix of √a_g·d_g
    (Satterthwaite 1946; Bell and McCaffrey 2002).
    """
    sum_of_squares = float((weights**2).sum())
    # Pairs of a source are alike: a cluster's mean varies as one pair does. With S = Σw² and
    # b = a·w², C_gh² is b_g·b_h·(S − w_g − w_h + [g = h])², here by the sums of b, b·w and b·w².
    alike = 1 / (1 - 2 * weights + sum_of_squares)
    scaled = alike * weights**2
    sum_b = float(scaled.sum())
    sum_bw = float((scaled * weights).sum())
    sum_bw2 = float((scaled * weights**2).sum())
    everywhere = (
        sum_of_squares**2 * sum_b**2
        - 4 * sum_of_squares * sum_b * sum_bw
        + 2 * sum_b * sum_bw2
        + 2 * sum_bw**2
    )
    diagonal = float((scaled**2 * (1 + 2 * (sum_of_squares - 2 * weights))).sum())
    freedom_alike = sum_of_squares**2 / (everywhere + diagonal)
    # Pairs are independent: a cluster's mean varies as the mean of its pairs does. C_gh² is w_g² on
    # the diagonal, and b_g·b_h elsewhere.
    independent = 1 / (1 - weights)
    scaled = weights**2 * independent
    elsewhere = float(scaled.sum() ** 2 - (scaled**2).sum())
    freedom_independent = 1 / (sum_of_squares + elsewhere)
    freedom = max(1.0, min(freedom_alike, freedom_independent))
    return np.maximum(alike, independent), freedom


def sign_flip(contributions: Floats) -> float:
    """Return the chance that the sum over clusters is as small as it is if every cluster's sign
    were a coin's: a one-sided p value.

    Exact up to `EXACT_CLUSTERS` clusters; beyond, the share of `FLIPS` random flips, which are
    always the same. What never occurs among them gets the smallest possible p, 2^-G.
    """
    # sums that differ by rounding alone are equal
    limit = contributions.sum() + ROUNDING * float(np.abs(contributions).sum())
    return share_of_flips(lambda signs: signs @ contributions <= limit, len(contributions))


def share_of_flips(
    is_extreme: Callable[[NDArray[np.int8]], NDArray[np.bool_]], clusters: int
) -> float:
    """Return the share of sign flips that are extreme, at least the smallest possible p, 2^-G.

    `is_extreme` takes rows of signs, 1 or -1, in shape (flips of a block, clusters), and tells of
    each row whether it is extreme. The rows are those of `_signs`.
    """
    blocks = _kept_signs(clusters) if clusters <= KEPT_SIGNS else _signs(clusters)
    count = 0
    flips = 0
    for signs in blocks:
        count += int(is_extreme(signs).sum())
        flips += len(signs)
    return max(count / flips, float(0.5**clusters))


def _signs(clusters: int) -> Iterator[NDArray[np.int8]]:
    """Yield blocks of sign flips (rows) of clusters (columns), 1 or -1: all 2^G up to
    `EXACT_CLUSTERS` clusters, `FLIPS` random ones of more, always the same.
    """
    if clusters <= EXACT_CLUSTERS:
        bits = np.arange(2**clusters)[:, None] >> np.arange(clusters) & 1
        yield (1 - 2 * bits).astype(np.int8)
        return
    generator = np.random.default_rng(0)
    for rows in _blocks(FLIPS, clusters):
        yield 1 - 2 * generator.integers(0, 2, size=(rows, clusters), dtype=np.int8)


@lru_cache(maxsize=24)  # as many numbers of clusters as a run has blocks
def _kept_signs(clusters: int) -> tuple[NDArray[np.int8], ...]:
    return tuple(_signs(clusters))


def _blocks(rows: int, numbers: int) -> Iterator[int]:
    """Divide `rows` rows of `numbers` random numbers into blocks of about `BLOCK` numbers, and
    yield the number of rows of each block.

    Generators draw bytes four at a time, and drop what is left of the last four. Blocks of a
    multiple of four rows leave nothing, so that all numbers are those of a single block.
    """
    most = 4 * max(1, BLOCK // (4 * numbers))
    for start in range(0, rows, most):
        yield min(most, rows - start)


def evidence_above(strata: Sequence[Stratum], limit: float, lowest: float, highest: float) -> float:
    """Return the e-value against "the mean of the strata's means is not over `limit`", for values
    from `lowest` to `highest`.

    What a gambler has made of a stake of 1 who bets on every value being over the mean m of its
    stratum: the mean over bets of Π(1 + bet·w·(x − m)/(m − lowest)), with the strata's means m that
    are worst for the gambler of all whose mean is the limit. Under the hypothesis no strategy gains
    on average, so that the e-value reaches 1/α with a chance of α at most, whatever the
    distributions (Waudby-Smith and Ramdas, JRSS B 2024). A limit at the lowest value is refuted by
    any value over it: infinity. Otherwise nothing is bet at a limit that is an end, or beyond: 1.
    """
    is_lowest = limit - lowest < ROUNDING
    if is_lowest and any((values > limit).any() for values, _ in strata):
        return float("inf")
    if is_lowest or limit >= highest:
        return 1.0
    if len(strata) == 1:
        logs = _log_gains(strata[0], np.array([limit - lowest]), lowest)[:, 0]
    else:
        logs = _log_least_gains(strata, limit, lowest, highest)
    log_mean_gain = logsumexp(logs) - np.log(len(BETS))
    assert not np.isnan(log_mean_gain), "a value beyond the scale"
    return float(np.exp(min(LARGEST_LOG, log_mean_gain)))


def _log_least_gains(
    strata: Sequence[Stratum], limit: float, lowest: float, highest: float
) -> Floats:
    """Return the logarithm of the gain of each bet under the strata's means that are worst for it.

    Every stratum's mean starts one step over `lowest`, and they are raised until they add up to
    those whose mean is `limit`. The logarithm of a stratum's gain is convex and falls with its
    mean, so that the worst means are found by raising, step by step, the mean that costs most. The
    first step of each stratum is not counted: that rounds means up, which takes from the gain.
    """
    step = (highest - lowest) / STEPS
    means = step * np.arange(1.0, STEPS + 1)
    gains = np.stack([_log_gains(stratum, means, lowest) for stratum in strata], axis=1)
    raises = int(np.ceil((limit - lowest) * len(strata) / step))
    possible_raises = len(strata) * (STEPS - 1)
    # changes of the gains by one step, the furthest falls first
    costs = np.sort(np.diff(gains, axis=2).reshape(len(BETS), -1), axis=1)
    costs_of_raises = costs[:, : min(raises, possible_raises)].sum(axis=1)
    return np.asarray(gains[:, :, 0].sum(axis=1) + costs_of_raises)


def _log_gains(stratum: Stratum, means: Floats, lowest: float) -> Floats:
    """Return the logarithm of the gain of each bet (row) under each mean of a stratum (column).

    `means` are less `lowest`. The gain of a bet is Π(1 + bet·w·(x − m)/(m − lowest)) over values x
    of weight w, under the mean m.
    """
    values, weights = stratum
    gains = np.zeros((len(BETS), len(means)))
    for value, weight in zip(values - lowest, weights, strict=True):
        gains += np.log1p(BETS[:, None] * weight * (value / means - 1))
    return gains


def bounded_intervals(
    means: Sequence[Estimate], ends: Sequence[tuple[float, float]], alpha: float = ALPHA
) -> list[tuple[float, float] | None]:
    """Return two-sided intervals of one or more means over equally many clusters, of values between
    the `ends` of their scales; `None` for a mean without a standard error.

    A Bayesian bootstrap over clusters (exponential weights) with one cluster more than was seen: at
    the lower end of the scale for the lower limit, at the upper end for the upper limit (Gaffke
    2005; Learned-Miller and Thomas, arXiv 1905.06208). The unseen cluster weighs Σw²: as much as
    each cluster, if all weigh the same.
    """
    clusters = means[0].clusters
    weights = [mean.weights for mean in means]
    deviations = [mean.deviations for mean in means]
    columns = np.stack(weights + deviations, axis=1)
    blocks = _kept_shares(clusters) if clusters <= KEPT_SHARES else _shares(clusters)
    unseen_blocks = []
    seen_blocks = []
    for shares in blocks:
        unseen_blocks.append(shares[:, 0])
        seen_blocks.append(shares[:, 1:] @ columns)
    unseen = np.concatenate(unseen_blocks, dtype=np.float64)
    totals, moves = np.split(np.concatenate(seen_blocks).T, 2)
    intervals = []
    for index, (mean, scale) in enumerate(zip(means, ends, strict=True)):
        interval = _bounded_interval(
            mean, scale, totals=totals[index], moves=moves[index], unseen=unseen, alpha=alpha
        )
        intervals.append(interval)
    return intervals


def _bounded_interval(
    mean: Estimate,
    ends: tuple[float, float],
    *,
    totals: Floats,
    moves: Floats,
    unseen: Floats,
    alpha: float,
) -> tuple[float, float] | None:
    """Return the interval of a mean from the resampled sums of its clusters' weights (`totals`) and
    deviations (`moves`), and the shares of the unseen cluster; `None` without a standard error.

    That cluster lies at an end of the scale, and in the category whose mean is furthest from it.
    """
    if mean.se is None:
        return None
    lowest, highest = ends
    lowest_center, highest_center = mean.centers
    unseen_weights = unseen * (mean.weights**2).sum()
    sums = totals + unseen_weights
    lows = (moves + unseen_weights * (lowest - highest_center)) / sums
    highs = (moves + unseen_weights * (highest - lowest_center)) / sums
    low = mean.mean + float(np.quantile(lows, alpha / 2))
    high = mean.mean + float(np.quantile(highs, 1 - alpha / 2))
    return max(lowest, low), min(highest, high)


def _shares(clusters: int) -> Iterator[NDArray[np.float32]]:
    """Yield blocks of `RESAMPLES` rows of exponential weights, the unseen cluster's first."""
    generator = np.random.default_rng(0)
    for rows in _blocks(RESAMPLES, clusters + 1):
        yield generator.standard_exponential((rows, clusters + 1), dtype=np.float32)


@lru_cache(maxsize=1)
def _kept_shares(clusters: int) -> tuple[NDArray[np.float32], ...]:
    return tuple(_shares(clusters))


def forget_shares() -> None:
    """Free the random numbers, at most 32 MB, that means over equally many clusters share."""
    _kept_shares.cache_clear()


def strata(cluster: NDArray[np.intp], category: NDArray[np.intp], scores: Floats) -> list[Stratum]:
    """Divide pairs into strata of independent values, whose means have the macro mean as their
    mean.

    A stratum is a category, and a value the mean of a cluster, which weighs as many pairs as it
    has. Where categories share clusters there is one stratum: a value is the weighted mean of a
    cluster, which weighs what its pairs weigh in the macro mean. Weights are relative to the
    largest of their stratum. Since Σ w·(μ − m) = 0 holds for the clusters' means μ, no bet on them
    gains either.
    """
    shape = (cluster.max() + 1, category.max() + 1)
    counts = np.zeros(shape)
    sums = np.zeros(shape)
    np.add.at(counts, (cluster, category), 1)
    np.add.at(sums, (cluster, category), scores)
    categories_of_cluster = (counts > 0).sum(axis=1)
    if (categories_of_cluster > 1).any():
        shares = 1 / counts.sum(axis=0)
        weights = counts @ shares
        return [(sums @ shares / weights, weights / weights.max())]
    by_category = []
    for total, count in zip(sums.T, counts.T, strict=True):
        inside = count > 0
        by_category.append((total[inside] / count[inside], count[inside] / count.max()))
    return by_category


@dataclass(frozen=True)
class Draft:
    """A summary without its mean, the estimate of that (`None` without values), and the ends of the
    scale.
    """

    summary: Summary
    mean: Estimate | None
    ends: tuple[float, float] = (0.0, 10.0)


def draft(
    scores: Sequence[float],
    clusters: Sequence[str],
    *,
    errors: int = 0,
    pending: int = 0,
    refused: int = 0,
    ends: tuple[float, float] = (0.0, 10.0),
) -> Draft:
    """Draft the summary of the scores of a group, one a pair that has one; `clusters` names the
    source image of each, `ends` are those of the scale.

    `errors` counts pairs that ended without a score, `pending` those that were never to get one in
    this run, and `refused` those that a content filter refused.
    """
    n = len(scores) + errors + pending + refused
    counts = Summary(n, len(scores), errors, refused)
    if not scores:
        return Draft(counts, None, ends)
    std = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    spread = replace(
        counts,
        std=std,
        median=float(np.median(scores)),
        min=float(min(scores)),
        max=float(max(scores)),
    )
    return Draft(spread, estimate(scores, clusters), ends)


def complete(drafts: Sequence[Draft]) -> list[Summary]:
    """Return the summaries of drafts with their means, and the intervals, standard errors and MDEs
    of these; a draft without values stays as it is.

    Intervals are those of `bounded_intervals`, or of Student's t on a scale without two ends. Means
    over equally many clusters share random numbers.
    """
    intervals = _bounded_intervals_of(drafts)
    summaries = []
    for position, row in enumerate(drafts):
        summary = row.summary
        mean = row.mean
        if mean is not None:
            is_bounded = position in intervals
            summary = replace(
                summary,
                mean=mean.mean,
                ci95=intervals[position] if is_bounded else mean.interval(),
                se=mean.se,
                mde=mean.mde(TABLE_ALPHA),
                clusters=mean.clusters,
            )
        summaries.append(summary)
    return summaries


def share_of(values: Sequence[float], clusters: Sequence[str]) -> Share:
    """Return the mean of values from 0 to 1 with its 95% interval, which allows for rare values
    that were not seen; `clusters` names the source image of each.
    """
    mean = estimate(values, clusters) if values else None
    (summary,) = complete([Draft(Summary(0, 0, 0), mean, (0.0, 1.0))])
    return Share(n=len(values), share=summary.mean, ci95=summary.ci95)


def _bounded_intervals_of(drafts: Sequence[Draft]) -> dict[int, tuple[float, float] | None]:
    """Return the intervals of the means on scales with two ends, by the positions of their
    drafts.
    """
    by_clusters: defaultdict[int, list[int]] = defaultdict(list)
    means: dict[int, Estimate] = {}
    for position, row in enumerate(drafts):
        if row.mean is not None and np.isfinite(row.ends).all():
            means[position] = row.mean
            by_clusters[row.mean.clusters].append(position)
    intervals: dict[int, tuple[float, float] | None] = {}
    for positions in by_clusters.values():
        for start in range(0, len(positions), MEANS_AT_ONCE):
            block = positions[start : start + MEANS_AT_ONCE]
            ends = [drafts[position].ends for position in block]
            block_intervals = bounded_intervals([means[position] for position in block], ends)
            intervals |= dict(zip(block, block_intervals, strict=True))
    return intervals
