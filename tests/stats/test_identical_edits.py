"""Finished edits of different sources that are one image: a line, and no PASS where they are
most.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from documents import a_run, an_item

from pytest_imgedit.core.results import GateOptions, SeedResult
from pytest_imgedit.report.tables import _edits
from pytest_imgedit.stats.decision import Evidence, decide
from pytest_imgedit.stats.identical_edits import largest_alike
from pytest_imgedit.stats.outcome import outcome


def item(number, edit, source=None, **changes):
    made = an_item(f"p{number}", source=f"ab/{number if source is None else source:064x}.png")
    edited = replace(made.edits[0], blob=f"{edit:064x}", **changes)
    return made.model_copy(update={"seeds": (SeedResult(0, edited, made.verdicts[0], None),)})


def run_of(items, spec="folder:done"):
    evidence = Evidence(
        items=items, computed=None, settings=GateOptions(), are_finished=spec == "folder:done"
    )
    gates = decide(evidence).gates
    document = a_run(items=items, gates=gates)
    return document.model_copy(update={"editor": document.editor.model_copy(update={"spec": spec})})


@pytest.mark.parametrize(
    ("alike", "pairs", "state"),
    [
        (11, 11, "INVALID"),
        (6, 11, "INVALID"),
        (3, 5, "INVALID"),
        (3, 3, "INVALID"),
        (5, 10, "PASS"),
        (5, 11, "PASS"),
        (2, 3, "PASS"),  # two may agree by what was asked for
        (2, 2, "PASS"),
        (1, 1, "PASS"),
    ],
)
def test_one_file_for_most_sources_is_no_pass(alike, pairs, state):
    items = [item(number, 0 if number < alike else number) for number in range(pairs)]
    document = run_of(items)
    found = outcome(document)
    assert (found.state, found.fails) == (state, state != "PASS")
    line = f"{alike} of {pairs} finished edits are one and the same image, of {alike} different"
    lines = list(_edits(document))
    assert any(line in gate.why for gate in document.gates) == (state == "INVALID")
    assert any(line in each for each in lines) == (state == "PASS" and alike > 1)


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([item(n, 0, source=0) for n in range(9)], id="one source"),
        pytest.param([item(n, n) for n in range(9)], id="an edit each"),
        pytest.param([item(n, n // 3, source=n // 3) for n in range(9)], id="an edit each source"),
        pytest.param([item(n, 0, leaked=True) for n in range(9)], id="each its reference"),
        pytest.param([item(n, n, near_copy=True) for n in range(9)], id="copies of sources"),
        pytest.param([], id="no pairs"),
    ],
)
def test_edits_that_may_be_alike_are_no_line(items):
    assert all("one and the same" not in line for line in _edits(run_of(items)))
    assert not items or outcome(run_of(items)).state == "PASS"


def test_edits_that_a_model_made_are_not_asked():
    document = run_of([item(number, 0) for number in range(9)], "noise")
    assert outcome(document).state == "PASS"
    assert list(_edits(document)) == []


def test_pairs_of_one_source_count_once():
    edits = [(f"p{n}", "s" if n < 8 else f"s{n}", "x" if n < 9 else f"e{n}") for n in range(12)]
    found = largest_alike(edits)
    assert (found.sources, found.all_sources, found.are_most) == (2, 5, False)
    assert str(found) == (
        "9 of 12 finished edits are one and the same image, of 2 different sources "
        "(p0, p1, p2, p3, p4 and 4 more)"
    )


def test_repetitions_of_a_pair_are_one_edit():
    assert largest_alike([("a", "s", "x"), ("a", "s", "x"), ("b", "t", "y")]) is None
    assert largest_alike([("a", "s", "x"), ("a", "s", "x"), ("b", "t", "x")]).edits == 2
