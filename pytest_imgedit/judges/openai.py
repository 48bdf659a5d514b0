"""A judge behind any server with OpenAI's chat completions: vLLM, SGLang, transformers serve, or a commercial one."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.core.sanitize import plain
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.models.openai import OpenAIParameters
from pytest_imgedit.models.servers import parse_endpoint

#: A server that says that an answer took more tokens is not believed.
MAX_TOKENS = 2**53


class OpenAIJudge:
    """Asks `URL#MODEL`, up to `concurrency` questions at a time; `params` are those of `OpenAIParameters`."""

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        del device  # it computes elsewhere
        options = OpenAIParameters.parse(params)
        self.asking = options.asking(parse_endpoint("openai", endpoint))
        self.asking.check()
        from openai import AsyncOpenAI

        self.max_pixels = options.max_pixels
        #: Twice as many as at a time, so that a slow answer holds up few others.
        self.batch_size = 2 * options.concurrency
        self.request: JsonObject = {"model": self.asking.endpoint.model, options.token_limit: options.max_new_tokens}
        if options.temperature != "default":
            self.request["temperature"] = options.temperature
        if options.extra:
            self.request["extra_body"] = options.extra
        self._runner = asyncio.Runner()  # one loop for good, to which the client's connections belong
        self._free = asyncio.Semaphore(options.concurrency)
        self._client = AsyncOpenAI(**self.asking.client)

    def preprocess(self, question: Question) -> list[JsonObject]:
        """Turn a question into the messages of a chat, images as PNG in data URLs."""
        content: list[JsonObject] = []
        for kind, value in question.parts:
            if kind == "image":
                url = data_url(fit(question.images[value], self.max_pixels))
                content.append({"type": "image_url", "image_url": {"url": url}})
            else:
                content.append({"type": "text", "text": plain(value)})
        return [{"role": "system", "content": plain(question.system)}, {"role": "user", "content": content}]

    def answer(self, questions: Sequence[Question], prepared: Sequence[list[JsonObject]] | None = None) -> list[Answer]:
        """Answer questions; one whose request fails for good is answered by its error."""
        chats = prepared or [self.preprocess(question) for question in questions]
        return self._runner.run(self._all(chats))

    async def _all(self, chats: Sequence[list[JsonObject]]) -> list[Answer]:
        return list(await asyncio.gather(*(self._ask(chat) for chat in chats)))

    async def _ask(self, messages: Any) -> Answer:
        async with self._free:
            try:
                completion = await self._client.chat.completions.create(messages=messages, **self.request)
                return read_completion(completion)
            except Exception as error:  # of this question alone
                return Answer(error=self.asking.describe(error))


def read_completion(completion: Any) -> Answer:
    """Make an answer of a chat completion; raises whatever reading one that lacks its fields raises."""
    usage = getattr(completion, "usage", None)
    counts = (getattr(usage, "prompt_tokens", 0), getattr(usage, "completion_tokens", 0))
    tokens_in, tokens_out = (count if type(count) is int and 0 <= count < MAX_TOKENS else 0 for count in counts)
    return replace(_read_choice(completion.choices[0]), tokens_in=tokens_in, tokens_out=tokens_out)


def _read_choice(choice: Any) -> Answer:
    refusal = getattr(choice.message, "refusal", None)
    if refusal or choice.finish_reason == "content_filter":
        return Answer(error=f"the model refuses to answer: {refusal or 'content filter'}")
    cut = choice.finish_reason == "length"
    content = "" if cut and choice.message.content is None else choice.message.content  # it may have thought only
    if not isinstance(content, str):
        return Answer(error=f"an answer without text (finish_reason {choice.finish_reason!r})")
    return Answer(content.strip(), cut=cut)


def fit(image: Image.Image, max_pixels: int) -> Image.Image:
    """Make an image smaller, keeping its shape, until it has at most so many pixels."""
    width, height = image.size
    if width * height <= max_pixels:
        return image
    scale = math.sqrt(max_pixels / (width * height))
    size = (max(1, math.floor(width * scale)), max(1, math.floor(height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS)


def data_url(image: Image.Image) -> str:
    """Return an image as a `data:` URL of its PNG."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(image)).decode('ascii')}"
