"""The only module that opens, checks, converts and encodes images."""

import base64
import binascii
import io
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from pytest_imgedit.core import errors, file_types, files

FORMATS = ("PNG", "JPEG", "WEBP")
_OTHER_FORMATS = ((b"GIF8", "GIF"), (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"BM", "BMP"))
MAX_BYTES = 64 * 2**20
MAX_PIXELS = 64_000_000
MIN_SIDE = 8
MAX_ASPECT = 50
#: Longest side in pixels, and quality, of the thumbnails in reports.
THUMBNAIL_SIDE = 512
THUMBNAIL_QUALITY = 75
#: No thumbnail has more bytes: one of noise has 0.2 MB.
MAX_THUMBNAIL_BYTES = 2**20
#: Characters of the longest base64 text that is decoded: four for three bytes, and the padding.
_MAX_BASE64 = MAX_BYTES * 4 // 3 + 4
#: How a PNG begins, and the chunks of one that says nothing beside its pixels.
_PNG = b"\x89PNG\r\n\x1a\n"
_CHUNKS_OF_PIXELS = {b"IHDR", b"IDAT", b"IEND", b"pHYs", b"sRGB", b"tIME"}
#: Bit depth and colour type of a PNG with three channels of 8 bits.
_RGB8 = b"\x08\x02"
#: Cells per side of a signature.
SIGNATURE_GRID = 16
#: The largest difference, in levels of 255, of cells of images that look alike.
ALIKE_LEVELS = 3
#: The key in `info` of an image whose transparent pixels were laid over white. No text in a PNG has
#: a key with a null byte.
COMPOSITED = "\0composited"
_SRGB = ImageCms.createProfile("sRGB")


@dataclass(frozen=True, slots=True)
class FileImage:
    """An image file on disk."""

    path: Path

    def read(self) -> bytes:
        """Return the file's bytes; raise `ImageError` if it cannot be read, is no regular file,
        has more than `MAX_BYTES`, or is by its bytes something else.
        """
        try:
            data = files.read_regular(self.path, MAX_BYTES, "an image")
        except errors.UsageError as error:
            raise errors.ImageError(str(error)) from error
        misfit = None if is_image(data) else file_types.misfit(data)
        if misfit is not None:
            raise errors.ImageError(misfit.message(str(self.path), "an image"))
        return data


@dataclass(frozen=True, slots=True)
class Base64Image:
    """An image given as base64 text; a `data:image/…;base64,` prefix is allowed."""

    text: str

    def read(self) -> bytes:
        """Return the decoded bytes; raise `ImageError` if the text is not strict, canonical base64,
        or is too long for `MAX_BYTES`.
        """
        text = self.text.partition(",")[2] if self.text.startswith("data:") else self.text
        if len(text) > _MAX_BASE64:
            raise errors.ImageError(
                f"base64 text of {len(text)} characters, expected an image of at most {MAX_BYTES} "
                "bytes"
            )
        try:
            data = base64.b64decode(text.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise errors.ImageError(f"not valid base64: {error}") from error
        if base64.b64encode(data).decode() != text:
            raise errors.ImageError("not valid base64: bits are left over at the end")
        return data


def decode(data: bytes) -> Image.Image:
    """Return the 8-bit sRGB image of shape (H, W, 3) that PNG, JPEG or WebP bytes hold.

    EXIF orientation is applied; colours of an ICC profile become sRGB; alpha is composited over
    white; 16-bit greys keep their high byte; CMYK and palettes are converted. Of an MPO file, a
    phone's photograph with further frames, the first frame is used. Raises `ImageError` for any
    other format, several frames, more than `MAX_BYTES`, a size that `check_size` refuses, or data
    that does not decode to its end.
    """
    with _explained(data):
        image = _opened(data)
        image.load()
        rgb = to_rgb(to_srgb(ImageOps.exif_transpose(image)))
        # what a file says beside its pixels would be written again with them
        rgb.info = {key: True for key in rgb.info if key == COMPOSITED}
        return rgb


def checked_size(data: bytes) -> tuple[int, int]:
    """Return the width and height in an image's header; pixels are decoded only if the end of the
    data seems to be missing.

    Raises `ImageError` as `decode` does, but for damage that only decoding finds.
    """
    with _explained(data):
        size = _opened(data).size
    if _is_cut(data):
        decode(data)
    return size


def plain_png_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG whose pixels are those that `decode` returns, so that it
    may be passed on as it is; `None` for any other image.

    It is whole, has three channels of 8 bits, and no chunk that says more than its pixels. Damage
    within the pixels is not found. Raises `ImageError` for a size that `check_size` refuses.
    """
    if not data.startswith(_PNG) or data[24:26] != _RGB8 or len(data) > MAX_BYTES:
        return None
    position = len(_PNG)
    kind = b""
    while kind != b"IEND":
        length = int.from_bytes(data[position : position + 4], "big")
        kind = data[position + 4 : position + 8]
        position += 12 + length  # the length, the kind and the checksum have 4 bytes each
        if kind not in _CHUNKS_OF_PIXELS or position > len(data):
            return None
    width = int.from_bytes(data[16:20], "big")
    height = int.from_bytes(data[20:24], "big")
    check_size(width, height)
    return width, height


@contextmanager
def _without_bomb_warning() -> Iterator[None]:
    """Keep Pillow from warning of large images, since limits of this module decide."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def _opened(data: bytes) -> Image.Image:
    """Return an image of which only the header is read.

    Raises `ImageError` for more than `MAX_BYTES`, a size that `check_size` refuses, and several
    frames, except in an MPO, of which the first frame is used; and what Pillow raises.
    """
    if len(data) > MAX_BYTES:
        raise errors.ImageError(f"image of {len(data)} bytes, expected at most {MAX_BYTES}")
    with _without_bomb_warning():
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    check_size(image.width, image.height)
    if getattr(image, "n_frames", 1) != 1 and image.format != "MPO":
        raise errors.ImageError("animated image, expected one frame")
    return image


@contextmanager
def _explained(data: bytes) -> Iterator[None]:
    """Turn every exception that reading an image raises into an `ImageError` that says why."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise errors.ImageError(_why_unread(data)) from error
    except errors.ImageError:
        raise
    except Exception as error:  # a damaged chunk raises almost anything
        reason = f"cut short ({error})" if _is_cut(data) else error
        raise errors.ImageError(f"broken image: {reason}") from error


def _why_unread(data: bytes) -> str:
    """Return why Pillow finds none of `FORMATS` in the header of a file."""
    formats = ", ".join(FORMATS)
    if is_image(data):
        return f"broken image: {'cut short' if _is_cut(data) else 'damaged header'}"
    other = next((name for start, name in _OTHER_FORMATS if data.startswith(start)), "")
    if data[4:8] == b"ftyp":
        other = "HEIC or AVIF"
    if other:
        return f"{other} image, expected one of {formats}: save it as PNG"
    misfit = file_types.misfit(data)
    if misfit is not None:
        return f"not an image but {misfit.found}, expected {formats}: {misfit.remedy}"
    return f"not an image in one of the formats {formats}"


def _is_cut(data: bytes) -> bool:
    """Return whether an image lacks the mark of its end behind its last pixels; of a WebP, bytes
    that its header counts.
    """
    suffix = suffix_of(data)
    if suffix == ".webp":  # its size, without the 8 bytes up to and with the size itself
        return int.from_bytes(data[4:8], "little") + 8 > len(data)
    pixels, end = (b"\xff\xda", b"\xff\xd9") if suffix == ".jpg" else (b"IDAT", b"IEND")
    # everything is searched only if something stands behind the image
    return end not in data[-64:] and data.rfind(end) <= data.rfind(pixels)


def check_size(width: int, height: int) -> None:
    """Raise `ImageError` for more than `MAX_PIXELS`, a side under `MIN_SIDE` pixels, or a side over
    `MAX_ASPECT` times the other.
    """
    image = f"image of {width}x{height} pixels"
    if width * height > MAX_PIXELS:
        raise errors.ImageError(f"{image}, expected at most {MAX_PIXELS}")
    if min(width, height) < MIN_SIDE:
        raise errors.ImageError(f"{image}, expected sides of at least {MIN_SIDE}")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise errors.ImageError(f"{image}, expected no side over {MAX_ASPECT} times the other")


def to_srgb(image: Image.Image) -> Image.Image:
    """Return an image with the colours of its ICC profile converted to sRGB (relative
    colorimetric); alpha is unchanged.

    An image without a profile, or with one of sRGB, keeps its colours. As in browsers, a profile
    that cannot be read, or is not of the image's colour space, is ignored. So are profiles of
    images of 16 bits per channel, which Pillow cannot convert. The profile is taken out of
    `image.info`.
    """
    data = image.info.pop("icc_profile", None)
    if not data or image.mode not in ("RGB", "RGBA", "L", "LA", "CMYK", "P"):
        return image
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        if ImageCms.getProfileDescription(profile).startswith("sRGB"):
            return image
        converted = ImageCms.profileToProfile(
            image.convert(image.mode.removesuffix("A")),
            profile,
            _SRGB,
            ImageCms.Intent.RELATIVE_COLORIMETRIC,
            outputMode="RGB",
        )
    except (ImageCms.PyCMSError, OSError, TypeError, ValueError):
        return image
    assert converted is not None  # nothing is converted in place
    if "A" in image.getbands():
        converted.putalpha(image.getchannel("A"))
    converted.info.pop("icc_profile", None)
    return converted


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image as 8-bit RGB: alpha over white, the high byte of 16-bit greys, palettes and
    CMYK by their colours. The `info` of one with transparent pixels then has the key `COMPOSITED`.
    """
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.uint32) >> 8
        return Image.fromarray(np.minimum(grey, 255).astype(np.uint8)).convert("RGB")
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    rgba = image.convert("RGBA")
    rgb = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    if np.asarray(rgba.getchannel("A")).min() < 255:
        rgb.info[COMPOSITED] = True
    return rgb


def _encoded(image: Image.Image, file_format: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def encode_png(image: Image.Image) -> bytes:
    """Return an image as PNG, in RGB and lossless; the same pixels always give the same bytes."""
    return _encoded(image.convert("RGB"), "PNG", compress_level=4)


def thumbnail(image: Image.Image) -> bytes:
    """Return an image for reports, as lossy WebP with no side over `THUMBNAIL_SIDE` pixels."""
    reduced = image.convert("RGB")
    reduced.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
    return _encoded(reduced, "WEBP", quality=THUMBNAIL_QUALITY, method=2)


def is_thumbnail(path: Path) -> bool:
    """Return whether a path is a regular file, and no link, whose size and header are those of a
    thumbnail; its pixels are not decoded.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_THUMBNAIL_BYTES:
            return False
        with _without_bomb_warning(), Image.open(path, formats=["WEBP"]) as image:
            return max(image.size) <= THUMBNAIL_SIDE
    except (OSError, ValueError, MemoryError, Image.DecompressionBombError):
        return False


def signature(image: Image.Image) -> str:
    """Return a small description of an image, which `look_alike` compares.

    It is base64 of `SIGNATURE_GRID`² cells, with one byte each for the mean red, green and blue,
    and for the standard deviation of the grey levels, which shows texture and noise.
    """
    grid = (SIGNATURE_GRID, SIGNATURE_GRID)
    grey = np.asarray(image.convert("L"), dtype=np.float32)
    mean, square = (  # of the grey levels, and of their squares
        np.asarray(Image.fromarray(levels).resize(grid, Image.Resampling.BOX), dtype=np.float64)
        for levels in (grey, grey**2)
    )
    colours = np.asarray(image.convert("RGB").resize(grid, Image.Resampling.BOX))
    variance = np.maximum(0.0, square - mean**2)  # rounding may take it below zero
    deviation = np.sqrt(variance).round().astype(np.uint8)
    return base64.b64encode(np.dstack([colours, deviation]).tobytes()).decode()


def look_alike(first: str, second: str) -> bool:
    """Return whether no cell of two signatures differs by more than `ALIKE_LEVELS`.

    The effects of batches, drivers and GPUs on an edit are smaller: 12 of 255 at single pixels is
    under 1 in a cell.
    """
    first_cells, second_cells = (
        np.frombuffer(base64.b64decode(text), dtype=np.uint8).astype(np.int16)
        for text in (first, second)
    )
    return bool(np.abs(first_cells - second_cells).max() <= ALIKE_LEVELS)


def encode_jpeg(image: Image.Image, quality: int) -> bytes:
    """Return an RGB image as JPEG."""
    return _encoded(image, "JPEG", quality=quality)


def as_jpeg(data: bytes) -> bytes:
    """Return an encoded image as JPEG of quality 90."""
    return encode_jpeg(decode(data), 90)


def resampled(data: bytes) -> bytes:
    """Return an encoded image, scaled to 95% of its width and height and back, as PNG."""
    image = decode(data)
    width, height = (max(1, round(side * 0.95)) for side in image.size)
    smaller = image.resize((width, height), Image.Resampling.BICUBIC)
    return encode_png(smaller.resize(image.size, Image.Resampling.BICUBIC))


def is_image(data: bytes) -> bool:
    """Return whether the first bytes of a file are those of a PNG, a JPEG or a WebP."""
    return data.startswith(b"\x89PNG") or suffix_of(data) != ".png"  # ".png" may be a guess


def suffix_of(data: bytes) -> str:
    """Return the file suffix that the first bytes of an encoded image call for (`.png` if
    unknown).
    """
    if data.startswith(b"\xff\xd8"):
        return ".jpg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return ".png"
