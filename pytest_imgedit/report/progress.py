"""Live progress: a display in a terminal, a plain line now and then elsewhere, and the run's
log.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from pytest_imgedit.core import redaction
from pytest_imgedit.core.results import ItemError
from pytest_imgedit.core.text import counted, first_of, printable
from pytest_imgedit.workers.base import Slot, Worker

#: The most seconds without a line where there is no terminal.
INTERVAL = 10.0
#: Seconds after the first result, within which the others of its batch come too.
BATCH = 1.0
_NAMES = {"waiting": "waiting to load", "dead": "gone"}
_STEP = re.compile(r", step \d+ of \d+$")
_LOADING = {"edit": "loading editor", "score": "loading judge", "duel": "loading judge"}


class RunProgress:
    """Follows one run. Lines go to `file`, and the display is live if that is a terminal.

    Neither the display nor the log holds text that steers a terminal.
    """

    def __init__(self, log: Path, file: TextIO, quiet: bool) -> None:
        self.stopping = False
        self._file = log.open("ab", buffering=0)
        self._console = Console(file=file, highlight=False)
        self._quiet = quiet
        self._live: Live | None = None
        self._workers: dict[str, tuple[Slot, str]] = {}
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}"),
            console=self._console,
            auto_refresh=False,
        )
        self._stages: dict[str, Task] = {}
        self._lock = threading.RLock()  # scoring may run beside editing, in a thread of its own
        self._last_line = time.monotonic()
        self._closed = threading.Event()
        if not self._console.is_terminal and not quiet:
            with suppress(RuntimeError):  # no more threads: the run does without these lines
                threading.Thread(target=self._keep_telling, daemon=True).start()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[None]:
        """Show one stage of `total` edits, verdicts or votes; two may run side by side."""
        with self._lock:
            self._workers = {
                worker: (slot, state)
                for worker, (slot, state) in self._workers.items()
                if state != "gone"
            }
            self.note(f"{name}: {total} to do")
            self._bar.add_task(name, start=False, total=total, pace="", errors=0, first=None)
            task = self._bar.tasks[-1]
            self._stages[name] = task
            if self._console.is_terminal and not self._quiet and self._live is None:
                self._live = Live(self, console=self._console, refresh_per_second=4, transient=True)
                self._live.start()
        try:
            yield
        finally:
            with self._lock:
                del self._stages[name]
                if self._live is not None and not self._stages:
                    self._live.stop()
                    self._live = None
                self._bar.remove_task(task.id)
                self.note(f"{name}: {_count(task)}{_rate(task)}")

    def advance(self, name: str, pair_id: str, seed: int, error: ItemError | None) -> None:
        """Count one finished edit, verdict or vote of a stage, and log its error, if any."""
        with self._lock:
            task = self._stages[name]
            self._bar.advance(task.id)
            if task.fields["first"] is None:
                task.fields["first"] = task.elapsed
            if error is not None:
                task.fields["errors"] += 1
                self._write(f"{pair_id} (seed {seed}): {error}")
            self._bar.update(task.id, pace=_pace(task).removeprefix(", "))
        self.tell()

    def tell(self) -> None:
        """Write how far each stage is, unless a line was written within `INTERVAL` seconds or there
        is a live display.
        """
        with self._lock:
            is_recent = time.monotonic() - self._last_line < INTERVAL
            if is_recent or self._live is not None or self._closed.is_set():
                return
            for name, task in self._stages.items():
                self.note(f"{name}: {self._standing(name, task)}")

    def _keep_telling(self) -> None:
        while not self._closed.wait(1.0):
            self.tell()

    def _standing(self, name: str, task: Task) -> str:
        """Return what is done of a stage, and how far it is: that the models are loading before the
        first job, later the pace, and of an edit the step of the first worker that has one.
        """
        if not task.started and not task.completed:
            return _LOADING.get(name, "loading")
        count = f"{_count(task)}{_pace(task)}"
        if name != "edit":
            return count
        for _, state in list(self._workers.values()):
            step = _STEP.search(state)
            if step:
                return f"{count}{step[0]}"
        return count

    def note(self, text: str) -> None:
        """Write one line for the user and to the log."""
        text = self._write(text)
        self._last_line = time.monotonic()
        if not self._quiet:
            self._console.print(f"imgedit: {text}", markup=False, soft_wrap=True)

    def log(self, text: str) -> None:
        """Write one line to the log alone."""
        self._write(text)

    def worker_changed(self, worker: Worker) -> None:
        """Show what a worker does, and log it unless it is idle or amid its steps: a busy one with
        its pairs.

        With the first job of a stage, the models are loaded: its rate counts from there.
        """
        state = _NAMES.get(worker.state, worker.state)
        if worker.state == "busy":
            with self._lock:
                for task in self._stages.values():
                    self._bar.start_task(task.id)
            names = list(dict.fromkeys(job.pair.id for job in worker.job)) or ["canary"]
            state = first_of(names, 3)
            if worker.step:
                step, steps = worker.step
                state += f", step {step} of {steps}"
            else:
                self._write(f"{worker.slot.name} ({worker.slot.label}): {', '.join(names)}")
        elif state != "idle":
            self._write(f"{worker.slot.name} ({worker.slot.label}): {state}")
        self._workers[worker.slot.name] = (worker.slot, state)

    def worker_said(self, slot: Slot, line: str) -> None:
        """Log a line that a worker printed."""
        self._write(f"{slot.name} | {line}")

    def __rich__(self) -> Group:
        """Return the live display: the bars of the stages, and a row for each worker but those that
        are gone.
        """
        table = Table.grid(padding=(0, 2))
        for slot, state in self._workers.values():
            if state != "gone":
                table.add_row(
                    slot.name, slot.label, state, style="dim" if state.startswith("waiting") else ""
                )
        return Group(self._bar, table)

    def _write(self, text: str) -> str:
        """Write a line to the log; return its text, with secrets masked, fit for a terminal."""
        text = printable(redaction.mask_shapes(text))
        # a full disk stops the run where results are stored, and is reported there
        with suppress(OSError):
            now = datetime.now().time().isoformat("milliseconds")
            self._file.write(f"{now} {text}\n".encode())
        return text

    def close(self) -> None:
        """Write no more lines, and close the log."""
        with self._lock:
            self._closed.set()
            self._file.close()


def _count(task: Task) -> str:
    count = f"{task.completed}/{task.total}"
    errors = task.fields["errors"]
    if errors:
        count += f", {counted(errors, 'error')}"
    return count


def _rate(task: Task) -> str:
    return f", {task.completed / task.elapsed:.2f}/s" if task.elapsed else ""


def _pace(task: Task) -> str:
    return _rate(task) + _remaining(task)


def _remaining(task: Task) -> str:
    """Return the time left; an empty text until a second batch can have finished."""
    first = task.fields["first"]
    if first is None or not task.elapsed or task.elapsed - first < BATCH:
        return ""
    seconds = (task.remaining or 0.0) * task.elapsed / task.completed
    return f", {timedelta(seconds=round(seconds))} left"
