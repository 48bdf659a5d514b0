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
#: Cells per side of a signature.
SIGNATURE_GRID = 16
#: The largest difference, in levels of 255, of cells of images that look alike.
ALIKE_LEVELS = 3
_SRGB = ImageCms.createProfile("sRGB")


@dataclass(frozen=True, slots=True)
class FileImage:
    """An image file on disk."""

    path: Path

    def read(self) -> bytes:
        """Return the file's bytes; raise `ImageError` if it is missing, not a file, over
        `MAX_BYTES`, or by its first bytes something else.
        """
        try:
            data = files.read_regular(self.path, MAX_BYTES, "an image")
        except errors.UsageError as error:
            raise errors.ImageError(str(error)) from error
        if not is_image(data) and (found := file_types.misfit(data)):
            raise errors.ImageError(found.message(str(self.path), "an image"))
        return data


@dataclass(frozen=True, slots=True)
class Base64Image:
    """An image given as base64 text; a `data:image/…;base64,` prefix is allowed."""

    text: str

    def read(self) -> bytes:
        """Return the decoded bytes; raise `ImageError` unless the text is strict, canonical base64
        of `MAX_BYTES`.
        """
        text = self.text.partition(",")[2] if self.text.startswith("data:") else self.text
        if len(text) > MAX_BYTES * 4 // 3 + 4:
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
    """Decode PNG, JPEG or WebP bytes to an 8-bit sRGB image of shape (H, W, 3).

    EXIF orientation is applied; colours of an ICC profile become sRGB; alpha is composited over
    white; 16-bit greys keep their high byte; CMYK and palettes are converted. Of an MPO file, a
    phone's photograph with further frames, the first frame is used. Raises
    `ImageError` for any other format, several frames, more than `MAX_BYTES`, a size that
    `check_size` refuses, or data that does not decode to its end.
    """
    with _explained(data):
        image = _opened(data)
        image.load()
        rgb = to_rgb(to_srgb(ImageOps.exif_transpose(image)))
        rgb.info = {}  # what a file says beside its pixels would be written again with them
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


def _opened(data: bytes) -> Image.Image:
    """Read the header of an image; raises `ImageError` for what is to be refused by it."""
    if len(data) > MAX_BYTES:
        raise errors.ImageError(f"image of {len(data)} bytes, expected at most {MAX_BYTES}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS decides
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    check_size(image.width, image.height)
    if getattr(image, "n_frames", 1) != 1 and image.format != "MPO":
        raise errors.ImageError("animated image, expected one frame")
    return image


@contextmanager
def _explained(data: bytes) -> Iterator[None]:
    """Turn whatever is raised for an image into an `ImageError` that says why."""
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
    """Say why no format knows an image by its header."""
    formats = ", ".join(FORMATS)
    if is_image(data):
        return f"broken image: {'cut short' if _is_cut(data) else 'damaged header'}"
    other = next((name for start, name in _OTHER_FORMATS if data.startswith(start)), "")
    if data[4:8] == b"ftyp":
        other = "HEIC or AVIF"
    if other:
        return f"{other} image, expected one of {formats}: save it as PNG"
    found = file_types.misfit(data)
    if found is not None:
        return f"not an image but {found.what}, expected {formats}: {found.remedy}"
    return f"not an image in one of the formats {formats}"


def _is_cut(data: bytes) -> bool:
    """Tell whether an image lacks the mark of its end after its last pixels, or bytes that its
    header counts.
    """
    suffix = suffix_of(data)
    if suffix == ".webp":
        return int.from_bytes(data[4:8], "little") + 8 > len(data)
    pixels, end = (b"\xff\xda", b"\xff\xd9") if suffix == ".jpg" else (b"IDAT", b"IEND")
    # the whole is searched only where something stands behind the image
    return end not in data[-64:] and data.rfind(end) <= data.rfind(pixels)


def check_size(width: int, height: int) -> None:
    """Raise `ImageError` for more than `MAX_PIXELS`, a side under `MIN_SIDE`, or sides of more than
    1:`MAX_ASPECT`.
    """
    image = f"image of {width}x{height} pixels"
    if width * height > MAX_PIXELS:
        raise errors.ImageError(f"{image}, expected at most {MAX_PIXELS}")
    if min(width, height) < MIN_SIDE:
        raise errors.ImageError(f"{image}, expected sides of at least {MIN_SIDE}")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise errors.ImageError(f"{image}, expected no side over {MAX_ASPECT} times the other")


def to_srgb(image: Image.Image) -> Image.Image:
    """Convert the colours of an image with an ICC profile to sRGB (relative colorimetric); alpha is
    unchanged.

    As in browsers, a profile that cannot be read, or is not of the image's colour space, is
    ignored. So are profiles of images of 16 bits per channel, which Pillow cannot convert.
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
    """Convert to 8-bit RGB: alpha over white, the high byte of 16-bit greys, palettes and CMYK by
    their colours.
    """
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.uint32) >> 8
        return Image.fromarray(np.minimum(grey, 255).astype(np.uint8)).convert("RGB")
    if "A" in image.getbands() or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image.convert("RGB")


def _encoded(image: Image.Image, file_format: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def encode_png(image: Image.Image) -> bytes:
    """Encode an image as PNG, lossless; the same pixels always give the same bytes."""
    return _encoded(image.convert("RGB"), "PNG", compress_level=4)


def thumbnail(image: Image.Image) -> bytes:
    """Encode an image for reports, as lossy WebP with no side over `THUMBNAIL_SIDE` pixels."""
    reduced = image.convert("RGB")
    reduced.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
    return _encoded(reduced, "WEBP", quality=THUMBNAIL_QUALITY, method=2)


def is_thumbnail(path: Path) -> bool:
    """Tell whether a file, which is no link, is a thumbnail by its size and its header; its pixels
    are not decoded.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_THUMBNAIL_BYTES:
            return False
        with Image.open(path, formats=["WEBP"]) as image:
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
    mean, square = (
        np.asarray(Image.fromarray(levels).resize(grid, Image.Resampling.BOX), dtype=np.float64)
        for levels in (grey, grey**2)
    )
    colours = np.asarray(image.convert("RGB").resize(grid, Image.Resampling.BOX))
    spread = np.sqrt(np.maximum(0.0, square - mean**2)).round().astype(np.uint8)
    return base64.b64encode(np.dstack([colours, spread]).tobytes()).decode()


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
    """Encode an RGB image as JPEG."""
    return _encoded(image, "JPEG", quality=quality)


def as_jpeg(data: bytes) -> bytes:
    """Encode an image again as JPEG of quality 90."""
    return encode_jpeg(decode(data), 90)


def resampled(data: bytes) -> bytes:
    """Scale an image to 95% of its size and back, as PNG."""
    image = decode(data)
    smaller = image.resize(
        (max(1, round(image.width * 0.95)), max(1, round(image.height * 0.95))),
        Image.Resampling.BICUBIC,
    )
    return encode_png(smaller.resize(image.size, Image.Resampling.BICUBIC))


def is_image(data: bytes) -> bool:
    """Return whether the first bytes of a file are those of a PNG, a JPEG or a WebP."""
    return data.startswith(b"\x89PNG") or suffix_of(data) != ".png"


def suffix_of(data: bytes) -> str:
    """Return the file suffix that the first bytes of an encoded image call for (`.png` if
    unknown).
    """
    if data.startswith(b"\xff\xd8"):
        return ".jpg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return ".png"
