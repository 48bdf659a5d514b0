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
from pytest_imgedit.core.repaired_json import repaired

Numbers = dict[str, float]


class Expected(Protocol):
    """What a rule needs to know of the numbers that a reply shall hold."""

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
        """Return whether a number is on the scale."""


Rule = Callable[[str, Expected], Numbers]

#: What GEdit's script looks for around an object.
_GEDIT_MARK = "||V^=^V||"
_TWO_NUMBERS = re.compile(r"\[\d+, ?\d+\]", re.ASCII)
_INNERMOST_BRACES = re.compile(r"\{[^{}]*\}")
_GRADES_OF_FIVE = (r"([1-5])\s*/\s*5", r"([1-5])\s+out\s+of\s+5", r"\b([1-5])\b")
_DIGITS = re.compile(r"\d+")
#: Fences of code at the ends of a reply, as GenArena's script removes them, and anywhere, the
#: marked ones first, as that of GEditBench v2 looks for them.
_FENCE_FIRST = re.compile(r"^```(?:json)?\s*\n?")
_FENCE_LAST = re.compile(r"\n?```\s*$")
_FENCED = (
    re.compile(r"```json\s*(.*?)\s*```", re.DOTALL),
    re.compile(r"```\s*(.*?)\s*```", re.DOTALL),
)
#: What the script of GEditBench v2 takes for each choice, in any case.
_GEDIT_V2_CHOICES = {
    **dict.fromkeys(("image_a", "image a", "a"), 1.0),
    **dict.fromkeys(("image_b", "image b", "b"), 0.0),
    **dict.fromkeys(("tie", "equal", "both", "none"), 0.5),
}
_FINAL_SCORES = tuple(
    re.compile(rf"{words}\*{{0,2}}:?([\d\s,*]*)", re.IGNORECASE)
    for words in ("final score", "final scores")
)


def _gedit(reply: str, expected: Expected) -> Numbers:
    """Return a number for each name, out of those that `_gedit_numbers` finds.

    GEdit's script takes the lowest number of a reply. So a single number stands for all names, and
    the last name gets the lowest of the remaining ones. Raises `ReplyError` for any other list that
    is shorter than the names.
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
    """Return the numbers at a key of the object between two marks, or else from the first brace to
    the last. Without braces they are a list of two whole numbers, or the reply is a whole number.

    Raises `ReplyError` for anything else.
    """
    if reply.count(_GEDIT_MARK) == 2:
        _, marked, _ = reply.split(_GEDIT_MARK)
        return _numbers_in(marked, key)
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
    """Return the number or numbers at a key of the JSON object that a text is; raises `ReplyError`
    if it is none, lacks the key, or holds anything but numbers there.
    """
    try:
        value = json.loads(text.strip().replace("\n", ""))[key]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ReplyError(f"no JSON object with {key} from the first brace to the last") from None
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        raise ReplyError(f"{key!r} holds something else than numbers")
    return numbers


def _imgedit(reply: str, expected: Expected) -> Numbers:
    """Return the number of the first line `label: digits` of each name, and as `mean` the mean of
    all such lines, those with other labels too.

    ImgEdit's script takes any number. Here one beyond the scale raises `ReplyError`, since the mean
    would hide it, and so does a reply without such a line.
    """
    names = dict(zip(map(str.casefold, expected.called), expected.names, strict=True))
    taken = []
    numbers: Numbers = {}
    for line in reply.splitlines():
        label, _, digits = line.strip().partition(": ")
        if not digits.isdigit():
            continue
        number = float(digits) if digits.isdecimal() else math.nan  # "②" ends the script
        if not expected.holds(number):
            raise ReplyError(f"{label[:40]!r} is {digits[:40]}, expected one {expected.range}")
        taken.append(number)
        name = names.get(label.strip("*_`-# ").casefold())
        if name is not None:
            numbers.setdefault(name, number)
    if not taken:
        raise ReplyError("no line '<name>: <digits>'")
    numbers["mean"] = sum(taken) / len(taken)
    return numbers


def _kris(reply: str, expected: Expected) -> Numbers:
    """Return the number at the key of an object; else the digit behind the key, `n/5`,
    `n out of 5`, or the first digit from 1 to 5 that stands alone.

    Several keys are read by the rule `_kris_knowledge`. Raises `ReplyError` if there is no number.
    """
    behind_key = rf"{_label_pattern(expected.called[0])}\s*(?:[:：]\s*)?([1-5])"
    return _kris_number(reply, expected, (behind_key, *_GRADES_OF_FIVE))


def _kris_images(reply: str, expected: Expected) -> Numbers:
    """Return what `_kris` does, but without looking for a digit behind the key; so do the scripts
    that show several images.
    """
    return _kris_number(reply, expected, _GRADES_OF_FIVE)


def _kris_number(reply: str, expected: Expected, patterns: Sequence[str]) -> Numbers:
    """Return the number at the only key of an object, or else the digit that a pattern finds; for
    several keys, what `_kris_knowledge` returns.
    """
    if len(expected.called) > 1:
        return _kris_knowledge(reply, expected)
    (number,) = _whole_numbers(reply, expected.called) or [None]
    if number is None:
        number = _digit(reply, patterns)
    return _found(expected, [number])


def _kris_knowledge(reply: str, expected: Expected) -> Numbers:
    """Return the numbers at the keys of an object; without such an object, the digit behind each
    key and a colon. So does the script for categories of knowledge.

    An object ends the search, even if it lacks numbers. A digit without its key is looked for only
    if there is a single key, as `_kris` does. Raises `ReplyError` if there is no number.
    """
    numbers = _whole_numbers(reply, expected.called)
    if numbers:
        return _found(expected, numbers)
    patterns = [rf"{_label_pattern(label)}\s*[:：]\s*([1-5])" for label in expected.called]
    if len(patterns) == 1:
        return _found(expected, [_digit(reply, (patterns[0], *_GRADES_OF_FIVE))])
    return _found(expected, [_digit(reply, [pattern]) for pattern in patterns])


def _whole_numbers(reply: str, labels: Sequence[str]) -> list[int | None]:
    """Return the value at each label in the first object without inner braces that names the first
    label, cut to a whole number; `None` for a label that it lacks.

    The list is empty if there is no such object, if it is not valid JSON, or if one of the values
    is no number.
    """
    text = ""
    for match in _INNERMOST_BRACES.finditer(reply):
        if labels[0] in match[0]:
            text = match[0]
            break
    try:
        fields = json.loads(text)
        return [_whole_number(fields.get(label)) for label in labels]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []


def _whole_number(value: Any) -> int | None:
    return None if value is None else int(value)


def _label_pattern(label: str) -> str:
    """Return a pattern of a label in which blanks or nothing may stand for its underscores."""
    return r"[_\s]*".join(map(re.escape, label.split("_")))


def _digit(reply: str, patterns: Sequence[str]) -> int | None:
    """Return the digit that the first pattern with a match finds; `None` if none has one."""
    for pattern in patterns:
        match = re.search(pattern, reply, re.IGNORECASE)
        if match is not None:
            return int(match[1])
    return None


def _found(expected: Expected, numbers: Sequence[int | None]) -> Numbers:
    """Return the numbers that are known, by name; raises `ReplyError` if none is."""
    named = zip(expected.names, numbers, strict=True)
    found: Numbers = {name: number for name, number in named if number is not None}
    if not found:
        raise ReplyError(f"no number for {', '.join(expected.called)}")
    return found


def _risebench(reply: str, expected: Expected) -> Numbers:
    """Return the one number behind the first `Final Score` with digits, or else `Final Scores`.

    RISEBench's script takes a number above 1 for 1 where the scale ends there. It also takes
    several numbers, and the surplus shifts the grades after it. Here several numbers raise
    `ReplyError`, and so does none.
    """
    numbers = _final_scores(reply)
    if len(numbers) != 1:
        raise ReplyError(f"'Final Score' has {len(numbers)} numbers, expected one")
    number = float(numbers[0])
    _, highest = expected.scale
    if highest == 1:
        number = min(number, 1.0)
    return {expected.names[0]: number}


def _final_scores(reply: str) -> list[str]:
    """Return the numbers of the first final score that has some; none if there is no such one."""
    for pattern in _FINAL_SCORES:
        for match in pattern.finditer(reply):
            numbers = _DIGITS.findall(match[1])
            if numbers:
                return numbers
    return []


def _omnicontext(reply: str, expected: Expected) -> Numbers:
    """Return the number at the key of the JSON object from the first brace to the last, which must
    give its `reasoning` too. A reply without braces must be nothing but a whole number.

    OmniContext's script ends at an object without one of both, and at a score that is no number.
    Here each raises `ReplyError`, like a reply that it cannot read.
    """
    key = expected.called[0]
    start, end = reply.find("{"), reply.rfind("}") + 1
    try:
        if start < 0 or end == 0:
            return {expected.names[0]: int(reply)}
        fields = json.loads(reply[start:end].strip().replace("\n", ""))
        number, _ = fields[key], fields["reasoning"]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ReplyError(
            f"no JSON object with {key} and reasoning from the first brace to the last"
        ) from None
    if not isinstance(number, int | float):
        raise ReplyError(f"{key!r} is {json.dumps(number)[:40]}, expected a number")
    return {expected.names[0]: number}


def _genarena(reply: str, expected: Expected) -> Numbers:
    """Return 1 if the text at the key of the repaired object is `A` or holds an A, and 0 if it is
    `B` or holds no A and a B, in any case.

    So does GenArena's script: it takes "Image B" and "Both are equal" for A. Raises `ReplyError`
    for a text with neither letter, for anything but an object, and like the script for a `score`
    or a `confidence` beside it that is no number.
    """
    key = expected.called[0]
    text = _FENCE_LAST.sub("", _FENCE_FIRST.sub("", reply.strip()))
    fields = _repaired_object(text, key)
    choice = fields.get(key, "")
    if not isinstance(choice, str):
        raise ReplyError(f"{key!r} is {choice!r:.40}, expected text")
    letter = choice.upper().strip()
    if letter not in ("A", "B"):
        letter = next((each for each in "AB" if each in letter), "")
    if not letter:
        raise ReplyError(f"{key!r} is {choice!r:.40}, expected {expected.range}")
    for name, read in (("score", int), ("confidence", float)):
        _require_number(name, fields.get(name, 0), read)
    return {expected.names[0]: float(letter == "A")}


def _require_number(name: str, value: Any, read: Callable[[str], float]) -> None:
    """Raise `ReplyError` unless a value is a number, or a text that `read` takes."""
    try:
        number = read(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int | float):
        raise ReplyError(f"{name!r} is {value!r:.40}, expected a number")


def _gedit_v2(reply: str, expected: Expected) -> Numbers:
    """Return the number of the choice at the key of the repaired object: in the first fence of
    `json`, else in the first fence, else between the first braces, else in the whole reply.

    Raises `ReplyError` for anything but an object, and for a text that is none of the script's.
    """
    key = expected.called[0]
    choice = _repaired_object(_block(reply) or reply, key).get(key)
    number = _GEDIT_V2_CHOICES.get(choice.lower()) if isinstance(choice, str) else None
    if number is None:
        raise ReplyError(f"{key!r} is {choice!r:.40}, expected {expected.range}")
    return {expected.names[0]: number}


def _block(reply: str) -> str:
    """Return the JSON of a reply as `_gedit_v2` says; empty if there is none."""
    for fence in _FENCED:
        match = fence.search(reply)
        if match is not None:
            return match[1]
    start = reply.find("{")
    if start < 0:
        return ""
    depth = 0
    for match in re.compile("[{}]").finditer(reply, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return reply[start : match.end()]
    return ""


def _repaired_object(text: str, key: str) -> dict[str, Any]:
    """Return the object that a text is when it is repaired; raises `ReplyError` for none."""
    try:
        fields = repaired(text)
    except ValueError as error:
        raise ReplyError(str(error)) from None
    if not isinstance(fields, dict):
        raise ReplyError(f"no JSON object with {key}")
    return fields


#: The rules of each form, by the names that a grammar has for them; the empty one is the default.
#: Other forms are read without a script's rule.
RULES: Mapping[str, Mapping[str, Rule]] = {
    "lines": {"imgedit": _imgedit},
    "json": {
        "": _kris,
        "kris-images": _kris_images,
        "kris-knowledge": _kris_knowledge,
        "omnicontext": _omnicontext,
    },
    "list": {"": _gedit},
    "final": {"": _risebench},
    "choice": {"genarena": _genarena},
    "choice-or-tie": {"gedit-v2": _gedit_v2},
}
