"""Text from data, workers and judges, made safe to show."""

from __future__ import annotations

import re
import unicodedata

_SECRET = re.compile(r"(?:^|_)(?:api_?key|token|secret|passw(?:or)?d|credentials?)$", re.IGNORECASE)


def printable(text: str) -> str:
    """Replace characters that could steer a terminal (controls, bidi, surrogates) by their escapes."""
    return "".join(
        char if char == " " or unicodedata.category(char)[0] not in "CZ" or char == "\u3000" else ascii(char)[1:-1]
        for char in text
    )


def one_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its type's name if it has none."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def mask_secrets(params: dict[str, object]) -> dict[str, object]:
    """Hide the values of parameters whose names look like secrets."""
    return {name: "***" if _SECRET.search(name) else value for name, value in params.items()}
