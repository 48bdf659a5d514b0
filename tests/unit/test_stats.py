"""Statistics against scipy, hand-worked examples and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from pytest_imgedit.stats import macro, standard_error, summarize


def own_clusters(values):
    return [str(index) for index in range(len(values))]


@given(st.lists(st.floats(0, 10), min_size=2, max_size=30))
def test_without_shared_sources_the_interval_is_students(values):
    summary = summarize(values, own_clusters(values))
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.std == pytest.approx(np.std(values, ddof=1))
    assert summary.median == pytest.approx(np.median(values))
    error = scipy_stats.sem(values)
    low, high = summary.mean - summary.ci95[0], summary.ci95[1] - summary.mean
    assert low == pytest.approx(high, abs=1e-9)
    assert high == pytest.approx(scipy_stats.t.ppf(0.975, len(values) - 1) * error, abs=1e-9)


def test_standard_error_of_clusters_by_hand():
    # mean 4; cluster sums of deviations: (-3 - 1) = -4 and (1 + 3) = 4; √(2/1 · (16 + 16)) / 4 = 2
    assert standard_error(np.array([1.0, 3.0, 5.0, 7.0]), ["a", "a", "b", "b"]) == pytest.approx(2.0)


def test_repeating_every_pair_does_not_shrink_the_interval():
    values = [1.0, 4.0, 6.0, 9.0]
    once = summarize(values, own_clusters(values))
    twice = summarize(values * 2, own_clusters(values) * 2)
    assert twice.ci95 == pytest.approx(once.ci95)


def test_small_and_empty_groups_have_no_interval():
    assert summarize([], [], errors=3).mean is None
    assert summarize([], [], errors=3).n == 3
    one = summarize([4.0], ["a"])
    assert (one.mean, one.std, one.ci95) == (4.0, None, None)
    assert summarize([4.0, 5.0], ["a", "a"]).ci95 is None


def test_macro_weighs_categories_alike():
    many, few = summarize([2.0] * 50, own_clusters([0] * 50)), summarize([8.0, 8.0], ["x", "y"])
    overall = macro([many, few], (52, 52, 0))
    assert overall.mean == 5.0
    assert overall.n == 52


def test_macro_is_undefined_when_a_category_has_no_score():
    assert macro([summarize([2.0], ["a"]), summarize([], [], errors=1)], (2, 1, 1)).mean is None


def test_macro_standard_error_by_hand():
    parts = [summarize([1.0, 3.0], ["a", "b"]), summarize([4.0, 8.0], ["c", "d"])]
    # SEs 1 and 2: √(1 + 4) / 2; Welch-Satterthwaite freedom (1 + 4)² / (1 + 16)
    overall = macro(parts, (4, 4, 0))
    assert overall.se == pytest.approx(5**0.5 / 2)
    half = scipy_stats.t.ppf(0.975, 25 / 17) * 5**0.5 / 2
    assert overall.ci95 == pytest.approx((4 - half, 4 + half))


def test_intervals_cover_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(600):
        shared = generator.normal(0, 1, 20).repeat(3)
        values = 5 + shared + generator.normal(0, 0.5, 60)
        low, high = summarize(list(values), [str(index // 3) for index in range(60)]).ci95
        covered += low <= 5 <= high
    assert 0.92 <= covered / 600 <= 0.98
