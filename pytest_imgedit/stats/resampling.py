"""A bootstrap over clusters (pairs that share a source image), with statistics of all resamples at
once.

No resample is written out. It is a number of draws for each cluster, and a statistic of it is the
weighted statistic of the data: Spearman's ρ by weighted mid-ranks, sums over pairs of pairs as
quadratic forms of the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.stats.estimates import ALPHA, Floats

Indices = NDArray[np.intp]
#: Number of resamples; always with the same random numbers.
RESAMPLES = 2_000
#: The position of the original sample, the data, among all samples.
ORIGINAL = 0
#: An interval needs a statistic that is defined in more than this share of the resamples.
DEFINED = 0.9
#: Decimals of scores and ratings. Means of the same numbers may differ beyond them, by rounding.
DECIMALS = 9
#: Numbers in an array of weights. Larger arrays are slower, as they do not fit in the cache.
BLOCK = 500_000
#: Clusters whose sums over pairs are computed together.
ROWS = 256
#: Numbers in an array of weights of several short lists.
SHORT_BLOCK = 100_000
#: A list is short if no sample holds more of its pairs. Sums of its ranks are whole numbers up to
#: the cube of that, which float32 holds exactly.
SHORT = 256


@dataclass(frozen=True)
class Statistic:
    """A statistic and the 95% percentile interval of its bootstrap; `None` where it has none."""

    value: float | None
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class Samples:
    """The data and their resamples.

    `cluster` holds the index of each pair's cluster, in shape (pairs,). `draws` says how often each
    sample holds each cluster, in shape (clusters, samples). The `ORIGINAL` sample is the data: it
    holds each cluster once.
    """

    cluster: Indices
    draws: Floats

    @property
    def clusters(self) -> int:
        return len(self.draws)

    def subset(self, pairs: NDArray[np.bool_]) -> Samples:
        """Return the same samples of the pairs alone that a mask selects."""
        return Samples(self.cluster[pairs], self.draws)

    def totals(self, values: Floats) -> Floats:
        """Return the sum over each sample of `values`, one a pair, in shape (samples,)."""
        by_cluster = np.bincount(self.cluster, weights=values, minlength=self.clusters)
        return np.asarray(by_cluster @ self.draws, dtype=np.float64)

    def weights(self, label: Indices) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of samples, each with the number of pairs of each label in its samples, in
        shape (labels, samples of the block).

        `label` holds one label a pair, in shape (pairs,). Every label from 0 on has a pair.
        """
        order = np.argsort(label, kind="stable")
        starts = _starts(label[order])
        width = max(1, BLOCK // len(label))
        for start in range(0, self.draws.shape[1], width):
            block = slice(start, start + width)
            pairs = self.draws[:, block][self.cluster[order]]
            yield block, np.add.reduceat(pairs, starts, axis=0)


@dataclass(frozen=True)
class Paired:
    """Two numbers `x` and `y` of each of some pairs, and its `cluster`, in shape (pairs,)."""

    x: Floats
    y: Floats
    cluster: Indices


def resample(clusters: Sequence[str]) -> Samples:
    """Return the data with `RESAMPLES` resamples: as many clusters as there are, drawn with
    replacement.

    `clusters` names the cluster of each pair. With fewer than three clusters there are no
    resamples.
    """
    index = {name: position for position, name in enumerate(dict.fromkeys(clusters))}
    cluster = np.array([index[name] for name in clusters], dtype=np.intp)
    count = len(index)
    samples = [np.ones(count)]
    if count > 2:
        generator = np.random.default_rng(0)
        for _ in range(RESAMPLES):
            drawn = generator.integers(0, count, count)
            samples.append(np.bincount(drawn, minlength=count).astype(np.float64))
    return Samples(cluster, np.stack(samples, axis=1))


def with_interval(values: Floats) -> Statistic:
    """Return the first of a statistic's values, that of the data, with the percentile interval of
    the others.

    NaN is a statistic that is not defined. The value is `None` if it is not defined for the data;
    the interval, too, if it is defined in no more than a share `DEFINED` of the resamples.
    """
    original = float(values[ORIGINAL])
    if np.isnan(original):
        return Statistic(None, None)
    resampled = values[ORIGINAL + 1 :]
    defined = resampled[~np.isnan(resampled)]
    if len(defined) <= DEFINED * len(resampled):
        return Statistic(original, None)
    low, high = np.quantile(defined, [ALPHA / 2, 1 - ALPHA / 2]).tolist()
    return Statistic(original, (low, high))


def rounded(values: Floats) -> Floats:
    """Round scores or ratings, so that those that differ by rounding errors only are tied."""
    return np.round(values, DECIMALS)


def divided(dividend: Floats, divisor: Floats, defined: NDArray[np.bool_]) -> Floats:
    """Return the quotients where they are `defined`, and NaN elsewhere."""
    quotient = np.full(len(dividend), np.nan)
    np.divide(dividend, divisor, out=quotient, where=defined)
    return quotient


def spearman(x: Floats, y: Floats, samples: Samples) -> Floats:
    """Return Spearman's ρ of two numbers a pair, x and y, in each sample, in shape (samples,).

    NaN in a sample of fewer than three pairs, or in which all pairs are alike in x or in y.
    """
    rho = np.full(samples.draws.shape[1], np.nan)
    if not len(x):
        return rho
    # pairs that are alike in both have the same ranks
    (cell_x, cell_y), cell = np.unique(np.stack((x, y)), axis=1, return_inverse=True)
    for block, weights in samples.weights(cell.reshape(-1)):
        x_ranks = _centered_ranks(cell_x, weights)
        y_ranks = _centered_ranks(cell_y, weights)
        x_spread = (weights * x_ranks**2).sum(axis=0)
        y_spread = (weights * y_ranks**2).sum(axis=0)
        covariance = (weights * x_ranks * y_ranks).sum(axis=0)
        defined = (weights.sum(axis=0) >= 3) & (x_spread > 0) & (y_spread > 0)
        rho[block] = divided(covariance, np.sqrt(x_spread * y_spread), defined)
    return rho


def spearman_of_each(lists: Iterable[Paired], samples: Samples) -> Iterator[Floats]:
    """Yield Spearman's ρ in each sample, as `spearman` returns it, for each of many lists of pairs,
    in any order.

    `samples` are those of all pairs. Short lists of one length are computed together.
    """
    draws = samples.draws.astype(np.float32)
    most = int(draws.max(initial=1))
    waiting: dict[int, list[Paired]] = {}
    for paired in lists:
        length = len(paired.x)
        if length * most > SHORT:
            yield spearman(paired.x, paired.y, Samples(paired.cluster, samples.draws))
            continue
        group = waiting.setdefault(length, [])
        group.append(paired)
        if len(group) * length * draws.shape[1] >= SHORT_BLOCK:
            yield from _short_spearman(waiting.pop(length), draws)
    for group in waiting.values():
        yield from _short_spearman(group, draws)


def _short_spearman(lists: Sequence[Paired], draws: NDArray[np.float32]) -> Floats:
    """Return Spearman's ρ of short lists of one length, in shape (lists, samples).

    The ranks are doubled and centered: twice a mid-rank minus twice the mean rank is the number of
    pairs below minus the number of pairs above. NaN is as in `spearman`.
    """
    weights = draws[np.stack([paired.cluster for paired in lists])]
    x_ranks = _orders([paired.x for paired in lists]) @ weights
    y_ranks = _orders([paired.y for paired in lists]) @ weights
    x_weighted = weights * x_ranks
    y_weighted = weights * y_ranks
    x_spread = (x_weighted * x_ranks).sum(axis=1, dtype=np.float64)
    y_spread = (y_weighted * y_ranks).sum(axis=1, dtype=np.float64)
    covariance = (x_weighted * y_ranks).sum(axis=1, dtype=np.float64)
    rho = np.full(covariance.shape, np.nan)
    defined = (weights.sum(axis=1) >= 3) & (x_spread > 0) & (y_spread > 0)
    np.divide(covariance, np.sqrt(x_spread * y_spread), out=rho, where=defined)
    return rho


def _orders(values: Sequence[Floats]) -> NDArray[np.float32]:
    """Return 1, 0 or -1 where a value (row) of a list is above, equal to or below another (column),
    in shape (lists, values, values).
    """
    stacked = np.stack(values)
    return np.sign(stacked[:, :, None] - stacked[:, None, :]).astype(np.float32)


def _centered_ranks(values: Floats, weights: Floats) -> Floats:
    """Return the mid-ranks, minus their mean, of values that occur as often as `weights` say, in
    the shape of `weights`: (values, samples).

    The mid-rank of a value counts those below it and half of those that are equal to it.
    """
    order = np.argsort(values, kind="stable")
    _, level = np.unique(values, return_inverse=True)
    by_level = np.add.reduceat(weights[order], _starts(level[order]), axis=0)
    up_to_level = np.cumsum(by_level, axis=0)
    return np.asarray((up_to_level - by_level / 2 - up_to_level[-1] / 2)[level])


def sum_over_two(
    compare: Callable[[Indices, Indices], Floats], samples: Samples
) -> tuple[Floats, Floats]:
    """Return two sums in each sample, in shape (samples,), of a number of two pairs, in both
    orders: over every two pairs, and over every two pairs of one source.

    `compare` gets the indices of m and of n pairs, and returns their numbers in shape (m, n). Two
    copies of a cluster in a sample are two sources: the second sum has each copy with itself alone.
    """
    order = np.argsort(samples.cluster, kind="stable")
    starts = _starts(samples.cluster[order])
    members = np.split(order, starts[1:])
    overall = np.zeros(samples.draws.shape[1])
    inside = np.zeros(samples.clusters)
    for first in range(0, samples.clusters, ROWS):
        rows = slice(first, first + ROWS)
        by_pair = [compare(pairs, order).sum(axis=0) for pairs in members[rows]]
        by_cluster = np.add.reduceat(np.stack(by_pair), starts, axis=1)
        overall += (samples.draws[rows] * (by_cluster @ samples.draws)).sum(axis=0)
        inside[rows] = np.diagonal(by_cluster, offset=first)
    return overall, np.asarray(inside @ samples.draws)


def _starts(sorted_labels: Indices) -> Indices:
    """Return the position of the first pair of each label, from 0 on."""
    return np.searchsorted(sorted_labels, np.arange(sorted_labels[-1] + 1))
