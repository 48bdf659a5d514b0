"""Lines of progress: counts, rates, and the time that is left."""

from __future__ import annotations

import io
import re
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
                    followed.advance("edit", PAIR.id, 0, error)
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
        followed.advance("edit", PAIR.id, 0, "no such file")
    followed.close()
    assert file.getvalue().splitlines()[1:] == [
        "imgedit: edit: 1/3, 1 error",
        "imgedit: edit: 1/3, 1 error",
    ]


class Lines:
    """A run without a terminal whose clock a test sets: it looks every second, as its thread does."""

    def __init__(self, clock, path):
        self.clock, self.file = clock, io.StringIO()
        self.followed = progress.RunProgress(path / "run.log", self.file, quiet=False)
        self.worker = SimpleNamespace(
            slot=Slot("edit-0", ()), state="starting", job=[SimpleNamespace(pair=PAIR)], step=None
        )

    def pass_seconds(self, seconds: int) -> list[str]:
        """Return the lines of so many seconds."""
        before = len(self.file.getvalue().splitlines())
        for _ in range(seconds):
            self.clock.now += 1
            self.followed.tell()
        return self.file.getvalue().splitlines()[before:]

    def change(self, state: str, step: tuple[int, int] | None = None) -> None:
        self.worker.state, self.worker.step = state, step
        self.followed.worker_changed(self.worker)

    def finish(self) -> None:
        self.followed.advance("edit", PAIR.id, 0, None)


@pytest.fixture
def lines(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(progress.threading, "Thread", lambda **_: SimpleNamespace(start=bool))
    lines = Lines(clock, tmp_path)
    yield lines
    lines.followed.close()


def test_without_a_terminal_no_ten_seconds_are_silent_from_the_start_to_the_first_edit(lines):
    with lines.followed.stage("edit", 10):
        assert lines.pass_seconds(9) == []
        assert lines.pass_seconds(1) == ["imgedit: edit: loading editor"]
        lines.change("loading")
        assert lines.pass_seconds(20) == ["imgedit: edit: loading editor"] * 2
        lines.change("busy")
        assert lines.pass_seconds(10) == ["imgedit: edit: 0/10, 0.00/s"]
        lines.change("busy", step=(12, 20))
        assert lines.pass_seconds(10) == ["imgedit: edit: 0/10, 0.00/s, step 12 of 20"]
        lines.finish()
        lines.change("busy", step=(3, 20))
        assert lines.pass_seconds(10) == ["imgedit: edit: 1/10, 0.03/s, 0:04:30 left, step 3 of 20"]
    assert lines.pass_seconds(60) == []


@pytest.mark.parametrize(
    ("stage", "line"),
    [("score", "loading judge"), ("try the judge", "loading"), ("lpips", "loading")],
)
def test_every_stage_says_that_its_models_load(lines, stage, line):
    with lines.followed.stage(stage, 10):
        assert lines.pass_seconds(10) == [f"imgedit: {stage}: {line}"]


def test_a_line_that_was_just_written_puts_the_next_one_off(lines):
    with lines.followed.stage("edit", 10):
        lines.pass_seconds(8)
        lines.followed.note("something else")
        assert lines.pass_seconds(9) == []
        assert len(lines.pass_seconds(1)) == 1


def test_two_stages_side_by_side_have_a_line_each(lines):
    with lines.followed.stage("edit", 2), lines.followed.stage("score", 2):
        assert lines.pass_seconds(10) == [
            "imgedit: edit: loading editor",
            "imgedit: score: loading judge",
        ]


def test_a_closed_run_writes_nothing(lines):
    with lines.followed.stage("edit", 2):
        pass
    lines.followed.close()
    assert lines.pass_seconds(30) == []


def test_the_log_is_named_and_holds_the_pairs_of_each_job_and_how_busy_workers_were(bench):
    result = bench.run("--imgedit-judge=fakes:Constant", "--imgedit-limit=1", "-k", "physics")
    log = bench.runs[-1] / "run.log"
    result.stdout.fnmatch_lines([f"imgedit: log: {log.relative_to(bench.path)}"])
    lines = [line.partition(" ")[2] for line in log.read_text().splitlines()]
    assert "edit-0 (CPU): physics-0000" in lines
    assert "judge-0 (CPU): physics-0000" in lines
    assert any(line.startswith("edit: edit-0 (CPU) was busy for ") for line in lines)
    assert any(line.startswith("score: judge-0 (CPU) was busy for ") for line in lines)


def test_the_log_tells_when_to_the_millisecond(tmp_path):
    lines = progress.RunProgress(tmp_path / "run.log", io.StringIO(), quiet=False)
    lines.note("plan: 8 pairs")
    lines.close()
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d\.\d{3} plan: 8 pairs\n", (tmp_path / "run.log").read_text()
    )


def test_progress_tells_of_votes_as_of_any_stage(tmp_path):
    screen = io.StringIO()
    lines = progress.RunProgress(tmp_path / "run.log", screen, quiet=False)
    with lines.stage("duel", 2):
        lines.advance("duel", "p1", 0, None)
        lines.advance("duel", "p2", 0, None)
    lines.close()
    assert [line.partition(", ")[0] for line in screen.getvalue().splitlines()] == [
        "imgedit: duel: 2 to do",
        "imgedit: duel: 2/2",
    ]
