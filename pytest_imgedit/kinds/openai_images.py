"""The editor `openai-images`: any server with OpenAI's images/edits."""

import asyncio
from typing import Any, Literal

from PIL import Image
from pydantic import Field

from pytest_imgedit.core import errors, images, requests
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import indifferent
from pytest_imgedit.kinds.server import (
    ServedModel,
    Server,
    ServerParameters,
    has_refused,
    parse_endpoint,
)
from pytest_imgedit.kinds.server_answers import read_image


class OpenAIImagesParameters(ServerParameters):
    """What the editor `openai-images` takes."""

    size: str | None = Field(default=None, description="goes into the request")
    response_format: Literal["b64_json"] | None = Field(
        default=None, description='servers that answer with URLs need `"b64_json"`'
    )
    send_seed: bool = Field(default=False, description="the pair's seed goes into the request")
    max_sources: int | None = indifferent(
        None,
        ge=1,
        description="the most source images of a pair that the server takes; pairs with more end "
        "in errors",
    )


class OpenAIImagesEditor:
    """Asks `URL#MODEL` for one image a request, up to `concurrency` requests at a time; `params`
    are those of `OpenAIImagesParameters`.
    """

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        self.options = OpenAIImagesParameters.parse(params)
        url, model = parse_endpoint("openai-images", endpoint)
        self.server = Server(url, model, self.options, "data")
        self.server.check()
        fields = self.options.model_dump(include={"size", "response_format"})
        self.request: JsonObject = {name: value for name, value in fields.items() if value}
        self.concurrency = self.options.concurrency
        self._client = self.server.connect_async()

    async def edit(self, request: requests.EditRequest[bytes]) -> Image.Image:
        """Edit one image; raise `OutputError` for an answer without one, `ImageError` for a source
        that does not decode, `Refused` for a request that a content filter refused,
        `FailsForGood` for one that fails as every further one will, `RuntimeError` for one that
        failed otherwise.
        """
        import openai

        try:
            return await asyncio.to_thread(read_image, await self.send(request))
        except openai.OpenAIError as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> Exception:
        """Return the error of an edit whose request failed."""
        reason = self.server.describe(error)
        if has_refused(error):
            return errors.Refused(reason)
        if self.server.final(error, self._fields_sent) is not None:
            return errors.FailsForGood(reason)
        return RuntimeError(reason)

    @property
    def _fields_sent(self) -> list[str]:
        """The fields of each request."""
        fields = ["model", "image", "prompt", *self.request, *self.options.extra]
        return [*fields, "seed"] if self.options.send_seed else fields

    async def send(self, request: requests.EditRequest[bytes]) -> bytes:
        """Return the body of the response to a request; raise what the client raises, and
        `ImageError`.
        """
        seed = {"seed": request.seed} if self.options.send_seed else {}
        answer = await self._client.images.with_raw_response.edit(
            model=self.server.model,
            image=await asyncio.to_thread(_source_files, request),
            prompt=request.instruction,
            extra_body={**self.options.extra, **seed} or None,
            **self.request,
        )
        body: bytes = answer.http_response.content
        return body

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _source_files(request: requests.EditRequest[bytes]) -> Any:
    """Return the source images as the client takes files, (name, PNG, media type): one, or a list
    of several. Raise `ImageError`, which begins with the image's name, if one does not decode.
    """
    files = [
        (f"{name}.png", _png(name, data), "image/png")
        for name, data in request.named_sources.items()
    ]
    return files if request.further else files[0]


def _png(name: str, data: bytes) -> bytes:
    """Return an image as PNG: its stored bytes if these are one without further content."""
    if images.plain_png_size(data) is not None:
        return data
    return images.encode_png(requests.decoded(name, data))


class OpenAIImages(ServedModel):
    """A server with OpenAI's images/edits."""

    role = "editor"
    name = "openai-images"
    worker = OpenAIImagesEditor
    Params = OpenAIImagesParameters
    options: OpenAIImagesParameters

    @property
    def max_sources(self) -> int | None:
        return self.options.max_sources

    @property
    def why_fewer_sources(self) -> str:
        return f"editor.max_sources = {self.max_sources}"

    @property
    def sends_seeds(self) -> bool:
        return self.options.send_seed
