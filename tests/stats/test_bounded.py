"""What bounded scores show of their mean: against closed formulas, by hand, and by simulation of
rare catastrophes.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy import stats as scipy_stats

from pytest_imgedit.stats.estimates import (
    BETS,
    estimate,
    evidence_above,
    strata,
)


def alone(*values):
    return [(np.array(values), np.ones(len(values)))]


def test_evidence_of_one_stratum_is_the_mean_gain_over_bets():
    # bets λ on 8 and 9 being over 6, at most 1/6 of the stake: the mean of (1 + 2λ)(1 + 3λ) over λ
    # in (0, 1/6)
    expected = integrate.quad(lambda bet: (1 + 2 * bet) * (1 + 3 * bet), 0, 1 / 6)[0] * 6
    assert evidence_above(alone(8.0, 9.0), 6, 0, 10) == pytest.approx(expected, rel=1e-3)


def test_what_cannot_be_beyond_the_limit_shows_nothing():
    assert evidence_above(alone(10.0, 10.0), 10, 0, 10) == 1
    assert evidence_above(alone(0.0, 0.0), 0, 0, 10) == 1
    assert evidence_above(alone(0.0, 0.1), 0, 0, 10) == float("inf")


def test_evidence_of_strata_is_that_under_the_worst_of_their_means():
    generator = np.random.default_rng(0)
    groups = [(np.clip(generator.normal(mean, 1, 12), 0, 10), np.ones(12)) for mean in (6, 9)]

    def gain(bet, first):
        means = (first, 2 * 6.5 - first)
        return sum(
            float(np.log1p(bet * (values / mean - 1)).sum())
            for (values, _), mean in zip(groups, means, strict=True)
        )

    def worst(bet):
        return optimize.minimize_scalar(
            lambda first: gain(bet, first), bounds=(3, 10), method="bounded"
        ).fun

    expected = np.log(np.mean(np.exp([worst(bet) for bet in BETS])))
    found = np.log(evidence_above(groups, 6.5, 0, 10))
    assert expected - 0.3 <= found <= expected  # means are rounded up by a step of 0.05 each


@pytest.mark.parametrize("n", [10, 50, 100])
@pytest.mark.parametrize("family", ["3% zeros", "90% tens"])
@pytest.mark.everyday_for("3% zeros-10", "3% zeros-100", "90% tens-100")
@pytest.mark.everyday
def test_rare_catastrophes_do_not_pass(family, n):
    generator, shown, held = np.random.default_rng(n), 0, 0
    truth = 0.97 * 9 if family == "3% zeros" else 9 + 0.45
    for _ in range(300):
        luck = generator.random(n)
        if family == "3% zeros":
            values = np.where(luck < 0.03, 0.0, 9 + generator.uniform(-0.5, 0.5, n))
        else:
            values = np.where(luck < 0.9, 10.0, generator.integers(0, 10, n))
        found = estimate(values.tolist(), [str(place) for place in range(n)])
        shown += found.p_shown_above(truth, 0, 10) <= 0.05
        low, high = found.bounded_interval(0, 10)
        held += low <= truth <= high
    assert shown / 300 <= 0.06
    assert held / 300 >= 0.93


def test_interval_of_yes_and_no_is_clopper_and_pearsons():
    names = [str(pair) for pair in range(20)]
    found = estimate([10.0] * 17 + [0.0] * 3, names).bounded_interval(0, 10)
    expected = scipy_stats.binomtest(17, 20).proportion_ci(0.95, method="exact")
    assert found == pytest.approx((10 * expected.low, 10 * expected.high), abs=0.15)


def test_interval_of_equal_scores_says_what_may_be_unseen():
    low, high = estimate([10.0] * 50, [str(place) for place in range(50)]).bounded_interval(0, 10)
    assert (low, high) == pytest.approx((10 * 0.025 ** (1 / 50), 10), abs=0.05)


def test_strata_are_categories_and_their_clusters():
    cluster, category = np.array([0, 0, 1, 2, 3]), np.array([0, 0, 0, 1, 1])
    first, second = strata(cluster, category, np.array([2.0, 4.0, 6.0, 1.0, 9.0]))
    assert (first[0].tolist(), first[1].tolist()) == ([3.0, 6.0], [1.0, 0.5])
    assert (second[0].tolist(), second[1].tolist()) == ([1.0, 9.0], [1.0, 1.0])


def test_clusters_of_several_categories_weigh_what_their_pairs_weigh():
    cluster, category = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 1, 0, 1, 1, 1])
    ((values, weights),) = strata(cluster, category, np.array([2.0, 4.0, 6.0, 8.0, 4.0, 0.0]))
    shares = np.array([1 / 2 + 1 / 4, 1 / 2 + 2 / 4, 1 / 4])
    assert weights == pytest.approx(shares / shares.max())
    assert values == pytest.approx(np.array([2 / 2 + 4 / 4, 6 / 2 + 12 / 4, 0]) / shares)


def test_a_heavy_source_counts_with_its_weight():
    categories = [f"c{kind}" for kind in range(5) for _ in range(30)]
    sources = ["all" if n % 2 else str(n) for n in range(150)]
    found = estimate([0.0 if n % 2 else 10.0 for n in range(150)], sources, categories)
    assert found.mean == 5.0
    assert found.p_shown_above(5, 0, 10) == found.p_shown_above(6, 0, 10) == 1
