"""The editor `openai-images`: any server with OpenAI's images/edits."""

from typing import Any, Literal

from PIL import Image
from pydantic import Field

from pytest_imgedit.core import errors, images, requests
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import Requirements
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


class OpenAIImagesEditor:
    """Asks `URL#MODEL` for one image a request, one request at a time; the harness runs
    `concurrency` such workers.

    `params` are those of `OpenAIImagesParameters`.
    """

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        self.options = OpenAIImagesParameters.parse(params)
        url, model = parse_endpoint("openai-images", endpoint)
        self.server = Server(url, model, self.options, "data")
        self.server.check()
        fields = self.options.model_dump(include={"size", "response_format"})
        self.request: JsonObject = {name: value for name, value in fields.items() if value}
        self._client = self.server.connect()

    def edit(self, request: requests.EditRequest) -> Image.Image:
        """Edit one image; raise `OutputError` for an answer without one, `Refused` for a request
        that a content filter refused, `RuntimeError` for one that failed otherwise.
        """
        import openai

        seed = {"seed": request.seed} if self.options.send_seed else {}
        try:
            answer = self._client.images.with_raw_response.edit(
                model=self.server.model,
                image=_source_files(request),
                prompt=request.instruction,
                extra_body={**self.options.extra, **seed} or None,
                **self.request,
            )
        except openai.OpenAIError as error:
            kind = errors.Refused if has_refused(error) else RuntimeError
            raise kind(self.server.describe(error)) from None
        return read_image(answer.http_response.content)


def _source_files(request: requests.EditRequest) -> Any:
    """Return the source images as the client takes files, (name, PNG, media type): one, or a list
    of several.
    """
    first = ("source.png", images.encode_png(request.source), "image/png")
    if not request.further:
        return first
    files = [first]
    for number, image in enumerate(request.further, 2):
        files.append((f"source-{number}.png", images.encode_png(image), "image/png"))
    return files


class OpenAIImages(ServedModel):
    """A server with OpenAI's images/edits."""

    role = "editor"
    name = "openai-images"
    takes_further = True
    worker = OpenAIImagesEditor
    Params = OpenAIImagesParameters
    options: OpenAIImagesParameters

    @property
    def sends_seeds(self) -> bool:
        return self.options.send_seed

    @property
    def requirements(self) -> Requirements:
        return Requirements(self.libraries, concurrency=self.options.concurrency)
