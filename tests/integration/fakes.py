"""Editors and judges that a test puts beside its benchmark as `fakes.py`, as a user would put their own."""

import os
import signal
import time
from pathlib import Path

from PIL import ImageOps

from pytest_imgedit import Answer


class Slow:
    """Inverts the source after a while."""

    def __init__(self, *, device, delay=0.15):
        self.delay = delay

    def edit(self, request):
        time.sleep(self.delay)
        return ImageOps.invert(request.source)


class Fragile:
    """Dies by SIGKILL on the pairs that are named: `once` only at the first try, `always` each time."""

    def __init__(self, *, device, once="", always=""):
        self.once, self.always = once, always

    def edit(self, request):
        mark = Path(f"died-{request.pair_id}")
        if request.pair_id == self.always or (request.pair_id == self.once and not mark.exists()):
            mark.touch()
            print("about to die", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return ImageOps.invert(request.source)


class Raises:
    """Fails on one pair."""

    def __init__(self, *, device, on="physics-0001"):
        self.on = on

    def edit(self, request):
        if request.pair_id == self.on:
            raise RuntimeError("no such luck")
        return request.source


class Constant:
    """Gives every edit the same score."""

    batch_size = 16

    def __init__(self, *, device, score=5.0):
        self.score = score

    def answer(self, questions):
        return [Answer(score=float(self.score), aspects={"size": len(questions)}) for _ in questions]


class Fussy:
    """Cannot be asked about one pair at all."""

    batch_size = 8

    def __init__(self, *, device, about="causal-0001"):
        self.about = about

    def answer(self, questions):
        if any(question.pair_id == self.about for question in questions):
            raise RuntimeError("not that one")
        return [Answer(score=5.0) for _ in questions]


class Deadly(Fussy):
    """Dies when it is asked about one pair."""

    def answer(self, questions):
        if any(question.pair_id == self.about for question in questions):
            os.kill(os.getpid(), signal.SIGKILL)
        return [Answer(score=5.0) for _ in questions]


class Reader:
    """Replies in the rubric's format, and unreadably first to the pairs of one category."""

    def __init__(self, *, device, mumbles_at="social", mumbles=1):
        self.category, self.mumbles, self.seen = mumbles_at, mumbles, {}

    def answer(self, questions):
        return [Answer(self.reply(question)) for question in questions]

    def reply(self, question):
        assert {"source", "edited"} <= set(question.images)
        count = self.seen[question.pair_id] = self.seen.get(question.pair_id, 0) + 1
        if question.category == self.category and count <= self.mumbles:
            return "3 people stand there, 9/10, Score: 85"
        reminded = "could not be read" in question.parts[-1][1]
        return f"instruction: 9\npreservation: {4 if reminded else 9}\nrealism: 9"
