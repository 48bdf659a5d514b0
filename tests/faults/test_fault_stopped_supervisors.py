"""A supervisor that is stopped, as by SIGSTOP, neither hangs the run nor stays behind."""

from __future__ import annotations

import os
import signal
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


def test_supervisor_that_is_stopped_during_an_edit(bench, left):
    process = bench.start(*RUN, "--imgedit-set=workers.edit_timeout=2")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    os.kill(int((bench.path / "pid").read_text()), signal.SIGSTOP)
    output = finish(process, left)
    assert process.returncode == 0, output
    assert bench.error_kinds == {}


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
