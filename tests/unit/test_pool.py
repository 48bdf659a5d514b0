"""What a pool makes of messages and of time, without a process."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from engine_world import Told

from pytest_imgedit.workers.base import Deadline, Slot, Worker
from pytest_imgedit.workers.pool import Pool, Setup

LIMIT = Deadline(10.0, "workers.edit_timeout")


class Changes(Told):
    """Hears which states workers were in when they changed."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def worker_changed(self, worker):
        self.heard.append((worker.state, worker.step))


@pytest.fixture
def pool():
    return Pool(None, [Slot("edit-0", ())], Setup({}, 1, {"busy": LIMIT}), Changes())


def worker_of(pool, state, edits=0):
    connection = SimpleNamespace(alive=lambda: True, lines=lambda final=False: [], close=lambda: "SIGKILL")
    worker = Worker(pool.slots[0], connection, state)
    if edits:
        worker.jobs.append((["work"] * edits, {"op": "edit", "edits": [{}] * edits}))
    pool.workers.append(worker)
    return worker


def test_a_step_of_a_running_job_is_told(pool):
    worker = worker_of(pool, "busy", edits=1)
    assert list(pool._heard(worker, {"op": "step", "step": 3, "steps": 20})) == []
    assert pool.watcher.heard == [("busy", (3, 20))]
    assert len(worker.jobs) == 1


def test_a_step_of_a_worker_that_loads_is_not(pool):
    worker = worker_of(pool, "loading")
    assert list(pool._heard(worker, {"op": "step", "step": 3, "steps": 20})) == []
    assert pool.watcher.heard == []
    assert worker.step is None


@pytest.mark.parametrize(("edits", "seconds", "ended"), [(1, 11, True), (1, 9, False), (4, 39, False), (4, 41, True)])
def test_the_deadline_of_a_batch_is_that_of_its_edits(pool, monkeypatch, edits, seconds, ended):
    worker = worker_of(pool, "busy", edits=edits)
    worker.since = time.monotonic() - seconds
    monkeypatch.setattr(pool, "_spawn", lambda slot: None)
    replies = [reply for _, _, reply in pool._end_overdue()]
    assert [reply["kind"] for reply in replies] == (["timeout"] if ended else [])


def test_a_pool_that_started_small_grows_with_its_jobs(monkeypatch):
    pool = Pool(None, [Slot(f"edit-{n}", ()) for n in range(4)], Setup({}, 1, {}), Changes())
    started = []
    monkeypatch.setattr(pool, "_spawn", lambda slot: started.append(slot.name))
    pool.start(1)
    pool.extend(3)
    pool.extend(2)
    assert started == ["edit-0", "edit-1", "edit-2"]
    pool.extend(99)
    assert started[3:] == ["edit-3"]
