"""Which workers have taken too long, or are gone without a word."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytest_imgedit.workers.base import State, Worker

#: If the controller was unresponsive for more seconds than this, worker deadlines are extended by
#: the gap. A process may be gone for this long before its connection ends.
ABSENCE = 1.0


@dataclass(frozen=True)
class Deadline:
    """The most seconds that a worker may stay in a state, and the option that sets them."""

    seconds: float
    option: str


@dataclass
class Timeouts:
    """Holds workers to the deadlines of their states, without the time in which nobody listened to
    them.
    """

    deadlines: Mapping[State, Deadline]
    _listened: float = field(default_factory=time.monotonic)

    def exclude_absence(self, workers: Iterable[Worker]) -> None:
        """Exclude from deadlines the time since the last call, if it is so long (over `ABSENCE`)
        that this process was stopped or busy, or if the clock went backwards.
        """
        now = time.monotonic()
        away = now - self._listened
        self._listened = now
        if not 0 <= away <= ABSENCE:
            for worker in workers:
                worker.since = min(now, worker.since + away)
                worker.silent_at = 0.0

    def overdue(self, workers: Iterable[Worker]) -> tuple[Worker, str, str] | None:
        """Return the first worker that has been in a state for longer than its deadline, or whose
        process is gone without a word for longer than `ABSENCE`, with the kind of error of its job
        and what happened; `None` if there is no such worker.
        """
        now = time.monotonic()
        for worker in workers:
            limit = self.deadlines.get(worker.state)
            if limit is not None and now - worker.since > limit.seconds * _edits_at_once(worker):
                doing = "a job" if worker.state == "busy" else worker.state
                event = f"was ended: {doing} took longer than {limit.seconds:g} s ({limit.option})"
                return worker, "timeout", event
            if worker.connection is None or worker.connection.alive():
                continue
            if worker.silent_at == 0.0:
                worker.silent_at = now
            if now - worker.silent_at > ABSENCE:  # a child of it holds its connection open
                return worker, "worker_died", "died"
        return None


def _edits_at_once(worker: Worker) -> int:
    """Return how many edits the running job has, each of which may take the whole time; 1 for a
    batch of questions, and without a job.
    """
    if worker.state == "busy":
        _, message = worker.jobs[0]
        if message["op"] == "edit":
            return len(message["edits"])
    return 1
