"""What may be an image, and how it becomes 8-bit RGB."""

from __future__ import annotations

import base64
import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms

from pytest_imgedit.core import images
from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.images import Base64Image, FileImage, decode, encode_png


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_png_keeps_every_pixel():
    pixels = np.random.default_rng(0).integers(0, 256, (17, 19, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(decode(encode_png(Image.fromarray(pixels)))), pixels)


@pytest.mark.parametrize(
    ("image", "pixel"),
    [
        pytest.param(
            Image.new("RGBA", (8, 8), (255, 0, 0, 0)), (255, 255, 255), id="transparent-over-white"
        ),
        pytest.param(Image.new("RGBA", (8, 8), (255, 0, 0, 255)), (255, 0, 0), id="opaque"),
        pytest.param(Image.new("LA", (8, 8), (0, 0)), (255, 255, 255), id="grey-alpha"),
        pytest.param(Image.new("L", (8, 8), 77), (77, 77, 77), id="grey"),
        pytest.param(Image.new("1", (8, 8), 1), (255, 255, 255), id="bilevel"),
        pytest.param(Image.new("P", (8, 8), 0), (0, 0, 0), id="palette"),
        pytest.param(
            Image.fromarray(np.full((8, 8), 0xAB12, dtype=np.uint16)),
            (0xAB,) * 3,
            id="16-bit-high-byte",
        ),
    ],
)
def test_modes_convert_by_rule(image, pixel):
    assert decode(encoded(image)).getpixel((0, 0)) == pixel


def test_cmyk_jpeg_and_webp_are_read():
    assert decode(encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")).getpixel((1, 1)) == (
        255,
        255,
        255,
    )
    assert decode(encoded(Image.new("RGB", (8, 8), "red"), "WEBP", lossless=True)).getpixel(
        (1, 1)
    ) == (255, 0, 0)


def test_exif_orientation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(encoded(Image.new("RGB", (20, 10)), "JPEG", exif=exif)).size == (10, 20)


GOOD = encoded(Image.effect_noise((64, 64), 50))
BAD = [
    pytest.param(b"", "not an image", id="empty"),
    pytest.param(b"<svg/>", "not an image", id="svg"),
    pytest.param(GOOD[:500], "broken image", id="truncated"),
    pytest.param(encoded(Image.new("RGB", (12, 12)), "BMP"), "BMP image, expected one", id="bmp"),
    pytest.param(encoded(Image.new("RGB", (12, 12)), "GIF"), "GIF image, expected one", id="gif"),
    pytest.param(
        encoded(
            Image.new("RGB", (12, 12)),
            "WEBP",
            save_all=True,
            append_images=[Image.new("RGB", (12, 12), "red")],
        ),
        "animated",
        id="animated",
    ),
]


@pytest.mark.parametrize(("data", "reason"), BAD)
def test_bad_data_is_an_image_error(data, reason):
    with pytest.raises(ImageError, match=reason):
        decode(data)


def test_pixel_and_byte_caps(monkeypatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    with pytest.raises(ImageError, match="64x64 pixels, expected at most 100"):
        decode(GOOD)
    monkeypatch.setattr(images, "MAX_BYTES", 100)
    with pytest.raises(ImageError, match="expected at most 100"):
        decode(GOOD)


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_raise_an_image_error(data):
    for candidate in (data, GOOD[:40] + data):
        with contextlib.suppress(ImageError):
            assert decode(candidate).mode == "RGB"


def test_base64_is_strict_and_takes_a_data_url():
    text = base64.b64encode(GOOD).decode()
    assert Base64Image(text).read() == Base64Image(f"data:image/png;base64,{text}").read() == GOOD
    for broken in ("a", "!!!!", "é", text[:-1]):
        with pytest.raises(ImageError, match="base64"):
            Base64Image(broken).read()


def test_missing_file_is_an_image_error_that_names_it(tmp_path):
    with pytest.raises(ImageError, match=r"gone\.png: No such file"):
        FileImage(tmp_path / "gone.png").read()
    with pytest.raises(
        ImageError, match=r"^….*/gone\.png: No such file or directory, expected an image$"
    ):
        FileImage(tmp_path.joinpath(*["folder"] * 40, "gone.png")).read()


def wide_gamut() -> bytes:
    """An ICC profile whose red and green are swapped: a matrix profile made of sRGB's own."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    tags = {
        bytes(profile[at : at + 4]): at
        for at in range(132, 132 + 12 * int.from_bytes(profile[128:132]), 12)
    }
    red, green = tags[b"rXYZ"], tags[b"gXYZ"]
    profile[red + 4 : red + 12], profile[green + 4 : green + 12] = (
        profile[green + 4 : green + 12],
        profile[red + 4 : red + 12],
    )
    return bytes(profile).replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_colours_of_an_icc_profile_become_srgb(mode, kind):
    image = Image.new("RGB", (8, 8), (255, 0, 0)).convert(mode)
    data = encoded(
        image, kind, icc_profile=wide_gamut(), **({"lossless": True} if kind == "WEBP" else {})
    )
    found = decode(data)
    assert found.getpixel((4, 4)) == pytest.approx((0, 255, 0), abs=2)
    assert "icc_profile" not in found.info
    assert decode(encode_png(found)).getpixel((4, 4)) == found.getpixel((4, 4))


def test_pixels_of_srgb_and_of_a_broken_profile_stay_as_they_are():
    pixels = Image.effect_noise((16, 16), 90).convert("RGB")
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for profile in (srgb, b"no profile", srgb[:200]):
        assert np.array_equal(
            np.asarray(decode(encoded(pixels, icc_profile=profile))), np.asarray(pixels)
        )


def test_the_first_frame_of_a_phones_photograph_is_read():
    first, second = Image.new("RGB", (16, 16), "red"), Image.new("RGB", (8, 8), "blue")
    data = encoded(first, "MPO", save_all=True, append_images=[second])
    assert decode(data).size == (16, 16)
    assert decode(data).getpixel((8, 8)) == pytest.approx((254, 0, 0), abs=2)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("behind", [b"", b"\0" * 100, b"trailer of a phone" * 99])
def test_what_stands_behind_an_image_does_not_make_it_cut(monkeypatch, kind, behind):
    data = encoded(Image.effect_noise((40, 32), 60).convert("RGB"), kind) + behind
    monkeypatch.setattr(images, "decode", None)  # the header is enough
    assert images.checked_size(data) == (40, 32)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
def test_an_image_without_its_end_is_refused_by_its_header_and_end(kind, share):
    data = encoded(Image.effect_noise((400, 320), 60).convert("RGB"), kind)
    with pytest.raises(ImageError, match="broken image: cut short"):
        images.checked_size(data[: int(len(data) * share)])


@pytest.mark.everyday
def test_a_large_image_is_no_thumbnail_and_warns_of_nothing(tmp_path):
    """Warnings are errors here; a WebP of one colour is small whatever its size."""
    path = tmp_path / "large.webp"
    Image.new("RGB", (10_000, 10_000)).save(path, quality=1, method=0)
    assert path.stat().st_size < images.MAX_THUMBNAIL_BYTES
    assert not images.is_thumbnail(path)
