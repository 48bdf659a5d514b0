"""Images as they are sent to servers: stored bytes as they are where nothing is to change, and each
image encoded once.
"""

import asyncio
import base64
import math
from collections import OrderedDict
from dataclasses import dataclass

from PIL import Image

from pytest_imgedit.core import errors, images, requests

#: The most bytes of images, stored and encoded, that are kept for further questions.
MAX_KEPT = 256 * 2**20


@dataclass(frozen=True)
class Show:
    """How an image is shown: prepared as a protocol asks, in the `size` of the source if it is to
    have that, and with at most `max_pixels` unless the protocol names a codec.
    """

    preparation: requests.Preparation
    size: tuple[int, int] | None
    max_pixels: int | None

    def keeps(self, size: tuple[int, int]) -> bool:
        """Tell whether an image of this size, in pixels, is sent in its stored bytes."""
        preparation = self.preparation
        if preparation.codec == "jpeg" or self.size not in (None, size):
            return False
        if preparation.max_side is not None:
            return max(size) <= preparation.max_side
        if preparation.codec or self.max_pixels is None:
            return True
        return math.prod(size) <= self.max_pixels

    def encoded(self, data: bytes) -> bytes:
        """Return the bytes to send of a stored image; raise `ImageError` if it does not decode."""
        size = images.plain_png_size(data)
        if size is not None and self.keeps(size):
            return data
        image = self.preparation.resized_to(images.decode(data), self.size)
        if self.preparation.codec == "jpeg":
            return images.encode_jpeg(image, self.preparation.quality)
        if not self.preparation.codec and self.max_pixels is not None:
            image = fit(image, self.max_pixels)
        return images.encode_png(image)


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


class SentImages:
    """Encodes images in base64, each once as long as it is kept: of `MAX_KEPT` bytes, stored and
    encoded, those that were shown last.
    """

    def __init__(self) -> None:
        self._tasks: OrderedDict[tuple[bytes, Show], asyncio.Task[bytes]] = OrderedDict()
        #: The bytes of each image that is encoded.
        self._sizes: dict[tuple[bytes, Show], int] = {}
        self._kept = 0

    async def base64_of(
        self,
        question: requests.Question[bytes],
        name: str,
        max_pixels: int | None = None,
    ) -> bytes:
        """Return the base64 of an image of a question; raise `ImageError`, which begins with the
        image's name, if it does not decode.
        """
        preparation = question.preparation
        source = question.images.get("source")
        size = None
        try:
            if name == "edited" and preparation.at_source_size and source is not None:
                size = await asyncio.to_thread(_shown_size, source)
            return await self._once(question.images[name], Show(preparation, size, max_pixels))
        except errors.ImageError as error:
            raise errors.ImageError(f"{name}: {error}") from None

    async def _once(self, data: bytes, show: Show) -> bytes:
        """Return the base64 of an image; several questions at a time share one encoding."""
        key = (data, show)
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(_base64, data, show))
            self._tasks[key] = task
            task.add_done_callback(lambda task: self._keep(key, task))
        self._tasks.move_to_end(key)
        return await task

    def _keep(self, key: tuple[bytes, Show], task: asyncio.Task[bytes]) -> None:
        """Count an image that is encoded, and forget those that were shown longest ago; one that
        failed is not kept.
        """
        if task.cancelled() or task.exception() is not None:
            del self._tasks[key]
            return
        self._sizes[key] = len(key[0]) + len(task.result())
        self._kept += self._sizes[key]
        for oldest in list(self._tasks):
            if self._kept <= MAX_KEPT:
                return
            if oldest in self._sizes:
                self._kept -= self._sizes.pop(oldest)
                del self._tasks[oldest]


def _base64(data: bytes, show: Show) -> bytes:
    return base64.b64encode(show.encoded(data))


def _shown_size(source: bytes) -> tuple[int, int]:
    """Return the width and height of a source once it is decoded."""
    return images.plain_png_size(source) or images.decode(source).size
