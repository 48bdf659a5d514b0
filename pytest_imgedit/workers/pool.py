"""Runs jobs on a set of workers: serialised loading, one job at a time each, results as they come,
and retries of lost jobs.
"""

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from pytest_imgedit.core import environments, errors
from pytest_imgedit.core.messages import Failed, FromWorker, Job, JobReply, Loaded, Preparing
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
#: Jobs that a worker has at a time: one running, and one whose images it reads meanwhile.
DEPTH = 2


class Watcher(Protocol):
    """Follows what workers do, and says whether to stop."""

    @property
    def stopping(self) -> bool:
        """True once the user asked to stop: running jobs are finished, no new ones start."""

    def worker_changed(self, worker: Worker) -> None: ...

    def worker_said(self, slot: Slot, line: str) -> None: ...

    def note(self, text: str) -> None: ...


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

    def start(self, jobs: int) -> None:
        """Start processes on up to `jobs` slots, but at least on one; each imports what it needs
        and waits until `run` has it load. `run` and `poll` report what goes wrong meanwhile. A pool
        that was started before stays as it is.
        """
        if self.workers or self.gone:
            return
        self._spare = self.slots
        self.slots = []
        self.extend(max(1, jobs))

    def extend(self, jobs: int) -> None:
        """Start processes on further slots, until there is one for each of `jobs` or no slot."""
        while self._spare and len(self.slots) < jobs:
            self.slots.append(self._spare.pop(0))
            self._spawn(self.slots[-1])

    def _spawn(self, slot: Slot) -> None:
        """Start a process on a slot, in a thread, since an interpreter that hangs must not hold up
        the others.
        """
        worker = Worker(slot)
        self.workers.append(worker)
        self._set(worker, "starting")
        try:
            threading.Thread(target=self._bring_up, args=(worker,), daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._report_not_started(worker, error)

    def _report_not_started(self, worker: Worker, error: Exception) -> None:
        """Put the event that a worker did not start, with the reason."""
        reason = one_line(error)
        if not isinstance(error, NotStarted):
            reason = f"worker {worker.slot.name}: {errors.system_refusal(error) or reason}"
        self.events.put((worker, {"op": "not_started", "message": reason}))

    def _bring_up(self, worker: Worker) -> None:
        """Start the process of a worker and have it prepare; report it if it does not start."""
        try:
            connection = self.executor.start(worker.slot)
        except Exception as error:  # NotStarted, or an error of the system such as no more threads
            self._report_not_started(worker, error)
            return
        with self._handing_over:
            if worker.state != "dead":
                worker.connection = connection
        if worker.connection is None:  # the pool was closed meanwhile
            connection.close()
            return
        connection.send({**self.setup, "op": "prepare", "device": worker.slot.device})
        connection.listen(lambda message: self.events.put((worker, message)))

    def renew(self, worker: Worker) -> None:
        """Start a fresh process in the place of one that ran out of memory."""
        if worker in self.workers:
            self.watcher.note(
                f"worker {worker.slot.name} ({worker.slot.label}) is out of memory and is replaced"
            )
            self._remove(worker)
            self._spawn(worker.slot)

    def run(
        self, take: Callable[[Worker], tuple[Any, Job] | None], more: Callable[[], bool] = bool
    ) -> Iterator[Done]:
        """Yield `(job, worker, reply)` for every job that `take` hands out.

        `take(worker)` returns a job with its message, or `None` while there is none; it is asked
        again after each reply, so that a reply may lead to new jobs, and for a job ahead while the
        worker does another. Replies have `op` `edited`, `judged` or `error`; a job whose process
        died or took too long gets an error of kind `worker_died` or `timeout`, and a fresh process
        takes the place. It goes on, with nothing to do too, while `more()` says that jobs may still
        come. Raises `UsageError` if an editor or judge refuses its settings.
        """
        while True:
            self._command()
            for depth in range(1, DEPTH + 1):
                for worker in list(self.workers):
                    if worker.state in ("idle", "busy") and len(worker.jobs) < depth:
                        self._dispatch(worker, take)
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

    def _command(self) -> None:
        """Have workers load, a few at a time on each machine. Once the run is to stop, have them
        leave the jobs that wait, and before long those that are being done.
        """
        if self.watcher.stopping:
            for worker in self.workers:
                if worker.jobs and not worker.dropping:
                    worker.dropping = True
                    worker.send({"op": "drop"})
            return
        loading = Counter(w.slot.machine for w in self.workers if w.state == "loading")
        for worker in self.workers:
            machine = worker.slot.machine
            if worker.state == "waiting" and loading[machine] < self.load_concurrency:
                worker.send({"op": "load"})
                self._set(worker, "loading")
                loading[machine] += 1

    def _dispatch(self, worker: Worker, take: Callable[[Worker], tuple[Any, Job] | None]) -> None:
        """Send a worker its next job, if it may have one: a new one, or else, if it is idle, one
        that a lost worker left.
        """
        if self.watcher.stopping or (worker.alone and worker.jobs):
            return
        taken = take(worker)
        worker.alone = taken is None and bool(self._returned) and not worker.jobs
        if worker.alone:
            taken = self._returned.popleft()
        if taken is not None:
            worker.jobs.append(taken)
            worker.send(taken[1])
            if worker.state == "idle":
                self._set(worker, "busy")

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
            self._command()
            deque(self._poll_events(), maxlen=0)

    def poll(self) -> None:
        """Handle what has happened to processes that wait for `run`; raise `UsageError` if one
        cannot start.
        """
        while not self.events.empty():
            deque(self._poll_events(), maxlen=0)

    def _poll_events(self) -> Iterator[Done]:
        """Yield the jobs that ended within 0.2 s: that of the next message, then that of a worker
        that is overdue.
        """
        with suppress(queue.Empty):
            worker, message = self.events.get(timeout=0.2)
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
        """Handle what a worker sent; yield the job that ended with it, if any."""
        if message["op"] == "ended":
            yield from self._end_lost(worker, "worker_died", "died")
        elif message["op"] == "step":
            if worker.state == "busy":
                worker.step = (message["step"], message["steps"])
                self.watcher.worker_changed(worker)
        elif message["op"] == "not_started":
            self._remove(worker)
            self._replace(worker.slot, message["message"])
        elif message["op"] == "prepared":
            self._any_ready = True
            self._set(worker, "waiting")
        elif message["op"] == "loaded":
            self._take_loaded(worker, message)
        elif worker.jobs:
            job, _ = worker.jobs.popleft()
            worker.step = None
            worker.memory = message.get("memory", worker.memory)
            worker.busy_s += _sane(message.get("seconds"))
            worker.code = message.get("code", worker.code)
            self._deaths[worker.slot.name] = 0
            self._note_if_starved(worker, message.get("cpu_share"))
            self._set(worker, "busy" if worker.jobs else "idle")
            if message["op"] in ("judged", "edited"):
                worker.batch_size = message["batch_size"]
            if message["op"] == "edited":
                # What memory or a failure has left of the size holds for processes to come.
                self.setup["batch_size"] = min(
                    worker.batch_size, self.setup.get("batch_size", worker.batch_size)
                )
            if message["op"] != "dropped":
                yield job, worker, message
        elif message["op"] == "error":
            self._load_failed(worker, message)

    def _note_if_starved(self, worker: Worker, share: float | None) -> None:
        """Say once if a worker gets less than half of the CPU time that its threads could use."""
        if share is not None and share < STARVED and not self._is_starved:
            self._is_starved = True
            self.watcher.note(
                f"worker {worker.slot.name} ({worker.slot.label}) gets {share:.0%} of the CPU time "
                "that it could use: other processes keep this machine busy; --imgedit-limit=N "
                "takes fewer pairs"
            )

    def _take_loaded(self, worker: Worker, message: Loaded) -> None:
        """Note what a worker reports once it has loaded; raise `UsageError` for an environment in
        which the run must not compute.
        """
        self._deaths[worker.slot.name] = 0
        worker.memory = message.get("memory")
        worker.load_s = _sane(message.get("seconds"))
        worker.batch_size = message["batch_size"]
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
        self._set(worker, "idle")

    def _prove(self, worker: Worker) -> None:
        """Raise `UsageError` for a worker whose probe differs from that of the first worker on its
        type of GPU; warn once about a type whose probe differs from another's. `check` may refuse
        the first of a type.
        """
        environment = worker.computes_in
        if environment.probe is None:
            return
        first = self.proven.get(environment.gpu or worker.slot.machine)
        if first is None:
            self.check(environment)
            for proven in self.proven.values():
                if proven.computes_in.probe != environment.probe:
                    self.watcher.note(f"warning: {_unlike_probes(proven, worker)}")
            self.proven[environment.gpu or worker.slot.machine] = worker
        elif first.computes_in.probe != environment.probe:
            raise errors.UsageError(
                f"{_unlike_probes(first, worker)}: expected one for all of a type of GPU"
            )

    def _load_failed(self, worker: Worker, message: Failed) -> None:
        """Give up a worker that could not load; raise `UsageError` if its settings are to blame."""
        self._remove(worker)
        self._given_up = f"could not load: {message['message']}"
        if message["kind"] == "setup":
            raise errors.UsageError(message["message"])
        self.watcher.note(f"worker {worker.slot.name} ({worker.slot.label}) {self._given_up}")

    def _end_lost(self, worker: Worker, kind: str, what: str) -> Iterator[Done]:
        """Replace a process that is gone or has to go, unless its slot has lost too many; yield its
        job, if it had one, with an error.
        """
        slot = worker.slot
        job = worker.job
        if worker.jobs:
            worker.jobs.popleft()
        when = " before it was ready" if worker.state == "starting" else ""
        how = self._remove(worker)
        if kind == "worker_died":
            what += f" ({how})"
        why = f"worker {slot.name} ({slot.label}) {what}{when}; its last words: {worker.last_line}"
        self._replace(slot, why, speaks_against_slot=job is None)
        if job is not None:
            yield job, worker, {"op": "error", "kind": kind, "message": why}

    def _replace(self, slot: Slot, why: str, speaks_against_slot: bool = True) -> None:
        """Start another process on a slot that lost one, or give it up; raise `UsageError` if none
        ever came up.
        """
        self._deaths[slot.name] += speaks_against_slot
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

    def _set(self, worker: Worker, state: Any) -> None:
        worker.state = state
        worker.since = time.monotonic()
        self.watcher.worker_changed(worker)

    def _remove(self, worker: Worker) -> str:
        """End a worker's process and put its jobs back; return how the process ended."""
        with self._handing_over:
            self._set(worker, "dead")
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
        """Pass the lines that a process has printed to the watcher."""
        for line in worker.connection.lines(final) if worker.connection else ():
            worker.last_line = line.strip()[:300]
            self.watcher.worker_said(worker.slot, line)

    def close(self) -> None:
        """End every process; its memory is free when this returns."""
        for worker in list(self.workers):
            if worker.connection is not None:
                worker.connection.terminate()
        for worker in list(self.workers):
            self._remove(worker)


def _unlike_probes(first: Worker, second: Worker) -> str:
    """Say that two workers compute differently, and where each of them runs."""
    descriptions = [
        f"{worker.slot.name} ({worker.slot.label}, {worker.computes_in.gpu or 'CPU'}) has probe "
        f"{worker.computes_in.probe}"
        for worker in (first, second)
    ]
    return f"workers compute otherwise: {', '.join(descriptions)}"


def _sane(seconds: Any) -> float:
    """Return a time that a worker reports, or 0 if code of the user has made it infinite or
    negative.
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
        `failures` earlier failures; replace the worker's process if it has to be a fresh one.
        """
        if kind != "oom":
            return failures == 0 and kind in ("worker_died", "timeout")
        if worker.jobs_done == 0:
            self.in_vain += failures > 0
            return False
        if self.in_vain >= MAX_IN_VAIN:
            return False
        self.pool.renew(worker)
        return True

    def helped(self) -> None:
        """Note that a retry succeeded."""
        self.in_vain = 0
