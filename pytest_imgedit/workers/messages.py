"""What passes between a run and its workers: edits and answers as messages, and errors by kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from PIL import Image

from pytest_imgedit.core.errors import ImageError, OutputError, SetupError, is_out_of_memory
from pytest_imgedit.core.images import encode_png, signature, thumbnail
from pytest_imgedit.core.protocol import FinishedEdit
from pytest_imgedit.core.requests import Answer, EditRequest
from pytest_imgedit.core.sanitize import one_line, shorten
from pytest_imgedit.kinds.edit_checks import checked, is_near_copy, is_reframed

#: Taken before any code of the user's own could put another in its place.
clock = time.perf_counter
#: Characters of a judge's reply; a longer one is no grading.
MAX_REPLY = 100_000
#: Sums of aspects up to here stay finite.
MAX_ASPECT = 1e100


def make_edit(
    edit: Callable[[EditRequest], Any], request: EditRequest, may_be_blank: bool
) -> FinishedEdit:
    """Make an edit; return what `finished_edit` returns."""
    started = clock()
    output = edit(request)
    return finished_edit(output, request.source, clock() - started, may_be_blank)


def finished_edit(
    output: Any, source: Image.Image, seconds: float, may_be_blank: bool, batch_size: int = 1
) -> FinishedEdit:
    """Check and encode what an editor returned for a source after some seconds; raises
    `OutputError`.
    """
    image = checked(output, source, may_be_blank=may_be_blank)
    return {
        "op": "finished",
        "image": encode_png(image),
        "thumbnail": thumbnail(image),
        "source_thumbnail": thumbnail(source),
        "signature": signature(image),
        "edit_s": seconds,
        "batch_size": batch_size,
        "near_copy": is_near_copy(source, image),
        "width": image.width,
        "height": image.height,
        "reframed": is_reframed(source, image),
    }


def checked_answer(answer: Answer, batch_size: int) -> Answer:
    """Return an answer of a batch in plain values; one that does not hold what it must becomes an
    error.
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
        return Answer(
            reply=_encodable(answer.reply),
            score=None if answer.score is None else float(answer.score),
            aspects={shorten(str(name)): _aspect(value) for name, value in answer.aspects.items()},
            expected={shorten(str(name)): float(value) for name, value in answer.expected.items()},
            off_scale=float(answer.off_scale),
            error=reason,
            tokens_in=int(answer.tokens_in),
            tokens_out=int(answer.tokens_out),
            cut=bool(answer.cut),
            batch_size=batch_size,
        )
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        problem = f"the judge gave {answer!r:.200}, expected an Answer: {one_line(error)}"
        return checked_answer(Answer(error=problem), batch_size)


def _aspect(value: Any) -> float:
    """A number of an aspect, so small that sums of them stay finite; what is not finite is told as
    it is.
    """
    number = float(value)
    if MAX_ASPECT < abs(number) < float("inf"):
        raise ValueError(f"an aspect of {number:g}, expected at most {MAX_ASPECT:g}")
    return number


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def describe(error: BaseException) -> tuple[str, str]:
    """Return the kind of an error, and one line about it."""
    text = one_line(error)
    if isinstance(error, SetupError):
        return "setup", text
    if isinstance(error, ImageError):
        return "bad_image", text
    if isinstance(error, OutputError):
        return "degenerate_output", text
    kind = "oom" if is_out_of_memory(error) else "exception"
    return kind, f"{type(error).__name__}: {text}"
