"""The metric `http-score`: a reward model behind a server of your own."""

import math
import os
from typing import Any

from pytest_imgedit.core import errors, strict_json
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds.base import Composition, Metric, Where, indifferent
from pytest_imgedit.kinds.checkpoint_files import Digests
from pytest_imgedit.kinds.sent_images import SentImages
from pytest_imgedit.kinds.server import (
    BETWEEN_URLS,
    ServedModel,
    Server,
    ServerParameters,
    is_url,
)

#: Headers that the client takes from the environment.
OPENAI_HEADERS = ("OpenAI-Organization", "OpenAI-Project")


def parse_url(argument: str) -> str:
    """Return the URL to which questions are posted; raise `UsageError` for anything else, and for a
    URL with credentials, a query or a fragment.
    """
    expected = "expected http-score:URL, such as http-score:http://localhost:9000/score"
    if BETWEEN_URLS.search(argument):
        raise errors.UsageError(f"http-score:{argument}: several URLs, {expected}")
    if "@" in argument or "?" in argument:
        raise errors.UsageError(f"http-score:…: a URL with credentials or a query, {expected}")
    if not is_url(argument) or "#" in argument:
        raise errors.UsageError(f"http-score:{argument}: no http or https URL, {expected}")
    return argument


class HTTPScoreParameters(ServerParameters):
    """What the metric `http-score` takes."""

    api_key_env: str = indifferent(
        "HTTP_SCORE_API_KEY",
        description="the environment variable with the key, which is sent as a bearer token; a "
        "key in a config file is refused",
    )


class ScoreServer(Server):
    """A server that scores what is posted to its URL."""

    @property
    def client(self) -> dict[str, Any]:
        """The arguments of a client that sends none of the headers meant for OpenAI's server."""
        from openai import Omit

        names = list(OPENAI_HEADERS)
        for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines():
            names.append(line.partition(":")[0].strip())
        return {**super().client, "default_headers": dict.fromkeys(names, Omit())}

    def probe(self, client: Any) -> Any:
        """Ask for the URL itself, once; any answer will do but a refusal of the key."""
        return client.with_options(max_retries=0).get(self.url, cast_to=str)


class HTTPScorer:
    """Posts questions to a URL, up to `concurrency` at a time; `params` are those of
    `HTTPScoreParameters`.
    """

    def __init__(self, url: str, *, device: str, **params: Any) -> None:
        del device
        options = HTTPScoreParameters.parse(params)
        # the client of OpenAI's package, for its retries and timeouts; the API is another one
        self.server = ScoreServer(parse_url(url), "", options, field="")
        self.server.check()

        self.concurrency = options.concurrency
        self._images = SentImages()
        self._client = self.server.connect_async()

    async def ask(self, question: Question[bytes]) -> Answer:
        """Score a question; a request that still fails after its retries yields its error. Raise
        `ImageError`, which begins with the image's name, if one does not decode.
        """
        try:
            return read_reply(await self.send(question))
        except errors.ImageError:
            raise
        except Exception as error:  # of this question alone
            return self.server.failed(error)

    async def send(self, question: Question[bytes]) -> str:
        """Return the text of the response to a question; raise what the client raises, and
        `ImageError`.
        """
        body: strict_json.JsonObject = {
            **self.server.options.extra,
            "instruction": question.instruction,
            "category": question.category,
        }
        for name in question.images:  # `source-2` and so on among them
            encoded = await self._images.base64_of(question, name)
            body[name] = encoded.decode("ascii")
        text: str = await self._client.post(self.server.url, body=body, cast_to=str)
        return text

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def read_reply(reply: str) -> Answer:
    """Return the score of a reply. Anything but `{"score": NUMBER}`, further keys aside, is an
    error, and so is a reply whose key `error` is not empty.
    """
    try:
        fields = strict_json.loads(reply)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        fields = {}
    score = fields.get("score")
    problem = fields.get("error")
    if problem:
        shown = shorten(" ".join(str(problem).split()), 200)
        return Answer(error=f"the server answered the error {shown!r}")
    if isinstance(score, bool) or not isinstance(score, int | float) or not _is_finite(score):
        shown = shorten(" ".join(reply.split()), 200)
        return Answer(error=f'the server answered {shown!r}, expected {{"score": NUMBER}}')
    return Answer(score=float(score))


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float holds
        return False


class HTTPScore(Metric, ServedModel):
    """The score that a server of your own answers."""

    name = "http-score"
    takes = "URL"
    worker = HTTPScorer
    Params = HTTPScoreParameters

    def servers(self) -> list[Server]:
        return [ScoreServer(parse_url(self.argument or ""), "", self.options)]

    def compose(self, where: Where, digests: Digests) -> Composition:
        return Composition({"server": self.server().url})
