"""Answers of judges in values that can be sent, and the errors that stand for invalid ones."""

from typing import Any

from pytest_imgedit.core.requests import Answer
from pytest_imgedit.core.text import one_line, shorten

#: Characters of a judge's reply; a longer one is no grading.
MAX_REPLY = 100_000
#: Sums of aspects up to here stay finite.
MAX_ASPECT = 1e100


def checked_answer(answer: Answer, batch_size: int) -> Answer:
    """Return an answer of a batch of `batch_size` in plain values that can be sent; an invalid one
    is replaced by one that holds the error.
    """
    try:
        if not isinstance(answer, Answer):
            raise TypeError("it is none")
        if isinstance(answer.score, bool | str):
            raise TypeError(f"a score that is {answer.score!r}")
        if len(answer.reply) > MAX_REPLY:
            problem = f"a reply of {len(answer.reply)} characters, expected at most {MAX_REPLY}"
            return checked_answer(Answer(error=problem), batch_size)
        reason = answer.error
        if reason is not None:
            reason = _encodable(str(reason)) or "the judge gave no reason"
        aspects = {_name(name): _aspect(value) for name, value in answer.aspects.items()}
        expected = {_name(name): float(value) for name, value in answer.expected.items()}
        digits = {int(place): list(map(float, row)) for place, row in answer.digits.items()}
        return Answer(
            reply=_encodable(answer.reply),
            score=None if answer.score is None else float(answer.score),
            aspects=aspects,
            expected=expected,
            off_scale=float(answer.off_scale),
            digits=digits,
            error=reason,
            refused=bool(answer.refused),
            final=bool(answer.final),
            model=_encodable(str(answer.model)),
            tokens_in=int(answer.tokens_in),
            tokens_out=int(answer.tokens_out),
            cut=bool(answer.cut),
            finish_reason=_encodable(str(answer.finish_reason)),
            batch_size=batch_size,
        )
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        problem = f"the judge gave {answer!r:.200}, expected an Answer: {one_line(error)}"
        return checked_answer(Answer(error=problem), batch_size)


def _name(name: Any) -> str:
    return shorten(str(name))


def _aspect(value: Any) -> float:
    """Return the value of an aspect as a number; raise `ValueError` for a finite one so large that
    sums would not stay finite, `TypeError` or `ValueError` for no number.
    """
    number = float(value)
    if MAX_ASPECT < abs(number) < float("inf"):
        raise ValueError(f"an aspect of {number:g}, expected at most {MAX_ASPECT:g}")
    return number


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
