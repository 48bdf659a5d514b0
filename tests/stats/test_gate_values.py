"""Gates: each state, what turns it, and which pairs without a score leave it open."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import Measure
from pytest_imgedit.stats import gate_rules
from pytest_imgedit.stats.gate_values import Observation, check_fields, costly_categories, foresee


def scores(*values, category="physics"):
    return [
        Observation(category, f"{category}-{place}", value) for place, value in enumerate(values)
    ]


def drops(*values):
    return [
        Observation("physics", str(place), value, -10.0, 10.0) for place, value in enumerate(values)
    ]


def fail_under(settings, seen):
    return gate_rules.fail_under(settings, {"score": seen})


def max_drop(settings, seen, baseline):
    return gate_rules.max_drop(settings, {"score": seen}, baseline)


EVEN = (7.0, 7.2, 6.8, 7.1, 6.9, 7.0, 7.2, 6.8, 7.1, 6.9)  # mean 7, SE 0.045
WIDE = (2.0, 10.0, 9.0, 4.0, 10.0, 8.0, 5.0, 10.0, 3.0, 9.0)  # mean 7, SE 0.98


@pytest.mark.parametrize(
    ("values", "limit", "settings", "state", "why"),
    [
        pytest.param(EVEN, 6.5, {}, "PASS", "physics 7.00 >= 6.5", id="over"),
        pytest.param(EVEN, 7.2, {}, "FAIL", "physics 7.00 < 7.2 (p ", id="under"),
        pytest.param(
            EVEN,
            7.02,
            {},
            "PASS",
            "physics 7.00, not shown to be under 7.02 (p ",
            id="perhaps-under",
        ),
        pytest.param(
            WIDE,
            7.5,
            {},
            "INCONCLUSIVE",
            "physics 7.00 < 7.5: not shown to be under it; a mean of 4.78 may be missed with 10 pairs; ",
            id="too-wide",
        ),
        pytest.param(
            WIDE, 7.5, {"margin": 3}, "PASS", "physics 7.00, not shown to be under 7.5", id="margin"
        ),
        pytest.param(
            EVEN,
            6.5,
            {"strict": True},
            "INCONCLUSIVE",
            "physics 7.00 >= 6.5: not shown (gates.strict); not shown to be under it; ",
            id="strict",
        ),
        pytest.param(EVEN, 4.5, {"strict": True}, "PASS", "physics 7.00 >= 4.5", id="strict-over"),
        pytest.param(
            WIDE * 4, 4, {"margin": 0.1}, "PASS", "physics 7.00 >= 4", id="shown-however-wide"
        ),
        pytest.param(
            EVEN, 7.06, {}, "PASS", "physics 7.00, not shown to be under 7.06 (p 0.1", id="doubt"
        ),
        pytest.param(EVEN, 7.06, {"alpha": 0.2}, "FAIL", "physics 7.00 < 7.06 (p 0.1", id="alpha"),
        pytest.param(
            (5.0, 5.0),
            6,
            {},
            "INCONCLUSIVE",
            "physics 5.00 < 6: too few pairs (2) to show",
            id="two",
        ),
        pytest.param((5.0,) * 5, 6, {}, "FAIL", "physics 5.00 < 6 (p 0.031)", id="five"),
        pytest.param(
            (5.0,) * 7, 5, {}, "INCONCLUSIVE", "physics 5.00 >= 5: too few pairs (7)", id="seven"
        ),
        pytest.param(
            (5.0,) * 8,
            5,
            {},
            "INCONCLUSIVE",
            "physics 5.00 >= 5: no spread seen in 8 pairs",
            id="equal",
        ),
        pytest.param(
            (7.0,) * 50,
            6.9,
            {},
            "INCONCLUSIVE",
            "physics 7.00 >= 6.9: no spread seen in 50",
            id="dead",
        ),
        pytest.param((0.0,) * 10, 0, {}, "PASS", "physics 0.00 >= 0", id="cannot-be-broken"),
        pytest.param((10.0,) * 50, 9, {}, "PASS", "physics 10.00 >= 9", id="equal-and-shown"),
        pytest.param(
            (None, None), 5, {}, "INVALID", "physics has no mean score in this run", id="none"
        ),
    ],
)
def test_fail_under(values, limit, settings, state, why):
    (gate,) = fail_under(GatesSettings(fail_under={"physics": limit}, **settings), scores(*values))
    assert gate.state == state
    assert gate.why.startswith(why)


@pytest.mark.parametrize(
    ("values", "limit", "state", "why"),
    [
        pytest.param(
            [0.0] * 8,
            0,
            "INCONCLUSIVE",
            "physics no change against main*: no spread seen in 8",
            id="same",
        ),
        pytest.param(
            [-1.0] * 6,
            0,
            "FAIL",
            "physics -1.00 against main (a drop of up to 0 is allowed), p ",
            id="fell",
        ),
        pytest.param(
            [-1.1, -0.9] * 4,
            2,
            "PASS",
            "physics -1.00 against main (a drop of up to 2 is allowed)",
            id="allowed",
        ),
        pytest.param(
            [-0.4, 0.3] * 4,
            0,
            "PASS",
            "physics -0.05 against main, not shown to be a drop of more than 0",
            id="odds",
        ),
        pytest.param([1.1, 0.9] * 4, 0, "PASS", "physics +1.00 against main", id="rose"),
        pytest.param(
            [6.0, -0.4] * 20,
            0,
            "PASS",
            "physics +2.80 against main (a drop of up to 0 is allowed)",
            id="rose-and-wide",
        ),
        pytest.param(
            [-4.0, 4.0, -3.0, 2.0, 1.0, -2.0, 1.0, -1.64],
            0,
            "INCONCLUSIVE",
            "physics -0.33",
            id="wide",
        ),
        pytest.param(
            [-1.0] * 4,
            0,
            "INCONCLUSIVE",
            "physics -1.00 against main*too few pairs (4)",
            id="few",
        ),
    ],
)
def test_max_drop(values, limit, state, why):
    (gate,) = max_drop(GatesSettings(max_drop={"physics": limit}), drops(*values), "main")
    assert gate.state == state
    start, _, rest = why.partition("*")
    assert gate.why.startswith(start)
    assert rest in gate.why


def test_pairs_of_few_source_images_are_too_few_however_many():
    alike = [Observation("physics", str(place % 3), 5.0) for place in range(30)]
    (gate,) = fail_under(GatesSettings(fail_under={"physics": 4}), alike)
    assert gate.why == (
        "physics 5.00 >= 4: too few source images (3) to show anything at alpha 0.05: nothing could "
        "have failed; no trial shows that the judge tells edits apart"
    )


def test_edits_of_the_baseline_have_not_moved():
    same = [Observation("physics", str(place), 0.0, alike=True) for place in range(50)]
    (gate,) = max_drop(GatesSettings(max_drop={"physics": 0}), same, "main")
    assert (gate.state, gate.why) == (
        "PASS",
        "physics no change against main (a drop of up to 0 is allowed)",
    )
    (gate,) = max_drop(
        GatesSettings(max_drop={"physics": 0}),
        [*same[1:], Observation("physics", "0", 0.0)],
        "main",
    )
    assert gate.state == "INCONCLUSIVE"


def test_a_category_of_a_single_source_is_named():
    alone = [*scores(*WIDE), *scores(5.0, category="causal")]
    (gate,) = fail_under(GatesSettings(fail_under={"overall": 5}), alone)
    assert gate.state == "INCONCLUSIVE"
    assert (
        gate.why == "overall 6.00 >= 5: causal has a single source image, whose spread is not "
        "known: nothing could have failed"
    )


@pytest.mark.parametrize("settings", [{}, {"strict": True}])
def test_an_open_gate_says_how_many_pairs_would_decide(settings):
    (gate,) = fail_under(
        GatesSettings(fail_under={"physics": 6.0}, **settings), scores(*WIDE, *WIDE)
    )
    number = int(re.search(r"; about (\d+) pairs like these would decide, and show ", gate.why)[1])
    many = (WIDE * number)[: 2 * number]
    (gate,) = fail_under(GatesSettings(fail_under={"physics": 6.0}, **settings), scores(*many))
    assert gate.state == "PASS"


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(0, 10)),
        min_size=4,
        max_size=60,
    ),
    st.floats(0, 10),
)
def test_what_passes_strictly_passes_by_default(rows, limit):
    seen = [Observation(category, str(source), float(score)) for category, source, score in rows]
    with patch("pytest_imgedit.stats.planning.pairs_needed", lambda *_: None):
        usual, strict = (
            fail_under(GatesSettings(fail_under={"overall": limit}, strict=mode), seen)[0]
            for mode in (False, True)
        )
    assert usual.state == "PASS" or strict.state != "PASS"
    assert (usual.state == "FAIL") == (strict.state == "FAIL")


def test_gates_of_a_kind_share_one_chance_of_a_false_alarm():
    fell = [-0.9, -1.1, -1.0, -1.2, -0.8, -1.0]  # p = 2^-6
    both = [
        *drops(*fell),
        *(Observation("social", f"s{n}", -value) for n, value in enumerate(fell)),
    ]
    alone = max_drop(GatesSettings(max_drop={"physics": 0}), both, "main")
    assert [gate.state for gate in alone] == ["FAIL"]
    shared = max_drop(GatesSettings(max_drop={"physics": 0, "social": 0}), both, "main")
    assert [gate.p for gate in shared] == [2 / 64, 1.0]
    assert [gate.state for gate in shared] == [
        "INCONCLUSIVE",
        "INCONCLUSIVE",
    ]  # 6 pairs never reach 0.05 / 4


def test_what_all_pairs_show_is_found_at_the_smallest_alpha_too():
    fields = {f"c{number}": 0.0 for number in range(6)}
    fallen = [Observation(field, f"{field}-{n}", -5 + n % 3) for field in fields for n in range(20)]
    gates = max_drop(GatesSettings(max_drop=fields, alpha=0.0005), fallen, "main")
    assert {gate.state for gate in gates} == {"FAIL"}


NEAR = tuple(6.906 + 0.41 * (n - 9) / 9 for n in range(19))  # p 0.06 that this is under 7


@pytest.mark.parametrize(
    ("values", "limit", "settings", "state"),
    [
        pytest.param([*EVEN, None], 6.0, {}, "PASS", id="one-of-eleven"),
        pytest.param([*EVEN, *[None] * 9], 6.0, {}, "INCONCLUSIVE", id="could-fail"),
        pytest.param([*EVEN, None], 7.2, {}, "INCONCLUSIVE", id="could-pass"),
        pytest.param(
            [*NEAR, None], 7, {}, "INCONCLUSIVE", id="a-6.5-would-fail-but-no-0-and-no-10"
        ),
        pytest.param([8.9] * 10 + [8.8] * 10 + [None] * 3, 7, {}, "PASS", id="within-margin"),
        pytest.param(
            [8.9] * 10 + [8.8] * 10 + [None] * 3, 7, {"strict": True}, "INCONCLUSIVE", id="strict"
        ),
        pytest.param(
            [8.9] * 10 + [8.8] * 10 + [None] * 5,
            7.4,
            {"margin": 0.2},
            "INCONCLUSIVE",
            id="beyond-margin",
        ),
    ],
)
def test_pairs_without_a_score_leave_a_gate_open_that_they_could_turn(
    values, limit, settings, state
):
    (gate,) = fail_under(GatesSettings(fail_under={"physics": limit}, **settings), scores(*values))
    assert gate.state == state
    missing = sum(value is None for value in values)
    assert state == "PASS" or gate.why.startswith(
        f"{missing} pair{'s'[: missing > 1]} without a score could turn this "
    )

    assert not gate.warns


SPREAD = (6.9, 8.9, 9.0, 8.7, 8.8, 10.0) * 5  # mean 8.72


@pytest.mark.parametrize(("missing", "warns"), [(0, True), (1, True), (20, False)])
def test_a_gate_that_missing_scores_could_decide_is_more_than_a_warning(missing, warns):
    settings = GatesSettings(fail_under={"physics": 8.3}, strict=True)
    (gate,) = fail_under(settings, scores(*SPREAD, *[None] * missing))
    assert (gate.state, gate.warns) == ("INCONCLUSIVE", warns)


def test_an_open_drop_says_what_it_would_miss_and_what_would_show_it():
    moves = [replace(pair, seeds=2) for pair in drops(*[1.8, -2.0, 0.4, -0.6] * 10)]
    (gate,) = max_drop(GatesSettings(max_drop={"physics": 0.1}), moves, "main")
    assert re.fullmatch(
        r"physics -0\.10 against main \(a drop of up to 0\.1 is allowed\): no drop of more than 0\.1 shown; one of "
        r"up to 0\.74 may be missed with 40 pairs; about \d+ pairs like these, or \d+ seeds, would "
        r"decide, and show 0\.\d+",
        gate.why,
    )
    pairs, seeds = map(int, re.findall(r"(\d+) (?:pairs like|seeds)", gate.why))
    assert seeds == 2 * math.ceil(pairs / 40)
    assert gate.warns


@pytest.mark.parametrize(
    ("values", "limit", "settings", "warns", "why"),
    [
        ((7.0, 7.2, 6.9), 7.5, {}, True, "too few pairs (3) "),
        ((7.0, 7.2, 6.9), 7.5, {"margin": 0.4}, False, "by more than gates.margin (0.4)"),
        (WIDE, 7.4, {}, True, "a mean of "),
        (WIDE, 7.6, {}, False, "the mean is beyond the limit by more than gates.margin (0.5)"),
        ((5.0,) * 7, 5, {}, False, "no trial shows that the judge tells edits apart"),
        ((5.0,) * 9, 5, {}, False, "no trial shows that the judge tells edits apart"),
        ((5.0, 5.0, 5.5), 5, {}, True, "nothing could have failed"),
        ((7.0, None, 7.0, 6.9), 7, {}, False, "too few pairs (3) "),
    ],
)
def test_a_floor_that_is_not_decided_warns_unless_something_speaks_of_ruin(
    values, limit, settings, warns, why
):
    settings = GatesSettings(fail_under={"physics": limit}, **settings)
    (gate,) = fail_under(settings, scores(*values))
    assert (gate.state, gate.warns) == ("INCONCLUSIVE", warns)
    assert why in gate.why


def test_equal_scores_of_a_judge_that_passed_its_trial_only_warn():
    settings = GatesSettings(fail_under={"physics": 5})
    (gate,) = gate_rules.fail_under(settings, {"score": scores(*[5.0] * 9)}, is_judge_tried=True)
    assert gate.warns
    assert gate.why.endswith("nothing could have failed")


@pytest.mark.parametrize(
    ("values", "limit", "state", "warns"),
    [
        ([-8.0] * 3, 0, "INCONCLUSIVE", False),
        ([-8.0] * 5, 0, "INCONCLUSIVE", False),
        ([-8.0] * 8, 0, "FAIL", False),
        ([-8.0, -1.0, -0.5], 0, "INCONCLUSIVE", False),
        ([-8.0, 0.5, -0.5], 0, "INCONCLUSIVE", True),
        ([-4.0, -4.5, -5.0], 5, "INCONCLUSIVE", True),
        ([-0.5, 0.5] * 2, 0, "INCONCLUSIVE", True),
        ([-9.0, 4.0] * 10, 0, "INCONCLUSIVE", True),
    ],
)
def test_few_sources_that_fell_by_gates_collapse_are_more_than_a_warning(
    values, limit, state, warns
):
    (gate,) = max_drop(GatesSettings(max_drop={"physics": limit}), drops(*values), "main")
    assert (gate.state, gate.warns) == (state, warns)


def test_ruin_is_measured_on_the_scale_of_the_measure():
    measure = Measure(scale=(1.0, 5.0), lower_is_better=True)
    for rise, warns in ((1.1, True), (1.3, False)):
        risen = [Observation("physics", str(n), rise + n / 100, -4.0, 4.0) for n in range(3)]
        settings = GatesSettings(max_drop={"haze@physics": 0})
        (gate,) = gate_rules.max_drop(settings, {"haze": risen}, "main", {"haze": measure})
        assert (gate.state, gate.warns) == ("INCONCLUSIVE", warns)


@pytest.mark.parametrize(
    ("clusters", "line"),
    [
        (["a", "b", "c"], "overall: 3 sources cannot fail this gate, 8 can"),
        (["a"] * 20, "overall: 1 source cannot fail this gate, 8 can"),
        (
            [*"abcdefg"],
            "overall: with 7 sources this gate fails only if every one is worse, with 8 also if some "
            "are not",
        ),
        ([*"abcdefgh"], ""),
        (
            ["a"] * 20 + [*"bcdefghi"],
            "overall: 9 source images of unequal weight, worth 1.9 equal ones: 8 are needed, so that "
            "nothing can fail this gate",
        ),
    ],
)
def test_a_plan_says_which_gates_nothing_could_fail(clusters, line):
    pairs = [Observation("physics", cluster, None) for cluster in clusters]
    settings = GatesSettings(max_drop={"overall": 0})
    assert foresee("max_drop", settings, "overall", pairs) == line


def test_a_plan_names_a_category_of_a_single_source():
    pairs = [*scores(*WIDE), *scores(5.0, category="causal")]
    settings = GatesSettings(fail_under={"overall": 5, "physics": 5})
    assert foresee("fail_under", settings, "physics", pairs) == ""
    assert foresee("fail_under", settings, "overall", pairs) == (
        "overall: causal has a single source image, whose spread is not known, so that nothing can "
        "fail this gate"
    )


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        (
            (20, 20, 20, 20, 3),
            "overall: c4 (3 sources) weighs as much as any other category, so that changes have to "
            "be 1.3 times as large to be seen as without; merge small categories to see more",
        ),
        ((20, 20, 20, 20, 7), ""),
        ((20, 20, 20, 20), ""),
        ((3, 3, 3), ""),
    ],
)
def test_a_plan_offers_to_merge_a_category_that_costs_much(sizes, line):
    pairs = [
        Observation(f"c{place}", f"{place}-{number}", None)
        for place, size in enumerate(sizes)
        for number in range(size)
    ]
    assert costly_categories(pairs) == line


def test_gate_on_an_unknown_field_lists_the_known():
    groups = ["overall", "physics", "tag=rain"]
    check_fields("fail_under", {"overall": 5, "物理": 5, "tag=rain": 5}, groups)
    with pytest.raises(
        UsageError,
        match=r"max_drop: unknown field 'phys', expected one of: overall, physics, difficulty=NAME, "
        r"tag=NAME",
    ):
        check_fields("max_drop", {"phys": 1}, groups)
