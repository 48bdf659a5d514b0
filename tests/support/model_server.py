"""A real server with OpenAI's API in front of the embedded judge and editor, which fails as it is
told to.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image
from serving import multipart, serve

from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.requests import EditRequest, Question
from pytest_imgedit.kinds.registry import make_model


class ModelServer(ThreadingHTTPServer):
    """Serves on a free port of this machine until it is closed.

    `faults` holds what happens to the next requests that ask for something: a status such as 429,
    `"hang"`, `"half"` (the connection ends in the middle), `"garbage"` (no JSON), `"echo"` (the
    key), `"refusal"`, `"empty"`, `"length"` (the reply lacks its last letter), `"url"`; `None`
    answers as it should. `reply` takes the place of the judge's, whose `replies` are kept. `key` is
    the key that it wants. `asked` holds the bodies of requests, `most` how many were there at a time.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.key: str | None = None
        self.reply: str | None = None
        self.faults: deque[Any] = deque()
        self.asked: list[Any] = []
        self.replies: dict[str, str | None] = {}
        self.now, self.most = 0, 0
        self.lock = threading.Lock()
        self._judge = make_model("judge", "scenes", {}).target.build(
            "cpu", {}
        )  # here, since threads cannot import torch at once
        editor = make_model("editor", "scenes", {"num_inference_steps": 4})
        self._editor = editor.target.build("cpu", editor.worker_params)
        serve(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def reset(self) -> None:
        self.key, self.reply, self.most = None, None, 0
        self.faults.clear()
        self.asked.clear()

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.reply or self.judged(body["messages"])}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }

    def judged(self, messages: list[dict[str, Any]]) -> str | None:
        key = json.dumps(messages)
        if key not in self.replies:
            self.replies[key] = self._judged(*messages)
        return self.replies[key]

    def _judged(self, system: dict[str, Any], user: dict[str, Any]) -> str | None:
        parts, images = [], {}
        for number, part in enumerate(user["content"]):
            if part["type"] == "text":
                parts.append(("text", part["text"]))
            else:
                data = base64.b64decode(part["image_url"]["url"].partition("base64,")[2])
                images[str(number)] = Image.open(io.BytesIO(data)).convert("RGB")
                parts.append(("image", str(number)))
        question = Question("served", "any", "", images, system["content"], tuple(parts))
        with self.lock:
            return self._judge.answer([question])[0].reply

    def edit(self, fields: dict[str, bytes]) -> dict[str, Any]:
        source = Image.open(io.BytesIO(fields["image"])).convert("RGB")
        request = EditRequest(
            "served", "any", fields["prompt"].decode(), source, int(fields.get("seed", b"0"))
        )
        with self.lock:
            edited = self._editor.edit(request)
        return {"created": 0, "data": [{"b64_json": base64.b64encode(encode_png(edited)).decode()}]}


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        if self._allowed():
            self._send(200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._allowed():
            return
        with self.server.lock:
            fault = self.server.faults.popleft() if self.server.faults else None
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        try:
            self._answer(data, fault)
        finally:
            with self.server.lock:
                self.server.now -= 1

    def _answer(self, data: bytes, fault: Any) -> None:
        if isinstance(fault, int):
            self._send(
                fault,
                {"error": {"message": f"told to answer {fault}", "type": "test"}},
                {"Retry-After": "0"},
            )
            return
        if fault == "echo":
            self._send(400, {"error": {"message": f"no such key: {self.headers['Authorization']}"}})
            return
        if fault == "hang":
            time.sleep(30)
            return
        if self.path.endswith("/images/edits"):
            fields = multipart(self.headers["Content-Type"], data)
            self.server.asked.append(
                {name: value for name, value in fields.items() if name != "image"}
            )
            answer = self.server.edit(fields)
            if fault == "url":
                answer["data"] = [{"url": "http://127.0.0.1/image.png"}]
        else:
            self.server.asked.append(json.loads(data))
            answer = self.server.chat(self.server.asked[-1])
            choice = answer["choices"][0]
            if fault == "refusal":
                choice["message"] |= {"content": None, "refusal": "I would rather not"}
            elif fault == "empty":
                choice["message"]["content"] = None
            elif fault == "length":
                choice["message"]["content"] = choice["message"]["content"][:-1]
                choice["finish_reason"] = "length"
        self._send(200, answer, broken=fault)

    def _allowed(self) -> bool:
        if (
            self.server.key is None
            or self.headers.get("Authorization") == f"Bearer {self.server.key}"
        ):
            return True
        self._send(401, {"error": {"message": "wrong key"}})
        return False

    def _send(
        self, status: int, body: Any, headers: dict[str, str] | None = None, broken: Any = None
    ) -> None:
        data = b"<html>not JSON" if broken == "garbage" else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if broken == "half" else data)
        if broken == "half":
            self.close_connection = True
