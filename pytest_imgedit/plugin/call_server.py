"""Calls of `edit_workers` and `reward_model` from pytest-xdist's workers, which the controller
answers.

They pass through a Unix socket in the exchange folder, after both sides have proven that they know
the exchange's token. What is sent is serialized by execnet: plain values and bytes, no code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

import execnet

from pytest_imgedit.core.errors import EditFailed

if TYPE_CHECKING:
    from pytest_imgedit.core.strict_json import JsonObject
    from pytest_imgedit.run.fixture_calls import EditCall, ScoreCall, SessionCalls


#: The most bytes of one call; a longer frame is not a call.
MAX_MESSAGE = 2**36
GONE = "the xdist controller, which owns the workers, is gone"


@contextmanager
def _short_address(folder: Path) -> Iterator[str]:
    """Yield a path to the folder's socket through /proc: the address of a socket has at most 107
    bytes, and the folder's own path may be longer.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/calls"
    finally:
        os.close(descriptor)


class CallServer:
    """Answers calls until it is closed, each in its own thread, on its own connection.

    Its socket is in `folder`, which is made for this user alone if it is not there. `answer`
    returns what answers the calls of a fixture. What it raises is sent to the caller.
    """

    def __init__(self, folder: Path, token: bytes, answer: Callable[[str], SessionCalls]) -> None:
        self._token = token
        self._answer = answer
        self._answering = threading.Lock()
        self._is_closed = False
        folder.mkdir(mode=0o700, exist_ok=True)
        self._open = ExitStack()
        address = self._open.enter_context(_short_address(folder))
        self._listener = self._open.enter_context(Listener(address, "AF_UNIX"))
        threading.Thread(target=self._accept_all, daemon=True).start()

    def _accept_all(self) -> None:
        while not self._is_closed:
            with suppress(OSError):  # such as a client that is gone already
                threading.Thread(
                    target=self._serve, args=(self._listener.accept(),), daemon=True
                ).start()

    def _serve(self, connection: Connection) -> None:
        """Answer the call of one connection, unless its client is silent, gone, or does not know
        the token.
        """
        with suppress(AuthenticationError, AssertionError, EOFError, OSError), connection:
            deliver_challenge(connection, self._token)
            answer_challenge(connection, self._token)
            connection.send_bytes(self._reply(connection.recv_bytes(MAX_MESSAGE)))

    def _reply(self, message: bytes) -> bytes:
        """Return the serialized answer to a message: the `values` of its calls, or else an `error`.

        The error is the text of an `EditFailed`; that of any other exception begins with its type.
        """
        try:
            call = execnet.loads(message)
            with self._answering:  # the first call creates the workers
                calls = self._answer(call["fixture"])
            perform = calls.edit if call["fixture"] == "edit_workers" else calls.score
            answer: bytes = execnet.dumps({"values": list(perform(call["calls"]))})
        except BaseException as error:  # also what would end this thread without a word
            text = str(error)
            if not isinstance(error, EditFailed):
                text = f"{type(error).__name__}: {error}"
            answer = execnet.dumps({"error": text.encode("utf-8", "replace").decode()})
        return answer

    def close(self) -> None:
        """Take no more calls."""
        self._is_closed = True
        self._open.close()


class RemoteCalls:
    """Sends calls to the controller; raises `EditFailed` if it returns an error, or is gone.

    Each call has its own connection, so that its answer cannot reach a call of another thread, or
    the call after an interrupted one.
    """

    def __init__(self, folder: Path, token: bytes) -> None:
        self._folder = folder
        self._token = token

    def edit(self, calls: Sequence[EditCall]) -> list[bytes]:
        return self._ask("edit_workers", calls)

    def score(self, calls: Sequence[ScoreCall]) -> list[JsonObject]:
        return self._ask("reward_model", calls)

    def _ask(self, fixture: str, calls: Sequence[Any]) -> list[Any]:
        """Return the values of some calls of a fixture, in their order.

        Raises `EditFailed` with the controller's error, or with `GONE` if the socket fails.
        """
        question = execnet.dumps({"fixture": fixture, "calls": list(calls)})
        try:
            with (
                _short_address(self._folder) as address,
                Client(address, "AF_UNIX", authkey=self._token) as connection,
            ):
                connection.send_bytes(question)
                reply = execnet.loads(connection.recv_bytes())
        except (EOFError, OSError):
            raise EditFailed(GONE) from None
        if "error" in reply:
            raise EditFailed(reply["error"])
        return list(reply["values"])
