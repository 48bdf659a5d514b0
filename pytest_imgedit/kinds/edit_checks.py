"""What an editor's output must be before it counts as an edit."""

from typing import Any

import numpy as np
from PIL import Image, ImageChops

from pytest_imgedit.core import errors, images

#: Levels out of 255 within which all pixels of a blank image lie, in every channel.
BLANK_LEVELS = 2
#: The largest `change.change` of an edit that counts as a copy of its source; `perf/near_copies.py`
#: says how many edits of public models that finds.
COPY_CHANGE = 3.0
#: The largest difference of two images that are equal but for a codec, at any pixel. Three in four
#: photographs differ by less from their JPEG of quality 90, and the embedded editor's best edits by
#: more from the references that it was taught.
SAME_LEVELS = 12
#: An edit whose aspect ratio differs from its source's by a larger share is flagged: it was cropped
#: or squashed.
ASPECT_TOLERANCE = 0.03


def checked(output: Any, source: Image.Image, may_be_blank: bool) -> Image.Image:
    """Return an editor's output as RGB; raise `OutputError` if it is no image, of a size that is
    refused, not finite, or blank.

    It is blank if it is one colour all over and the source is not, unless it `may_be_blank`.
    """
    if not isinstance(output, Image.Image):
        raise errors.OutputError(
            f"the editor returned {type(output).__name__}, expected a PIL image"
        )
    try:
        width, height = output.size
        images.check_size(width, height)
    except errors.ImageError as error:
        raise errors.OutputError(f"the editor returned an {error}") from None
    if output.mode == "F":
        pixels = np.asarray(output)
        require_finite(int((~np.isfinite(pixels)).sum()), pixels.size)
    image = images.to_rgb(output)
    if not may_be_blank and is_blank(image) and not is_blank(source):
        raise errors.OutputError(
            f"the editor returned a blank image, colour {image.getpixel((0, 0))} all over"
        )
    return image


def require_finite(broken: int, values: int) -> None:
    """Raise `OutputError` if a float image holds NaN or infinity, which a conversion to bytes would
    hide.
    """
    if broken:
        raise errors.OutputError(
            f"NaN or infinity in {broken} of {values} values of the editor's output"
        )


def is_blank(image: Image.Image) -> bool:
    """Tell whether no channel of an RGB image spans more than `BLANK_LEVELS`."""
    return bool(np.ptp(np.asarray(image), axis=(0, 1)).max() <= BLANK_LEVELS)


def is_reframed(source: Image.Image, edited: Image.Image) -> bool:
    """Tell whether the aspect ratios of an edit and its source differ by more than
    `ASPECT_TOLERANCE`.
    """
    ratio = edited.width * source.height / (edited.height * source.width)
    return not 1 / (1 + ASPECT_TOLERANCE) <= ratio <= 1 + ASPECT_TOLERANCE


def is_near_copy(change: float) -> bool:
    """Tell whether an edit with a `change.change` shows only what its source shows."""
    return change <= COPY_CHANGE


def is_same(first: Image.Image, second: Image.Image) -> bool:
    """Tell whether two RGB images are equal but for a codec: no pixel differs by over
    `SAME_LEVELS`.

    This is far stricter than `is_near_copy`: an image that a model drew again differs somewhere.
    """
    if first.size != second.size:
        return False
    difference = np.asarray(ImageChops.difference(first, second))
    return int(difference.max()) <= SAME_LEVELS
