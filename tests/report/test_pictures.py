"""Images of a page: only blobs of the store are linked, copied or embedded."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest
from PIL import Image

from pytest_imgedit.core.images import encode_png, thumbnail
from pytest_imgedit.report.pictures import Picture, copied, embedded, linked
from pytest_imgedit.store.blobs import Blobs

DATA = encode_png(Image.linear_gradient("L").convert("RGB").resize((900, 600)))
SHA256 = hashlib.sha256(DATA).hexdigest()
NAME = f"{SHA256[:2]}/{SHA256}.png"


@pytest.fixture
def blobs(tmp_path):
    folder = tmp_path / "store" / "blobs"
    assert Blobs(folder).put(DATA) == SHA256
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    return folder


@pytest.mark.parametrize(
    "make", [linked, copied, lambda blobs, page: embedded(blobs)], ids=["link", "copy", "embed"]
)
def test_a_name_that_is_no_blob_is_no_image(blobs, tmp_path, make):
    locate = make(blobs, tmp_path / "page.html")
    for name in (
        "../../secret.png",
        str(tmp_path / "secret.png"),
        f"cd/{'cd' * 32}.png",
        NAME.replace(".png", ".svg"),
    ):
        assert locate(name) is None
    assert not list(tmp_path.glob("page_files/*"))
    assert locate(NAME) is not None


def test_pages_show_thumbnails_and_lead_to_the_image(blobs, tmp_path):
    thumbnail = NAME.replace(".png", ".thumbnail.webp")
    in_store = "store/blobs/"
    assert linked(blobs, tmp_path / "page.html")(NAME) == Picture(
        in_store + thumbnail, in_store + NAME
    )
    assert Image.open(blobs / thumbnail).size == (512, 341)
    name = thumbnail.partition("/")[2]
    assert copied(blobs, tmp_path / "my page.html")(NAME) == Picture(
        f"my%20page_files/{name}", in_store + NAME
    )
    assert [path.name for path in (tmp_path / "my page_files").iterdir()] == [name]
    inside = embedded(blobs)(NAME)
    assert base64.b64decode(inside.thumbnail.partition(",")[2]) == (blobs / thumbnail).read_bytes()
    assert inside.full is None


def test_a_thumbnail_that_the_store_has_is_not_made_again(blobs, tmp_path):
    of_the_worker = thumbnail(Image.new("RGB", (8, 8), "red"))
    Blobs(blobs).put_thumbnail(SHA256, of_the_worker)
    Blobs(blobs).put_thumbnail(SHA256, thumbnail(Image.new("RGB", (8, 8), "blue")))
    copied(blobs, tmp_path / "page.html")(NAME)
    assert (tmp_path / "page_files" / f"{SHA256}.thumbnail.webp").read_bytes() == of_the_worker


WHOLE = thumbnail(Image.linear_gradient("L"))
#: Headers of WebP files of 16,777,216 pixels a side, and of 16,383.
BOMBS = (
    b"RIFF" + (22).to_bytes(4, "little") + b"WEBPVP8X" + (10).to_bytes(4, "little")
    + bytes(4) + b"\xff" * 6,
    b"RIFF" + (30).to_bytes(4, "little") + b"WEBPVP8 " + (18).to_bytes(4, "little")
    + b"\x10\x00\x00\x9d\x01\x2a" + b"\xff\x3f" * 2 + bytes(8),
)  # fmt: skip


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"no image",
        bytes(len(WHOLE)),
        WHOLE[: len(WHOLE) // 2],
        WHOLE[:11],
        b"RIFF" + bytes(len(WHOLE) - 4),
        DATA,
        *BOMBS,
    ],
    ids=["empty", "text", "zeros", "half", "head", "zeros-behind", "png", "bomb-x", "bomb"],
)
@pytest.mark.parametrize(
    "make", [linked, copied, lambda blobs, page: embedded(blobs)], ids=["link", "copy", "embed"]
)
def test_a_damaged_thumbnail_is_made_again(blobs, tmp_path, damaged, make):
    path = blobs / NAME.replace(".png", ".thumbnail.webp")
    path.write_bytes(damaged)
    assert make(blobs, tmp_path / "page.html")(NAME) is not None
    with Image.open(path) as image:
        assert (image.format, image.size) == ("WEBP", (512, 341))


def test_an_oversized_thumbnail_is_made_again(blobs):
    path = blobs / NAME.replace(".png", ".thumbnail.webp")
    path.write_bytes(WHOLE)
    os.truncate(path, 300 * 2**20)
    assert len(embedded(blobs)(NAME).thumbnail) < 2**20
    assert path.stat().st_size < 2**20


def test_a_blob_that_does_not_decode_is_no_image(blobs, tmp_path):
    sha256 = hashlib.sha256(b"no image").hexdigest()
    path = Blobs(blobs).path(sha256)
    path.parent.mkdir()
    path.write_bytes(b"no image")
    assert linked(blobs, tmp_path / "page.html")(str(path.relative_to(blobs))) is None


@pytest.mark.parametrize("what", ["blob", "thumbnail"])
@pytest.mark.parametrize(
    "make", [linked, copied, lambda blobs, page: embedded(blobs)], ids=["link", "copy", "embed"]
)
def test_no_file_from_outside_of_the_store_comes_into_a_page(blobs, tmp_path, make, what):
    path = blobs / (NAME if what == "blob" else NAME.replace(".png", ".thumbnail.webp"))
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "secret.png")
    picture = make(blobs, tmp_path / "page.html")(NAME)
    assert (picture is None) == (what == "blob")
    secret = (tmp_path / "secret.png").read_bytes()
    assert secret not in [file.read_bytes() for file in tmp_path.glob("page_files/*")]
    if what == "thumbnail":
        assert not path.is_symlink()  # it was made anew
        assert Image.open(path).size == (512, 341)
