"""Editors and judges that a test puts beside its benchmark as `fakes.py`, as a user would put their
own.
"""

import ctypes
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from pytest_imgedit import Answer


class Slow:
    """Inverts the source after a while."""

    def __init__(self, *, device, delay=0.15):
        self.delay = delay

    def edit(self, request):
        time.sleep(self.delay)
        return ImageOps.invert(request.source)


class Fragile:
    """Dies by SIGKILL on the pairs that are named: `once` only at the first try, `always` each
    time.
    """

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


class Threads:
    """Fails with how many threads it may compute in, and how they wait for each other."""

    def __init__(self, *, device):
        pass

    def edit(self, request):
        waits = [
            f"{name}={os.environ[name]}"
            for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
            if name in os.environ
        ]
        raise RuntimeError(f"threads: {os.environ['OMP_NUM_THREADS']} {' '.join(waits)}")


class Constant:
    """Gives every edit the same score."""

    batch_size = 16

    def __init__(self, *, device, score=5.0):
        self.score = score

    def answer(self, questions):
        return [
            Answer(score=float(self.score), aspects={"size": len(questions)}) for _ in questions
        ]


class Sensitive:
    """Scores by what it is shown, so that a change of the images, of their order or of the batch
    moves a score.
    """

    batch_size = 4

    def __init__(self, *, device, delay=0.0):
        self.delay = delay

    def answer(self, questions):
        time.sleep(self.delay)
        first = [
            next(name for kind, name in question.parts if kind == "image") for question in questions
        ]
        brightness = [
            np.asarray(question.images["edited"], dtype=float).mean() / 64 for question in questions
        ]
        with Path("asked.txt").open("a") as file:
            file.writelines(f"{question.pair_id}\n" for question in questions)
        return [
            Answer(
                score=value + 2 * (name == "source") + 0.01 * len({q.category for q in questions})
            )
            for name, value in zip(first, brightness, strict=True)
        ]


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
    """Replies in the protocol's form, and unreadably first to the pairs of one category."""

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


class Hangs:
    """Never finishes one pair: it `sleep`s, holds the interpreter in `native` code, is `stopped`,
    or is `deaf` to SIGTERM as well; `loading` hangs before the first pair.
    """

    def __init__(self, *, device, on="physics-0001", how="sleep"):
        self.on, self.how = on, how
        if how == "loading":
            time.sleep(600)

    def edit(self, request):
        if request.pair_id == self.on:
            print("about to hang", flush=True)
            self.hang()
        return ImageOps.invert(request.source)

    def answer(self, questions):
        if any(question.pair_id == self.on for question in questions):
            self.hang()
        return [Answer(score=5.0) for _ in questions]

    def hang(self):
        if self.how == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.how == "native":
            ctypes.PyDLL(None).sleep(600)
        if self.how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)


class Spawns(Hangs):
    """Starts a process of its own that would run for ten minutes."""

    def __init__(self, *, device, on="none", how="sleep"):
        super().__init__(device=device, on=on, how=how)
        subprocess.Popen(["sleep", "600"])


class Dies:
    """Dies on every pair."""

    def __init__(self, *, device):
        pass

    def edit(self, request):
        os.kill(os.getpid(), signal.SIGKILL)


class Leaks:
    """Keeps 64 MB of every edit, in a process that may have 400 MB more than it begins with."""

    def __init__(self, *, device):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + 400 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self.kept = []

    def edit(self, request):
        self.kept.append(bytearray(64 * 2**20))
        return ImageOps.invert(request.source)


class Greedy:
    """Runs out of memory on one pair as editor, and on more than `most` questions at once as
    judge.
    """

    batch_size = 8

    def __init__(self, *, device, on="physics-0001", most=3):
        self.on, self.most = on, most

    def edit(self, request):
        with Path("attempts").open("a") as file:
            file.write(f"{request.pair_id} {os.getpid()}\n")
        if request.pair_id == self.on:
            return bytearray(2**60)
        return ImageOps.invert(request.source)

    def answer(self, questions):
        if len(questions) > self.most:
            bytearray(2**60)
        return [Answer(score=5.0) for _ in questions]


class Outputs:
    """Returns something odd for the first pairs of the category physics, the n-th of `whats` for
    the n-th pair.
    """

    def __init__(self, *, device, whats):
        self.whats = {f"physics-{number:04d}": what for number, what in enumerate(whats)}

    def edit(self, request):
        floats = np.asarray(request.source.convert("L"), dtype=np.float32) * np.float32("nan")
        return {
            "infinite": Image.fromarray(floats),
            "blank": Image.new("RGB", request.source.size, (9, 9, 9)),
            "transparent": Image.new("RGBA", request.source.size),
            "tiny": request.source.resize((1, 1)),
            "ribbon": request.source.resize((1024, 8)),
            "array": np.asarray(request.source),
            "none": None,
            "good": ImageOps.invert(request.source),
        }[self.whats.get(request.pair_id, "good")]


class Replies:
    """Gives the first pairs of physics, then of social, the replies of the test's choice, and the
    others a good one.
    """

    def __init__(self, *, device, replies):
        self.replies = {
            f"{('physics', 'social')[n // 10]}-{n % 10:04d}": reply
            for n, reply in enumerate(replies)
        }

    def answer(self, questions):
        good = "instruction: 5\npreservation: 5\nrealism: 5"
        return [Answer(self.replies.get(question.pair_id, good)) for question in questions]


class Checkpoint:
    """Paints a grade over most of the source: its `level`, how hard the pair is, and luck that
    differs by `night`.

    All grey levels are raised by `shade`, and the pairs in `ruined` are painted black.
    """

    def __init__(self, *, device, night=0, level=6.0, luck=0.7, shade=0, ruined=""):
        self.night, self.level, self.luck, self.shade, self.ruined = (
            night,
            level,
            luck,
            shade,
            ruined.split(),
        )

    def edit(self, request):
        hard, luck = (
            np.random.default_rng(
                list(f"{part} {request.instruction} {request.pair_id}".encode())
            ).normal()
            for part in ("hard", f"{self.night} {request.seed}")
        )
        grade = (
            round(25 * min(10.0, max(0.0, self.level + 1.5 * hard + self.luck * luck))) + self.shade
        )
        grade = 0 if request.pair_id in self.ruined else min(250, grade)
        painted = Image.new("RGB", request.source.size, (grade,) * 3)
        painted.paste(request.source.crop((0, 0, 8, 8)))
        return painted


class Reads:
    """Reads the grade that a `Checkpoint` has painted."""

    def __init__(self, *, device):
        pass

    def answer(self, questions):
        return [Answer(score=q.images["edited"].getpixel((20, 20))[0] / 25) for q in questions]
