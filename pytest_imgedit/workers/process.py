"""What runs inside a worker process: load one editor or judge, then do one job after another."""

from __future__ import annotations

import importlib
import os
import queue
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_imgedit.editors.base import EditRequest, build
from pytest_imgedit.errors import ImageError, SetupError
from pytest_imgedit.images import decode, encode_png
from pytest_imgedit.judges.base import Answer, Question
from pytest_imgedit.registry import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Message = dict[str, Any]


def serve(channel: Any) -> None:
    """Handle messages from the controller for as long as the process lives.

    When the channel ends, the controller is gone: the process exits at once, in the middle of a job too.
    """
    os.dup2(2, 1)  # what is printed goes to the run's log, as errors do
    inbox: queue.Queue[Message] = queue.Queue()

    def receive(message: Message | None) -> None:
        if message is None:
            os._exit(0)
        inbox.put(message)

    channel.setcallback(receive, endmarker=None)
    worker = _Worker()
    while True:
        channel.send(worker.handle(inbox.get()))


class _Worker:
    def __init__(self) -> None:
        self.handlers: Mapping[str, Callable[[Message], Message]] = {
            "prepare": self.prepare,
            "load": self.load,
            "edit": self.edit,
            "judge": self.judge,
        }

    def handle(self, message: Message) -> Message:
        started = time.perf_counter()
        try:
            reply = self.handlers[message["op"]](message)
        except Exception as error:
            traceback.print_exc()
            reply = {"op": "error", **describe(error)}
        return {**reply, "job": message.get("job"), "seconds": time.perf_counter() - started}

    def prepare(self, message: Message) -> Message:
        """Import what the target needs, so that loading finds it imported; the GPU is not touched."""
        self.target = Target(**message["target"])
        self.params, self.device = message["params"], message["device"]
        importlib.import_module(self.target.module)
        return {"op": "prepared"}

    def load(self, message: Message) -> Message:
        self.model = build(self.target, self.device, self.params)
        return {"op": "loaded", "batch_size": int(getattr(self.model, "batch_size", 1))}

    def edit(self, message: Message) -> Message:
        reference = message["reference"]
        request = EditRequest(
            pair_id=message["pair"],
            category=message["category"],
            instruction=message["instruction"],
            source=decode(message["source"]),
            seed=message["seed"],
            reference=None if reference is None else decode(reference),
        )
        started = time.perf_counter()
        try:
            image = self.model.edit(request)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            free_memory()
            image = self.model.edit(request)
        seconds = time.perf_counter() - started
        return {"op": "edited", "image": encode_png(image), "edit_s": seconds}

    def judge(self, message: Message) -> Message:
        questions = [
            Question(
                pair_id=asked["pair"],
                category=asked["category"],
                instruction=asked["instruction"],
                images={name: decode(data) for name, data in asked["images"].items()},
                system=asked["system"],
                parts=tuple((kind, text) for kind, text in asked["parts"]),
            )
            for asked in message["questions"]
        ]
        answers = list(self.model.answer(questions))
        if len(answers) != len(questions):
            raise ValueError(f"the judge gave {len(answers)} answers to {len(questions)} questions")
        return {"op": "judged", "answers": [_plain(answer) for answer in answers]}


def _plain(answer: Answer) -> Message:
    return {
        "reply": answer.reply,
        "score": None if answer.score is None else float(answer.score),
        "aspects": {name: float(value) for name, value in answer.aspects.items()},
        "error": answer.error,
        "batch_size": answer.batch_size,
    }


def describe(error: Exception) -> dict[str, str]:
    """Name an error by kind and say it in one line."""
    text = next(iter(str(error).splitlines()), "")
    if isinstance(error, SetupError):
        return {"kind": "setup", "message": text}
    if isinstance(error, ImageError):
        return {"kind": "bad_image", "message": text}
    kind = "oom" if is_out_of_memory(error) else "exception"
    return {"kind": kind, "message": f"{type(error).__name__}: {text}"}


def is_out_of_memory(error: Exception) -> bool:
    """Tell GPU and host memory errors from others without importing torch."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def free_memory() -> None:
    """Give cached GPU memory back, where torch is in use."""
    with suppress(ImportError):
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()
