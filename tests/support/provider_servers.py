"""Stubs of servers of one's own, vLLM and SGLang, which answer and refuse as those do; those of
hosted ones are in hosted_providers.py.

The bodies are those that the providers document or that users quote in public issues.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from serving import multipart, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GOOD = "instruction: 8\npreservation: 7\nrealism: 9"
#: A status and a body.
Reply = tuple[int, Any]


@dataclass(frozen=True)
class Request:
    """A request; `body` is its JSON, or the fields of a form."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: dict[str, Any]


class Provider:
    """A server of these models with OpenAI's API below `base`; it wants a key if one is given.

    `asked` holds the bodies of all POST requests, refused ones too.
    """

    base = "/v1"

    def __init__(self, *models: str, key: str = "", reply: str = GOOD) -> None:
        self.models = models
        self.key = key
        self.reply = reply
        self.asked: list[dict[str, Any]] = []

    def answer(self, request: Request) -> Reply:
        """Answer or refuse a request."""
        if request.method == "POST":
            self.asked.append(request.body)
        if self.key and self.key_of(request) != self.key:
            return self.refuse_key(request)
        if (request.method, request.path) == ("GET", f"{self.base}/models"):
            return self.list_models()
        if (request.method, request.path) == ("POST", f"{self.base}/chat/completions"):
            return self.refusal(request.body) or self.complete(request.body)
        return self.refuse_path(request)

    def key_of(self, request: Request) -> str:
        """Return the key in a request; empty if there is none."""
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def list_models(self) -> Reply:
        data = [
            {"id": name, "object": "model", "created": 1, "owned_by": "x"} for name in self.models
        ]
        return 200, {"object": "list", "data": data}

    def refusal(self, body: dict[str, Any]) -> Reply | None:
        """Return why a question is refused; `None` if it is answered."""
        raise NotImplementedError

    def refuse_key(self, request: Request) -> Reply:
        raise NotImplementedError

    def refuse_path(self, request: Request) -> Reply:
        """FastAPI's reply, which most servers give."""
        return 404, {"detail": "Not Found"}

    def complete(self, body: dict[str, Any]) -> Reply:
        """Answer a question; the reply names the model that was asked for."""
        message = {"role": "assistant", "content": self.reply}
        return 200, {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }


class VLLM(Provider):
    """vLLM: its errors lie at the top of the body up to version 0.9, and below `error` since.

    One that is `text_only` refuses images; `context` is the most tokens of a reply that it can fit.
    """

    def __init__(
        self,
        *models: str,
        nested: bool = True,
        text_only: bool = False,
        context: int = 32768,
        key: str = "",
        reply: str = GOOD,
    ) -> None:
        super().__init__(*models, key=key, reply=reply)
        self.nested = nested
        self.text_only = text_only
        self.context = context

    def refusal(self, body: dict[str, Any]) -> Reply | None:
        if body["model"] not in self.models:
            return self.error(404, "NotFoundError", f"The model `{body['model']}` does not exist.")
        if self.text_only and images_in(body):
            return self.error(400, "BadRequestError", f"{body['model']} is not a multimodal model")
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        if wanted > self.context:
            return self.error(
                400,
                "BadRequestError",
                f"This model's maximum context length is {self.context} tokens. However, you "
                f"requested {wanted + 100} tokens (100 in the messages, {wanted} in the "
                "completion). Please reduce the length of the messages or completion.",
            )
        return None

    def error(self, status: int, kind: str, message: str) -> Reply:
        error = {"message": message, "type": kind, "param": None, "code": status}
        return status, {"error": error} if self.nested else {"object": "error", **error}

    def refuse_key(self, request: Request) -> Reply:
        return 401, {"error": "Unauthorized"}


class SGLang(Provider):
    """SGLang: it answers whatever model is asked for, and repeats that name."""

    def refusal(self, body: dict[str, Any]) -> Reply | None:
        if body["messages"]:
            return None
        return 400, {
            "object": "error",
            "message": "Messages cannot be empty.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        }

    def refuse_key(self, request: Request) -> Reply:
        return 401, {"error": "Unauthorized"}


def images_in(body: dict[str, Any]) -> int:
    """Return how many images a question shows."""
    contents = [message["content"] for message in body["messages"]]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(part["type"] == "image_url" for part in parts)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._reply({})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"]
        is_form = kind.startswith("multipart/")
        self._reply(multipart(kind, data) if is_form else json.loads(data))

    def _reply(self, body: dict[str, Any]) -> None:
        address = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=address.path,
            query=parse_qs(address.query),
            headers=self.headers,
            body=body,
        )
        status, answer = self.server.provider.answer(request)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: Provider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider


@contextmanager
def provided(provider: Provider) -> Iterator[str]:
    """Serve a provider at a free port; gives the URL of its host, without the provider's `base`."""
    with _Server(provider) as server:
        serve(server)
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
