"""An editor behind any server with OpenAI's images/edits."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from pytest_imgedit.endpoints import CONCURRENCY, Asking, parse_endpoint
from pytest_imgedit.errors import ImageError, OutputError
from pytest_imgedit.images import decode, encode_png

if TYPE_CHECKING:
    from PIL import Image

    from pytest_imgedit.editors.base import EditRequest


class OpenAIImagesEditor:
    """Asks `URL#MODEL` for one image a request, one request at a time; the harness runs `concurrency` such workers.

    `asking` holds what `Asking` takes. `size` and what `extra` holds go into the request as they are; with
    `send_seed`, the pair's seed goes along as `seed`, for servers that take one. `response_format` may be
    `"b64_json"` for servers that would answer with a URL else.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        device: str,
        concurrency: int = CONCURRENCY,
        size: str | None = None,
        response_format: str | None = None,
        send_seed: bool = False,
        extra: dict[str, Any] | None = None,
        **asking: Any,
    ) -> None:
        del device, concurrency
        self.asking = Asking(parse_endpoint("openai-images", endpoint), **asking)
        self.asking.check()
        from openai import OpenAI

        self.send_seed, self.extra = send_seed, extra or {}
        self.request: dict[str, Any] = {"model": self.asking.endpoint.model}
        self.request |= {"size": size} if size else {}
        self.request |= {"response_format": response_format} if response_format else {}
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
        first: Any = (answer.data or [None])[0]
        if getattr(first, "b64_json", None) is None:
            has_url = getattr(first, "url", None) is not None
            hint = '; editor.response_format="b64_json" may help' if has_url else ""
            raise OutputError(f"the server sent {'a URL' if has_url else 'nothing'}, expected an image{hint}")
        try:
            return decode(base64.b64decode(first.b64_json, validate=True))
        except (binascii.Error, ImageError) as error:
            raise OutputError(f"the server sent no image: {error}") from None
