"""The judge `openai`: any server with OpenAI's chat completions, such as vLLM or SGLang."""

import asyncio
import base64
import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from PIL import Image
from pydantic import Field

from pytest_imgedit.core import images, requests
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import plain
from pytest_imgedit.kinds.base import Requirements, indifferent
from pytest_imgedit.kinds.server import (
    ServedModel,
    Server,
    ServerParameters,
    has_refused,
    parse_endpoint,
)
from pytest_imgedit.kinds.server_answers import read_completion

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
    token_limit: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens",
        description="the request's field for the length of a reply; reasoning models take "
        '`"max_completion_tokens"`',
    )
    price_in: float = indifferent(
        0.0, ge=0, allow_inf_nan=False, description="price of a million tokens in the prompt"
    )
    price_out: float = indifferent(
        0.0, ge=0, allow_inf_nan=False, description="price of a million tokens of replies"
    )


class OpenAIJudge:
    """Asks `URL#MODEL`, up to `concurrency` questions at a time; `params` are those of
    `OpenAIParameters`.
    """

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        options = OpenAIParameters.parse(params)
        url, model = parse_endpoint("openai", endpoint)
        self.server = Server(url, model, options)
        self.server.check()
        self.max_pixels = options.max_pixels
        self.max_new_tokens = options.max_new_tokens
        self.token_limit = options.token_limit
        #: Twice as many as at a time, so that a slow answer holds up few others.
        self.batch_size = 2 * options.concurrency
        self.request: JsonObject = {"model": self.server.model}
        if options.temperature != "default":
            self.request["temperature"] = options.temperature
        self._runner = asyncio.Runner()  # one loop for all calls, to which connections belong
        self._free = asyncio.Semaphore(options.concurrency)
        self._client = self.server.connect_async()

    def preprocess(self, question: requests.Question) -> list[JsonObject]:
        """Return the messages of a chat that ask a question, with images in data URLs and without
        an empty system prompt. Images are shrunk to `max_pixels` unless the protocol prepares them.
        """
        content: list[JsonObject] = []
        preparation = question.preparation
        for kind, value in question.parts:
            if kind == "image":
                image = question.images[value]
                if not preparation.codec:
                    image = fit(image, self.max_pixels)
                url = {"url": data_url(image, preparation)}
                if preparation.detail:
                    url["detail"] = preparation.detail
                content.append({"type": "image_url", "image_url": url})
            else:
                content.append({"type": "text", "text": plain(value)})
        messages: list[JsonObject] = [{"role": "user", "content": content}]
        if question.system:
            messages.insert(0, {"role": "system", "content": plain(question.system)})
        return messages

    def answer(
        self,
        questions: Sequence[requests.Question],
        prepared: Sequence[list[JsonObject]] | None = None,
    ) -> list[requests.Answer]:
        """Answer questions; a request that still fails after its retries yields its error."""
        chats = prepared or [self.preprocess(question) for question in questions]
        lengths = [max(self.max_new_tokens, question.max_new_tokens) for question in questions]
        return self._runner.run(self._all(chats, lengths))

    async def _all(
        self, chats: Sequence[list[JsonObject]], lengths: Sequence[int]
    ) -> list[requests.Answer]:
        return await asyncio.gather(*map(self._ask, chats, lengths))

    async def _ask(self, messages: Any, length: int) -> requests.Answer:
        """Return the answer to one chat, once fewer than `concurrency` others wait for one; it is
        at most `length` tokens long. A failed request is an error.
        """
        body = {**self.request, "messages": messages, self.token_limit: length}
        body |= self.server.options.extra
        async with self._free:
            try:
                text = await self._client.post("/chat/completions", body=body, cast_to=str)
            except Exception as error:  # of this question alone
                return requests.Answer(
                    error=self.server.describe(error), refused=has_refused(error)
                )
        return read_completion(text)


def fit(image: Image.Image, max_pixels: int) -> Image.Image:
    """Return an image shrunk to at most `max_pixels`, with its aspect ratio; a smaller one as it
    is.
    """
    width, height = image.size
    if width * height <= max_pixels:
        return image
    scale = math.sqrt(max_pixels / (width * height))
    return image.resize(
        (max(1, math.floor(width * scale)), max(1, math.floor(height * scale))),
        Image.Resampling.LANCZOS,
    )


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


def data_url(image: Image.Image, preparation: requests.Preparation) -> str:
    """Return an image as a `data:` URL of its JPEG if that is the codec, else of its PNG."""
    if preparation.codec == "jpeg":
        codec = "jpeg"
        data = images.encode_jpeg(image, preparation.quality)
    else:
        codec = "png"
        data = images.encode_png(image)
    return f"data:image/{codec};base64,{base64.b64encode(data).decode('ascii')}"


class OpenAI(ServedModel):
    """A server with OpenAI's chat completions: vLLM, SGLang, `transformers serve`, commercial ones.
    It needs no GPU here, so scoring overlaps editing.
    """

    role = "judge"
    name = "openai"
    worker = OpenAIJudge
    Params = OpenAIParameters
    options: OpenAIParameters

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
