"""Pipelines of diffusers that take several source images, each with a tiny random checkpoint, and
what the others say to a pair of several.
"""

from __future__ import annotations

import json

import pytest
from later import Later
from test_pipelines import CLASSES, difference, picture

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.compute.seeding import seed_all
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.edit_checks import is_reframed
from pytest_imgedit.kinds.pipeline_arguments import ADAPTERS
from pytest_imgedit.kinds.registry import make_model

torch = Later("torch")

pytestmark = pytest.mark.everyday

SMALL = {"area": 320 * 208}
#: Those that take several, with parameters that save seconds.
SEVERAL = {
    "Flux2KleinKVPipeline": SMALL,
    "Flux2KleinPipeline": SMALL,
    "Flux2Pipeline": SMALL,
    "JoyImageEditPlusPipeline": SMALL,
    "OmniGenPipeline": SMALL,
    "QwenImage21Pipeline": {"output_resolution": 512},
    "QwenImageEditPlusPipeline": SMALL,
    "ZImageOmniPipeline": SMALL,
}
#: Those that are run every day.
EVERYDAY = ("Flux2KleinPipeline", "QwenImageEditPlusPipeline")
QWEN_PLUS = "diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus"
#: Three sources of unlike shapes.
WIDE, TALL, SQUARE = (328, 200), (171, 301), (240, 240)


@pytest.fixture(scope="module")
def editor(tiny):
    """Make an editor of a pipeline's class, once a module. Sources of Qwen-Image-Edit-Plus are
    encoded at 256² instead of 1024², which is a constant of its module.
    """
    made = {}

    def make(name):
        if name not in made:
            folder = str(tiny(CLASSES[name][0]))
            params = {"num_inference_steps": 2, **SEVERAL[name]}
            made[name] = DiffusersEditor(folder, device="cpu", **params)
        return made[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{QWEN_PLUS}.VAE_IMAGE_SIZE", 256**2)
        yield make


def request_for(*sources, edited_source=1, seed=1):
    """A request with several sources, of which the edited one has that place."""
    further = [*sources]
    source = further.pop(edited_source - 1)
    instruction = "put them in one picture"
    return EditRequest(
        "a", "physics", instruction, source, seed, further=(*further,), edited_source=edited_source
    )


def values(editor, *sources, seed=1):
    """The values of an edit on [0, 1] before they are rounded to 8 bits."""
    seed_all(seed)
    return editor.adapter.edited(editor.run(request_for(*sources, seed=seed), "pt")).float()


def differ(one, other):
    """Whether edits differ by far more than by rounding; those of a repeat are equal bit by bit.
    Three sources hardly move a tiny random network.
    """
    return one.shape != other.shape or float((one - other).abs().max()) > 2e-5


def test_the_table_is_that_of_the_tests():
    assert {name for name, row in ADAPTERS.items() if row.max_sources != 1} == set(SEVERAL)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.everyday_for(*EVERYDAY)
def test_every_source_and_their_order_decide_the_edit(editor, name):
    """Costly: seven edits, each of which encodes two or three sources."""
    subject = editor(name)
    sources = [picture(1, WIDE), picture(2, TALL), picture(3, SQUARE)]
    first = values(subject, *sources)
    assert values(subject, *sources).equal(first), "a repeat"
    assert differ(values(subject, *sources, seed=2), first), "the seed"
    for place, size in enumerate((WIDE, TALL, SQUARE)):
        changed = [*sources]
        changed[place] = picture(4, size)
        assert differ(values(subject, *changed), first), f"source {place + 1}"
    assert differ(values(subject, sources[0], sources[2], sources[1]), first), "their order"
    assert differ(values(subject, *sources[:2]), first), "their number"


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.everyday_for(*EVERYDAY)
def test_an_edit_has_the_shape_of_the_edited_source(editor, name):
    subject = editor(name)
    sources = [picture(1, WIDE), picture(2, TALL), picture(3, SQUARE)]
    for place, source in enumerate(sources, 1):
        edited = subject.edit(request_for(*sources, edited_source=place))
        assert not is_reframed(source, edited), f"{edited.size} for {source.size}"
    pair = subject.edit(request_for(*sources[:2], edited_source=2))
    assert not is_reframed(sources[1], pair)


@pytest.mark.parametrize("name", SEVERAL)
def test_a_call_gets_all_sources_in_their_order(name):
    class Pipeline:
        """What the adapters ask of a pipeline."""

        vae_scale_factor = vae_scale_factor_spatial = 8
        transformer = type("", (), {"config": type("", (), {"patch_size": (1, 2, 2)})})
        image_processor = type("", (), {})()

        def __call__(self, image=None, width=None, height=None): ...

    sources = [picture(1, WIDE), picture(2, TALL), picture(3, SQUARE)]
    request = request_for(*sources, edited_source=2)
    row = ADAPTERS[name]
    arguments = row.arguments(Pipeline(), request, {}, None)
    handed = arguments[row.image]
    assert [image.size for image in (handed[0], handed[2])] == [WIDE, SQUARE]
    assert difference(handed[1].resize(TALL), sources[1]) < 64
    width, height = arguments["width"], arguments["height"]
    assert not is_reframed(sources[1], sources[1].resize((width, height)))
    assert arguments["prompt"].count("<|image_") == (3 if name == "OmniGenPipeline" else 0)


def test_a_single_source_is_edited_as_by_the_pipeline_itself(tiny):
    """The size that a call gets is the one that the pipeline takes without one."""
    editor = DiffusersEditor(str(tiny("qwen-image-edit-plus")), device="cpu", num_inference_steps=2)
    request = EditRequest("a", "physics", "make it red", picture(1), 5)
    (direct,) = editor.pipeline(
        image=[picture(1)],
        prompt="make it red",
        negative_prompt=" ",
        num_inference_steps=2,
        generator=torch.Generator("cpu").manual_seed(5),
        output_type="pil",
    ).images
    assert difference(editor.edit(request), direct) == 0


@pytest.mark.parametrize("side", [None, 512])
def test_qwen_image_21_has_the_area_of_its_output_resolution(side):
    class Pipeline:
        """What the adapter asks of a pipeline."""

        def __call__(self, image, width=None, height=None, output_resolution=1024): ...

    call = {} if side is None else {"output_resolution": side}
    request = EditRequest("a", "physics", "x", picture(1, (400, 200)), 1)
    arguments = ADAPTERS["QwenImage21Pipeline"].arguments(Pipeline(), request, call, None)
    expected = {None: (1440, 736), 512: (736, 352)}
    assert (arguments["width"], arguments["height"]) == expected[side]


def model_of(kind, folder):
    (folder / "model_index.json").write_text(json.dumps({"_class_name": kind}))
    return make_model("editor", f"diffusers:{folder}", {})


@pytest.mark.parametrize(
    ("kind", "most", "why"),
    [
        ("QwenImageEditPlusPipeline", None, ""),
        ("QwenImageEditPipeline", 1, ""),
        ("FluxKontextPipeline", 1, "a list is a batch of edits"),
        ("GlmImagePipeline", 1, "diffusers 0.42.1 fails on the features of several"),
    ],
)
def test_a_class_says_how_many_sources_it_takes(tmp_path, kind, most, why):
    model = model_of(kind, tmp_path)
    assert (model.max_sources, model.why_fewer_sources) == (most, why)


def test_a_model_that_is_not_here_may_take_any_number():
    assert make_model("editor", "diffusers:some/model", {}).max_sources is None


def test_a_call_refuses_more_sources_than_it_takes(tiny):
    editor = DiffusersEditor(str(tiny("flux-kontext")), device="cpu", num_inference_steps=2)
    with pytest.raises(
        ValueError, match=r"^2 source images, expected at most 1: FluxKontextPipeline takes no more"
    ):
        editor.edit(request_for(picture(1), picture(2)))


def test_glm_image_still_fails_on_several_sources(tiny):
    """If it no longer does, its row in the table is to take several."""
    editor = DiffusersEditor(
        str(tiny("glm-image")), device="cpu", num_inference_steps=2, area=416 * 256
    )
    sources = [picture(1), picture(2)]
    with pytest.raises(Exception, match=r"split_with_sizes|shape|size"):
        editor.pipeline(prompt="x", image=sources, width=416, height=256, num_inference_steps=2)
