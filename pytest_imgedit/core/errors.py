"""Errors that a user can cause, each with one line made for a person; and how to tell an error of
memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class UsageError(Exception):
    """A bad option, config, suite, GPU list or store: the run exits 4 with this one line."""


class SettingError(UsageError):
    """A setting of an editor or judge that it cannot take: `key` names it (`spec` is the model
    itself), the text says why.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


class ImageError(ValueError):
    """An image that cannot be used; the pair it belongs to ends in an error, the others go on."""


class OutputError(ValueError):
    """What an editor returned is no edit: not an image, not finite, blank, or of an impossible
    size.
    """


class EditFailed(Exception):
    """An edit or a verdict that a test asked for could not be had; the text says why."""


class ReplyError(ValueError):
    """A judge's reply that does not follow the rubric's format."""


class StoreError(UsageError):
    """The store cannot be written, such as on a full disk: the run stops, what is stored already
    stays.
    """


class SetupError(Exception):
    """An editor or judge that refuses its settings while it loads: no job can run with it."""


def first_problem(error: ValidationError) -> str:
    """Say the first thing that pydantic found wrong, with its place, such as `items.3.score: Input
    should be …`.
    """
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = str(first["msg"]).removeprefix("Value error, ")
    if where:
        return f"{where}: {what}"
    return what


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell GPU and host memory errors from others without importing torch, which words them in
    several ways.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if not isinstance(error, RuntimeError):
        return False
    try:
        text = str(error)
    except Exception:  # an error of a user's own may fail to say what it is
        return False
    return any(words in text for words in _OUT_OF_MEMORY)
