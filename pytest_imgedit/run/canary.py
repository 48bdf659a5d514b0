"""The canary: two questions that a served judge gets before, during and after a run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_imgedit.core import errors, requests, results
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.run.work import StoredImage, Work

#: A run with at least this many questions has a canary.
ENOUGH = 50
#: The two questions come again after this many others.
EVERY = 500

Picture = Literal["own", "other"]


def may_have_canary(judge: Model) -> bool:
    """Tell whether a judge has a canary in a run with enough questions."""
    return judge.is_served and not judge.measures


def rounds_of(questions: int) -> int:
    """Return how often the canary's questions come in a run with this many other `questions`:
    before them, after each `EVERY` of them, and after the last; 0 for too few questions.
    """
    if questions < ENOUGH:
        return 0
    return 1 + math.ceil(questions / EVERY)


@dataclass(frozen=True)
class _Given:
    """An answer to a question of the canary, and the grades in it, if there are any."""

    answer: requests.Answer
    grades: dict[str, float]


@dataclass
class JudgeCanary:
    """Two questions about the first pair: with its own picture, the reference or else the source,
    in place of an edit, and with another pair's.

    They come before the first of the other questions, after every `EVERY` of them, and after the
    last. Their answers are not stored, and no verdict is made of them.
    """

    work: Work
    call: Call
    pictures: dict[Picture, StoredImage]
    variant: results.Variant
    #: How many other questions were put since the canary was last asked.
    since: int = 0
    is_out: bool = False
    rounds: list[dict[Picture, _Given]] = field(default_factory=list)

    def is_due(self, ends: bool) -> bool:
        """Tell whether the questions are to be put now; `ends` says that no other one is left."""
        if self.is_out:
            return False
        if not self.rounds:
            return not ends
        return self.since >= EVERY or (ends and self.since > 0)

    def leave(self) -> None:
        """Note that both questions are put."""
        self.is_out = True
        self.since = max(0, self.since - EVERY)  # so that `rounds_of` holds for batches of any size

    def count(self, questions: int) -> None:
        """Count other questions that were put."""
        self.since += questions

    def take(self, answers: Sequence[requests.Answer]) -> None:
        """Take the answers to all questions of a round, or none, for a round that failed."""
        self.is_out = False
        given = {}
        for picture, answer in zip(self.pictures, answers, strict=False):
            given[picture] = _Given(answer, self._grades(answer))
        self.rounds.append(given)

    def _grades(self, answer: requests.Answer) -> dict[str, float]:
        """Return the grades in an answer by name; none in one that failed, was cut or cannot be
        read.
        """
        if answer.error is not None or answer.cut:
            return {}
        try:
            return self.call.grammar.read(answer.reply, self.variant)
        except errors.ReplyError:
            return {}

    @property
    def info(self) -> results.Canary:
        """What results tell of the canary."""
        answers = repeats = differing = failed = 0
        for picture in self.pictures:
            replies = self._replies(picture)
            failed += len(self.rounds) - len(replies)
            answers += len(replies)
            repeats += len(replies[1:])
            differing += sum(reply != replies[0] for reply in replies[1:])
        return results.Canary(
            rounds=len(self.rounds),
            answers=answers,
            repeats=repeats,
            differing=differing,
            failed=failed,
            grades=tuple(self._changed_grades()),
            models=tuple(self._models()),
        )

    def _replies(self, picture: Picture) -> list[str]:
        """Return the replies about a picture, without rounds that failed."""
        answers = [given[picture].answer for given in self.rounds if picture in given]
        return [answer.reply for answer in answers if answer.error is None]

    def _changed_grades(self) -> Iterator[results.CanaryGrade]:
        """Yield the grades that differ between the first round and the last."""
        if len(self.rounds) < 2:
            return
        first = self.rounds[0]
        last = self.rounds[-1]
        for picture in first:
            if picture not in last:
                continue
            before = first[picture].grades
            after = last[picture].grades
            for name in before:
                if name in after and before[name] != after[name]:
                    yield results.CanaryGrade(
                        picture=picture, name=name, before=before[name], after=after[name]
                    )

    def _models(self) -> list[str]:
        """Return the models that have answered, with their fingerprints, in the order of their
        first answers.
        """
        models: list[str] = []
        for answers in self.rounds:
            for given in answers.values():
                model = given.answer.model
                if model and model not in models:
                    models.append(model)
        return models


def make_canary(
    judge: Model, protocol: Protocol, works: Sequence[Work], questions: int
) -> JudgeCanary | None:
    """Return the canary of a judge that is to get this many `questions` about works; `None` for a
    judge that is not served or measures, for fewer than `ENOUGH` questions, and where no image can
    be shown.
    """
    if not may_have_canary(judge) or questions < ENOUGH:
        return None
    first = works[0]
    calls = protocol.checked_calls(first.pair)
    call = next((call for call in calls if "edited" in call.images), None)
    picture = first.reference or first.source
    if call is None or picture is None:
        return None
    other = _source_of_another(works, first, picture)
    pictures: dict[Picture, StoredImage] = {"own": picture}
    if other is not None:
        pictures["other"] = other
    return JudgeCanary(first, call, pictures, protocol.variant)


def _source_of_another(
    works: Sequence[Work], work: Work, picture: StoredImage
) -> StoredImage | None:
    """Return the first source of another pair that is not the same as the `picture` of a work."""
    for other in works:
        source = other.source
        if source is None or other.pair.id == work.pair.id:
            continue
        if source.sha256 != picture.sha256:
            return source
    return None
