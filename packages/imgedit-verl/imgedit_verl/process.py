"""The editor of one rank in an interpreter of its own, which need not agree with the trainer's."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from PIL import Image

from imgedit_verl.config import Asked, ImageEditConfig, Outcome
from pytest_imgedit.training import decode, encode_png, one_line, receive, send

_SERVE = "from imgedit_verl.process import serve; serve()"
Message = dict[str, Any]
#: Variables of the trainer's environment that would lead another interpreter to the trainer's
#: packages.
_TRAINERS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")


class EditorProcess:
    """A child process that edits. It ends with this one, and what it prints goes to this one's
    stderr.

    The ranks' processes meet at `MASTER_ADDR` and `MASTER_PORT`, which the trainer has set for this
    worker group.
    """

    def __init__(self, config: ImageEditConfig) -> None:
        assert config.editor_python is not None
        environment = {name: value for name, value in os.environ.items() if name not in _TRAINERS}
        self._config = config
        self._process = subprocess.Popen(
            [config.editor_python, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def load(self) -> None:
        """Load the editor; raises `RuntimeError` with what went wrong."""
        self._ask({"op": "load", "config": asdict(self._config)})

    def edit(self, asked: Sequence[Asked], seed: int) -> list[Outcome]:
        """Edit, with one seed for all; raises `RuntimeError` if the process has ended, or ranks
        fell out of step.
        """
        rows = [_to_row(one) for one in asked]
        reply = self._ask({"op": "edit", "asked": rows, "seed": seed})
        return [(_decoded(image), problem) for image, problem in reply["outcomes"]]

    def _ask(self, message: Message) -> Message:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, message)
            reply: Message | None = receive(self._process.stdout)
        except OSError:
            reply = None
        if reply is None:
            status = self._process.wait()
            raise RuntimeError(
                f"the editor's process ({self._config.editor_python}) ended with exit status "
                f"{status}"
            )
        if reply["raised"]:
            raise RuntimeError(reply["raised"])
        return reply


def serve() -> None:
    """Be the child process: load, then edit, until the parent is gone."""
    inbox = sys.stdin.buffer
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no message
    requests: queue.Queue[Message] = queue.Queue()

    def listen() -> None:
        while (message := receive(inbox)) is not None:
            requests.put(message)
        os._exit(0)  # the parent is gone, in the middle of an edit too

    threading.Thread(target=listen, daemon=True).start()
    server = _Server()
    while True:
        message = requests.get()
        try:
            reply = server.answer(message)
        except Exception as error:
            reply = {"raised": f"{type(error).__name__}: {one_line(error)}"}
        send(outbox, reply)


class _Server:
    """Answers the messages of an `EditorProcess`."""

    def answer(self, message: Message) -> Message:
        if message["op"] == "load":
            from imgedit_verl.rank import RankEditor

            self.editor = RankEditor(ImageEditConfig(**message["config"]))
            self.editor.load()
            return {"raised": ""}
        asked = [_from_row(row) for row in message["asked"]]
        outcomes = self.editor.edit(asked, message["seed"])
        encoded = [(_encoded(image), problem) for image, problem in outcomes]
        return {"raised": "", "outcomes": encoded}


def _to_row(asked: Asked) -> Message:
    return {
        "source": _encoded(asked.source),
        "instruction": asked.instruction,
        "problem": asked.problem,
    }


def _from_row(row: Message) -> Asked:
    return Asked(_decoded(row["source"]), row["instruction"], row["problem"])


def _encoded(image: Image.Image | None) -> bytes | None:
    return None if image is None else encode_png(image)


def _decoded(data: bytes | None) -> Image.Image | None:
    return None if data is None else decode(data)
