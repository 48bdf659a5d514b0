"""Editors and metrics get the source images of a pair in its order, and know the edited one."""

from __future__ import annotations

import base64
import io
from types import SimpleNamespace

import pytest
from api_server import api_server
from asking import Asked
from later import Later
from PIL import Image
from run_world import png

from pytest_imgedit.core import wire
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.core.requests import EditRequest, Question
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.workers.editing import EditCalls

sharded_editor = Later("pytest_imgedit.kinds.sharded_editor")
SIZES = {10: (40, 24), 20: (24, 24), 30: (32, 48)}
#: Three sources, of which the second is edited.
REDS = [20, 10, 30]


def picture(red):
    return (
        Image.linear_gradient("L").resize(SIZES[red]).convert("RGB").point(lambda v: v // 2 + red)
    )


def request():
    edited, first, third = (picture(red) for red in (10, 20, 30))
    return EditRequest("a", "b", "c", edited, 1, further=(first, third), edited_source=2)


def sizes(images):
    return [image.size for image in images]


@pytest.fixture
def server():
    data = {"data": [{"b64_json": base64.b64encode(png(200, 32)).decode()}]}
    with api_server(lambda fields: (200, data)) as server:
        yield server


def test_a_server_gets_the_files_in_the_order_of_the_pair(server):
    editor = Asked(make_model("editor", f"openai-images:{server.url}#m", {}))
    editor.edit(request())
    (fields,) = server.asked
    assert sizes(map(decode, fields["image[]"])) == [SIZES[red] for red in REDS]
    assert "image" not in fields


def test_a_server_gets_one_source_as_one_file(server):
    editor = Asked(make_model("editor", f"openai-images:{server.url}#m", {}))
    editor.edit(EditRequest("a", "b", "c", picture(10), 1))
    (fields,) = server.asked
    assert decode(fields["image"]).size == SIZES[10]
    assert "image[]" not in fields


@pytest.mark.parametrize(
    ("spec", "size"), [("identity", SIZES[10]), ("blank", SIZES[10]), ("noise", SIZES[10])]
)
def test_controls_are_made_of_the_edited_source(spec, size):
    model = make_model("editor", spec, {})
    assert model.max_sources is None
    assert model.target.build("cpu", {}).edit(request()).size == size


def test_an_editor_that_draws_on_its_sources_spoils_no_request():
    class Draws:
        def edit(self, request):
            for image in request.sources:
                image.paste("white", (0, 0, *image.size))
            return request.source

    asked = request()
    before = [image.tobytes() for image in asked.sources]
    EditCalls(Draws()).edit([asked])
    assert [image.tobytes() for image in asked.sources] == before


@pytest.mark.usefixtures("pytorch")
@pytest.mark.everyday
def test_the_ranks_of_a_sharded_editor_get_all_sources():
    follower = sharded_editor._Follower.__new__(sharded_editor._Follower)
    follower.process = SimpleNamespace(stdin=io.BytesIO())
    follower.ask(request(), {"height": 8})
    follower.process.stdin.seek(0)
    job = wire.receive(follower.process.stdin)
    received = EditRequest.decoded(job["request"])
    assert sizes(received.sources) == sizes(request().sources)
    assert (received.edited_source, job["override"]) == (2, {"height": 8})
    for image, expected in zip(received.sources, request().sources, strict=True):
        assert encode_png(image) == encode_png(expected)


@pytest.mark.parametrize("metric", ["psnr", "ssim"])
def test_a_metric_compares_with_the_edited_source(metric):
    images = dict(zip(("source-1", "source", "source-3"), request().sources, strict=True))
    model = make_model("metric", metric, {})
    measure = model.target.build("cpu", model.worker_params)

    def score(edited):
        (answer,) = measure.answer([Question("a", "b", "c", {**images, "edited": edited})])
        return answer.score

    best = {"psnr": 100.0, "ssim": 1.0}[metric]
    assert score(picture(10)) == pytest.approx(best)
    assert score(picture(20)) < best
    assert score(picture(30)) < best
