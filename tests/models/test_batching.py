"""Batches of edits: each image as it is alone, to rounding, and the size that a pipeline makes fastest."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from PIL import Image
from tiers import full_but
from tiny_models import BUILDERS as MODELS
from tiny_pipelines import BUILDERS as FURTHER

from pytest_imgedit.core.errors import OutputError, SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.editors import batching
from pytest_imgedit.editors.batching import fastest_batch, trial_requests
from pytest_imgedit.editors.diffusers import DiffusersEditor
from pytest_imgedit.models.adapters import ADAPTERS
from pytest_imgedit.scenes import WEIGHTS
from pytest_imgedit.workers.editing import BatchLimits, EditCalls

BUILDERS = {**MODELS, **FURTHER}
#: Pipelines that take several sources a call, and the most that an edit may differ in a batch, of 255, in float32.
BATCHING = {
    "FluxKontextPipeline": ("flux-kontext", 0.5),
    "QwenImageEditPipeline": ("qwen-image-edit", 0.01),
    "StableDiffusionInstructPix2PixPipeline": ("instruct-pix2pix", 0.01),
    "StableDiffusionXLInstructPix2PixPipeline": ("cosxl", 0.01),
}
INSTRUCTIONS = ("make it red", "put a much larger green hat on the man at the left", "x")


def picture(seed, size=(328, 200)):
    small = np.random.default_rng(seed).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def requests():
    return [EditRequest(f"p{n}", "physics", text, picture(n), seed=n + 5) for n, text in enumerate(INSTRUCTIONS)]


def values(editor, asked):
    return [value.float() * 255 for value in editor._batch_values(asked, {})]


def test_every_pipeline_that_batches_is_tried_here():
    assert {name for name, adapter in ADAPTERS.items() if adapter.batches} == set(BATCHING)


@pytest.mark.parametrize("name", full_but(["StableDiffusionInstructPix2PixPipeline"], BATCHING))
def test_an_edit_in_a_batch_is_what_it_is_alone(name, tmp_path):
    builder, tolerance = BATCHING[name]
    BUILDERS[builder](tmp_path / "model")
    editor = DiffusersEditor(str(tmp_path / "model"), device="cpu", num_inference_steps=2)
    alone = [values(editor, [request])[0] for request in requests()]
    together = values(editor, requests())
    assert max(float((a - b).abs().max()) for a, b in zip(alone, together, strict=True)) <= tolerance
    assert float((alone[0] - alone[1]).abs().max()) > 1  # the edits themselves differ


@pytest.mark.full
@pytest.mark.parametrize("size", [(720, 424), (512, 304), (640, 376), (300, 300)])
def test_an_edit_in_a_batch_has_the_size_that_it_has_alone(size, tmp_path):
    BUILDERS["qwen-image-edit"](tmp_path / "model")
    editor = DiffusersEditor(str(tmp_path / "model"), device="cpu", num_inference_steps=1)
    asked = [EditRequest(f"p{n}", "physics", text, picture(n, size), n) for n, text in enumerate(INSTRUCTIONS[:2])]
    assert [image.size for image in editor.edit_batch(asked)] == [editor.edit(asked[0]).size] * 2


@pytest.mark.full
def test_a_guided_edit_in_a_batch_is_what_it_is_alone(tmp_path):
    BUILDERS["qwen-image-edit"](tmp_path / "model")
    params = {"num_inference_steps": 2, "true_cfg_scale": 4.0, "negative_prompt": "blurred"}
    editor = DiffusersEditor(str(tmp_path / "model"), device="cpu", **params)
    together = values(editor, requests())
    assert float((values(editor, requests()[:1])[0] - together[0]).abs().max()) <= 0.01


def test_edits_of_the_embedded_editor_are_equal_in_batches_of_any_size():
    editor = DiffusersEditor(str(WEIGHTS / "editor"), device="cpu", num_inference_steps=20, guidance_scale=1.0)
    asked = [EditRequest(f"p{n}", "physics", "make it red", picture(n, (128, 128)), n) for n in range(4)]
    alone = editor.edit(asked[0])
    for size in (2, 4):
        first = editor.edit_batch(asked[:size])[0]
        difference = np.abs(np.asarray(first, dtype=int) - np.asarray(alone, dtype=int))
        assert difference.max() <= 1  # a value that lies on the edge of rounding
        assert difference.mean() < 0.001


def test_a_pipeline_that_takes_one_source_makes_one_edit_a_call(tmp_path):
    BUILDERS["qwen-image-edit-plus"](tmp_path / "model")
    editor = DiffusersEditor(str(tmp_path / "model"), device="cpu", num_inference_steps=1)
    assert editor.measure_batch_size(8, None) == (1, "batch size 1: QwenImageEditPlusPipeline takes one source a call")
    with pytest.raises(SetupError, match="found 4, but QwenImageEditPlusPipeline takes one source a call"):
        EditCalls(editor, BatchLimits(4))


def test_an_image_that_is_not_finite_is_the_error_of_its_edit_alone():
    editor = DiffusersEditor(str(WEIGHTS / "editor"), device="cpu", num_inference_steps=1, guidance_scale=1.0)
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


class Timed:
    """Edits that take `fixed` seconds a call and `each` a request; `largest` fits into memory."""

    def __init__(self, fixed, each, largest=100, mixes_up=False):
        self.fixed, self.each, self.largest, self.mixes_up, self.calls = fixed, each, largest, mixes_up, []

    def __call__(self, requests):
        self.calls.append(len(requests))
        if len(requests) > self.largest:
            raise torch.OutOfMemoryError("CUDA out of memory")
        time.sleep(self.fixed + self.each * len(requests))
        shown = requests[:1] * len(requests) if self.mixes_up else requests
        return [torch.full((3, 4, 4), 0.5 + request.seed / 8) for request in shown]


def test_batches_that_share_a_fixed_cost_are_taken_up_to_the_most():
    assert fastest_batch(Timed(0.05, 0.001), 8, None)[0] == 8


def test_batches_that_bring_nothing_are_not_made():
    timed = Timed(0.0, 0.03)
    size, remark = fastest_batch(timed, 8, None)
    assert size == 1
    assert remark.startswith("batch size 1 (2 was ")
    assert max(timed.calls) == 4  # two sizes have brought nothing


def test_a_size_that_does_not_fit_into_memory_ends_the_search():
    size, _ = fastest_batch(Timed(0.05, 0.001, largest=2), 8, None)
    assert size == 2
    assert fastest_batch(Timed(0.05, 0.001, largest=1), 8, None) == (1, "batch size 1 (2 does not fit into memory)")


@pytest.mark.full
def test_a_pipeline_that_mixes_up_a_batch_makes_one_edit_a_call():
    size, remark = fastest_batch(Timed(0.05, 0.001, mixes_up=True), 8, None)
    assert (size, remark) == (1, "batch size 1: an edit in a batch differs from the same edit alone")


def test_trial_requests_differ_in_source_and_seed():
    first, second = trial_requests(2)
    assert first.source.tobytes() != second.source.tobytes()
    assert first.seed != second.seed
    assert first.instruction != second.instruction


def test_a_slow_pipeline_that_gains_nothing_is_not_tried_for_long(monkeypatch):
    monkeypatch.setattr(batching, "CHEAP_SECONDS", 0.04)
    timed = Timed(0.0, 0.03)
    assert fastest_batch(timed, 8, None)[0] == 1
    assert max(timed.calls) == 2


def test_each_denoising_step_is_told():
    editor = DiffusersEditor(str(WEIGHTS / "editor"), device="cpu", num_inference_steps=3, guidance_scale=1.0)
    told = []
    editor.on_step = lambda step, steps: told.append((step, steps))
    editor.edit(requests()[0])
    assert told == [(1, 3), (2, 3), (3, 3)]
