"""What a pool makes of messages and of time, without a process."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from run_world import Told

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.workers.base import Slot, Worker
from pytest_imgedit.workers.hardware import CpuShare, _scheduled
from pytest_imgedit.workers.pool import Pool
from pytest_imgedit.workers.timeouts import Deadline

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
    return Pool(
        None,
        [Slot("edit-0", ())],
        {},
        load_concurrency=1,
        deadlines={"busy": LIMIT},
        watcher=Changes(),
    )


def worker_of(pool, state, edits=0):
    connection = SimpleNamespace(
        alive=lambda: True, lines=lambda final=False: [], close=lambda: "SIGKILL"
    )
    worker = Worker(pool.slots[0], connection=connection, state=state)
    if edits:
        worker.jobs.append((["work"] * edits, {"op": "edit", "edits": [{}] * edits}))
    pool.workers.append(worker)
    return worker


def test_a_step_of_a_running_job_is_told(pool):
    worker = worker_of(pool, "busy", edits=1)
    assert list(pool._handle_message(worker, {"op": "step", "step": 3, "steps": 20})) == []
    assert pool.watcher.heard == [("busy", (3, 20))]
    assert len(worker.jobs) == 1


def test_a_step_of_a_worker_that_loads_is_not(pool):
    worker = worker_of(pool, "loading")
    assert list(pool._handle_message(worker, {"op": "step", "step": 3, "steps": 20})) == []
    assert pool.watcher.heard == []
    assert worker.step is None


@pytest.mark.parametrize(
    ("edits", "seconds", "ended"), [(1, 11, True), (1, 9, False), (4, 39, False), (4, 41, True)]
)
def test_the_deadline_of_a_batch_is_that_of_its_edits(pool, monkeypatch, edits, seconds, ended):
    worker = worker_of(pool, "busy", edits=edits)
    worker.since = time.monotonic() - seconds
    monkeypatch.setattr(pool, "_spawn", lambda slot: None)
    replies = [reply for _, _, reply in pool._poll_events()]
    assert [reply["kind"] for reply in replies] == (["timeout"] if ended else [])


def test_replies_out_of_order_are_those_of_their_jobs(pool):
    worker = worker_of(pool, "idle")
    worker.at_once = 4
    jobs = iter(range(20))
    sent = []
    worker.connection.send = sent.append

    def take(worker):
        job = next(jobs, None)
        return None if job is None else (job, {"op": "judge", "questions": []})

    pool._dispatch_all(take)
    assert len(worker.jobs) == len(sent) == worker.depth == 12
    ended = []
    for message in reversed(sent):
        reply = {"op": "judged", "answers": [], "batch_size": 1, "number": message["number"]}
        ended += [job for job, _, _ in pool._handle_message(worker, reply)]
    assert ended == list(range(11, -1, -1))
    assert worker.state == "idle"


def test_workers_with_the_fewest_jobs_are_sent_the_next(pool):
    first, second = worker_of(pool, "busy", edits=1), worker_of(pool, "idle")
    for worker in (first, second):
        worker.connection.send = lambda message: None
    jobs = iter([1])

    def take(worker):
        job = next(jobs, None)
        return None if job is None else (job, {"op": "judge", "questions": []})

    pool._dispatch_all(take)
    assert (len(first.jobs), len(second.jobs)) == (1, 1)


def test_what_a_worker_says_of_a_server_is_told(pool):
    worker = worker_of(pool, "busy", edits=1)
    assert list(pool._handle_message(worker, {"op": "note", "text": "it is gone"})) == []
    assert pool.watcher.notes == ["edit-0: it is gone"]
    assert len(worker.jobs) == 1


def test_a_pool_that_started_small_grows_with_its_jobs(monkeypatch):
    pool = Pool(
        None,
        [Slot(f"edit-{n}", ()) for n in range(4)],
        {},
        load_concurrency=1,
        deadlines={},
        watcher=Changes(),
    )
    started = []
    monkeypatch.setattr(pool, "_spawn", lambda slot: started.append(slot.name))
    pool.start(1)
    pool.extend(3)
    pool.extend(2)
    assert started == ["edit-0", "edit-1", "edit-2"]
    pool.extend(99)
    assert started[3:] == ["edit-3"]


def test_a_worker_that_other_processes_starve_is_told_once(pool):
    worker = worker_of(pool, "busy", edits=1)
    for share in (None, 0.8, 0.31, 0.2):
        worker.jobs.append(("work", {"op": "edit", "edits": [{}]}))
        list(
            pool._handle_message(
                worker, {"op": "error", "kind": "exception", "message": "x", "cpu_share": share}
            )
        )
    (note,) = pool.watcher.notes
    assert note.startswith(
        "worker edit-0 (CPU) gets 31% of the CPU time that it could use: other processes keep this "
    )
    assert "--imgedit-limit=N" in note


def test_a_run_that_stops_has_workers_drop_the_job_that_they_read_ahead(pool, monkeypatch):
    worker, sent = worker_of(pool, "busy", edits=1), []
    worker.connection.send = sent.append
    worker.jobs.append((["next"], {"op": "edit", "edits": [{}]}))
    replies = iter([{"op": "dropped"}, {"op": "dropped"}])
    monkeypatch.setattr(pool, "_poll_events", lambda: pool._handle_message(worker, next(replies)))
    pool.watcher.stopping = True
    assert list(pool.run(lambda worker: None)) == []
    assert sent == [{"op": "drop"}]


def test_batches_that_memory_has_halved_stay_small_in_the_processes_to_come(pool):
    pool.setup["batch_size"] = 8
    worker = worker_of(pool, "busy", edits=8)
    list(pool._handle_message(worker, {"op": "edited", "edits": [], "batch_size": 4}))
    assert (worker.batch_size, pool.setup["batch_size"]) == (4, 4)


def test_the_share_of_the_processor_is_that_of_threads_that_want_it(monkeypatch):
    times = iter([(1.0, 2.0), (1.5, 2.5), (7.0, 16.0)])
    monkeypatch.setattr("pytest_imgedit.workers.hardware._scheduled", lambda: next(times))
    cpu = CpuShare()
    assert cpu.look() is None  # a second says nothing
    assert cpu.look() == pytest.approx(6 / 20)


def test_the_system_tells_how_long_threads_ran_and_waited():
    before = _scheduled()
    sum(range(3_000_000))
    ran, waited = _scheduled()
    assert ran > before[0]
    assert waited >= before[1]


def loaded(probe, gpu="H100", **facts):
    environment = {"device": "cuda", "gpu": gpu, "versions": {}, "probe": probe, **facts}
    return {"op": "loaded", "batch_size": 1, "at_once": 1, "environment": environment}


@pytest.fixture
def probing():
    """A pool of which workers load one after the other."""
    pool = Pool(
        None,
        [Slot(f"edit-{n}", (str(n),)) for n in range(4)],
        {},
        load_concurrency=1,
        deadlines={},
        watcher=Changes(),
    )
    pool.checked = []
    pool.check = lambda environment: pool.checked.append(environment.probe)

    def load(number, probe, gpu="H100"):
        worker = Worker(pool.slots[number], state="loading")
        pool.workers.append(worker)
        assert list(pool._handle_message(worker, loaded(probe, gpu))) == []
        return worker

    pool.have_load = load
    return pool


def test_the_first_worker_of_a_type_of_gpu_sets_the_probe(probing):
    for number in range(3):
        assert probing.have_load(number, "aaaa").state == "idle"
    assert probing.checked == ["aaaa"]
    with pytest.raises(UsageError) as caught:
        probing.have_load(3, "bbbb")
    assert str(caught.value) == (
        "workers compute otherwise: edit-0 (GPU 0, H100) has probe aaaa, edit-3 (GPU 3, H100) has "
        "probe bbbb: expected one for all of a type of GPU"
    )
    assert probing.workers[-1].state == "loading"  # it gets no job


def test_a_worker_that_is_started_again_is_compared_too(probing):
    first = probing.have_load(0, "aaaa")
    probing.workers.remove(first)
    probing.gone.append(first)
    with pytest.raises(UsageError, match=r"edit-0 .* probe aaaa, edit-0 .* probe bbbb"):
        probing.have_load(0, "bbbb")


def test_types_of_gpu_may_have_probes_of_their_own_and_a_line_says_so(probing):
    for number, (probe, gpu) in enumerate((("aaaa", "H100"), ("bbbb", "H200"), ("bbbb", "H200"))):
        probing.have_load(number, probe, gpu)
    (note,) = probing.watcher.notes
    assert note.startswith("warning: workers compute otherwise: edit-0 (GPU 0, H100)")
    assert probing.checked == ["aaaa", "bbbb"]


def test_workers_without_a_probe_are_compared_with_nothing(probing):
    for number in range(2):
        probing.have_load(number, None)
    probing.have_load(2, "aaaa")
    assert probing.checked == ["aaaa"]
    assert probing.watcher.notes == []
