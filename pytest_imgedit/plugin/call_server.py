"""Calls of `edit_workers` and `reward_model` from pytest-xdist's workers, which the controller answers.

They pass through a Unix socket in the exchange folder, after both sides have proven that they know the exchange's
token. What is sent is serialized by execnet: plain values and bytes, no code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

import execnet

from pytest_imgedit.core.errors import EditFailed

if TYPE_CHECKING:
    from pytest_imgedit.core.strict_json import JsonObject
    from pytest_imgedit.engine.callable_models import Calls, EditCall, ScoreCall


class _Folder:
    """A folder that is open, with an address of the socket in it that is short enough: one has 107 bytes at most."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.address = f"/proc/self/fd/{self._descriptor}/calls"

    def close(self) -> None:
        os.close(self._descriptor)


class CallServer:
    """Answers calls in threads of its own, one for each xdist worker, until it is closed.

    `answer` returns what answers calls of a fixture by its name; what it raises is told to the worker.
    """

    def __init__(self, folder: Path, token: bytes, answer: Callable[[str], Calls]) -> None:
        self._answer, self._answering, self._is_closed = answer, threading.Lock(), False
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = _Folder(folder)
        self._listener = Listener(self._folder.address, "AF_UNIX", authkey=token)
        threading.Thread(target=self._accept_all, daemon=True).start()

    def _accept_all(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):  # whoever it was does not know the token
                continue
            except OSError:
                if self._is_closed:
                    return
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with suppress(EOFError, OSError), connection:  # the worker is gone
            while True:
                connection.send_bytes(execnet.dumps(self._reply(execnet.loads(connection.recv_bytes()))))

    def _reply(self, message: JsonObject) -> JsonObject:
        try:
            with self._answering:  # whoever is first has it made
                calls = self._answer(message["fixture"])
            if message["fixture"] == "edit_workers":
                return {"values": list(calls.edit(message["calls"]))}
            return {"values": list(calls.score(message["calls"]))}
        except Exception as error:
            return {"error": str(error) if isinstance(error, EditFailed) else f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """Take no more calls."""
        self._is_closed = True
        self._listener.close()
        self._folder.close()


class RemoteCalls:
    """Has the controller answer calls; raises `EditFailed` with what it says."""

    def __init__(self, folder: Path, token: bytes) -> None:
        opened = _Folder(folder)
        try:
            self._connection = Client(opened.address, "AF_UNIX", authkey=token)
        finally:
            opened.close()

    def edit(self, calls: Sequence[EditCall]) -> list[bytes]:
        return self._ask("edit_workers", calls)

    def score(self, calls: Sequence[ScoreCall]) -> list[JsonObject]:
        return self._ask("reward_model", calls)

    def _ask(self, fixture: str, calls: Sequence[Any]) -> list[Any]:
        try:
            self._connection.send_bytes(execnet.dumps({"fixture": fixture, "calls": list(calls)}))
            reply = execnet.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise EditFailed("the xdist controller, which owns the workers, is gone") from None
        if "error" in reply:
            raise EditFailed(reply["error"])
        values: list[Any] = reply["values"]
        return values
