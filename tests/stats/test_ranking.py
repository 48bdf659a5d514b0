"""Leaderboards: against plain slow computations, comparisons of two runs, and simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from documents import a_baseline, a_baseline_item, baseline_item

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.measures import SCORE_ONLY
from pytest_imgedit.stats.comparison import PairedItems, compare
from pytest_imgedit.stats.estimates import estimate
from pytest_imgedit.stats.ranking import SystemScores, rank
from pytest_imgedit.stats.simultaneous_intervals import (
    ClusterBootstrap,
    alpha_of_differences,
    alpha_of_means,
)


def drawn(means, *, sources=20, categories=1, crosses=False, seed=0, shared=1.0):
    """Scores with 2 pairs a source; `shared` is the spread of sources that all systems share."""
    generator = np.random.default_rng(seed)
    source = np.repeat(np.arange(sources), 2)
    pairs = len(source)
    kind = np.arange(pairs) if crosses else source
    scores = np.round(
        np.array(means)[:, None]
        + generator.normal(0, shared, sources)[source]
        + generator.normal(0, 0.5, (len(means), pairs)),
        3,
    )
    return SystemScores(
        [f"system {n}" for n in range(len(means))],
        scores,
        [f"c{k % categories}" for k in kind.tolist()],
        [f"s{n}" for n in source.tolist()],
    )


def by_system(board):
    return {row.system: row for row in board.rows}


def slow_errors(scores, draws):
    """Resampled macro means less the means, pair by pair; sources and categories are even."""
    categories = sorted(set(scores.categories))
    names = sorted(set(scores.clusters))

    def macro_mean(values, counts):
        means = []
        for category in categories:
            total = number = 0.0
            for value, kind, source in zip(values, scores.categories, scores.clusters, strict=True):
                if kind == category:
                    total += counts[source] * value
                    number += counts[source]
            means.append(total / number)
        return sum(means) / len(means)

    once = dict.fromkeys(names, 1)
    return [
        [
            macro_mean(values, dict(zip(names, row, strict=True))) - macro_mean(values, once)
            for values in scores.scores.tolist()
        ]
        for row in (draws + 1).tolist()
    ]


@pytest.mark.parametrize("categories", [1, 2])
def test_resampled_errors_are_those_of_resampled_pairs(categories):
    scores = drawn([5.0, 5.5, 6.0], sources=8, categories=categories)
    bootstrap = ClusterBootstrap.of(scores.clusters, scores.categories)
    errors = bootstrap.errors(scores.clusters, [scores.estimate(row) for row in scores.scores])
    few = bootstrap.draws[:40]
    assert errors[:40] == pytest.approx(np.array(slow_errors(scores, few)), abs=1e-5)
    assert (few.sum(axis=1) == 0).all()


@pytest.mark.parametrize("crosses", [False, True])
def test_sources_are_drawn_within_categories_unless_they_cross_them(crosses):
    scores = drawn([5.0], categories=2, crosses=crosses)
    bootstrap = ClusterBootstrap.of(scores.clusters, scores.categories)
    is_even = [int(name[1:]) % 2 == 0 for name in bootstrap.clusters.tolist()]
    moved = bootstrap.draws[:, is_even].sum(axis=1)
    assert moved.any() == crosses


def test_error_rates_are_those_of_the_largest_t_value():
    errors = np.random.default_rng(0).normal(size=(8_000, 2)) * [1, 5]
    # two independent intervals: 1 - √0.95; one difference: the 5% of one interval
    assert alpha_of_means(errors, 50) == pytest.approx(1 - 0.95**0.5, rel=0.1)
    assert alpha_of_differences(errors, 50) == 0.05
    assert alpha_of_means(errors[:, :1], 50) == 0.05
    assert alpha_of_means(errors, 15) == 0.025
    assert alpha_of_differences(np.column_stack([errors, errors]), 15) == 0.05 / 6


def test_intervals_of_systems_that_err_alike_are_no_wider_than_those_of_one():
    base = drawn([5.0])
    alike = replace(
        base, systems=list("abcdef"), scores=base.scores + np.arange(6.0).reshape(-1, 1)
    )
    (alone,) = rank(base).rows
    row = by_system(rank(alike))["a"]
    assert row.overall.ci95 == pytest.approx(alone.overall.ci95, rel=0.02)
    apart = rank(drawn([5.0] * 6)).rows[0].overall.ci95
    assert apart[1] - apart[0] > 1.1 * (alone.overall.ci95[1] - alone.overall.ci95[0])


def test_one_system_has_the_interval_of_its_own_report():
    scores = drawn([5.0], categories=2)
    own = estimate(scores.scores[0].tolist(), scores.clusters, scores.categories)
    (row,) = rank(scores).rows
    assert (row.rank, row.rank_interval, row.groups, row.difference) == (1, (1, 1), (1,), None)
    assert row.overall.ci95 == own.interval()
    (row,) = rank(scores, scale=(0.0, 10.0)).rows
    assert row.overall.ci95 == own.bounded_interval(0.0, 10.0)


def items(values):
    return [a_baseline_item(f"p{n}", value) for n, value in enumerate(values)]


def test_two_systems_differ_as_a_comparison_says():
    generator = np.random.default_rng(1)
    before, now = np.round(np.clip(generator.normal([[6], [6.5]], 1, (2, 24)), 0, 10), 3)
    baseline = a_baseline(
        *(baseline_item(f"p{n}", value) for n, value in enumerate(before.tolist()))
    )
    paired = PairedItems(baseline, items(now.tolist()), SCORE_ONLY)
    row = compare(paired, 0.05).rows["overall"]
    names = [item.cluster for item in items(now.tolist())]
    scores = SystemScores(["main", "new"], np.array([before, now]), ["physics"] * 24, names)
    board = by_system(rank(scores, reference="main"))
    difference = board["new"].difference
    assert board["main"].difference is None
    assert (difference.mean, difference.ci95) == (row.difference, row.ci95)
    # a comparison adjusts one-sided p values over `overall` and the only category, which are alike
    assert difference.p == min(row.p, row.p_rise)
    assert (board["main"].overall.mean, board["new"].overall.mean) == pytest.approx(
        (row.before, row.now)
    )


def test_p_values_are_adjusted_over_all_systems_but_the_reference():
    scores = drawn([5.0, 5.2, 5.6, 6.0])
    board = by_system(rank(scores, reference="system 0"))
    single = {}
    for n in (1, 2, 3):
        two = replace(scores, systems=scores.systems[::n][:2], scores=scores.scores[::n][:2])
        single[n] = by_system(rank(two, reference="system 0"))[f"system {n}"].difference.p
    largest = 0.0
    for position, n in enumerate(sorted(single, key=single.get)):
        largest = max(largest, min(1.0, (3 - position) * single[n]))
        assert board[f"system {n}"].difference.p == largest


@pytest.mark.parametrize("crosses", [False, True])
def test_order_of_systems_and_pairs_does_not_count(crosses):
    scores = drawn([5.0, 5.4, 5.2, 6.0], categories=2, crosses=crosses)
    order = [2, 0, 3, 1]
    shuffled = replace(
        scores, systems=[scores.systems[n] for n in order], scores=scores.scores[order]
    ).select(np.random.default_rng(0).permutation(40))
    once, again = (by_system(rank(one, reference="system 0")) for one in (scores, shuffled))
    for name, row in once.items():
        assert again[name].rank_interval == row.rank_interval
        assert again[name].groups == row.groups
        assert again[name].overall.ci95 == pytest.approx(row.overall.ci95)
        for category, mean in row.categories.items():
            assert again[name].categories[category].ci95 == pytest.approx(mean.ci95)
    assert [row.system for row in rank(shuffled).rows] == [row.system for row in rank(scores).rows]


def test_pairs_that_a_system_lacks_are_counted_and_left_out_for_all():
    scores = drawn([5.0, 6.0, 7.0])
    partial = scores.scores.copy()
    partial[0, [0, 1]] = partial[1, [1, 2]] = np.nan
    board = rank(replace(scores, scores=partial), reference="system 2")
    assert (board.n, board.left_out, board.clusters) == (37, 3, 19)
    assert [by_system(board)[f"system {n}"].missing for n in range(3)] == [2, 2, 0]
    whole = rank(scores.select(np.arange(3, 40)), reference="system 2")
    assert [replace(row, missing=0) for row in board.rows] == list(whole.rows)


def test_lower_scores_can_be_better():
    scores = drawn([5.0, 5.4, 6.5])
    up = by_system(rank(scores))
    down = by_system(rank(scores, direction="lower"))
    assert rank(scores, direction="lower").rows[0].system == "system 0"
    for name, row in up.items():
        low, high = row.rank_interval
        assert down[name].rank_interval == (4 - high, 4 - low)
        assert down[name].rank == 4 - row.rank
        assert down[name].overall == row.overall


def test_equal_systems_share_rank_and_group():
    scores = drawn([5.0, 5.0, 9.0])
    scores.scores[1] = scores.scores[0]
    board = by_system(rank(scores, reference="system 0"))
    assert [board[f"system {n}"].rank for n in range(3)] == [2, 2, 1]
    assert [board[f"system {n}"].rank_interval for n in range(3)] == [(2, 3), (2, 3), (1, 1)]
    assert [board[f"system {n}"].groups for n in range(3)] == [(2,), (2,), (1,)]
    assert (board["system 1"].difference.mean, board["system 1"].difference.p) == (0.0, 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_systems_can_be_told_apart_exactly_if_they_share_no_group(seed):
    scores = drawn(np.random.default_rng(seed).uniform(5, 6, 9), seed=seed)
    rows = rank(scores).rows
    assert len({row.groups for row in rows}) > 1
    for row in rows:
        apart = sum(not set(row.groups) & set(other.groups) for other in rows)
        low, high = row.rank_interval
        assert apart == (low - 1) + (len(rows) - high)
        assert low <= row.rank <= high


@pytest.mark.parametrize(("sources", "intervals"), [(7, [(1, 2)] * 2), (12, [(1, 1), (2, 2)])])
def test_constant_scores_show_a_difference_over_enough_sources_only(sources, intervals):
    pairs = [str(n) for n in range(sources)]
    scores = SystemScores(["a", "b"], np.array([[8.0], [7.1]]) + np.zeros(sources), pairs, pairs)
    scores = replace(scores, categories=["c"] * sources)
    rows = rank(scores, reference="b").rows
    assert [row.rank_interval for row in rows] == intervals
    assert [row.overall.ci95 for row in rows] == [(8.0, 8.0), (7.1, 7.1)]
    low, high = rank(scores, scale=(0.0, 10.0)).rows[0].overall.ci95
    assert low < 8.0 < high
    assert rows[0].difference.p == 2 * 0.5**sources


@pytest.mark.parametrize(
    "sizes", [(2, 38), (1, 39), (1, 1, 38)], ids=["two pairs", "one pair", "two categories"]
)
def test_a_category_of_one_source_has_the_variance_of_the_others(sizes):
    scores = drawn([5.0, 9.0])
    names = [f"c{place}" for place, size in enumerate(sizes) for _ in range(size)]
    clusters = [
        f"c{place}" if size < 3 else f"{place} {pair}"
        for place, size in enumerate(sizes)
        for pair in range(size)
    ]
    scores = replace(scores, categories=names, clusters=clusters)
    rows = rank(scores, reference="system 0").rows
    assert all(row.overall.ci95 is not None for row in rows)
    assert rows[0].difference.ci95 is not None
    assert rows[0].categories["c0"].ci95 is None
    widest = rank(replace(scores, categories=["c"] * 40)).rows[0].overall.ci95
    low, high = rows[0].overall.ci95
    assert high - low > widest[1] - widest[0]  # one source weighs as much as all others


def test_without_a_category_of_two_sources_ranks_stay_open():
    scores = drawn([5.0, 9.0])
    scores = replace(scores, categories=["x"] * 20 + ["y"] * 20, clusters=["x"] * 20 + ["y"] * 20)
    rows = rank(scores, reference="system 0").rows
    assert [(row.rank_interval, row.overall.ci95) for row in rows] == [((1, 2), None)] * 2
    assert (rows[0].difference.ci95, rows[0].difference.p) == (None, 1.0)


def test_pooled_intervals_hold():
    """In 95% of draws where all categories spread alike."""
    generator = np.random.default_rng(1)
    for sizes in ((4, 1), (3, 3, 1), (5, 5, 1, 1)):
        names = [f"c{place}" for place, size in enumerate(sizes) for _ in range(size)]
        held = 0
        for values in generator.normal(size=(400, len(names))):
            found = estimate(values.tolist(), range(len(names)), names, pools_alone=True)
            low, high = found.interval()
            held += low <= 0 <= high
        assert held >= 370


def test_no_pair_is_named():
    with pytest.raises(UsageError, match="no pair to rank systems by"):
        rank(SystemScores(["a"], np.zeros((1, 0)), [], []))


@pytest.mark.everyday
def test_all_intervals_hold_together_and_equal_systems_are_seldom_ranked():
    held = ranked = 0
    for seed in range(150):
        rows = rank(drawn([5.0] * 6, sources=18, shared=0.2, seed=seed)).rows
        held += all(row.overall.ci95[0] <= 5 <= row.overall.ci95[1] for row in rows)
        ranked += any(row.rank_interval != (1, 6) for row in rows)
    assert 0.89 <= held / 150 <= 0.99
    assert 0.01 <= ranked / 150 <= 0.11
