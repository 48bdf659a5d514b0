"""Checkpoints whose weights are stored in variants, such as `model.fp16.safetensors`."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from checkpoint_files import pipeline, tensors
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.checkpoint_files import (
    Checkpoint,
    Digests,
    Layout,
    find_checkpoint,
    loaded_files,
    used_variant,
)
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model

diffusers = Later("diffusers")
torch = Later("torch")

PHOTO = Image.linear_gradient("L").convert("RGB").resize((64, 64))


@pytest.fixture(scope="module")
def folders(tiny, tmp_path_factory):
    """One pipeline in half precision, saved plainly, as a variant, and as a variant in shards."""
    folder = tmp_path_factory.mktemp("variants")
    loaded = diffusers.StableDiffusionInstructPix2PixPipeline.from_pretrained(
        tiny("instruct-pix2pix"), dtype=torch.float16
    )
    loaded.save_pretrained(folder / "plain")
    loaded.save_pretrained(folder / "variant", variant="fp16")
    loaded.save_pretrained(folder / "shards", variant="fp16", max_shard_size="20KB")
    return folder


def edited(folder, **params):
    editor = DiffusersEditor(str(folder), device="cpu", num_inference_steps=2, **params)
    return np.asarray(editor.edit(EditRequest("a", "physics", "make it snow", PHOTO, 5)))


def variants(tmp_path, **components):
    """A pipeline whose components have a weight file for each of these names."""
    folder = pipeline(tmp_path / "p")
    index = json.loads((folder / "model_index.json").read_text())
    for component, names in components.items():
        index[component] = ["diffusers", "Model"]
        (folder / component).mkdir(exist_ok=True)
        (folder / component / "config.json").write_text("{}")
        for path in (folder / component).glob("*.safetensors"):
            path.unlink()
        for name in names:
            (folder / component / name).write_bytes(tensors(b"1234"))
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def test_the_only_variant_is_found_by_itself(folders):
    expected = edited(folders / "plain")
    assert (edited(folders / "variant") == expected).all()
    assert (edited(folders / "variant", variant="fp16") == expected).all()


def test_the_shards_of_a_variant_are_those_of_its_index(folders):
    folder = folders / "shards"
    names = loaded_files(folder, Layout.PIPELINE)
    assert sum(name.startswith("unet/diffusion_pytorch_model.fp16-000") for name in names) > 1
    assert "unet/diffusion_pytorch_model.safetensors.index.fp16.json" in names
    assert (edited(folder) == edited(folders / "plain")).all()


def test_weights_without_a_variant_come_first(folders, tmp_path):
    folder = shutil.copytree(folders / "variant", tmp_path / "both")
    network = diffusers.UNet2DConditionModel.from_pretrained(folder / "unet", variant="fp16")
    with torch.no_grad():
        network.conv_in.weight.mul_(-1)
    network.save_pretrained(folder / "unet")
    for component in ("vae", "text_encoder"):
        shutil.copytree(folders / "plain" / component, folder / component, dirs_exist_ok=True)
    assert used_variant(folder, Layout.PIPELINE, None) is None
    assert (edited(folder) != edited(folders / "plain")).any()
    assert (edited(folder, variant="fp16") == edited(folders / "plain")).all()


def test_naming_the_variant_that_is_found_keeps_the_key(folders, tmp_path):
    def key(**params):
        model = make_model("editor", f"diffusers:{folders / 'variant'}", params)
        model.check(Site(is_here=True, may_have_gpus=False))
        return identify(model, tmp_path / "digests.json").digest

    assert key() == key(variant="fp16")


def test_results_record_the_variant_that_is_used(folders, tmp_path):
    def recorded(name, **params):
        model = make_model("editor", f"diffusers:{folders / name}", params)
        return identify(model, tmp_path / "digests.json").told["params"]

    assert recorded("variant") == recorded("variant", variant="fp16") == {"variant": "fp16"}
    assert recorded("plain") == {}


def test_a_component_without_the_variant_is_loaded_without(tmp_path):
    folder = variants(
        tmp_path, unet=["diffusion_pytorch_model.ema.safetensors"], vae=["model.safetensors"]
    )
    names = loaded_files(folder, Layout.PIPELINE)
    assert "unet/diffusion_pytorch_model.ema.safetensors" in names
    assert "vae/model.safetensors" in names
    assert Checkpoint(str(folder), Layout.PIPELINE).component_bytes("float32") == {
        "unet": 4,
        "vae": 4,
    }


def test_another_host_finds_the_files_of_the_variant(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = variants(
        tmp_path,
        unet=[
            "diffusion_pytorch_model.safetensors",
            "diffusion_pytorch_model.bf16.safetensors",
        ],
    )
    checkpoint = Checkpoint(str(folder), Layout.PIPELINE, "bf16")
    names = loaded_files(folder, Layout.PIPELINE, "bf16")
    assert "unet/diffusion_pytorch_model.safetensors" not in names
    there = checkpoint.elsewhere(Digests(tmp_path / "c.json").of(folder, names))
    assert find_checkpoint(**there) == str(folder)


@pytest.mark.parametrize(
    ("components", "variant", "problem"),
    [
        (
            {"unet": ["diffusion_pytorch_model.safetensors"]},
            "fp16",
            "editor.variant: {}: no weights of the variant 'fp16', expected no such key",
        ),
        (
            {"unet": ["model.bf16.safetensors", "model.fp16.safetensors"]},
            "fp8",
            "editor.variant: {}: no weights of the variant 'fp8', expected one of bf16, fp16",
        ),
        (
            {"unet": ["model.bf16.safetensors", "model.fp16.safetensors"]},
            None,
            "{}: weights in variants (unet: bf16, fp16), expected editor.variant to name one",
        ),
        (
            {"unet": ["model.bf16.safetensors"], "vae": ["model.fp16.safetensors"]},
            None,
            "{}: weights in variants (unet: bf16; vae: fp16), expected one that all of them have",
        ),
    ],
    ids=["none", "another", "several", "none-in-common"],
)
def test_a_variant_that_is_not_there_is_refused(tmp_path, components, variant, problem):
    folder = variants(tmp_path, **components)
    with pytest.raises(UsageError) as raised:
        Checkpoint(str(folder), Layout.PIPELINE, variant).component_bytes("auto")
    assert str(raised.value) == problem.format(folder)
