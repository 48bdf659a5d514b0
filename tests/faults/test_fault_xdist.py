"""Under xdist every selected item is reported once the run ends, whatever happens to an xdist worker."""

from __future__ import annotations

import pytest
from tiers import full_but

CRASH = """
import os, signal
from pathlib import Path

def test_image_edit(edit_result):
    if edit_result.id == "social-0000" and (Path("always").exists() or not Path("crashed").exists()):
        Path("crashed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    edit_result.check()
"""
MODES = ("load", "worksteal", "loadscope", "loadfile")


@pytest.mark.parametrize("mode", full_but(["worksteal"], MODES))
def test_every_mode_gives_the_items_of_a_plain_run(bench, mode):
    """Costly: a run and one with three workers of xdist, which are processes."""
    bench.run_subprocess("--imgedit-editor=noise", "--imgedit-limit=1", "--imgedit-out=alone").assert_outcomes(passed=5)
    result = bench.run_subprocess("--imgedit-editor=noise", "--imgedit-limit=1", "-n3", f"--dist={mode}")
    result.assert_outcomes(passed=5)
    alone = bench.document_of("alone")
    assert [(item["id"], item["score"], item["aspects"]) for item in bench.results["items"]] == [
        (item["id"], item["score"], item["aspects"]) for item in alone["items"]
    ]
    result.stdout.fnmatch_lines(["imgedit: PASS: *"])


@pytest.mark.parametrize("mode", ["loadgroup", "each"])
@pytest.mark.parametrize("options", [(), ("--imgedit-limit=1",)])
def test_mode_that_does_not_survive_a_crash_is_refused(bench, mode, options):
    result = bench.run_subprocess("-n2", f"--dist={mode}", *options)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: --dist={mode}: pytest-xdist hangs or fails in this mode when *, expected load, *"]
    )


def test_workers_on_other_machines_are_refused(bench):
    result = bench.run_subprocess("--tx=ssh=somewhere", "--dist=load", "--imgedit-limit=1")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --tx=ssh=somewhere: items read their results on this machine, expected popen"])


@pytest.mark.parametrize("mode", full_but(["worksteal"], MODES))
def test_crashed_worker_loses_no_item(bench, mode):
    (bench.path / "test_image_edit.py").write_text(CRASH)
    result = bench.run_subprocess("-n2", f"--dist={mode}", "--imgedit-limit=2", "-rA")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*FAILED test_image_edit.py::test_image_edit[[]social-0000[]]*crashed while running*"])
    passed = {line.split("::")[1] for line in result.outlines if line.startswith("PASSED ")}
    assert len(passed - {"test_image_edit[social-0000]"}) == 9
    result.stdout.fnmatch_lines(["imgedit: FAIL: 1 of 10 items failed; overall *"])


def test_items_that_are_never_reported_fail_the_run(bench):
    (bench.path / "test_image_edit.py").write_text(CRASH)
    (bench.path / "always").touch()
    result = bench.run_subprocess("-n1", "--max-worker-restart=0", "--imgedit-limit=2")
    assert result.ret != 0
    line = "*; 5 selected items were never reported, such as test_image_edit.py::test_image_edit[[]social-0001[]]; *"
    result.stdout.fnmatch_lines([f"imgedit: FAIL: 1 of 10 items failed{line}"])


@pytest.mark.full
def test_ctrl_c_under_xdist_keeps_what_is_finished(bench):
    slow = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=4", "-n2")
    process = bench.start(*slow)
    bench.wait_for(lambda: bench.stored_edits() >= 3)
    bench.interrupt(process)
    output = bench.finish(process)
    assert process.returncode == 2, output
    assert "INCOMPLETE: stopped by the user" in output
    done = bench.stored_edits()
    bench.run_subprocess(*slow).assert_outcomes(passed=20)
    assert bench.timing["edits_cached"] == done
