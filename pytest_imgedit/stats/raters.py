"""Agreement of raters among each other, which bounds the agreement that a judge can reach."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_imgedit.stats.estimates import ROUNDING, Floats
from pytest_imgedit.stats.resampling import (
    Indices,
    Paired,
    Samples,
    Statistic,
    divided,
    resample,
    rounded,
    spearman_of_each,
    with_interval,
)

#: Two raters are compared by so many pairs that both rate, or more.
SHARED = 3
#: The most two raters that are compared: all of 100 raters, or a random sample of more.
COMPARED = 5_000
#: The most two ratings of one pair among which raters with `SHARED` pairs are looked for.
CANDIDATES = 2_000_000


@dataclass(frozen=True)
class RatingRows:
    """Ratings of pairs, in arrays of shape (ratings,).

    `rater` and `pair` hold indices from 0 on. No rater rates a pair twice.
    """

    rater: Indices
    pair: Indices
    value: Floats


@dataclass(frozen=True)
class RaterAgreement:
    """How alike so many `raters` rate the same pairs.

    `alpha` is Krippendorff's α with the interval metric, at most 1, and 0 if raters agree as by
    chance. `against_others` is the human ceiling: the mean over raters of Spearman's ρ between a
    rater and the mean of the other raters. `against_rater` is the mean ρ over all two raters, which
    lies between `least` and `most`. Two that share fewer than three pairs do not count. These three
    are over so many `compared` two raters, which are random ones of all if it `is_sample`.
    """

    raters: int
    alpha: Statistic
    against_others: Statistic
    against_rater: Statistic
    least: float | None
    most: float | None
    compared: int
    is_sample: bool


def rater_agreement(
    ratings: RatingRows,
    clusters: Sequence[str],
    progress: Callable[[str], None] = lambda text: None,
) -> RaterAgreement:
    """Compare raters by their ratings, in time that is linear in the number of ratings.

    `clusters` names the source image of each pair. Intervals are those of a bootstrap over sources.
    A statistic is `None` where no pair is rated twice, or all ratings are alike. `progress` is told
    what is done so far.
    """
    order = np.lexsort((ratings.pair, ratings.rater))
    ratings = RatingRows(ratings.rater[order], ratings.pair[order], ratings.value[order])
    samples = resample(clusters)
    raters = len(np.unique(ratings.rater))
    firsts, seconds, is_sample = _two_raters(ratings)
    others = _Mean(samples)
    for count, rho in enumerate(spearman_of_each(_with_others(ratings, samples), samples), 1):
        others.add(rho)
        progress(f"{count} of {raters} raters with the others")
    two = _Mean(samples)
    each = _with_another(ratings, samples, firsts, seconds)
    for count, rho in enumerate(spearman_of_each(each, samples), 1):
        two.add(rho)
        progress(f"{count} of {len(firsts)} two raters")
    return RaterAgreement(
        raters=raters,
        alpha=with_interval(_alpha(ratings, samples)),
        against_others=with_interval(others.values()),
        against_rater=with_interval(two.values()),
        least=min(two.in_data, default=None),
        most=max(two.in_data, default=None),
        compared=len(two.in_data),
        is_sample=is_sample,
    )


def _alpha(ratings: RatingRows, samples: Samples) -> Floats:
    """Krippendorff's α in each sample: 1 - observed / expected disagreement, which are mean squared
    differences of ratings of one pair and of all pairs.

    The formula for missing ratings and the interval metric is that of Krippendorff, "Computing
    Krippendorff's Alpha-Reliability" (2011). With n ratings, of pairs that have two or more,
    Σ(v - v')² over all two of m values is m·Σv² - (Σv)². NaN where all ratings are alike.
    """
    counts: Floats = np.bincount(ratings.pair, minlength=len(samples.cluster)).astype(np.float64)
    repeated = counts >= 2
    kept = repeated[ratings.pair]
    pair, values = ratings.pair[kept], rounded(ratings.value[kept])
    if not values.size:
        return np.full(samples.draws.shape[1], np.nan)
    values = values - np.median(values)  # for precision: α does not depend on the origin
    sums = np.bincount(pair, values, len(counts))[repeated].astype(np.float64)
    squares = np.bincount(pair, values**2, len(counts))[repeated].astype(np.float64)
    counts, samples = counts[repeated], samples.subset(repeated)
    n, whole_square = samples.totals(counts), samples.totals(squares)
    observed = samples.totals((counts * squares - sums**2) / (counts - 1)) * (n - 1)
    expected = n * whole_square - samples.totals(sums) ** 2
    return 1 - divided(observed, expected, expected > ROUNDING * n * whole_square)


def _with_others(ratings: RatingRows, samples: Samples) -> Iterator[Paired]:
    """Yield each rater's ratings of pairs that others rate too, with the means of the others."""
    totals, counts = np.bincount(ratings.pair, ratings.value), np.bincount(ratings.pair)
    shared = counts[ratings.pair] >= 2
    rater, pair, value = ratings.rater[shared], ratings.pair[shared], ratings.value[shared]
    means = rounded((totals[pair] - value) / (counts[pair] - 1))
    for rows in _rows(rater):
        yield Paired(rounded(value[rows]), means[rows], samples.cluster[pair[rows]])


def _with_another(
    ratings: RatingRows, samples: Samples, firsts: Indices, seconds: Indices
) -> Iterator[Paired]:
    """Yield the ratings of the pairs that two raters share, if they are enough."""
    rows_of = {int(ratings.rater[rows.start]): rows for rows in _rows(ratings.rater)}
    for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
        own, other = rows_of[first], rows_of[second]
        pairs, own_places, other_places = np.intersect1d(
            ratings.pair[own], ratings.pair[other], assume_unique=True, return_indices=True
        )
        if len(pairs) >= SHARED:
            yield Paired(
                rounded(ratings.value[own][own_places]),
                rounded(ratings.value[other][other_places]),
                samples.cluster[pairs],
            )


def _rows(sorted_labels: Indices) -> Iterator[slice]:
    """Yield the places of each label that occurs."""
    ends = np.flatnonzero(np.diff(sorted_labels, append=-1)) + 1
    start = 0
    for end in ends.tolist():
        yield slice(start, end)
        start = end


def _two_raters(ratings: RatingRows) -> tuple[Indices, Indices, bool]:
    """Return two raters each that are compared, and whether they are a random sample.

    All two of few raters are, which may share too few pairs. Many raters are put into a random
    order. Ratings of one pair are matched with the next one in that order, the second next and so
    on, up to `CANDIDATES`; two raters who match in `SHARED` pairs are compared, up to `COMPARED`.
    """
    names, rater = np.unique(ratings.rater, return_inverse=True)
    if len(names) * (len(names) - 1) // 2 <= COMPARED:
        firsts, seconds = np.triu_indices(len(names), 1)
        return names[firsts], names[seconds], False
    generator = np.random.default_rng(0)
    shuffled = generator.permutation(len(names))
    place = np.argsort(shuffled)[rater]
    order = np.lexsort((place, ratings.pair))
    pair, place = ratings.pair[order], place[order]
    earlier = np.arange(len(pair))
    matches = [np.empty(0, dtype=np.intp)]
    found, distance = 0, 0
    while True:
        distance += 1
        earlier = earlier[earlier + distance < len(pair)]
        earlier = earlier[pair[earlier] == pair[earlier + distance]]
        found += len(earlier)
        is_sample = distance > 1 and found > CANDIDATES
        if is_sample or not len(earlier):
            break
        matches.append(place[earlier] * len(names) + place[earlier + distance])
    two, shared = np.unique(np.concatenate(matches), return_counts=True)
    two = two[shared >= SHARED]
    if len(two) > COMPARED:
        two, is_sample = generator.choice(two, COMPARED, replace=False), True
    return names[shuffled[two // len(names)]], names[shuffled[two % len(names)]], is_sample


class _Mean:
    """The mean in each sample of the correlations that are defined there, of those that are defined
    in the data, whose values there are `in_data`.
    """

    def __init__(self, samples: Samples) -> None:
        self._total = np.zeros(samples.draws.shape[1])
        self._count = np.zeros(samples.draws.shape[1])
        self.in_data: list[float] = []

    def add(self, rho: Floats) -> None:
        """Add a correlation's values, in shape (samples,)."""
        if not np.isnan(rho[0]):
            self._total += np.nan_to_num(rho)
            self._count += ~np.isnan(rho)
            self.in_data.append(float(rho[0]))

    def values(self) -> Floats:
        return divided(self._total, self._count, self._count > 0)
