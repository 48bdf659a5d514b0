"""A server with an API at one base URL that answers each request by a function, and knows nothing
of other paths.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from serving import multipart, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GRADES = "instruction: 7\npreservation: 7\nrealism: 7"
NOT_FOUND = (404, {"detail": "Not Found"})
PAGE = b"<!doctype html><html><head><title>Chat</title></head><body>Hello</body></html>"


def completion(content: str = GRADES, tokens: tuple[int, int] = (100, 10)) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {
        "model": "m-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]},
    }


def error(status: int, message: str, **fields: Any) -> tuple[int, Any]:
    """An error as OpenAI words it."""
    return status, {"error": {"message": message, "type": "invalid_request_error", **fields}}


class _Handler(BaseHTTPRequestHandler):
    server: APIServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.server.got.append(self.path)
        if self.path != f"{self.server.base}/models":
            self._send(self.server.elsewhere)
            return
        self._send(self.server.listing)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        base, path = self.server.base, self.path.removeprefix(self.server.base)
        if not self.path.startswith(base) or path not in (
            "/chat/completions",
            "/images/edits",
            "/score",
        ):
            self._send(self.server.elsewhere)
            return
        if path == "/images/edits":
            fields: Any = multipart(self.headers["Content-Type"], data)
        else:
            fields = json.loads(data)
        self.server.asked.append(fields)
        self._send(self.server.answer(fields))

    def _send(self, answer: tuple[int, Any]) -> None:
        status, body = answer
        is_json = not isinstance(body, bytes)
        data = json.dumps(body).encode() if is_json else body
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if is_json else "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After-Ms", "1")
        self.end_headers()
        self.wfile.write(data)


class APIServer(ThreadingHTTPServer):
    """Has an API at `base`, whose requests with a body it answers by `answer(fields)`, a status and
    a body, and keeps as `asked`.

    `models` are those that it lists, `None` for a server without a list, unless it wants a key
    for that (`key_wanted`). All other paths get the
    answer `elsewhere`; `got` holds the paths of GET.
    """

    daemon_threads = True

    def __init__(self, answer: Callable[[Any], tuple[int, Any]], base: str = "/v1") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.base = answer, base
        self.models: tuple[str, ...] | None = ("m",)
        self.key_wanted = False
        self.elsewhere: tuple[int, Any] = NOT_FOUND
        self.asked: list[Any] = []
        self.got: list[str] = []

    @property
    def listing(self) -> tuple[int, Any]:
        """The answer to GET of `models`."""
        if self.key_wanted:
            return error(401, "no key")
        if self.models is None:
            return NOT_FOUND
        models = [{"id": name, "object": "model"} for name in self.models]
        return 200, {"object": "list", "data": models}

    @property
    def host(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.host}{self.base}"


def graded(fields: Any) -> tuple[int, Any]:
    return 200, completion()


@contextmanager
def api_server(
    answer: Callable[[Any], tuple[int, Any]] = graded, base: str = "/v1"
) -> Iterator[APIServer]:
    with APIServer(answer, base) as server:
        serve(server)
        yield server
        server.shutdown()
