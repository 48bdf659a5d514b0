"""Grammars of replies: which numbers a judge's reply holds, each once and in range, or an error."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pytest_imgedit.core import choice_replies, compat_replies
from pytest_imgedit.core.errors import ReplyError, UsageError
from pytest_imgedit.core.reply_marks import answer_of
from pytest_imgedit.core.text import counted

NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
#: The most braces of a reply that are tried as the beginning of an object.
_MAX_OBJECTS = 50
#: The scale of the score of an item; grades may have another one.
SCALE = (0.0, 10.0)
#: The scale of a choice between two edits.
CHOICE_SCALE = (0.0, 1.0)
_MARKS = "*_` "
#: Marks around the label of a line.
_LINE_MARKS = "*_`-# "
_ORDINAL = re.compile(r"\d{1,2}[.)]\s+")
_FINAL = re.compile(
    r"^[ \t#>*_`-]{0,20}final scores?[\s*_`:：]*([^\n<]*)", re.IGNORECASE | re.MULTILINE
)
#: What a reply of one number may call it, beside the names of its call.
_NUMBER_LABELS = ("score", "rating", "grade", "分数", "评分")


Form = Literal["lines", "number", "json", "list", "final", "choice", "choice-or-tie"]


@dataclass(frozen=True)
class Grammar:
    """How a reply holds one number for each of `names`.

    `lines`: a line `label: number` for each. `number`: nothing but the one number, at most behind a
    label. `json`: an object with a key for each. `list`: an object with one key, `labels[0]`, which
    holds the numbers in order. `final`: one line `Final Score: number`. A number may be in bold, a
    text, or followed by `/` and the end of the scale. `choice`: which of two edits is better, as
    `core.choice_replies` reads it: 1 for the one that is shown first, 0 for the other; with
    `choice-or-tie` ½ for a tie. `labels` are what the reply calls the names, by default the names
    themselves, and `better` for a choice. Numbers are from `scale[0]` to `scale[1]`, and have no
    decimals if they are `whole`. `compat` names the rule by which that variant reads, one of the
    form in `core.compat_replies.RULES`. Raises `UsageError` for names or labels that occur twice,
    for more or fewer of them than the form has numbers, for a rule that the form does not have, and
    for a choice on another scale than from 0 to 1, or of whole numbers.
    """

    form: Form
    names: tuple[str, ...]
    scale: tuple[float, float] = SCALE
    whole: bool = False
    labels: tuple[str, ...] = ()
    compat: str = ""

    def __post_init__(self) -> None:
        """Raise `UsageError` for names, labels or a rule that do not fit the form."""
        for noun, texts in (("name", self.names), ("label", self.labels)):
            folded = [text.casefold() for text in texts]
            for text in texts:
                if folded.count(text.casefold()) > 1:
                    raise UsageError(f"the {noun} {text!r} is there twice, expected it once")
        if (self.form in ("number", "final") or self.is_choice) and len(self.names) != 1:
            holds = "choice" if self.is_choice else "number"
            raise UsageError(
                f"the form {self.form!r} has {len(self.names)} names, expected one: it holds one "
                f"{holds}"
            )
        if self.is_choice and (tuple(self.scale) != CHOICE_SCALE or self.whole):
            lowest, highest = self.scale
            raise UsageError(
                f"the form {self.form!r} has the scale [{lowest:g}, {highest:g}]"
                f"{' of whole numbers' if self.whole else ''}, expected scale = [0, 1]"
            )
        expected = 1 if self.form == "list" else len(self.names)
        if self.labels and len(self.labels) != expected:
            names = counted(len(self.names), "name")
            raise UsageError(
                f"{counted(len(self.labels), 'label')} for {names} of the form {self.form!r}, "
                f"expected {expected}"
            )
        if self.compat and self.compat not in self._rules:
            expected_rules = ", ".join(filter(None, self._rules)) or "none"
            raise UsageError(
                f"compat is {self.compat!r}, expected a rule of the form {self.form!r}: "
                f"{expected_rules}"
            )

    @property
    def called(self) -> tuple[str, ...]:
        """What the reply calls the names, in their order."""
        return self.labels or ((choice_replies.LABEL,) if self.is_choice else self.names)

    @property
    def is_choice(self) -> bool:
        """Whether the reply chooses between two edits."""
        return self.form in ("choice", "choice-or-tie")

    @property
    def graded(self) -> tuple[str, ...]:
        """The labels of lines with grades from 0 to 10, for which a judge can return expected ones;
        empty for any other form or scale.
        """
        return self.called if self.form == "lines" and self.scale == SCALE else ()

    @property
    def range(self) -> str:
        """The numbers or choices that are expected, in words."""
        if self.is_choice:
            return choice_replies.expected_choices(has_tie=self.form == "choice-or-tie")
        kind = "whole number" if self.whole else "number"
        lowest, highest = self.scale
        return f"{kind} from {lowest:g} to {highest:g}"

    def read(self, reply: str, variant: Literal["strict", "compat"] = "strict") -> dict[str, float]:
        """Return one number of the scale for each name.

        Under `strict` thoughts do not count. If a reply has one pair of marks of an answer, only
        what is between them counts (`core.reply_marks`). Numbers elsewhere never count.
        Raises `ReplyError` if a number is missing, occurs twice with different values, is followed
        by anything else, or is out of range.

        Under `compat` the rule of the authors' script decides which numbers there are. Names whose
        number it does not find, or which is out of range, are left out; `ReplyError` is raised if
        none is left. A form without a rule is read as under `strict`, but for a number, which may
        stand behind any text of its line.
        """
        rule = self._rules.get(self.compat)
        if variant == "compat" and rule is not None:
            return self._on_scale(rule(reply, self))
        answer = answer_of(reply).strip()
        if variant == "compat" and self.form == "number":
            texts = _read_last_number(answer)
        else:
            texts = _READERS[self.form](answer, self)
        return {
            name: self._number(name, text) for name, text in zip(self.names, texts, strict=True)
        }

    @property
    def _rules(self) -> Mapping[str, compat_replies.Rule]:
        return compat_replies.RULES.get(self.form, {})

    def holds(self, value: float) -> bool:
        """Return whether a number is on the scale."""
        lowest, highest = self.scale
        return lowest <= value <= highest

    def _on_scale(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return the numbers that are on the scale; raises `ReplyError` if none is."""
        kept = {name: float(value) for name, value in numbers.items() if self.holds(value)}
        if not kept:
            raise ReplyError(f"{str(dict(numbers))[:80]}, expected one {self.range} for each name")
        return kept

    def _number(self, name: str, text: str) -> float:
        """Return the number that a text is, in bold or before a `/` and the end of the scale.

        Raises `ReplyError`, which begins with the name, for any other text, and for a number that
        is out of range or not whole.
        """
        _, highest = self.scale
        number, slash, end = text.rpartition("/")
        if slash and end.strip() == f"{highest:g}":
            text = number
        text = text.strip(_MARKS).removesuffix(".")
        value = float(text) if NUMBER.fullmatch(text) else float("nan")
        if not self.holds(value) or (self.whole and value % 1):
            raise ReplyError(f"{name!r} is {text[:40]!r}, expected one {self.range}")
        return value


def number_places(reply: str, labels: Sequence[str]) -> dict[str, int]:
    """Return where the text behind each label begins in a reply, in characters; lines are read as
    by the grammar `lines`.

    Labels without a text are left out. The result is empty for a reply whose answer cannot be
    found.
    """
    try:
        answer = answer_of(reply)
    except ReplyError:
        return {}
    return {label: position for label, text, position in _lines(answer, labels) if text}


def _lines(reply: str, labels: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the label, the text after its colon and the position of that text in the reply, for
    each line that starts with a label; an ordinal and marks may stand before it.
    """
    by_folded = {label.casefold(): label for label in labels}
    start = 0
    for line in reply.replace("：", ":").splitlines(keepends=True):
        head, colon, tail = line.partition(":")
        unmarked = _ORDINAL.sub("", head.strip().strip(_LINE_MARKS), count=1)
        label = by_folded.get(unmarked.strip(_LINE_MARKS).casefold())
        if colon and label is not None:
            text = tail.strip().strip(_MARKS)
            behind_colon = len(head) + len(colon)
            yield label, text, start + line.index(text, behind_colon)
        start += len(line)


def _read_lines(reply: str, grammar: Grammar) -> list[str]:
    """Return the text behind each label, in the order of the labels; raises `ReplyError` for a
    label with no line or two.
    """
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
    """Return the text that a reply is, or that stands behind its label; raises `ReplyError` if
    anything but a label stands before the last colon.
    """
    head, colon, tail = reply.strip(_MARKS).replace("：", ":").rpartition(":")
    labels = {label.casefold() for label in _NUMBER_LABELS + tuple(grammar.called)}
    if colon and head.strip(_MARKS).casefold() not in labels:
        raise ReplyError(f"{reply[:40]!r}, expected nothing but one {grammar.range}")
    return [tail.strip(_MARKS)]


def _read_last_number(reply: str) -> list[str]:
    """Return the text behind the last colon of a reply of one line, or the reply; raises
    `ReplyError` for several lines, and for a number before that colon.
    """
    head, _, tail = reply.strip(_MARKS).replace("：", ":").rpartition(":")
    if "\n" in head or "\n" in tail or NUMBER.search(head):
        raise ReplyError(f"{reply[:40]!r}, expected nothing but one number")
    return [tail.strip(_MARKS)]


def _read_final(reply: str, grammar: Grammar) -> list[str]:
    """Return the text behind `Final Score`; raises `ReplyError` if there is none, or if there are
    different ones.
    """
    texts = {match[1].strip(_MARKS) for match in _FINAL.finditer(reply)} - {""}
    if len(texts) != 1:
        problem = "stands there twice, with different numbers" if texts else "is not there"
        raise ReplyError(f"'Final Score' {problem}: expected a line 'Final Score: <number>'")
    return [texts.pop()]


def _read_json(reply: str, grammar: Grammar) -> list[str]:
    """Return the value at each label of the only object, as a text."""
    values = _object(reply, grammar.called)
    return [_plain(label, values[label]) for label in grammar.called]


def _read_list(reply: str, grammar: Grammar) -> list[str]:
    """Return each number of the list at the only label, as a text, or the single number there.

    Raises `ReplyError` unless there are as many as names.
    """
    key = grammar.called[0]
    numbers = _object(reply, (key,))[key]
    if not isinstance(numbers, list):
        numbers = [numbers]
    if len(numbers) != len(grammar.names):
        raise ReplyError(f"{key!r} has {len(numbers)} numbers, expected {len(grammar.names)}")
    return [_plain(key, value).strip() for value in numbers]


def _read_choice(reply: str, grammar: Grammar) -> list[str]:
    """Return the number of the choice, as a text."""
    label = grammar.called[0]
    number = choice_replies.read_choice(reply, label, has_tie=grammar.form == "choice-or-tie")
    return [f"{number:g}"]


def _plain(label: str, value: Any) -> str:
    """Return a number or a text as a text; raises `ReplyError` for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ReplyError(f"{label!r} is {json.dumps(value)[:40]}, expected a number")
    return str(value)


def _object(reply: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return these keys, with their values, of the only JSON object that has them in a reply.

    Raises `ReplyError` if there is no such object, if several or repeated keys have different
    values, and if a key stands anywhere else, as in a broken object. Only the first `_MAX_OBJECTS`
    braces are tried.
    """
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=partial(_fields, keys))
    key_pattern = re.compile("|".join(rf'"{re.escape(key)}"\s*:' for key in keys))
    objects: list[dict[str, Any]] = []
    keys_read = 0
    end = 0
    for _ in range(_MAX_OBJECTS):
        start = reply.find("{", end)
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(reply, start)
        except ReplyError:
            raise
        except (ValueError, RecursionError):
            end = _end_of_braces(reply, start)
            continue
        if all(key in value for key in keys):
            objects.append({key: value[key] for key in keys})
            keys_read += len(key_pattern.findall(reply, start, end))
    if not objects:
        raise ReplyError(f"no JSON object with {', '.join(keys)}")
    if any(other != objects[0] for other in objects):
        raise ReplyError("two JSON objects with different numbers")
    if keys_read != len(key_pattern.findall(reply)):
        raise ReplyError(f"{', '.join(keys)} also outside of the JSON object")
    return objects[0]


def _fields(keys: Sequence[str], pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of its fields; raises `ReplyError` for one of `keys` with two values."""
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in keys and fields.get(key, value) != value:
            raise ReplyError(f"{key!r} stands there twice, with different values")
        fields[key] = value
    return fields


def _end_of_braces(reply: str, start: int) -> int:
    """Return where the brace that opens at `start` is closed; the end of the reply if it is not."""
    depth = 0
    for match in re.compile("[{}]").finditer(reply, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(reply)


_READERS = {
    "lines": _read_lines,
    "number": _read_number,
    "json": _read_json,
    "list": _read_list,
    "final": _read_final,
    "choice": _read_choice,
    "choice-or-tie": _read_choice,
}
