"""The metric `http-score` before a server that scores, and one that fails."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from asking import Asked
from PIL import Image
from serving import serve

from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.core.requests import Question
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.http_score import read_reply
from pytest_imgedit.kinds.registry import make_model

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
GREY = Image.new("RGB", (8, 8), (51, 51, 51))
WHITE = Image.new("RGB", (8, 8), "white")


@contextmanager
def serving(server):
    with server:
        serve(server)
        yield f"http://127.0.0.1:{server.server_address[1]}/score"
        server.shutdown()


class Scripted(BaseHTTPRequestHandler):
    """Answers as its server's `answers` say: a status, or the text of a reply."""

    def log_message(self, *_):
        """Print nothing."""

    def do_GET(self):
        self.server.headers.append(self.headers)
        self._send(self.server.greeting, "")

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(json.loads(data))
        self.server.headers.append(self.headers)
        self.server.barrier.wait(20)
        answer = self.server.answers.popleft()
        if isinstance(answer, int):
            self._send(answer, '{"error": {"message": "no luck"}}')
        else:
            self._send(200, answer)

    def _send(self, status, text):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Retry-After-Ms", "1")
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def server():
    scripted = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    scripted.greeting, scripted.answers, scripted.bodies, scripted.headers = 404, deque(), [], []
    scripted.barrier = threading.Barrier(1)
    with serving(scripted) as url:
        scripted.url = url
        yield scripted


def question(edited=GREY, **images):
    return Question("a", "physics", "lift it", {"source": WHITE, "edited": edited, **images})


def metric(url, **params):
    model = make_model("metric", f"http-score:{url}", params)
    model.check(Site())
    return model


def worker(url, **params):
    model = metric(url, **params)
    return Asked(model)


def test_server_of_the_documentation_scores_edits_in_order(monkeypatch):
    code = re.search(r"A whole server:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    code = code.replace("9000", "0").replace("server.serve_forever()", "")
    page = {}
    exec(code, page)
    monkeypatch.setattr(page["Reward"], "log_message", lambda *_: None)
    with serving(page["server"]) as url:
        metric(url).reach()
        answers = worker(url).answer([question(), question(WHITE), question()])
    assert [answer.score for answer in answers] == pytest.approx([0.2, 1, 0.2])


def test_server_gets_texts_and_images_and_a_reference_if_there_is_one(server):
    server.answers.extend(['{"score": 1}', '{"score": -2.5, "why": "x"}'])
    scorer = worker(server.url, extra={"model": "m"})
    first = scorer.answer([question()])[0]
    second = scorer.answer([question(reference=WHITE)])[0]
    assert (first.score, second.score) == (1, -2.5)
    texts = {"instruction": "lift it", "category": "physics", "model": "m"}
    without, with_reference = server.bodies
    assert {name: without[name] for name in texts} == texts
    assert without.keys() == {*texts, "source", "edited"}
    assert with_reference["reference"] == with_reference["source"] != with_reference["edited"]


def test_server_gets_all_sources_of_a_pair_by_their_places(server):
    server.answers.append('{"score": 1}')
    worker(server.url).answer([question(**{"source-1": GREY, "source-3": WHITE})])
    (body,) = server.bodies
    assert body["source-3"] == body["source"] != body["source-1"] == body["edited"]


def test_as_many_questions_are_asked_at_a_time_as_concurrency_says(server):
    server.barrier = threading.Barrier(3)  # no request is answered before three are there
    server.answers.extend(['{"score": 1}'] * 6)
    answers = worker(server.url, concurrency=3, retries=0).answer([question()] * 6)
    assert [answer.score for answer in answers] == [1] * 6


def test_failed_requests_are_retried_and_one_that_fails_for_good_is_an_error_of_its_pair(server):
    server.answers.extend([429, 503, '{"score": 3}', 400, 500, 500])
    scorer = worker(server.url, retries=2, concurrency=1)
    assert scorer.answer([question()])[0].score == 3
    assert scorer.answer([question()])[0].error == "the server answered 400: no luck"
    server.answers.append(500)
    error = scorer.answer([question()])[0].error
    assert error == "the server answered 500, tried 3 times: no luck"
    assert len(server.bodies) == 7


@pytest.mark.parametrize(
    "reply",
    [
        "", "0.5", "[1]", "{}", '{"score": null}', '{"score": "1"}', '{"score": true}',
        '{"score": NaN}', '{"score": 1e999}', '{"score": 1' + 400 * "0" + "}", "<html>\noops",
    ],
)  # fmt: skip
def test_reply_without_a_finite_number_is_an_error_that_shows_the_reply(reply):
    answer = read_reply(reply)
    assert answer.score is None
    assert " ".join(reply.split())[:100] in answer.error
    assert answer.error.endswith('expected {"score": NUMBER}')
    assert "\n" not in answer.error


@pytest.mark.parametrize("error", ['"boom"', '{"code": 5}', "[1]", "true", '"' + "x" * 5000 + '"'])
def test_reply_with_an_error_has_no_score(error):
    answer = read_reply(f'{{"score": 5.0, "error": {error}}}')
    assert answer.score is None
    assert answer.error.startswith("the server answered the error ")
    assert len(answer.error) < 300


@pytest.mark.parametrize("error", ["null", '""', "{}", "false"])
def test_reply_with_an_empty_error_has_its_score(error):
    assert read_reply(f'{{"score": 5.0, "error": {error}}}').score == 5.0


def test_key_comes_from_the_environment_and_is_not_the_one_of_openai(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("HTTP_SCORE_API_KEY", "secret")
    server.answers.extend(['{"score": 1}', '{"score": 1}'])
    worker(server.url).answer([question()])
    worker(server.url, api_key_env="UNSET").answer([question()])
    keys = [headers["Authorization"] for headers in server.headers]
    assert keys == ["Bearer secret"] * 2 + ["Bearer none"] * 2
    with pytest.raises(SettingError, match=r"\(HTTP_SCORE_API_KEY\)"):
        metric(server.url, api_key="secret")


def test_what_is_meant_for_openai_is_not_sent(server, monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway: gateway-secret\nX-Team: team-secret")
    server.answers.append('{"score": 1}')
    worker(server.url).answer([question()])
    probe, post = server.headers
    assert "secret" not in f"{probe}{post}"


def test_server_that_is_not_there_or_refuses_the_key_is_named_in_one_line(server, monkeypatch):
    monkeypatch.delenv("HTTP_SCORE_API_KEY", raising=False)
    metric(server.url).reach()
    server.greeting = 401
    with pytest.raises(UsageError, match=r"wants a key \(401\), expected one in HTTP_SCORE_API"):
        metric(server.url).reach()
    with pytest.raises(UsageError, match=r"^http://127.0.0.1:1/score cannot be reached: [^\n]*$"):
        metric("http://127.0.0.1:1/score").reach()


@pytest.mark.parametrize(
    "url", ["", "localhost", "ftp://h/x", "http://u:p@h/x", "http://h/x?key=1", "http://h/x#m"]
)
def test_what_is_no_url_is_refused_in_one_line(url):
    with pytest.raises(UsageError, match=r"expected http-score:URL[^\n]*$"):
        metric(url)


def test_no_gpu_is_taken_for_it_and_its_url_identifies_it(server):
    model = metric(server.url)
    assert model.is_served
    assert model.memory().weights == 0
    assert model.compose(None, None).parts == {"server": server.url}
    assert not model.measure.is_bounded
