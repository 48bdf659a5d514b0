"""Judges that are asked about one edit or about two: one that knows what is right, and some that a
trial must not believe.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from blind_judges import image_of

from pytest_imgedit import Answer, Question
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image


class Knowing:
    """Knows what every pair of the suite `truth` should look like, and prefers what is nearer to
    it.
    """

    #: How often it was asked about one edit and about two.
    asked: ClassVar[Counter[str]] = Counter()

    def __init__(self, *, device: str, truth: str = "scenes:n=5") -> None:
        del device
        self.right = {
            (image_of(pair.source).tobytes(), pair.instruction): image_of(pair.reference)
            for pair in load_suite(SuiteSettings(spec=truth)).pairs
        }

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [Answer(self.reply(question)) for question in questions]

    def reply(self, question: Question) -> str:
        if "first" not in question.images:
            self.asked["edit"] += 1
            grade = round(10 * self.quality(question, "edited"))
            return "\n".join(f"{aspect}: {grade}" for aspect in question.aspects)
        self.asked["duel"] += 1
        choice = self.choice(question)
        return json.dumps({"reason": f"{choice} is nearer to what is asked for", "better": choice})

    def choice(self, question: Question) -> str:
        first, second = (self.quality(question, name) for name in ("first", "second"))
        return "A" if first >= second else "B"

    def quality(self, question: Question, name: str) -> float:
        """How much of the way from the source to the right edit an edit has gone."""
        source = question.images["source"].convert("RGB")
        right = self.right.get((source.tobytes(), question.instruction))
        if right is None:
            return 0.0
        before, after = _pixels(source, right.size), _pixels(right, right.size)
        now = _pixels(question.images[name], right.size)
        way = np.abs(before - after).mean()
        return float(max(0.0, 1 - np.abs(now - after).mean() / way))


class Brighter:
    """Prefers the brighter of two edits, and says so in the form of an arena, as `Image A` or
    `Image B`.
    """

    def __init__(self, *, device: str) -> None:
        del device

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [Answer(self.reply(question)) for question in questions]

    def reply(self, question: Question) -> str:
        if "first" not in question.images:
            return "\n".join(f"{aspect}: 5" for aspect in question.aspects)
        first, second = (np.asarray(question.images[name]).mean() for name in ("first", "second"))
        key = "better_response" if ("text", "[RESPONSE A:]") in question.parts else "winner"
        return json.dumps({key: "Image A" if first >= second else "Image B"})


def _pixels(image: Image.Image, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize(size), np.float64)


class First(Knowing):
    """Grades well, and always prefers the edit that is shown first."""

    def choice(self, question: Question) -> str:
        return "A"


class Worse(Knowing):
    """Grades well, and prefers the worse of two edits."""

    def choice(self, question: Question) -> str:
        return "B" if super().choice(question) == "A" else "A"


class Mumbling(Knowing):
    """Grades well, and names neither of two edits."""

    def choice(self, question: Question) -> str:
        return "hard to say"


class Halting(Knowing):
    """Prefers what is nearer to the right edit, but names neither where a ball is to be changed."""

    def choice(self, question: Question) -> str:
        return "hard to say" if "ball" in question.instruction else super().choice(question)


class Relenting(Knowing):
    """Grades well, and names one of two edits only once it is reminded."""

    def choice(self, question: Question) -> str:
        texts = [text for kind, text in question.parts if kind == "text"]
        is_reminded = any("could not be read" in text for text in texts)
        return super().choice(question) if is_reminded else "hard to say"
