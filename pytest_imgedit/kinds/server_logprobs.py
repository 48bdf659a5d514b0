"""The probabilities of the digits in a reply, out of the log probabilities that a server sends.

A server lists the tokens that it wrote, each with the likeliest tokens in its place (`logprobs` and
`top_logprobs` of OpenAI's chat completions; vLLM and SGLang have them too).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_imgedit.core import requests
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.server_answers import THOUGHT_FIELDS
from pytest_imgedit.kinds.server_error_bodies import first_of, parse

#: Asks for log probabilities; a server with a lower limit is told another one with `extra`.
REQUEST: JsonObject = {"logprobs": True, "top_logprobs": 20}
#: Probabilities are rounded, and may add up to a little more than 1.
_MOST_MASS = 1.01
#: A token that is one digit, with blanks (as tokenizers write them, too) and marks around it.
_DIGIT = re.compile(r"""([\s▁Ġ:"'*_`(\[{,]*)([0-9])[\sĊ"'*_`)\]},;]*""")
#: Tokens that end a turn, or stand around thoughts and answers: servers leave them out of replies.
_SPECIAL = re.compile(r"<[^<>]{1,80}>|\[[A-Z_/]{1,40}\]")
_FIX = "judge.scoring='greedy' needs none"


class _Unusable(Exception):
    """What a server sent does not tell the probabilities of the digits in its reply."""


class _Missing(_Unusable):
    """A server does not send what is needed, with this reply as with every other."""


def with_digits(answer: requests.Answer, text: str) -> requests.Answer:
    """Return the answer in the text of a chat completion with the probabilities of its `digits`.

    Without log probabilities that spell the reply, it is an error, which is final if the server
    sent none. An answer that is none, or is cut, stays as it is.
    """
    if answer.error is not None or answer.cut or not answer.reply:
        return answer
    choice = first_of(parse(text).get("choices"))
    try:
        return replace(answer, digits=_digits(answer.reply, choice))
    except _Unusable as problem:
        is_missing = isinstance(problem, _Missing)
        return replace(answer, reply="", error=f"{problem}; {_FIX}", final=is_missing)


def _digits(reply: str, choice: Mapping[str, Any]) -> dict[int, list[float]]:
    """Return the probabilities (10,) of all digits in the places of a reply, in characters, where a
    token is one digit. Raises `_Unusable` as `with_digits` says.
    """
    tokens = _tokens(choice)
    message = choice["message"]
    has_thought = any(message.get(name) for name in THOUGHT_FIELDS)
    token_of = _align(reply, tokens, has_thought)
    return {
        place: token.chances()
        for place, token in token_of.items()
        if reply[place].isdigit() and token.head is not None
    }


@dataclass(frozen=True)
class _Token:
    """A token in a reply, as the server names it."""

    fields: Mapping[str, Any]

    @property
    def text(self) -> str:
        return _text(self.fields)

    @property
    def visible(self) -> str:
        return _visible(self.text)

    @property
    def head(self) -> str | None:
        """The visible characters before its digit; `None` unless it is one digit."""
        match = _DIGIT.fullmatch(self.text)
        return None if match is None else _visible(match[1])

    def chances(self) -> list[float]:
        """Return the probabilities (10,) of the digits in its place, behind the same characters;
        spellings of one digit add up. Raises `_Unusable` for no alternatives, and for values that
        are no probabilities.
        """
        listed = self.fields.get("top_logprobs")
        alternatives = listed if isinstance(listed, list) else []
        if len(alternatives) < 2:
            raise _Missing(
                f"the server sent no alternatives to the token {self.text!r}, expected at least two"
                " top_logprobs"
            )
        if self.text not in [_text(_checked(fields)) for fields in alternatives]:
            alternatives = [*alternatives, self.fields]
        chances = [0.0] * 10
        total = 0.0
        for fields in alternatives:
            chance = _chance(fields)
            total += chance
            match = _DIGIT.fullmatch(_text(fields))
            if match is not None and _visible(match[1]) == self.head:
                chances[int(match[2])] += chance
        if total > _MOST_MASS:
            raise _Unusable(
                f"the server's probabilities of the token {self.text!r} add up to {total:.3g}, "
                "expected at most 1"
            )
        return chances


def _tokens(choice: Mapping[str, Any]) -> list[_Token]:
    """Return the tokens of a choice; raises `_Unusable` if the server sent none."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not content:
        raise _Missing("the server sent no logprobs, expected those of the tokens of its reply")
    return [_Token(_checked(fields)) for fields in content]


def _align(reply: str, tokens: Sequence[_Token], has_thought: bool) -> dict[int, _Token]:
    """Return the token of each visible character of a reply, by its place.

    Characters are visible if they are ASCII and not blank. Others are not compared: servers spell
    them in many ways where a token is a part of one, and some lose blanks. The reply is what the
    last tokens spell, but for special ones. Raises `_Unusable` for other tokens, and for tokens
    before the reply that are neither special nor a thought.
    """
    places = [place for place, letter in enumerate(reply) if _is_visible(letter)]
    spelled = _visible(reply)
    end = len(spelled)
    token_of: dict[int, _Token] = {}
    is_first = True
    for token in reversed(tokens):
        visible = token.visible
        if end and spelled.endswith(visible, 0, end):
            start = end - len(visible)
            token_of |= dict.fromkeys(places[start:end], token)
            end = start
        elif visible and not _SPECIAL.fullmatch(visible):
            is_first = False
            break
    if end or not (is_first or has_thought):
        raise _Unusable("the tokens of the server's logprobs do not spell its reply")
    return token_of


def _checked(fields: Any) -> JsonObject:
    """Return the fields of a token; raises `_Unusable` for what is none."""
    if isinstance(fields, dict) and isinstance(fields.get("token"), str):
        return fields
    raise _Unusable(f"the server's logprobs hold {fields!r:.60}, expected a token")


def _text(fields: Mapping[str, Any]) -> str:
    """Return the text of a token, of its bytes if the server sent them; raises `_Unusable` for what
    are none.
    """
    data = fields.get("bytes")
    if not isinstance(data, list) or not data:
        return str(fields["token"])
    try:
        return bytes(data).decode("utf-8", "replace")
    except (TypeError, ValueError, OverflowError):
        raise _Unusable(f"the server's bytes of a token are {data!r:.60}, expected bytes") from None


def _chance(fields: Mapping[str, Any]) -> float:
    """Return the probability of a token; raises `_Unusable` if the server sent none."""
    logprob = fields.get("logprob")
    if isinstance(logprob, bool) or not isinstance(logprob, int | float) or math.isnan(logprob):
        raise _Unusable(f"the server's logprob of a token is {logprob!r:.60}, expected a number")
    return math.exp(min(1.0, logprob))  # of a larger one, the sum is too large, too


def _is_visible(letter: str) -> bool:
    return "!" <= letter <= "~"


def _visible(text: str) -> str:
    return "".join(filter(_is_visible, text))
