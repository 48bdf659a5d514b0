"""Runs jobs on a set of workers: serialised loading, one job at a time each, results as they come."""

from __future__ import annotations

import queue
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from pytest_imgedit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_imgedit.workers.base import Executor, Message, Slot, Worker

#: A slot that loses this many processes with no finished job in between is given up.
MAX_DEATHS = 3


class Watcher(Protocol):
    """Is told what workers do, and asked whether to stop."""

    @property
    def stopping(self) -> bool:
        """True once the user asked to stop: running jobs are finished, no new ones start."""

    def worker_changed(self, worker: Worker) -> None: ...

    def worker_said(self, slot: Slot, line: str) -> None: ...


class Pool:
    """Workers of one role. `setup` is the message that tells a worker what to prepare."""

    def __init__(
        self,
        executor: Executor,
        slots: Sequence[Slot],
        setup: Message,
        load_concurrency: int,
        watcher: Watcher,
    ) -> None:
        self.executor, self.slots, self.setup = executor, list(slots), setup
        self.load_concurrency, self.watcher = load_concurrency, watcher
        self.events: queue.Queue[tuple[Worker, Message]] = queue.Queue()
        self.workers: list[Worker] = []
        self.gone: list[Worker] = []
        self._deaths: Counter[str] = Counter()
        self._given_up = ""
        self._last_words: dict[str, str] = {}

    def start(self, jobs: int) -> None:
        """Start a process on every slot, but no more than `jobs`; each imports what it needs and waits until `run`
        has it load. A pool that was started before stays as it is.
        """
        if self.workers or self.gone:
            return
        self.slots = self.slots[: max(1, jobs)]
        for slot in self.slots:
            self._spawn(slot)

    def _spawn(self, slot: Slot) -> None:
        worker = self.executor.start(slot, self.events)
        self.workers.append(worker)
        self._send(worker, {"op": "prepare", **self.setup, "device": slot.device})
        self._set(worker, "starting")

    def run(self, take: Callable[[Worker], tuple[Any, Message] | None]) -> Iterator[tuple[Any, Worker, Message]]:
        """Yield `(job, worker, reply)` for every job that `take` hands out.

        `take(worker)` returns a job with its message, or `None` while there is none; it is asked again after
        each reply, so that a reply may lead to new jobs. Replies have `op` `edited`, `judged` or `error`; a
        job whose process died gets an error of kind `worker_died`, and a fresh process takes the place.
        Raises `UsageError` if an editor or judge refuses its settings.
        """
        while True:
            self._load_waiting()
            for worker in [w for w in self.workers if w.state == "idle"]:
                self._dispatch(worker, take)
            if not self.workers and not self.watcher.stopping:
                yield from self._refuse(take)
                return
            if not any(w.state == "busy" for w in self.workers) and (self.watcher.stopping or not self._may_get_work()):
                return
            yield from self._next_event()

    def _may_get_work(self) -> bool:
        """A worker that still loads may be handed a job; an idle one was just asked and got none."""
        idle = any(w.state == "idle" for w in self.workers)
        return not idle and any(w.state in ("starting", "waiting", "loading") for w in self.workers)

    def _load_waiting(self) -> None:
        free = self.load_concurrency - sum(w.state == "loading" for w in self.workers)
        for worker in [w for w in self.workers if w.state == "waiting"][: max(0, free)]:
            if not self.watcher.stopping:
                self._send(worker, {"op": "load"})
                self._set(worker, "loading")

    def _dispatch(self, worker: Worker, take: Callable[[Worker], tuple[Any, Message] | None]) -> None:
        taken = None if self.watcher.stopping else take(worker)
        if taken is not None:
            worker.job, message = taken
            self._send(worker, message)
            self._set(worker, "busy")

    def _refuse(self, take: Callable[[Worker], tuple[Any, Message] | None]) -> Iterator[tuple[Any, Worker, Message]]:
        """With no worker left, every job that remains ends in an error that says why."""
        last = self.gone[-1]
        while (taken := take(last)) is not None:
            yield taken[0], last, {"op": "error", "kind": "no_worker", "message": self._given_up}

    def poll(self) -> None:
        """Hear what has happened to processes that wait for `run`; raise `UsageError` if one cannot start."""
        while not self.events.empty():
            for _ in self._next_event():
                pass

    def _next_event(self) -> Iterator[tuple[Any, Worker, Message]]:
        try:
            worker, message = self.events.get(timeout=0.2)
        except queue.Empty:
            self._drain_output()
            return
        self._drain_output()
        if worker.state == "dead":
            return
        operation = message["op"]
        if operation == "ended":
            yield from self._died(worker)
        elif operation == "prepared":
            self._set(worker, "waiting")
        elif operation == "loaded":
            worker.load_s, worker.batch_size = message["seconds"], message["batch_size"]
            worker.loaded_at = time.perf_counter()
            self._set(worker, "idle")
        elif worker.job is None:
            self._load_failed(worker, message)
        else:
            job, worker.job = worker.job, None
            worker.busy_s += message["seconds"]
            self._deaths[worker.slot.name] = 0
            self._set(worker, "idle")
            yield job, worker, message

    def _load_failed(self, worker: Worker, message: Message) -> None:
        self._remove(worker)
        self._given_up = f"could not load: {message['message']}"
        if message["kind"] == "setup":
            raise UsageError(message["message"])

    def _died(self, worker: Worker) -> Iterator[tuple[Any, Worker, Message]]:
        started = worker.state != "starting"
        self._remove(worker)
        words = self._last_words.get(worker.slot.name, "no output")
        if not started and not self._deaths[worker.slot.name]:
            raise UsageError(f"worker {worker.slot.name} ended before it was ready; its last words: {words}")
        why = f"worker {worker.slot.name} ({worker.slot.label}) died; its last words: {words}"
        self._deaths[worker.slot.name] += 1
        if self._deaths[worker.slot.name] < MAX_DEATHS:
            self._spawn(worker.slot)
        else:
            self._given_up = why
        if worker.job is not None:
            yield worker.job, worker, {"op": "error", "kind": "worker_died", "message": why}

    def _send(self, worker: Worker, message: Message) -> None:
        with suppress(OSError):  # the process is gone: its ENDED event says so
            worker.connection.send(message)

    def _set(self, worker: Worker, state: Any) -> None:
        worker.state = state
        self.watcher.worker_changed(worker)

    def _remove(self, worker: Worker) -> None:
        self._set(worker, "dead")
        self.workers.remove(worker)
        self.gone.append(worker)
        worker.connection.close()
        self._pass_on(worker.slot, final=True)

    def _drain_output(self) -> None:
        for slot in self.slots:
            self._pass_on(slot)

    def _pass_on(self, slot: Slot, final: bool = False) -> None:
        """Pass on what a slot's processes have printed."""
        for line in self.executor.output(slot, final):
            self._last_words[slot.name] = line.strip()[:300]
            self.watcher.worker_said(slot, line)

    def close(self) -> None:
        """End every process; its memory is free when this returns."""
        for worker in list(self.workers):
            worker.connection.terminate()
        for worker in list(self.workers):
            self._remove(worker)
        self.executor.forget(self.slots)
