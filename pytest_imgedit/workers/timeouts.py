"""Which workers have taken too long, or are gone without a word."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pytest_imgedit.workers.base import State, Worker

#: Seconds without listening to workers from which on that time does not count against them.
ABSENCE = 1.0


@dataclass(frozen=True)
class Deadline:
    """The most seconds that a worker may stay in a state, and the option that sets them."""

    seconds: float
    option: str


class Overdue(NamedTuple):
    """A worker that has to go: the kind of error that its job gets, and what happened."""

    worker: Worker
    kind: str
    what: str


class Timeouts:
    """Holds workers to the deadlines of their states.

    Time in which nobody listened to them does not count.
    """

    def __init__(self, deadlines: Mapping[State, Deadline]) -> None:
        self._deadlines = deadlines
        self._listened = time.monotonic()

    def forgive_absence(self, workers: Iterable[Worker]) -> None:
        """Let no deadline count the time in which this process was stopped, or busy, or by which
        its clock jumped.
        """
        now = time.monotonic()
        away = now - self._listened
        self._listened = now
        if not 0 <= away <= ABSENCE:
            for worker in workers:
                worker.since, worker.silent_at = min(now, worker.since + away), 0.0

    def overdue(self, workers: Iterable[Worker]) -> Overdue | None:
        """Return the first worker that has been in a state for longer than its deadline, or whose
        process is gone without a word.
        """
        now = time.monotonic()
        for worker in workers:
            limit = self._deadlines.get(worker.state)
            if limit is not None and now - worker.since > limit.seconds * _edits_at_once(worker):
                doing = {"busy": "a job"}.get(worker.state, worker.state)
                what = f"was ended: {doing} took longer than {limit.seconds:g} s ({limit.option})"
                return Overdue(worker, "timeout", what)
            if worker.connection is None or worker.connection.alive():
                continue
            worker.silent_at = worker.silent_at or now
            if now - worker.silent_at > ABSENCE:  # a child of it holds its connection open
                return Overdue(worker, "worker_died", "died")
        return None


def _edits_at_once(worker: Worker) -> int:
    """How many edits the running job is for, each of which may take its time; a batch of questions
    counts as one.
    """
    message = worker.jobs[0][1] if worker.state == "busy" else None
    if message is not None and message["op"] == "edit":
        return len(message["edits"])
    return 1
