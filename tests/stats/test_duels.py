"""Statistics of duels: shares, what the order of edits does, and controls."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from pytest_imgedit.core.measures import WIN
from pytest_imgedit.core.results import (
    DuelPair,
    DuelSeed,
    GateOptions,
    GateResult,
    ItemError,
    Vote,
)
from pytest_imgedit.stats.decision import decide_duel
from pytest_imgedit.stats.duels import (
    DuelFacts,
    DuelTrial,
    controls_gate,
    describe,
    describe_controls,
    observe_wins,
    samples,
)
from pytest_imgedit.stats.gate_rules import min_win

OPTIONS = GateOptions(duel=True, min_win={"overall": 0.5})
ERROR = ItemError("score", "unreadable", "no choice")


@dataclass(frozen=True)
class Item:
    """A pair of a run."""

    id: str
    cluster: str
    category: str = "physics"
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    score: float | None = 5.0
    status: str = "scored"
    edits: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def value(self, measure):
        return self.score


def seed(now_first, before_first, number=0, name=""):
    """The duel of two edits, with the share of this run's by order; `None` is an error."""
    votes = []
    for first, value in (("now", now_first), ("before", before_first)):
        values = {} if value is None else {"score": value}
        votes.append(Vote(first=first, values=values, error=ERROR if value is None else None))
    name = name or str(number)
    return DuelSeed(seed=number, before=sha(f"before {name}"), now=sha(f"now {name}"), votes=votes)


def sha(text):
    return text.encode().hex().ljust(64, "0")[:64]


def equal(number=0):
    return DuelSeed(seed=number, before=sha("same"), now=sha("same"))


def pair(*seeds):
    return DuelPair(seeds=seeds)


def facts(pairs, **keys):
    return DuelFacts(name="main", run="r1", editor="scenes", by_scores=False, pairs=pairs, **keys)


def items(pairs, sources=0):
    return [
        Item(name, f"source {place % sources if sources else place}")
        for place, name in enumerate(pairs)
    ]


def many(*duels):
    return {f"p{place}": duel for place, duel in enumerate(duels)}


def decide(pairs, of_items=None):
    of_items = items(pairs) if of_items is None else of_items
    known = facts(pairs)
    gates = min_win(OPTIONS, samples(known, of_items), "main", known.measures)
    return gates[0], describe(known, of_items, OPTIONS, gates)


def overall(duel):
    return duel.measures["score"]["overall"]


@pytest.mark.parametrize(
    ("duel", "value"),
    [
        (pair(seed(1, 1)), 1.0),
        (pair(seed(1, 0.5)), 0.75),
        (pair(seed(1, 0)), 0.5),
        (pair(seed(0, 0.5)), 0.25),
        (pair(seed(0, 0)), 0.0),
        (pair(equal()), 0.5),
        (pair(seed(1, 1), equal(1)), 0.75),
        (pair(seed(1, 1), seed(0, 0, 1), seed(1, 0, 2), seed(0.5, 0, 3)), 0.4375),
    ],
)
def test_a_pair_has_the_mean_of_its_seeds_and_orders(duel, value):
    (observed,) = observe_wins({"p": duel}, [Item("p", "s")], "score")
    assert (observed.value, observed.lowest, observed.highest) == (value, value, value)
    assert observed.seeds == len(duel.seeds)


@pytest.mark.parametrize(
    ("duel", "bounds"),
    [
        (pair(seed(1, None)), (0.5, 1.0)),
        (pair(seed(None, 0)), (0.0, 0.5)),
        (pair(seed(None, None)), (0.0, 1.0)),
        (pair(DuelSeed(seed=0, before=sha("a"), now=None)), (0.0, 1.0)),
        (pair(seed(1, 1), seed(None, 1, 1)), (0.75, 1.0)),
    ],
)
def test_a_missing_vote_leaves_a_range(duel, bounds):
    (observed,) = observe_wins({"p": duel}, [Item("p", "s")], "score")
    assert observed.value is None
    assert (observed.lowest, observed.highest) == bounds


def test_pairs_without_duels_are_left_out_and_sources_are_clusters():
    duels = {"a": pair(equal()), "b": pair(seed(1, 1))}
    seen = observe_wins(duels, [Item("a", "s"), Item("b", "s"), Item("c", "t")], "score")
    assert [one.cluster for one in seen] == ["s", "s"]
    assert [one.alike for one in seen] == [True, False]


def test_equal_edits_are_the_same():
    gate, duel = decide(many(*[pair(equal())] * 3))
    assert gate.state == "PASS"
    assert (duel.identical, duel.errors) == (3, 0)
    row = overall(duel)
    assert (row.n, row.share, row.finding) == (3, 0.5, "PASS")
    assert (
        describe(facts(duel.pairs), items(duel.pairs), OPTIONS).measures["score"]["physics"].finding
        == "same"
    )
    assert duel.disagreement["score"].n == duel.first["score"].n == 0
    assert duel.first["score"].share is None


def test_a_judge_that_always_names_the_first_shows_nothing():
    gate, duel = decide(many(*[pair(seed(1, 0))] * 50))
    assert (gate.state, gate.value) == ("INCONCLUSIVE", 0.5)
    assert duel.disagreement["score"].share == duel.first["score"].share == 1.0
    low, high = duel.first["score"].ci95
    assert (low > 0.9, high) == (True, 1.0)
    assert duel.measures["score"]["physics"].finding == "no difference shown"


@pytest.mark.parametrize(
    ("votes", "told"),
    [
        ([(1, 0)] * 24, "; the judge changes its vote with the order in 100% of pairs"),
        ([(1, 0)] * 20 + [(1, 1)] * 4, "; the judge changes its vote with the order in 83% of pairs"),
        ([(1, 0)] * 13 + [(1, 1)] * 11, ""),
        ([(0.5, 0.5)] * 24, ""),
        ([(1, 0)] * 45 + [(0, 0)] * 15, ""),  # a FAIL
    ],
)  # fmt: skip
def test_a_gate_says_that_votes_are_a_matter_of_order(votes, told):
    pairs = {f"p{number}": pair(seed(*of_pair)) for number, of_pair in enumerate(votes)}
    duel, (gate,) = decide_duel(OPTIONS, items(pairs), facts(pairs))
    assert duel.measures["score"]["overall"].finding == gate.state
    assert ("; the judge changes" in gate.why) == bool(told)
    assert gate.why.endswith(told)


def test_ties_and_preferences_of_the_order_are_told_apart():
    pairs = many(
        pair(seed(0.5, 0.5)), pair(seed(1, 0.5)), pair(seed(1, 1), seed(0, 1, 1), equal(2))
    )
    _, duel = decide(pairs)
    assert duel.disagreement["score"].share == pytest.approx((0 + 1 + 0.5) / 3)
    assert duel.first["score"].share == pytest.approx((0.5 + 0.75 + 0.25) / 3)


def test_a_seed_with_an_error_tells_nothing_of_the_order():
    _, duel = decide(many(pair(seed(1, None)), pair(seed(1, 0), seed(None, 0, 1))))
    assert (duel.disagreement["score"].n, duel.disagreement["score"].share) == (1, 1.0)
    assert duel.errors == 2


def test_a_judge_that_measures_has_no_order():
    votes = [Vote(first="", values={"score": 1.0}, scores=(4.0, 5.0))]
    duels = {"p": pair(DuelSeed(seed=0, before=sha("a"), now=sha("b"), votes=votes))}
    duel = describe(replace(facts(duels), by_scores=True), items(duels), OPTIONS)
    assert duel.by_scores
    assert (duel.disagreement, duel.first, duel.protocol) == ({}, {}, None)
    assert overall(duel).share == 1.0


VALUES = [(1, 1), (1, 0), (0, 1), (0, 0), (1, 0.5), (0.5, 0.5)]


def drawn(count, good=(1, 1, 1, 1, 1, 1)):
    generator = random.Random(7)
    return many(*[pair(seed(*generator.choices(VALUES, good)[0])) for _ in range(count)])


def test_findings_by_group():
    pairs = drawn(120, (6, 1, 1, 1, 1, 1))
    of_items = [
        Item(name, name, category="ab"[place % 2], tags=("hard",) if place < 3 else ())
        for place, name in enumerate(pairs)
    ]
    duel = describe(facts(pairs), of_items, OPTIONS)
    rows = duel.measures["score"]
    assert list(rows) == ["overall", "a", "b", "tag=hard"]
    assert rows["overall"].finding == "won"
    assert rows["overall"].p_rise < 0.001 < rows["overall"].p
    assert rows["overall"].ci95[0] < rows["overall"].share < rows["overall"].ci95[1]
    assert rows["tag=hard"].n == 3
    swapped = {
        name: pair(
            *(replace(one, votes=tuple(flipped(vote) for vote in one.votes)) for one in duels.seeds)
        )
        for name, duels in pairs.items()
    }
    lost = describe(facts(swapped), of_items, OPTIONS).measures["score"]["overall"]
    assert lost.finding == "lost"
    assert (lost.p, lost.share) == pytest.approx(
        (rows["overall"].p_rise, 1 - rows["overall"].share)
    )


def flipped(vote):
    return replace(vote, values={name: 1 - value for name, value in vote.values.items()})


def test_the_row_of_a_gate_has_its_numbers():
    pairs = drawn(60)
    gate = GateResult("overall", "min_win", 0.5, 0.5, "INCONCLUSIVE", "", p=0.4, mde=0.1)
    other = GateResult("physics", "fail_under", 5, 5.0, "PASS", "", p=0.3, mde=0.2)
    rows = describe(facts(pairs), items(pairs), OPTIONS, [gate, other]).measures["score"]
    assert (rows["overall"].p, rows["overall"].mde, rows["overall"].finding) == (
        0.4,
        0.1,
        "INCONCLUSIVE",
    )
    assert rows["physics"].finding == "no difference shown"


@pytest.mark.parametrize(("errors", "state"), [(4, "FAIL"), (60, "INCONCLUSIVE")])
def test_missing_votes_turn_a_gate_only_if_they_are_many(errors, state):
    lost = drawn(80, (1, 1, 1, 5, 1, 1))
    missing = {f"e{n}": pair(seed(None, None)) for n in range(errors)}
    gate, duel = decide(lost | missing)
    assert gate.state == state
    assert duel.errors == errors
    assert overall(duel).n == 80


def test_names_and_order_of_pairs_move_nothing():
    pairs = drawn(60)
    gate, duel = decide(pairs, items(pairs, 20))
    names = list(pairs)
    random.Random(3).shuffle(names)
    of_items = {item.id: item for item in items(pairs, 20)}
    renamed = {f"z{name}": pairs[name] for name in names}
    again, other = decide(
        renamed,
        [
            replace(of_items[name], id=f"z{name}", cluster=f"x{of_items[name].cluster}")
            for name in names
        ],
    )
    assert (again.state, again.p, again.mde) == pytest.approx((gate.state, gate.p, gate.mde))
    assert overall(other).share == pytest.approx(overall(duel).share)
    shuffled, _ = decide({name: pairs[name] for name in names}, items(pairs, 20))
    assert shuffled == gate


def test_several_measures_have_rows_of_their_own():
    vote = {"score": 0.5, "instruction": 1.0, "quality": 0.0}
    votes = [Vote(first="now", values=vote), Vote(first="before", values=vote)]
    pairs = many(*[pair(DuelSeed(seed=0, before=sha("a"), now=sha("b"), votes=votes))] * 10)
    duel = describe(facts(pairs, measures=dict.fromkeys(vote, WIN)), items(pairs), OPTIONS)
    assert [rows["overall"].finding for rows in duel.measures.values()] == [
        "no difference shown",
        "won",
        "lost",
    ]
    assert set(duel.disagreement) == set(duel.first) == set(vote)


def trials(control, wins, better="oracle", first=0.5, sources=0):
    return [
        DuelTrial(
            control=control,
            better=better,
            pair=f"p{place}",
            cluster=f"s{place % sources if sources else place}",
            win=win,
            first=None if win is None else first,
        )
        for place, win in enumerate(wins)
    ]


def gate_of(*groups):
    return controls_gate(describe_controls([trial for group in groups for trial in group], 0.05))


GOOD = [1.0] * 18 + [0.5, 0.5]


def test_a_judge_that_prefers_right_edits_passes():
    gate = gate_of(
        trials("shuffled", GOOD), trials("blend", [1, 1, 1, 0.5] * 5), trials("identity", GOOD)
    )
    assert (gate.kind, gate.field, gate.state) == ("duel_controls", "overall", "PASS")
    assert gate.why == (
        "the judge prefers a right edit to every control: wins 0.88 over blend, 0.95 over identity, "
        "0.95 over shuffled"
    )


@pytest.mark.parametrize(
    ("wins", "first", "why"),
    [
        pytest.param([0.5] * 20, 1.0, "the judge prefers the first of any two edits", id="first"),
        pytest.param([0.5] * 20, 0.0, "the judge prefers the second of any two edits", id="second"),
        pytest.param([0.5] * 20, 0.5, "the judge does not prefer a right edit to identity, noise", id="ties"),
        pytest.param([0.0] * 18 + [0.5] * 2, 0.5, "the judge prefers identity, noise to a right edit", id="worse"),
        pytest.param([1.0, 0.0] * 10, 0.5, "the judge does not prefer a right edit to identity, noise", id="coin"),
        pytest.param([1.0, 1.0, 0.5, 0.5, 0.0] * 10, 0.5, "the judge does not prefer a right edit to identity, noise", id="too-rarely"),
        pytest.param([None] * 20, None, "the judge answered none of 40 duels of controls", id="errors"),
    ],
)  # fmt: skip
def test_a_judge_that_cannot_be_believed_is_invalid(wins, first, why):
    gate = gate_of(trials("identity", wins, first=first), trials("noise", wins, first=first))
    assert (gate.state, gate.warns) == ("INVALID", False)
    assert gate.why.startswith(f"{why}: ")


def test_a_judge_that_does_not_look_is_invalid_by_every_control():
    (control,) = describe_controls(trials("noise", [0.5] * 20, better="own", first=1.0), 0.05)
    assert (control.state, controls_gate([control]).state) == ("INVALID", "INVALID")


def test_controls_that_are_not_decided_are_counted():
    gate = gate_of(trials("identity", GOOD), trials("noise", [1.0] * 11 + [None] * 9))
    assert (gate.state, gate.why) == (
        "PASS",
        "9 of 40 duels of controls are not decided; the judge prefers a right edit to every control: "
        "wins 0.95 over identity, 1.00 over noise",
    )


def test_half_done_edits_need_only_be_shown_to_be_worse():
    wins = [1.0, 1.0, 0.5, 0.5, 0.0] * 20
    blend, identity = describe_controls(trials("identity", wins) + trials("blend", wins), 0.05)
    assert (blend.control, blend.state) == ("blend", "PASS")
    assert (identity.control, identity.state) == ("identity", "INVALID")
    assert blend.p == identity.p < 0.05


def test_few_sources_show_nothing_and_warn():
    gate = gate_of(trials("identity", GOOD, sources=4))
    assert (gate.state, gate.warns) == ("INCONCLUSIVE", True)
    assert gate.why.startswith(
        "duels of 20 pairs of 4 source images do not show that the judge prefers a right edit to identity"
    )


def test_while_duels_are_pending_nothing_is_decided():
    pending = [
        replace(trial, win=None, first=None, is_pending=True) for trial in trials("noise", GOOD)
    ]
    (identity, noise) = describe_controls(trials("identity", GOOD) + pending, 0.05)
    assert (noise.pending, noise.errors, noise.state) == (20, 0, "INCONCLUSIVE")
    gate = controls_gate([identity, noise])
    assert (gate.state, gate.warns) == ("INCONCLUSIVE", True)


def test_a_useless_editor_is_no_proof_against_a_judge():
    gate = gate_of(trials("identity", [0.0, 0.5] * 10, better="own"))
    assert (gate.state, gate.warns) == ("INCONCLUSIVE", False)
    assert "prefers this editor's edits to identity" in gate.why
    assert gate_of(trials("noise", GOOD, better="own")).state == "PASS"
    assert gate_of(trials("noise", [0.5] * 20, better="own", first=1.0)).state == "INVALID"


def test_errors_are_counted_and_the_others_decide():
    (control,) = describe_controls(trials("noise", [*GOOD, None, None]), 0.05)
    assert (control.n, control.errors, control.sources, control.state) == (20, 2, 20, "PASS")


@pytest.mark.parametrize("answered", [9, 5, 0])
def test_a_control_with_more_errors_than_votes_does_not_pass(answered):
    noise = trials("noise", [1.0] * answered + [None] * (20 - answered))
    (identity, short) = describe_controls(trials("identity", GOOD) + noise, 0.05)
    assert (identity.state, short.state) == ("PASS", "INCONCLUSIVE")
    gate = controls_gate([identity, short])
    assert (gate.state, gate.warns) == ("INCONCLUSIVE", False)
    assert gate.why.startswith(f"{20 - answered} of 20 duels of noise without a vote: wins 0.95")


def test_votes_that_show_a_bad_judge_are_not_excused_by_missing_ones():
    gate = gate_of(trials("identity", GOOD), trials("noise", [0.0] * 9 + [None] * 11))
    assert gate.state == "INVALID"


def test_controls_of_a_judge_that_goes_by_order_are_invalid_as_the_gate_is():
    even = trials("identity", [0.5] * 20, "own", 1.0) + trials("noise", [0.5] * 20, "own", 1.0)
    controls = describe_controls(even, 0.05)
    assert [control.state for control in controls] == ["INVALID", "INVALID"]
    assert controls_gate(controls).why.startswith("the judge prefers the first of any two edits")
