"""A server that answers each request with what it was told to."""

from __future__ import annotations

import json
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from serving import serve

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers), b""))
        self._send(self.server.greeting)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), data))
        self._send(self.server.answers.popleft())

    def _send(self, answer: Any) -> None:
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        kind = "application/json"
        if isinstance(body, str):
            kind, data = "text/plain", body.encode()
        elif isinstance(body, bytes):
            kind, data = "image/png", body
        else:
            data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After-Ms", "1")
        self.end_headers()
        self.wfile.write(data)


class ScriptedServer(ThreadingHTTPServer):
    """Answers POST with the next of `answers`: a body with status 200, or a status and a body.

    A body is JSON, a text, or the bytes of an image. `seen` holds path, headers and data of all
    requests; `greeting` answers GET.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.greeting: Any = {"object": "list", "data": []}
        self.answers: deque[Any] = deque()
        self.seen: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def posted(self) -> list[tuple[str, dict[str, str], bytes]]:
        return [request for request in self.seen if request[2]]


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        serve(server)
        yield server
        server.shutdown()
