"""The gate on shares of duels: each state, its words, and what missing votes leave open."""

from __future__ import annotations

import pytest

from pytest_imgedit.config.settings import GatesSettings, Settings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.measures import WIN
from pytest_imgedit.core.results import GateOptions
from pytest_imgedit.report.terminal import gate_line
from pytest_imgedit.run.settings_checks import check_gates, check_partial
from pytest_imgedit.stats import gate_rules, planning
from pytest_imgedit.stats.gate_values import (
    Observation,
    Selection,
    check_fields,
    describe_rule,
    foresee,
    narrow,
)

EVEN = (0.5, 0.25, 0.75, 0.5, 1.0, 0.0, 0.5, 0.5)
LOST = (0.25, 0.5, 0.25, 0.0, 0.5, 0.25, 0.75, 0.0)


def wins(*values, alike=False):
    return [
        Observation("physics", str(place), value, 0.0, 1.0, alike=alike)
        for place, value in enumerate(values)
    ]


def min_win(observations, limit=0.5, field="overall", **settings):
    """The gate, whose half of α is 0.05; the other half is that of the gate on collapsed pairs."""
    options = GatesSettings(duel=True, min_win={field: limit}, alpha=0.1, **settings)
    (gate,) = gate_rules.min_win(options, {"score": observations}, "main")
    return gate


@pytest.mark.parametrize(
    ("values", "limit", "settings", "state", "why"),
    [
        pytest.param(LOST * 12, 0.5, {}, "FAIL", "overall wins 0.31 of duels against main < 0.5 (p <0.001)", id="lost"),
        pytest.param(EVEN * 40, 0.5, {}, "PASS", "overall wins 0.50 of duels against main >= 0.5", id="many"),
        pytest.param(EVEN * 40, 0.51, {}, "PASS", "overall wins 0.50 of duels against main, not shown to be under 0.51 (p ", id="margin"),
        pytest.param(EVEN * 5, 0.52, {}, "INCONCLUSIVE", "overall wins 0.50 of duels against main < 0.52: not shown to be under it; a share of 0.41 may be missed with 40 pairs; about ", id="few"),
        pytest.param((1.0,) * 20, 0.5, {"strict": True}, "PASS", "overall wins 1.00 of duels against main >= 0.5", id="shown"),
        pytest.param(EVEN * 40, 0.5, {"strict": True}, "INCONCLUSIVE", "overall wins 0.50 of duels against main >= 0.5: not shown (gates.strict)", id="strict"),
        pytest.param(EVEN, 0, {}, "PASS", "overall wins 0.50 of duels against main >= 0", id="no-limit"),
        pytest.param((0.0,) * 4, 0.5, {}, "INCONCLUSIVE", "overall wins 0.00 of duels against main < 0.5: too few pairs (4)", id="four"),
        pytest.param((0.5,) * 50, 0.5, {}, "INCONCLUSIVE", "overall wins 0.50 of duels against main >= 0.5: no spread seen in 50 pairs", id="first-always"),
        pytest.param((None,) * 9, 0.5, {}, "INVALID", "overall has no duel with all its votes in this run", id="none"),
    ],
)  # fmt: skip
def test_min_win(values, limit, settings, state, why):
    gate = min_win(wins(*values), limit, **settings)
    assert (gate.state, gate.kind) == (state, "min_win")
    assert gate.why.startswith(why)


def test_equal_edits_lose_nothing_and_win_nothing():
    gate = min_win(wins(0.5, 0.5, alike=True))
    assert (gate.state, gate.value) == ("PASS", 0.5)
    assert min_win(wins(*[0.5] * 20, alike=True), limit=0.6).state == "FAIL"


@pytest.mark.parametrize(
    ("values", "missing", "state"),
    [
        (LOST * 3, 2, "FAIL"),
        (LOST * 3, 12, "INCONCLUSIVE"),
        (EVEN * 40, 5, "PASS"),
        (EVEN * 40, 60, "INCONCLUSIVE"),
    ],
)
def test_enough_pairs_without_a_vote_leave_a_gate_open(values, missing, state):
    gate = min_win(wins(*values, *[None] * missing))
    assert gate.state == state
    told = f"{missing} pairs without a decided duel could turn this "
    assert gate.why.startswith(told) == (state == "INCONCLUSIVE")
    assert not gate.warns


def test_a_warning_that_missing_votes_could_turn_is_none_and_says_so():
    observations = wins(*EVEN * 2)
    assert min_win(observations, limit=0.52).warns
    gate = min_win(observations + wins(*[None] * 11), limit=0.52)
    assert (gate.state, gate.warns) == ("INCONCLUSIVE", False)
    assert gate.why == (
        "11 pairs without a decided duel could turn this warning: overall wins 0.50 of duels against "
        "main < 0.52: not shown to be under it; a share of 0.33 may be missed with 16 pairs"
    )


def test_overall_names_the_categories_without_a_vote():
    others = [Observation(name, name, None, 0.0, 1.0) for name in ("local", "text", "local")]
    gate = min_win(wins(*EVEN) + others)
    assert (gate.state, gate.value) == ("INVALID", None)
    assert gate.why == (
        "overall cannot be computed: local, text have no duel with all its votes in this run"
    )
    assert gate_line(min_win(wins(*EVEN) + others[:1])) == (
        "min_win overall:0.5: cannot be computed: local has no duel with all its votes in this run"
    )


def test_the_missing_votes_of_a_gate_are_those_of_its_group():
    others = [Observation("weather", f"w{n}", value, 0.0, 1.0) for n, value in enumerate(EVEN)]
    others += [Observation("weather", f"x{n}", None, 0.0, 1.0) for n in range(3)]
    observations = wins(*EVEN * 40, *[None] * 60)
    assert min_win(observations + others, field="physics").why.startswith(
        "60 pairs without a decided "
    )


def test_a_vote_in_one_order_leaves_less_open():
    half = [Observation("physics", f"h{n}", None, 0.5, 1.0) for n in range(12)]
    assert min_win(wins(*EVEN * 40) + half).state == "PASS"


def test_an_open_gate_of_few_pairs_warns_whatever_their_share():
    assert min_win(wins(0.0, 0.25, 0.0, 0.0)).warns


def test_kinds_of_gates_against_a_baseline_share_alpha():
    options = GateOptions(max_drop={"overall": 0}, min_win={"overall": 0.5}, alpha=0.04)
    kinds = ("max_drop", "min_win", "max_collapsed")
    assert all(options.alpha_of(kind) == pytest.approx(0.04 / 3) for kind in kinds)
    assert options.alpha_of("fail_under") == 0.04


def test_the_rule_in_words():
    rule = describe_rule("min_win", "overall", 0.5, WIN)
    assert (
        rule == "fails if the share of duels (0 to 1) that all pairs win is shown to be under 0.5"
    )
    rule = describe_rule("min_win", "instruction@tag=hard", 0.4, WIN)
    assert rule == (
        "fails if the share of duels (0 to 1) that tag=hard wins by instruction is shown to be "
        "under 0.4"
    )
    assert planning.detectable("min_win", 0.09, WIN, 0.5) == "a share of about 0.41"
    assert (
        planning.detectable("min_win", 0.09, WIN) == "a share of duels about 0.09 under the limit"
    )


def test_the_line_of_a_gate_names_its_field_once():
    assert gate_line(min_win(wins(*LOST * 12))) == (
        "min_win overall:0.5: wins 0.31 of duels against main < 0.5 (p <0.001)"
    )


def test_a_plan_says_which_pairs_cannot_fail():
    options = GateOptions(duel=True, min_win={"overall": 0.5})
    assert foresee("min_win", options, "overall", wins(*EVEN)) == ""
    assert foresee("min_win", options, "overall", wins(*EVEN[:3])) == (
        "overall: 3 sources cannot fail this gate, 8 can"
    )


def test_fields_are_those_of_duels():
    measures = {"score": WIN, "instruction": WIN}
    check_fields("--imgedit-min-win", {"instruction@overall": 0.4}, ["overall"], measures)
    with pytest.raises(UsageError, match="unknown measure 'realism'"):
        check_fields("--imgedit-min-win", {"realism@overall": 0.4}, ["overall"], measures)
    with pytest.raises(UsageError, match="overall:2, expected a number from 0 to 1"):
        check_fields("--imgedit-min-win", {"overall": 2}, ["overall"], measures)


@pytest.mark.parametrize(
    ("gates", "asked", "decided"),
    [
        ({"duel": True}, ["gates.duel"], {"overall": 0.5}),
        ({"duel": True}, [], {}),
        ({"duel": True, "min_win": {"overall": 0.4}}, ["gates.duel"], {}),
        ({"duel": True, "min_win": {"overall": 0.4}}, ["gates.min_win"], {"overall": 0.4}),
    ],
)
def test_a_duel_of_the_command_line_is_decided_on_any_selection(gates, asked, decided):
    selection = Selection({"overall": 9}, {"overall": 10})
    narrowed, resting = narrow(GatesSettings(**gates), selection, asked)
    assert narrowed.min_win == decided
    assert [gate.why for gate in resting] == (
        [] if decided else ["overall has 9 of its 10 pairs selected"]
    )


def settings(asked=(), run=None, **gates):
    return Settings(gates=gates, run={"asked": frozenset(asked), **(run or {})})


@pytest.mark.parametrize(
    ("checked", "line"),
    [
        (settings(["gates.min_win"], min_win={"overall": 0.5}, compare="main"), "--imgedit-min-win: no duels to win, expected --imgedit-duel too"),
        (settings(min_win={"overall": 0.5}), "gates.min_win: no duels to win, expected --imgedit-duel too"),
        (settings(["gates.duel"], duel=True), "--imgedit-duel: nothing to duel with, expected --imgedit-compare=REF too"),
        (settings(duel=True), "gates.duel: nothing to duel with, expected --imgedit-compare=REF too"),
    ],
)  # fmt: skip
def test_what_duels_lack_is_said_in_one_line(checked, line):
    with pytest.raises(UsageError) as caught:
        check_gates(checked, {"overall": 20}, None, {})
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("checked", "line"),
    [
        (settings(duel=True, compare="main", until="decided"), "--imgedit-until=decided: not with --imgedit-duel, which is about all pairs"),
        (settings(run={"shard": "1/2"}, duel=True, compare="main"), "--imgedit-shard=1/2: not with --imgedit-duel: imgedit merge the shards, then imgedit compare A B --duel"),
    ],
)  # fmt: skip
def test_duels_of_a_part_are_refused(checked, line):
    with pytest.raises(UsageError) as caught:
        check_partial(checked)
    assert str(caught.value) == line
