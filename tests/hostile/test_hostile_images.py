"""Images that were damaged, byte by byte: decoded whole or refused, and never anything else."""

from __future__ import annotations

import base64
import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.images import MAX_PIXELS, Base64Image, decode


def encoded(kind: str, mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((24, 16), 60).convert(mode).save(buffer, kind)
    return buffer.getvalue()


GOOD = [
    encoded("PNG"),
    encoded("PNG", "P"),
    encoded("JPEG"),
    encoded("JPEG", "CMYK"),
    encoded("WEBP"),
]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_bytes_and_cuts_decode_or_are_refused(data):
    good = bytearray(data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(0, 8))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    with contextlib.suppress(ImageError):
        image = decode(bytes(good[:cut]))
        assert image.mode == "RGB"
        assert image.width * image.height <= MAX_PIXELS


@given(st.text(max_size=60) | st.text("ABCabc123+/=", max_size=40))
def test_any_text_is_base64_of_bytes_or_refused(text):
    with contextlib.suppress(ImageError):
        data = Base64Image(text).read()
        assert base64.b64encode(data).decode() == (
            text.partition(",")[2] if text.startswith("data:") else text
        )


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("good", GOOD, ids=["png", "palette", "jpeg", "cmyk", "webp"])
def test_truncated_image_is_refused(good, part):
    with pytest.raises(ImageError):
        decode(good[: int(part * len(good))])
