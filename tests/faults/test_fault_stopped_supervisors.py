"""A supervisor that is stopped, as by SIGSTOP, neither hangs the run nor stays behind.

Each test is a run with worker processes in a process of its own, which it interferes with: a few
seconds of CPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
from waiting import PATIENCE, wait_until

RUN = ("--imgedit-editor=tells:Editor", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1")
#: Tells which process keeps it.
TELLS = """
import os, time
from pathlib import Path
from PIL import ImageOps
class Editor:
    def __init__(self, *, device):
        Path("pid").write_text(str(os.getppid()))
    def edit(self, request):
        time.sleep(0.3)
        return ImageOps.invert(request.source)
"""


@pytest.fixture(autouse=True)
def tells(bench):
    (bench.path / "tells.py").write_text(TELLS)


def finish(process, left) -> str:
    """Wait for the end of a run and of all that it started, stopped or not."""
    try:
        output, _ = process.communicate(timeout=PATIENCE)
        wait_until(lambda: not left())
    finally:  # what hangs or is left must not outlive this test
        for found in (psutil.Process(process.pid), *left()) if process.poll() is None else left():
            with suppress(psutil.Error):
                found.kill()
    assert "INTERNALERROR" not in output
    return output


@pytest.mark.full
def test_supervisor_that_is_stopped_during_an_edit(bench, left):
    process = bench.start(*RUN, "--imgedit-set=workers.edit_timeout=2")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    os.kill(int((bench.path / "pid").read_text()), signal.SIGSTOP)
    output = finish(process, left)
    assert process.returncode == 0, output
    assert bench.error_kinds == {}


@pytest.mark.full
def test_supervisor_that_is_stopped_before_its_interpreter_hangs(bench, left):
    (bench.path / "python").write_text("#!/bin/sh\nkill -STOP $PPID\nexec sleep 600\n")
    (bench.path / "python").chmod(0o755)
    python = (
        "--imgedit-set=workers.editor_python=./python",
        "--imgedit-set=workers.load_timeout=1",
    )
    process = bench.start(*RUN, *python)
    output = finish(process, left)
    assert process.returncode == 4, output
    assert "workers.load_timeout" in output


def is_supervisor(process: psutil.Process) -> bool:
    return any(argument.endswith("supervisor.py") for argument in process.cmdline())


STOPPED = {
    "all": lambda process: True,
    "supervisors": is_supervisor,
    "supervisors and their workers": lambda process: (
        is_supervisor(process) or is_supervisor(process.parent())
    ),
}


def kill(process, left, which, group=False) -> None:
    """Stop some of the processes of a run, kill the run, and wait for the end of the others."""
    run = psutil.Process(process.pid)
    # A supervisor asks the kernel to tell it of the run's end, and then starts its worker.
    wait_until(lambda: all(child.children() for child in run.children()))
    chosen = list(filter(STOPPED[which], run.children(recursive=True)))
    are_stopped = any(map(is_supervisor, chosen))
    for child in chosen:
        child.suspend()
    if group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    finish(process, left)
    assert are_stopped


@pytest.mark.parametrize("group", [False, True], ids=["run", "group"])
@pytest.mark.parametrize("which", STOPPED)
@pytest.mark.everyday_for("all-run")
def test_kill_9_of_a_run_whose_processes_are_stopped_leaves_none(bench, left, which, group):
    process = bench.start(
        *("--imgedit-editor=fakes:Spawns", "--imgedit-set=editor.on=physics-0000"),
        *("--imgedit-judge=fakes:Constant", "--imgedit-limit=1"),
    )
    bench.wait_for(lambda: bench.log_says("about to hang"))
    kill(process, left, which, group)


@pytest.mark.parametrize("which", STOPPED)
@pytest.mark.full_for("supervisors", "supervisors and their workers")
def test_kill_9_of_a_run_whose_processes_are_stopped_as_they_start(bench, left, which):
    (bench.path / "python").write_text(
        '#!/bin/sh\ncase "$*" in *sys.stdin.readline*) touch began; exec sleep 600;; esac\n'
        f'exec {sys.executable} "$@"\n'  # to tell its versions
    )
    (bench.path / "python").chmod(0o755)
    process = bench.start(*RUN, "--imgedit-set=workers.editor_python=./python")
    bench.wait_for((bench.path / "began").exists)
    kill(process, left, which)


def test_supervisor_outlives_the_thread_that_started_it(bench, left):
    """The kernel tells a process of the end of the thread that started it, not of the process."""
    (bench.path / "begins.py").write_text(BEGINS)
    process = subprocess.Popen(
        [sys.executable, "begins.py"], cwd=bench.path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "alive after 3 s\n"
    kill(process, left, "all")


#: Starts a worker in a thread, which ends.
BEGINS = """
import sys, threading, time
from pathlib import Path
from pytest_imgedit.core.redaction import Redactor
from pytest_imgedit.workers import base
from pytest_imgedit.workers.local import LocalExecutor
executor = LocalExecutor(Path(), None, 60.0, Redactor(()), threads=1)
started = []
thread = threading.Thread(target=lambda: started.append(executor.start(base.Slot("edit-0", ()))))
thread.start()
thread.join()
time.sleep(3)
assert started[0].alive()
print("alive after 3 s", flush=True)
time.sleep(600)
"""
