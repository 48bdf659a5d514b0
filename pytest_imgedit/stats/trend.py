"""A series of checkpoints, looked at after each: evidence that values have fallen, valid at every
look.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.stats.estimates import LARGEST_LOG, Floats

#: Shares of the largest possible bet over which evidence is averaged.
BETS = (np.arange(12) + 0.5) / 12
#: Decimals of a mean. Means of the same values may differ beyond them, by rounding.
DECIMALS = 9


def evidence_by_group(
    series: Sequence[Mapping[str, float]],
    clusters: Mapping[str, str],
    categories: Mapping[str, str],
) -> dict[str, list[float]]:
    """Return `evidence_of_fall` of the macro mean and, if there are several categories, of each.

    `clusters` and `categories` hold the source and the category of each pair.
    """
    sizes = Counter(categories.values())
    groups = [OVERALL]
    if len(sizes) > 1:
        groups += in_order(sizes)
    evidence = {}
    for group in groups:
        weights = {
            pair: 1 / sizes[category]
            for pair, category in categories.items()
            if group in (OVERALL, category)
        }
        evidence[group] = evidence_of_fall(series, clusters, weights)
    return evidence


def evidence_of_fall(
    series: Sequence[Mapping[str, float]], clusters: Mapping[str, str], weights: Mapping[str, float]
) -> list[float]:
    """Return the e-value after each run of a series against "no run scores lower than those before
    it"; 1 after the first.

    `series` holds the value of each pair that has one, by pair, with the opposite sign where lower
    is better; `clusters` the source of each pair, and `weights` its weight in the mean. If nothing
    changes, any order of the runs is as likely, so that each source's rank in the newest run is
    independent of all ranks before, and uniform. Every source bets on a low rank, with a linear
    bet, from every run on: from run s + 1 on with a stake of 1/(s(s+1)), which add up to 1 over all
    s ≥ 1. A run multiplies a bet by Π(1 + bet·fall·size) over sources, where fall is the share of
    the runs before that it is below minus the share that it is above. The chance that the e-value
    ever reaches 1/α is α at most, however often one looks (a conformal test martingale: Vovk,
    Gammerman and Shafer 2022, ch. 8). Ties count half: with them the mean of the e-value is 1 at
    each look; the chance of all looks is known by simulation only (`perf/gates.py`).
    """
    means, sizes = _means(series, clusters, weights)
    # of each run (first axis) from each other one (second axis), by source
    drops = means[None, :, :] - means[:, None, :]
    with np.errstate(invalid="ignore"):
        signs = np.nan_to_num(np.sign(np.round(drops, DECIMALS)))
    earlier = np.tri(len(series), k=-1)[:, :, None]  # 1 where the other run is an earlier one
    counts = (earlier * ~np.isnan(drops)).sum(axis=1)
    falls = (earlier * signs).sum(axis=1) / np.maximum(1, counts)
    stakes = np.array([1 / (s * (s + 1)) for s in range(1, len(series))])
    # logarithms of the gains of each bet (row) that began at each run (column)
    gains = np.zeros((len(BETS), 0))
    evidence = [1.0]
    for look in range(1, len(series)):
        gain = np.log1p(BETS[:, None] * (falls[look] * sizes)).sum(axis=1)
        gains = np.hstack([gains + gain[:, None], gain[:, None]])
        mean_gains = np.logaddexp.reduce(gains, axis=0) - np.log(len(BETS))
        running = mean_gains + np.log(stakes[:look])
        not_yet_staked = np.log(1 - stakes[:look].sum())
        total = np.logaddexp(np.logaddexp.reduce(running), not_yet_staked)
        evidence.append(float(np.exp(min(LARGEST_LOG, total))))
    return evidence


def _means(
    series: Sequence[Mapping[str, float]], clusters: Mapping[str, str], weights: Mapping[str, float]
) -> tuple[Floats, Floats]:
    """Return the weighted mean of each source (column) in each run (row), and what sources weigh,
    the largest 1.

    A mean is NaN where a run lacks a value of the source that another has. Pairs without a weight
    or without any value count nowhere.
    """
    with_score = set().union(*series)
    pairs = [pair for pair in weights if pair in with_score]
    scores = np.full((len(series), len(pairs)), np.nan)
    for row, run in zip(scores, series, strict=True):
        row[:] = [run.get(pair, np.nan) for pair in pairs]
    names, cluster = np.unique([clusters[pair] for pair in pairs], return_inverse=True)
    table = np.zeros((len(pairs), len(names)))
    table[np.arange(len(pairs)), cluster] = [weights[pair] for pair in pairs]
    sizes = table.sum(axis=0)
    sums = np.nan_to_num(scores) @ table
    sums[np.isnan(scores) @ (table > 0)] = np.nan
    return sums / sizes, sizes / sizes.max(initial=0.0)
