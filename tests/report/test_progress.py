"""Lines of progress: counts, rates, and the time that is left."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from pytest_imgedit.report import progress
from pytest_imgedit.workers.base import Slot

PAIR = SimpleNamespace(id="physics-0000")


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr("rich.console.monotonic", clock.monotonic)
    return clock


@pytest.fixture
def stage(clock, tmp_path):
    """Edit with a worker that loads for 30 seconds; call with the seconds and the edits that then
    come at once, and get the lines.
    """
    file = io.StringIO()
    followed = progress.RunProgress(tmp_path / "run.log", file, quiet=False)
    worker = SimpleNamespace(
        slot=Slot("edit-0", ()), state="loading", job=[SimpleNamespace(pair=PAIR)], step=None
    )

    def edit(total: int, *arrivals: tuple[float, int], error: str | None = None) -> list[str]:
        with followed.stage("edit", total):
            followed.worker_changed(worker)
            clock.now += 30
            worker.state = "busy"
            followed.worker_changed(worker)
            for seconds, number in arrivals:
                clock.now += seconds
                for _ in range(number):
                    followed.advance("edit", SimpleNamespace(pair=PAIR, seed=0, error=error))
        return file.getvalue().splitlines()

    yield edit
    followed.close()


def test_neither_loading_nor_the_first_of_a_batch_makes_the_rest_seem_long(stage):
    assert stage(100, (16, 8), (16, 8)) == [
        "imgedit: edit: 100 to do",
        "imgedit: edit: 1/100, 0.06/s",
        "imgedit: edit: 9/100, 0.28/s, 0:05:24 left",
        "imgedit: edit: 16/100, 0.50/s",
    ]


def test_a_stage_of_hours_says_so(stage):
    assert stage(1000, (20, 1), (20, 1))[2] == "imgedit: edit: 2/1000, 0.05/s, 5:32:40 left"


def test_errors_are_counted(stage):
    assert stage(2, (1, 1), error="no image")[-1] == "imgedit: edit: 1/2, 1 error, 1.00/s"


def test_what_ends_before_a_worker_is_busy_has_no_rate(clock, tmp_path):
    file = io.StringIO()
    followed = progress.RunProgress(tmp_path / "run.log", file, quiet=False)
    with followed.stage("edit", 3):
        clock.now += 16
        followed.advance("edit", SimpleNamespace(pair=PAIR, seed=0, error="no such file"))
    followed.close()
    assert file.getvalue().splitlines()[1:] == [
        "imgedit: edit: 1/3, 1 error",
        "imgedit: edit: 1/3, 1 error",
    ]


def test_the_log_is_named_and_holds_the_pairs_of_each_job_and_how_busy_workers_were(bench):
    result = bench.run("--imgedit-judge=fakes:Constant", "--imgedit-limit=1", "-k", "physics")
    log = bench.runs[-1] / "run.log"
    result.stdout.fnmatch_lines([f"imgedit: log: {log.relative_to(bench.path)}"])
    lines = [line.partition(" ")[2] for line in log.read_text().splitlines()]
    assert "edit-0 (CPU): physics-0000" in lines
    assert "judge-0 (CPU): physics-0000" in lines
    assert any(line.startswith("edit: edit-0 (CPU) was busy for ") for line in lines)
    assert any(line.startswith("score: judge-0 (CPU) was busy for ") for line in lines)
