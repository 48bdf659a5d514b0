"""Grammars of replies: which numbers a judge's reply holds, each once and in range, or an error."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pytest_imgedit.core.errors import ReplyError

#: Prompts and servers may keep the opening mark of a thought; an unclosed thought ends with the
#: reply.
_THINKING = re.compile(r"\A(?:(?!<think>).)*</think>|<think>.*?(?:</think>|\Z)", re.DOTALL)
NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
#: A number in the middle of a text.
_INSIDE = r"(?<![\d.])(\d{1,3}(?:\.\d{1,6})?)"
#: So many braces of a reply may begin an object.
_MAX_OBJECTS = 50
#: The scale of the score of an item, whatever that of the grades.
SCALE = (0.0, 10.0)
_MARKS = "*_` "
_ORDINAL = re.compile(r"\d{1,2}[.)]\s+")
_FINAL = re.compile(r"final scores?[\s*_`:：]*([^\n<]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Grammar:
    """How a reply holds one number for each of `names`.

    `lines`: a line `label: number` for each. `number`: nothing but the one number, at most behind a
    label. `json`: an object with a key for each. `list`: an object with one key, `labels[0]`, which
    holds the numbers in order. `final`: one line `Final Score: number`. A number may be in bold, a
    text, or followed by `/` and the end of the scale. `labels` are what the reply calls the names,
    by default the names themselves. Numbers are from `scale[0]` to `scale[1]`, and have no decimals
    if they are `whole`.
    """

    form: Literal["lines", "number", "json", "list", "final"]
    names: tuple[str, ...]
    scale: tuple[float, float] = SCALE
    whole: bool = False
    labels: tuple[str, ...] = ()

    @property
    def called(self) -> tuple[str, ...]:
        """What the reply calls the names, in their order."""
        return self.labels or self.names

    @property
    def graded(self) -> tuple[str, ...]:
        """The labels of lines with grades from 0 to 10, of which a judge can expect the mean."""
        return self.called if self.form == "lines" and self.scale == SCALE else ()

    @property
    def range(self) -> str:
        """The numbers that are expected, in words."""
        kind = "whole number" if self.whole else "number"
        return f"{kind} from {self.scale[0]:g} to {self.scale[1]:g}"

    def read(self, reply: str) -> dict[str, float]:
        """Return one number of the scale for each name.

        Numbers elsewhere in the reply never count. Raises `ReplyError` if a number is missing,
        occurs twice, is followed by anything else, or is out of range.
        """
        texts = _READERS[self.form](_THINKING.sub("", reply).strip(), self)
        return {
            name: self._number(name, text) for name, text in zip(self.names, texts, strict=True)
        }

    def _number(self, name: str, text: str) -> float:
        number, slash, end = text.rpartition("/")
        if slash and end.strip() == f"{self.scale[1]:g}":
            text = number
        text = text.strip(_MARKS).removesuffix(".")
        value = float(text) if NUMBER.fullmatch(text) else float("nan")
        if not self.scale[0] <= value <= self.scale[1] or (self.whole and value % 1):
            raise ReplyError(f"{name!r} is {text[:40]!r}, expected one {self.range}")
        return value


def number_places(reply: str, labels: Sequence[str]) -> dict[str, int]:
    """Return the position of the number of each label in a reply, in characters; lines are read as
    by the grammar `lines`.
    """
    blanked = _THINKING.sub(lambda thought: " " * len(thought[0]), reply)
    return {label: position for label, text, position in _lines(blanked, labels) if text}


def _lines(reply: str, labels: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the label, the text after its colon and the position of that text, for each line that
    starts with a label.
    """
    names = {label.casefold(): label for label in reversed(labels)}
    start = 0
    for line in reply.replace("：", ":").splitlines(keepends=True):
        head, colon, tail = line.partition(":")
        head = _ORDINAL.sub("", head.strip().strip("*_`-# "), count=1)
        name = names.get(head.strip("*_`-# ").casefold())
        if colon and name is not None:
            text = tail.strip().strip(_MARKS)
            yield name, text, start + line.index(text, len(line.partition(":")[0]) + 1)
        start += len(line)


def _read_lines(reply: str, grammar: Grammar) -> list[str]:
    texts: dict[str, str] = {}
    for label, text, _ in _lines(reply, grammar.called):
        if label in texts:
            raise ReplyError(f"{label!r} stands there twice")
        texts[label] = text
    for label in grammar.called:
        if label not in texts:
            raise ReplyError(f"no line {label!r}: expected '{label}: <number>'")
    return [texts[label] for label in grammar.called]


def _read_number(reply: str, grammar: Grammar) -> list[str]:
    head, _, tail = reply.strip(_MARKS).replace("：", ":").rpartition(":")
    if "\n" in head or "\n" in tail or NUMBER.search(head):
        raise ReplyError(f"{reply[:40]!r}, expected nothing but one {grammar.range}")
    return [tail.strip(_MARKS)]


def _read_final(reply: str, grammar: Grammar) -> list[str]:
    texts = {match[1].strip(_MARKS) for match in _FINAL.finditer(reply)} - {""}
    if len(texts) != 1:
        problem = "stands there twice, with different numbers" if texts else "is not there"
        raise ReplyError(f"'Final Score' {problem}: expected 'Final Score: <number>'")
    return [texts.pop()]


def _read_json(reply: str, grammar: Grammar) -> list[str]:
    """Read the numbers of an object; without one, the numbers after its keys, or the only number
    that names the end of the scale.
    """
    if (values := _object(reply, grammar.called)) is not None:
        return [_plain(label, values[label]) for label in grammar.called]
    keys = [re.escape(label).replace("_", "[_ ]") for label in grammar.called]
    found = [_only(rf"{key}\W{{0,9}}?[:：][\s*_`\"]*{_INSIDE}", reply) for key in keys]
    if found == [""] and NUMBER.fullmatch(reply.strip(_MARKS)):
        found = [reply.strip(_MARKS)]
    if found == [""]:
        found = [_only(rf"{_INSIDE}\s{{0,9}}(?:/|out of)\s{{0,9}}{grammar.scale[1]:g}\b", reply)]
    if "" in found:
        raise ReplyError(f"no JSON object with {', '.join(grammar.called)}")
    return found


def _read_list(reply: str, grammar: Grammar) -> list[str]:
    """Read the list in an object; of a reply without one, the only list."""
    key = grammar.called[0]
    values = _object(reply, (key,))
    numbers = values[key] if values else _only(r"\[([^\[\]]*)\]", reply).split(",")
    if not isinstance(numbers, list):
        numbers = [numbers]
    if len(numbers) != len(grammar.names):
        raise ReplyError(f"{key!r} has {len(numbers)} numbers, expected {len(grammar.names)}")
    return [_plain(key, value).strip() for value in numbers]


def _only(pattern: str, reply: str) -> str:
    """Return what a pattern finds, if it is one text; else an empty text."""
    found = set(re.findall(pattern, reply, re.IGNORECASE))
    return str(found.pop()) if len(found) == 1 else ""


def _plain(label: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ReplyError(f"{label!r} is {json.dumps(value)[:40]}, expected a number")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _object(reply: str, keys: Sequence[str]) -> dict[str, Any] | None:
    """Return the only JSON object with these keys in a reply; `None` if there is none, and
    `ReplyError` if objects differ.
    """
    decoder = json.JSONDecoder(strict=False)
    found: list[dict[str, Any]] = []
    start = -1
    for _ in range(_MAX_OBJECTS):
        start = reply.find("{", start + 1)
        if start < 0:
            break
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(reply, start)
            start = end - 1
            if isinstance(value, dict) and all(key in value for key in keys):
                found.append({key: value[key] for key in keys})
    if any(other != found[0] for other in found):
        raise ReplyError("two JSON objects with different numbers")
    return found[0] if found else None


_READERS = {
    "lines": _read_lines,
    "number": _read_number,
    "json": _read_json,
    "list": _read_list,
    "final": _read_final,
}
