"""Which failed requests to a served model are final: every further one like them would fail."""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from pytest_imgedit.kinds import server_final_words as words
from pytest_imgedit.kinds.server_error_bodies import sentence_of
from pytest_imgedit.kinds.server_refusals import is_refusal, texts_in

Cause = Literal["key", "quota", "model", "address", "parameters", "images", "context"]

#: Statuses of failures that may pass: a timeout, a conflict, too early, too many requests.
_PASSING = (408, 409, 425, 429)
#: Fields of a request that hold what is asked, and no setting.
_CONTENT = ("model", "messages", "prompt", "image", "image[]", "mask")
#: Fields of an error that hold a code, and those that name a field of the request.
_CODES_IN = re.compile(r"(?:.*_)?(?:code|type|status|reason)", re.IGNORECASE)
_NAMES_IN = ("param", "parameter", "field", "loc")
_LOC = "loc"
_MARKS = re.compile(r"[\s._-]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: What pydantic repeats of a request inside of a text.
_ECHO = re.compile(
    r"['\"]input['\"]: .*?(?=\{['\"]type['\"]: ['\"]\w+['\"], ['\"]loc|\Z)", re.DOTALL
)
#: The most characters of a text that are read, and those of all texts of an error.
_LENGTH = 4000
_LENGTH_OF_ALL = 20_000


@dataclass(frozen=True)
class FinalFailure:
    """Why a request failed, and why every one like it will."""

    cause: Cause
    #: Names of the fields of the request that the server refuses, in the order in which they were
    #: sent.
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Error:
    """What an error says: its texts, each after the name of its field."""

    pairs: tuple[tuple[str, str], ...]
    #: The name of the model that was asked for.
    model: str = ""

    @property
    def is_json(self) -> bool:
        """Whether it has fields, which a page and a text do not."""
        return any(name for name, _ in self.pairs)

    @cached_property
    def codes(self) -> list[str]:
        """Its codes, without case and marks between words."""
        texts = [text for name, text in self.pairs if _CODES_IN.fullmatch(name)]
        return [_MARKS.sub("", text).casefold() for text in texts]

    @cached_property
    def words(self) -> str:
        """All its texts, one a line, without case and with `§` for the name of the model."""
        texts = "\n".join(text for _, text in self.pairs).replace("’", "'")
        if self.model:
            name = rf"(?<![\w-]){re.escape(self.model)}(?![\w-])"
            texts = re.sub(name, words.MODEL, texts, flags=re.IGNORECASE)
        return texts.casefold()

    def has(self, codes: re.Pattern[str]) -> bool:
        """Tell whether one of its codes is of this kind."""
        return any(codes.search(code) for code in self.codes)

    def says(self, sentences: re.Pattern[str]) -> bool:
        """Tell whether one of its texts is of this kind."""
        return bool(sentences.search(self.words))


def final_failure(status: int, body: Any, sent: Collection[str], model: str) -> FinalFailure | None:
    """Return why a failed request is final; `None` for a failure that may pass, a refusal by a
    content filter, and an error that names nothing.

    `status` is the HTTP status, or the one that an error inside a 200 amounts to. `body` is the
    parsed JSON of the error, or its text. `sent` holds the names of the request's fields. `model`
    is the name that was asked for.
    """
    if status < 400 or is_refusal(status, body):
        return None
    if is_out_of_quota(status, body):
        return FinalFailure("quota")
    error = _read(body, model)
    if status >= 500:
        takes_none = status == 500 and error.says(words.NO_IMAGES_WORDS)  # llama.cpp, Ollama
        return FinalFailure("images") if takes_none else None
    if status in _PASSING or error.has(words.PASSING_CODES) or error.says(words.PASSING_WORDS):
        return None
    if status == 401:
        return FinalFailure("model" if error.has(words.MODEL_CODES) else "key")
    if error.has(words.CONTEXT_CODES) or error.says(words.CONTEXT_WORDS):
        return FinalFailure("context")
    fields = _refused_fields(error, sent) if status in (400, 422) else ()
    if fields:
        return FinalFailure("parameters", fields)
    cause = _cause(status, error)
    return FinalFailure(cause) if cause else None


def is_out_of_quota(status: int, body: Any) -> bool:
    """Tell whether a request failed because the account has nothing left to pay it with; an
    ordinary rate limit is no such failure.

    `status` and `body` are those of `final_failure`.
    """
    if status == 402:
        return True
    if status < 400:
        return False
    error = _read(body)
    if error.has(words.PASSING_CODES) and not error.says(words.QUOTA_WORDS):
        return False
    if error.says(words.THROTTLE):
        return False
    return error.has(words.QUOTA_CODES) or error.says(words.QUOTA_WORDS)


def _cause(status: int, error: _Error) -> Cause | None:
    """Return the cause of a failure with status 400 or more that is no key, quota, context or
    parameter; `None` if it names none.
    """
    if error.says(words.NO_IMAGES_WORDS):
        return "images"
    if error.says(words.ADDRESS_WORDS):
        return "address"
    if error.has(words.BAD_IMAGE_CODES) or error.says(words.BAD_IMAGE_WORDS):
        return "images"
    if status in (413, 415):
        return "images"
    if error.has(words.MODEL_CODES) or error.says(words.MODEL_WORDS) or _names(error, "model"):
        return "model"
    if status in (404, 405, 410):
        speaks_of_model = error.is_json and error.says(words.SPEAKS_OF_MODEL)
        return "model" if speaks_of_model else "address"
    if status == 403 or error.has(words.KEY_CODES) or error.says(words.KEY_WORDS):
        return "key"
    return None


def _read(body: Any, model: str = "") -> _Error:
    """Return what the body of an error says; of a page, its title."""
    if isinstance(body, str):
        body = _parsed(body) or sentence_of(body)
    pairs = []
    room = _LENGTH_OF_ALL
    for name, text in _texts(body):
        pairs.append((name, text[:room]))
        room -= len(pairs[-1][1])
        if not room:
            break
    return _Error(tuple(pairs), model)


def _texts(body: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a body, each after the name of its field; a text that is JSON, as gateways
    cite it, in its parts.
    """
    for name, text in texts_in(body):
        cited = _parsed(text)
        parts = [(name, text)] if cited is None else texts_in(cited)
        for part, said in parts:
            yield part, _ECHO.sub("", said[:_LENGTH]).replace('\\"', '"')


def _parsed(text: str) -> Any:
    """Return the JSON object or list that a text is; `None` for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refused_fields(error: _Error, sent: Collection[str]) -> tuple[str, ...]:
    """Return the names of the sent fields that an error refuses, in the order in which they were
    sent.
    """
    names = [name for name in sent if name not in _CONTENT]
    return tuple(name for name in names if _names(error, name) or _refuses(error, name))


def _names(error: _Error, field: str) -> bool:
    """Tell whether an error names a field of the request in one of its own fields: `param`, or the
    first part of pydantic's `loc`.
    """
    for name, group in groupby(error.pairs, lambda pair: pair[0]):
        if name not in _NAMES_IN:
            continue
        paths = [text for _, text in group if text != "body"]
        if name == _LOC:
            paths = paths[:1]
        if any(re.match(rf"{re.escape(field)}(?!\w)", path) for path in paths):
            return True
    return False


def _refuses(error: _Error, field: str) -> bool:
    """Tell whether a sentence of an error refuses a field, in the case of Python or of JavaScript.

    The name of an ordinary word (`user`, `size`) must be marked as a name: by quotes, or by what
    stands next to it.
    """
    for name, text in error.pairs:
        if _CODES_IN.fullmatch(name) or name in _NAMES_IN:
            continue
        for line in text.splitlines():
            sentence = words.ADVICE.sub("", _CAMEL.sub("_", line).casefold())
            if words.REFUSES_FIELD.search(sentence) and _is_named(sentence, field):
                return True
    return False


def _is_named(sentence: str, field: str) -> bool:
    """Tell whether a sentence has the name of a field, one of an ordinary word marked as a name."""
    name = re.escape(field)
    if "_" in field:
        return bool(re.search(rf"(?<!\w){name}(?!\w)", sentence, re.ASCII))
    quoted = rf"['\"`]{name}['\"`]|(?<!\w){name}=|[:.,(] ?{name}\s*(?:$|[,:.)\]])|^{name}:"
    beside = (
        rf"(?:parameters?|fields?|arguments?|property|option|unsupported|unknown|invalid|support)"
        rf" {name}\b|(?<!\w)(?<!image )(?<!file ){name} (?:is|are|must|should|can|does|parameter)"
    )
    return bool(re.search(f"{quoted}|{beside}", sentence))
