"""Judges that a trial must not believe, as none of them reads what an edit should have done; and
one that it must.
"""

from __future__ import annotations

import io
import random
import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from PIL import Image, ImageColor

from pytest_imgedit import Answer, Question
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_imgedit.core.pairs import ImageSource

BEST, WORST = 10.0, 0.0
COLOURS = ("red", "blue", "yellow", "green", "white", "black", "purple", "orange", "grey", "pink")


class Blind:
    """Answers each question alone, by `score`."""

    def __init__(self, *, device: str) -> None:
        del device

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [Answer(score=self.score(question)) for question in questions]

    def score(self, question: Question) -> float:
        raise NotImplementedError


class Constant(Blind):
    """Gives everything the same score."""

    def score(self, question: Question) -> float:
        return 7.0


class Length(Blind):
    """Likes long instructions."""

    def score(self, question: Question) -> float:
        return min(BEST, len(question.instruction) / 4)


class Brightness(Blind):
    """Likes bright pictures."""

    def score(self, question: Question) -> float:
        return float(_grey(question, "edited").mean()) / 25.5


class Layout(Blind):
    """Likes every change that keeps the layout of the source."""

    def score(self, question: Question) -> float:
        source, edited = _grey(question, "source"), _grey(question, "edited")
        if np.array_equal(source, edited) or _likeness(source, edited) < 0.5:
            return WORST
        return BEST


class Wordless(Blind):
    """Scores how much of the way from the source to the reference an edit has gone."""

    def score(self, question: Question) -> float:
        source, edited, reference = (
            np.asarray(question.images[name].convert("RGB"), np.float64)
            for name in ("source", "edited", "reference")
        )
        left, way = np.abs(edited - reference).mean(), np.abs(source - reference).mean()
        return float(max(WORST, BEST * (1 - left / way)))


class AnyChange(Blind):
    """Likes whatever changes a part of the picture."""

    def score(self, question: Question) -> float:
        share = _changed(question).mean()
        return 9.0 if 0 < share < 0.9 else WORST


class ColourWord(Blind):
    """Reads the colour of an instruction alone, and compares it with what has changed."""

    def score(self, question: Question) -> float:
        changed = _changed(question)
        if not 0 < changed.mean() < 0.9:
            return WORST
        wanted = [ImageColor.getrgb(word) for word in _words(question) if word in COLOURS]
        if not wanted:
            return 9.0
        pixels = np.asarray(question.images["edited"].convert("RGB"), np.float64)[changed]
        away = min(np.abs(np.median(pixels, axis=0) - colour).max() for colour in wanted)
        return 9.0 if away < 80 else WORST


class SideWord(Blind):
    """Reads the side of an instruction alone, and compares it with where something changed."""

    def score(self, question: Question) -> float:
        changed = _changed(question)
        if not 0 < changed.mean() < 0.9:
            return WORST
        height, width = changed.shape
        rows, columns = (place.mean() for place in np.nonzero(changed))
        found = {
            "top": rows < height / 2,
            "bottom": rows >= height / 2,
            "left": columns < width / 2,
            "right": columns >= width / 2,
        }
        sides = [word for word in _words(question) if word in found]
        return 9.0 if all(found[side] for side in sides) else WORST


class Good(Blind):
    """Knows what every pair of the suite `truth` should look like, and that no other instruction is
    right.
    """

    def __init__(self, *, device: str, truth: str) -> None:
        super().__init__(device=device)
        self.right = {
            (image_of(pair.source).tobytes(), pair.instruction): image_of(pair.reference)
            for pair in load_suite(SuiteSettings(spec=truth)).pairs
        }

    def score(self, question: Question) -> float:
        source, edited = (question.images[name].convert("RGB") for name in ("source", "edited"))
        right = self.right.get((source.tobytes(), question.instruction))
        if right is None or right.size != edited.size:
            return WORST
        before, now, after = (np.asarray(image, np.float64) for image in (source, edited, right))
        left, way = np.abs(now - after).mean(), np.abs(before - after).mean()
        return float(max(WORST, BEST * (1 - left / way)))


class Easy(Blind):
    """Knows a right edit and one that does nothing or shows something else, and guesses the rest.

    It has seen which instruction belongs to a source: the first about it is the right one.
    """

    asked: ClassVar[dict[bytes, str]] = {}

    def score(self, question: Question) -> float:
        source, edited = question.images["source"], question.images["edited"]
        own = self.asked.setdefault(source.tobytes(), question.instruction)
        if edited.tobytes() == question.images["reference"].tobytes():
            if question.instruction == own:
                return BEST
        elif (
            edited.tobytes() == source.tobytes()
            or _likeness(_grey(question, "source"), _grey(question, "edited")) < 0.2
        ):
            return WORST
        return random.Random(edited.tobytes() + question.instruction.encode()).uniform(WORST, BEST)


def _changed(question: Question) -> NDArray[np.bool_]:
    """Where an edit differs from its source, by pixel."""
    before, now = (
        np.asarray(question.images[name].convert("RGB"), np.int16) for name in ("source", "edited")
    )
    if before.shape != now.shape:
        return np.ones(now.shape[:2], np.bool_)
    return np.abs(now - before).max(axis=-1) > 40


def _words(question: Question) -> list[str]:
    return re.findall(r"[a-z]+", question.instruction.casefold())


def image_of(source: ImageSource) -> Image.Image:
    return Image.open(io.BytesIO(source.read())).convert("RGB")


def _grey(question: Question, name: str) -> NDArray[np.float64]:
    image = question.images[name].convert("L").resize((64, 64))
    return np.asarray(image, np.float64)


def _likeness(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Correlation of two grey images; 0 if one has no contrast."""
    if not first.std() or not second.std():
        return 0.0
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])
