"""Judges that a trial must not believe: none of them reads what an edit should have done."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pytest_imgedit import Answer, Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BEST, WORST = 10.0, 0.0


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
        return min(BEST, len(question.instruction) / 8)


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


def _grey(question: Question, name: str) -> NDArray[np.float64]:
    image = question.images[name].convert("L").resize((64, 64))
    return np.asarray(image, np.float64)


def _likeness(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Correlation of two grey images; 0 if one has no contrast."""
    if not first.std() or not second.std():
        return 0.0
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])
