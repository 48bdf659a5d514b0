"""A supervisor that is stopped, as by SIGSTOP, neither hangs the run nor stays behind."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil
import pytest

RUN = ("--imgedit-editor=tells:Editor", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1")
#: What a run may take in all: a supervisor that does not answer is given `supervisor.GRACE` and five seconds.
SECONDS = 40
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
    """Wait for the end of a run; check that it came in time and that nothing is left, stopped or not."""
    try:
        output, _ = process.communicate(timeout=SECONDS)
        orphans = remaining(left)
    finally:  # what hangs or is left must not outlive this test
        for found in (psutil.Process(process.pid), *left()) if process.poll() is None else left():
            with suppress(psutil.Error):
                found.kill()
    assert "INTERNALERROR" not in output
    assert orphans == []
    return output


def remaining(left) -> list[str]:
    """Describe the processes that are still there after some seconds."""
    end = time.monotonic() + 5
    while (found := left()) and time.monotonic() < end:
        time.sleep(0.1)
    return [f"{one.pid} {one.name()} {one.status()}" for one in found]


def test_supervisor_that_is_stopped_during_an_edit(bench, left):
    process = bench.start(*RUN, "--imgedit-set=workers.edit_timeout=1")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    os.kill(int((bench.path / "pid").read_text()), signal.SIGSTOP)
    output = finish(process, left)
    assert process.returncode == 0, output
    assert bench.error_kinds == {}


def test_supervisor_that_is_stopped_before_its_interpreter_hangs(bench, left):
    (bench.path / "python").write_text("#!/bin/sh\nkill -STOP $PPID\nexec sleep 600\n")
    (bench.path / "python").chmod(0o755)
    python = ("--imgedit-set=workers.editor_python=./python", "--imgedit-set=workers.load_timeout=1")
    process = bench.start(*RUN, *python)
    output = finish(process, left)
    assert process.returncode == 4, output
    assert "workers.load_timeout" in output
