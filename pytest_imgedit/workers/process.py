"""What runs inside a worker process: load one editor or judge, then do one job after another."""

from __future__ import annotations

import inspect
import os
import queue
import sys
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TextIO

from pytest_imgedit.core import protocol
from pytest_imgedit.core.errors import ImageError, SetupError, is_out_of_memory
from pytest_imgedit.core.redaction import Redactor, server_key
from pytest_imgedit.core.requests import Answer, EditRequest, Question
from pytest_imgedit.core.sanitize import one_line, shorten
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.targets import Target
from pytest_imgedit.core.versions import versions_of
from pytest_imgedit.kinds.checkpoint_files import find_checkpoint, require_file
from pytest_imgedit.kinds.source import loaded_code, require_code
from pytest_imgedit.workers.editing import Dropped, EditCalls, Output, free_memory
from pytest_imgedit.workers.messages import (
    checked_answer,
    clock,
    describe,
    finished_edit,
)
from pytest_imgedit.workers.usage import CpuShare, PeakMemory, threads_in

Read = list[Future[Any]]

#: The most threads that read images.
READERS = 8
#: Seconds that a stopping run leaves the job that is being done. A denoising step may be begun
#: until then.
STOP_GRACE = 10.0
#: Seconds between messages about the step that a job is at.
STEP_INTERVAL = 0.5


def serve(channel: Any) -> None:
    """Handle messages from the controller for as long as the process lives.

    When the channel ends, the controller is gone: the process exits at once, in the middle of a job
    too.
    """
    os.dup2(2, 1)  # what is printed goes to the run's log, as errors do
    inbox: queue.Queue[tuple[protocol.ToWorker, Read]] = queue.Queue()

    def receive(message: protocol.ToWorker | None) -> None:
        if message is None:
            os._exit(0)
        if message["op"] == "prepare":
            hide(message["unused"])
        if message["op"] == "drop":
            worker.stop()
        else:
            inbox.put((message, worker.read_ahead(message)))

    worker = JobLoop(channel.send, sys.stderr)
    channel.setcallback(receive, endmarker=None)
    while True:
        worker.handle(*inbox.get())


def hide(packages: Iterable[str]) -> None:
    """Have packages look as if they were not installed, for as long as the process lives.

    diffusers and transformers import optional packages wherever they find them: seconds of every
    start.
    """
    for name in packages:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


class JobLoop:
    """Does jobs in order, one at a time, while threads read the images of the next one and finish
    the one before.

    So the GPU waits neither for images to be decoded or prepared, nor for edits to be checked and
    encoded. Replies go to `send`, tracebacks to `log`.
    """

    def __init__(self, send: Callable[[protocol.FromWorker], None], log: TextIO) -> None:
        self.send, self.log = send, log
        self.preprocess: Callable[[Question], Any] | None = None
        self.dropping_since: float | None = (
            None  # jobs that have not begun are not to be done any more
        )
        self.base: tuple[Target, dict[str, Any]] | None = (
            None  # what is loaded, apart from adapters
        )
        self.model: Any = None
        self.edits: EditCalls | None = None  # how an editor is called; a judge has none
        self._memory = PeakMemory()
        self._cpu: CpuShare | None = None  # of a worker on the CPU that has loaded
        self._modules = 0  # as many were imported when the controller was told last
        self._told_step = 0.0
        self.fits = sys.maxsize  # the most questions that memory was enough for
        self._readers = ThreadPoolExecutor(min(READERS, max(1, (os.cpu_count() or 1) // 2)))
        self._finisher = ThreadPoolExecutor(1)  # one, so that replies keep the order of their jobs
        self.redactor = Redactor(os.environ)

    def close(self) -> None:
        """End its threads once they are done with what they do."""
        self._readers.shutdown(wait=False)
        self._finisher.shutdown(wait=False)

    def stop(self) -> None:
        """Begin no more jobs, and leave the one that is being done `STOP_GRACE` seconds; called by
        another thread.
        """
        self.dropping_since = clock()

    def read_ahead(self, message: protocol.ToWorker) -> Read:
        """Start to read the images of a job that waits."""
        if message["op"] == "edit":
            return [self._readers.submit(EditRequest.decoded, edit) for edit in message["edits"]]
        asked = message["questions"] if message["op"] == "judge" else ()
        return [self._readers.submit(self._read_question, question) for question in asked]

    def handle(self, message: protocol.ToWorker, read: Read) -> None:
        """Do a job up to where the GPU is free again; its reply is finished and sent by another
        thread.
        """
        started = clock()
        try:
            finish = self._begin(message, read)
        except Dropped:

            def finish() -> protocol.Reply:
                return {"op": "dropped"}

        except (
            BaseException
        ) as error:  # whatever an editor raises, SystemExit too, is the error of this job alone
            failed = self._failed(error)

            def finish() -> protocol.Reply:
                return failed

        self._finisher.submit(self._finish, finish, clock() - started)

    def _begin(self, message: protocol.ToWorker, read: Read) -> Callable[[], protocol.Reply]:
        """Do what needs the GPU; return what finishes the reply."""
        if message["op"] == "prepare":
            self.prepare(message)
            return lambda: {"op": "prepared"}
        if message["op"] == "load":
            loaded = self.load()
            return lambda: loaded
        if self.dropping_since is not None:
            return lambda: {"op": "dropped"}
        if message["op"] == "edit":
            return self.edit(read)
        judged = self.judge(read)
        return lambda: judged

    def _finish(self, finish: Callable[[], protocol.Reply], seconds: float) -> None:
        try:
            reply = finish()
            if (
                self.base is not None and len(sys.modules) != self._modules
            ):  # a job may import what no load did
                self._modules = len(sys.modules)
                reply["code"] = self._first_party()
        except BaseException as error:
            reply = self._failed(error)
        reply["seconds"], reply["memory"] = seconds, self._memory.look()
        reply["cpu_share"] = None if self._cpu is None else self._cpu.look()
        try:
            self.send(reply)
        except Exception as error:  # what an editor or judge returned cannot be sent
            self.send(
                {
                    "op": "error",
                    "seconds": 0.0,
                    "kind": "exception",
                    "message": type(error).__name__,
                }
            )

    def _failed(self, error: BaseException) -> protocol.Failed:
        kind, message = self._describe(error)
        return {"op": "error", "kind": kind, "message": message}

    def _describe(self, error: BaseException) -> tuple[str, str]:
        """Log an error; return its kind, and one line that holds no secrets."""
        with suppress(
            BaseException
        ):  # the disk with the log may be full, stderr closed, the error unprintable
            traceback.print_exception(error, file=self.log)
        kind, text = describe(error)
        return kind, shorten(self.redactor.text(text))

    def prepare(self, message: protocol.Prepare) -> None:
        """Import what the target needs, and do what its class has in `warm_up`, which may use a
        little of the GPU.
        """
        self.target = Target(**message["target"])
        self.params, self.device = message["params"], message["device"]
        self.is_served, self.may_be_blank = message["is_served"], message["may_be_blank"]
        self.libraries = message["libraries"]
        self.asked_batch = message.get("batch_size")  # of an editor only
        self.pads_batches = message.get("pads_batches", False)
        self.redactor = Redactor(os.environ, self.params, server_key(self.params))
        if checkpoint := message.get("checkpoint"):  # the run was started on another host
            self.target = replace(self.target, argument=find_checkpoint(**checkpoint))
        if code := message.get("code"):
            require_code(code)
        for path, sha256 in message.get("files", {}).items():
            require_file(Path(path), sha256)
        warm_up = getattr(self.target.load(), "warm_up", None)
        if callable(warm_up):
            arguments = () if self.target.argument is None else (self.target.argument,)
            warm_up(*arguments, device=self.device, **self.params)

    def load(self) -> protocol.Loaded:
        """Build the model and have it prove itself; one that differs by its LoRA adapters alone
        keeps its base.
        """
        loras = self.params.get("loras", ())
        base = (
            self.target,
            {name: value for name, value in self.params.items() if name != "loras"},
        )
        if self.base == base and hasattr(self.model, "take_loras"):
            self.model.take_loras(loras)
        else:
            self._build()
        self.base = base
        self_check = getattr(self.model, "self_check", None)
        if callable(self_check):
            self_check()
        if self.asked_batch is not None:
            self.edits = EditCalls(self.model, self.asked_batch, self.pads_batches)
        if hasattr(self.model, "on_step"):
            self.model.on_step = self._tell_step
        if self.device == "cpu" and not self.is_served:
            self._cpu = CpuShare()
        return {
            "op": "loaded",
            "batch_size": self._batch_size(),
            "environment": self._environment(),
            "code": self._first_party(),
        }

    def _tell_step(self, step: int, steps: int) -> None:
        """Tell the controller how far a job is, now and then; raise `Dropped` if there is no more
        time for it.
        """
        if self.dropping_since is not None and clock() - self.dropping_since > STOP_GRACE:
            raise Dropped
        if clock() - self._told_step >= STEP_INTERVAL:
            self._told_step = clock()
            self.send({"op": "step", "step": step, "steps": steps})

    def _build(self) -> None:
        self.model = self.target.build(self.device, self.params)
        # A judge that prepares questions in a thread is given what came of it, if its `answer`
        # takes that.
        self.preprocess = getattr(self.model, "preprocess", None)
        if not (
            callable(self.preprocess)
            and "prepared" in inspect.signature(self.model.answer).parameters
        ):
            self.preprocess = None

    def _environment(self) -> JsonObject:
        """Describe where this worker computes: the fields of an `Environment`."""
        torch = sys.modules.get("torch")
        on_gpu = self.device != "cpu"
        device: Literal["cpu", "cuda", "server"] = "cuda" if on_gpu else "cpu"
        if self.is_served:
            device = "server"
        tells = on_gpu and torch is not None and torch.cuda.is_available()
        processor, compiled = (
            getattr(self.model, name, None) for name in ("processor_name", "compiled")
        )
        return {
            "device": device,
            "gpu": torch.cuda.get_device_name(0) if tells and torch is not None else None,
            "versions": versions_of(self.libraries),
            # A class of the user's own may mean something else by these names.
            "processor": processor if isinstance(processor, str) else None,
            "compiled": compiled if isinstance(compiled, bool) else None,
            "threads": threads_in(os.environ) if device == "cpu" else None,
        }

    def _first_party(self) -> dict[str, str]:
        """Digests of the first-party modules that are imported, for a class of the user's own."""
        if self.target.is_own:
            return loaded_code()
        return {}

    def _batch_size(self) -> int:
        """The most edits or questions of one call; raises `SetupError` if the judge names no
        count.
        """
        if self.edits is not None:
            return self.edits.batch_size
        wanted = getattr(self.model, "batch_size", 1)
        if not isinstance(wanted, int) or wanted < 1:
            raise SetupError(
                f"{type(self.model).__name__}.batch_size is {wanted!r}, expected a count of at "
                "least 1"
            )
        return min(wanted, self.fits)

    def edit(self, read: Read) -> Callable[[], protocol.Edited]:
        """Edit a batch; images are checked and encoded when the reply is finished.

        A request whose images do not decode is answered by its own error, without the editor.
        """
        assert self.edits is not None, "an editor was asked, and not a judge"
        requests: dict[int, EditRequest] = {}
        outputs: dict[int, Output] = {}
        for place, request in enumerate(read):
            try:
                requests[place] = request.result()
            except ImageError as error:
                outputs[place] = Output(error)
        outputs.update(zip(requests, self.edits.edit(list(requests.values())), strict=True))
        batch_size = self._batch_size()

        def finish() -> protocol.Edited:
            edits = [
                self._finished(outputs[place], requests.get(place)) for place in sorted(outputs)
            ]
            return {"op": "edited", "edits": edits, "batch_size": batch_size}

        return finish

    def _finished(
        self, output: Output, request: EditRequest | None
    ) -> protocol.FinishedEdit | protocol.FailedEdit:
        error = output.value
        if request is not None and not isinstance(error, BaseException):
            try:
                return finished_edit(
                    error, request.source, output.seconds, self.may_be_blank, output.batch_size
                )
            except Exception as problem:
                error = problem
        kind, message = self._describe(error)
        return {"op": "failed", "kind": kind, "message": message}

    def judge(self, read: Read) -> protocol.Judged:
        """Ask the judge; a question whose images do not decode is answered by its own error,
        without the judge.
        """
        answers: dict[int, Answer] = {}
        questions: dict[int, tuple[Question, Any]] = {}
        for place, question in enumerate(read):
            try:
                questions[place] = question.result()
            except ImageError as error:
                answers[place] = checked_answer(Answer(error=one_line(error)), batch_size=1)
        read.clear()  # prepared images are large
        answers.update(zip(questions, self._ask(list(questions.values())), strict=True))
        ordered = [vars(answers[place]) for place in sorted(answers)]
        return {"op": "judged", "answers": ordered, "batch_size": self._batch_size()}

    def _read_question(self, asked: JsonObject) -> tuple[Question, Any]:
        """Decode a question's images; prepare it for a judge that has `preprocess`."""
        question = Question.decoded(asked)
        return question, None if self.preprocess is None else self.preprocess(question)

    def _answer(self, batch: list[tuple[Question, Any]]) -> list[Answer]:
        questions, prepared = [question for question, _ in batch], [ready for _, ready in batch]
        if self.preprocess is not None:
            given = self.model.answer(questions, prepared=prepared)
        else:
            given = self.model.answer(questions)
        if not isinstance(given, list | tuple):
            raise TypeError(
                f"the judge returned {type(given).__name__}, expected a list of answers"
            )
        return list(given)

    def _ask(self, questions: list[tuple[Question, Any]]) -> list[Answer]:
        """Put questions to the judge; when memory runs out, in batches of half the size from then
        on, down to one.
        """
        answers: list[Answer] = []
        while len(answers) < len(questions):
            batch = questions[len(answers) :][: self.fits]
            given: Any = None
            try:
                given = self._answer(batch)
            except Exception as error:
                if len(batch) == 1 or not is_out_of_memory(error):
                    raise
            if given is None:
                self.fits = len(batch) // 2
                free_memory()
                continue
            if len(given) != len(batch):
                raise ValueError(f"the judge gave {len(given)} answers to {len(batch)} questions")
            answers += [checked_answer(answer, len(batch)) for answer in given]
        return answers
