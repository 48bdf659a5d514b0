"""Scoring beside editing, as where both models fit; on the CPU, with the decision to do so made
up.
"""

from __future__ import annotations

import pytest

from pytest_imgedit.run import run
from pytest_imgedit.run.placement import Placement

#: The same for a process of its own.
TOGETHER = """
from pytest_imgedit.run import run
from pytest_imgedit.run.placement import Placement
run.place = lambda *given: Placement("resident")
"""
FAKES = ("--imgedit-editor=oracle", "--imgedit-judge=fakes:Constant")


@pytest.fixture
def resident(bench):
    """A benchmark whose editor and judge stay side by side, until `apart` is called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "place", lambda *given: Placement("resident"))
        bench.apart = patch.undo
        yield bench


def without_times(items):
    return [
        (
            item["id"],
            item["status"],
            item["score"],
            [seed["edit"] and seed["edit"]["blob"] for seed in item["seeds"]],
        )
        for item in items.values()
    ]


def test_every_edit_is_judged_once_and_nothing_is_swapped(resident):
    result = resident.run("--imgedit-limit=3", "--imgedit-seeds=2")
    result.assert_outcomes(passed=15)
    assert (resident.timing["swaps"], resident.timing["edits"]) == (0, 30)
    # both seeds give the same pixels here: an edit may take the verdict that its twin has by then
    assert resident.timing["verdicts"] + resident.timing["verdicts_cached"] == 30
    assert 15 <= resident.timing["verdicts"] == resident.records("verdicts")
    assert {worker["stage"] for worker in resident.results["workers"]} == {"edit", "score"}
    beside = without_times(resident.items)
    again = resident.run("--imgedit-limit=3", "--imgedit-seeds=2")
    again.assert_outcomes(passed=15)
    assert (resident.timing["edits_cached"], resident.timing["verdicts_cached"]) == (30, 30)
    resident.apart()
    resident.run("--imgedit-limit=3", "--imgedit-seeds=2", "--imgedit-fresh").assert_outcomes(
        passed=15
    )
    assert resident.timing["swaps"] == 1
    assert without_times(resident.items) == beside


def test_edits_that_were_stored_are_judged_too_and_trials_follow(resident):
    resident.run(*FAKES, "--imgedit-limit=2", "--imgedit-stage=edit")
    result = resident.run(*FAKES, "--imgedit-limit=4", "--imgedit-judge-repeats=1")
    result.assert_outcomes(passed=20)
    assert resident.timing["verdicts"] == 20
    assert resident.timing["edits_cached"] == 10
    assert resident.results["noise"]


def test_a_run_of_trials_alone_has_no_negative_times(bench):
    bench.run(*FAKES, "--imgedit-limit=2").assert_outcomes(passed=10)
    bench.run(*FAKES, "--imgedit-limit=2", "--imgedit-judge-repeats=1").assert_outcomes(passed=10)
    assert bench.timing["score_s"] == 0
    assert bench.timing["trials_s"] >= 0


def test_failed_edits_do_not_hold_up_the_judge(resident):
    result = resident.run(
        "--imgedit-editor=fakes:Raises", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2"
    )
    assert result.ret == 1
    statuses = {item["status"] for item in resident.items.values()}
    assert statuses == {"edit_error", "scored"} or statuses == {"edit_error"}
    assert len(resident.items) == 10


def test_judge_that_refuses_its_settings_ends_the_run(resident):
    (resident.path / "refusing.py").write_text(
        "from pytest_imgedit.core.errors import SetupError\n"
        "class Judge:\n"
        "    def __init__(self, *, device): raise SetupError('no such luck')\n"
        "    def answer(self, questions): return []\n"
    )
    result = resident.run(
        "--imgedit-editor=oracle", "--imgedit-judge=refusing:Judge", "--imgedit-limit=2"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: no such luck"])


@pytest.mark.full
def test_interrupted_run_keeps_what_is_done(resident):
    (resident.path / "conftest.py").write_text(TOGETHER)
    process = resident.start("--imgedit-limit=10")
    resident.wait_for(lambda: resident.stored_edits() >= 3)
    resident.interrupt(process)
    assert process.wait(60) == 2
    assert resident.results["run"]["status"] == "incomplete"
    resident.run_subprocess("--imgedit-limit=10").assert_outcomes(passed=50)
    assert resident.timing["edits_cached"] >= 3
