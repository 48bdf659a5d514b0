"""Standard streams that cannot fail a run, whatever their encoding, and whether they are closed,
full or unread.
"""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any


class TolerantStream:
    """A text stream that escapes characters which it cannot encode, and drops text which it cannot
    write.
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
    """Open the null device as stdout and stderr of a process that was started without them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def let_go(file: TextIOWrapper) -> None:
    """Flush a stream; if that fails, let what is left go to the null device, so that the
    interpreter's exit does not fail.
    """
    try:
        file.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
