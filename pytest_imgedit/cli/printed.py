"""What a command of `imgedit` returns."""

from __future__ import annotations

from typing import Any, NamedTuple


class Printed(NamedTuple):
    """What `--json` prints, what is printed else, and the exit code."""

    document: Any
    text: str
    code: int
