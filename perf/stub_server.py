"""A server with OpenAI's chat completions and images/edits that gives the same answer to all, and
logs each question: the other end of `served_judge.py --stubs`.

    python perf/stub_server.py --port 8001 --log questions.txt

A body is hashed as it comes in and never held. The log has a line for each answer, written once the
answer is out: it survives a SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: A good reply of the default protocol.
REPLY = "instruction: 8\npreservation: 7\nrealism: 9"
#: Seconds between the end of a question and its answer.
DELAY = 0.02
#: How the instruction of a pair says which one it is.
MARK = re.compile(rb"pair-(\d{5})")
_MARK_BEGINS = b"pair-"
_MARK_LENGTH = 10
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Answered:
    """A question that was answered: when it began to come in and when the answer was out, in
    seconds of one clock for all stubs; the pair that it is about, if its text names one; the digest
    and the length of its body.
    """

    begun: float
    ended: float
    pair: str
    digest: str
    length: int


def read_logs(paths: Sequence[Path]) -> list[Answered]:
    """Return the answered questions of several stubs, in the order of their answers."""
    return sorted(
        (answer for path in paths for answer in _read_log(path)), key=lambda answer: answer.ended
    )


def _read_log(path: Path) -> Iterator[Answered]:
    for line in path.read_text("ascii").splitlines():
        begun, ended, pair, digest, length = line.split()
        yield Answered(float(begun), float(ended), pair, digest, int(length))


def most_in_flight(answers: Sequence[Answered]) -> int:
    """Return how many questions were at most in the hands of all stubs at a time."""
    changes = [(answer.begun, 1) for answer in answers]
    changes += [(answer.ended, -1) for answer in answers]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


class Stub(asyncio.Protocol):
    """One connection, which is kept: a request is answered before the next one is read."""

    def __init__(self, log: int, image: str) -> None:
        self.log = log
        self.image = image
        self.transport: asyncio.Transport | None = None
        self.head = b""
        self.missing = 0
        self.begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def begin(self) -> None:
        """Get ready for the next request."""
        self.path = ""
        self.started = 0.0
        self.length = 0
        self.digest = hashlib.sha256()
        self.tail = b""
        self.pair = "-"

    def data_received(self, data: bytes) -> None:
        if self.path:
            self.take(data)
            return
        self.head += data
        head, end, body = self.head.partition(b"\r\n\r\n")
        if end:
            self.head = b""
            self.open(head)
            self.take(body)

    def open(self, head: bytes) -> None:
        """Begin a request by its head; the client is told to go on if it waits for that."""
        self.started = time.monotonic()
        self.path = head.split(b" ", 2)[1].decode("ascii")
        length = _LENGTH.search(head)
        self.length = self.missing = int(length[1]) if length else 0
        if b"100-continue" in head and self.transport:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def take(self, data: bytes) -> None:
        """Take a part of the body; the answer follows its end after the delay."""
        self.missing -= len(data)
        self.digest.update(data)
        for part in (data, self.tail + data[:_MARK_LENGTH]):
            mark = MARK.search(part) if _MARK_BEGINS in part else None  # no search where none is
            if mark:
                self.pair = mark[1].decode("ascii")
        self.tail = data[-_MARK_LENGTH:]
        if self.missing <= 0:
            delay = DELAY if self.length else 0
            asyncio.get_running_loop().call_later(delay, self.answer)

    def answer(self) -> None:
        """Send the answer, log the question, and get ready for the next one."""
        if self.transport is None:
            return
        status, body = self.respond()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        if self.length:
            line = f"{self.started:.6f} {time.monotonic():.6f} {self.pair} "
            line += f"{self.digest.hexdigest()} {self.length}\n"
            os.write(self.log, line.encode("ascii"))
        self.begin()

    def respond(self) -> tuple[str, bytes]:
        """Return status and body of the answer to the request."""
        answers: dict[str, Any] = {
            "models": {"object": "list", "data": [{"id": "m", "object": "model"}]},
            "chat/completions": completion(),
        }
        path = self.path.removeprefix("/v1/")
        if path == "images/edits":
            return "200 OK", f'{{"created": 0, "data": [{{"b64_json": "{self.image}"}}]}}'.encode()
        if path in answers:
            return "200 OK", json.dumps(answers[path]).encode()
        return "404 Not Found", b'{"detail": "Not Found"}'


def completion() -> dict[str, Any]:
    """Return the chat completion that answers every question."""
    message = {"role": "assistant", "content": REPLY}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


async def serve(port: int, log: int, image: str) -> None:
    """Serve until the standard input ends, as it does with the process that started this one."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(0, over.set)
    await loop.create_server(lambda: Stub(log, image), "127.0.0.1", port)
    await over.wait()


def main() -> None:
    described = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    described.add_argument("--port", type=int, required=True)
    described.add_argument(
        "--log", type=Path, required=True, help="a line is added for each answer"
    )
    described.add_argument("--picture", type=Path, help="the PNG that answers images/edits")
    options = described.parse_args()
    log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    picture = options.picture.read_bytes() if options.picture else b""
    asyncio.run(serve(options.port, log, base64.b64encode(picture).decode("ascii")))


if __name__ == "__main__":
    main()
