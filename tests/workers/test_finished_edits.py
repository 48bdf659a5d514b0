"""What a worker says of an edit: how it differs from the sources, and whether it had transparent
pixels.
"""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageFilter, PngImagePlugin

from pytest_imgedit.core.images import decode, encode_png, thumbnail
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.change import change
from pytest_imgedit.kinds.controls import SourceEditor
from pytest_imgedit.kinds.folder import FolderEditor
from pytest_imgedit.kinds.server_answers import read_image
from pytest_imgedit.workers.editing import finished_edit, make_edit


def noise(seed, size=(96, 64)):
    """A picture that no other one of another seed looks like."""
    picture = Image.effect_noise((160, 160), 90).filter(ImageFilter.GaussianBlur(3))
    left = 8 * seed
    return picture.crop((left, left, left + 64, left + 64)).resize(size).convert("RGB")


FIRST, SECOND, THIRD = noise(0), noise(4, (64, 128)), noise(8, (48, 48))
REQUEST = EditRequest("a", "b", "c", SECOND, 1, further=(FIRST, THIRD), edited_source=2)


def told(output, request=REQUEST):
    return finished_edit(output, request, 1.0, may_be_blank=False)


@pytest.mark.parametrize("copied", [FIRST, SECOND, THIRD], ids=["first", "edited", "third"])
def test_a_copy_of_any_source_is_a_near_copy(copied):
    assert told(copied.copy())["near_copy"]


def test_change_and_shape_are_those_against_the_edited_source():
    copy_of_first = told(FIRST.copy())
    assert copy_of_first["change"] == change(SECOND, FIRST) > 10
    assert copy_of_first["reframed"]
    copy_of_edited = told(SECOND.copy())
    assert copy_of_edited["change"] == 0
    assert not copy_of_edited["reframed"]


def test_a_picture_like_no_source_is_no_near_copy():
    assert not told(noise(11, (64, 128)))["near_copy"]


def test_thumbnails_of_all_sources_are_told_in_order():
    sources = (FIRST, SECOND, THIRD)
    assert told(THIRD.copy())["source_thumbnails"] == [thumbnail(image) for image in sources]


# Transparent pixels


def with_alpha(alpha):
    """A picture with one pixel of this alpha; all others are opaque."""
    image = SECOND.convert("RGBA")
    image.putpixel((3, 3), (0, 0, 0, alpha))
    return image


def palette():
    image = SECOND.convert("P")
    image.info["transparency"] = image.getpixel((0, 0))
    return image


@pytest.mark.parametrize(
    ("output", "composited"),
    [
        pytest.param(SECOND, False, id="no-alpha"),
        pytest.param(with_alpha(255), False, id="opaque"),
        pytest.param(with_alpha(254), True, id="one-pixel"),
        pytest.param(with_alpha(0).convert("LA"), True, id="grey"),
        pytest.param(palette(), True, id="palette"),
    ],
)
def test_transparent_pixels_of_an_edit_are_told(output, composited):
    made = told(output)
    assert made["composited"] is composited
    assert decode(made["image"]).mode == "RGB"


def test_an_edit_over_white_has_the_pixels_of_white():
    assert decode(told(with_alpha(0))["image"]).getpixel((3, 3)) == (255, 255, 255)


def request(**images):
    fields = {"pair_id": "a", "category": "b", "instruction": "c", "seed": 1, "reference": None}
    encoded = {name: encoded_png(image) for name, image in images.items()}
    return EditRequest.decoded({**fields, "further": [], "edited_source": 1, **encoded})


def encoded_png(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()


def test_a_source_with_transparent_pixels_says_nothing_of_its_edit():
    untouched = make_edit(
        SourceEditor(device="cpu").edit, request(source=with_alpha(0)), may_be_blank=False
    )
    assert not untouched["composited"]
    assert untouched["near_copy"]


@pytest.mark.parametrize(("alpha", "composited"), [(0, True), (255, False)])
def test_a_finished_image_with_transparent_pixels_is_told(alpha, composited):
    finished = request(source=FIRST, reference=with_alpha(alpha))
    edit = FolderEditor("edits", device="cpu").edit
    assert make_edit(edit, finished, may_be_blank=False)["composited"] is composited


@pytest.mark.parametrize(("alpha", "composited"), [(0, True), (255, False)])
def test_a_served_image_with_transparent_pixels_is_told(alpha, composited):
    assert told(read_image(encoded_png(with_alpha(alpha))))["composited"] is composited


def test_a_text_in_a_png_says_nothing_of_its_pixels():
    texts = PngImagePlugin.PngInfo()
    texts.add_text("composited", "yes")
    assert not told(read_image(encoded_png(SECOND, pnginfo=texts)))["composited"]
    assert decode(encode_png(SECOND)).info == {}
