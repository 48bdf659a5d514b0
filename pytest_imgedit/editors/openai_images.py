"""An editor behind any server with OpenAI's images/edits."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from PIL import Image

from pytest_imgedit.core.errors import ImageError, OutputError
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.models.openai import OpenAIImagesParameters
from pytest_imgedit.models.servers import parse_endpoint


class OpenAIImagesEditor:
    """Asks `URL#MODEL` for one image a request, one request at a time; the harness runs `concurrency` such workers.

    `params` are those of `OpenAIImagesParameters`.
    """

    def __init__(self, endpoint: str, *, device: str, **params: Any) -> None:
        del device  # it computes elsewhere
        options = OpenAIImagesParameters.parse(params)
        self.asking = options.asking(parse_endpoint("openai-images", endpoint))
        self.asking.check()
        from openai import OpenAI

        self.send_seed, self.extra = options.send_seed, options.extra
        self.request: JsonObject = {"model": self.asking.endpoint.model}
        self.request |= {"size": options.size} if options.size else {}
        self.request |= {"response_format": options.response_format} if options.response_format else {}
        self._client = OpenAI(**self.asking.client)

    def edit(self, request: EditRequest) -> Image.Image:
        """Edit one image; raises `OutputError` for an answer without one, `RuntimeError` for a failed request."""
        import openai

        body = {**self.extra, **({"seed": request.seed} if self.send_seed else {})}
        try:
            answer = self._client.images.edit(
                image=("source.png", encode_png(request.source), "image/png"),
                prompt=request.instruction,
                extra_body=body or None,
                **self.request,
            )
        except openai.OpenAIError as error:
            raise RuntimeError(self.asking.describe(error)) from None
        first = answer.data[0] if answer.data else None
        if first is None or first.b64_json is None:
            has_url = getattr(first, "url", None) is not None
            hint = '; editor.response_format="b64_json" may help' if has_url else ""
            raise OutputError(f"the server sent {'a URL' if has_url else 'nothing'}, expected an image{hint}")
        try:
            return decode(base64.b64decode(first.b64_json, validate=True))
        except (binascii.Error, ImageError) as error:
            raise OutputError(f"the server sent no image: {error}") from None
