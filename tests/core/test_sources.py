"""Pairs and requests of several source images: their order and their names."""

from __future__ import annotations

import io

import pytest
from PIL import Image
from run_world import Drawn, png

from pytest_imgedit.core import wire
from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.pairs import EditPair, in_order_of_sources, named_images, source_names
from pytest_imgedit.core.requests import EditRequest

A, B, C = (Drawn(color) for color in (10, 20, 30))


def pair(edited, *further):
    return EditPair("a", "physics", "x", A, further=further, edited_source=edited)


@pytest.mark.parametrize(
    ("edited", "order", "names"),
    [
        (1, (A, B, C), ("source", "source-2", "source-3")),
        (2, (B, A, C), ("source-1", "source", "source-3")),
        (3, (B, C, A), ("source-1", "source-2", "source")),
    ],
)
def test_the_edited_source_has_its_place_among_the_others(edited, order, names):
    several = pair(edited, B, C)
    assert several.sources == order
    assert several.images == dict(zip(names, order, strict=True))
    assert [*several.images] == [*names]
    assert source_names(3, edited) == names
    assert in_order_of_sources("A", ("B", "C"), edited)[edited - 1] == "A"


def test_one_source_is_named_as_before_and_the_reference_comes_last():
    assert pair(1).images == {"source": A}
    assert [*named_images(A, (B,), C, 2)] == ["source-1", "source", "reference"]
    assert named_images(None, (), C) == {"reference": C}


def encoded(**changes):
    """The fields of a request of three sources, the second of which is edited."""
    sources = {"source": png(10), "further": (png(20), png(30)), "edited_source": 2}
    fields = {"pair_id": "a", "category": "b", "instruction": "c", "seed": 1, "reference": None}
    return vars(EditRequest(**{**fields, **sources, **changes}))


def reds(images):
    return [image.getpixel((0, 0))[0] for image in images]


def test_a_request_crosses_the_wire_with_its_sources_in_order():
    buffer = io.BytesIO()
    wire.send(buffer, encoded(reference=png(40)))
    buffer.seek(0)
    request = EditRequest.decoded(wire.receive(buffer))
    assert reds([request.source, *request.further, request.reference]) == [10, 20, 30, 40]
    assert isinstance(request.further, tuple)
    assert (request.edited_source, request.instruction) == (2, "c")
    assert reds(request.sources) == [20, 10, 30]
    names = {"source-1": 20, "source": 10, "source-3": 30}
    assert dict(zip(request.named_sources, reds(request.sources), strict=True)) == names


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"source": b"x"}, "source"),
        ({"further": (b"x", png(30))}, "source-1"),
        ({"further": (png(20), b"x")}, "source-3"),
        ({"further": (b"x",), "edited_source": 1}, "source-2"),
        ({"reference": b"x"}, "reference"),
    ],
)
def test_an_image_that_does_not_decode_is_named(changes, name):
    with pytest.raises(ImageError, match=rf"^{name}: "):
        EditRequest.decoded(encoded(**changes))


def test_what_is_said_of_a_source_is_not_said_of_its_edit():
    buffer = io.BytesIO()
    Image.new("RGBA", (16, 16), (0, 0, 0, 9)).save(buffer, "PNG")
    data = buffer.getvalue()
    request = EditRequest.decoded(encoded(source=data, further=(data,), edited_source=1))
    assert [image.info for image in request.sources] == [{}, {}]
