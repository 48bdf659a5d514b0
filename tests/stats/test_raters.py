"""Agreement of raters among each other: against published figures and a plain bootstrap."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from plain_bootstrap import drawn_pairs
from scipy import stats

from pytest_imgedit.stats import raters, resampling
from pytest_imgedit.stats.estimates import ALPHA
from pytest_imgedit.stats.raters import RatingRows
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


def rater_agreement(table, clusters):
    """Compare raters by a table in shape (raters, pairs) with NaN for a missing rating."""
    rater, pair = np.nonzero(~np.isnan(table))
    return raters.rater_agreement(RatingRows(rater, pair, table[rater, pair]), clusters)


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
    two = []
    for first, second in itertools.combinations(ratings, 2):
        shared = ~np.isnan(first) & ~np.isnan(second)
        two.append(stats.spearmanr(first[shared], second[shared])[0])
    return np.mean(others), np.mean(two)


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


def crowd(people, pairs, each, seed=0):
    """Ratings of 1 to 5 by many people, each of some of the pairs."""
    generator = np.random.default_rng(seed)
    quality = generator.normal(3, 1, pairs)
    table = np.full((people, pairs), np.nan)
    for row in table:
        rated = generator.choice(pairs, each, replace=False)
        row[rated] = np.clip(np.round(quality[rated] + generator.normal(0, 1, each)), 1, 5)
    return table


def counted_lists(monkeypatch):
    """Count the correlations that are computed, and the numbers in them."""
    seen = {"lists": 0, "numbers": 0}
    compute = raters.spearman_of_each

    def counting(lists, samples):
        def each():
            for paired in lists:
                seen["lists"] += 1
                seen["numbers"] += len(paired.x)
                yield paired

        yield from compute(each(), samples)

    monkeypatch.setattr(raters, "spearman_of_each", counting)
    return seen


@pytest.mark.parametrize(
    ("people", "pairs", "each"),
    [
        pytest.param(400, 12, 12, id="all rate few pairs"),
        pytest.param(400, 24, 12, id="raters share half of their pairs"),
        pytest.param(400, 200, 6, id="few raters share pairs"),
        pytest.param(150, 60, 40, id="raters of many pairs"),
    ],
)
def test_work_is_linear_in_ratings(monkeypatch, people, pairs, each):
    monkeypatch.setattr("pytest_imgedit.stats.resampling.RESAMPLES", 2)
    monkeypatch.setattr(raters, "COMPARED", 300)
    monkeypatch.setattr(raters, "CANDIDATES", 20_000)
    clusters = [str(pair) for pair in range(pairs)]
    seen = counted_lists(monkeypatch)
    rater_agreement(crowd(people, pairs, each), clusters)
    assert seen["lists"] <= people + 300
    assert seen["numbers"] <= (people + 300) * each


def test_a_sample_of_raters_is_near_all_of_them(monkeypatch):
    monkeypatch.setattr("pytest_imgedit.stats.resampling.RESAMPLES", 200)
    table = crowd(120, 12, 12)
    clusters = [str(pair) for pair in range(12)]
    monkeypatch.setattr(raters, "COMPARED", 120 * 119)
    whole = rater_agreement(table, clusters)
    assert (whole.compared, whole.is_sample) == (120 * 119 // 2, False)
    monkeypatch.setattr(raters, "COMPARED", 1_000)
    sample = rater_agreement(table, clusters)
    assert (sample.compared, sample.is_sample) == (1_000, True)
    assert sample == rater_agreement(table, clusters)
    assert (sample.alpha, sample.against_others) == (whole.alpha, whole.against_others)
    assert sample.against_rater.value == pytest.approx(whole.against_rater.value, abs=0.02)
    assert sample.against_rater.ci95 == pytest.approx(whole.against_rater.ci95, abs=0.02)
    assert whole.least <= sample.least <= sample.most <= whole.most


def test_raters_who_share_pairs_are_found_among_many(monkeypatch):
    # 40 batches of 5 pairs with 5 raters each: of 19,900 two raters, 400 share their batch
    monkeypatch.setattr("pytest_imgedit.stats.resampling.RESAMPLES", 2)
    table = np.full((200, 200), np.nan)
    generator = np.random.default_rng(1)
    for batch in range(40):
        rows = slice(5 * batch, 5 * batch + 5)
        table[rows, rows] = generator.permuted(np.tile(np.arange(5.0), (5, 1)), axis=1)
    clusters = [str(pair) for pair in range(200)]
    found = rater_agreement(table, clusters)
    assert (found.compared, found.is_sample) == (400, False)
    monkeypatch.setattr(raters, "COMPARED", 19_900)
    all_compared = rater_agreement(table, clusters)
    assert found.against_rater.value == pytest.approx(all_compared.against_rater.value)


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("seed", range(4))
def test_short_lists_together_have_the_correlations_of_each_alone(seed, missing):
    generator = np.random.default_rng(seed)
    clusters = [str(number) for number in generator.integers(0, 9, 30)]
    with patch("pytest_imgedit.stats.resampling.RESAMPLES", 50):
        samples = resample(clusters)
    lists = []
    for _ in range(20):
        kept = np.flatnonzero(generator.random(30) >= missing)
        x, y = generator.integers(0, 4, (2, len(kept))).astype(float)
        lists.append(resampling.Paired(x, y / 3, samples.cluster[kept]))
    with patch("pytest_imgedit.stats.resampling.SHORT", 10_000):
        together = np.array(list(resampling.spearman_of_each(lists, samples)))
    with patch("pytest_imgedit.stats.resampling.SHORT", 0):
        alone = np.array(list(resampling.spearman_of_each(lists, samples)))
    order = [np.lexsort(np.nan_to_num(rows, nan=2).T) for rows in (together, alone)]
    assert together[order[0]] == pytest.approx(alone[order[1]], abs=1e-12, nan_ok=True)
