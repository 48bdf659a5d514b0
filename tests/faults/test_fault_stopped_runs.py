"""A run that is interrupted, stopped, terminated or killed leaves no process behind, and keeps what
is finished.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

CONSTANT = ("--imgedit-judge=fakes:Constant", "--imgedit-limit=2")


@pytest.mark.full
def test_children_of_workers_end_with_a_run_that_ends_well(bench, left):
    bench.run_subprocess(*CONSTANT, "--imgedit-editor=fakes:Spawns").assert_outcomes(passed=10)
    assert not left()


@pytest.mark.parametrize("how", ["sleep", "native", "stopped", "deaf"])
@pytest.mark.full_for("sleep", "stopped", "deaf")
def test_kill_9_of_the_run_leaves_no_process(bench, left, how):
    process = bench.start(
        *CONSTANT,
        "--imgedit-editor=fakes:Spawns",
        f"--imgedit-set=editor.how={how}",
        "--imgedit-set=editor.on=physics-0000",
    )
    bench.wait_for(lambda: bench.log_says("about to hang"))
    assert any(child.name() == "sleep" for child in left())
    process.kill()
    process.communicate()
    bench.wait_for(lambda: not left())


@pytest.mark.parametrize("target", ["group", "supervisor"])
@pytest.mark.full_for("group")
def test_kill_9_of_what_keeps_the_workers_leaves_no_process(bench, left, target):
    process = bench.start(
        *CONSTANT, "--imgedit-editor=fakes:Spawns", "--imgedit-set=editor.on=physics-0000"
    )
    bench.wait_for(lambda: bench.log_says("about to hang"))
    if target == "group":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        hanging = next(child for child in left() if child.name() == "sleep").parent()
        hanging.parent().kill()
        bench.wait_for(lambda: bench.log_says("its supervisor was killed"))
        assert hanging.pid not in {child.pid for child in left()}
        process.kill()
    process.communicate()
    bench.wait_for(lambda: not left())


@pytest.mark.full
def test_stopped_run_goes_on_where_it_was(bench):
    process = bench.start(
        *(
            "--imgedit-editor=fakes:Slow",
            "--imgedit-set=editor.delay=0.5",
            "--imgedit-judge=fakes:Constant",
        ),
        *(
            "--imgedit-set=workers.cpu_workers=2",
            "--imgedit-set=workers.edit_timeout=3",
            "--imgedit-limit=2",
        ),
    )
    bench.wait_for(lambda: bench.stored_edits() >= 2)
    process.send_signal(signal.SIGSTOP)  # as Ctrl-Z does
    time.sleep(4)
    process.send_signal(signal.SIGCONT)
    output = bench.finish(process)
    assert process.returncode == 0, output
    assert "was ended" not in output
    assert len([worker for worker in bench.results["workers"] if worker["stage"] == "edit"]) == 2


@pytest.mark.full
def test_ctrl_c_while_an_interpreter_hangs_ends_the_run(bench, left):
    (bench.path / "python").write_text("#!/bin/sh\nexec sleep 600\n")
    (bench.path / "python").chmod(0o755)
    process = bench.start("--imgedit-set=workers.editor_python=./python", "--imgedit-limit=1")
    bench.wait_for(lambda: bench.log_says("edit-0 (CPU): starting"))
    bench.interrupt(process)
    output = bench.finish(process)
    assert process.returncode == 2, output
    bench.wait_for(lambda: not left())


@pytest.mark.full
def test_second_ctrl_c_stops_at_once_and_leaves_no_process(bench, left):
    process = bench.start(
        *CONSTANT, "--imgedit-editor=fakes:Spawns", "--imgedit-set=editor.on=physics-0000"
    )
    bench.wait_for(lambda: bench.log_says("about to hang"))
    bench.interrupt(process)
    bench.wait_for(lambda: bench.log_says("stopping: running jobs have 10 s"))
    assert process.poll() is None
    bench.interrupt(process)
    output = bench.finish(process)
    assert process.returncode == 2, output
    assert not left()
    assert set(bench.error_kinds.values()) == {"interrupted"}


def test_ctrl_c_keeps_what_is_finished_and_exits_2(bench, left):
    slow = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=4")
    process = bench.start(*slow)
    bench.wait_for(lambda: bench.stored_edits() >= 3)
    bench.interrupt(process)
    output = bench.finish(process)
    assert process.returncode == 2, output
    assert not left()
    document = bench.results
    assert document["run"]["status"] == "incomplete"
    assert len(document["items"]) == 20
    edited = sum(seed["edit"] is not None for item in document["items"] for seed in item["seeds"])
    assert 3 <= edited < 20
    assert f"INCOMPLETE: stopped by the user; {edited} of 20 pairs edited, " in output
    assert "Exit: imgedit was stopped !!!" in output
    assert document["overall"]["micro"]["errors"] == 0
    assert document["timing"]["edits"] == bench.stored_edits()
    done = bench.stored_edits()
    bench.run_subprocess(*slow).assert_outcomes(passed=20)
    assert bench.timing["edits_cached"] == done


@pytest.mark.full
def test_terminated_run_leaves_no_process_and_loses_no_edit(bench, left):
    slow = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2")
    process = bench.start(*slow)
    bench.wait_for(lambda: bench.stored_edits() >= 3)
    process.terminate()
    bench.finish(process)
    bench.wait_for(lambda: not left())
    done = bench.stored_edits()
    bench.run_subprocess(*slow).assert_outcomes(passed=10)
    assert (bench.timing["edits_cached"], bench.timing["edits"]) == (done, 10 - done)
