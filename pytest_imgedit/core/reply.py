"""Strict reading of a judge's reply: every aspect once, on a line of its own, in range, or an
error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pytest_imgedit.core.errors import ReplyError

#: Prompts and servers may keep the mark that opens a thought; one that is not closed goes to the
#: end.
_THINKING = re.compile(r"\A(?:(?!<think>).)*</think>|<think>.*?(?:</think>|\Z)", re.DOTALL)
NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
SCALE = (0.0, 10.0)


def parse_reply(reply: str, aspects: Sequence[str]) -> dict[str, float]:
    """Read `name: number` lines; return one number in [0, 10] for each aspect.

    Names are matched without regard to case; a number may be bold or followed by `/10`. Lines that
    do not start with an aspect's name are passed over, so numbers elsewhere never count. Raises
    `ReplyError` if an aspect is missing, stands there twice, is followed by anything but one
    number, or is out of range.
    """
    found: dict[str, float] = {}
    for line in _THINKING.sub("", reply).splitlines():
        name, value = _split(line, aspects)
        if name is None:
            continue
        if name in found:
            raise ReplyError(f"{name!r} stands there twice")
        found[name] = _number(name, value)
    missing = [name for name in aspects if name not in found]
    if missing:
        raise ReplyError(f"no line {missing[0]!r}: expected '{missing[0]}: <number>'")
    return {name: found[name] for name in aspects}


def number_places(reply: str, aspects: Sequence[str]) -> dict[str, int]:
    """Return where each aspect's number starts in a reply, in characters; lines are read as by
    `parse_reply`.
    """
    places: dict[str, int] = {}
    start = 0
    for line in _THINKING.sub(lambda match: " " * len(match[0]), reply).splitlines(keepends=True):
        name, value = _split(line, aspects)
        if name is not None and value:
            line = _with_ascii_colons(line)
            places[name] = start + line.index(value, line.index(":") + 1)
        start += len(line)
    return places


def _split(line: str, aspects: Sequence[str]) -> tuple[str | None, str]:
    name, colon, value = _with_ascii_colons(line).partition(":")
    name = name.strip().strip("*_`-# ").casefold()
    match = (
        next((aspect for aspect in aspects if aspect.casefold() == name), None) if colon else None
    )
    return match, value.strip().strip("*_` ")


def _with_ascii_colons(line: str) -> str:
    return line.replace("：", ":")


def _number(name: str, text: str) -> float:
    number, slash, scale = text.rpartition("/")
    if slash and scale.strip() == "10":
        text = number.rstrip().rstrip("*_` ")
    if not NUMBER.fullmatch(text):
        raise ReplyError(f"{name!r} is {text[:40]!r}, expected one number from 0 to 10")
    value = float(text)
    if not (math.isfinite(value) and SCALE[0] <= value <= SCALE[1]):
        raise ReplyError(f"{name!r} is {text}, expected a number from 0 to 10")
    return value
