"""Which edits are their pair's reference."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from pytest_imgedit.core import images
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Edit
from pytest_imgedit.run.leaks import mark_leaks
from pytest_imgedit.run.work import StoredImage, Work
from pytest_imgedit.store.store import Store
from tests.support.run_world import Drawn

GRAIN = np.random.default_rng(0).integers(60, 200, (4, 5, 3), dtype=np.uint8)
PHOTO = Image.fromarray(GRAIN).resize((128, 96), Image.Resampling.BICUBIC)


def redrawn() -> Image.Image:
    """What a good editor makes: like the reference, but for a few pixels of an edge."""
    image = PHOTO.copy()
    image.paste((0, 0, 0), (40, 40, 43, 42))
    return image


def noisy() -> Image.Image:
    noise = np.random.default_rng(0).integers(-3, 4, (96, 128, 3))
    return Image.fromarray((np.asarray(PHOTO) + noise).clip(0, 255).astype(np.uint8))


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store") as opened:
        yield opened


def marked(store: Store, edited: Image.Image, near_copy: bool = False, **changes: object) -> bool:
    """Whether an edit is marked, of a pair whose reference is `PHOTO` or the bytes of `changes`."""
    data = changes.get("reference", images.encode_png(PHOTO))
    sha256 = store.blobs.put(data)
    reference = StoredImage(sha256, images.suffix_of(data), PHOTO.size, Drawn(0), store)
    blob = changes.get("blob") or store.blobs.put(images.encode_png(edited))
    edit = Edit(
        blob,
        1.0,
        "edit-0",
        near_copy=near_copy,
        width=edited.width,
        height=edited.height,
        signature=images.signature(edited),
    )
    work = Work(EditPair("p", "physics", "x", Drawn(0)), 0, reference=reference, edit=edit)
    mark_leaks([work], store)
    return work.edit.leaked


@pytest.mark.parametrize(
    ("edited", "leaked"),
    [
        pytest.param(PHOTO, True, id="itself"),
        pytest.param(noisy(), True, id="rounded"),
        pytest.param(images.decode(images.encode_jpeg(PHOTO, 90)), True, id="jpeg"),
        pytest.param(redrawn(), False, id="redrawn"),
        pytest.param(PHOTO.filter(ImageFilter.BoxBlur(12)), False, id="blurred"),
        pytest.param(PHOTO.resize((64, 48)), False, id="smaller"),
        pytest.param(PHOTO.transpose(Image.Transpose.ROTATE_180), False, id="turned"),
    ],
)
def test_an_edit_that_equals_its_reference_is_a_leak(store, edited, leaked):
    assert marked(store, edited) is leaked


def test_a_reference_that_hardly_differs_from_the_source_does_not_leak(store):
    assert not marked(store, PHOTO, near_copy=True)


def test_what_cannot_be_read_is_no_leak(store):
    assert not marked(store, PHOTO, blob="0" * 64)
    assert not marked(store, PHOTO, reference=images.encode_png(PHOTO)[:300])


def test_pairs_without_reference_or_edit_are_left_alone(store):
    work = Work(EditPair("p", "physics", "x", Drawn(0)), 0, edit=Edit("ab" * 32, 1.0, "edit-0"))
    without_edit = Work(EditPair("q", "physics", "x", Drawn(0)), 0)
    mark_leaks([work, without_edit], store)
    assert (work.edit.leaked, without_edit.edit) == (False, None)
