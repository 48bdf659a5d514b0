"""Statistics of a leaderboard: simultaneous intervals of means and ranks, groups of systems that
cannot be told apart, and differences from a reference system.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.core import errors
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.text import did_you_mean, first_of
from pytest_imgedit.stats import simultaneous_intervals
from pytest_imgedit.stats.estimates import (
    ROUNDING,
    Clusters,
    Estimate,
    Floats,
    bounded_intervals,
    estimate,
)
from pytest_imgedit.stats.holm import holm

#: Decimals of a difference of two scores, as in `comparison`.
DECIMALS = 6
#: Which scores are better.
Direction = Literal["higher", "lower"]
#: Lowest and highest score that there is, or `None` without ends.
Scale = tuple[float, float] | None


@dataclass(frozen=True)
class RankedMean:
    """The mean of a system in one column, in the unit of the scores.

    `ci95` is simultaneous: with a chance of 95% the intervals of all systems in the column hold
    their true means. It is `None` in a category with pairs of one source image only, and overall
    if every category is such.
    """

    mean: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class ReferenceDifference:
    """The paired mean difference of a system from the reference, system − reference.

    `ci95` is the interval of this difference alone, as a comparison with a baseline gives it. `p`
    is two-sided, and adjusted over all systems but the reference (Holm).
    """

    mean: float
    ci95: tuple[float, float] | None
    p: float


@dataclass(frozen=True, kw_only=True)
class RankedSystem:
    """One row of a leaderboard.

    `rank` counts from 1 for the best overall mean; equal means share a rank. `rank_interval` are
    the lowest and the highest rank that the differences leave open: with a chance of 95% those of
    all systems hold the true ranks. Two systems can be told apart if and only if no number is in
    the `groups` of both. `missing` counts the pairs without a score. `difference` is `None` for the
    reference, and if there is none.
    """

    system: str
    rank: int
    rank_interval: tuple[int, int]
    groups: tuple[int, ...]
    overall: RankedMean
    categories: dict[str, RankedMean]
    missing: int
    difference: ReferenceDifference | None


@dataclass(frozen=True)
class Leaderboard:
    """Systems, the best first, over the `n` pairs that all of them have a score of.

    `left_out` counts the pairs that any system lacks, `clusters` the source images of the others.
    """

    rows: tuple[RankedSystem, ...]
    n: int
    left_out: int
    clusters: int


@dataclass(frozen=True)
class SystemScores:
    """Scores of the same pairs by several systems.

    `scores` has the shape (systems, pairs): the mean over seeds, NaN where a system has no score.
    `categories` and `clusters` name the category and the source image of each pair.
    """

    systems: Sequence[str]
    scores: Floats
    categories: Sequence[str]
    clusters: Clusters

    def select(self, pairs: NDArray[np.intp]) -> "SystemScores":
        """Keep the pairs at these positions."""
        return SystemScores(
            self.systems,
            self.scores[:, pairs],
            categories=[self.categories[pair] for pair in pairs],
            clusters=np.asarray(self.clusters)[pairs].tolist(),
        )

    def in_category(self, category: str) -> "SystemScores":
        """Keep the pairs of a category."""
        return self.select(np.flatnonzero(np.array(self.categories) == category))

    def means(self) -> list[Estimate]:
        """Estimate the macro mean of each system."""
        return [self.estimate(values) for values in self.scores]

    def estimate(self, values: Floats) -> Estimate:
        """Estimate the macro mean of one value a pair."""
        return estimate(values.tolist(), self.clusters, self.categories, pools_alone=True)

    def difference(self, system: int, other: int) -> Estimate:
        """Estimate the paired macro mean difference of two systems, by their positions."""
        return self.estimate(np.round(self.scores[system] - self.scores[other], DECIMALS))


def rank(
    scores: SystemScores,
    direction: Direction = "higher",
    scale: Scale = None,
    reference: str | None = None,
) -> Leaderboard:
    """Rank systems by their macro mean, over the pairs that all of them have a score of.

    `direction` says which scores are better. `scale` are the ends of the scale, if it has any: then
    intervals of means stay within and allow for rare scores that were not seen. Raise `UsageError`
    if there is nothing to rank, the reference is not among the systems, a score is beyond the
    scale, or no pair of a category has a score of every system.
    """
    missing = np.isnan(scores.scores)
    common = scores.select(np.flatnonzero(~missing.any(axis=0)))
    _, numbers = np.unique(common.clusters, return_inverse=True)
    common = replace(common, clusters=numbers.tolist())
    _check_names(scores.systems, reference)
    _check_scores(scores, common, scale)
    bootstrap = simultaneous_intervals.ClusterBootstrap.of(common.clusters, common.categories)
    means = common.means()
    resampled = bootstrap.errors(common.clusters, means)
    overall = _column(means, resampled, scale)
    categories = _category_columns(common, bootstrap, scale)
    sign = 1 if direction == "higher" else -1
    is_better = np.zeros((len(means), len(means)), dtype=bool)
    if len(means) > 1:
        alpha = simultaneous_intervals.alpha_of_differences(resampled, means[0].even_clusters)
        is_better = clear_wins(common, alpha, sign)
    worth = sign * np.array([mean.mean for mean in overall])
    order = np.argsort(-worth, kind="stable").tolist()
    groups = groups_of(order, is_better)
    differences = reference_differences(common, reference)
    rows = []
    for system in order:
        numbers_of_groups = [n for n, group in enumerate(groups, 1) if system in group]
        row = RankedSystem(
            system=scores.systems[system],
            rank=1 + int((worth > worth[system] + ROUNDING).sum()),
            rank_interval=rank_interval_of(is_better, system),
            groups=tuple(numbers_of_groups),
            overall=overall[system],
            categories={category: column[system] for category, column in categories.items()},
            missing=int(missing[system].sum()),
            difference=differences.get(system),
        )
        rows.append(row)
    return Leaderboard(
        rows=tuple(rows),
        n=len(common.clusters),
        left_out=missing.shape[1] - len(common.clusters),
        clusters=len(bootstrap.clusters),
    )


def rank_interval_of(is_better: NDArray[np.bool_], system: int) -> tuple[int, int]:
    """Return the lowest and the highest rank that clear wins leave open: one more than the systems
    that are better, and as many as are not worse.
    """
    better = int(is_better[:, system].sum())
    worse = int(is_better[system].sum())
    return 1 + better, len(is_better) - worse


def _check_names(systems: Sequence[str], reference: str | None) -> None:
    """Raise `UsageError` if there is no system, two have one name, or the reference is none of
    them.
    """
    if not systems:
        raise errors.UsageError("no system to rank, expected at least one")
    repeated = [name for name, count in Counter(systems).items() if count > 1]
    if repeated:
        raise errors.UsageError(
            f"more than one system is named {first_of(repeated)}: give each its own name"
        )
    check_reference(systems, reference)


def check_reference(systems: Sequence[str], reference: str | None) -> None:
    """Raise `UsageError` if the reference is none of the systems."""
    if reference is not None and reference not in systems:
        raise errors.UsageError(
            f"reference {reference!r} is not among the systems, expected one of: "
            f"{first_of(systems)}{did_you_mean(reference, systems)}"
        )


def _check_scores(scores: SystemScores, common: SystemScores, scale: Scale) -> None:
    """Raise `UsageError` if there is no pair, a score is beyond the scale, or a category has no
    pair among those in `common`, which all systems have a score of.
    """
    if not scores.categories:
        raise errors.UsageError("no pair to rank systems by, expected at least one")
    lowest, highest = scale or (-np.inf, np.inf)
    for system, values in zip(scores.systems, scores.scores, strict=True):
        beyond = values[(values < lowest) | (values > highest)]
        if len(beyond):
            raise errors.UsageError(
                f"{system}: score {beyond[0]:g} is beyond the scale, expected {lowest:g} to "
                f"{highest:g}: rank measures of one scale"
            )
    for category in in_order(scores.categories):
        if category in common.categories:
            continue
        lacking = np.isnan(scores.in_category(category).scores).sum(axis=1)
        worst = int(lacking.argmax())
        raise errors.UsageError(
            f"{category}: no pair has a score of every system, expected at least one; "
            f"{scores.systems[worst]} lacks most ({lacking[worst]}): score its pairs, or leave it "
            "out"
        )


def _category_columns(
    scores: SystemScores, bootstrap: simultaneous_intervals.ClusterBootstrap, scale: Scale
) -> dict[str, list[RankedMean]]:
    """Return the means of all systems in each category, with intervals that are simultaneous within
    it.
    """
    columns = {}
    for category in in_order(scores.categories):
        inside = scores.in_category(category)
        means = inside.means()
        resampled = bootstrap.errors(inside.clusters, means)
        columns[category] = _column(means, resampled, scale)
    return columns


def _column(means: Sequence[Estimate], resampled: Floats, scale: Scale) -> list[RankedMean]:
    """Return the means of all systems in one column with simultaneous intervals, which stay within
    the scale if it has ends. `resampled` are the errors of the means.
    """
    alpha = simultaneous_intervals.alpha_of_means(resampled, means[0].even_clusters)
    if scale is None:
        intervals = [mean.interval(alpha) for mean in means]
    else:
        intervals = bounded_intervals(means, [scale] * len(means), alpha)
    return [RankedMean(mean.mean, ci95) for mean, ci95 in zip(means, intervals, strict=True)]


class Compared(Protocol):
    """Systems whose differences can be estimated."""

    @property
    def systems(self) -> Sequence[str]: ...

    def difference(self, system: int, other: int) -> Estimate:
        """Estimate the difference of two systems, by their positions."""
        ...


def clear_wins(compared: Compared, alpha: float, sign: int = 1) -> NDArray[np.bool_]:
    """Tell for every two systems whether the first (row) is shown to be better than the second
    (column).

    `alpha` is that of `simultaneous_intervals.alpha_of_differences`; `sign` is -1 where lower is
    better. Simultaneous intervals of all differences, at 95%, must exclude 0 (Mogstad, Romano,
    Shaikh and Wilhelm, Review of Economic Studies 2024), and there must be enough clusters to show
    it (`Estimate.can_show`).
    """
    count = len(compared.systems)
    is_better = np.zeros((count, count), dtype=bool)
    for system, other in combinations(range(count), 2):
        difference = compared.difference(system, other)
        interval = difference.interval(alpha)
        if interval is None or not difference.can_show(alpha / 2):  # the interval has two sides
            continue
        low, high = sorted(sign * end for end in interval)
        is_better[system, other] = low > ROUNDING
        is_better[other, system] = high < -ROUNDING
    return is_better


def groups_of(order: Sequence[int], is_better: NDArray[np.bool_]) -> list[set[int]]:
    """Return the largest sets of systems that cannot be told apart, that of the best first; `order`
    are all systems, the best first.

    Start with one set of all, split sets that hold two systems which can be told apart, and drop
    sets that another set holds (insert and absorb: Piepho, J. Comput. Graph. Stat. 2004).
    """
    groups = [set(order)]
    for better, worse in np.argwhere(is_better).tolist():
        split: list[set[int]] = []
        for group in groups:
            if {better, worse} <= group:
                split += [group - {better}, group - {worse}]
            else:
                split.append(group)
        groups = _largest(split)
    ranks = {system: rank for rank, system in enumerate(order)}

    def best_first(group: set[int]) -> list[int]:
        return sorted(ranks[system] for system in group)

    return sorted(groups, key=best_first)


def _largest(groups: Sequence[set[int]]) -> list[set[int]]:
    """Return the sets that are not part of another or equal to an earlier one, the largest
    first.
    """
    largest: list[set[int]] = []
    for group in sorted(groups, key=len, reverse=True):
        if not any(group <= other for other in largest):
            largest.append(group)
    return largest


def reference_differences(
    compared: Compared, reference: str | None
) -> dict[int, ReferenceDifference]:
    """Return the difference of each other system from the reference, by the position of the system;
    none without a reference.
    """
    if reference is None:
        return {}
    base = compared.systems.index(reference)
    estimates = {
        system: compared.difference(system, base)
        for system in range(len(compared.systems))
        if system != base
    }
    p_values = []
    for difference in estimates.values():
        one_sided = min(difference.p_below(0), difference.p_above(0))  # doubled for two sides
        p_values.append(min(1.0, 2 * one_sided))
    differences = {}
    for system, p in zip(estimates, holm(p_values), strict=True):
        difference = estimates[system]
        differences[system] = ReferenceDifference(difference.mean, difference.interval(), p)
    return differences
