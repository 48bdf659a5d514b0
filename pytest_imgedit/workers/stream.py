"""The jobs of a served model: many at a time, in one event loop."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from pytest_imgedit.core import errors, messages, strict_json
from pytest_imgedit.core.breaker import Breaker
from pytest_imgedit.core.requests import Answer, EditRequest, Question
from pytest_imgedit.core.text import one_line
from pytest_imgedit.workers.answer_checks import checked_answer
from pytest_imgedit.workers.editing import STOP_GRACE, clock, finished_edit

#: How the worker makes a reply about a failure, and sends one on its job and the seconds that it
#: took.
Describe = Callable[[BaseException], tuple[str, str]]
Reply = Callable[[messages.Job, messages.Reply, float], None]


def has_coroutines(model: Any) -> bool:
    """Tell whether the editor or judge of a served kind does jobs in coroutines, which wait for a
    server and not for this process: `ask(question)` or `edit(request)`, whose images are encoded.
    """
    method = getattr(model, "ask", None) or getattr(model, "edit", None)
    return inspect.iscoroutinefunction(method)


class Stream:
    """Does jobs of a model with coroutines `ask` or `edit`, up to its `concurrency` requests at a
    time; replies come in the order in which jobs end.

    After `MOST_ALIKE` requests in a row that have failed alike for good, no further one is sent:
    all that follow end as the last one did. A success of a request that was out before the row
    began does not end it.
    """

    def __init__(self, model: Any, may_be_blank: bool, describe: Describe, reply: Reply) -> None:
        self.model = model
        self.may_be_blank = may_be_blank
        self.describe = describe
        self.reply = reply
        self._stopping = False
        self._breaker = Breaker("requests")
        self._free = asyncio.Semaphore(model.concurrency)
        self._jobs: set[asyncio.Task[None]] = set()
        self._busy_since = 0.0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def put(self, job: messages.Job) -> None:
        """Begin a job as soon as fewer than `concurrency` requests are out; called by another
        thread.
        """
        self._loop.call_soon_threadsafe(self._begin, job)

    def stop(self) -> None:
        """Send no further request, and leave those that are out `STOP_GRACE` seconds; called by
        another thread.
        """
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.call_later, STOP_GRACE, self._cancel)

    def _cancel(self) -> None:
        for task in self._jobs:
            task.cancel()

    def _begin(self, job: messages.Job) -> None:
        if not self._jobs:
            self._busy_since = clock()
        task = self._loop.create_task(self._do(job))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _do(self, job: messages.Job) -> None:
        """Do a job and send the reply, with the seconds since the last reply or since there was
        nothing to do.
        """
        reply: messages.Reply
        try:
            if job["op"] == "edit":
                edits = await asyncio.gather(*map(self._edit, job["edits"]))
                reply = {"op": "edited", "edits": edits, "batch_size": 1}
            else:
                answers = await asyncio.gather(*map(self._answer, job["questions"]))
                reply = {"op": "judged", "answers": list(map(vars, answers)), "batch_size": 1}
        except (_Dropped, asyncio.CancelledError):
            reply = {"op": "dropped"}
        except Exception as error:
            kind, message = self.describe(error)
            reply = {"op": "error", "kind": kind, "message": message}
        now = clock()
        seconds = now - self._busy_since
        self._busy_since = now
        self.reply(job, reply, seconds)

    async def _answer(self, fields: strict_json.JsonObject) -> Answer:
        """Return the checked answer to a question; one with an image that does not decode is
        answered by its own error.
        """
        question = Question.encoded(fields)
        async with self._free:
            self._check()
            if self._breaker.has_tripped:
                return checked_answer(Answer(error=self._breaker.message, final=True), 1)
            rows = self._breaker.rows
            try:
                answer = checked_answer(await self.model.ask(question), 1)
            except errors.ImageError as error:
                answer = checked_answer(Answer(error=one_line(error)), 1)
            self._breaker.answered(answer, rows)
            return answer

    async def _edit(
        self, fields: strict_json.JsonObject
    ) -> messages.FinishedEdit | messages.FailedEdit:
        """Return the message about an edit, which is checked and encoded in a thread."""
        request: EditRequest[bytes] = EditRequest(**fields)
        try:
            image, seconds = await self._requested(request)
            return await asyncio.to_thread(self._finished, image, request, seconds)
        except _Dropped:
            raise
        except Exception as error:
            kind, message = self.describe(error)
            return {"op": "failed", "kind": kind, "message": message}

    async def _requested(self, request: EditRequest[bytes]) -> tuple[Any, float]:
        """Return the image that the server makes of a request, and the seconds that it took."""
        async with self._free:
            self._check()
            if self._breaker.has_tripped:
                raise errors.FailsForGood(self._breaker.message)
            rows = self._breaker.rows
            started = clock()
            try:
                image = await self.model.edit(request)
            except errors.FailsForGood as error:
                self._breaker.failed("final", str(error))
                raise
            except Exception:
                self._breaker.worked(rows)
                raise
            self._breaker.worked(rows)
            return image, clock() - started

    def _finished(
        self, image: Any, request: EditRequest[bytes], seconds: float
    ) -> messages.FinishedEdit:
        return finished_edit(image, EditRequest.decoded(vars(request)), seconds, self.may_be_blank)

    def _check(self) -> None:
        """Raise `_Dropped` if the run is to stop: no further request is sent."""
        if self._stopping:
            raise _Dropped


class _Dropped(Exception):
    """A job that had not begun when the run began to stop."""
