"""Marks in a judge's reply: of what it has thought, and of what it answers."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from pytest_imgedit.core.errors import CutReply, ReplyError

#: Marks around a thought: DeepSeek-R1 and Qwen; Claude and others; Kimi-VL; Magistral; Seed-OSS;
#: Sky-T1.
THOUGHTS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("◁think▷", "◁/think▷"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
#: Marks around an answer; boxes are those of GLM-4.1V and GLM-4.5V.
ANSWERS = (("<answer>", "</answer>"), ("<|begin_of_box|>", "<|end_of_box|>"))


def _pattern(pairs: Sequence[tuple[str, str]]) -> re.Pattern[str]:
    """Return a pattern with a group for each mark of each pair, in order."""
    marks = [mark for pair in pairs for mark in pair]
    return re.compile("|".join(f"({re.escape(mark)})" for mark in marks), re.IGNORECASE)


_THOUGHT = _pattern(THOUGHTS)
_ANSWER = _pattern(ANSWERS)


@dataclass(frozen=True)
class _Mark:
    """A mark in a reply: the pair that it belongs to, and where it stands."""

    pair: int
    closes: bool
    start: int
    end: int


def answer_of(reply: str) -> str:
    """Return a reply with blanks for everything that is no answer, character by character.

    That is a thought with its marks, and everything around the only pair of marks of an answer. A
    thought may lack its opening mark, since prompts and servers keep it; then it begins with the
    reply. Raises `CutReply` for a thought that does not end, and `ReplyError` for more than one.
    """
    text = _without_thought(reply)
    match _marks(_ANSWER.finditer(text)):
        case [first, last] if _are_pair(first, last):
            text = _blanked(_blanked(text, 0, first.end), last.start, len(text))
    return text


def _without_thought(reply: str) -> str:
    """Return a reply with blanks for its thought; raises `ReplyError` as `answer_of` does."""
    match _marks(_THOUGHT.finditer(reply)):
        case []:
            return reply
        case [_Mark(closes=True) as last]:
            return _blanked(reply, 0, last.end)
        case [_Mark(closes=False)]:
            raise CutReply(
                "the reply ends in a thought, expected a larger judge.max_new_tokens or shorter "
                "thoughts"
            )
        case [first, last] if _are_pair(first, last):
            return _blanked(reply, first.start, last.end)
        case _:
            raise ReplyError("thoughts are nested, repeated or cross, expected one at most")


def _marks(matches: Iterable[re.Match[str]]) -> list[_Mark]:
    """Return the first three marks, found by a pattern of `_pattern`; more tell nothing else."""
    marks = []
    for match in islice(matches, 3):
        assert match.lastindex is not None  # one group is matched
        pair, is_second = divmod(match.lastindex - 1, 2)  # groups are numbered from 1
        marks.append(_Mark(pair, bool(is_second), match.start(), match.end()))
    return marks


def _are_pair(first: _Mark, last: _Mark) -> bool:
    return first.pair == last.pair and last.closes and not first.closes


def _blanked(text: str, start: int, end: int) -> str:
    return text[:start] + " " * (end - start) + text[end:]
