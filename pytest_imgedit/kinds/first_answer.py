"""The first request to a served model: its answer, or in one line why there will never be one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pytest_imgedit.core import errors
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.final_lines import Asked, Request, Said, final_line, refused_line
from pytest_imgedit.kinds.server import ServedModel, answered, has_refused, within
from pytest_imgedit.kinds.server_addresses import listed
from pytest_imgedit.kinds.server_answers import is_link, read_completion
from pytest_imgedit.kinds.server_changes import LINK, Changes
from pytest_imgedit.kinds.server_error_bodies import is_page, sentence_of
from pytest_imgedit.kinds.server_final import FinalFailure
from pytest_imgedit.kinds.server_logprobs import REQUEST, with_digits

#: How often a request is sent at most until all parameters that a server refuses are known.
TRIES = 8

Reply = str | bytes


@dataclass(frozen=True)
class FirstAnswer:
    """What came of a first request: the `reply` as the server sent it, or a `doubt`, which says why
    there is none though a later request may have one. Neither stands for a request that a content
    filter refused.
    """

    reply: Reply | None = None
    doubt: str = ""


@dataclass(frozen=True)
class _Attempt:
    """What came of one request: a reply or an error, what the server `said` with an error, and the
    final failure that it amounts to, if any.
    """

    reply: Reply | None = None
    error: Exception | None = None
    said: Said | None = None
    failure: FinalFailure | None = None

    @property
    def refused(self) -> tuple[str, ...]:
        """The fields of the request that the server does not take."""
        if self.failure is None or self.failure.cause != "parameters":
            return ()
        return tuple(self.failure.parameters)


def ask_first(model: ServedModel, request: Request, section: str) -> FirstAnswer:
    """Send a request to a served model, with the retries of its parameters.

    Raises `UsageError` for what the server would answer each time: to a wrong address, model or
    key, without quota, and to a request that the model does not take. If the server refuses
    parameters, the line names all changes that the `section` of a config needs. Raises `SetupError`
    as `Server.check` does.
    """
    asked = Asked(model, request, section)
    plain = _with_known_length(model)
    changes = Changes()
    attempt = first_attempt = _attempt(plain, request)
    for _ in range(TRIES - 1):
        further = changes.without_fields(attempt.refused, plain)
        if further == changes:
            break
        changes = further
        attempt = _attempt(changes.applied(plain), request)
    if attempt.failure is not None and attempt.said is not None and not attempt.refused:
        raise errors.UsageError(final_line(asked, attempt.failure.cause, attempt.said))
    needed = _needed(changes, model)
    if (needed or attempt.refused) and first_attempt.said is not None:
        line = refused_line(asked, first_attempt.said, needed, attempt.refused)
        raise errors.UsageError(line)
    if attempt.error is None:
        return FirstAnswer(attempt.reply)
    if has_refused(attempt.error):
        return FirstAnswer()
    return FirstAnswer(doubt=model.server().describe(attempt.error))


def ask_together(model: ServedModel, requests: Sequence[Request]) -> list[Reply]:
    """Send requests at the same time; return the replies to those that do not fail."""
    outcomes = within(None, partial(asyncio.run, _send(model, requests)))
    return [outcome for outcome in outcomes if isinstance(outcome, str | bytes)]


def _with_known_length(model: ServedModel) -> ServedModel:
    """Return a model whose client does not look for the right field for the length of a reply, so
    that what the server says of it is known.
    """
    if getattr(model.options, "token_limit", "") == "auto":
        return model.with_params(token_limit="max_tokens")
    return model


def _needed(changes: Changes, model: ServedModel) -> Changes:
    """Return the changes that the user has to make: not that of the field for the length alone,
    which the client makes by itself.
    """
    is_found = getattr(model.options, "token_limit", "") == "auto"
    return Changes() if is_found and not changes.but("token_limit") else changes


def _attempt(model: ServedModel, request: Request) -> _Attempt:
    """Send a request once, with the retries of the model's parameters."""
    (outcome,) = within(None, partial(asyncio.run, _send(model, [request])))
    if isinstance(outcome, str | bytes):
        return _reply(model, outcome)
    answer = answered(outcome)
    if answer is None or has_refused(outcome):
        return _Attempt(error=outcome)
    failure = model.server().final(outcome, _fields(model, request))
    return _Attempt(error=outcome, said=Said(*answer), failure=failure)


def _reply(model: ServedModel, reply: Reply) -> _Attempt:
    """Return what a reply with status 200 is: usually an answer, but also a page of a server that
    is no API, an answer without the logprobs of its tokens, or the address of an image.
    """
    text = reply[:10_000].decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    if is_page(text) and not listed(model.server()).is_api:
        said = Said(200, f"a page, {sentence_of(text)}")
        return _Attempt(reply, said=said, failure=FinalFailure("address", ()))
    if model.expects_grades and isinstance(reply, str):
        answer = with_digits(read_completion(reply), reply)
        if answer.final:
            said = Said(200, f"{answer.error}")
            return _Attempt(reply, said=said, failure=FinalFailure("parameters", ("logprobs",)))
    if isinstance(reply, bytes) and is_link(reply):
        said = Said(200, "a URL, expected an image")
        return _Attempt(reply, said=said, failure=FinalFailure("parameters", (LINK,)))
    return _Attempt(reply)


async def _send(model: ServedModel, requests: Sequence[Request]) -> list[Reply | BaseException]:
    """Send requests at the same time; return replies and errors."""
    worker = model.target.build("cpu", model.worker_params)
    try:
        return await asyncio.gather(*map(worker.send, requests), return_exceptions=True)
    finally:
        await worker.close()


def _fields(model: ServedModel, request: Request) -> list[str]:
    """Return the names of the fields of a request, in order, as far as parameters decide about
    them.
    """
    options: Any = model.options
    if isinstance(request, EditRequest):
        optional = [name for name in ("size", "response_format") if getattr(options, name, None)]
        fields = ["model", "image", "prompt", *optional]
        if model.sends_seeds:
            fields.append("seed")
        return [*fields, *options.extra]
    fields = ["model", "messages"]
    if getattr(options, "temperature", "default") != "default":
        fields.append("temperature")
    if hasattr(options, "token_limit"):
        fields.append(options.token_limit)
    if model.expects_grades:
        fields += REQUEST
    return [*fields, *options.extra]
