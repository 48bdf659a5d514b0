"""Runs that end as soon as their gates are decided."""

from __future__ import annotations

import pytest

MODELS = (
    "--imgedit-editor=fakes:Checkpoint",
    "--imgedit-judge=fakes:Reads",
    "--imgedit-set=judge.controls=false",
)
UNTIL = (*MODELS, "--imgedit-until=decided")
DROP = ("--imgedit-compare=main", "--imgedit-max-drop=overall:0")
SWAPS = """
from pytest_imgedit.run import run
from pytest_imgedit.run.placement import Placement
run.place = lambda *given: Placement("swap")
"""


@pytest.fixture
def saved(bench):
    """A benchmark with the baseline `main`."""
    assert bench.run(*MODELS, "--imgedit-save=main").ret == 0
    return bench


def statuses(bench):
    return [item["status"] for item in bench.items.values()]


@pytest.mark.full
def test_a_drop_ends_the_run_early_and_the_rest_is_not_needed(saved):
    worse = (*UNTIL, *DROP, "--imgedit-set=editor.level=5", "--imgedit-set=editor.night=1")
    edits, verdicts = saved.stored_edits(), saved.records("verdicts")
    result = saved.run(*worse, "--junitxml=junit.xml")
    assert result.ret == 1
    needed = statuses(saved).count("scored")
    assert 10 <= needed <= 25
    result.assert_outcomes(passed=needed, skipped=50 - needed, failed=1)
    assert statuses(saved).count("not_needed") == 50 - needed
    assert (saved.stored_edits(), saved.records("verdicts")) == (edits + needed, verdicts + needed)
    assert (saved.timing["edits"], saved.timing["verdicts"], saved.timing["swaps"]) == (
        needed,
        needed,
        0,
    )
    result.stdout.fnmatch_lines(
        [
            f"imgedit: {needed} of 50 pairs seen, 1 of 1 gates decided",
            f"imgedit: FAIL: overall *, was * in main: -*; {50 - needed} of 50 pairs not needed",
            f"  FAIL *(a drop of up to 0 is allowed): shown with {needed} of 50 pairs (p 0.0*)",
            f"overall*{needed}*FAIL*",
        ]
    )
    assert "not needed: every gate was decided before" in (saved.path / "junit.xml").read_text()
    assert saved.results["run"]["status"] == "complete"
    assert all(worker["ready_s"] < 60 for worker in saved.results["workers"])
    (tail,) = [gate for gate in saved.results["gates"] if gate["kind"] == "max_collapsed"]
    assert tail["why"].endswith(f"({50 - needed} more were not looked at)")
    again = saved.run(*worse)
    again.assert_outcomes(passed=needed, skipped=50 - needed, failed=1)
    assert (saved.timing["edits_cached"], saved.timing["edits"]) == (needed, 0)
    assert saved.run(*worse, "-n", "2").ret == 1
    assert statuses(saved).count("scored") == needed


@pytest.mark.full
def test_equal_edits_pass_early(saved):
    result = saved.run(*UNTIL, *DROP)
    assert result.ret == 0
    assert statuses(saved).count("scored") <= 15
    result.stdout.fnmatch_lines(
        ["  PASS *in main: no change (a drop of up to 0 is allowed): not more than 0.5 *"]
    )


@pytest.mark.full
def test_a_judge_without_any_spread_decides_nothing_on_the_way(saved):
    constant = ("--imgedit-judge=fakes:Constant", "--imgedit-set=judge.controls=false")
    assert saved.run("--imgedit-editor=fakes:Checkpoint", *constant, "--imgedit-save=flat").ret == 0
    other = ("--imgedit-editor=fakes:Checkpoint", "--imgedit-set=editor.night=3", *constant)
    result = saved.run(
        *other, "--imgedit-until=decided", "--imgedit-compare=flat", "--imgedit-max-drop=overall:0"
    )
    assert result.ret == 1
    assert statuses(saved) == ["scored"] * 50
    result.stdout.fnmatch_lines(
        ["imgedit: INCONCLUSIVE: overall 5.00, was 5.00 in flat: no change*"]
    )
    result.stdout.fnmatch_lines(["*no spread*"])


@pytest.mark.full
def test_what_is_not_decided_on_the_way_is_decided_at_the_end(saved):
    options = ("--imgedit-fail-under=overall:5.9", "--imgedit-set=gates.margin=0.1")
    result = saved.run(*UNTIL, *options)
    assert result.ret == 1
    assert statuses(saved) == ["scored"] * 50
    result.stdout.fnmatch_lines(["  INCONCLUSIVE *: 5.78 < 5.9: *by more than gates.margin (0.1)"])


@pytest.mark.full
def test_a_gate_that_is_decided_waits_for_the_others(saved):
    gates = (
        "--imgedit-fail-under=overall:3",
        "--imgedit-fail-under=physics:5.5",
        "--imgedit-set=gates.margin=0.2",
    )
    result = saved.run(*UNTIL, *gates)
    assert result.ret == 0
    early, late = saved.results["gates"][1:]
    assert (early["field"], early["state"], "shown with " in early["why"]) == (
        "overall",
        "PASS",
        True,
    )
    assert (late["field"], late["state"]) == ("physics", "INCONCLUSIVE")
    assert "scored" in statuses(saved)
    result.stdout.fnmatch_lines(["imgedit: *of 50 pairs seen, 1 of 2 gates decided"])


@pytest.mark.full
def test_models_that_do_not_fit_together_swap_between_blocks(saved):
    (saved.path / "conftest.py").write_text(SWAPS)
    worse = ("--imgedit-set=editor.level=5.4", "--imgedit-set=editor.night=1")
    result = saved.run_subprocess(*UNTIL, *DROP, *worse)
    assert result.ret == 1
    # The first block holds a fifth. Swaps take longer than these edits, so that the second holds
    # all that is left.
    assert saved.timing["swaps"] == 2
    result.stdout.fnmatch_lines(
        ["imgedit: edit: 10 to do", "imgedit: score: 10 to do", "imgedit: 10 of 50 pairs seen*"]
    )
    assert statuses(saved) == ["scored"] * 50
    assert {worker["stage"] for worker in saved.results["workers"]} == {"edit", "score"}
    assert sum(worker["jobs"] for worker in saved.results["workers"]) == 100


@pytest.mark.full
def test_the_judge_is_tried_at_the_end(bench):
    options = (
        "--imgedit-editor=oracle",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-until=decided",
    )
    result = bench.run(*options, "--imgedit-fail-under=overall:2")
    assert result.ret == 1
    assert statuses(bench).count("not_needed") > 20
    result.stdout.fnmatch_lines(["imgedit: INVALID: the judge cannot tell blend, *"])


def test_errors_count_and_speak_against_every_claim(bench):
    options = (
        "--imgedit-editor=fakes:Raises",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-until=decided",
    )
    off = (
        "--imgedit-set=judge.controls=false",
        "--imgedit-set=gates.max_near_copies=1.0",
        "--imgedit-max-errors=1",
    )
    result = bench.run(
        *options, *off, "--imgedit-set=judge.score=9", "--imgedit-fail-under=physics:6"
    )
    assert result.ret == 1
    assert statuses(bench).count("edit_error") == 1
    result.stdout.fnmatch_lines(["imgedit: INCONCLUSIVE: physics 9.00 >= 6*"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        pytest.param(
            [],
            "*no gate to decide, expected --imgedit-fail-under or --imgedit-max-drop",
            id="no-gate",
        ),
        pytest.param(
            ["--imgedit-fail-under=overall:5", "--imgedit-save=x"],
            "*not with --imgedit-save=x, *",
            id="save",
        ),
        pytest.param(
            ["--imgedit-fail-under=overall:5", "--imgedit-stage=score"],
            "*not with --imgedit-stage=score*",
            id="stage",
        ),
        pytest.param(
            ["--imgedit-compare=main", "--imgedit-max-drop=overall:0", "--imgedit-max-collapsed=0"],
            "*not with --imgedit-max-collapsed=0, which is about all pairs",
            id="collapsed",
        ),
    ],
)
@pytest.mark.full_for("collapsed")
def test_what_is_about_all_pairs_is_refused(bench, options, line):
    bench.refuses(line, *UNTIL, *options)


@pytest.mark.full
def test_a_block_keeps_all_workers_busy(saved):
    worse = (
        "--imgedit-set=editor.level=4",
        "--imgedit-set=editor.night=1",
        "--imgedit-set=workers.cpu_workers=7",
    )
    result = saved.run(*UNTIL, *DROP, *worse)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["imgedit: edit: 10 to do", "imgedit: 10 of 50 pairs seen, 1 of 1 gates decided"]
    )
    assert statuses(saved).count("scored") == 10
