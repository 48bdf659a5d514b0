"""What is read from results with duels: their verdict, their plan, and where they contradict
themselves.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from documents import a_run, an_item
from rich.cells import cell_len

from pytest_imgedit.cli.plan import _spreads
from pytest_imgedit.core.measures import WIN, Field
from pytest_imgedit.core.results import DuelPair, DuelSeed, GateOptions, Vote
from pytest_imgedit.stats import planning
from pytest_imgedit.stats.contradictions import contradictions
from pytest_imgedit.stats.duels import DuelFacts, describe, samples
from pytest_imgedit.stats.gate_rules import min_win
from pytest_imgedit.stats.outcome import outcome

OPTIONS = {"duel": True, "min_win": {"overall": 0.5}, "compare": "main"}


def a_duel(now_first, before_first, number):
    votes = tuple(
        Vote(first=first, values={"score": value})
        for first, value in (("now", now_first), ("before", before_first))
    )
    blob = f"{number:064x}"
    return DuelPair(seeds=(DuelSeed(seed=0, before="0" * 64, now=blob, votes=votes),))


def duelled(*votes, **changes):
    """A run of so many pairs with a duel each, and its gate."""
    items = [
        an_item(f"p{n}", score=5.0 + n % 2, source=f"ab/{n:064x}.png") for n in range(len(votes))
    ]
    pairs = {}
    for number, (item, vote) in enumerate(zip(items, votes, strict=True)):
        pairs[item.id] = a_duel(*vote, number + 1)
    facts = DuelFacts(name="main", run="r0", editor="scenes", by_scores=False, pairs=pairs)
    options = GateOptions(**OPTIONS)
    gates = min_win(options, samples(facts, items), "main", facts.measures)
    duel = describe(facts, items, options, gates)
    run = a_run(items=items, gate_options=OPTIONS)
    return run.model_copy(update={"duel": duel, "gates": (*run.gates, *gates), **changes})


EVEN = [(1, 1), (0, 0), (1, 0), (0.5, 1), (0, 0.5), (0, 1)] * 100
LOST = [(0, 0), (0, 0.5), (1, 0), (0, 0), (0, 0), (1, 1)] * 20


@pytest.mark.parametrize(
    ("votes", "line"),
    [
        (EVEN, "PASS: wins 0.50 of 600 duels against main; overall 5.50"),
        (LOST, "FAIL: overall wins 0.29 of duels against main < 0.5 (p <0.001)"),
        (EVEN[:60], "INCONCLUSIVE (warning): overall wins 0.50 of duels against main >= 0.5"),
    ],
)
def test_the_verdict_tells_the_share_of_duels(votes, line):
    verdict = outcome(duelled(*votes))
    assert verdict.line == line
    assert cell_len(verdict.line) <= 71
    assert verdict.fails == line.startswith("FAIL")


def test_a_share_that_no_gate_was_decided_on_is_not_one_that_passed():
    run = duelled((0, 0), (0, 0))
    gate = replace(run.gates[-1], state="NOT SELECTED", value=None, why="2 of its 100 pairs")
    verdict = outcome(run.model_copy(update={"gates": (*run.gates[:-1], gate)}))
    assert verdict.line.startswith("PASS: wins 0.00 of 2 duels against main, not decided")


def test_equal_edits_win_no_duel():
    seed = DuelSeed(seed=0, before="ab" * 32, now="ab" * 32)
    run = duelled((0, 0), (0, 0))
    pairs = {name: DuelPair(seeds=(seed,)) for name in run.duel.pairs}
    duel = run.duel.model_copy(update={"pairs": pairs, "identical": 2})
    gate = replace(run.gates[-1], state="PASS", warns=False, value=0.5)
    verdict = outcome(run.model_copy(update={"duel": duel, "gates": (*run.gates[:-1], gate)}))
    assert verdict.line == "PASS: every edit equals that of main; overall 5.50"


def test_an_untried_judge_is_named():
    run = duelled(*EVEN[:60])
    trial = run.gates[-1]
    trial = type(trial)(**{**asdict(trial), "kind": "duel_controls", "why": "too few"})
    verdict = outcome(run.model_copy(update={"gates": (*run.gates, trial)}))
    assert verdict.line.startswith("INCONCLUSIVE (warning): judge not tried by duels")


def test_the_plan_of_a_run_tells_what_its_duels_detect():
    spreads = {
        spread.gate: spread for spread in _spreads(duelled(*EVEN), None, [Field.parse("overall")])
    }
    wins = spreads["min_win overall"]
    assert (wins.kind, wins.measure, wins.pairs) == ("min_win", WIN, 600)
    assert wins.error == pytest.approx(0.0138, abs=0.001)
    assert list(spreads) == ["fail_under overall", "min_win overall"]


def test_the_next_run_can_detect_what_this_one_could():
    run = duelled(*EVEN)
    mde, origin = planning.expected_mde("min_win", "overall", 0.025, 150, [run])
    assert mde == pytest.approx(2 * run.gates[-1].mde)
    assert origin == "run r1"


def test_duels_that_contradict_their_votes_are_seen():
    run = duelled(*LOST)
    told = [line for line in contradictions(run) if "duel" in line or "min_win" in line]
    assert told == []
    row = run.duel.measures["score"]["overall"]
    rows = {"score": {"overall": row.model_copy(update={"share": 0.9, "n": 119})}}
    duel = run.duel.model_copy(update={"measures": rows, "identical": 3, "errors": 1})
    told = list(contradictions(run.model_copy(update={"duel": duel})))
    for place in (
        "duel.identical",
        "duel.errors",
        "duel.measures.score.overall.n",
        "duel.measures.score.overall.share",
        "gates.min_win overall: value",
    ):
        assert any(line.startswith(place) for line in told), told
