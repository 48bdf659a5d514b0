"""Jobs of a served model: many at a time, in one event loop, and none once all would fail."""

from __future__ import annotations

import asyncio
import queue
import threading

import pytest
from run_world import png

from pytest_imgedit.core.breaker import MOST_ALIKE
from pytest_imgedit.core.errors import FailsForGood, ImageError, OutputError, Refused
from pytest_imgedit.core.images import decode
from pytest_imgedit.core.requests import Answer, EditRequest, Question
from pytest_imgedit.workers.editing import describe
from pytest_imgedit.workers.stream import Stream, has_coroutines

NO_QUOTA = Answer(error="no quota", final=True)


class Judge:
    """Answers by `answer(number)`, which may wait; keeps the numbers of the questions, and how many
    it had at a time.
    """

    def __init__(self, answer, concurrency=1):
        self.answer, self.concurrency = answer, concurrency
        self.asked, self.now, self.most = [], 0, 0

    async def ask(self, question):
        number = int(question.pair_id)
        self.asked.append(number)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        try:
            answer = self.answer(number)
            return await answer if asyncio.iscoroutine(answer) else answer
        finally:
            self.now -= 1


class Editor:
    """Edits as `make(number)` says."""

    def __init__(self, make, concurrency=1):
        self.make, self.concurrency = make, concurrency
        self.asked = 0

    async def edit(self, request):
        self.asked += 1
        await asyncio.sleep(0.001)
        return self.make(int(request.pair_id))


def question(number):
    return {
        "op": "judge",
        "number": number,
        "questions": [Question(str(number), "a", "b", {}).fields],
    }


def edit(number, source=None):
    request = EditRequest(str(number), "a", "b", source or png(10), 1)
    return {"op": "edit", "number": number, "edits": [vars(request)]}


def stream_of(model):
    replies = queue.Queue()
    stream = Stream(
        model, True, describe, lambda job, reply, seconds: replies.put((job, reply, seconds))
    )
    stream.replies = replies
    return stream


def replies_to(stream, *jobs):
    """Return the replies on jobs by number, in the order in which they came."""
    for job in jobs:
        stream.put(job)
    taken = [stream.replies.get(timeout=10) for _ in jobs]
    return {job["number"]: reply for job, reply, _ in taken}


def answers_of(replies):
    return [reply["answers"][0] for reply in replies.values()]


def test_models_of_servers_are_those_with_coroutines():
    class Local:
        def answer(self, questions): ...
        def edit(self, request): ...

    assert has_coroutines(Judge(None))
    assert has_coroutines(Editor(None))
    assert not has_coroutines(Local())
    assert not has_coroutines(object())


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_as_many_requests_are_out_as_may_be(concurrency):
    judge = Judge(lambda number: Answer(str(number)), concurrency)
    replies = replies_to(stream_of(judge), *map(question, range(20)))
    assert {number: reply["answers"][0]["reply"] for number, reply in replies.items()} == {
        number: str(number) for number in range(20)
    }
    assert judge.most == concurrency


def test_replies_come_as_jobs_end_and_a_slow_one_holds_up_none():
    release = threading.Event()

    async def wait():
        await asyncio.to_thread(release.wait)
        return Answer("late")

    judge = Judge(lambda number: wait() if number == 0 else Answer("soon"), 2)
    stream = stream_of(judge)
    for number in range(10):
        stream.put(question(number))
    first = [stream.replies.get(timeout=10)[0]["number"] for _ in range(9)]
    assert sorted(first) == list(range(1, 10))
    release.set()
    job, reply, _ = stream.replies.get(timeout=10)
    assert (job["number"], reply["answers"][0]["reply"]) == (0, "late")


def test_seconds_of_replies_add_up_to_the_time_in_which_there_was_something_to_do():
    judge = Judge(lambda number: Answer("x"), 4)
    stream = stream_of(judge)
    for number in range(8):
        stream.put(question(number))
    seconds = [stream.replies.get(timeout=10)[2] for _ in range(8)]
    assert all(second >= 0 for second in seconds)
    assert 0.002 <= sum(seconds) < 5


@pytest.mark.parametrize("concurrency", [1, 8])
def test_no_question_is_sent_once_as_many_have_failed_for_good(concurrency):
    judge = Judge(lambda number: NO_QUOTA, concurrency)
    replies = replies_to(stream_of(judge), *map(question, range(60)))
    assert {(answer["error"], answer["final"]) for answer in answers_of(replies)} == {
        ("no quota", True)
    }
    assert MOST_ALIKE <= len(judge.asked) <= MOST_ALIKE + concurrency - 1


def test_answer_to_a_question_from_before_the_row_does_not_end_it():
    async def late():
        while len(judge.asked) < MOST_ALIKE:
            await asyncio.sleep(0.001)
        return Answer("fine")

    judge = Judge(lambda number: late() if number == 0 else NO_QUOTA, 2)
    replies = replies_to(stream_of(judge), *map(question, range(60)))
    assert replies[0]["answers"][0]["reply"] == "fine"
    assert 1 + MOST_ALIKE <= len(judge.asked) <= 1 + MOST_ALIKE + 1


@pytest.mark.parametrize(
    "between",
    [
        Answer("fine"),
        Answer(error="no answer within 60 s"),
        Answer(error="the filter refused", refused=True),
        Answer(error="no such model", final=True),
    ],
)
def test_any_other_answer_begins_the_row_anew(between):
    judge = Judge(lambda number: NO_QUOTA if (number + 1) % MOST_ALIKE else between)
    replies_to(stream_of(judge), *map(question, range(60)))
    assert len(judge.asked) == 60


def test_image_that_does_not_decode_is_an_error_of_its_question():
    def answer(number):
        raise ImageError("edited: broken image")

    (given,) = answers_of(replies_to(stream_of(Judge(answer)), question(1)))
    assert (given["error"], given["final"]) == ("edited: broken image", False)


def test_answer_that_is_none_is_an_error_of_its_question():
    (given,) = answers_of(replies_to(stream_of(Judge(lambda number: "seven")), question(1)))
    assert "expected an Answer" in given["error"]


def test_exception_of_a_judge_is_the_error_of_its_job():
    def answer(number):
        raise KeyError("x")

    (reply,) = replies_to(stream_of(Judge(answer)), question(1)).values()
    assert (reply["op"], reply["kind"], reply["message"]) == ("error", "exception", "KeyError: 'x'")


def test_jobs_that_have_not_begun_are_dropped_when_the_run_is_to_stop():
    release = threading.Event()

    async def wait():
        await asyncio.to_thread(release.wait)
        return Answer("done")

    judge = Judge(lambda number: wait())
    stream = stream_of(judge)
    for number in range(3):
        stream.put(question(number))
    while not judge.asked:
        pass
    stream.stop()
    release.set()
    taken = [stream.replies.get(timeout=10) for _ in range(3)]
    assert {job["number"]: reply["op"] for job, reply, _ in taken} == {
        0: "judged",
        1: "dropped",
        2: "dropped",
    }


def test_requests_that_are_out_are_cancelled_some_seconds_after_the_run_is_to_stop(monkeypatch):
    monkeypatch.setattr("pytest_imgedit.workers.stream.STOP_GRACE", 0.05)
    judge = Judge(lambda number: asyncio.sleep(600), 2)
    stream = stream_of(judge)
    for number in range(4):
        stream.put(question(number))
    while len(judge.asked) < 2:
        pass
    stream.stop()
    taken = [stream.replies.get(timeout=10) for _ in range(4)]
    assert [reply["op"] for _, reply, _ in taken] == ["dropped"] * 4


def test_edits_are_checked_and_encoded():
    editor = Editor(lambda number: decode(png(number)), 3)
    replies = replies_to(stream_of(editor), *map(edit, range(20, 26)))
    for number, reply in replies.items():
        (made,) = reply["edits"]
        assert made["op"] == "finished"
        assert decode(made["image"]).getpixel((0, 0)) == (number, 40, 90)
        assert made["edit_s"] > 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Refused("no"), "refused"),
        (OutputError("no image"), "degenerate_output"),
        (FailsForGood("no such model"), "final"),
        (RuntimeError("busy"), "exception"),
        (ImageError("source: broken"), "bad_image"),
    ],
)
def test_edit_that_fails_says_how(error, kind):
    def make(number):
        raise error

    (reply,) = replies_to(stream_of(Editor(make)), edit(1)).values()
    (failed,) = reply["edits"]
    assert (failed["op"], failed["kind"]) == ("failed", kind)
    assert str(error) in failed["message"]


def test_source_that_does_not_decode_is_an_error_of_its_edit():
    (reply,) = replies_to(
        stream_of(Editor(lambda number: decode(png(1)))), edit(1, b"no image")
    ).values()
    (failed,) = reply["edits"]
    assert (failed["kind"], failed["message"][:7]) == ("bad_image", "source:")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_no_edit_is_requested_once_as_many_have_failed_for_good(concurrency):
    def make(number):
        raise FailsForGood("no such model")

    editor = Editor(make, concurrency)
    replies = replies_to(stream_of(editor), *map(edit, range(40)))
    assert {reply["edits"][0]["kind"] for reply in replies.values()} == {"final"}
    assert MOST_ALIKE <= editor.asked <= MOST_ALIKE + concurrency - 1


@pytest.mark.parametrize("ends_well", [True, False])
def test_edit_from_before_the_row_does_not_end_it(ends_well):
    class Waiting(Editor):
        async def edit(self, request):
            while request.pair_id == "20" and self.asked < MOST_ALIKE:
                await asyncio.sleep(0.001)
            return await super().edit(request)

    def make(number):
        if number > 20:
            raise FailsForGood("no such model")
        if not ends_well:
            raise OutputError("no image")
        return decode(png(number))

    editor = Waiting(make, 2)
    replies_to(stream_of(editor), *map(edit, range(20, 80)))
    assert 1 + MOST_ALIKE <= editor.asked <= 1 + MOST_ALIKE + 1
