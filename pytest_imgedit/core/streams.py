"""Standard streams that a run cannot fail on: of another encoding, closed, full, or with nobody who
reads them.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any


class Tolerant:
    """A text stream that shows what it can: what cannot be encoded as escapes, what cannot be
    written not at all.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        with suppress(AttributeError, OSError, ValueError):
            file.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def open_missing() -> None:
    """Give a process that was started without stdout or stderr some to write to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def let_go(file: TextIOWrapper) -> None:
    """Write what a stream still holds; if that fails, drop it, so that the interpreter's end does
    not fail on it.
    """
    try:
        file.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
