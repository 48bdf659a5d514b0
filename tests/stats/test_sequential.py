"""Gates that are decided as scores come in."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.stats.gate_values import Observation
from pytest_imgedit.stats.sequential import (
    LOOKS,
    MOST,
    EProcess,
    Looks,
    PlannedPair,
    at_the_end,
    in_parts,
    weights_of,
)

PAIRS = [PlannedPair(f"{kind}{n}", f"{kind}{n}", kind) for kind in "abcde" for n in range(10)]
PARTS = in_parts(PAIRS)


def scores(draw, low=0.0, high=10.0):
    return {
        pair.id: Observation(pair.category, pair.cluster, draw(pair), low, high) for pair in PAIRS
    }


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), min_size=1, max_size=80))
def test_parts_are_alike_in_categories_and_keep_sources_whole(rows):
    pairs = [
        PlannedPair(str(n), f"source{source}", category)
        for n, (source, category) in enumerate(rows)
    ]
    parts = in_parts(pairs)
    assert 1 <= len(parts) <= MOST
    assert Counter(pair for part in parts for pair in part) == Counter(pairs)
    categories = {pair.category for pair in pairs}
    assert all({pair.category for pair in part} == categories for part in parts)
    of_source = {}
    for number, part in enumerate(parts):
        for pair in part:
            assert of_source.setdefault(pair.cluster, number) == number
    weights = weights_of(parts, "overall")
    for part in parts:
        sums = Counter()
        for pair in part:
            sums[pair.category] += weights[pair.id]
        assert [*sums.values()] == pytest.approx([max(sums.values())] * len(sums))


def test_the_order_of_pairs_depends_on_their_sources_alone():
    assert len(PARTS) == 10
    assert (
        in_parts(PAIRS[::-1])
        == PARTS
        != in_parts([PlannedPair(p.id, f"x{p.cluster}", p.category) for p in PAIRS])
    )


@pytest.mark.parametrize(
    ("kind", "draw", "truth"),
    [
        pytest.param(
            "fail_under", lambda g: 0.0 if g.random() < 0.1 else 9.0, 8.1, id="rare-zeros"
        ),
        pytest.param(
            "fail_under", lambda g: 10.0 if g.random() < 0.1 else 1.0, 1.9, id="rare-tens"
        ),
        pytest.param("max_drop", lambda g: g.normal(0, 0.5), 0.0, id="noise"),
        pytest.param("max_drop", lambda g: g.choice([-9.0, 0.0, 0.0, 0.0, 9.0]), 0.0, id="jumps"),
    ],
)
def test_evidence_seldom_reaches_20_at_any_look_where_the_limit_is_the_truth(kind, draw, truth):
    generator, weights, alarms = np.random.default_rng(3), weights_of(PARTS, "overall"), Counter()
    for _ in range(150):
        values = scores(lambda _: float(draw(generator)), 0.0 if kind == "fail_under" else -10.0)
        for side in (1, -1):
            claim, highest = (
                EProcess(side, truth, (0.0, 10.0) if kind == "fail_under" else None),
                0.0,
            )
            for part in PARTS:
                claim.see(part, weights, values)
                highest = max(highest, claim.value)
            alarms[side] += highest >= 20
    assert max(alarms.values()) <= 150 * 0.05 + 2 * (150 * 0.05 * 0.95) ** 0.5


def decide(values, kind="fail_under", **settings):
    """Look at all parts, one after the other; yield what is decided after each."""
    looks = Looks(kind, GatesSettings(**settings), PARTS, "main")
    for number in range(len(PARTS)):
        looks.see(number, values)
        yield dict(looks.decided)


def looks(kind, values, limit, **settings):
    """The number of the look that decides `overall`, and its state; `None` if none does."""
    for seen, found in enumerate(
        decide(values, kind, **{kind: {"overall": limit}}, **settings), start=1
    ):
        if found:
            return seen, found["overall"].state, found["overall"].why
    return None


def test_what_is_clear_is_decided_early():
    generator = np.random.default_rng(0)
    noise = {pair.id: generator.normal() for pair in PAIRS}
    seen, state, why = looks("fail_under", scores(lambda pair: 8 + noise[pair.id]), limit=5)
    assert (state, seen <= 3) == ("PASS", True)
    assert (
        f">= 5: not more than 0.5 beyond the limit, shown with {5 * seen} of 50 pairs (p 0.0" in why
    )
    later, _, why = looks(
        "fail_under", scores(lambda pair: 8 + noise[pair.id]), limit=5, strict=True
    )
    assert f">= 5: shown with {5 * later} of 50 pairs (p 0.0" in why
    assert later >= seen
    seen, state, _ = looks("fail_under", scores(lambda pair: 3 + noise[pair.id]), limit=6)
    assert (state, seen <= 3) == ("FAIL", True)
    seen, state, why = looks("max_drop", scores(lambda pair: -2 + noise[pair.id], -10), limit=0)
    assert (state, seen <= 3) == ("FAIL", True)
    assert "against main (a drop of up to 0 is allowed): shown with " in why
    seen, state, why = looks("max_drop", scores(lambda pair: 0.3 * noise[pair.id], -10), limit=0)
    assert (state, seen <= 6) == ("PASS", True)
    assert "(a drop of up to 0 is allowed): not more than 0.5 beyond the limit, shown with " in why
    assert (
        looks("max_drop", scores(lambda pair: 0.3 * noise[pair.id], -10), limit=0, strict=True)
        is None
    )


def test_what_could_be_either_way_is_not_decided():
    generator = np.random.default_rng(1)
    assert looks("fail_under", scores(lambda _: generator.uniform(0, 10)), limit=5) is None
    assert (
        looks("max_drop", scores(lambda _: -0.2 + generator.normal(), -10), limit=0, margin=0.1)
        is None
    )


def test_pairs_without_a_score_speak_against_both_claims():
    def some(pair):
        return None if pair.id.endswith(("1", "2", "3", "4", "5")) else 8.0

    assert looks("fail_under", scores(lambda _: 8.0), limit=6)[1] == "PASS"
    assert looks("fail_under", scores(some), limit=6) is None
    assert looks("fail_under", scores(lambda pair: some(pair) and 3.0), limit=5) is None


def test_gates_of_categories_have_their_own_pairs_and_share_alpha():
    values = scores(lambda pair: 0.0 if pair.category == "a" else 9.0)
    *_, found = decide(values, fail_under={"a": 5.0, "b": 5.0, "overall": 2.0})
    assert {field: gate.state for field, gate in found.items()} == {
        "a": "FAIL",
        "b": "PASS",
        "overall": "PASS",
    }
    when_one = next(n for n, one in enumerate(decide(values, fail_under={"a": 5.0})) if one)
    when_three = next(
        n
        for n, one in enumerate(decide(values, fail_under={"a": 5.0, "b": 5.0, "overall": 2.0}))
        if "a" in one
    )
    assert when_one < when_three


def test_what_looks_leave_of_alpha_is_for_the_end():
    assert at_the_end(GatesSettings()).alpha == 0.05
    assert at_the_end(GatesSettings(until="decided")).alpha == pytest.approx(0.05 * (1 - LOOKS))
