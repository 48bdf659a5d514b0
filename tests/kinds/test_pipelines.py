"""Every instruction-editing pipeline of diffusers does what an edit needs, each with a tiny random
checkpoint.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.compute.seeding import seed_all
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.edit_checks import ASPECT_TOLERANCE, is_reframed
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.pipeline_arguments import (
    ADAPTERS,
    SET_BY_HARNESS,
    call_signature,
    fit,
    why_refused,
)
from pytest_imgedit.kinds.registry import make_model

torch = Later("torch")

pytestmark = pytest.mark.everyday

#: The tiny checkpoint of each class, and an area smaller than the model's own where that saves
#: seconds.
CLASSES = {
    "BriaFibo2Pipeline": ("bria-fibo2", 320 * 208),
    "BriaFiboEditPipeline": ("bria-fibo-edit", 640 * 400),
    "DreamLiteMobilePipeline": ("dreamlite-mobile", None),
    "DreamLitePipeline": ("dreamlite", None),
    "Flux2KleinKVPipeline": ("flux2-klein-kv", 640 * 400),
    "Flux2KleinPipeline": ("flux2-klein", 640 * 400),
    "Flux2Pipeline": ("flux2", 640 * 400),
    "FluxKontextPipeline": ("flux-kontext", None),
    "GlmImagePipeline": ("glm-image", 416 * 256),
    "JoyImageEditPipeline": ("joyimage", None),
    "JoyImageEditPlusPipeline": ("joyimage-plus", None),
    "LongCatImageEditPipeline": ("longcat-image-edit", None),
    "OmniGenPipeline": ("omnigen", 640 * 400),
    "QwenImage21Pipeline": ("qwen-image21", None),
    "QwenImageEditPipeline": ("qwen-image-edit", None),
    "QwenImageEditPlusPipeline": ("qwen-image-edit-plus", None),
    "StableDiffusionInstructPix2PixPipeline": ("instruct-pix2pix", None),
    "StableDiffusionXLInstructPix2PixPipeline": ("cosxl", None),
    "ZImageOmniPipeline": ("zimage-omni", 640 * 400),
}
#: Those that are run every day: one of each way to take a source, as cheap as that can be.
EVERYDAY = (
    "DreamLitePipeline",
    "StableDiffusionInstructPix2PixPipeline",
    "ZImageOmniPipeline",
)
VISIBLE = 2


def picture(seed, size=(328, 200)):
    """A colourful picture; 328 and 200 are no multiples of 16."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def editor(tiny):
    """Make an editor of a pipeline's class, once a module."""
    made = {}

    def make(name):
        if name not in made:
            builder, area = CLASSES[name]
            folder = tiny(builder)
            params = {} if area is None else {"area": area}
            made[name] = DiffusersEditor(str(folder), device="cpu", num_inference_steps=2, **params)
            made[name].folder = folder
        return made[name]

    return make


def edit(editor, source, instruction="make it red", seed=1, world=7):
    """Edit as a worker does, in a process whose generators are in the state `world`."""
    torch.manual_seed(world)
    request = EditRequest("a", "physics", instruction, source, seed)
    seed_all(request.seed)
    return editor.edit(request)


def difference(one, other):
    return int(np.abs(np.asarray(one, int) - np.asarray(other, int)).max())


def test_the_table_is_that_of_the_tests():
    assert set(CLASSES) == set(ADAPTERS)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.everyday_for(*EVERYDAY)
def test_pipeline_edits_as_it_must(editor, name):
    subject = editor(name)
    first = edit(subject, picture(1))
    assert first.mode in ("RGB", "RGBA")
    assert not is_reframed(picture(1), first), (
        f"{first.size} for 328x200, expected within {ASPECT_TOLERANCE:.0%}"
    )
    assert difference(edit(subject, picture(1), world=8), first) == 0, (
        "a repeat, with other global generators"
    )
    assert difference(edit(subject, picture(1), seed=2), first) >= VISIBLE, "the seed"
    assert difference(edit(subject, picture(2)), first) >= VISIBLE, "the source"
    other = edit(subject, picture(1), "remove all of the trees and let it rain")
    assert difference(other, first) >= VISIBLE, "the instruction"


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.everyday_for(*EVERYDAY)
def test_pipeline_keeps_the_aspect_of_a_tall_source(editor, name):
    edited = edit(editor(name), picture(3, (171, 301)))
    assert not is_reframed(picture(3, (171, 301)), edited), f"{edited.size} for 171x301"


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.everyday_for(*EVERYDAY)
def test_pipeline_passes_its_own_check_when_it_loads(editor, name):
    editor(name).self_check()


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.everyday_for(*EVERYDAY, "FluxKontextPipeline")
def test_a_default_that_changes_the_call_changes_the_key(editor, name, tmp_path):
    """Each argument of a call, set to the pipeline's own default: another call is another key."""
    subject = editor(name)

    def digest(**params):
        return identify(
            make_model("editor", f"diffusers:{subject.folder}", params), tmp_path / "cache.json"
        ).digest

    base = digest()
    request = EditRequest("a", "physics", "x", picture(1), 1)
    plain = subject.adapter.arguments(subject.pipeline, request, {}, None)
    for argument, value in call_signature(name).defaults.items():
        if argument in SET_BY_HARNESS or value is None or argument in ("width", "height"):
            continue
        given = subject.adapter.arguments(subject.pipeline, request, {argument: value}, None)
        if argument in plain and given[argument] != plain[argument]:
            assert digest(**{argument: value}) != base, argument
    if {"width", "height"} <= set(call_signature(name).annotations):
        sizes = {
            side: call_signature(name).defaults.get(side) or 64 for side in ("width", "height")
        }
        assert digest(**sizes) != base


@pytest.mark.parametrize("name", CLASSES)
def test_adapters_give_arguments_that_the_call_takes(name):
    call = call_signature(name)
    adapter = ADAPTERS[name]
    given = {adapter.image, "prompt", *(("width", "height") if adapter.gives_size else ())}
    given |= set(adapter.further((64, 64))) if adapter.further else set()
    assert given <= set(call.annotations)


@pytest.mark.parametrize("size", [(2441, 82), (3760, 80), (80, 3760)])
def test_a_very_long_source_keeps_its_aspect_where_that_can_be(size):
    width, height = fit(size, 1024**2, 32)
    assert width * height <= 1024**2
    assert width / height == pytest.approx(size[0] / size[1], rel=0.05)


@pytest.mark.parametrize(
    "size", [(328, 200), (200, 328), (1472, 1104), (100, 100), (3000, 300), (257, 255)]
)
@pytest.mark.parametrize("multiple", [8, 16, 32])
def test_a_fitted_size_keeps_the_aspect_within_the_area(size, multiple):
    width, height = fit(size, 1024**2, multiple)
    assert width % multiple == height % multiple == 0
    assert 0.8 * 1024**2 <= width * height <= 1024**2
    assert width / height == pytest.approx(size[0] / size[1], rel=0.011)


def editor_of(kind, tmp_path, **params):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": kind}))
    return make_model("editor", f"diffusers:{tmp_path}", params)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("QwenImageLayeredPipeline", "takes a picture apart into layers"),
        ("VisualClozePipeline", "takes no instruction"),
        ("FluxFillPipeline", "fills a mask"),
        ("QwenImageEditInpaintPipeline", "fills a mask"),
        ("FluxControlNetPipeline", "follows a control image"),
        ("FluxImg2ImgPipeline", "varies an image"),
        ("WanImageToVideoPipeline", "makes videos"),
        ("StableDiffusionUpscalePipeline", "enlarges images"),
        ("FluxPipeline", "no adapter is known"),
    ],
)
def test_what_is_no_instruction_editor_is_refused_with_its_reason(tmp_path, kind, reason):
    assert reason in why_refused(kind)
    with pytest.raises(
        UsageError, match=rf"{kind} is no instruction editor \(.*{reason}.*\), expected one of "
    ):
        editor_of(kind, tmp_path).check(Site())


@pytest.mark.parametrize("kind", ["Step1XEditPipeline", "HiDreamE1Pipeline", "OmniGen2Pipeline"])
def test_what_this_diffusers_lacks_is_refused(tmp_path, kind):
    with pytest.raises(UsageError, match=rf"{kind} is not in diffusers \d"):
        editor_of(kind, tmp_path).check(Site())


def test_a_missing_class_ends_the_run_before_anything_starts(bench, tmp_path):
    editor_of("Step1XEditPipeline", tmp_path)
    bench.refuses(
        "editor diffusers:*: Step1XEditPipeline is not in diffusers *",
        f"--imgedit-editor=diffusers:{tmp_path}",
    )


def test_sizes_of_the_user_take_the_place_of_the_policy(editor):
    subject = editor("FluxKontextPipeline")
    call = {"width": 256, "height": 128}
    request = EditRequest("a", "physics", "x", picture(1), 1)
    arguments = subject.adapter.arguments(subject.pipeline, request, call, None)
    assert (arguments["width"], arguments["height"], arguments["image"].size) == (
        256,
        128,
        (256, 128),
    )


def test_an_area_that_the_pipeline_cannot_be_given_is_refused(tiny, tmp_path):
    with pytest.raises(SettingError, match=r"^LongCatImageEditPipeline takes no size$") as caught:
        editor_of("LongCatImageEditPipeline", tmp_path, area=65536).check(Site())
    assert caught.value.key == "area"


def test_a_width_without_a_height_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"^expected editor.height beside it$") as caught:
        editor_of("FluxKontextPipeline", tmp_path, width=64).check(Site())
    assert caught.value.key == "width"
