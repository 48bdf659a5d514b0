"""What counts as an edit, as blank, and as the same image."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from pytest_imgedit.core.errors import OutputError
from pytest_imgedit.core.images import decode, encode_jpeg
from pytest_imgedit.kinds.edit_checks import checked, is_blank, is_reframed, is_same

PHOTO = Image.effect_noise((256, 192), 80).filter(ImageFilter.GaussianBlur(4)).convert("RGB")


def noisy(image: Image.Image, levels: int) -> Image.Image:
    pixels = np.asarray(image).astype(int) + np.random.default_rng(0).integers(
        -levels, levels + 1, (192, 256, 3)
    )
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def test_blank_is_one_colour_all_over():
    assert is_blank(Image.new("RGB", (64, 64), (10, 20, 30)))
    assert is_blank(noisy(Image.new("RGB", (256, 192), (10, 20, 30)), 1))
    assert not is_blank(noisy(Image.new("RGB", (256, 192), (10, 20, 30)), 2))
    dot = Image.new("RGB", (64, 64), "white")
    dot.putpixel((3, 3), (0, 0, 0))
    assert not is_blank(dot)


def test_blank_edit_of_a_blank_source_is_an_edit():
    white = Image.new("RGB", (64, 64), "white")
    assert checked(white, white, may_be_blank=False).size == (64, 64)
    with pytest.raises(OutputError, match=r"blank image, colour \(255, 255, 255\) all over"):
        checked(white, PHOTO, may_be_blank=False)
    assert checked(white, PHOTO, may_be_blank=True).mode == "RGB"


def test_one_value_that_is_not_finite_is_found():
    pixels = np.zeros((8, 8, 3), dtype=np.float32)
    floats = [Image.fromarray(pixels[..., 0], "F")]
    pixels[1, 2, 0] = np.inf
    floats.append(Image.fromarray(pixels[..., 0], "F"))
    assert checked(floats[0], floats[0], may_be_blank=True).size == (8, 8)
    with pytest.raises(OutputError, match="in 1 of 64 values"):
        checked(floats[1], floats[0], may_be_blank=True)


@pytest.mark.parametrize(
    ("size", "reframed"),
    [
        ((328, 200), False),
        ((1296, 784), False),
        ((1024, 1024), True),
        ((320, 192), False),
        ((328, 190), True),
    ],
)
def test_an_edit_of_another_aspect_ratio_is_reframed(size, reframed):
    assert is_reframed(Image.new("RGB", (328, 200)), Image.new("RGB", size)) == reframed


def test_images_are_the_same_up_to_a_codec():
    assert is_same(PHOTO, PHOTO.copy())
    assert is_same(PHOTO, decode(encode_jpeg(PHOTO, 90)))
    assert not is_same(PHOTO, PHOTO.resize((128, 96)))
    dotted = PHOTO.copy()
    dotted.putpixel((100, 80), (255, 0, 0))
    assert not is_same(PHOTO, dotted)
