"""How many pairs would decide."""

from __future__ import annotations

import numpy as np
import pytest
from documents import a_run, an_item

from pytest_imgedit.core.measures import SCORE, SCORE_ONLY
from pytest_imgedit.core.results import GateResult, Summary
from pytest_imgedit.stats.estimates import estimate
from pytest_imgedit.stats.planning import (
    POWER,
    POWER_OF_SPREAD,
    detectable,
    expected_mde,
    mde,
    pairs_needed,
    size_for,
)


def needed(pairs, decides):
    return pairs_needed(pairs, lambda pair: pair[1], lambda pair: pair[0], decides)


def test_the_smallest_multiple_that_decides():
    pairs = [("a", str(n)) for n in range(10)]
    # a simulated run has 9 / 11 of the pairs, as their variance is so much too small
    assert needed(pairs, lambda drawn: len(drawn) >= 25) == 30
    assert needed(pairs, lambda drawn: len(drawn) >= 26) == 40
    assert needed(pairs, lambda drawn: False) is None


def test_whole_clusters_are_drawn_within_their_categories():
    pairs = [*[("a", f"a{n // 2}") for n in range(8)], *[("b", f"b{n}") for n in range(4)]]
    runs = []
    needed(pairs, lambda drawn: bool(runs.append(drawn)))
    for drawn in runs:
        kinds = [pair[0] for pair, _ in drawn]
        assert kinds.count("a") == 2 * kinds.count("b")
        by_name = {}
        for pair, name in drawn:
            by_name.setdefault(name, []).append(pair)
        assert all(len({pair[1] for pair in group}) == 1 for group in by_name.values())
        assert {len(group) for name, group in by_name.items() if group[0][0] == "a"} == {2}


@pytest.mark.everyday
def test_advised_numbers_of_pairs_decide_fresh_runs_although_few_pairs_fail():
    """Two thirds did of the numbers that 80% of plainly resampled runs advised."""
    generator, fresh = np.random.default_rng(0), []

    def observe(count):
        failed = generator.random(count) < 0.12
        return np.where(
            failed, generator.choice([-7.0, 7.0], count), generator.normal(0, 1.5, count)
        )

    def is_found(values):
        return estimate(values, [str(n) for n in range(len(values))]).mde(0.025) <= 0.5

    for _ in range(40):
        pairs = [("a", str(n), value) for n, value in enumerate(observe(40).tolist())]
        advised = pairs_needed(
            pairs,
            lambda pair: pair[1],
            lambda pair: pair[0],
            lambda drawn: is_found([pair[2] for pair, _ in drawn]),
            POWER_OF_SPREAD,
        )
        fresh += [is_found(observe(advised or 640).tolist()) for _ in range(10)]
    assert np.mean(fresh) >= POWER


def test_so_many_pairs_find_the_wanted_effect():
    factor = size_for(0.3, 0.2, 99.0, 0.05)
    assert factor == pytest.approx(
        2.745, rel=0.01
    )  # (1.645 + 0.842)²·(0.2/0.3)², and a little for Student's t
    assert mde(0.2 / factor**0.5, factor * 99, 0.05) == pytest.approx(0.3, rel=1e-3)
    assert size_for(3.0, 0.2, 99.0, 0.05) < 0.05
    assert size_for(1e-6, 0.2, 99.0, 0.05) is None


def test_the_planned_size_is_what_an_estimate_of_such_pairs_prints():
    scores = np.random.default_rng(0).normal(7, 2, 400)
    small, large = (estimate(scores[:n].tolist(), [str(i) for i in range(n)]) for n in (50, 400))
    factor = size_for(large.mde(0.05), small.se, small.freedom, 0.05)
    assert 50 * factor == pytest.approx(400, rel=0.35)


def earlier(name, kind="max_drop", mde=0.4, pairs=100, gates=1, macro=None):
    summary = Summary(pairs, pairs, 0, mean=5.0, mde=macro)
    return a_run(
        run={"id": name},
        gate_options={kind: {f"field{n}": 0.0 for n in range(gates)}},
        items=[an_item(str(n)) for n in range(pairs)],
        gates=[GateResult("overall", kind, 0, 0, "PASS", "", mde=mde)],
        measures={"score": {"rows": {"overall": summary}, "micro": summary}},
    )


def test_earlier_runs_tell_what_a_gate_is_about_to_show():
    assert expected_mde("max_drop", "overall", 0.025, 400, [earlier("x")]) == (
        pytest.approx(0.2),
        "run x",
    )
    assert expected_mde(
        "max_drop", "overall", 0.025, 100, [earlier("old", mde=None), earlier("x")]
    ) == (0.4, "run x")
    more, _ = expected_mde("max_drop", "overall", 0.025, 100, [earlier("x", gates=10)])
    assert more < 0.4  # ten gates then, one now
    assert expected_mde("max_drop", "physics", 0.05, 100, [earlier("x")]) is None
    assert expected_mde("fail_under", "overall", 0.05, 100, [earlier("x", macro=0.5)]) == (
        0.5,
        "run x",
    )
    assert expected_mde("fail_under", "overall", 0.05, 100, []) is None


@pytest.mark.parametrize(
    ("kind", "lower_is_better", "limit", "words"),
    [
        ("max_drop", False, 0.0, "a drop of about 0.40"),
        ("max_drop", False, 1.0, "a drop of about 1.40"),
        ("max_drop", True, 0.0, "a rise of about 0.40"),
        ("max_drop", False, None, "a drop of about 0.40 over the limit"),
        ("fail_under", False, 7.0, "a mean of about 6.60"),
        ("fail_under", False, 0.1, "a mean of about 0.00"),
        ("fail_under", True, 7.0, "a mean of about 7.40"),
        ("fail_under", False, None, "a mean about 0.40 under the limit"),
        ("fail_under", True, None, "a mean about 0.40 over the limit"),
    ],
)
def test_what_pairs_can_detect_is_said_in_words(kind, lower_is_better, limit, words):
    measure = SCORE_ONLY[SCORE].model_copy(update={"lower_is_better": lower_is_better})
    assert detectable(kind, 0.4, measure, limit) == words
