"""SIGTERM and SIGHUP, as Slurm, Kubernetes, `timeout` and a closed terminal send them, drain a run
as Ctrl-C does.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2")
BOTH = pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="sigterm"),
        pytest.param(signal.SIGHUP, id="sighup", marks=pytest.mark.full),
    ],
)


@pytest.fixture(autouse=True)
def hearing_hangups() -> Iterator[None]:
    """A run that starts under `nohup` ignores SIGHUP, and so would every run that these tests
    start.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def check_drained(bench, left, process, number: int) -> str:
    """Check that a signalled run ended by its own report with nothing left behind; return its
    output.
    """
    output = bench.finish(process)
    assert process.returncode in (2, -number, 128 + number), output
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
    bench.wait_for(lambda: not left())
    assert (bench.runs[-1] / "results.json").exists(), output
    assert bench.results["run"]["status"] == "incomplete"
    assert (bench.runs[-1] / "report.md").exists()
    return output


@pytest.mark.parametrize(
    ("number", "send", "arguments"),
    [
        pytest.param(signal.SIGTERM, os.kill, (), id="sigterm", marks=pytest.mark.full),
        pytest.param(signal.SIGHUP, os.killpg, (), id="sighup-to-the-group"),
        pytest.param(signal.SIGTERM, os.kill, ("-n1",), id="xdist-sigterm", marks=pytest.mark.full),
        pytest.param(
            signal.SIGHUP,
            os.killpg,
            ("-n1",),
            id="xdist-sighup-to-the-group",
            marks=pytest.mark.full,
        ),
    ],
)
@pytest.mark.full_for("sighup-to-the-group")
def test_signal_in_the_edit_stage_keeps_what_is_finished(bench, left, number, send, arguments):
    """Costly with xdist, whose worker is one more process."""
    process = bench.start(*SLOW, *arguments)
    bench.wait_for(lambda: bench.stored_edits() >= 2)
    send(process.pid, number)
    output = check_drained(bench, left, process, number)
    document, done = bench.results, bench.stored_edits()
    assert len(document["items"]) == 10
    interrupted = [item for item in document["items"] if item["status"] == "interrupted"]
    assert len(interrupted) == 10
    assert document["timing"]["edits"] == done < 10
    assert sum(item["seeds"][0]["edit"] is not None for item in document["items"]) == done
    assert document["overall"]["micro"]["errors"] == 0
    assert "INCOMPLETE: stopped by" in output
    bench.run_subprocess(*SLOW, *arguments).assert_outcomes(passed=10)
    assert (bench.timing["edits_cached"], bench.timing["edits"]) == (done, 10 - done)


@BOTH
def test_signal_in_the_score_stage_keeps_every_verdict(bench, left, number):
    judge = (
        "--imgedit-judge=fakes:Sensitive",
        "--imgedit-set=judge.delay=0.3",
        "--imgedit-set=judge.batch_size=1",
    )
    process = bench.start("--imgedit-editor=noise", *judge, "--imgedit-limit=2")
    bench.wait_for(lambda: bench.records("verdicts") >= 2)
    process.send_signal(number)
    check_drained(bench, left, process, number)
    stored = bench.records("verdicts")
    assert bench.results["timing"]["verdicts"] == stored < 10
    assert sum(item["status"] == "scored" for item in bench.results["items"]) == stored
    assert bench.stored_edits() == 10


@BOTH
@pytest.mark.full
def test_second_signal_stops_at_once_and_still_reports(bench, left, number):
    process = bench.start(
        *(
            "--imgedit-editor=fakes:Spawns",
            "--imgedit-set=editor.on=physics-0000",
            "--imgedit-judge=fakes:Constant",
        ),
        "--imgedit-limit=2",
    )
    bench.wait_for(lambda: bench.log_says("about to hang"))
    process.send_signal(number)
    bench.wait_for(lambda: bench.log_says("stopping: running jobs have 10 s"))
    assert process.poll() is None
    process.send_signal(number)
    check_drained(bench, left, process, number)
    assert set(bench.error_kinds.values()) == {"interrupted"}


@pytest.mark.full
def test_run_under_nohup_hears_no_sighup(bench, left):
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does, and a child inherits
    try:
        process = bench.start(*SLOW)
    finally:
        signal.signal(signal.SIGHUP, previous)
    bench.wait_for(lambda: bench.stored_edits() >= 2)
    process.send_signal(signal.SIGHUP)
    output = bench.finish(process)
    assert process.returncode == 0, output
    assert bench.results["run"]["status"] == "complete"
    assert not left()
