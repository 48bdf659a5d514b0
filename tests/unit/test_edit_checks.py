"""What counts as an edit, as blank, and as a copy."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from pytest_imgedit.core.errors import OutputError
from pytest_imgedit.kinds.edit_checks import checked, is_blank, is_near_copy, is_reframed

PHOTO = Image.effect_noise((256, 192), 80).filter(ImageFilter.GaussianBlur(4)).convert("RGB")


def noisy(image: Image.Image, levels: int) -> Image.Image:
    pixels = np.asarray(image).astype(int) + np.random.default_rng(0).integers(
        -levels, levels + 1, (192, 256, 3)
    )
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def with_dot(size: int) -> Image.Image:
    image = PHOTO.copy()
    ImageDraw.Draw(image).rectangle((100, 80, 100 + size, 80 + size), fill="red")
    return image


@pytest.mark.parametrize(
    ("edited", "copy"),
    [
        pytest.param(PHOTO, True, id="itself"),
        pytest.param(noisy(PHOTO, 8), True, id="fine-noise"),
        pytest.param(PHOTO.resize((512, 384), Image.Resampling.BICUBIC), True, id="other-size"),
        pytest.param(with_dot(8), False, id="small-object"),
        pytest.param(PHOTO.point(lambda value: value * 0.8), False, id="darker"),
        pytest.param(PHOTO.transpose(Image.Transpose.FLIP_LEFT_RIGHT), False, id="mirrored"),
        pytest.param(Image.new("RGB", PHOTO.size), False, id="black"),
    ],
)
def test_near_copies(edited, copy):
    assert is_near_copy(PHOTO, edited) is copy


def test_drawn_references_are_no_copies_of_their_sources():
    from pytest_imgedit.config.settings import SuiteSettings
    from pytest_imgedit.core.images import decode
    from pytest_imgedit.suites.base import load_suite

    pairs = load_suite(SuiteSettings()).pairs
    copies = [
        pair.id
        for pair in pairs
        if is_near_copy(decode(pair.source.read()), decode(pair.reference.read()))
    ]
    assert copies == []


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
