"""Reads a reply that is nearly JSON: with text around it, cut short, or with wrong quotes.

It takes what the package json_repair takes, by which two public arenas read replies, as far as the
choice in a reply is concerned.
"""

import json
import re
from typing import Any

#: The deepest nesting that is read.
_DEEPEST = 50
_CLOSING = {'"': '"', "'": "'", "“": "”", "”": "”"}
_CONSTANTS = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
#: What parts values, and comments, which count as blanks.
_BLANK = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_SKIPPED = re.compile(r"(?://[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)|[^{\[])*", re.DOTALL)
_BARE = re.compile(r"[^,}\]\n]*")
_BARE_KEY = re.compile(r"[^:,}\n]*")
#: What follows the closing quotation mark of a key, and that of a value.
_AFTER_KEY = re.compile(r"\s*(?::|\Z)")
_AFTER_VALUE = re.compile(r"""\s*(?:[,}\]]|\Z|//|#|/\*|["'“”]?\w+["'“”]?\s*:)""")


def repaired(text: str) -> Any:
    """Return the value of a text that is JSON; else that of the object or list in it, or a list of
    them if there are several. Of two that follow each other and have the same keys, and values of
    the same types, the last counts. Without any it is an empty text.

    Raises `ValueError` for one that is nested too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError:
        values = _Reader(text).values()
    if not values:
        return ""
    return values[0] if len(values) == 1 else values


class _Reader:
    """Reads a text from `at` on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        #: Marks that are known to close no text from here on, with what would be behind them.
        self._unclosed: set[tuple[str, re.Pattern[str]]] = set()

    @property
    def next(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def _pass(self, pattern: re.Pattern[str]) -> str:
        """Return what a pattern matches here, and go behind it."""
        match = pattern.match(self.text, self.at)
        assert match is not None, "it matches an empty text"
        self.at = match.end()
        return match[0]

    def values(self) -> list[Any]:
        """Return the objects and lists of the text, without any that the next one replaces."""
        values: list[Any] = []
        while True:
            self._pass(_SKIPPED)
            if not self.next:
                return values
            value = self._value(1)
            if not value:
                continue
            if values and _are_alike(values[-1], value):
                values.pop()
            values.append(value)

    def _value(self, depth: int) -> Any:
        """Return the value that begins here."""
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        self._pass(_BLANK)
        if self.next == "{":
            return self._object(depth)
        if self.next == "[":
            return self._list(depth)
        if self.next in _CLOSING:
            return self._quoted(_AFTER_VALUE)
        return _plain(self._pass(_BARE).strip())

    def _object(self, depth: int) -> dict[str, Any]:
        """Return the object that begins here; a key without a colon is passed over."""
        fields: dict[str, Any] = {}
        self.at += 1
        while True:
            self._pass_commas()
            if self.next in ("}", ""):
                self.at += 1
                return fields
            start = self.at
            is_quoted = self.next in _CLOSING
            key = self._quoted(_AFTER_KEY) if is_quoted else self._pass(_BARE_KEY).strip()
            self._pass(_BLANK)
            if self.next == ":":
                self.at += 1
                fields[key] = self._value(depth + 1)
            elif self.at == start:
                self.at += 1

    def _list(self, depth: int) -> list[Any]:
        """Return the list that begins here."""
        parts: list[Any] = []
        self.at += 1
        while True:
            self._pass_commas()
            if self.next in ("]", ""):
                self.at += 1
                return parts
            start = self.at
            parts.append(self._value(depth + 1))
            if self.at == start:
                self.at += 1

    def _pass_commas(self) -> None:
        self._pass(_BLANK)
        while self.next == ",":
            self.at += 1
            self._pass(_BLANK)

    def _quoted(self, behind: re.Pattern[str]) -> str:
        """Return the text in quotation marks that begins here. It ends at the first closing mark
        with `behind` after it; if there is none, before the next comma or brace.
        """
        closing = _CLOSING[self.next]
        start = self.at = self.at + 1
        words = ""
        while self.next and (closing, behind) not in self._unclosed:
            char = self.next
            if char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                words += _ESCAPES.get(escaped, escaped)
                self.at += 2
                continue
            self.at += 1
            if char == closing and behind.match(self.text, self.at):
                return words
            words += char
        self._unclosed.add((closing, behind))
        self.at = start
        return self._pass(_BARE).strip()


def _plain(text: str) -> Any:
    """Return the constant or number that a text without quotation marks is, or else the text."""
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _are_alike(one: Any, other: Any) -> bool:
    """Tell whether two values have the same types, keys and lengths throughout."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    return True
