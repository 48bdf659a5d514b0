"""The judge `openai`: any server with OpenAI's chat completions, such as vLLM or SGLang."""

import json
import math
import re
import secrets
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_imgedit.core import errors, requests
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import plain
from pytest_imgedit.kinds.base import Requirements, indifferent
from pytest_imgedit.kinds.replicas import Replicas
from pytest_imgedit.kinds.sent_images import SentImages
from pytest_imgedit.kinds.server import ServedModel, Server, ServerParameters, parse_endpoints
from pytest_imgedit.kinds.server_answers import read_completion
from pytest_imgedit.kinds.server_logprobs import REQUEST, with_digits

#: Fields of a request for the most tokens of a reply: the first is refused by models that think.
MAX_TOKENS = "max_tokens"
MAX_COMPLETION_TOKENS = "max_completion_tokens"
#: Stands for the base64 of an image in a body; no text of a prompt has it.
IMAGE = secrets.token_hex(16)
#: Tokens of an image to GPT-4o and GPT-4.1 at the level of detail `low`.
TOKENS_OF_LOW_DETAIL = 85


class OpenAIParameters(ServerParameters):
    """What the judge `openai` takes."""

    max_new_tokens: int = Field(
        default=128, ge=1, description="length of a reply; longer if the protocol needs it"
    )
    max_pixels: int = Field(
        default=1_048_576,
        ge=1024,
        description="larger images are downscaled, keeping their aspect ratio, and sent as PNG, "
        "unless the protocol prepares them",
    )
    temperature: Literal["default"] | Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.0, description='`"default"` sends none, for models that refuse it'
    )
    scoring: Literal["greedy", "expected"] = Field(
        default="greedy",
        description='`"expected"`: scores are made of expected grades, over the probabilities that '
        "the server sends (`logprobs`); scales of one-digit numbers only",
    )
    token_limit: Literal["auto", "max_tokens", "max_completion_tokens"] = indifferent(
        "auto",
        description='the request\'s field for the length of a reply; `"auto"` is `max_tokens`, or '
        "`max_completion_tokens` once the server refuses that",
    )
    price_in: float = indifferent(
        0.0, ge=0, allow_inf_nan=False, description="price of a million tokens in the prompt"
    )
    price_out: float = indifferent(
        0.0, ge=0, allow_inf_nan=False, description="price of a million tokens of replies"
    )


class OpenAIJudge:
    """Asks `URL,URL#MODEL`, up to `concurrency` questions at a time of each server; `params` are
    those of `OpenAIParameters`.
    """

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        options = OpenAIParameters.parse(params)
        urls, model = parse_endpoints("openai", endpoint)
        servers = [Server(url, model, options) for url in urls]
        self.server = servers[0]
        self.server.check()
        self.concurrency = options.concurrency * len(servers)
        self.max_pixels = options.max_pixels
        self.max_new_tokens = options.max_new_tokens
        self.token_limit: str = options.token_limit
        self.request: JsonObject = {"model": model}
        if options.temperature != "default":
            self.request["temperature"] = options.temperature
        self.expects_grades = options.scoring == "expected"
        if self.expects_grades:
            self.request |= REQUEST
        #: Takes a line for the user; the worker sets it.
        self.on_note: Callable[[str], None] = lambda text: None
        self._replicas = Replicas(servers, options.concurrency, lambda text: self.on_note(text))
        self._images = SentImages()

    async def ask(self, question: requests.Question[bytes]) -> requests.Answer:
        """Answer a question; a request that still fails after its retries yields its error. Raise
        `ImageError`, which begins with the image's name, if one does not decode.
        """
        try:
            text = await self.send(question)
        except errors.ImageError:
            raise
        except Exception as error:  # of this question alone
            return self.server.failed(error, self._body(question))
        answer = read_completion(text)
        return with_digits(answer, text) if self.expects_grades else answer

    async def send(self, question: requests.Question[bytes]) -> str:
        """Return the text of the response to a question; raise what the client raises, and
        `ImageError`.
        """
        token_limit = self.token_limit  # which another question may change meanwhile
        try:
            return await self._post(question)
        except Exception as error:
            refused = self.server.final(error, [MAX_TOKENS])
            if refused is None or refused.parameters != (MAX_TOKENS,) or token_limit != "auto":
                raise
        self.token_limit = MAX_COMPLETION_TOKENS
        return await self._post(question)

    async def _post(self, question: requests.Question[bytes]) -> str:
        return await self._replicas.post("/chat/completions", await self._encoded(question))

    async def _encoded(self, question: requests.Question[bytes]) -> bytes:
        """Return the JSON of the request that asks a question."""
        images = [
            await self._images.base64_of(question, value, self.max_pixels)
            for kind, value in question.parts
            if kind == "image"
        ]
        return with_images(self._body(question), images)

    def _body(self, question: requests.Question[bytes]) -> JsonObject:
        """Return the body of a request, whose data URLs have `IMAGE` in place of base64."""
        limit = MAX_TOKENS if self.token_limit == "auto" else self.token_limit
        length = max(self.max_new_tokens, question.max_new_tokens)
        messages = self._messages(question)
        return {**self.request, "messages": messages, limit: length, **self.server.options.extra}

    async def close(self) -> None:
        """Close the connections."""
        await self._replicas.close()

    def _messages(self, question: requests.Question[bytes]) -> list[JsonObject]:
        """Return the messages of a chat that ask a question, without an empty system prompt; each
        data URL of an image has `IMAGE` in place of its base64.
        """
        content: list[JsonObject] = []
        preparation = question.preparation
        codec = preparation.codec or "png"
        for kind, value in question.parts:
            if kind == "image":
                url = {"url": f"data:image/{codec};base64,{IMAGE}"}
                if preparation.detail:
                    url["detail"] = preparation.detail
                content.append({"type": "image_url", "image_url": url})
            else:
                content.append({"type": "text", "text": plain(value)})
        messages: list[JsonObject] = [{"role": "user", "content": content}]
        if question.system:
            messages.insert(0, {"role": "system", "content": plain(question.system)})
        return messages


def with_images(body: JsonObject, images: Sequence[bytes]) -> bytes:
    """Return the JSON of a request's body, with base64 of images, in order, for each `IMAGE`.

    Base64 needs no escapes, so that the JSON encoder does not have to go through megabytes of it.
    """
    texts = json.dumps(body).encode("ascii").split(IMAGE.encode("ascii"))
    pieces: list[bytes] = []
    for text, image in zip_longest(texts, images, fillvalue=b""):
        pieces += [text, image]
    return b"".join(pieces)


def _tokens_in_patches(width: int, height: int, side: int, least: int) -> float:
    """Return the tokens that Qwen-VL makes of an image: one for each patch of `side` pixels a side,
    and at least `least`.
    """
    count = max(1, round(width / side)) * max(1, round(height / side))
    return max(count, least)


def _tokens_in_tiles(width: int, height: int) -> float:
    """Return the tokens that GPT-4o and GPT-4.1 make of an image: 85, and 170 for each tile of 512
    pixels once it fits into 2048 x 2048 and its shorter side into 768.
    """
    scale = min(1.0, 2048 / max(1, width, height), 768 / max(1, min(width, height)))
    tiles = math.ceil(width * scale / 512) * math.ceil(height * scale / 512)
    return TOKENS_OF_LOW_DETAIL + 170 * tiles


class OpenAI(ServedModel):
    """A server with OpenAI's chat completions: vLLM, SGLang, `transformers serve`, commercial ones.
    It needs no GPU here, so scoring overlaps editing.
    """

    role = "judge"
    name = "openai"
    worker = OpenAIJudge
    grades_by_digits = True
    Params = OpenAIParameters
    options: OpenAIParameters

    def servers(self) -> list[Server]:
        urls, model = parse_endpoints(self.name, self.argument or "")
        return [Server(url, model, self.options) for url in urls]

    @property
    def expects_grades(self) -> bool:
        return self.options.scoring == "expected"

    @property
    def requirements(self) -> Requirements:
        return Requirements(self.libraries, prices=(self.options.price_in, self.options.price_out))

    @property
    def reply_limit(self) -> int:
        return self.options.max_new_tokens

    def image_tokens(self, width: int, height: int, preparation: requests.Preparation) -> float:
        """Return about how many tokens the model makes of an image of this size, in pixels, after
        it is shrunk as `preprocess` does; the rule is that of Qwen-VL or OpenAI's models if the
        model's name says so.
        """
        if width * height > self.options.max_pixels and not preparation.codec:
            scale = math.sqrt(self.options.max_pixels / (width * height))
            width = math.floor(width * scale)
            height = math.floor(height * scale)
        name = self.server().model.casefold()
        if "qwen2" in name:
            return _tokens_in_patches(width, height, side=28, least=1)
        if "qwen" in name:
            return _tokens_in_patches(width, height, side=32, least=64)
        if re.match(r"gpt-|chatgpt-|o\d", name):
            is_low = preparation.detail == "low"
            return TOKENS_OF_LOW_DETAIL if is_low else _tokens_in_tiles(width, height)
        return super().image_tokens(width, height, preparation)
