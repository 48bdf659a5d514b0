"""What the answers of a judge or metric say: numbers, and the verdict that they make."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pytest_imgedit.core import environments, errors, requests, results
from pytest_imgedit.core.expected_grades import expected_grade, grade_places, one_digit_numbers
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import SCALE, Grammar
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.store.journal import VerdictRecord


class BadScore(errors.ReplyError):
    """A number of the judge's own that is no score; asking again would not help."""


class Dropped(Exception):
    """`compat` leaves an edit out of all means, since `replies` to some calls cannot be read."""

    def __init__(self, message: str, replies: str) -> None:
        super().__init__(message)
        self.replies = replies


class Unread(errors.ReplyError):
    """`compat` can make no value of what is left, since `replies` to some calls cannot be read."""

    def __init__(self, message: str, replies: str) -> None:
        super().__init__(message)
        self.replies = replies


class AnswerReader:
    """Reads the answers of one judge by its protocol, or of a metric."""

    def __init__(self, identity: Identity, protocol: Protocol) -> None:
        self.identity = identity
        self.protocol = protocol

    @property
    def is_compat(self) -> bool:
        return self.protocol.variant == "compat"

    def measured(self, answer: requests.Answer) -> float | None:
        """Return the score of a judge that measures, or the value of a metric; `None` for an answer
        without one.

        Raises `BadScore` for a score off the scale, and for aspects that are not finite.
        """
        if answer.score is None:
            return None
        model = self.identity.model
        if not self.is_on_scale(answer.score):
            raise BadScore(
                f"the {model.role}'s score is {answer.score}, expected a finite number, "
                f"{model.measure.range}"
            )
        if not all(math.isfinite(value) for value in answer.aspects.values()):
            raise BadScore(f"the judge's aspects are {answer.aspects}, expected finite numbers")
        return answer.score

    def is_on_scale(self, number: float) -> bool:
        """Tell whether a measured number lies on the scale of the judge or metric."""
        lowest, highest = self.identity.model.measure.ends
        return math.isfinite(number) and lowest <= number <= highest

    def expected(
        self, call: Call | None, answer: requests.Answer
    ) -> tuple[dict[str, float], float | None]:
        """Return the expected grades of an answer by name, and the largest probability of anything
        but a grade; none and `None` if it has none. A choice between two edits has none.

        Raises `BadScore` if a grade is missing or out of range, and, of a judge whose grades are
        made of its digits, `ReplyError` for a reply with a grade that is not one digit.
        """
        model = self.identity.model
        if call is None or call.grammar.is_choice:
            return {}, None
        if model.expects_grades and model.grades_by_digits:
            return _of_digits(call.grammar, answer)
        if not answer.expected:
            return {}, None
        low, high = call.grammar.scale
        grades = {}
        for name, label in zip(call.grammar.names, call.grammar.called, strict=True):
            grade = answer.expected.get(label, math.nan)
            if not low <= grade <= high:
                raise BadScore(
                    f"the expected grade of {name!r} is {grade}, expected a number from "
                    f"{low:g} to {high:g}"
                )
            grades[name] = grade
        return grades, min(1.0, max(0.0, answer.off_scale))

    def numbers(self, call: Call | None, record: VerdictRecord) -> dict[str, float] | None:
        """Return the numbers in a reply by name, none for a measured answer; `None` for a reply
        that `compat` takes although it cannot be read. `compat` may also read only some of them.

        Raises `ReplyError` for a reply that cannot be read, and for an answer that should have been
        measured.
        """
        if record.measured is not None:
            return {}
        if call is None:
            role = self.identity.model.role
            raise errors.ReplyError(f"the {role} gave no score, expected a number")
        try:
            return call.grammar.read(record.reply, self.protocol.variant)
        except errors.ReplyError:
            if self.is_compat:
                return None
            raise

    def verdict(self, pair: EditPair, records: Mapping[str, VerdictRecord]) -> results.Verdict:
        """Make the verdict of the answers to all calls about a pair.

        Raises `ReplyError` for numbers that make no score, which is `Unread` where `compat` lacks
        some, and `Dropped` for a pair that `compat` leaves out.
        """
        measurements = [record for record in records.values() if record.measured is not None]
        if measurements:
            verdict = _measured_verdict(measurements[0])
        else:
            verdict = self._graded_verdict(pair, records)
        replies = {name: record.reply for name, record in records.items()}
        keys = {name: record.key for name, record in records.items()}
        return replace(
            verdict,
            replies=replies,
            keys=keys,
            batch_size=max(record.batch_size for record in records.values()),
            environment=_most_unlike(records.values(), self.identity.here).digest,
        )

    def _graded_verdict(
        self, pair: EditPair, records: Mapping[str, VerdictRecord]
    ) -> results.Verdict:
        """Make the verdict of the numbers in replies, without what tells their origin.

        Raises as `verdict` does. Of several attempts only the last is replaced by another.
        """
        literal: dict[str, dict[str, float]] = {}
        touched: list[str] = []
        for call in self.protocol.checked_calls(pair):
            numbers = self.numbers(call, records[call.name])
            if numbers is not None:
                literal[call.name] = numbers
            is_read = set(call.grammar.names) <= set(numbers or ())
            if not is_read and call.attempt == self.protocol.attempts:
                touched.append(call.name)
        expected = {name: record.expected for name, record in records.items() if record.expected}
        try:
            values = self.protocol.checked_item(pair, literal | expected)
        except errors.ReplyError as error:
            unread = [record.reply for name, record in records.items() if name not in literal]
            if unread:
                raise Unread(str(error), " | ".join(unread)) from error
            raise
        if "score" not in values:
            raise Dropped(
                f"the reply to {', '.join(touched)} cannot be read; compat leaves the pair out",
                " | ".join(records[name].reply for name in touched),
            )
        greedy = None
        if expected:
            greedy = self._from_0_to_10(self.protocol.checked_item(pair, literal)["score"])
        score = self._from_0_to_10(values["score"])
        if self.protocol.scale == SCALE:
            del values["score"]  # on another scale, the protocol's own score is an aspect
        first = next(iter(records.values()))
        return results.Verdict(
            replies={},
            aspects=values,
            score=score,
            greedy=greedy,
            off_scale=first.off_scale,
            touched=tuple(touched),
        )

    def _from_0_to_10(self, score: float) -> float:
        """Return a score of the protocol on the scale from 0 to 10."""
        low, high = self.protocol.scale
        return SCALE[0] + (score - low) / (high - low) * (SCALE[1] - SCALE[0])


def _of_digits(grammar: Grammar, answer: requests.Answer) -> tuple[dict[str, float], float]:
    """Return the expected grades of an answer by name, made of the probabilities of its digits, and
    the largest mass off the scale.

    Raises `ReplyError` for a reply that cannot be read or has a grade that is not one digit, and
    `BadScore` for a scale of other numbers, and for a grade without probabilities.
    """
    numbers = one_digit_numbers(grammar.scale)
    if not numbers:
        raise BadScore(f"expected grades of {grammar.range}, expected a scale of one-digit numbers")
    grades: dict[str, float] = {}
    masses: list[float] = []
    for name, place in grade_places(answer.reply, grammar).items():
        if place not in answer.digits:
            raise BadScore(
                f"the digit of {name!r} is only a part of a token, expected a token of its own; "
                "judge.scoring='greedy' needs none"
            )
        try:
            grades[name], mass = expected_grade(answer.digits[place], numbers)
        except ValueError as error:
            raise BadScore(f"{name!r}: {error}, expected that of its digit") from None
        masses.append(mass)
    return grades, max(masses)


def _measured_verdict(record: VerdictRecord) -> results.Verdict:
    """Make the verdict of a measured number, without what tells its origin."""
    assert record.measured is not None, "it was measured"
    return results.Verdict(replies={}, aspects=record.aspects, score=record.measured, measured=True)


def _most_unlike(
    records: Iterable[VerdictRecord], here: environments.Environment
) -> environments.Environment:
    """Return the environment of the records that differs most from `here`."""

    def count_differences(environment: environments.Environment) -> int:
        return len(environment.differences(here))

    return max((record.environment for record in records), key=count_differences)
