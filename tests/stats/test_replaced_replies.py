"""Scores of replies that nobody could read: in every outcome's line, and no PASS beyond a few."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from documents import a_run, an_item

from pytest_imgedit.core.results import GateOptions, SeedResult, Verdict
from pytest_imgedit.stats.decision import Evidence, decide
from pytest_imgedit.stats.outcome import outcome


def replaced(name):
    """A pair whose score is that of the authors' rule."""
    item = an_item(name)
    verdict = Verdict({"": "no"}, {}, 5.0, touched=("grades",))
    return item.model_copy(update={"seeds": (SeedResult(0, item.edits[0], verdict, None),)})


def dropped(name):
    return an_item(name, score=None, status="dropped")


def run_of(made, count, pairs, **settings):
    """A run of `pairs` pairs, of which `count` are `made`."""
    items = [
        made(f"p{number}") if number < count else an_item(f"p{number}") for number in range(pairs)
    ]
    gates = decide(Evidence(items=items, computed=None, settings=GateOptions(**settings))).gates
    results = a_run(items=items, gates=gates)
    found = outcome(results)
    said = [found.line, *found.notes, *(gate.why for gate in gates)]
    return SimpleNamespace(state=found.state, fails=found.fails, said="; ".join(said))


@pytest.mark.parametrize("made", [replaced, dropped])
@pytest.mark.parametrize(("count", "state"), [(0, "PASS"), (1, "PASS"), (2, "INVALID")])
def test_a_run_with_over_5_percent_replaced_replies_is_no_plain_pass(made, count, state):
    found = run_of(made, count, 20)
    assert (found.state, found.fails) == (state, state != "PASS")
    line = f"compat replaced or dropped unreadable replies of {count} of 20 pairs"
    assert found.said.count(line) == bool(count)
    assert ("more than 5%" in found.said) == (state == "INVALID")


def test_a_judge_whose_every_reply_is_a_refusal_does_not_pass():
    found = run_of(replaced, 15, 15, fail_under={"overall": 3.0})
    assert found.state == "INVALID"
    assert "of 15 of 15 pairs, more than 5%" in found.said


def test_a_few_replaced_replies_stand_in_a_line_that_fails_for_another_reason():
    found = run_of(replaced, 1, 40, fail_under={"overall": 9.0})
    assert found.state == "INCONCLUSIVE"
    assert "compat replaced or dropped unreadable replies of 1 of 40 pairs" in found.said
