"""How the variant `compat` reads replies: by the rules of the benchmarks' own scripts.

A rule returns the numbers that the script takes, by the names of the grammar. A name is missing
where the script finds no number for it. `ReplyError` is raised where it finds none at all. Numbers
may be beyond the scale.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pytest_imgedit.core.errors import ReplyError

Numbers = dict[str, float]


class Expected(Protocol):
    """The numbers that a reply shall hold: what a rule needs to know of a expected."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers, in order."""

    @property
    def called(self) -> tuple[str, ...]:
        """What the reply calls them."""

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest number."""

    @property
    def range(self) -> str:
        """The numbers that are expected, in words."""

    def holds(self, value: float) -> bool:
        """Tell whether a number is on the scale."""


Rule = Callable[[str, Expected], Numbers]

#: What GEdit's script looks for around an object.
_GEDIT_MARK = "||V^=^V||"
_TWO_NUMBERS = re.compile(r"\[\d+, ?\d+\]", re.ASCII)
_INNERMOST_BRACES = re.compile(r"\{[^{}]*\}")
_OF_FIVE = (r"([1-5])\s*/\s*5", r"([1-5])\s+out\s+of\s+5", r"\b([1-5])\b")
_DIGITS = re.compile(r"\d+")
_FINAL_SCORES = tuple(
    re.compile(rf"{words}\*{{0,2}}:?([\d\s,*]*)", re.IGNORECASE)
    for words in ("final score", "final scores")
)


def _gedit(reply: str, expected: Expected) -> Numbers:
    """Read the numbers at the key of an object; of a reply without braces, two whole numbers in a
    list, or the whole number that it is.

    GEdit's script takes the lowest number of a reply. So one number stands for all names, and the
    last name has the lowest of the rest.
    """
    numbers = _gedit_numbers(reply, expected.called[0])
    names = expected.names
    if len(numbers) == 1:
        return dict.fromkeys(names, numbers[0])
    if len(numbers) < len(names):
        raise ReplyError(f"{len(numbers)} numbers, expected {len(names)}")
    last = len(names) - 1
    named = dict(zip(names[:last], numbers, strict=False))
    named[names[last]] = min(numbers[last:])
    return named


def _gedit_numbers(reply: str, key: str) -> Sequence[float]:
    marked = reply.split(_GEDIT_MARK)
    if len(marked) == 3:
        return _numbers_in(marked[1], key)
    if "{" in reply and "}" in reply:
        return _numbers_in(reply[reply.find("{") : reply.rfind("}") + 1], key)
    listed = reply[reply.find("[") : reply.rfind("]") + 1]
    try:
        if _TWO_NUMBERS.fullmatch(listed):
            return [int(number) for number in json.loads(listed)]
        return [int(reply)]
    except ValueError:
        raise ReplyError(f"{reply[:40]!r}, expected an object, a list or a number") from None


def _numbers_in(text: str, key: str) -> Sequence[float]:
    """Return the number or numbers at a key of the object that a text is."""
    try:
        value = json.loads(text.strip().replace("\n", ""))[key]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ReplyError(f"no JSON object with {key} from the first brace to the last") from None
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        raise ReplyError(f"{key!r} holds something else than numbers")
    return numbers


def _imgedit(reply: str, expected: Expected) -> Numbers:
    """Read every line `name: digits`, and their mean as `mean`; lines of other names count there.

    ImgEdit's script takes any number. One beyond the scale raises `ReplyError`, since the mean
    would hide it.
    """
    names = dict(zip(map(str.casefold, expected.called), expected.names, strict=True))
    taken = []
    numbers: Numbers = {}
    for line in reply.splitlines():
        label, _, digits = line.strip().partition(": ")
        if not digits.isdigit():
            continue
        taken.append(float(digits) if digits.isdecimal() else math.nan)  # "②" ends the script
        if not expected.holds(taken[-1]):
            raise ReplyError(f"{label[:40]!r} is {digits[:40]}, expected one {expected.range}")
        if name := names.get(label.strip("*_`-# ").casefold()):
            numbers.setdefault(name, taken[-1])
    if not taken:
        raise ReplyError("no line '<name>: <digits>'")
    numbers["mean"] = sum(taken) / len(taken)
    return numbers


def _kris(reply: str, expected: Expected) -> Numbers:
    """Read the number at a key of an object; else the digit behind the key, `n/5`, `n out of 5`, or
    the first digit from 1 to 5. Several keys are read by the rule `_kris_knowledge`.
    """
    behind_key = rf"{_words(expected.called[0])}\s*(?:[:：]\s*)?([1-5])"
    return _kris_number(reply, expected, (behind_key, *_OF_FIVE))


def _kris_images(reply: str, expected: Expected) -> Numbers:
    """Read as `_kris` does, but for a digit behind the key: so do the scripts of several images."""
    return _kris_number(reply, expected, _OF_FIVE)


def _kris_number(reply: str, expected: Expected, patterns: Sequence[str]) -> Numbers:
    if len(expected.called) > 1:
        return _kris_knowledge(reply, expected)
    (number,) = _whole_numbers(reply, expected.called) or [None]
    if number is None:
        number = _digit(reply, patterns)
    return _found(expected, [number])


def _kris_knowledge(reply: str, expected: Expected) -> Numbers:
    """Read as `_kris` does, but an object without the number ends the search, and a key needs a
    colon: so does the script for categories of knowledge. Of several keys, the number of one that
    has none is looked for nowhere else.
    """
    if numbers := _whole_numbers(reply, expected.called):
        return _found(expected, numbers)
    patterns = [rf"{_words(label)}\s*[:：]\s*([1-5])" for label in expected.called]
    if len(patterns) == 1:
        return _found(expected, [_digit(reply, (patterns[0], *_OF_FIVE))])
    return _found(expected, [_digit(reply, [pattern]) for pattern in patterns])


def _whole_numbers(reply: str, labels: Sequence[str]) -> list[int | None]:
    """Return what stands at each label in the first object without further braces that names the
    first one, cut to whole numbers; nothing if one cannot be cut.
    """
    text = ""
    for match in _INNERMOST_BRACES.finditer(reply):
        if labels[0] in match[0]:
            text = match[0]
            break
    try:
        fields = json.loads(text)
        values = map(fields.get, labels)
        return [_whole_number(value) for value in values]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []


def _whole_number(value: Any) -> int | None:
    return None if value is None else int(value)


def _words(label: str) -> str:
    return r"[_\s]*".join(map(re.escape, label.split("_")))


def _digit(reply: str, patterns: Sequence[str]) -> int | None:
    """Return what the first pattern with a match finds."""
    for pattern in patterns:
        if match := re.search(pattern, reply, re.IGNORECASE):
            return int(match[1])
    return None


def _found(expected: Expected, numbers: Sequence[int | None]) -> Numbers:
    named = zip(expected.names, numbers, strict=True)
    found = {name: number for name, number in named if number is not None}
    if not found:
        raise ReplyError(f"no number for {', '.join(expected.called)}")
    return dict(found)


def _risebench(reply: str, expected: Expected) -> Numbers:
    """Read the digits behind the first `Final Score` that has some, else behind `Final Scores`.

    RISEBench's script takes a number above 1 for 1 where the scale ends there. It also takes
    several numbers, of which the others shift the grades after them: here they raise `ReplyError`.
    """
    numbers = _final_scores(reply)
    if len(numbers) != 1:
        raise ReplyError(f"'Final Score' has {len(numbers)} numbers, expected one")
    number = float(numbers[0])
    if expected.scale[1] == 1:
        number = min(number, 1.0)
    return {expected.names[0]: number}


def _final_scores(reply: str) -> list[str]:
    for pattern in _FINAL_SCORES:
        for match in pattern.finditer(reply):
            if digits := _DIGITS.findall(match[1]):
                return digits
    return []


#: The rules of each form, by the names that a grammar has for them; the empty one is the default.
#: Other forms are read without a script's rule.
RULES: Mapping[str, Mapping[str, Rule]] = {
    "lines": {"imgedit": _imgedit},
    "json": {"": _kris, "kris-images": _kris_images, "kris-knowledge": _kris_knowledge},
    "list": {"": _gedit},
    "final": {"": _risebench},
}
