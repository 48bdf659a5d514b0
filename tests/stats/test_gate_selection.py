"""Gates of a config over a part of the pairs."""

from __future__ import annotations

import pytest

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.stats.gate_values import Selection, narrow


def counts(**categories):
    return {"overall": sum(categories.values()), **categories}


WHOLE = counts(physics=10, social=10)
LIMITS = {"overall": 7.0, "physics": 7.0, "social": 7.0}


def decide(selected, asked=(), **settings):
    gates, resting = narrow(
        GatesSettings(**{"fail_under": LIMITS, **settings}), Selection(selected, WHOLE), asked
    )
    assert all(gate.state == "NOT SELECTED" for gate in resting)
    return list(gates.fail_under), [gate.field for gate in resting]


def test_all_gates_are_decided_on_all_pairs():
    assert decide(WHOLE) == (["overall", "physics", "social"], [])


@pytest.mark.parametrize(
    ("selected", "decided", "resting"),
    [
        (counts(physics=10), ["physics"], ["overall", "social"]),
        (counts(physics=9), [], ["overall", "physics", "social"]),
        (counts(physics=1, social=10), ["social"], ["overall", "physics"]),
    ],
)
def test_gates_over_a_part_rest(selected, decided, resting):
    assert decide(selected) == (decided, resting)


def test_gates_over_a_part_are_decided_where_that_is_asked_for():
    assert decide(counts(physics=9), partial="decide") == (["overall", "physics"], ["social"])
    assert decide(counts(physics=1), partial="decide") == ([], ["overall", "physics", "social"])


def test_gates_of_the_command_line_are_decided_on_whatever_is_selected():
    assert decide(counts(physics=2), asked=["gates.fail_under"]) == (
        ["overall", "physics", "social"],
        [],
    )


def test_skipped_pairs_count_nowhere():
    selection = Selection.of(
        counts(physics=9), counts(physics=10, social=1), counts(physics=1, social=1)
    )
    assert selection.counts("overall") == (9, 9)
    assert (selection.whole, selection.skipped) == ({"overall": 9, "physics": 9}, 2)


def test_gates_over_skipped_pairs_rest():
    selection = Selection.of(counts(physics=9), WHOLE, counts(physics=1, social=10))
    gates, resting = narrow(GatesSettings(fail_under=LIMITS), selection, ())
    assert (list(gates.fail_under), [gate.field for gate in resting]) == (
        ["overall", "physics"],
        ["social"],
    )


def test_coverage_of_a_baseline_rests_too():
    gates, resting = narrow(
        GatesSettings(min_coverage=0.9), Selection(counts(physics=3), WHOLE), ()
    )
    assert gates.min_coverage == 0
    assert [(gate.kind, gate.why) for gate in resting] == [
        ("min_coverage", "3 of 20 pairs selected")
    ]


def test_a_run_until_its_gates_are_decided_does_all_where_all_rest():
    gates, _ = narrow(
        GatesSettings(fail_under={"social": 5}, until="decided"),
        Selection(counts(physics=3), WHOLE),
        (),
    )
    assert gates.until == "all"
