"""Servers that answer the probe, or tell what an answer cost, in ways that no server should."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image
from serving import serve

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.kinds.server import Server, ServerParameters

COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "instruction: 5\npreservation: 5\nrealism: 5",
            },
            "finish_reason": "stop",
        }
    ],
}
MODELS = {
    "html": b"<!doctype html><title>Welcome</title>",
    "null": b"null",
    "list": b'["gpt"]',
    "number": b"7",
    "text": b'"models"',
    "empty": b"",
    "no-json": b"models: none",
    "deep": b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "binary": bytes(range(256)),
    "data-null": b'{"object": "list", "data": null}',
    "data-number": b'{"data": 5}',
    "huge-number": b'{"data": [' + b"9" * 5000 + b"]}",
}


class Handler(BaseHTTPRequestHandler):
    """Answers GET with `server.models`, byte by byte if it is to drip, and POST with a grading and
    `server.usage`.
    """

    def log_message(self, *_):
        """Print nothing."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", self.server.kind)
        drips = self.server.drips
        self.send_header("Content-Length", "100000" if drips else str(len(self.server.models)))
        self.end_headers()
        self.wfile.write(b"{" if drips else self.server.models)
        for _ in range(60 if drips else 0):
            if self.server.closing.wait(1):
                return
            self.wfile.write(b" ")
        self.server.was_heard_out = drips

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        data = json.dumps({**COMPLETION, "usage": self.server.usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that hang up are meant to."""


@pytest.fixture
def server():
    with Quiet(("127.0.0.1", 0), Handler) as server:
        server.models, server.kind, server.drips, server.usage = (
            b'{"data": []}',
            "application/json",
            False,
            None,
        )
        server.was_heard_out = False
        server.closing = threading.Event()
        serve(server)
        yield server
        server.closing.set()
        server.shutdown()


def url(server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


def taken_or_refused(bench, server, *arguments: str):
    """Run with the server as judge; check that it is taken, or refused in one line that names
    it.
    """
    result = bench.run("--imgedit-limit=1", f"--imgedit-judge=openai:{url(server)}#m", *arguments)
    assert "INTERNALERROR" not in result.stdout.str()
    assert int(result.ret) in (0, 4), result.outlines[-10:]
    if result.ret == 0:
        assert {item["score"] for item in bench.results["items"]} == {5.0}
    else:
        told = [line for line in result.errlines if line.strip()]
        assert len(told) == 1
        result.stderr.fnmatch_lines([f"ERROR: {url(server)} *"])
        assert bench.stored_edits() == 0
    return result


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
@pytest.mark.parametrize("case", MODELS)
def test_list_of_models_of_any_kind_raises_nothing_else(server, case, kind):
    server.models, server.kind = MODELS[case], kind
    told = url(server)
    try:
        Server(url(server), "m", ServerParameters()).check()
    except SetupError as error:
        told = str(error)
    assert told.startswith(url(server))
    assert "\n" not in told


@pytest.mark.parametrize("case", ["html", "null", "list"])
@pytest.mark.everyday_for("html")
def test_server_with_an_odd_list_of_models_is_taken_or_refused(bench, server, case):
    server.models = MODELS[case]
    taken_or_refused(bench, server)


@pytest.mark.full
def test_server_that_drips_is_refused_in_a_bounded_time(bench, server):
    server.drips = True
    options = ("--imgedit-limit=1", "--imgedit-editor=noise", "--imgedit-set=judge.timeout=3")
    process = bench.start(*options, f"--imgedit-judge=openai:{url(server)}#m")
    try:
        output = bench.finish(process)
    finally:
        process.kill()
    assert process.returncode == 4, output
    assert f"ERROR: {url(server)} " in output
    assert not server.was_heard_out
    assert bench.stored_edits() == 0


@pytest.mark.parametrize(
    "count", [10**400, -(10**400), -5], ids=["huge", "huge-negative", "negative"]
)
def test_cost_that_cannot_be_ends_no_run(bench, server, count):
    server.usage = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}
    taken_or_refused(
        bench, server, "--imgedit-set=judge.price_in=1.0", "--imgedit-set=judge.price_out=8.0"
    )
    usage = bench.results["judge"]["usage"]
    assert usage["tokens_in"] >= 0
    assert usage["tokens_out"] >= 0
    assert usage["cost"] is None or usage["cost"] >= 0


@pytest.mark.full
def test_finished_images_and_a_served_judge_need_no_model_library(bench, server, monkeypatch):
    """With real workers: any process of the run that imports one of these dies."""
    for name in ("torch", "diffusers", "transformers"):
        (bench.path / "blocked").mkdir(exist_ok=True)
        (bench.path / "blocked" / f"{name}.py").write_text(
            f"raise SystemError('{name} was imported')\n"
        )
    monkeypatch.setenv("PYTHONPATH", str(bench.path / "blocked"))
    for name in ("physics", "environment", "social", "causal", "referential"):
        Image.effect_noise((64, 64), 60).convert("RGB").save(bench.path / f"{name}-0000.png")
    options = (
        "--imgedit-limit=1",
        "--imgedit-editor=folder:.",
        f"--imgedit-judge=openai:{url(server)}#m",
    )
    bench.run_subprocess(*options).assert_outcomes(passed=5)
    assert bench.error_kinds == {}
