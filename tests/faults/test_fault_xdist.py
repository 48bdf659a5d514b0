"""Under xdist every selected item is reported once the run ends, whatever happens to an xdist
worker.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from folders import fill
from waiting import PATIENCE

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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.full
def test_every_mode_gives_the_items_of_a_plain_run(bench, mode):
    """Costly: a run and one with three workers of xdist, which are processes."""
    bench.run_subprocess(
        "--imgedit-editor=noise", "--imgedit-limit=1", "--imgedit-out=alone"
    ).assert_outcomes(passed=5)
    result = bench.run_subprocess(
        "--imgedit-editor=noise", "--imgedit-limit=1", "-n3", f"--dist={mode}"
    )
    result.assert_outcomes(passed=5)
    alone = bench.document_of("alone")
    assert [(item["id"], item["score"], item["aspects"]) for item in bench.results["items"]] == [
        (item["id"], item["score"], item["aspects"]) for item in alone["items"]
    ]
    result.stdout.fnmatch_lines(["imgedit: PASS: *"])


@pytest.mark.parametrize("mode", ["loadgroup", "each"])
@pytest.mark.parametrize("options", [(), ("--imgedit-limit=1",)])
@pytest.mark.full
def test_mode_that_does_not_survive_a_crash_is_refused(bench, mode, options):
    result = bench.run_subprocess("-n2", f"--dist={mode}", *options)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: --dist={mode}: pytest-xdist hangs or fails in this mode when *, expected load, *"]
    )


def test_workers_on_other_machines_are_refused(bench):
    result = bench.run_subprocess("--tx=ssh=somewhere", "--dist=load", "--imgedit-limit=1")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: --tx=ssh=somewhere: items read their results on this machine, expected popen"]
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.full_for("load", "loadscope", "loadfile")
def test_crashed_worker_loses_no_item(bench, mode):
    (bench.path / "test_image_edit.py").write_text(CRASH)
    result = bench.run_subprocess("-n2", f"--dist={mode}", "--imgedit-limit=2", "-rA")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*FAILED test_image_edit.py::test_image_edit[[]social-0000[]]*crashed while running*"]
    )
    passed = {line.split("::")[1] for line in result.outlines if line.startswith("PASSED ")}
    assert len(passed - {"test_image_edit[social-0000]"}) == 9
    result.stdout.fnmatch_lines(["imgedit: FAIL: 1 of 10 items failed*"])


@pytest.mark.full
def test_items_that_are_never_reported_fail_the_run(bench):
    (bench.path / "test_image_edit.py").write_text(CRASH)
    (bench.path / "always").touch()
    result = bench.run_subprocess("-n1", "--max-worker-restart=0", "--imgedit-limit=2")
    assert result.ret != 0
    never = (
        "5 selected items were never reported, such as "
        "test_image_edit.py: :test_image_edit[[]social-0001[]]"
    )
    result.stdout.fnmatch_lines(["imgedit: FAIL: 1 of 10 items failed*", never])


@pytest.mark.full
def test_ctrl_c_under_xdist_keeps_what_is_finished(bench):
    slow = (
        "--imgedit-editor=fakes:Slow",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-limit=4",
        "-n2",
    )
    process = bench.start(*slow)
    bench.wait_for(lambda: bench.stored_edits() >= 3)
    bench.interrupt(process)
    output = bench.finish(process)
    assert process.returncode == 2, output
    assert "INCOMPLETE: stopped by the user" in output
    done = bench.stored_edits()
    bench.run_subprocess(*slow).assert_outcomes(passed=20)
    assert bench.timing["edits_cached"] == done


SLOW = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2")


def gateways(process):
    """The processes of xdist's workers: execnet starts each with a line of code that it reads."""
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.Error):
                found += [child] if "sys.stdin.readline" in " ".join(child.cmdline()) else []
    return found


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 2])
def test_worker_that_dies_while_edits_are_made_loses_no_result(bench, mode, count):
    """Costly: a run with two workers of xdist, and one in the place of each that dies."""
    process = bench.start(*SLOW, "-n2", f"--dist={mode}")
    bench.wait_for(lambda: bench.stored_edits() >= 2)
    for gateway in gateways(process)[:count]:
        os.kill(gateway.pid, signal.SIGKILL)
    output = bench.finish(process)
    assert "INTERNALERROR" not in output, output
    assert [item["status"] for item in bench.items.values()] == ["scored"] * 10
    assert "/results.json" in output
    if "imgedit: pytest-xdist lost a worker" in output:  # which it does not survive in some modes
        assert mode in ("loadscope", "loadfile")
        assert process.returncode == 1
        assert "selected items were never reported" in output
        return
    failed = [line for line in output.splitlines() if line.startswith("FAILED ")]
    assert len(failed) <= count, (
        output
    )  # xdist may have handed out an item to a worker that is dead
    assert all("died before it ran" in line for line in failed)
    assert process.returncode == (1 if failed else 0)
    assert f"imgedit: {'FAIL' if failed else 'PASS'}: " in output
    assert int(re.search(r"(\d+) passed", output)[1]) >= 10 - len(
        failed
    )  # loadscope and loadfile run it again


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The items of a run that nobody disturbs."""
    folder = fill(tmp_path_factory.mktemp("undisturbed"))
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *SLOW], cwd=folder, check=True, timeout=120
    )
    [path] = (folder / ".imgedit" / "runs").glob("*/results.json")
    return outcomes(json.loads(path.read_text())["items"])


def outcomes(items):
    return [
        (item["id"], item["score"], [seed["edit"]["blob"] for seed in item["seeds"]])
        for item in items
    ]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_whatever_workers_die_and_whenever_nothing_is_lost(bench, undisturbed, seed):
    """Costly: a run of which up to four xdist workers are killed at random moments, and the next
    one.
    """
    chance = random.Random(seed)
    process = bench.start(*SLOW, f"-n{chance.randint(1, 3)}", f"--dist={chance.choice(MODES)}")
    end = time.monotonic() + PATIENCE
    for _ in range(4):
        time.sleep(chance.uniform(0, 3))
        while (
            process.poll() is None and time.monotonic() < end and not (alive := gateways(process))
        ):
            time.sleep(0.05)
        if process.poll() is not None:
            break
        with suppress(ProcessLookupError):
            os.kill(chance.choice(alive).pid, chance.choice([signal.SIGKILL, signal.SIGTERM]))
    output = bench.finish(process)
    assert "INTERNALERROR" not in output, output
    assert process.returncode in (0, 1), output
    assert ("imgedit: PASS: " in output) == (process.returncode == 0)
    if "imgedit: pytest-xdist lost a worker" not in output:
        assert outcomes(bench.results["items"]) == undisturbed
    bench.run_subprocess(*SLOW).assert_outcomes(passed=10)
    assert outcomes(bench.results["items"]) == undisturbed
