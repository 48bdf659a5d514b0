"""Agreement of raters among each other: against published figures and a plain bootstrap."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from plain_bootstrap import drawn_pairs
from scipy import stats

from pytest_imgedit.stats.estimates import ALPHA
from pytest_imgedit.stats.raters import rater_agreement
from pytest_imgedit.stats.resampling import Statistic, resample

_ = np.nan
#: Four observers and twelve units: the data with missing values of Krippendorff, "Computing
#: Krippendorff's Alpha-Reliability" (2011), which gives 0.849 as the interval α.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
)


def plain_alpha(ratings):
    """1 - observed / expected disagreement, from all two ratings."""
    units = [column[~np.isnan(column)] for column in ratings.T]
    units = [unit for unit in units if len(unit) >= 2]
    values = np.concatenate(units)
    observed = 0.0
    for unit in units:
        observed += sum((a - b) ** 2 for a, b in itertools.permutations(unit, 2)) / (len(unit) - 1)
    expected = sum((a - b) ** 2 for a, b in itertools.permutations(values, 2)) / (len(values) - 1)
    return 1 - observed / expected


def plain_ceilings(ratings):
    """Mean ρ of raters against the mean of the others, and of all two raters."""
    others = []
    for rater, own in enumerate(ratings):
        rest = np.delete(ratings, rater, axis=0)
        shared = ~np.isnan(own) & ~np.isnan(rest).all(axis=0)
        mean = np.round(np.nanmean(rest[:, shared], axis=0), 9)
        others.append(stats.spearmanr(own[shared], mean)[0])
    raters = []
    for first, second in itertools.combinations(ratings, 2):
        shared = ~np.isnan(first) & ~np.isnan(second)
        raters.append(stats.spearmanr(first[shared], second[shared])[0])
    return np.mean(others), np.mean(raters)


def random_ratings():
    """Ratings in 0 to 4 by three raters of 12 sources with 3 edits each, some of them missing."""
    generator = np.random.default_rng(5)
    quality = generator.integers(0, 5, 36)
    ratings = np.clip(quality + generator.integers(-1, 2, (3, 36)), 0, 4).astype(float)
    ratings[generator.random((3, 36)) < 0.15] = np.nan
    return ratings, [str(number // 3) for number in range(36)]


def test_alpha_is_that_of_krippendorffs_example():
    result = rater_agreement(KRIPPENDORFF, list("abcdefghijkl"))
    assert result.raters == 4
    assert result.alpha.value == pytest.approx(0.849, abs=0.0005)
    assert result.alpha.value == pytest.approx(plain_alpha(KRIPPENDORFF), abs=1e-12)


def test_measures_of_all_resamples_are_those_of_the_plain_computation():
    ratings, clusters = random_ratings()
    with patch("pytest_imgedit.stats.resampling.RESAMPLES", 40):
        samples = resample(clusters)
        result = rater_agreement(ratings, clusters)
    plain = []
    for column in range(41):
        pairs, _ = drawn_pairs(samples, column)
        plain.append((plain_alpha(ratings[:, pairs]), *plain_ceilings(ratings[:, pairs])))
    measures = (result.alpha, result.against_others, result.against_rater)
    for measure, values in zip(measures, np.array(plain).T, strict=True):
        assert measure.value == pytest.approx(values[0], abs=1e-9)
        ends = np.quantile(values[1:], [ALPHA / 2, 1 - ALPHA / 2]).tolist()
        assert measure.ci95 == pytest.approx(ends, abs=1e-9)


def test_alpha_does_not_depend_on_the_scale():
    ratings, clusters = random_ratings()
    alpha = rater_agreement(ratings, clusters).alpha
    moved = rater_agreement(25 * ratings + 1000, clusters).alpha
    assert moved.value == pytest.approx(alpha.value)
    assert moved.ci95 == pytest.approx(alpha.ci95)


def test_raters_who_agree_have_an_alpha_of_one():
    result = rater_agreement(np.tile([1.0, 2.0, 3.0, 4.0], (3, 1)), list("abcd"))
    assert result.alpha.value == 1
    assert result.against_others.value == pytest.approx(1)
    assert (result.least, result.most) == pytest.approx((1, 1))


def test_least_and_most_are_those_of_two_raters():
    ratings = np.array([[1.0, 2, 3, 4], [1, 2, 3, 4], [4, 3, 2, 1]])
    result = rater_agreement(ratings, list("abcd"))
    assert (result.least, result.most) == pytest.approx((-1, 1))
    assert result.against_rater.value == pytest.approx(-1 / 3)


@pytest.mark.parametrize(
    "ratings",
    [
        pytest.param([[1.0, 2.0, 3.0, 4.0]], id="one rater"),
        pytest.param([[1.0, 2.0, np.nan, np.nan], [np.nan, np.nan, 3.0, 4.0]], id="none shared"),
        pytest.param([[0.1 + 0.2] * 4, [0.3] * 4], id="all alike"),
        pytest.param([[], []], id="no pair"),
    ],
)
def test_without_a_pair_of_different_ratings_nothing_is_measured(ratings):
    table = np.array(ratings)
    result = rater_agreement(table, [str(number) for number in range(table.shape[1])])
    absent = Statistic(None, None)
    assert (result.alpha, result.against_others, result.against_rater) == (absent, absent, absent)
    assert result.least is None


def test_a_rater_without_ratings_is_not_counted():
    ratings = np.array([[1.0, 2, 3, 4], [1, 2, 4, 3], [np.nan] * 4])
    result = rater_agreement(ratings, list("abcd"))
    assert result.raters == 2
    assert result.against_others.value == pytest.approx(0.8)
