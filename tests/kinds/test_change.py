"""How much an edit changes its source: little if it was moved, scaled, toned or encoded again, much
if an object was added, removed or painted.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter

from pytest_imgedit.core.images import decode, encode_jpeg
from pytest_imgedit.kinds.change import change
from pytest_imgedit.kinds.edit_checks import COPY_CHANGE, is_near_copy

SIZE = (512, 384)


def photograph() -> Image.Image:
    """A wide frame that shots are cut from: soft light, grain, and objects with edges."""
    random = np.random.default_rng(0)
    light = random.integers(70, 190, (7, 9, 3), dtype=np.uint8)
    frame = Image.fromarray(light).resize((640, 512), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(frame)
    for _ in range(40):
        x, y, side = random.integers(0, 600), random.integers(0, 470), random.integers(12, 70)
        draw.ellipse((x, y, x + side, y + side), fill=tuple(random.integers(0, 255, 3).tolist()))
    pixels = np.asarray(frame, np.float32) + random.normal(0, 4, (512, 640, 1))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).filter(
        ImageFilter.GaussianBlur(0.7)
    )


FRAME = photograph()


def shot(
    x: float = 0,
    y: float = 0,
    scale_x: float = 1.0,
    scale_y: float = 1.0,
    frame: Image.Image = FRAME,
) -> Image.Image:
    """What a camera sees that was moved by some pixels and zoomed."""
    width, height = SIZE[0] / scale_x, SIZE[1] / scale_y
    left, top = (frame.width - width) / 2 + x, (frame.height - height) / 2 + y
    return frame.resize(SIZE, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))


SOURCE = shot()


def toned(contrast: float = 1.0, brightness: float = 0.0) -> Image.Image:
    return SOURCE.point(lambda level: 128 + contrast * (level - 128) + brightness)


def smoothed() -> Image.Image:
    """What an autoencoder makes of an image: soft, with a pattern of its own in the grain."""
    pixels = np.asarray(SOURCE.filter(ImageFilter.GaussianBlur(1.5)), np.float32)
    grain = np.random.default_rng(1).normal(0, 5, pixels.shape)
    return Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8))


def webp(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=75)
    return decode(buffer.getvalue())


def with_object(side: int, colour: str, frame: Image.Image = FRAME) -> Image.Image:
    """The scene with an object in it, at a place that all shots show."""
    changed = frame.copy()
    ImageDraw.Draw(changed).ellipse((300, 200, 300 + side, 200 + side), fill=colour)
    return changed


@pytest.mark.parametrize(
    "edited",
    [
        pytest.param(SOURCE, id="itself"),
        *(pytest.param(shot(x, -x / 2), id=f"moved-{x}px") for x in (0.5, 1, 2, 4, 8)),
        *(pytest.param(shot(scale_x=s, scale_y=s), id=f"zoomed-{s}") for s in (0.97, 0.985, 1.03)),
        pytest.param(shot(scale_x=1.03), id="stretched"),
        pytest.param(shot(-5, 3, 0.98, 0.98).resize((400, 296)), id="moved-zoomed-and-smaller"),
        pytest.param(decode(encode_jpeg(SOURCE, 75)), id="jpeg"),
        pytest.param(webp(SOURCE), id="webp"),
        pytest.param(smoothed(), id="autoencoder"),
        pytest.param(toned(contrast=0.8), id="flat"),
        pytest.param(toned(contrast=1.15), id="contrast"),
        pytest.param(toned(brightness=25), id="bright"),
        pytest.param(ImageEnhance.Brightness(SOURCE).enhance(0.8), id="dark"),
        pytest.param(decode(encode_jpeg(shot(3, 2, 1.02, 1.02), 75)), id="moved-and-encoded"),
        pytest.param(SOURCE.crop((48, 0, 464, 384)), id="sides-cropped"),
        pytest.param(SOURCE.resize((448, 448)), id="squashed"),
    ],
)
def test_an_edit_that_changes_nothing_is_a_near_copy(edited):
    assert is_near_copy(change(SOURCE, edited)), change(SOURCE, edited)


def test_a_shifted_flat_drawing_is_a_near_copy():
    drawing = Image.new("RGB", (320, 240), (200, 220, 240))
    ImageDraw.Draw(drawing).rectangle((120, 90, 180, 150), fill=(200, 30, 30))
    assert is_near_copy(change(drawing, ImageChops.offset(drawing, 5, -3)))


#: 4% of the longer side.
SMALL = 20


@pytest.mark.parametrize(
    ("source", "edited"),
    [
        pytest.param(SOURCE, shot(frame=with_object(SMALL, "red")), id="added"),
        pytest.param(shot(frame=with_object(SMALL, "red")), SOURCE, id="removed"),
        pytest.param(
            shot(frame=with_object(40, "red")), shot(frame=with_object(40, "orange")), id="painted"
        ),
        pytest.param(SOURCE, shot(4, -3, frame=with_object(SMALL, "red")), id="added-and-moved"),
        pytest.param(
            SOURCE,
            decode(encode_jpeg(shot(scale_x=1.02, frame=with_object(SMALL, "red")), 75)),
            id="added-and-stretched",
        ),
        pytest.param(
            SOURCE,
            ImageEnhance.Brightness(shot(frame=with_object(24, "white"))).enhance(0.8),
            id="added-and-dark",
        ),
        pytest.param(SOURCE, ImageEnhance.Color(SOURCE).enhance(0), id="grey"),
        pytest.param(SOURCE, ImageChops.invert(SOURCE), id="inverted"),
        pytest.param(SOURCE, SOURCE.transpose(Image.Transpose.FLIP_LEFT_RIGHT), id="mirrored"),
        pytest.param(SOURCE, Image.new("RGB", SIZE), id="black"),
        pytest.param(Image.new("RGB", SIZE), SOURCE, id="of-black"),
        pytest.param(SOURCE, SOURCE.crop((0, 0, 100, 384)), id="strip"),
    ],
)
def test_an_edit_that_changes_an_object_or_the_scene_is_none(source, edited):
    assert change(source, edited) > 1.5 * COPY_CHANGE


def test_larger_differences_are_larger_changes():
    pale, red, large = (
        change(SOURCE, shot(frame=with_object(side, colour)))
        for side, colour in ((12, "pink"), (20, "red"), (60, "red"))
    )
    assert 0 == change(SOURCE, SOURCE) < pale < red < large <= 255


@pytest.mark.parametrize("size", [(8, 8), (8, 400), (400, 8), (16, 16)])
def test_small_and_narrow_images_are_compared(size):
    source = Image.effect_noise(size, 80).convert("RGB")
    assert change(source, source) == 0
    assert is_near_copy(change(Image.new("RGB", size, "red"), Image.new("RGB", size, "red")))
    assert not is_near_copy(change(source, Image.new("RGB", size, "red")))


def test_drawn_references_are_no_copies_of_their_sources():
    from pytest_imgedit.config.settings import SuiteSettings
    from pytest_imgedit.suites.scenes import load

    copies = [
        pair.id
        for pair in load("n=5", SuiteSettings())
        if is_near_copy(change(decode(pair.source.read()), decode(pair.reference.read())))
    ]
    assert copies == []
