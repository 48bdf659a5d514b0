"""Errors inside of answers with status 200, and what any error says in one line."""

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds.server_refusals import is_refusal

#: A whole number of more digits is not read.
MAX_DIGITS = 100
#: Finish reasons of a reply that the server has lost, with the status that this amounts to.
LOST = {
    "error": 502,  # OpenRouter
    "network_error": 502,  # Zhipu
    "insufficient_system_resource": 503,  # DeepSeek
}
#: Statuses by the words of a code, a type or a status, without case and marks between words.
_STATUSES = {
    "ratelimit": 429,
    "toomanyrequests": 429,
    "throttling": 429,
    "resourceexhausted": 429,
    "insufficientquota": 402,
    "overload": 503,
    "unavailable": 503,
    "timeout": 504,
    "timedout": 504,
    "deadlineexceeded": 504,
    "badgateway": 502,
    "upstream": 502,
    "internal": 500,
    "servererror": 500,
    "apierror": 500,
    "authentication": 401,
    "unauthenticated": 401,
    "unauthorized": 401,
    "invalidapikey": 401,
    "permission": 403,
    "notfound": 404,
    "invalid": 400,
    "badrequest": 400,
}
#: Statuses by a provider's own number of an error.
_NUMBERS = {
    "1302": 429,  # Zhipu: requests at a time
    "1303": 429,  # Zhipu: requests a minute
    "1305": 429,  # Zhipu: too many requests at the moment
    "1002": 429,  # MiniMax
}
_MARKS = re.compile(r"[\s_-]+")
_TITLE = re.compile(r"<(?:title|h1)[^>]{0,200}>([^<]{1,300})", re.IGNORECASE)
_TAG = re.compile(r"<[!/?a-zA-Z][^<>]{0,2000}>")
#: The most characters of a sentence that names a status, those of a page that are read, and those
#: of an error in one line.
_SENTENCE = 200
_PAGE = 10_000
_LINE = 500
#: Begins each line of a stream that holds an event.
_EVENT = "data:"
_STATUS_IN_TITLE = re.compile(r"\b([45]\d\d)\b")


@dataclass(frozen=True)
class Failure:
    """An error in an answer with status 200: the status that it amounts to, and the reason in
    words.
    """

    status: int
    reason: str


def failure_in(text: str, field: str) -> Failure | None:
    """Return the error in the text of a response with status 200; `None` if it is an answer.

    `field` is what an answer has, `choices` or `data`; it is empty for a server of another kind. An
    error that names no status is final (400); a response without error or field may be retried
    (502).
    """
    body = parse(text)
    if not isinstance(body, dict):
        return _failure_of_text(text)
    error = _error_of(body, field)
    if error is not None:
        status = 400 if is_refusal(400, error) else status_of(error)
        return Failure(status, f"with an error: {sentence_of(error)}")
    if not field or body.get(field):
        return _lost_reply(body)
    if is_refusal(400, body):
        return Failure(400, f"without {field}: {sentence_of(body)}")
    message = message_of(body)
    if message:
        return Failure(status_of(body), f"without {field}: {message}")
    return Failure(502, f"without {field}")


def _failure_of_text(text: str) -> Failure | None:
    """Return the failure whose status a page names in its title, or a text in its only sentence;
    `None` if they name none.
    """
    sentence = sentence_of(text)
    if len(sentence) > _SENTENCE or not sentence.isprintable():
        return None
    number = _STATUS_IN_TITLE.search(sentence)
    status = int(number[1]) if number else _status_in(sentence)
    return Failure(status, f"with a text: {sentence}") if status else None


def _error_of(body: Mapping[str, Any], field: str) -> Any:
    """Return the error object, or text, of a body; `None` without one."""
    if body.get("error"):
        return body["error"]
    if body.get("object") == "error":
        return body
    first_error = first_of(body.get("errors"))  # Cloudflare
    if first_error:
        return first_error
    choice = first_of(body.get("choices"))
    if field == "choices" and choice.get("error"):
        return choice["error"]
    status = body.get("base_resp")  # MiniMax
    if isinstance(status, dict) and status.get("status_code"):
        return status
    return None


def _lost_reply(body: Mapping[str, Any]) -> Failure | None:
    """Return the failure of a reply that the server lost, by its finish reason; else `None`."""
    reason = first_of(body.get("choices")).get("finish_reason")
    status = LOST.get(str(reason).casefold())
    return Failure(status, f"with finish_reason {reason!r}") if status else None


def status_of(error: Any) -> int:
    """Return the HTTP status that an error names: by a number, by the words of its code, or by
    those of its sentence; 400 if it names none.
    """
    if not isinstance(error, dict):
        return _status_in(str(error)) or 400
    nested = error.get("error")
    if isinstance(nested, dict):
        return status_of(nested)
    codes = [str(error.get(name)) for name in ("code", "status", "status_code", "type")]
    for code in codes:
        if re.fullmatch(r"[45]\d\d", code):
            return int(code)
        if code in _NUMBERS:
            return _NUMBERS[code]
    for words in codes + [message_of(error)]:
        status = _status_in(words)
        if status:
            return status
    return 400


def _status_in(words: str) -> int:
    """Return the status that words mean; 0 if they mean none."""
    folded = _MARKS.sub("", words).casefold()
    return next((status for name, status in _STATUSES.items() if name in folded), 0)


def sentence_of(error: Any) -> str:
    """Return an error in one line: its message or, without one, the whole body, with what a gateway
    cites of another server's error; of a page, its title or text; any other text as it is.
    """
    if isinstance(error, dict):
        text = message_of(error) or json.dumps(error, ensure_ascii=False, default=str)
        metadata = error.get("metadata")
        cited = metadata.get("raw") if isinstance(metadata, dict) else None
        if isinstance(cited, str) and cited not in text:  # OpenRouter
            text = f"{text}: {cited}"
    else:
        text = str(error)
    return shorten(" ".join(_without_tags(text).split()), _LINE)


def _without_tags(text: str) -> str:
    """Return the title of a page, or its text without tags; any other text as it is."""
    if not _TAG.match(text.lstrip()):
        return text
    page = text[:_PAGE]
    title = _TITLE.search(page)
    return html.unescape(title[1] if title else _TAG.sub(" ", page))


def is_page(text: str) -> bool:
    """Tell whether a text is a page of HTML."""
    head = text[:_PAGE].lstrip().casefold()
    return head.startswith("<") and ("<html" in head or head.startswith("<!doctype html"))


def message_of(error: Mapping[str, Any]) -> str:
    """Return the message of an error, wherever it stands; empty without one."""
    for name in ("message", "detail", "msg", "status_msg", "error_msg", "error"):
        value = error.get(name)
        if isinstance(value, dict):
            message = message_of(value)
            if message:
                return message
        if isinstance(value, str) and value.strip():
            return value
    return ""


def parse(text: str) -> Any:
    """Return the JSON of an answer, a streamed one put together; `None` for anything else. Of a
    list whose first item holds an error, as from Gemini, return that item.
    """
    try:
        body = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return _streamed(text)
    return body[0] if "error" in first_of(body) else body


def _whole_number(digits: str) -> int | None:
    """Return a whole number; `None` for one of over `MAX_DIGITS` digits, which `int` may refuse."""
    return int(digits) if len(digits) <= MAX_DIGITS else None


def _streamed(text: str) -> Any:
    """Return the chat completion that the events of a stream make; `None` if the text is none."""
    lines = [line for line in text.splitlines() if line.startswith(_EVENT)]
    events = [line.removeprefix(_EVENT).strip() for line in lines]
    try:
        chunks = [
            json.loads(event, parse_int=_whole_number)
            for event in events
            if event not in ("", "[DONE]")
        ]
    except (ValueError, RecursionError):
        return None
    chunks = [chunk for chunk in chunks if isinstance(chunk, dict)]
    return _assembled(chunks) if chunks else None


def _assembled(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the chat completion that the chunks of a stream make.

    The texts of its parts are joined, and of other fields the last value counts. A stream without a
    finish reason ended too early, so its finish reason says that there was none.
    """
    body: dict[str, Any] = {}
    texts: dict[str, str] = {}
    reason = None
    for chunk in chunks:
        body.update({name: value for name, value in chunk.items() if value is not None})
        choice = first_of(chunk.get("choices"))
        if choice.get("error"):
            body["error"] = choice["error"]
        reason = choice.get("finish_reason") or reason
        delta = choice.get("delta") or choice.get("message")
        for name, value in (delta if isinstance(delta, dict) else {}).items():
            if isinstance(value, str) and name != "role":
                texts[name] = texts.get(name, "") + value
    if any("choices" in chunk for chunk in chunks):
        message = {"content": None, **texts}
        body["choices"] = [{"message": message, "finish_reason": reason or "a stream without one"}]
    return body


def first_of(items: Any) -> dict[str, Any]:
    """Return the first of several objects; an empty one if there is none."""
    if isinstance(items, list) and items and isinstance(items[0], dict):
        return items[0]
    return {}
