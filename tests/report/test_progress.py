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
