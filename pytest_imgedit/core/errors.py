"""Errors that a user can cause, each with a message of one line, and the recognition of memory
errors.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class UsageError(Exception):
    """A bad option, config, suite, GPU list or store: the run exits 4 with this one line."""


class SpecError(UsageError):
    """A spec that names nothing known, or a suite that is unusable as a whole: the spec is what to
    mend, not a row or a file that the text would name.
    """


class SettingError(UsageError):
    """A setting that an editor or judge cannot use: `key` names it (`spec` is the model itself),
    the text says why.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


class ImageError(ValueError):
    """An image that cannot be used; its pair ends in an error, the others go on."""


class OutputError(ValueError):
    """An editor's output that is no edit: not an image, not finite, blank, or of an impossible
    size.
    """


class EditFailed(Exception):
    """An edit or a verdict that a test requested failed; the text says why."""


class Refused(RuntimeError):
    """A content filter refused a request."""


class FailsForGood(RuntimeError):
    """A server's answer with which every further request would fail, too."""


class ReplyError(ValueError):
    """A judge's reply that does not follow the protocol's grammar."""


class CutReply(ReplyError):
    """A judge's reply that ends too early."""


class StoreError(UsageError):
    """The store cannot be written, for example because the disk is full: the run stops, stored
    results stay.
    """


class FailsAlike(Exception):
    """A stage whose calls fail alike, one after the other, has ended: the run stops, stored results
    stay.
    """


class SetupError(Exception):
    """An editor or judge that refuses its settings while it loads: no job can run with it."""


def system_refusal(error: BaseException) -> str | None:
    """Return in one line what the system refused: a file, a process, a thread or memory; `None` if
    it is not the system's error.
    """
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{str(error.filename)[:200]}: {reason}" if error.filename else reason
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return f"{error}, expected room for more (ulimit -u)"
    return "out of memory" if isinstance(error, MemoryError) else None


def first_problem(error: ValidationError) -> str:
    """Return the first problem that pydantic found, behind its location if it has one, such as
    `items.3.score: Input should be …`.
    """
    first = error.errors(include_url=False)[0]
    location = ".".join(map(str, first["loc"]))
    return f"{location}: {first['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether GPU or host memory ran out, by the type of an error or by its text: torch, not
    imported here, words it in several ways.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    with suppress(Exception):  # a custom error may fail to format itself
        return isinstance(error, RuntimeError) and any(
            words in str(error)
            for words in ("out of memory", "can't allocate memory", "_ALLOC_FAILED")
        )
    return False
