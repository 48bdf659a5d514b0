"""Images on their way to a server: stored bytes as they are, and each image encoded once."""

import asyncio
import base64
import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.images import decode, encode_png, plain_png_size
from pytest_imgedit.core.requests import Preparation, Question
from pytest_imgedit.kinds import sent_images
from pytest_imgedit.kinds.sent_images import SentImages, fit

NOISE = Image.effect_noise((48, 32), 50).convert("RGB")
STORED = encode_png(NOISE)
SMALL = encode_png(NOISE.resize((24, 16)))


def png(image=NOISE, **options):
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()


def saved(file_format, image=NOISE, **options):
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def sent(edited=STORED, source=STORED, max_pixels=None, images=None, **preparation):
    """Return the bytes that are sent of the edited image."""
    question = Question(
        "a",
        "physics",
        "lift it",
        {"source": source, "edited": edited},
        preparation=Preparation(**preparation),
    )
    images = images or SentImages()
    return base64.b64decode(asyncio.run(images.base64_of(question, "edited", max_pixels)))


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1024, 50_000))
def test_images_are_made_to_fit_and_keep_their_shape(width, height, most):
    found = fit(Image.new("RGB", (width, height)), most)
    assert found.width * found.height <= most
    if width * height <= most:
        assert found.size == (width, height)
    elif min(found.size) > 8:
        assert found.width / found.height == pytest.approx(width / height, rel=0.15)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"max_pixels": 48 * 32},
        {"codec": "png"},
        {"codec": "png", "max_pixels": 16},
        {"max_side": 48},
        {"at_source_size": True},
        {"detail": "low"},
    ],
)
def test_stored_png_is_sent_as_it_is_where_nothing_is_to_change(monkeypatch, how):
    monkeypatch.setattr(sent_images.images, "decode", None)
    assert sent(**how) is not None
    assert sent(**how) == STORED


@pytest.mark.parametrize(
    ("how", "size"),
    [
        ({"max_pixels": 600}, (30, 20)),
        ({"max_side": 24}, (24, 16)),
        ({"max_side": 24, "codec": "png"}, (24, 16)),
        ({"at_source_size": True, "source": SMALL}, (24, 16)),
        ({"at_source_size": True, "source": SMALL, "max_side": 12}, (12, 8)),
    ],
)
def test_image_that_is_to_be_smaller_is_encoded_again(how, size):
    image = Image.open(io.BytesIO(sent(**how)))
    assert (image.format, image.size) == ("PNG", size)


@pytest.mark.parametrize("name", ["edited", "first", "second"])
def test_each_edit_is_sent_in_the_size_of_the_source(name):
    images = {"source": SMALL, name: STORED}
    preparation = Preparation(at_source_size=True)
    question = Question("a", "physics", "lift it", images, preparation=preparation)
    data = base64.b64decode(asyncio.run(SentImages().base64_of(question, name)))
    assert Image.open(io.BytesIO(data)).size == (24, 16)


def test_protocol_that_names_jpeg_gets_jpeg():
    assert sent(codec="jpeg", quality=90)[:2] == b"\xff\xd8"


#: Images whose bytes say more, or other things, than the pixels that a judge is to see.
OTHERS = {
    "alpha": png(Image.merge("RGBA", (*NOISE.split(), NOISE.getchannel("R")))),
    "palette": png(NOISE.convert("P")),
    "grey": png(NOISE.convert("L")),
    "16 bits": png(Image.new("I;16", (48, 32), 40_000)),
    "transparent colour": png(NOISE, transparency=(0, 0, 0)),
    "orientation": png(NOISE, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"),
    "text": png(NOISE, pnginfo=(info := PngImagePlugin.PngInfo())),
    "JPEG": saved("JPEG"),
    "WebP": saved("WEBP", lossless=True),
}  # fmt: skip
info.add_text("prompt", "make it night")
OTHERS["text"] = png(NOISE, pnginfo=info)


@pytest.mark.parametrize("name", OTHERS)
def test_image_of_another_kind_is_sent_as_the_pixels_that_are_seen(name):
    data = sent(OTHERS[name])
    assert data != OTHERS[name]
    assert plain_png_size(data) is not None
    assert decode(data).tobytes() == decode(OTHERS[name]).tobytes()


def chunk(kind, data):
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


@pytest.mark.parametrize(
    "data",
    [
        STORED[:-12],
        STORED[:40],
        STORED[:8],
        b"",
        STORED[:-12] + chunk(b"acTL", bytes(8)) + STORED[-12:],
        STORED[:-12] + chunk(b"eXIf", b"MM\0*") + STORED[-12:],
        STORED[:33] + b"\xff\xff\xff\xff" + STORED[37:],
    ],
)
def test_png_that_is_cut_or_says_more_is_not_plain(data):
    assert plain_png_size(STORED) == (48, 32)
    assert plain_png_size(data) is None


@pytest.mark.parametrize("data", [STORED[:200], b"no image", encode_png(NOISE)[:40]])
def test_image_that_does_not_decode_is_an_error_with_its_name_and_is_tried_again(data):
    images = SentImages()
    for _ in range(2):
        with pytest.raises(ImageError, match=r"^edited: "):
            sent(data, images=images)


def ask_all(images, *pairs):
    """Return what is sent of edits, with their sources, in one event loop."""

    async def run():
        questions = [
            Question(str(number), "physics", "lift it", {"source": source, "edited": edited})
            for number, (source, edited) in enumerate(pairs)
        ]
        return await asyncio.gather(
            *(
                images.base64_of(question, name)
                for question in questions
                for name in ("source", "edited")
            )
        )

    return asyncio.run(run())


@pytest.fixture
def encodings(monkeypatch):
    """The images that were prepared."""
    made = []
    encode = sent_images._base64

    def count(data, show):
        made.append(data)
        return encode(data, show)

    monkeypatch.setattr(sent_images, "_base64", count)
    return made


SHARED = saved("JPEG")
EDITS = [saved("WEBP", NOISE.rotate(angle)) for angle in (10, 20, 30, 40)]


def test_image_that_several_questions_share_is_prepared_once(encodings):
    ask_all(SentImages(), *((bytes(bytearray(SHARED)), edit) for edit in EDITS))
    assert len(encodings) == 1 + len(EDITS)
    assert encodings.count(SHARED) == 1


def test_images_that_were_shown_longest_ago_are_forgotten(encodings, monkeypatch):
    monkeypatch.setattr(sent_images, "MAX_KEPT", 16_000)
    images = SentImages()
    for edit in EDITS:
        ask_all(images, (SHARED, edit))
    assert encodings.count(SHARED) == 1
    assert images._kept <= sent_images.MAX_KEPT
    assert images._kept == sum(len(key[0]) + len(data) for key, data in images._encoded.items())
    ask_all(images, (SHARED, EDITS[0]))
    assert encodings.count(EDITS[0]) == 2
