"""Checkpoints whose tensors are not those of their configs: refused before the first edit, by
name.
"""

from __future__ import annotations

import shutil
from fnmatch import fnmatch

import pytest
from later import Later

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.kinds.compute.tensor_checks import whole_checkpoints
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

torch = Later("torch")
safetensors = Later("safetensors.torch")
fast_loading = Later("pytest_imgedit.kinds.compute.fast_loading")

STEPS = "--imgedit-set=editor.num_inference_steps=2"


def change(path, edit):
    """Rewrite a safetensors file with tensors that `edit` changes in place."""
    tensors = safetensors.load_file(path)
    edit(tensors)
    safetensors.save_file(tensors, path, metadata={"format": "pt"})


def drop(name):
    return lambda tensors: tensors.pop(name)


def rename(name, to):
    return lambda tensors: tensors.update({to: tensors.pop(name)})


def prefix(tensors):
    """Name tensors as a compiled module does that is saved as it is."""
    for name in list(tensors):
        tensors[f"_orig_mod.{name}"] = tensors.pop(name)


def grow(name):
    return lambda tensors: tensors.update(
        {name: tensors[name].repeat(2, *[1] * (tensors[name].dim() - 1))}
    )


UNET = "unet/diffusion_pytorch_model.safetensors"
CLIP = "text_encoder/model.safetensors"
NORM = "final_layer_norm.bias"
LAST = "model.language_model.norm.weight"


DAMAGES = [
    pytest.param(UNET, drop("conv_in.bias"), "*lacks conv_in.bias*", id="unet-missing"),
    pytest.param(
        UNET,
        rename("conv_in.bias", "new.bias"),
        "*conv_in.bias*unexpected new.bias*",
        id="unet-renamed",
    ),
    pytest.param(UNET, grow("conv_in.bias"), "*conv_in.bias*shape*", id="unet-shape"),
    pytest.param(UNET, prefix, "*lacks *unexpected _orig_mod.*", id="unet-prefixed"),
    pytest.param(CLIP, drop(NORM), f"*lacks *{NORM}*", id="text-encoder-missing"),
    pytest.param(CLIP, prefix, "*lacks *", id="text-encoder-prefixed"),
    pytest.param(
        CLIP, grow(NORM), f"*shapes than its config for *{NORM}*", id="text-encoder-shape"
    ),
]


@pytest.mark.parametrize(("file", "edit", "words"), DAMAGES)
def test_editor_whose_tensors_are_not_its_configs_does_not_load(tiny, tmp_path, file, edit, words):
    model = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    change(model / file, edit)
    with pytest.raises(SetupError) as caught:
        DiffusersEditor(str(model), device="cpu")
    assert fnmatch(str(caught.value), f"{model / file.split('/')[0]}*{words}")


@pytest.mark.parametrize(
    ("edit", "tensor"),
    [
        pytest.param(drop(LAST), LAST, id="missing"),
        pytest.param(prefix, "_orig_mod.", id="prefixed"),
        pytest.param(grow(LAST), LAST, id="shape"),
    ],
)
def test_judge_whose_tensors_are_not_its_configs_does_not_load(tiny, tmp_path, edit, tensor):
    model = shutil.copytree(tiny("judge-qwen3-vl"), tmp_path / "judge")
    change(model / "model.safetensors", edit)
    with pytest.raises(SetupError) as caught:
        QwenVLJudge(str(model), device="cpu")
    assert fnmatch(
        str(caught.value),
        f"{model}*the checkpoint*{tensor}*expected exactly the tensors of its config",
    )


@pytest.mark.parametrize(
    "edit", [drop(LAST), prefix, grow(LAST)], ids=["missing", "prefixed", "shape"]
)
def test_nor_does_it_load_straight_onto_a_device(tiny, tmp_path, edit):
    """As on a GPU; the CPU is a device too."""
    model = shutil.copytree(tiny("judge-qwen3-vl"), tmp_path / "judge")
    change(model / "model.safetensors", edit)
    with (
        pytest.raises(SetupError, match=r"expected exactly the tensors of its config"),
        whole_checkpoints(model),
        fast_loading.stored_tensors(model, "cpu", torch.float32) as tensors,
    ):
        fast_loading.load_on_gpu(model, tensors, "cpu", torch.float32)


@pytest.mark.parametrize(
    "options", [(), ("--imgedit-gpus=none", "--imgedit-gpus-per-worker=2")], ids=["one", "ranks"]
)
def test_a_run_with_such_an_editor_is_a_usage_error(bench, tiny, tmp_path, options):
    model = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    change(model / UNET, drop("conv_in.bias"))
    result = bench.run(
        f"--imgedit-editor=diffusers:{model}", "--imgedit-judge=fakes:Constant", STEPS, *options
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {model / 'unet'}*lacks conv_in.bias*"])
    assert bench.stored_edits() == 0


def test_a_run_with_such_a_judge_is_a_usage_error(bench, tiny, tmp_path):
    model = shutil.copytree(tiny("judge-qwen3-vl"), tmp_path / "judge")
    change(model / "model.safetensors", prefix)
    result = bench.run(
        "--imgedit-editor=identity", f"--imgedit-judge=qwen-vl:{model}", "--imgedit-limit=1"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: {model}*the checkpoint*expected exactly the tensors of its config"]
    )
