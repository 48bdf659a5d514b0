"""Strict parsing of a judge's reply: every aspect once, on a separate line and in range, or an
error.
"""

import re
from collections.abc import Iterator, Sequence

from pytest_imgedit.core.errors import ReplyError

#: Prompts and servers may keep the opening mark of a thought; an unclosed thought ends with the
#: reply.
_THINKING = re.compile(r"\A(?:(?!<think>).)*</think>|<think>.*?(?:</think>|\Z)", re.DOTALL)
NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
SCALE = (0.0, 10.0)


def parse_reply(reply: str, aspects: Sequence[str]) -> dict[str, float]:
    """Read `name: number` lines; return one number in [0, 10] for each aspect.

    Names are matched without regard to case; a number may be bold or followed by `/10`. Lines that
    do not start with an aspect's name are skipped, so numbers elsewhere never count. Raises
    `ReplyError` if an aspect is missing, occurs twice, is followed by anything but one number, or
    is out of range.
    """
    grades: dict[str, float] = {}
    for name, text, _ in _entries(_THINKING.sub("", reply), aspects):
        if name in grades:
            raise ReplyError(f"{name!r} stands there twice")
        number, slash, scale = text.rpartition("/")
        if slash and scale.strip() == "10":
            text = number.rstrip().rstrip("*_` ")
        if not NUMBER.fullmatch(text):
            raise ReplyError(f"{name!r} is {text[:40]!r}, expected one number from 0 to 10")
        grades[name] = float(text)
        if not SCALE[0] <= grades[name] <= SCALE[1]:
            raise ReplyError(f"{name!r} is {text}, expected a number from 0 to 10")
    if missing := [name for name in aspects if name not in grades]:
        raise ReplyError(f"no line {missing[0]!r}: expected '{missing[0]}: <number>'")
    return {name: grades[name] for name in aspects}


def number_places(reply: str, aspects: Sequence[str]) -> dict[str, int]:
    """Return the position of each aspect's number in a reply, in characters; lines are read as by
    `parse_reply`.
    """
    blanked = _THINKING.sub(lambda thought: " " * len(thought[0]), reply)
    return {name: position for name, text, position in _entries(blanked, aspects) if text}


def _entries(reply: str, aspects: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the aspect, the text after its colon and the position of that text, for each line that
    starts with an aspect.
    """
    names = {aspect.casefold(): aspect for aspect in reversed(aspects)}
    start = 0
    for line in reply.replace("：", ":").splitlines(keepends=True):
        head, colon, tail = line.partition(":")
        name = names.get(head.strip().strip("*_`-# ").casefold())
        if colon and name is not None:
            text = tail.strip().strip("*_` ")
            yield name, text, start + line.index(text, len(head) + 1)
        start += len(line)
