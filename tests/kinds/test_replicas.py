"""Several servers of one model: who gets which question, and what becomes of one that is lost."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image
from serving import serve

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.requests import Question
from pytest_imgedit.kinds import replicas
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.kinds.server import parse_endpoints

GOOD = "instruction: 8\npreservation: 7\nrealism: 9"


class Scripted(ThreadingHTTPServer):
    """Answers `reply` to each question after `seconds`, or with a `status`; keeps the bodies, and
    how many were there at a time.
    """

    daemon_threads = True

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.reply, self.status, self.seconds = GOOD, 200, 0.0
        self.bodies: list[bytes] = []
        self.now = self.most = 0
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: Scripted
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Print nothing."""

    def do_GET(self):
        self._send(200, {"data": []})

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with server.lock:
            server.bodies.append(body)
            server.now += 1
            server.most = max(server.most, server.now)
        time.sleep(server.seconds)
        with server.lock:
            server.now -= 1
        if server.status != 200:
            self._send(server.status, {"error": {"message": "out of order"}})
            return
        message = {"role": "assistant", "content": server.reply}
        self._send(200, {"choices": [{"message": message, "finish_reason": "stop"}]})

    def _send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def servers():
    three = Scripted(), Scripted(), Scripted()
    for server in three:
        serve(server)
    yield three
    for server in three:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.setattr(replicas, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(replicas, "LONGEST_WAIT", 0.02)


def address(server):
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


def judge_of(servers, **params):
    spec = f"openai:{','.join(map(address, servers))}#m"
    model = make_model("judge", spec, {"retries": 0, **params})
    judge = model.target.build("cpu", model.worker_params)
    judge.notes = []
    judge.on_note = judge.notes.append
    return judge


def question(number):
    parts = (("text", f"question {number}"),)
    return Question(str(number), "physics", "lift it", {}, parts=parts)


async def ask(judge, *numbers):
    return await asyncio.gather(*(judge.ask(question(number)) for number in numbers))


async def settle(condition):
    """Wait until a condition holds."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never held")


def is_live(judge, number):
    return lambda: judge._replicas.replicas[number].is_live


async def admit_second(judge):
    """Ask the first question, and wait until the second server has answered it, too."""
    await ask(judge, 0)
    await settle(is_live(judge, 1))


def asked(server):
    return [json.loads(body)["messages"][0]["content"][0]["text"] for body in server.bodies]


def test_urls_of_one_model_are_separated_by_commas():
    urls = ["http://a:1/v1", "http://b/v1"]
    assert parse_endpoints("openai", "http://a:1/v1,http://b/v1/#m,n") == (urls, "m,n")
    assert parse_endpoints("openai", "http://a:1/v1, http://b/v1#m") == (urls, "m")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("http://a/v1,http://a/v1/#m", "http://a/v1 is named twice"),
        ("http://a/v1,https://b:x/v1#m", "no http or https URL"),
        ("http://a/v1,https://me:pass@b/v1#m", "credentials"),
        ("http://a/v1,http://b/v1", "no model"),
    ],
)
def test_list_of_urls_that_is_wrong_is_refused(spec, reason):
    with pytest.raises(UsageError, match=reason):
        parse_endpoints("openai", spec)


@pytest.mark.parametrize(
    "spec", ["openai-images:http://a/v1,http://b/v1#m", "http-score:http://a,http://b"]
)
def test_other_models_have_one_server(spec):
    role = "editor" if "images" in spec else "metric"
    with pytest.raises(UsageError, match="several URLs"):
        make_model(role, spec, {}).servers()


def test_further_servers_are_in_no_recipe(tmp_path):
    def recipe(spec):
        return identify(make_model("judge", spec, {}), tmp_path).digest

    one = recipe("openai:http://a/v1#m")
    assert recipe("openai:http://a/v1,http://b/v1#m") == one
    assert recipe("openai:http://b/v1,http://a/v1#m") != one


def test_further_servers_answer_the_first_question_before_they_get_others(servers):
    first, *others = servers
    judge = judge_of(servers, concurrency=1)

    async def run():
        await ask(judge, 0)
        await settle(lambda: is_live(judge, 1)() and is_live(judge, 2)())
        for server in servers:
            server.seconds = 0.05
        return await ask(judge, *range(1, 10))

    answers = asyncio.run(run())
    assert [answer.reply for answer in answers] == [GOOD] * 9
    assert asked(first)[0] == "question 0"
    for other in others:
        assert other.bodies[0] == first.bodies[0]
        assert other.most == 1
        assert len(other.bodies) > 2
    others_asked = [name for server in servers for name in asked(server) if name != "question 0"]
    assert sorted(others_asked) == [f"question {number}" for number in range(1, 10)]
    assert not judge.notes


def test_server_that_answers_otherwise_is_named_and_gets_no_question(servers):
    first, second, _ = servers
    second.reply = "instruction: 1\npreservation: 1\nrealism: 1"
    judge = judge_of([first, second])

    async def run():
        await ask(judge, 0)
        await settle(lambda: judge.notes)
        await ask(judge, 1, 2, 3)
        second.reply = GOOD
        await settle(is_live(judge, 1))

    asyncio.run(run())
    assert set(asked(second)) == {"question 0"}
    told, back = judge.notes
    assert told.startswith(f"{address(second)}: it answers 'instruction: 1")
    assert told.endswith("it is left out, and tried again")
    assert back == f"{address(second)} answers again as the first server does"


@pytest.mark.parametrize("status", [500, 502, 503, 404, 401])
def test_questions_of_a_server_that_fails_go_to_another(servers, status):
    first, second, _ = servers
    judge = judge_of([first, second])

    async def run():
        await admit_second(judge)
        second.status = status
        answers = await ask(judge, *range(1, 9))
        second.status = 200
        await settle(is_live(judge, 1))
        return answers

    assert [answer.reply for answer in asyncio.run(run())] == [GOOD] * 8
    told, back = judge.notes
    assert told.startswith(f"{address(second)}: the server answered {status}")
    assert "answers again" in back
    answered = [name for name in asked(first) if name != "question 0"]
    assert sorted(answered) == [f"question {number}" for number in range(1, 9)]


def test_first_server_may_be_lost_as_any_other(servers):
    first, second, _ = servers
    judge = judge_of([first, second])

    async def run():
        await admit_second(judge)
        first.status = 503
        return await ask(judge, *range(1, 9))

    assert [answer.reply for answer in asyncio.run(run())] == [GOOD] * 8
    assert judge.notes[0].startswith(f"{address(first)}: the server answered 503")


def test_refused_question_is_no_fault_of_a_server(servers):
    first, second, _ = servers
    judge = judge_of([first, second])

    async def run():
        await admit_second(judge)
        first.status = second.status = 400
        return await ask(judge, *range(1, 5))

    answers = asyncio.run(run())
    assert [answer.error for answer in answers] == ["the server answered 400: out of order"] * 4
    assert len(first.bodies) + len(second.bodies) == 2 + 4
    assert not judge.notes


def test_no_server_left_is_an_error_of_each_question(servers):
    first, second, _ = servers
    judge = judge_of([first, second])

    async def run():
        await admit_second(judge)
        first.status = second.status = 500
        return await ask(judge, *range(1, 5))

    answers = asyncio.run(run())
    assert all("the server answered 500" in answer.error for answer in answers)


def test_bodies_do_not_depend_on_servers_order_or_concurrency(servers):
    first, second, third = servers
    image = encode_png(Image.effect_noise((16, 16), 9).convert("RGB"))

    def shown(number):
        parts = (("text", f"question {number}"), ("image", "edited"), ("text", "é\u2028雪"))
        return Question(str(number), "physics", "x", {"edited": image}, "system", parts)

    def run(judge, numbers):
        async def ask_all():
            await judge.ask(shown(0))
            await asyncio.gather(*(judge.ask(shown(number)) for number in numbers))

        asyncio.run(ask_all())

    run(judge_of([first], concurrency=1), range(1, 9))
    run(judge_of([second, third], concurrency=8), range(8, 0, -1))
    assert {*second.bodies, *third.bodies} == set(first.bodies)
    assert len(set(first.bodies)) == 9
