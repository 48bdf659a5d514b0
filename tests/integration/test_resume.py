"""What is finished is kept: second runs, killed runs, killed workers, Ctrl-C, and the stages by themselves."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

SLOW = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=4")


def scores(bench):
    return {item["id"]: item["score"] for item in bench.results["items"]}


def test_second_run_does_nothing_again(bench):
    bench.run("--imgedit-editor=noise", "--imgedit-limit=2")
    first = scores(bench)
    bench.run("--imgedit-editor=noise", "--imgedit-limit=2")
    timing = bench.timing
    assert (timing["edits"], timing["verdicts"], timing["swaps"]) == (0, 0, 0)
    assert (timing["edits_cached"], timing["verdicts_cached"]) == (10, 10)
    assert bench.results["workers"] == []
    assert scores(bench) == first


def test_fresh_does_everything_again(bench):
    for _ in range(2):
        bench.run("--imgedit-limit=1", "--imgedit-fresh")
    assert (bench.timing["edits"], bench.timing["verdicts"]) == (5, 5)


@pytest.mark.parametrize(
    ("changed", "edits", "verdicts"),
    [
        pytest.param(["--imgedit-set=editor.delay=0.01"], 5, 0, id="editor-parameter"),
        pytest.param(["--imgedit-set=judge.score=6.0"], 0, 5, id="judge-parameter"),
        pytest.param(["--imgedit-set=judge.rubric=plausibility"], 0, 5, id="rubric"),
        pytest.param(["--imgedit-set=suite.language=zh"], 5, 5, id="instruction"),
    ],
)
def test_only_what_a_change_touches_is_done_again(bench, changed, edits, verdicts):
    base = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1")
    bench.run(*base)
    bench.run(*base, *changed)
    assert (bench.timing["edits"], bench.timing["verdicts"]) == (edits, verdicts)


def test_after_kill_9_in_mid_edit_the_next_run_does_only_the_rest(bench):
    process = bench.start(*SLOW)
    bench.wait_for(lambda: bench.stored_edits() >= 5)
    workers = bench.children(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    done = bench.stored_edits()
    assert 5 <= done < 20
    bench.run(*SLOW).assert_outcomes(passed=20)
    assert bench.timing["edits_cached"] == done
    assert bench.timing["edits"] == 20 - done


def test_ctrl_c_keeps_what_is_finished_and_exits_2(bench):
    process = bench.start(*SLOW)
    bench.wait_for(lambda: bench.stored_edits() >= 3)
    workers = bench.children(process)
    bench.interrupt(process)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 2, output
    assert "INCOMPLETE" in output
    assert not [worker for worker in workers if worker.is_running()]
    document = bench.results
    assert document["run"]["status"] == "incomplete"
    assert len(document["items"]) == 20
    interrupted = [item for item in document["items"] if item["status"] == "interrupted"]
    assert f"INCOMPLETE: stopped by the user with {len(interrupted)} pairs to do" in output
    assert document["overall"]["micro"]["errors"] == 0
    assert document["timing"]["edits"] == bench.stored_edits()
    done = bench.stored_edits()
    bench.run(*SLOW).assert_outcomes(passed=20)
    assert bench.timing["edits_cached"] == done


def test_interrupted_run_still_shows_the_verdicts_of_earlier_runs(bench):
    bench.run(*SLOW, "-k", "physics")
    process = bench.start(*SLOW, "--imgedit-set=workers.cpu_workers=1")
    bench.wait_for(lambda: bench.stored_edits() >= 6)
    bench.interrupt(process)
    process.communicate(timeout=30)
    assert bench.results["categories"]["physics"]["scored"] == 4


def test_second_ctrl_c_stops_at_once_and_leaves_no_process(bench):
    process = bench.start("--imgedit-editor=fakes:Slow", "--imgedit-set=editor.delay=60", "--imgedit-limit=1")
    bench.wait_for(lambda: bench.log_says("edit-0 (CPU): loading"))
    time.sleep(1)
    workers = bench.children(process)
    bench.interrupt(process)
    bench.wait_for(lambda: bench.log_says("stopping: running jobs are finished"))
    assert process.poll() is None
    bench.interrupt(process)
    output, _ = process.communicate(timeout=15)
    assert process.returncode == 2, output
    assert not [worker for worker in workers if worker.is_running()]
    assert {item["error"]["kind"] for item in bench.results["items"]} == {"interrupted"}


def test_job_of_a_killed_worker_is_done_once_more_in_a_fresh_process(bench):
    result = bench.run(
        "--imgedit-editor=fakes:Fragile", "--imgedit-set=editor.once=causal-0001", "--imgedit-judge=fakes:Constant"
    )
    result.assert_outcomes(passed=50)
    assert [worker["name"] for worker in bench.results["workers"] if worker["stage"] == "edit"] == ["edit-0"] * 2
    assert "edit-0 | about to die" in (bench.runs[-1] / "run.log").read_text()


def test_job_that_kills_its_worker_twice_is_an_error_and_the_others_go_on(bench):
    result = bench.run(
        "--imgedit-editor=fakes:Fragile",
        "--imgedit-set=editor.always=causal-0001",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-limit=3",
    )
    result.assert_outcomes(passed=14, failed=1)
    error = next(item["error"] for item in bench.results["items"] if item["id"] == "causal-0001")
    assert error["kind"] == "worker_died"
    assert "about to die" in error["message"]


def test_several_workers_share_the_jobs(bench):
    bench.run(*SLOW, "--imgedit-set=workers.cpu_workers=3")
    done = {worker["name"]: worker["jobs"] for worker in bench.results["workers"] if worker["stage"] == "edit"}
    assert set(done) == {"edit-0", "edit-1", "edit-2"}
    assert sum(done.values()) == 20
    assert min(done.values()) >= 3


def test_stages_run_by_themselves(bench):
    base = ("--imgedit-editor=noise", "--imgedit-limit=1")
    result = bench.run(*base, "--imgedit-stage=report")
    assert result.ret == 1
    assert {item["error"]["kind"] for item in bench.results["items"]} == {"not_edited"}

    assert bench.run(*base, "--imgedit-stage=edit").ret == 0
    assert {item["status"] for item in bench.results["items"]} == {"edited"}

    bench.run(*base, "--imgedit-stage=report")
    assert {item["error"]["kind"] for item in bench.results["items"]} == {"not_scored"}

    assert bench.run(*base, "--imgedit-stage=score").ret == 0
    assert {worker["stage"] for worker in bench.results["workers"]} == {"score"}

    assert bench.run(*base, "--imgedit-stage=report").ret == 0
    assert bench.results["workers"] == []
    assert {item["status"] for item in bench.results["items"]} == {"scored"}


def test_second_run_on_a_held_store_exits_4_and_names_the_holder(bench):
    process = bench.start(*SLOW)
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    result = bench.run("--imgedit-limit=1")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: *the store is held by process {process.pid} on *"])
    process.kill()
    process.communicate()


def test_damaged_image_in_the_store_is_edited_again(bench):
    bench.run("--imgedit-editor=noise", "--imgedit-limit=1")
    blob = bench.results["items"][0]["seeds"][0]["edit"]["blob"]
    path = bench.path / ".imgedit" / "blobs" / blob[:2] / f"{blob}.png"
    path.write_bytes(path.read_bytes()[:100])
    bench.run("--imgedit-editor=noise", "--imgedit-limit=1").assert_outcomes(passed=5)
    assert (bench.timing["edits"], bench.timing["verdicts"]) == (1, 0)
