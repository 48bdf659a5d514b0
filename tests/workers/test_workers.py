"""Keepers with real processes; pools, retries and what runs inside a worker without any."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types

import psutil
import pytest
from PIL import Image
from waiting import PATIENCE, wait_until

from pytest_imgedit.core.errors import ImageError, OutputError, SetupError, is_out_of_memory
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.workers import process, supervisor
from pytest_imgedit.workers.base import Slot, Worker
from pytest_imgedit.workers.editing import EditCalls, describe
from pytest_imgedit.workers.hardware import PeakMemory
from pytest_imgedit.workers.pool import MAX_IN_VAIN, Retries
from pytest_imgedit.workers.process import JobLoop

pytestmark = pytest.mark.everyday


def keep(tmp_path, script, patience="60"):
    log = tmp_path / "log"
    log.touch()
    command = [
        sys.executable,
        "-I",
        "-S",
        supervisor.__file__,
        str(log),
        patience,
        "/bin/sh",
        "-c",
        script,
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE), log


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def only_child(process) -> psutil.Process:
    """The worker, once it leads a process group of its own."""
    children = psutil.Process(process.pid).children
    wait_until(lambda: any(os.getpgid(child.pid) == child.pid for child in children()))
    return children()[0]


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_supervisor_ends_with_its_worker_and_passes_on_how(tmp_path, script, code):
    process, _ = keep(tmp_path, script)
    assert process.wait(timeout=PATIENCE) == code


def test_supervisor_passes_pipes_through_and_sends_errors_to_the_log(tmp_path):
    process, log = keep(tmp_path, "read line; echo got $line; echo oops >&2")
    output, _ = process.communicate(b"hello\n", timeout=PATIENCE)
    assert output == b"got hello\n"
    assert log.read_text() == "oops\n"


def test_command_that_does_not_exist_is_said_in_the_log(tmp_path):
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(log), "60", "/no/such/command"]
    assert subprocess.run(command, check=False).returncode == 127
    assert log.read_text() == "/no/such/command: No such file or directory\n"


def test_command_that_does_not_come_up_is_ended(tmp_path):
    process, log = keep(tmp_path, "sleep 600", patience="0.3")
    assert process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    assert log.read_text() == "no answer within 0.3 s (workers.load_timeout)\n"


def test_command_that_came_up_has_all_the_time_it_wants(tmp_path):
    process, log = keep(
        tmp_path, f"kill -USR1 ${supervisor.SUPERVISOR}; sleep 2.5; exit 7", patience="2"
    )
    assert process.wait(timeout=PATIENCE) == 7
    assert log.read_text() == ""


@pytest.mark.full
def test_supervisors_start_side_by_side_without_a_race(tmp_path):
    (tmp_path / "log").touch()
    command = [
        sys.executable,
        "-I",
        "-S",
        supervisor.__file__,
        str(tmp_path / "log"),
        "60",
        "/bin/true",
    ]
    for _ in range(10):
        assert {process.wait() for process in [subprocess.Popen(command) for _ in range(8)]} == {0}


def test_sigterm_ends_the_whole_group(tmp_path):
    process, _ = keep(tmp_path, "sleep 600 & echo started; wait")
    assert process.stdout.readline() == b"started\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 2
    process.terminate()
    assert process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    wait_until(lambda: all(map(is_gone, family)))


def test_worker_dies_with_its_supervisor(tmp_path):
    process, _ = keep(tmp_path, "exec sleep 600")
    worker = only_child(process)
    process.kill()
    process.wait()
    wait_until(lambda: is_gone(worker))


def test_ctrl_c_does_not_reach_a_worker(tmp_path):
    process, _ = keep(tmp_path, "exec sleep 600")
    worker = only_child(process)
    process.send_signal(signal.SIGINT)
    worker.send_signal(signal.SIGINT)
    process.terminate()
    assert (
        process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    )  # of which the worker died, and of nothing before


class Renewing:
    """Stands in for a pool: counts how often a process is renewed."""

    renewed = 0

    def renew(self, worker):
        self.renewed += 1


def test_lost_jobs_have_one_more_try():
    retries = Retries(Renewing())
    assert retries.allow(0, None, "worker_died")
    assert not retries.allow(1, None, "worker_died")
    assert retries.allow(0, None, "timeout")
    assert not retries.allow(0, None, "exception")


def test_processes_out_of_memory_are_renewed_until_that_does_not_help():
    pool = Renewing()
    retries = Retries(pool)
    fresh, worn = Worker(Slot("edit-0", ())), Worker(Slot("edit-1", ()), jobs_done=3)
    assert not retries.allow(0, fresh, "oom")
    assert retries.allow(1, worn, "oom")  # the second try came to another worn process
    assert pool.renewed == 1
    for _ in range(MAX_IN_VAIN):
        assert retries.allow(0, worn, "oom")
        assert not retries.allow(1, fresh, "oom")
    assert pool.renewed == 1 + MAX_IN_VAIN
    assert not retries.allow(0, worn, "oom")
    retries.helped()
    assert retries.allow(0, worn, "oom")


class Halving:
    """A judge with room for `room` questions."""

    def __init__(self, room, error):
        self.room, self.error, self.asked = room, error, []

    def answer(self, questions):
        self.asked.append(len(questions))
        if len(questions) > self.room:
            raise self.error
        return [Answer(question.pair_id) for question in questions]


class OutOfMemoryError(RuntimeError):
    """Named as torch names it."""


@pytest.mark.parametrize(
    "error", [MemoryError(), OutOfMemoryError(), RuntimeError("CUDA error: out of memory")]
)
@pytest.mark.full_for("error1", "error2")
def test_batch_is_halved_when_memory_runs_out_and_stays_small(error):
    worker = JobLoop(print, sys.stderr)
    worker.model = Halving(2, error)
    questions = [(Question(str(n), "physics", "x", {}), None) for n in range(9)]
    answers = worker._ask(questions)
    assert [answer.reply for answer in answers] == list("012345678")
    assert [answer.batch_size for answer in answers] == [2] * 8 + [1]
    assert worker.model.asked == [9, 4, 2, 2, 2, 2, 1]
    assert worker._ask(questions[:3])[0].batch_size == 2
    worker.model = Halving(0, error)
    with pytest.raises(type(error)):
        worker._ask(questions)


def test_errors_are_named_by_kind():
    assert describe(MemoryError())[0] == "oom"
    assert describe(ImageError("x")) == ("bad_image", "x")
    assert describe(OutputError("x"))[0] == "degenerate_output"
    assert describe(SetupError("x"))[0] == "setup"
    assert describe(ValueError("x\ny")) == ("exception", "ValueError: x")
    announced = RuntimeError("no import because of:\n\nno module 'scipy'\nmore")
    assert describe(announced)[1] == "RuntimeError: no import because of: no module 'scipy'"
    assert not is_out_of_memory(RuntimeError("no such luck"))


def test_secrets_of_the_parameters_leave_no_worker():
    sent = []
    worker = JobLoop(sent.append, sys.stderr)
    message = {
        "op": "prepare",
        "target": {"module": "json", "attribute": "loads", "argument": None},
    }
    told = {
        "params": {"api_key": "0123456789"},
        "device": "cpu",
        "libraries": [],
        "is_served": False,
        "may_be_blank": False,
    }
    worker.handle({**message, **told}, [])

    class Model:
        def edit(self, request):
            raise RuntimeError("bad key 0123456789")

    worker.edits = EditCalls(Model())
    source = encode_png(Image.effect_noise((16, 16), 50))
    asked = {
        "pair_id": "a",
        "category": "b",
        "instruction": "c",
        "source": source,
        "seed": 1,
        "reference": None,
        "further": (),
    }
    job = {"op": "edit", "edits": [asked]}
    worker.handle(job, worker.read_ahead(job))
    worker._finisher.shutdown()
    assert sent[-1]["edits"][0]["message"] == "RuntimeError: bad key ***"


@pytest.mark.parametrize(("grace", "op"), [(0.0, "dropped"), (1e9, "edited")])
def test_an_edit_that_takes_too_long_after_a_stop_is_dropped_at_its_next_step(
    monkeypatch, grace, op
):
    monkeypatch.setattr(process, "STOP_GRACE", grace)
    sent = []
    worker = JobLoop(sent.append, sys.stderr)
    worker.setup = {"may_be_blank": True}

    class Model:
        def edit(self, request):
            worker.stop()  # as the thread does that listens
            for step in range(1, 4):
                worker._report_step(step, 3)
            return request.source

        def edit_batch(self, requests):
            return [self.edit(request) for request in requests]

    source = encode_png(Image.effect_noise((16, 16), 50))
    asked = {
        "pair_id": "a",
        "category": "b",
        "instruction": "c",
        "source": source,
        "seed": 1,
        "reference": None,
        "further": (),
    }
    for count in (1, 2):
        worker.edits, worker.dropping_since = EditCalls(Model(), 2), None
        job = {"op": "edit", "edits": [asked] * count}
        worker.handle(job, worker.read_ahead(job))
    job = {"op": "edit", "edits": [asked]}  # one that has not begun
    worker.handle(job, worker.read_ahead(job))
    worker._finisher.shutdown()
    assert [reply["op"] for reply in sent if reply["op"] != "step"] == [op, op, "dropped"]


class Prepares:
    """A judge like `qwen-vl`; `Plain` overrides `answer` as judges of users do."""

    batch_size = 4

    def __init__(self, *, device):
        del device

    def preprocess(self, question):
        return question.pair_id * 2

    def answer(self, questions, prepared=None):
        return [Answer(text) for text in prepared]


class Plain(Prepares):
    def answer(self, questions):
        return [Answer(question.pair_id) for question in questions]


class EditorWithPreprocess:
    """An editor of a user, with a method of its own by that name."""

    def preprocess(self, image):
        return image

    def edit(self, request):
        return self.preprocess(request.source)


def test_an_editor_may_have_a_method_of_the_name_preprocess():
    assert process._preprocess_of(EditorWithPreprocess()) is None


@pytest.mark.parametrize(("name", "reply"), [("Prepares", "aa"), ("Plain", "a")])
def test_judge_is_given_what_it_prepared_if_its_answer_takes_that(name, reply):
    sent = []
    worker = JobLoop(sent.append, sys.stderr)
    target = {"module": __name__, "attribute": name, "argument": None}
    told = {
        "target": target,
        "params": {},
        "device": "cpu",
        "libraries": [],
        "unused": [],
        "is_served": False,
        "may_be_blank": True,
    }
    told["jobs"] = 1
    worker.handle({"op": "prepare", **told}, [])
    worker.handle({"op": "load"}, [])
    asked = {
        "pair_id": "a",
        "category": "b",
        "instruction": "c",
        "images": {},
        "system": "",
        "parts": [],
        "aspects": [],
        "preparation": {},
    }
    job = {"op": "judge", "questions": [asked]}
    worker.handle(job, worker.read_ahead(job))
    worker._finisher.shutdown()
    assert [message["op"] for message in sent] == ["prepared", "loaded", "judged"]
    assert sent[-1]["answers"][0]["reply"] == reply


def test_memory_is_told_while_another_thread_imports_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    used = PeakMemory().look()
    assert used["gpu"] is None
    assert used["host"] > 0


def test_a_job_whose_reply_cannot_be_finished_ends_in_an_error():
    sent = []
    worker = JobLoop(sent.append, sys.stderr)
    worker.base = (
        None,
        {},
    )  # without a target, so that the modules which a job imported cannot be told
    worker._finish(lambda: {"op": "prepared"}, 0.0, 0)
    worker._finisher.shutdown()
    assert [reply["op"] for reply in sent] == ["error"]
    assert sent[0]["message"].startswith("AttributeError: ")
