"""A series of runs that is looked at after each."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from pytest_imgedit.stats.trend import evidence_of_fall

PAIRS = ("a", "b", "c", "d", "e", "f", "g", "h")


def evidence(rows, weights=None, clusters=None):
    """Evidence of a series of rows of scores, one a pair."""
    names = PAIRS[: max(map(len, rows))]
    series = [
        {name: score for name, score in zip(names, row, strict=False) if score is not None}
        for row in rows
    ]
    clusters = clusters or {name: name for name in names}
    return evidence_of_fall(series, clusters, weights or dict.fromkeys(names, 1.0))


@pytest.mark.parametrize("weights", [None, {"a": 1.0, "b": 0.3}])
def test_where_any_order_is_as_likely_evidence_is_1_on_average(weights):
    orders = [*permutations([2.0, 4.0, 7.0, 9.0])]
    found = [
        evidence([*zip(*columns, strict=True)], weights) for columns in product(orders, orders)
    ]
    assert np.mean(found, axis=0) == pytest.approx([1, 1, 1, 1])


def test_with_ties_it_is_1_on_average_too():
    orders = [*permutations([5.0, 10.0, 10.0, 10.0])]
    found = [evidence([*zip(*columns, strict=True)]) for columns in product(orders, orders)]
    assert np.mean(found, axis=0) == pytest.approx([1, 1, 1, 1])


def test_a_fall_of_all_pairs_is_seen_and_goes_on_being_seen():
    same, lower = [[5.0 + n] * 8 for n in (0.1, 0.3, 0.2, 0.4)], [[3.0] * 8, [3.1] * 8]
    *before, first, second = evidence([*same, *lower])
    assert max(before) < 1.5 < first < 20 < second


def test_equal_runs_and_rises_are_no_evidence():
    assert evidence([[5.0] * 8] * 5) == pytest.approx([1.0] * 5)
    rising = evidence([[float(n)] * 8 for n in range(5)])
    assert all(later < 1 for later in rising[1:])


def test_a_source_counts_once_and_what_it_weighs():
    one = dict.fromkeys(PAIRS, "photo")
    assert evidence([[5.0] * 8, [3.0] * 8], clusters=one) == evidence([[5.0], [3.0]])
    heavy = evidence([[5.0, 5.0], [3.0, 7.0]], {"a": 1.0, "b": 0.1})
    assert heavy[1] > 1 > evidence([[5.0, 5.0], [3.0, 7.0]], {"a": 0.1, "b": 1.0})[1]


def test_sources_without_all_scores_are_left_out_of_that_look():
    whole = evidence([[5.0, 5.0], [5.0, 5.0], [3.0, 3.0]])
    part = evidence([[5.0, None], [5.0, 5.0], [3.0, None]])
    assert 1 < part[2] < whole[2]
    assert evidence([[5.0, None], [None, 3.0]]) == pytest.approx([1.0, 1.0])
    assert evidence([[5.0, None], [3.0, None]], weights={"a": 1.0, "b": 1.0}) == evidence(
        [[5.0], [3.0]]
    )
    both = {"a": "photo", "b": "photo"}
    assert evidence([[5.0, 5.0], [3.0, None], [3.0, 3.0]], clusters=both)[1] == pytest.approx(1.0)
