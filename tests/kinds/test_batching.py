"""Batches of edits: an edit is the same bytes alone, in any company and at any place of a padded
call.
"""

from __future__ import annotations

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import OutputError, SettingError, SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import Diffusers, DiffusersEditor
from pytest_imgedit.kinds.pipeline_arguments import ADAPTERS
from pytest_imgedit.scenes import WEIGHTS
from pytest_imgedit.workers.editing import EditCalls

torch = Later("torch")

pytestmark = pytest.mark.everyday

#: Pipelines that take several sources a call, and the most that an edit may differ from a single
#: one, of 255.
BATCHING = {
    "FluxKontextPipeline": ("flux-kontext", 1),
    "StableDiffusionInstructPix2PixPipeline": ("instruct-pix2pix", 1),
    "StableDiffusionXLInstructPix2PixPipeline": ("cosxl", 1),
}
INSTRUCTIONS = ("make it red", "put a much larger green hat on the man at the left", "x")


@pytest.fixture
def threads():
    """Sets the number of threads, which is put back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def picture(seed, size=(328, 200)):
    small = np.random.default_rng(seed).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def requests(count=3, size=(328, 200)):
    texts = [INSTRUCTIONS[n % 3] for n in range(count)]
    return [
        EditRequest(f"p{n}", "physics", text, picture(n, size), seed=n + 5)
        for n, text in enumerate(texts)
    ]


def embedded(steps=2):
    return DiffusersEditor(
        str(WEIGHTS / "editor"), device="cpu", num_inference_steps=steps, guidance_scale=1.0
    )


def pixels(editor, size, asked):
    """Edit as a worker does; return the bytes of the images."""
    calls = EditCalls(editor, size, pads=True)
    assert calls.batch_size == size
    return [output.value.tobytes() for output in calls.edit(asked)]


def test_every_pipeline_that_batches_is_tried_here():
    assert {name for name, adapter in ADAPTERS.items() if adapter.batches} == set(BATCHING)


@pytest.mark.parametrize("name", BATCHING)
@pytest.mark.everyday_for("StableDiffusionInstructPix2PixPipeline")
def test_an_edit_does_not_depend_on_its_company(name, tiny, threads):
    threads(1)
    builder, tolerance = BATCHING[name]
    editor = DiffusersEditor(str(tiny(builder)), device="cpu", num_inference_steps=2)
    asked = requests()
    together = pixels(editor, 3, asked)
    assert len(set(together)) == 3
    assert pixels(editor, 3, asked[::-1]) == together[::-1]
    assert [pixels(editor, 3, [request])[0] for request in asked] == together
    single = [np.frombuffer(edit, np.uint8).astype(int) for edit in pixels(editor, 1, asked)]
    for one, other in zip(single, together, strict=True):
        assert np.abs(one - np.frombuffer(other, np.uint8)).max() <= tolerance


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.full
def test_an_edit_of_the_embedded_editor_does_not_depend_on_its_company(count, threads):
    threads(count)
    editor, asked = embedded(), requests(8, (128, 128))
    together = pixels(editor, 8, asked)
    assert len(set(together)) == 8
    assert pixels(editor, 8, [*asked[5:], *asked[:5]]) == [*together[5:], *together[:5]]
    assert pixels(editor, 8, asked[3:4]) == together[3:4]


def test_an_editor_whose_edits_depend_on_their_place_makes_one_a_call(monkeypatch):
    editor = embedded()
    run_batch = editor.run_batch

    def uneven(asked, **override):
        output = run_batch(asked, **override)
        output.images[-1] += 1e-4
        return output

    assert EditCalls(editor, 2, pads=True).batch_size == 2
    monkeypatch.setattr(editor, "run_batch", uneven)
    assert EditCalls(editor, 2, pads=True).batch_size == 1


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("QwenImageEditPlusPipeline", "makes one edit a call"),
        ("QwenImageEditPipeline", "pads the texts of a call to the longest, on which edits depend"),
    ],
)
def test_a_pipeline_of_which_that_cannot_be_had_makes_one_edit_a_call(kind, reason, tiny):
    builder = "qwen-image-edit-plus" if "Plus" in kind else "qwen-image-edit"
    folder = str(tiny(builder))
    spec = f"diffusers:{folder}"
    with pytest.raises(SettingError, match=f"found 4, but {kind} {reason}"):
        Diffusers(spec, folder, batch_size=4).check(Site())
    Diffusers(spec, folder).check(Site())
    editor = DiffusersEditor(folder, device="cpu", num_inference_steps=1)
    with pytest.raises(SetupError, match=f"{kind} {reason}"):
        editor.edit_batch(requests())


def test_an_image_that_is_not_finite_is_the_error_of_its_edit_alone():
    editor = embedded(1)
    decode = editor.pipeline.vae.decode

    def spoiled(latents, **named):
        output = decode(latents, **named)
        output[0][1] = torch.nan
        return output

    editor.pipeline.vae.decode = spoiled
    editor.pipeline.image_processor.postprocess = lambda image, **named: image
    first, second, third = editor.edit_batch(requests())
    assert isinstance(second, OutputError)
    assert isinstance(first, Image.Image)
    assert isinstance(third, Image.Image)


def test_each_denoising_step_is_told():
    editor = embedded(3)
    told = []
    editor.on_step = lambda step, steps: told.append((step, steps))
    editor.edit(requests()[0])
    assert told == [(1, 3), (2, 3), (3, 3)]
