"""How the variant `compat` reads replies: as leniently as the authors' scripts, also from prose."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pytest_imgedit.core.errors import ReplyError

#: Prompts and servers may keep the opening mark of a thought; an unclosed thought ends with the
#: reply.
_THINKING = re.compile(r"\A(?:(?!<think>).)*</think>|<think>.*?(?:</think>|\Z)", re.DOTALL)
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
#: A number in the middle of a text.
_INSIDE = r"(?<![\d.])(\d{1,3}(?:\.\d{1,6})?)"
#: So many braces of a reply may begin an object.
_MAX_OBJECTS = 50
_MARKS = "*_` "
_FINAL = re.compile(r"final scores?[\s*_`:：]*([^\n<]*)", re.IGNORECASE)


def without_thoughts(reply: str) -> str:
    """Return a reply without what a model has thought."""
    return _THINKING.sub("", reply).strip()


def _read_number(reply: str, labels: Sequence[str], count: int, end: float) -> list[str]:
    head, _, tail = reply.strip(_MARKS).replace("：", ":").rpartition(":")
    if "\n" in head or "\n" in tail or _NUMBER.search(head):
        raise ReplyError(f"{reply[:40]!r}, expected nothing but one number")
    return [tail.strip(_MARKS)]


def _read_final(reply: str, labels: Sequence[str], count: int, end: float) -> list[str]:
    texts = {match[1].strip(_MARKS) for match in _FINAL.finditer(reply)} - {""}
    if len(texts) != 1:
        problem = "stands there twice, with different numbers" if texts else "is not there"
        raise ReplyError(f"'Final Score' {problem}: expected 'Final Score: <number>'")
    return [texts.pop()]


def _read_json(reply: str, labels: Sequence[str], count: int, end: float) -> list[str]:
    """Read the numbers of an object; without one, the numbers after its keys, or the only number
    that names the end of the scale.
    """
    if (values := _object(reply, labels)) is not None:
        return [_plain(label, values[label]) for label in labels]
    keys = [re.escape(label).replace("_", "[_ ]") for label in labels]
    found = [_only(rf"{key}\W{{0,9}}?[:：][\s*_`\"]*{_INSIDE}", reply) for key in keys]
    if found == [""] and _NUMBER.fullmatch(reply.strip(_MARKS)):
        found = [reply.strip(_MARKS)]
    if found == [""]:
        found = [_only(rf"{_INSIDE}\s{{0,9}}(?:/|out of)\s{{0,9}}{end:g}\b", reply)]
    if "" in found:
        raise ReplyError(f"no JSON object with {', '.join(labels)}")
    return found


def _read_list(reply: str, labels: Sequence[str], count: int, end: float) -> list[str]:
    """Read the list in an object; of a reply without one, the only list."""
    key = labels[0]
    values = _object(reply, (key,))
    numbers = values[key] if values else _only(r"\[([^\[\]]*)\]", reply).split(",")
    if not isinstance(numbers, list):
        numbers = [numbers]
    if len(numbers) != count:
        raise ReplyError(f"{key!r} has {len(numbers)} numbers, expected {count}")
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


#: By form, for those that `compat` reads in another way than `strict`: what makes the text of each
#: number of a reply, the labels, how many numbers are expected and the end of their scale.
READERS: Mapping[str, Callable[[str, Sequence[str], int, float], list[str]]] = {
    "number": _read_number,
    "json": _read_json,
    "list": _read_list,
    "final": _read_final,
}
