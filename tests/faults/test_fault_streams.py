"""A terminal that cannot show a run does not lose it: results, reports and exit code are as
ever.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from waiting import PATIENCE

#: An editor whose worker dies once, with last words that need Unicode, so that a line of progress
#: holds them.
SPEAKER = """
import os, time
from pathlib import Path
from PIL import ImageOps
class Editor:
    def __init__(self, *, device): pass
    def edit(self, request):
        time.sleep(0.1)
        if request.pair_id == "physics-0000" and not Path("died").exists():
            Path("died").touch()
            print("画 ünï €", flush=True)
            os._exit(3)
        return ImageOps.invert(request.source)
"""
RUN = (
    "--imgedit-editor=speaker:Editor",
    "--imgedit-judge=fakes:Constant",
    "--imgedit-limit=2",
    "-v",
)
REPORTS = {"results.json", "report.md", "report.html", "run.log"}


@pytest.fixture
def begin(bench):
    """Start pytest with a stdout of the test's choice; `encoding` is what Python is told of it."""
    (bench.path / "speaker.py").write_text(SPEAKER)

    def start(stdout, *arguments: str, stderr=subprocess.PIPE, encoding: str = "utf-8"):
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *RUN, *arguments],
            cwd=bench.path,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )

    return start


def check(bench, process: subprocess.Popen[bytes], code: int = 0) -> str:
    """Wait for the end of a run; check its exit code and that all it writes is there; return its
    stderr.
    """
    _, errors = process.communicate(timeout=PATIENCE)
    told = (errors or b"").decode("utf-8", "replace")
    assert "INTERNALERROR" not in told
    assert "Traceback" not in told
    assert process.returncode == code, told
    assert {path.name for path in bench.runs[-1].iterdir()} >= REPORTS
    assert bench.results["run"]["status"] == "complete"
    assert {item["score"] for item in bench.results["items"]} == {5.0}
    return told


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.full
def test_stdout_of_another_encoding_shows_what_it_can(bench, begin, encoding):
    with (bench.path / "out.txt").open("wb") as file:
        check(bench, begin(file, encoding=encoding))
    shown = (bench.path / "out.txt").read_bytes().decode(encoding)
    assert "INTERNALERROR" not in shown
    assert r"last words: \u753b " in shown
    lines = shown.splitlines()
    assert any(line.startswith("overall ") for line in lines), "the table is not a table any more"
    assert any(line.startswith("imgedit: PASS: ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param((), 0, id="passes"),
        pytest.param(
            ("--imgedit-fail-under=overall:9", "--imgedit-set=judge.controls=false"),
            1,
            id="fails-its-gate",
            marks=pytest.mark.full,
        ),
        pytest.param(("-n1",), 0, id="xdist", marks=pytest.mark.full),
    ],
)
def test_full_stdout_loses_no_results(bench, begin, arguments, code):
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        check(bench, begin(full, *arguments), code)
    assert {gate["state"] for gate in bench.results["gates"]} == (
        {"PASS", "FAIL"} if code else {"PASS"}
    )


@pytest.mark.full
def test_full_stdout_and_stderr_lose_no_results(bench, begin):
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        check(bench, begin(full, stderr=full))


@pytest.mark.full
def test_closed_stdout_loses_no_results(bench, begin):
    command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "pytest", *RUN]
    process = subprocess.Popen(
        command, cwd=bench.path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    check(bench, process)


@pytest.mark.full
def test_pipe_that_nobody_reads_loses_no_results(bench, begin):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:  # noqa: PTH123 - a descriptor
        check(bench, begin(pipe))


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), id="plain"), pytest.param(("-n1",), id="xdist", marks=pytest.mark.full)],
)
@pytest.mark.full
def test_reader_that_leaves_during_the_run_loses_no_results(bench, begin, arguments):
    process = begin(subprocess.PIPE, *arguments)  # as `pytest | head -1` does
    assert process.stdout.readline().startswith(b"===")
    process.stdout.close()
    process.stdout = None
    check(bench, process)


@pytest.mark.full
def test_terminal_that_goes_away_loses_no_results(bench, begin):
    terminal, side = pty.openpty()
    process = begin(side)
    os.close(side)
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    os.read(terminal, 1000)
    os.close(terminal)  # what is written from now on fails with EIO
    check(bench, process)
