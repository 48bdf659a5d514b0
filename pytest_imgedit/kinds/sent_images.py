"""Images as they are sent to servers: stored bytes where nothing is to change, any other image
encoded once.
"""

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass

from PIL import Image

from pytest_imgedit.core import errors, images, requests

try:
    from pybase64 import b64encode
except ImportError:  # it is only much faster
    from base64 import b64encode  # type: ignore[assignment]

#: An image and how it is shown.
_Key = tuple[bytes, "Show"]
#: The most bytes of images, stored and encoded, that are kept for further questions.
MAX_KEPT = 256 * 2**20


@dataclass(frozen=True)
class Show:
    """How an image is shown: prepared as a protocol asks, in the `size` of the source if it is to
    have that, and with at most `max_pixels` unless the protocol names a codec. One that `is_source`
    has its size by the protocol's rule for sources.
    """

    preparation: requests.Preparation
    size: tuple[int, int] | None
    max_pixels: int | None
    is_source: bool = False

    def keeps(self, size: tuple[int, int]) -> bool:
        """Tell whether an image of this size, in pixels, is sent in its stored bytes."""
        preparation = self.preparation
        if preparation.codec == "jpeg" or self.size not in (None, size):
            return False
        if self.is_source and preparation.source_size(size) != size:
            return False
        if preparation.max_side is not None:
            return max(size) <= preparation.max_side
        if preparation.codec or self.max_pixels is None:
            return True
        return math.prod(size) <= self.max_pixels

    def keeps_bytes(self, data: bytes) -> bool:
        """Tell whether an image is sent in its stored bytes; raise `ImageError` for a bad size."""
        size = images.plain_png_size(data)
        return size is not None and self.keeps(size)

    def encoded(self, data: bytes) -> bytes:
        """Return a stored image as it is prepared; raise `ImageError` if it does not decode."""
        image = images.decode(data)
        size = self.preparation.source_size(image.size) if self.is_source else self.size
        image = self.preparation.resized_to(image, size)
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
    """Encodes images in base64. One that is not sent in its stored bytes is decoded, prepared and
    encoded in a thread, once as long as it is kept: of `MAX_KEPT` bytes, stored and encoded, those
    that were shown last.
    """

    def __init__(self) -> None:
        self._encoded: OrderedDict[_Key, bytes] = OrderedDict()
        #: Encodings in threads, which several questions may wait for.
        self._pending: dict[_Key, asyncio.Task[bytes]] = {}
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
        data = question.images[name]
        source = question.images.get("source")
        size = None
        try:
            if name in requests.EDITS and preparation.at_source_size and source is not None:
                size = await _shown_size(source)
            show = Show(preparation, size, max_pixels, preparation.resizes(name))
            if show.keeps_bytes(data):
                return b64encode(data)
            return await self._prepared((data, show))
        except errors.ImageError as error:
            raise errors.ImageError(f"{name}: {error}") from None

    async def _prepared(self, key: _Key) -> bytes:
        """Return the base64 of a prepared image; several questions at a time share one encoding."""
        if key in self._encoded:
            self._encoded.move_to_end(key)
            return self._encoded[key]
        task = self._pending.get(key)
        if task is not None:
            return await task
        task = asyncio.create_task(asyncio.to_thread(_base64, *key))
        self._pending[key] = task
        try:
            encoded = await task
        finally:
            del self._pending[key]
        self._keep(key, encoded)
        return encoded

    def _keep(self, key: _Key, encoded: bytes) -> None:
        """Keep an encoded image, and forget those that were shown longest ago, but not this one."""
        self._encoded[key] = encoded
        self._kept += _size_of(key, encoded)
        while self._kept > MAX_KEPT and len(self._encoded) > 1:
            self._kept -= _size_of(*self._encoded.popitem(last=False))


def _size_of(key: _Key, encoded: bytes) -> int:
    """Return the bytes of a stored image and its encoding."""
    return len(key[0]) + len(encoded)


def _base64(data: bytes, show: Show) -> bytes:
    return b64encode(show.encoded(data))


async def _shown_size(source: bytes) -> tuple[int, int]:
    """Return the width and height of a source once it is decoded."""
    size = images.plain_png_size(source)
    if size is None:
        image = await asyncio.to_thread(images.decode, source)
        size = image.size
    return size
