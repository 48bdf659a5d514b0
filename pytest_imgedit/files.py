"""Files that users name, read with care: regular files of a bounded size, and folders that may not be there."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from pytest_imgedit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def read_regular(path: Path, most: int, expected: str) -> bytes:
    """Return the bytes of a regular file of at most `most` bytes.

    Raises `UsageError`, naming the file and what was `expected`, for one that is not there, is too large, or is no
    regular file: a pipe would be waited for, a device never ends.
    """
    shown = str(path)[:200]
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{shown}: not a regular file, expected {expected}")
            if status.st_size > most:
                raise UsageError(f"{shown}: {status.st_size} bytes, expected at most {most}")
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{shown}: {reason}, expected {expected}") from None


def is_folder(path: Path) -> bool:
    """Tell whether a folder is there; a name that cannot be one is none."""
    try:
        return path.is_dir()
    except OSError:
        return False
