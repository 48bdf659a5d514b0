"""The verdict of a run: one short line that names the reason, first and last in the terminal."""

from __future__ import annotations

import pytest
from documents import a_run, an_item
from rich.cells import cell_len

from pytest_imgedit.core.results import ControlRow, Controls, GateResult, ItemError
from pytest_imgedit.report import html, markdown, terminal
from pytest_imgedit.stats.judge_qualification import controls_gate
from pytest_imgedit.stats.outcome import cut, failed_for, outcome

GONE = "404: The model `wrongname` does not exist."


def failed(name, stage="score", message=GONE, kind="exception", **changes):
    return an_item(name, score=None, error=ItemError(stage, kind, message), **changes)


def errors_gate(failures, pairs):
    why = f"{failures} of {pairs} pairs without a score, 0 allowed"
    return GateResult("overall", "max_errors", 0, failures, "FAIL", why)


@pytest.mark.parametrize(
    ("items", "line"),
    [
        (
            [failed(f"p{n}") for n in range(4)],
            "FAIL: judge: 404: The model `wrongname` does not exist. (4 of 4 pairs)",
        ),
        (
            [failed(f"p{n}", "edit", "CUDA out of memory", "oom") for n in range(4)],
            "FAIL: editor: CUDA out of memory (4 of 4 pairs)",
        ),
        (
            [failed(f"p{n}", "edit", "the prompt was blocked", "refused") for n in range(3)],
            "FAIL: editor: the prompt was blocked (3 of 3 pairs)",
        ),
        (
            [an_item("p0"), failed("p1"), failed("p2"), failed("p3", "edit", "no luck")],
            "FAIL: judge: 404: The model `wrongname`… (3 of 4 pairs, 2 reasons)",
        ),
        (
            [failed("p0", message=f"ValueError: {'a long story ' * 20}")],
            "FAIL: judge: ValueError: a long story a long story a… (1 of 1 pair)",
        ),
        (
            [failed(f"p{n}", message=f"RuntimeError: {GONE}") for n in range(4)],
            "FAIL: judge: RuntimeError: 404: The model `wrongname`… (4 of 4 pairs)",
        ),
        (
            [failed("p0", message="x" * 300)],
            f"FAIL: judge: {'x' * 43}… (1 of 1 pair)",
        ),
    ],
)
def test_a_failure_of_pairs_is_named_with_its_reason(items, line):
    results = a_run(items=items, gates=[errors_gate(len(items), len(items))])
    assert outcome(results).line == line
    assert f"imgedit: {line}" == terminal.render(results, 80, color=False).splitlines()[0]
    assert line in html.render(results, lambda name: None).replace("&#96;", "`")
    assert markdown.escape(line) in markdown.render(results)


def test_without_a_score_the_reason_stands_before_gates_that_have_no_mean():
    gates = [
        errors_gate(2, 2),
        GateResult("overall", "fail_under", 5, None, "INVALID", "overall has no mean score"),
    ]
    line = outcome(a_run(items=[failed("p0"), failed("p1")], gates=gates)).line
    assert line.startswith("INVALID: judge: 404")
    assert line.endswith("(2 of 2 pairs)")


@pytest.mark.parametrize("verbose", [False, True])
def test_a_total_failure_has_no_table(verbose):
    items = [failed(f"p{n}") for n in range(4)]
    text = terminal.render(a_run(items=items), 100, color=False, verbose=verbose)
    assert "──" not in text
    assert "measure" not in text


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("overall 5.00 < 9", 16, "overall 5.00 < 9"),
        ("overall 2.83, was 7.36 in main: -4.53 (a drop of up to 0 is allowed)", 50, 37),
        ("a (b; c: d) is long: and goes on", 25, 19),
        ("short: " + "y" * 40, 30, None),
        ("物理" * 20 + ": so", 30, None),
        ("no statement ends here at all", 20, None),
    ],
)
def test_a_text_is_cut_behind_a_statement_or_marked_as_cut(text, columns, shown):
    found = cut(text, columns)
    assert cell_len(found) <= columns
    if shown is None:
        assert found.endswith("…")
    else:
        assert found == (shown if isinstance(shown, str) else text[:shown])


LONG = "a statement that goes on and on, with numbers such as 5.00, and comes to no end at all"


@pytest.mark.parametrize("state", ["PASS", "FAIL", "INVALID", "INCONCLUSIVE"])
@pytest.mark.parametrize("why", ["b", LONG, f"{LONG}: {LONG}", "统计" * 60])
@pytest.mark.parametrize("name", ["main", "a-baseline-with-a-name-of-its-own-" * 3])
def test_a_verdict_has_at_most_80_columns(state, why, name):
    gate = GateResult("physics", "fail_under", 7, 6, state, why, warns=True)
    results = a_run(gates=[gate, gate], suite={"name": name, "sha256": "", "pairs": 4})
    found = outcome(results)
    assert cell_len(f"imgedit: {found.line}") <= 80
    assert found.line.startswith(f"{state}")
    stopped = {"status": "incomplete", "stopped_by": why}
    assert cell_len(f"imgedit: {outcome(a_run(run=stopped)).line}") <= 80


def test_what_does_not_fit_into_the_verdict_is_a_note():
    stopped = {"status": "incomplete", "stopped_by": LONG}
    found = outcome(a_run(run=stopped))
    assert f"stopped: {LONG}" in found.notes
    text = terminal.render(a_run(run=stopped), 200, color=False)
    assert f"stopped: {LONG}" in text.splitlines()


def test_gates_have_a_line_each_the_worst_first_and_long_ones_are_wrapped():
    gates = [
        GateResult(
            "overall", "max_errors", 0, 0, "PASS", "0 of 4 pairs without a score, 0 allowed"
        ),
        GateResult("physics", "fail_under", 9.99, 9.12, "FAIL", f"physics 9.12 < 9.99: {LONG}"),
        GateResult("overall", "max_drop", 0.2, 0, "PASS", f"overall 5.00, was 5.00: {LONG}"),
    ]
    lines = terminal.render(a_run(gates=gates), 80, color=False).splitlines()
    assert lines[0] == "imgedit: FAIL: physics 9.12 < 9.99; overall 4.50"
    assert lines[1].startswith("  FAIL  fail_under physics:9.99: 9.12 < 9.99: a statement")
    assert lines[2].startswith(" " * 8)
    assert lines[3:5] == [
        "  PASS  max_errors: 0 of 4 pairs without a score, 0 allowed",
        "  PASS  max_drop overall:0.2: 5.00, was 5.00",
    ]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("pairs", "sources", "text"),
    [(1, 1, "1 pair of 1 source image does not"), (4, 2, "4 pairs of 2 source images do not")],
)
def test_one_pair_is_no_pairs(pairs, sources, text):
    row = ControlRow(
        control="identity", n=pairs, scored=pairs, errors=0, pending=0, state="INCONCLUSIVE"
    )
    controls = Controls(pairs=pairs, sources=sources, has_oracle=True, rows=[row], trials=[])
    assert controls_gate(controls).why.startswith(text)


def test_reasons_of_pairs_are_counted():
    assert failed_for([an_item("p0")], 80) == ""
    assert failed_for([failed("p0"), an_item("p1")], 80).endswith("(1 of 2 pairs)")


@pytest.mark.parametrize(("kind", "is_whole"), [
    ("max_collapsed", True), ("duel_controls", True), ("max_errors", False),
])  # fmt: skip
def test_gates_that_passed_and_name_pairs_or_controls_are_not_cut(kind, is_whole):
    why = "4 of 24 pairs fell by 3 points or more against main, 5 allowed: p1, p2, p3, the last one"
    run = a_run(gates=[GateResult("overall", kind, 5, 4, "PASS", why)])
    shown = terminal.render(run, 80, color=False)
    assert ("the last one" in shown) == is_whole
    assert "the last one" in terminal.render(run, 80, color=False, verbose=True)
