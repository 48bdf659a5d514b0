"""Agreement of a judge with people: against scipy and a plain bootstrap, by hand, and by how its
intervals behave.
"""

from __future__ import annotations

import warnings
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_bootstrap import drawn_pairs
from scipy import stats

from pytest_imgedit.stats.agreement import agreement
from pytest_imgedit.stats.estimates import ALPHA
from pytest_imgedit.stats.resampling import Statistic, resample, spearman, with_interval

MEASURES = ("spearman", "kendall", "pairwise", "within_source")


def plain_measures(scores, ratings, copies):
    """The four measures of one sample from their definitions; NaN where one is not defined."""
    agreeing = {"pairwise": [], "within_source": []}
    for first in range(len(scores)):
        for second in range(len(scores)):
            if ratings[first] > ratings[second]:
                share = 0.5 + 0.5 * np.sign(scores[first] - scores[second])
                agreeing["pairwise"].append(share)
                if copies[first] == copies[second]:
                    agreeing["within_source"].append(share)
    values = dict.fromkeys(MEASURES, np.nan)
    values |= {name: np.mean(shares) for name, shares in agreeing.items() if shares}
    if len(scores) >= 3 and np.ptp(scores) > 0 and np.ptp(ratings) > 0:
        values["spearman"] = stats.spearmanr(scores, ratings)[0]
        values["kendall"] = stats.kendalltau(scores, ratings)[0]
    return values


def rated_edits(seed, sources, edits):
    """Scores, ratings and sources of random edits, with ties on both sides."""
    generator = np.random.default_rng(seed)
    clusters = [f"source {number % sources}" for number in range(sources * edits)]
    ratings = generator.integers(0, 4, len(clusters)) / 3
    scores = np.round(3 * ratings + generator.normal(0, 1.5, len(clusters)))
    return scores, ratings, clusters


@pytest.mark.parametrize(
    ("seed", "sources", "edits"),
    [
        pytest.param(0, 12, 3, id="few edits of each source"),
        pytest.param(1, 20, 1, id="one edit of each source"),
        pytest.param(2, 4, 6, id="few sources"),
    ],
)
def test_measures_of_all_resamples_are_those_of_the_plain_computation(seed, sources, edits):
    scores, ratings, clusters = rated_edits(seed, sources, edits)
    with patch("pytest_imgedit.stats.resampling.RESAMPLES", 60):
        samples = resample(clusters)
        result = agreement(scores, ratings, clusters)
    plain = []
    for column in range(61):
        pairs, copies = drawn_pairs(samples, column)
        plain.append(plain_measures(scores[pairs], ratings[pairs], copies))
    for name in MEASURES:
        measure = getattr(result, name)
        values = np.array([row[name] for row in plain])
        if np.isnan(values[0]):
            assert measure == Statistic(None, None)
            continue
        assert measure.value == pytest.approx(values[0], abs=1e-9)
        ends = np.nanquantile(values[1:], [ALPHA / 2, 1 - ALPHA / 2])
        assert measure.ci95 == pytest.approx(ends.tolist(), abs=1e-9)


@pytest.mark.parametrize("block", [1, 100])
def test_size_of_blocks_does_not_matter(block):
    scores, ratings, clusters = rated_edits(3, 9, 3)
    with patch("pytest_imgedit.stats.resampling.RESAMPLES", 20):
        samples = resample(clusters)
        whole = spearman(scores, ratings, samples), agreement(scores, ratings, clusters)
        with (
            patch("pytest_imgedit.stats.resampling.BLOCK", block),
            patch("pytest_imgedit.stats.resampling.ROWS", 2),
        ):
            in_blocks = spearman(scores, ratings, samples), agreement(scores, ratings, clusters)
    assert in_blocks[0].tolist() == whole[0].tolist()
    assert in_blocks[1] == whole[1]


def test_values_lie_in_their_intervals():
    scores, ratings, clusters = rated_edits(4, 30, 4)
    result = agreement(scores, ratings, clusters)
    assert (result.n, result.sources) == (120, 30)
    for name in MEASURES:
        measure = getattr(result, name)
        assert measure.ci95[0] < measure.value < measure.ci95[1]


def test_pairwise_accuracy_by_hand():
    # people rank 1 < 2 < 3 and tie 3 with 3; of the five ranked pairs the judge has two right, two
    # wrong, one tied
    result = agreement([5.0, 5.0, 9.0, 4.0], [1.0, 2.0, 3.0, 3.0], list("abcd"))
    assert result.pairwise.value == pytest.approx(2.5 / 5)
    assert agreement([5.0, 5.0, 9.0, 4.0], [1.0] * 4, list("abcd")).pairwise.value is None


def test_a_judge_that_only_tells_easy_sources_from_hard_ones_ranks_none_within_a_source():
    # the three edits of an easy source are all rated above those of a hard one; the judge gives
    # each source one score
    ratings = [7.0, 8.0, 9.0, 1.0, 2.0, 3.0]
    result = agreement([8.0] * 3 + [2.0] * 3, ratings, ["easy"] * 3 + ["hard"] * 3)
    assert result.ranked_within == 6
    assert result.within_source.value == 0.5
    assert result.pairwise.value == pytest.approx((9 + 6 / 2) / 15)


def test_a_judge_that_knows_no_source_may_rank_all_edits_within_a_source():
    ratings = [7.0, 8.0, 9.0, 1.0, 2.0, 3.0]
    result = agreement([1.0, 2.0, 3.0] * 2, ratings, ["easy"] * 3 + ["hard"] * 3)
    assert result.within_source.value == 1
    assert result.pairwise.value < 1


def test_edits_of_different_sources_are_no_pairs_within_a_source():
    result = agreement([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], list("abc"))
    assert result.within_source == Statistic(None, None)
    assert result.ranked_within == 0


def test_means_that_differ_by_rounding_are_tied():
    assert 0.1 + 0.2 != 0.3
    result = agreement([1.0, 2.0, 3.0], [0.1 + 0.2, 0.3, 0.4], list("abc"))
    assert result.spearman.value == stats.spearmanr([1, 2, 3], [0, 0, 1])[0]


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=12))
def test_measures_are_in_range_or_absent(rows):
    with patch("pytest_imgedit.stats.resampling.RESAMPLES", 10), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = agreement(
            [a for a, _ in rows], [b for _, b in rows], [str(n // 2) for n in range(len(rows))]
        )
    for name, low in (("spearman", -1), ("kendall", -1), ("pairwise", 0), ("within_source", 0)):
        value = getattr(result, name).value
        assert value is None or low - 1e-9 <= value <= 1 + 1e-9


def test_pairs_of_one_source_count_as_one_in_the_interval():
    generator = np.random.default_rng(1)
    people, judge = generator.normal(size=12), generator.normal(size=12)
    names = [str(n) for n in range(12)]
    alone = agreement(list(judge), list(people), names).pairwise.ci95
    copies = agreement(list(judge) * 4, list(people) * 4, names * 4).pairwise.ci95
    assert copies[1] - copies[0] == pytest.approx(alone[1] - alone[0], rel=0.2)


def test_fewer_than_three_sources_have_no_interval():
    result = agreement([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], list("aabb"))
    assert result.spearman.value is not None
    assert result.spearman.ci95 is None


@pytest.mark.parametrize(
    ("undefined", "has_interval"),
    [pytest.param(9, True, id="in 9 of 100"), pytest.param(10, False, id="in 10 of 100")],
)
def test_a_measure_that_many_resamples_lack_has_no_interval(undefined, has_interval):
    values = np.concatenate(([0.5], np.linspace(0, 1, 100 - undefined), [np.nan] * undefined))
    result = with_interval(values)
    assert result.value == 0.5
    assert (result.ci95 is not None) == has_interval
