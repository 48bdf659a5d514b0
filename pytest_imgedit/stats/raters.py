"""Agreement of raters among each other, which bounds the agreement that a judge can reach."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_imgedit.stats.estimates import ROUNDING, Floats
from pytest_imgedit.stats.resampling import (
    ORIGINAL,
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

#: Fewest pairs that both of two raters must rate to be compared.
SHARED = 3
#: Most pairings of raters that are compared: all of 100 raters, or a random sample of more.
COMPARED = 5_000
#: Most pairings of ratings of one pair among which raters with `SHARED` pairs are looked for.
CANDIDATES = 2_000_000


@dataclass(frozen=True)
class RatingRows:
    """Ratings of pairs, in arrays of shape (ratings,).

    `rater` and `pair` hold indices from 0 on. No rater rates a pair twice.
    """

    rater: Indices
    pair: Indices
    value: Floats


@dataclass(frozen=True, kw_only=True)
class RaterAgreement:
    """Agreement of `raters` raters on the same pairs.

    `alpha` is Krippendorff's α with the interval metric, at most 1, and 0 if raters agree as by
    chance. `against_others` is the human ceiling: the mean over raters of Spearman's ρ between a
    rater and the mean of the other raters. `against_rater` is the mean ρ over pairings of raters,
    `least` and `most` are the smallest and the largest; `None` if no pairing has a ρ. Pairings that
    share fewer than three pairs do not count. `compared` pairings did, a random sample of all if it
    `is_sample`.
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
    pairings = _pairings(ratings)
    others = _MeanCorrelation(samples)
    of_raters = spearman_of_each(_with_others(ratings, samples), samples)
    for count, rho in enumerate(of_raters, 1):
        others.add(rho)
        progress(f"{count} of {raters} raters with the others")
    another = _MeanCorrelation(samples)
    of_pairings = spearman_of_each(_with_another(ratings, samples, pairings), samples)
    for count, rho in enumerate(of_pairings, 1):
        another.add(rho)
        progress(f"{count} of {len(pairings.firsts)} two raters")
    return RaterAgreement(
        raters=raters,
        alpha=with_interval(_alpha(ratings, samples)),
        against_others=with_interval(others.values()),
        against_rater=with_interval(another.values()),
        least=min(another.originals, default=None),
        most=max(another.originals, default=None),
        compared=len(another.originals),
        is_sample=pairings.is_sample,
    )


def _alpha(ratings: RatingRows, samples: Samples) -> Floats:
    """Return Krippendorff's α in each sample: 1 - observed / expected disagreement, which are mean
    squared differences of ratings of one pair and of all pairs. NaN where all ratings are alike.

    The formula for missing ratings and the interval metric is that of Krippendorff, "Computing
    Krippendorff's Alpha-Reliability" (2011). Pairs with a single rating do not count. For n ratings
    v in all, and m of a pair, Σ(v - v')² over every two of the m is m·Σv² - (Σv)². The quotient is
    (n - 1)·Σ_pairs (m·Σv² - (Σv)²)/(m - 1), over n·Σv² - (Σv)² of all ratings.
    """
    counts: Floats = np.bincount(ratings.pair, minlength=len(samples.cluster)).astype(np.float64)
    repeated = counts >= 2
    kept = repeated[ratings.pair]
    pair = ratings.pair[kept]
    values = rounded(ratings.value[kept])
    if not values.size:
        return np.full(samples.draws.shape[1], np.nan)
    values = values - np.median(values)  # for precision: α does not depend on the origin
    sums = np.bincount(pair, values, len(counts))[repeated].astype(np.float64)
    squares = np.bincount(pair, values**2, len(counts))[repeated].astype(np.float64)
    counts = counts[repeated]
    samples = samples.subset(repeated)
    n = samples.totals(counts)
    total_squares = samples.totals(squares)
    within_pairs = (counts * squares - sums**2) / (counts - 1)
    observed = samples.totals(within_pairs) * (n - 1)
    expected = n * total_squares - samples.totals(sums) ** 2
    return 1 - divided(observed, expected, expected > ROUNDING * n * total_squares)


def _with_others(ratings: RatingRows, samples: Samples) -> Iterator[Paired]:
    """Yield each rater's ratings of pairs that others rate too, with the means of the others.

    `ratings` are sorted by rater.
    """
    totals = np.bincount(ratings.pair, ratings.value)
    counts = np.bincount(ratings.pair)
    shared = counts[ratings.pair] >= 2
    pair = ratings.pair[shared]
    value = ratings.value[shared]
    means_of_others = rounded((totals[pair] - value) / (counts[pair] - 1))
    for rows in _rows(ratings.rater[shared]):
        yield Paired(rounded(value[rows]), means_of_others[rows], samples.cluster[pair[rows]])


@dataclass(frozen=True)
class _Pairings:
    """Pairings of raters, a random sample of all if it `is_sample`."""

    firsts: Indices
    seconds: Indices
    is_sample: bool


def _with_another(ratings: RatingRows, samples: Samples, pairings: _Pairings) -> Iterator[Paired]:
    """Yield for each pairing of raters their ratings of the pairs that both rate, if these are at
    least `SHARED`. `ratings` are sorted by rater.
    """
    rows_of = {int(ratings.rater[rows.start]): rows for rows in _rows(ratings.rater)}
    for first, second in zip(pairings.firsts.tolist(), pairings.seconds.tolist(), strict=True):
        first_rows = rows_of[first]
        second_rows = rows_of[second]
        pairs, first_positions, second_positions = np.intersect1d(
            ratings.pair[first_rows],
            ratings.pair[second_rows],
            assume_unique=True,
            return_indices=True,
        )
        if len(pairs) >= SHARED:
            yield Paired(
                rounded(ratings.value[first_rows][first_positions]),
                rounded(ratings.value[second_rows][second_positions]),
                samples.cluster[pairs],
            )


def _rows(sorted_labels: Indices) -> Iterator[slice]:
    """Yield the positions of each label that occurs; none is negative."""
    ends = np.flatnonzero(np.diff(sorted_labels, append=-1)) + 1
    start = 0
    for end in ends.tolist():
        yield slice(start, end)
        start = end


def _pairings(ratings: RatingRows) -> _Pairings:
    """Return the pairings of raters that are compared.

    All pairings of few raters are, which may share too few pairs. Many raters are put into a random
    order. Ratings of one pair are matched with the next one in that order, the second next and so
    on, up to `CANDIDATES`; two raters who match in `SHARED` pairs are compared, up to `COMPARED`.
    """
    names, rater = np.unique(ratings.rater, return_inverse=True)
    if len(names) * (len(names) - 1) // 2 <= COMPARED:
        firsts, seconds = np.triu_indices(len(names), 1)
        return _Pairings(names[firsts], names[seconds], is_sample=False)
    generator = np.random.default_rng(0)
    shuffled = generator.permutation(len(names))
    position = np.argsort(shuffled)[rater]
    matches, is_sample = _matches(ratings.pair, position, len(names))
    pairings, shared = np.unique(matches, return_counts=True)
    pairings = pairings[shared >= SHARED]
    if len(pairings) > COMPARED:
        pairings = generator.choice(pairings, COMPARED, replace=False)
        is_sample = True
    firsts = names[shuffled[pairings // len(names)]]
    seconds = names[shuffled[pairings % len(names)]]
    return _Pairings(firsts, seconds, is_sample)


def _matches(pair: Indices, rater: Indices, raters: int) -> tuple[Indices, bool]:
    """Match ratings of one pair; return the pairing of each match, as first rater · `raters` +
    second rater, and whether matches were left out.

    In the order of raters, each rating of a pair is matched with the next one, the second next and
    so on, as long as there are at most `CANDIDATES` matches; those with the next one are all kept.
    """
    order = np.lexsort((rater, pair))
    pair = pair[order]
    rater = rater[order]
    earlier = np.arange(len(pair))
    matches = [np.empty(0, dtype=np.intp)]
    count = 0
    distance = 0
    while True:
        distance += 1
        earlier = earlier[earlier + distance < len(pair)]
        earlier = earlier[pair[earlier] == pair[earlier + distance]]
        count += len(earlier)
        is_sample = distance > 1 and count > CANDIDATES
        if is_sample or not len(earlier):
            return np.concatenate(matches), is_sample
        matches.append(rater[earlier] * raters + rater[earlier + distance])


class _MeanCorrelation:
    """The mean, in each sample, of the correlations that are defined in that sample.

    Correlations that are not defined in the original sample are left out of all samples;
    `originals` holds the values there of the others.
    """

    def __init__(self, samples: Samples) -> None:
        self._total = np.zeros(samples.draws.shape[1])
        self._count = np.zeros(samples.draws.shape[1])
        self.originals: list[float] = []

    def add(self, rho: Floats) -> None:
        """Add a correlation's values, in shape (samples,); the first is that of the original."""
        original = float(rho[ORIGINAL])
        if not np.isnan(original):
            self._total += np.nan_to_num(rho)
            self._count += ~np.isnan(rho)
            self.originals.append(original)

    def values(self) -> Floats:
        return divided(self._total, self._count, self._count > 0)
