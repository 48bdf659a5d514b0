"""Runs jobs on a set of workers: serialised loading, one job at a time each, results as they come,
and retries of lost jobs.
"""

import itertools
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from pytest_imgedit.core import environments, errors
from pytest_imgedit.core.messages import (
    Acknowledged,
    Failed,
    FromWorker,
    Job,
    JobReply,
    Loaded,
    Preparing,
)
from pytest_imgedit.core.text import one_line
from pytest_imgedit.workers.base import Executor, NotStarted, Slot, State, Worker
from pytest_imgedit.workers.timeouts import Deadline, Timeouts

Done = tuple[Any, Worker, JobReply]

#: A slot that loses this many processes in a row before they have a job is given up. A process's
#: death while it does a job counts against the job, which ends after two such deaths.
MAX_DEATHS = 3
#: After this many jobs that ran out of memory in a fresh process too, the jobs are to blame and not
#: the processes.
MAX_IN_VAIN = 2
#: A worker that gets less than this share of the CPU time that it could use is starved.
STARVED = 0.5
#: Seconds to wait for an event before looking for workers that are overdue.
POLL_SECONDS = 0.2
#: Characters that are kept of the last line that a worker printed.
MAX_LAST_LINE = 300


class Watcher(Protocol):
    """Follows what workers do, and says whether to stop."""

    @property
    def stopping(self) -> bool:
        """True once the user asked to stop: running jobs are finished, no new ones start."""

    def worker_changed(self, worker: Worker) -> None:
        """Take note of a worker's new state or step."""

    def worker_said(self, slot: Slot, line: str) -> None:
        """Take note of a line that the worker of a slot has printed."""

    def note(self, text: str) -> None:
        """Show the user a line about what happened to the workers."""


class Pool:
    """Workers of one role, each of which gets the message `setup`, what to prepare.

    On each machine `load_concurrency` of them load at a time. A worker that has been in one of the
    states of `deadlines` for too long is ended.
    """

    def __init__(
        self,
        executor: Executor,
        slots: Sequence[Slot],
        setup: Preparing,
        *,
        load_concurrency: int,
        deadlines: Mapping[State, Deadline],
        watcher: Watcher,
    ) -> None:
        self.executor = executor
        self.slots = list(slots)
        self.watcher = watcher
        self.setup = setup
        self.load_concurrency = load_concurrency
        self.timeouts = Timeouts(deadlines)
        self.events: queue.Queue[tuple[Worker, FromWorker]] = queue.Queue()
        self._handing_over = threading.Lock()
        self.workers: list[Worker] = []
        self.gone: list[Worker] = []
        self._deaths = Counter[str]()
        #: The first worker with a probe, by its type of GPU, or by its machine without one.
        self.proven: dict[str, Worker] = {}
        #: Raises `UsageError` for an environment in which the run must not compute.
        self.check: Callable[[environments.Environment], None] = lambda environment: None
        self._given_up = ""
        self._any_ready = False
        self._is_starved = False
        self._spare: list[Slot] = []
        # Jobs that a worker left when it went. One of them may be why it went, with the reply on
        # the job before it not sent yet, so they are done alone.
        self._returned: deque[tuple[Any, Job]] = deque()
        self._numbers = itertools.count(1)

    def start(self, jobs: int) -> None:
        """Start processes on up to `jobs` slots, but at least on one; do nothing if the pool was
        started before.

        Each process imports what it needs and waits until `load` or `run` has it load. These, and
        `poll`, report what goes wrong meanwhile.
        """
        if self.workers or self.gone:
            return
        self._spare = self.slots
        self.slots = []
        self.extend(max(1, jobs))

    def extend(self, jobs: int) -> None:
        """Start processes on further slots, until there is one for each of `jobs` or no slot is
        left.
        """
        while self._spare and len(self.slots) < jobs:
            self.slots.append(self._spare.pop(0))
            self._spawn(self.slots[-1])

    def _spawn(self, slot: Slot) -> None:
        """Start a process on a slot, in a thread, since an interpreter that hangs must not hold up
        the others.
        """
        worker = Worker(slot)
        self.workers.append(worker)
        self._set_state(worker, "starting")
        try:
            threading.Thread(target=self._bring_up, args=(worker,), daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._report_not_started(worker, error)

    def _report_not_started(self, worker: Worker, error: Exception) -> None:
        """Queue the event that a worker did not start, with the reason."""
        reason = one_line(error)
        if not isinstance(error, NotStarted):
            reason = f"worker {worker.slot.name}: {errors.system_refusal(error) or reason}"
        self.events.put((worker, {"op": "not_started", "message": reason}))

    def _bring_up(self, worker: Worker) -> None:
        """Start the process of a worker and have it prepare; report it if it does not start, and
        close it if the worker was removed meanwhile.
        """
        try:
            connection = self.executor.start(worker.slot)
        except Exception as error:  # NotStarted, or an error of the system such as no more threads
            self._report_not_started(worker, error)
            return
        with self._handing_over:
            if worker.state != "dead":
                worker.connection = connection
        if worker.connection is None:  # the worker was removed meanwhile
            connection.close()
            return
        connection.send({**self.setup, "op": "prepare", "device": worker.slot.device})
        connection.listen(lambda message: self.events.put((worker, message)))

    def renew(self, worker: Worker) -> None:
        """Replace a process that ran out of memory by a fresh one; do nothing if it is gone."""
        if worker in self.workers:
            self.watcher.note(
                f"worker {worker.slot.name} ({worker.slot.label}) is out of memory and is replaced"
            )
            self._remove(worker)
            self._spawn(worker.slot)

    def run(
        self,
        take: Callable[[Worker], tuple[Any, Job] | None],
        more: Callable[[], bool] = lambda: False,
    ) -> Iterator[Done]:
        """Yield `(job, worker, reply)` for every job that `take` hands out, except those that are
        dropped once the run is to stop.

        `take(worker)` returns a job with its message, or `None` while there is none; it is asked
        again after each reply, so that a reply may lead to new jobs, and for a job ahead while the
        worker does another. Replies have `op` `edited`, `judged` or `error`. A job whose process
        died or took too long gets an error of kind `worker_died` or `timeout`, and a fresh process
        replaces it; once no worker is left, jobs get one of kind `no_worker`. This goes on, even
        with nothing to do, while `more()` says that jobs may still come. Raise `UsageError` if an
        editor or judge refuses its settings, if no process ever came up, or if a worker computes
        where the run must not.
        """
        while True:
            self._load_or_drop()
            self._dispatch_all(take)
            if not self.workers and not self.watcher.stopping:
                yield from self._refuse(take)
                return
            states = {worker.state for worker in self.workers}
            # A worker that still loads may get a job; an idle one was just asked and got none.
            may_get_work = "idle" not in states and states & {"starting", "waiting", "loading"}
            waits = not self.watcher.stopping and (may_get_work or more())
            if not waits and "busy" not in states:
                return
            yield from self._poll_events()

    def _load_or_drop(self) -> None:
        """Have workers load, a few at a time on each machine; once the run is to stop, have them
        drop instead the jobs that wait, and before long those that are being done.
        """
        if self.watcher.stopping:
            for worker in self.workers:
                if worker.jobs and not worker.dropping:
                    worker.dropping = True
                    worker.send({"op": "drop"})
            return
        loading = Counter(
            worker.slot.machine for worker in self.workers if worker.state == "loading"
        )
        for worker in self.workers:
            machine = worker.slot.machine
            if worker.state == "waiting" and loading[machine] < self.load_concurrency:
                worker.send({"op": "load"})
                self._set_state(worker, "loading")
                loading[machine] += 1

    def _dispatch_all(self, take: Callable[[Worker], tuple[Any, Job] | None]) -> None:
        """Send jobs to workers, always to one that has the fewest, until none of them may have
        another one or gets one.
        """
        ready = [worker for worker in self.workers if worker.state in ("idle", "busy")]
        while ready:
            worker = min(ready, key=lambda worker: len(worker.jobs))
            if len(worker.jobs) >= worker.depth or not self._dispatch(worker, take):
                ready.remove(worker)

    def _dispatch(self, worker: Worker, take: Callable[[Worker], tuple[Any, Job] | None]) -> bool:
        """Send a worker its next job, if it may have one and there is one: a new one, or else, if
        it is idle, one that a lost worker left, which it then does alone. Return whether it did.
        """
        if self.watcher.stopping or (worker.alone and worker.jobs):
            return False
        taken = take(worker)
        worker.alone = taken is None and bool(self._returned) and not worker.jobs
        if worker.alone:
            taken = self._returned.popleft()
        if taken is None:
            return False
        job, message = taken
        message["number"] = next(self._numbers)
        worker.jobs.append((job, message))
        worker.send(message)
        if worker.state == "idle":
            self._set_state(worker, "busy")
        return True

    def _refuse(self, take: Callable[[Worker], tuple[Any, Job] | None]) -> Iterator[Done]:
        """Yield every job that remains, with no worker left, with an error that says why."""
        last_worker = self.gone[-1]
        while True:
            taken = take(last_worker)
            if taken is None and self._returned:
                taken = self._returned.popleft()
            if taken is None:
                return
            job, _ = taken
            yield (
                job,
                last_worker,
                {"op": "error", "kind": "no_worker", "message": self._given_up},
            )

    def load(self) -> None:
        """Wait until a worker has loaded, no worker is left, or the run is to stop; raise
        `UsageError` if the editor or judge refuses its settings.
        """
        while self.workers and not self.watcher.stopping:
            if any(worker.state == "idle" for worker in self.workers):
                return
            self._load_or_drop()
            self._handle_events()

    def poll(self) -> None:
        """Handle what has happened to processes that wait for `run`; raise `UsageError` if one
        cannot start.
        """
        while not self.events.empty():
            self._handle_events()

    def _handle_events(self) -> None:
        """Handle what `_poll_events` does while no worker has a job, so that none ends with it."""
        deque(self._poll_events(), maxlen=0)

    def _poll_events(self) -> Iterator[Done]:
        """Yield the jobs that ended within `POLL_SECONDS`: that of the next message, then, if no
        other message waits, that of a worker that is overdue.
        """
        with suppress(queue.Empty):
            worker, message = self.events.get(timeout=POLL_SECONDS)
            if worker.state != "dead":
                yield from self._handle_message(worker, message)
        for worker in self.workers:
            self._report_lines(worker)
        self.timeouts.exclude_absence(self.workers)
        if not self.events.empty():  # the worker that seems overdue may have answered
            return
        overdue = self.timeouts.overdue(self.workers)
        if overdue is not None:
            yield from self._end_lost(*overdue)

    def _handle_message(self, worker: Worker, message: FromWorker) -> Iterator[Done]:
        """Handle what a worker sent; yield the job that ended with it, if any. Raise `UsageError`
        for what must end the run.
        """
        if message["op"] == "ended":
            yield from self._end_lost(worker, "worker_died", "died")
        elif message["op"] == "step":
            if worker.state == "busy":
                worker.step = (message["step"], message["steps"])
                self.watcher.worker_changed(worker)
        elif message["op"] == "note":
            self.watcher.note(f"{worker.slot.name}: {message['text']}")
        elif message["op"] == "not_started":
            self._remove(worker)
            self._replace(worker.slot, message["message"])
        elif message["op"] == "prepared":
            self._any_ready = True
            self._set_state(worker, "waiting")
        elif message["op"] == "loaded":
            self._take_loaded(worker, message)
        elif worker.jobs:
            yield from self._take_reply(worker, message)
        elif message["op"] == "error":
            self._load_failed(worker, message)

    def _take_reply(self, worker: Worker, reply: JobReply | Acknowledged) -> Iterator[Done]:
        """Note what a worker reports with the end of its running job; yield that job, unless it was
        dropped.
        """
        job = _taken_out(worker, reply.get("number"))
        worker.step = None
        worker.memory = reply.get("memory", worker.memory)
        worker.busy_s += _sane(reply.get("seconds"))
        worker.code = reply.get("code", worker.code)
        self._deaths[worker.slot.name] = 0
        self._note_if_starved(worker, reply.get("cpu_share"))
        self._set_state(worker, "busy" if worker.jobs else "idle")
        if reply["op"] in ("judged", "edited"):
            worker.batch_size = reply["batch_size"]
        if reply["op"] == "edited":
            # Processes to come begin with the size that memory or a failure has left.
            self.setup["batch_size"] = min(
                worker.batch_size, self.setup.get("batch_size", worker.batch_size)
            )
        if reply["op"] in ("edited", "judged", "error"):
            yield job, worker, reply

    def _note_if_starved(self, worker: Worker, share: float | None) -> None:
        """Tell the user, once a pool, if a worker gets less than the share `STARVED` of the CPU
        time that its threads could use; a share that is unknown is `None`.
        """
        if share is not None and share < STARVED and not self._is_starved:
            self._is_starved = True
            self.watcher.note(
                f"worker {worker.slot.name} ({worker.slot.label}) gets {share:.0%} of the CPU time "
                "that it could use: other processes keep this machine busy; --imgedit-limit=N "
                "takes fewer pairs"
            )

    def _take_loaded(self, worker: Worker, message: Loaded) -> None:
        """Note what a worker reports once it has loaded, and tell the user of a smaller batch size
        than requested; raise `UsageError` for an environment in which the run must not compute.
        """
        self._deaths[worker.slot.name] = 0
        worker.memory = message.get("memory")
        worker.load_s = _sane(message.get("seconds"))
        worker.batch_size = message["batch_size"]
        worker.at_once = message["at_once"]
        requested = self.setup.get("batch_size", 1)
        if worker.batch_size < requested:
            self.watcher.note(
                f"worker {worker.slot.name} ({worker.slot.label}): batch size {worker.batch_size}, "
                f"not {requested}: larger batches fail, or how their edits round depends on the "
                "place in the batch"
            )
        worker.environment = environments.Environment(**message["environment"])
        worker.code = message.get("code", {})
        self._prove(worker)
        worker.loaded_at = time.perf_counter()
        self._set_state(worker, "idle")

    def _prove(self, worker: Worker) -> None:
        """Raise `UsageError` for a worker whose probe differs from that of the first worker on its
        type of GPU, or on its machine without one. `check` may refuse the first; warn if its probe
        differs from those of other types. Accept a worker without a probe.
        """
        environment = worker.computes_in
        if environment.probe is None:
            return
        kind = environment.gpu or worker.slot.machine
        first = self.proven.get(kind)
        if first is None:
            self.check(environment)
            for proven in self.proven.values():
                if proven.computes_in.probe != environment.probe:
                    self.watcher.note(f"warning: {_unlike_probes(proven, worker)}")
            self.proven[kind] = worker
        elif first.computes_in.probe != environment.probe:
            raise errors.UsageError(
                f"{_unlike_probes(first, worker)}: expected one for all of a type of GPU"
            )

    def _load_failed(self, worker: Worker, message: Failed) -> None:
        """End a worker that could not load, without a replacement; raise `UsageError` if its
        settings are to blame.
        """
        self._remove(worker)
        self._given_up = f"could not load: {message['message']}"
        if message["kind"] == "setup":
            raise errors.UsageError(message["message"])
        self.watcher.note(f"worker {worker.slot.name} ({worker.slot.label}) {self._given_up}")

    def _end_lost(self, worker: Worker, kind: str, event: str) -> Iterator[Done]:
        """End a process that is gone or has to go, and replace it unless its slot has lost too
        many; yield its job, if it had one, with an error.

        `kind` is that of the error, `event` says in the message what happened.
        """
        slot = worker.slot
        job = worker.job
        if worker.jobs:
            worker.jobs.popleft()
        when = " before it was ready" if worker.state == "starting" else ""
        how = self._remove(worker)
        if kind == "worker_died":
            event += f" ({how})"
        why = f"worker {slot.name} ({slot.label}) {event}{when}; its last words: {worker.last_line}"
        self._replace(slot, why, speaks_against_slot=job is None)
        if job is not None:
            yield job, worker, {"op": "error", "kind": kind, "message": why}

    def _replace(self, slot: Slot, why: str, speaks_against_slot: bool = True) -> None:
        """Start another process on a slot that lost one, or give the slot up after `MAX_DEATHS`
        that speak against it, with `UsageError` if no worker was ever prepared. Once the run is to
        stop, only count.
        """
        if speaks_against_slot:
            self._deaths[slot.name] += 1
        if self.watcher.stopping:
            return
        if self._deaths[slot.name] < MAX_DEATHS:
            self.watcher.note(why)
            self._spawn(slot)
            return
        self._given_up = why
        if not self._any_ready:
            raise errors.UsageError(why)
        self.watcher.note(f"{why}; its place is given up")

    def _set_state(self, worker: Worker, state: State) -> None:
        worker.state = state
        worker.since = time.monotonic()
        self.watcher.worker_changed(worker)

    def _remove(self, worker: Worker) -> str:
        """End a worker's process, or the attempt to start it, and put its jobs back; return how the
        process ended.
        """
        with self._handing_over:
            self._set_state(worker, "dead")
        self.workers.remove(worker)
        self.gone.append(worker)
        self._returned.extend(worker.jobs)
        worker.jobs.clear()
        if worker.connection is None:
            self.executor.abandon(worker.slot)
            return "it never answered"
        how = worker.connection.close()
        self._report_lines(worker, final=True)
        return how

    def _report_lines(self, worker: Worker, final: bool = False) -> None:
        """Pass the lines that a process has printed to the watcher, an unfinished one only if the
        process is gone (`final`).
        """
        if worker.connection is None:
            return
        for line in worker.connection.lines(final):
            worker.last_line = line.strip()[:MAX_LAST_LINE]
            self.watcher.worker_said(worker.slot, line)

    def close(self) -> None:
        """End every process; its memory is free when this returns."""
        for worker in list(self.workers):
            if worker.connection is not None:
                worker.connection.terminate()
        for worker in list(self.workers):
            self._remove(worker)


def _taken_out(worker: Worker, number: int | None) -> Any:
    """Take the job of a number out of those of a worker, or else the first one; return it."""
    for index, (job, message) in enumerate(worker.jobs):
        if message.get("number") == number:
            del worker.jobs[index]
            return job
    job, _ = worker.jobs.popleft()
    return job


def _unlike_probes(first: Worker, second: Worker) -> str:
    """Return text that says that two workers compute differently, and where each of them runs."""
    descriptions = [
        f"{worker.slot.name} ({worker.slot.label}, {worker.computes_in.gpu or 'CPU'}) has probe "
        f"{worker.computes_in.probe}"
        for worker in (first, second)
    ]
    return f"workers compute otherwise: {', '.join(descriptions)}"


def _sane(seconds: Any) -> float:
    """Return a time that a worker reports, or 0 if it is missing, or if code of the user has made
    it infinite, negative or no number.
    """
    if isinstance(seconds, int | float) and 0 <= seconds < float("inf"):
        return float(seconds)
    return 0.0


class Retries:
    """Retries a job once if a fresh process may finish it.

    A process that died or was ended has been replaced by then. One that is out of memory, also
    after freeing what it could, is replaced here if it has done jobs before, since it may have
    leaked. Loading a model takes time, so this stops once it has not helped.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.in_vain = 0

    def allow(self, failures: int, worker: Worker, kind: str) -> bool:
        """Tell whether to retry a job that failed on `worker` with an error of `kind`, after
        `failures` earlier failures; if it ran out of memory and is retried, replace the worker's
        process.
        """
        if kind != "oom":
            return failures == 0 and kind in ("worker_died", "timeout")
        if worker.jobs_done == 0:
            if failures > 0:  # so it ran out of memory in a fresh process too
                self.in_vain += 1
            return False
        if self.in_vain >= MAX_IN_VAIN:
            return False
        self.pool.renew(worker)
        return True

    def helped(self) -> None:
        """Note that a retry succeeded."""
        self.in_vain = 0
