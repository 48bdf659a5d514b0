"""Images of a page: only blobs of the store are linked, copied or embedded."""

from __future__ import annotations

import pytest
from PIL import Image

from pytest_imgedit.report.pictures import copied, embedded, linked

NAME = f"ab/{'ab' * 32}.png"


@pytest.fixture
def blobs(tmp_path):
    folder = tmp_path / "store" / "blobs"
    (folder / "ab").mkdir(parents=True)
    Image.effect_noise((900, 600), 60).convert("RGB").save(folder / NAME)
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    return folder


@pytest.mark.parametrize("make", [linked, copied, lambda blobs, page: embedded(blobs)], ids=["link", "copy", "embed"])
def test_a_name_that_is_no_blob_is_no_image(blobs, tmp_path, make):
    locate = make(blobs, tmp_path / "page.html")
    for name in ("../../secret.png", str(tmp_path / "secret.png"), f"cd/{'cd' * 32}.png", NAME.replace(".png", ".svg")):
        assert locate(name) is None
    assert not list(tmp_path.glob("page_files/*"))
    assert locate(NAME) is not None


def test_copies_stand_beside_the_page_and_embedded_images_are_reduced(blobs, tmp_path):
    assert copied(blobs, tmp_path / "my page.html")(NAME) == f"my%20page_files/{'ab' * 32}.png"
    assert (tmp_path / "my page_files" / f"{'ab' * 32}.png").read_bytes() == (blobs / NAME).read_bytes()
    assert len(embedded(blobs)(NAME)) < len((blobs / NAME).read_bytes()) / 4
