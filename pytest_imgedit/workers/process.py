"""What runs inside a worker process: load one editor or judge, then do one job after another."""

import gc
import inspect
import os
import queue
import sys
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from pytest_imgedit.core import (
    errors,
    messages,
    redaction,
    strict_json,
    targets,
    versions,
)
from pytest_imgedit.core.requests import Answer, EditRequest, Question
from pytest_imgedit.core.text import one_line, shorten
from pytest_imgedit.kinds import checkpoint_files, user_code
from pytest_imgedit.workers.answer_checks import checked_answer
from pytest_imgedit.workers.editing import (
    STOP_GRACE,
    EditCalls,
    JobDropped,
    Output,
    clock,
    describe,
    finished_edit,
    free_memory,
)
from pytest_imgedit.workers.hardware import CpuShare, PeakMemory, threads_in
from pytest_imgedit.workers.stream import Stream, has_coroutines

Read = list[Future[Any]]

#: Seconds after which a thread that runs Python lets another one do so.
SWITCH_INTERVAL = 0.0005
#: The most threads that read images.
READERS = 8
#: Seconds between messages about the step that a job is at.
STEP_INTERVAL = 0.5


def serve(channel: Any) -> None:
    """Handle messages from the controller for as long as the process lives.

    When the channel ends, the controller is gone: the process exits at once, in the middle of a job
    too.
    """
    os.dup2(2, 1)  # what is printed goes to the run's log, as errors do
    # The thread that feeds a GPU waits no longer than this behind those that read images.
    sys.setswitchinterval(SWITCH_INTERVAL)
    inbox: queue.Queue[tuple[messages.ToWorker, Read]] = queue.Queue()

    def receive(message: messages.ToWorker | None) -> None:
        """Queue a message and start to read its images, in the thread that listens; `None` is the
        end of the channel.
        """
        if message is None:
            os._exit(0)
        if message["op"] == "prepare":
            hide(message["unused"])
        if message["op"] == "drop":
            loop.stop()
        else:
            inbox.put((message, loop.read_ahead(message)))

    loop = JobLoop(channel.send, sys.stderr)
    channel.setcallback(receive, endmarker=None)
    # Imported code and loaded models are kept for good, so garbage collection need not traverse
    # them, which takes a good part of a second each time.
    gc.disable()
    while True:
        message, read = inbox.get()
        loop.handle(message, read)
        if message["op"] == "prepare":
            gc.enable()
            gc.freeze()
        elif message["op"] == "load":
            gc.collect()
            gc.freeze()


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

    def __init__(self, send: Callable[[messages.FromWorker], None], log: TextIO) -> None:
        self.send = send
        self.log = log
        self.preprocess: Callable[[Question], Any] | None = None
        self.dropping_since: float | None = None  # from then on, no job is begun
        # What is loaded, without adapters.
        self.base: tuple[targets.Target, dict[str, Any]] | None = None
        self.model: Any = None
        self.edits: EditCalls | None = None  # how an editor is called; a judge has none
        self.stream: Stream | None = None  # what does the jobs of a served model
        self._memory = PeakMemory()
        self._cpu: CpuShare | None = None  # of a worker on the CPU that has loaded
        self._reported_modules = 0  # number of imported modules at the last report of their code
        self._reported_step_at = 0.0
        self.fits = sys.maxsize  # the most questions that memory was enough for
        self._readers = ThreadPoolExecutor(min(READERS, max(1, (os.cpu_count() or 1) // 2)))
        self._finisher = ThreadPoolExecutor(1)  # one, so that replies keep the order of their jobs
        self.redactor = redaction.Redactor(os.environ)

    def stop(self) -> None:
        """Begin no more jobs, and leave the current one `STOP_GRACE` seconds; called by another
        thread.
        """
        self.dropping_since = clock()
        if self.stream is not None:
            self.stream.stop()

    def read_ahead(self, message: messages.ToWorker) -> Read:
        """Start to read the images of a waiting job; return a future for each of its requests, none
        for other messages. A served model begins the job itself.
        """
        if self.stream is not None and (message["op"] == "edit" or message["op"] == "judge"):
            self.stream.put(message)
            return []
        if message["op"] == "edit":
            return [self._readers.submit(EditRequest.decoded, edit) for edit in message["edits"]]
        if message["op"] == "judge":
            return [
                self._readers.submit(self._read_question, question)
                for question in message["questions"]
            ]
        return []

    def handle(self, message: messages.ToWorker, read: Read) -> None:
        """Do what needs the GPU for a message; another thread finishes and sends the reply. Jobs of
        a served model are left to its stream.
        """
        if self.stream is not None and message["op"] in ("edit", "judge"):
            return
        started = clock()
        reply: messages.Reply | Callable[[], messages.Reply]
        try:
            reply = self._do(message, read)
        except JobDropped:
            reply = {"op": "dropped"}
        except BaseException as error:  # even a SystemExit of an editor is the error of this job
            reply = self._failed(error)
        self._finisher.submit(self._finish, reply, clock() - started, _number_of(message))

    def _reply_to(self, job: messages.Job, reply: messages.Reply, seconds: float) -> None:
        """Have the reply on a job of a served model sent."""
        self._finisher.submit(self._finish, reply, seconds, _number_of(job))

    def _do(
        self, message: messages.ToWorker, read: Read
    ) -> messages.Reply | Callable[[], messages.Reply]:
        """Do what needs the GPU; return the reply, or a function that makes it without the GPU.

        A job that comes after `stop` is dropped.
        """
        if message["op"] == "prepare":
            self.prepare(message)
            return {"op": "prepared"}
        if message["op"] == "load":
            return self.load()
        if self.dropping_since is not None:
            return {"op": "dropped"}
        if message["op"] == "edit":
            return self.edit(read)
        return self.judge(read)

    def _finish(
        self,
        reply: messages.Reply | Callable[[], messages.Reply],
        seconds: float,
        number: int,
    ) -> None:
        """Make and send the reply on the job of a number, with the time and memory that it took and
        the code of modules imported since the last one; if making it fails, the error is the reply.
        """
        try:
            if callable(reply):
                reply = reply()
            # A job may import what no load did.
            if self.base is not None and len(sys.modules) != self._reported_modules:
                self._reported_modules = len(sys.modules)
                reply["code"] = self._first_party()
        except BaseException as error:
            reply = self._failed(error)
        reply["number"] = number
        reply["seconds"] = seconds
        reply["memory"] = self._memory.look()
        reply["cpu_share"] = None if self._cpu is None else self._cpu.look()
        try:
            self.send(reply)
        except Exception as error:  # what an editor or judge returned cannot be sent
            self.send(
                {
                    "op": "error",
                    "number": number,
                    "seconds": 0.0,
                    "kind": "exception",
                    "message": type(error).__name__,
                }
            )

    def _failed(self, error: BaseException) -> messages.Failed:
        kind, message = self._describe(error)
        return {"op": "error", "kind": kind, "message": message}

    def _describe(self, error: BaseException) -> tuple[str, str]:
        """Log an error; return its kind, and one line about it that holds no secrets."""
        # The disk with the log may be full, stderr closed, the error unprintable.
        with suppress(BaseException):
            traceback.print_exception(error, file=self.log)
        kind, text = describe(error)
        return kind, shorten(text, mask=self.redactor.text)

    def prepare(self, message: messages.Prepare) -> None:
        """Import the target, and call `warm_up` of its class, which may use a little of the GPU.

        Raise an error if its checkpoint, code or files are not here as they are where the run
        started.
        """
        self.setup = message
        self.target = targets.Target(**message["target"])
        self.redactor = redaction.Redactor(
            os.environ, message["params"], redaction.server_key(message["params"])
        )
        checkpoint = message.get("checkpoint")
        if checkpoint:  # the run was started on another host
            folder = checkpoint_files.find_checkpoint(**checkpoint)
            self.target = replace(self.target, argument=folder)
        code = message.get("code")
        if code:
            user_code.require_code(code)
        for path, sha256 in message.get("files", {}).items():
            checkpoint_files.require_file(Path(path), sha256)
        warm_up = getattr(self.target.load(), "warm_up", None)
        if callable(warm_up):
            if self.target.argument is not None:
                warm_up = partial(warm_up, self.target.argument)
            warm_up(device=message["device"], **message["params"])

    def load(self) -> messages.Loaded:
        """Build the model, have it check itself, and return where it computes and in what batch
        size.

        If a loaded model differs in its LoRA adapters only, replace these alone.
        """
        params = self.setup["params"]
        device = self.setup["device"]
        base = (self.target, {name: params[name] for name in params if name != "loras"})
        if self.base == base and hasattr(self.model, "take_loras"):
            self.model.take_loras(params.get("loras", ()))
        else:
            self.model = self.target.build(device, params)
            self.preprocess = _preprocess_of(self.model)
        self.base = base
        self_check = getattr(self.model, "self_check", None)
        probe = self_check() if callable(self_check) else None
        if self.setup["is_served"] and has_coroutines(self.model):
            self.stream = Stream(
                self.model, self.setup["may_be_blank"], self._describe, self._reply_to
            )
        elif "batch_size" in self.setup:  # of an editor only
            self.edits = EditCalls(
                self.model, self.setup["batch_size"], self.setup.get("pads_batches", False)
            )
        if hasattr(self.model, "on_step"):
            self.model.on_step = self._report_step
        if hasattr(self.model, "on_note"):
            self.model.on_note = self._report_note
        if device == "cpu" and not self.setup["is_served"]:
            self._cpu = CpuShare()
        return {
            "op": "loaded",
            "batch_size": self._batch_size(),
            "at_once": 1 if self.stream is None else self.model.concurrency,
            "environment": self._environment(probe),
            "code": self._first_party(),
        }

    def _report_step(self, step: int, steps: int) -> None:
        """Tell the controller how far a job is, at most every `STEP_INTERVAL` seconds; raise
        `JobDropped` if the run began to stop more than `STOP_GRACE` seconds ago.
        """
        if self.dropping_since is not None and clock() - self.dropping_since > STOP_GRACE:
            raise JobDropped
        if clock() - self._reported_step_at >= STEP_INTERVAL:
            self._reported_step_at = clock()
            self.send({"op": "step", "step": step, "steps": steps})

    def _report_note(self, text: str) -> None:
        """Show the user a line about a server."""
        self._finisher.submit(self.send, {"op": "note", "text": text})

    def _environment(self, probe: Any) -> strict_json.JsonObject:
        """Return the fields of an `Environment`: where this worker computes, with its `probe`."""
        device = "cpu"
        gpu = None
        if self.setup["is_served"]:
            device = "server"
        elif self.setup["device"] != "cpu":
            device = "cuda"
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_available():
                gpu = torch.cuda.get_device_name(0)
        return {
            "device": device,
            "gpu": gpu,
            "versions": versions.versions_of(self.setup["libraries"]),
            "processor": _only(str, getattr(self.model, "processor_name", None)),
            "compiled": _only(bool, getattr(self.model, "compiled", None)),
            "threads": threads_in(os.environ) if device == "cpu" else None,
            "probe": _only(str, probe),
        }

    def _first_party(self) -> dict[str, str]:
        """Return the digests of the imported first-party modules; none for a class of this
        package.
        """
        return user_code.loaded_code() if self.target.is_custom else {}

    def _batch_size(self) -> int:
        """Return the most edits or questions of one call; raise `SetupError` if the judge's
        `batch_size` is not a positive integer.
        """
        if self.edits is not None:
            return self.edits.batch_size
        batch_size = getattr(self.model, "batch_size", 1)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise errors.SetupError(
                f"{type(self.model).__name__}.batch_size is {batch_size!r}, expected a count of at "
                "least 1"
            )
        return min(batch_size, self.fits)

    def edit(self, read: Read) -> Callable[[], messages.Edited]:
        """Edit a batch; return the function that then checks and encodes the images, and makes the
        reply.

        A request whose images do not decode is answered by its own error, without the editor.
        """
        assert self.edits is not None, "an editor was asked, and not a judge"
        requests: dict[int, EditRequest] = {}
        outputs: dict[int, Output] = {}
        for index, future in enumerate(read):
            try:
                requests[index] = future.result()
            except errors.ImageError as error:
                outputs[index] = Output(error)
        outputs.update(zip(requests, self.edits.edit(list(requests.values())), strict=True))
        batch_size = self._batch_size()

        def finish() -> messages.Edited:
            return {
                "op": "edited",
                "edits": [self._finished(outputs[n], requests.get(n)) for n in sorted(outputs)],
                "batch_size": batch_size,
            }

        return finish

    def _finished(
        self, output: Output, request: EditRequest | None
    ) -> messages.FinishedEdit | messages.FailedEdit:
        """Return the message about one edit: it failed if the editor raised an error, its request
        could not be read (`None`), or it is not a valid edit.
        """
        error = output.value
        if request is not None and not isinstance(error, BaseException):
            try:
                return finished_edit(
                    output.value,
                    request,
                    output.seconds,
                    self.setup["may_be_blank"],
                    output.batch_size,
                )
            except Exception as problem:
                error = problem
        kind, message = self._describe(error)
        return {"op": "failed", "kind": kind, "message": message}

    def judge(self, read: Read) -> messages.Judged:
        """Return the judge's answers in the order of the questions; one whose images do not decode
        is answered by its own error, without the judge.
        """
        answers: dict[int, Answer] = {}
        questions: dict[int, tuple[Question, Any]] = {}
        for index, future in enumerate(read):
            try:
                questions[index] = future.result()
            except errors.ImageError as error:
                answers[index] = checked_answer(Answer(error=one_line(error)), batch_size=1)
        read.clear()  # prepared images are large
        answers.update(zip(questions, self._ask(list(questions.values())), strict=True))
        return {
            "op": "judged",
            "answers": [vars(answers[index]) for index in sorted(answers)],
            "batch_size": self._batch_size(),
        }

    def _read_question(self, fields: strict_json.JsonObject) -> tuple[Question, Any]:
        question = Question.decoded(fields)
        return question, None if self.preprocess is None else self.preprocess(question)

    def _ask(self, questions: list[tuple[Question, Any]]) -> list[Answer]:
        """Return the judge's answers; if memory runs out, halve the batch size for good. Raise what
        the judge raises, also if memory runs out for a single question.
        """
        answers: list[Answer] = []
        while len(answers) < len(questions):
            batch = questions[len(answers) :][: self.fits]
            try:
                answers += self._answer(batch)
                continue
            except Exception as error:
                if len(batch) == 1 or not errors.is_out_of_memory(error):
                    raise
            # The failed call's tensors are gone with its exception, so not before here.
            self.fits = len(batch) // 2
            free_memory()
        return answers

    def _answer(self, batch: list[tuple[Question, Any]]) -> list[Answer]:
        """Return the checked answers of one call of the judge; raise an error if it does not return
        a list with an answer to each question.
        """
        questions = [question for question, _ in batch]
        if self.preprocess is None:
            answers = self.model.answer(questions)
        else:
            answers = self.model.answer(questions, prepared=[inputs for _, inputs in batch])
        if not isinstance(answers, list | tuple):
            raise TypeError(
                f"the judge returned {type(answers).__name__}, expected a list of answers"
            )
        if len(answers) != len(batch):
            raise ValueError(f"the judge gave {len(answers)} answers to {len(batch)} questions")
        return [checked_answer(answer, len(batch)) for answer in answers]


def _number_of(message: messages.ToWorker) -> int:
    """Return the number of a job; 0 for any other message."""
    if message["op"] == "edit" or message["op"] == "judge":
        return message.get("number", 0)
    return 0


def _only(kind: type, value: Any) -> Any:
    """Return a value if it is of a type, else `None`: a class of the user may mean something else
    by the name that was looked up.
    """
    return value if isinstance(value, kind) else None


def _preprocess_of(model: Any) -> Callable[..., Any] | None:
    """Return the method by which a judge prepares questions in a thread; `None` if it has none, if
    its `answer` does not take what is prepared, and for an editor.
    """
    preprocess: Callable[..., Any] | None = getattr(model, "preprocess", None)
    answer = getattr(model, "answer", None)
    if not callable(preprocess) or not callable(answer):
        return None
    return preprocess if "prepared" in inspect.signature(answer).parameters else None
