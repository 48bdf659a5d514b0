"""The area under the ROC curve against scipy, by hand, and its interval by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from pytest_imgedit.stats.judge_qualification import auc


def alone(n):
    return [str(place) for place in range(n)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=20))
def test_it_is_mann_and_whitneys_u(rows):
    higher, lower = zip(*rows, strict=True)
    area, (low, high) = auc(higher, lower, alone(len(rows)))
    assert area == pytest.approx(scipy_stats.mannwhitneyu(higher, lower).statistic / len(rows) ** 2)
    assert 0 <= low <= high <= 1


def test_by_hand():
    assert auc([10, 10], [0, 0], alone(2)) == (1.0, (1.0, 1.0))
    assert auc([5, 5], [5, 5], alone(2))[0] == 0.5
    assert auc([6, 8], [7, 1], alone(2))[0] == 0.75


@pytest.mark.everyday
def test_interval_covers_the_truth():
    generator, held = np.random.default_rng(0), 0
    truth = scipy_stats.norm.cdf(1 / 2**0.5)
    for _ in range(200):
        higher, lower = generator.normal(1, 1, 40), generator.normal(0, 1, 40)
        _, (low, high) = auc(higher.tolist(), lower.tolist(), alone(40))
        held += low <= truth <= high
    assert held / 200 >= 0.9


def test_pairs_of_one_source_count_as_one():
    higher, lower = [6.0, 7.0, 5.0, 9.0], [5.0, 6.5, 6.0, 4.0]
    once = auc(higher, lower, alone(4))
    thrice = auc(higher * 3, lower * 3, alone(4) * 3)
    assert thrice[0] == pytest.approx(once[0])
    assert thrice[1] == pytest.approx(once[1])
