"""The canary: two questions that a served judge gets before, during and after a run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_imgedit.core import errors, requests, results
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.run.work import StoredImage, Work

#: A run with at least so many questions has a canary.
ENOUGH = 50
#: The two questions come again after so many others.
EVERY = 500

Picture = Literal["own", "other"]


def may_have_canary(judge: Model) -> bool:
    """Tell whether a judge has a canary in a run with enough questions."""
    return judge.is_served and not judge.measures


def rounds_of(questions: int) -> int:
    """Return how often the canary's questions come in a run with so many others."""
    if questions < ENOUGH:
        return 0
    return 2 + (questions - 1) // EVERY


@dataclass(frozen=True)
class _Given:
    """An answer to a question of the canary, and the grades in it, if there are any."""

    answer: requests.Answer
    grades: dict[str, float]


@dataclass
class Canary:
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
        """Take the answers to both questions; of none, the round has failed."""
        self.is_out = False
        given = {}
        for picture, answer in zip(self.pictures, answers, strict=False):
            given[picture] = _Given(answer, self._grades(answer))
        self.rounds.append(given)

    def _grades(self, answer: requests.Answer) -> dict[str, float]:
        if answer.error is not None or answer.cut:
            return {}
        try:
            return self.call.grammar.read(answer.reply, self.variant)
        except errors.ReplyError:
            return {}

    @property
    def info(self) -> results.Canary:
        """What results tell of the canary."""
        repeats = differing = failed = 0
        for picture in self.pictures:
            given = [each.get(picture) for each in self.rounds]
            whole = [one.answer for one in given if one is not None and one.answer.error is None]
            failed += len(given) - len(whole)
            repeats += len(whole[1:])
            differing += sum(answer.reply != whole[0].reply for answer in whole[1:])
        return results.Canary(
            rounds=len(self.rounds),
            repeats=repeats,
            differing=differing,
            failed=failed,
            grades=tuple(self._changed()),
            models=tuple(self._models()),
        )

    def _changed(self) -> Iterator[results.CanaryGrade]:
        """Yield the grades that are others in the last round than in the first."""
        if len(self.rounds) < 2:
            return
        first, last = self.rounds[0], self.rounds[-1]
        for picture in first.keys() & last.keys():
            before, after = first[picture].grades, last[picture].grades
            for name in before.keys() & after.keys():
                if before[name] != after[name]:
                    yield results.CanaryGrade(
                        picture=picture, name=name, before=before[name], after=after[name]
                    )

    def _models(self) -> Iterable[str]:
        """Return the models that have answered, with their fingerprints, in the order of their
        first answers.
        """
        return dict.fromkeys(
            given.answer.model
            for answers in self.rounds
            for given in answers.values()
            if given.answer.model
        )


def make_canary(
    judge: Model, protocol: Protocol, works: Sequence[Work], questions: int
) -> Canary | None:
    """Return the canary of a judge that is to get so many questions about works; `None` for a judge
    that is not served or measures, for fewer than `ENOUGH` questions, and where no image can be
    shown.
    """
    if not may_have_canary(judge) or questions < ENOUGH:
        return None
    first = works[0]
    calls = protocol.checked_calls(first.pair)
    call = next((call for call in calls if "edited" in call.images), None)
    own = first.reference or first.source
    if call is None or own is None:
        return None
    others = (work.source for work in works if work.pair.id != first.pair.id)
    other = next((image for image in others if image and image.sha256 != own.sha256), None)
    pictures: dict[Picture, StoredImage] = {"own": own}
    if other is not None:
        pictures["other"] = other
    return Canary(first, call, pictures, protocol.variant)
