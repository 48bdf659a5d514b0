"""Checkpoints whose weights are quantised: what their configs and headers say is read before a worker
starts, and what their libraries load makes the edits of the same weights, saved plainly.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest
from checkpoint_files import pipeline
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds import base, quantized
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.checkpoint_files import ADAPTER_FILES, Checkpoint, Layout
from pytest_imgedit.kinds.diffusers import Diffusers, DiffusersEditor
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.qwen_vl import QwenVL, QwenVLJudge, read_config, unpackable

if TYPE_CHECKING:
    from pathlib import Path

torch = Later("torch")
diffusers = Later("diffusers")
safetensors = Later("safetensors.torch")

UNET = "diffusion_pytorch_model.safetensors"
OF_DIFFUSERS = {"_class_name": "UNet2DConditionModel"}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}


def config(path: Path, quantization: object, **content: object) -> Path:
    path.write_text(json.dumps({**content, "quantization_config": quantization}))
    return path


def add_config(path: Path, quantization: object) -> Path:
    return config(path, quantization, **json.loads(path.read_text()))


def refusal_of_editor(folder: Path, site: Site | None = None, **params: object) -> str:
    with pytest.raises(UsageError) as raised:
        Diffusers.of("diffusers", str(folder), params).check(site or Site())
    [line] = str(raised.value).splitlines()
    return line


@pytest.mark.parametrize("library", ["diffusers", "transformers"])
def test_every_method_of_a_library_is_in_the_table(library):
    known = quantized.known_methods(library)
    assert len(known) >= 10
    without_needs = {"gemma", "metal"} if library == "transformers" else set()
    assert known - quantized.METHODS[library].keys() <= without_needs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(
            {"quant_method": "awqq"},
            r"quant_method is 'awqq', which {library} does not know, expected one of .*torchao",
            id="unknown",
        ),
        pytest.param(
            {"quant_method": "bitsandbytes"},
            "'bitsandbytes' without load_in_4bit and load_in_8bit, expected one of them true",
            id="bits-missing",
        ),
        pytest.param({}, "quant_method is None, expected the name of a method", id="no-method"),
        pytest.param({"quant_method": 4}, "quant_method is 4, expected the name", id="number"),
        pytest.param([4], r"quantization_config is \[4\], expected a table or null", id="list"),
        pytest.param("nf4", "quantization_config is 'nf4', expected a table", id="text"),
        pytest.param(False, "quantization_config is False, expected a table", id="false"),
    ],
)
@pytest.mark.parametrize("library", ["diffusers", "transformers"])
def test_a_config_that_its_library_would_not_take_is_refused(tmp_path, content, said, library):
    path = config(
        tmp_path / "config.json", content, **(OF_DIFFUSERS if library == "diffusers" else {})
    )
    with pytest.raises(UsageError, match=said.format(library=library)) as raised:
        quantized.read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert len(str(raised.value).splitlines()) == 1


def test_null_is_no_quantisation_and_text_configs_count_for_transformers(tmp_path):
    path = config(tmp_path / "config.json", None)
    assert quantized.read(path) is None
    path.write_text(json.dumps({"text_config": {"quantization_config": {"quant_method": "fp8"}}}))
    assert quantized.read(path).method == "fp8"


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("named", [{}, {"quant_method": "bitsandbytes"}, {"quant_method": "awq"}])
def test_bits_stand_for_bitsandbytes_whatever_the_method_is(tmp_path, bits, named):
    path = config(tmp_path / "config.json", {f"load_in_{bits}bit": True, **named})
    assert quantized.read(path).method == f"bitsandbytes_{bits}bit"


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("nvfp4", "transformers loads no weights that are already in NVFP4"),
        ("gguf", "transformers reads GGUF from a single file alone"),
    ],
)
def test_a_method_that_no_folder_is_loaded_by_says_why(tmp_path, method, reason):
    with pytest.raises(UsageError, match=f"quant_method is '{method}': {reason}"):
        quantized.read(config(tmp_path / "config.json", {"quant_method": method}))


PACKAGES = [
    ("torchao", {"quant_method": "torchao"}),
    ("bitsandbytes", NF4),
    ("gguf", {"quant_method": "gguf"}),
    ("optimum-quanto", {"quant_method": "quanto"}),
    ("sdnq", {"quant_method": "sdnq"}),
    ("nvidia-modelopt", {"quant_method": "modelopt"}),
    ("auto-round", {"quant_method": "auto-round"}),
    ("kernels", {"quant_method": "nunchaku_lite"}),
]


@pytest.mark.parametrize(("package", "content"), PACKAGES)
def test_a_missing_package_is_named_with_the_file_before_a_worker(
    tiny, tmp_path, monkeypatch, package, content
):
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    path = add_config(folder / "unet" / "config.json", content)
    monkeypatch.setattr(
        base, "versions_of", lambda names: dict.fromkeys({*names} - {package}, "99")
    )
    method = content["quant_method"]
    assert refusal_of_editor(folder) == (
        f"{path}: quant_method is {method!r}, expected the package {package}: pip install {package}"
    )


@pytest.mark.parametrize(
    ("library", "package", "content"),
    [
        ("transformers", "gptqmodel", {"quant_method": "awq"}),
        ("transformers", "hqq", {"quant_method": "hqq"}),
        ("transformers", "compressed-tensors", {"quant_method": "compressed-tensors"}),
        ("transformers", "accelerate", {"quant_method": "fp8"}),
        ("diffusers", "accelerate", {"quant_method": "bfl"}),
    ],
)
def test_a_missing_package_of_a_judge_or_a_text_encoder_is_named(
    tiny, tmp_path, monkeypatch, library, package, content
):
    judge = shutil.copytree(tiny("judge-qwen3-vl"), tmp_path / "judge")
    path = add_config(judge / "config.json", content)
    if library == "diffusers":
        path.write_text(json.dumps({**json.loads(path.read_text()), **OF_DIFFUSERS}))
    monkeypatch.setattr(
        base, "versions_of", lambda names: dict.fromkeys({*names} - {package}, "99")
    )
    with pytest.raises(UsageError, match=f"expected the package {package}: pip install"):
        QwenVL.of("qwen-vl", str(judge), {}).check(Site())


def test_a_package_that_is_too_old_says_which_is_new_enough(tiny, tmp_path, monkeypatch):
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    add_config(folder / "unet" / "config.json", {"quant_method": "torchao"})
    monkeypatch.setattr(base, "versions_of", lambda names: dict.fromkeys(names, "0.9.1+cpu"))
    assert refusal_of_editor(folder).endswith(
        "expected the package torchao 0.15.0 or newer, found 0.9.1+cpu: pip install -U torchao"
    )
    monkeypatch.setattr(base, "versions_of", lambda names: dict.fromkeys(names, "0.15.0rc1"))
    Diffusers.of("diffusers", str(folder), {}).check(Site())


def test_packages_of_another_interpreter_are_not_looked_for_here(tiny, tmp_path, monkeypatch):
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    add_config(folder / "unet" / "config.json", {"quant_method": "torchao"})
    monkeypatch.setattr(base, "versions_of", lambda names: {})
    Diffusers.of("diffusers", str(folder), {}).check(Site(is_here=False))


def test_bitsandbytes_of_diffusers_wants_a_gpu_and_that_of_transformers_does_not(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(base, "versions_of", lambda names: dict.fromkeys(names, "99"))
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    path = add_config(folder / "unet" / "config.json", NF4)
    no_gpu = Site(may_have_gpus=False)
    assert refusal_of_editor(folder, no_gpu) == (
        f"{path}: quant_method is 'bitsandbytes', which diffusers loads on a GPU alone, expected a "
        "GPU, or weights that are not quantised"
    )
    Diffusers.of("diffusers", str(folder), {}).check(Site())
    judge = shutil.copytree(tiny("judge-qwen3-vl"), tmp_path / "judge")
    add_config(judge / "config.json", NF4)
    QwenVL.of("qwen-vl", str(judge), {}).check(no_gpu)


@pytest.mark.parametrize(
    ("params", "key"), [({"quantize": "fp8"}, "quantize"), ({"shard": {}}, "shard")]
)
def test_quantised_weights_are_neither_quantised_again_nor_sharded(
    tiny, tmp_path, monkeypatch, params, key
):
    monkeypatch.setattr(base, "versions_of", lambda names: dict.fromkeys(names, "99"))
    monkeypatch.setattr("pytest_imgedit.kinds.diffusers.find_spec", lambda name: name)
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    add_config(folder / "unet" / "config.json", {"quant_method": "torchao"})
    gpus = 2 if key == "shard" else 1
    with pytest.raises(SettingError, match="not with weights that are quantised already") as raised:
        Diffusers.of("diffusers", str(folder), params, gpus).check(Site())
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("content", "params", "key"),
    [
        ({"quant_method": "torchao"}, {"compile": True}, "compile"),
        ({"quant_method": "torchao"}, {"compile": "if possible"}, "compile"),
        (NF4, {"offload": "group"}, "offload"),
    ],
)
def test_what_gives_other_edits_with_quantised_weights_is_refused(
    tiny, tmp_path, monkeypatch, content, params, key
):
    monkeypatch.setattr(base, "versions_of", lambda names: dict.fromkeys(names, "99"))
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    config = folder / "unet" / "config.json"
    add_config(config, content)
    with pytest.raises(SettingError) as raised:
        Diffusers.of("diffusers", str(folder), params).check(Site(may_have_gpus=True))
    assert raised.value.key == key
    assert str(raised.value).endswith(f": {config}")


def test_weights_of_bitsandbytes_are_offloaded_by_components(tiny, tmp_path):
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    editor = Diffusers.of("diffusers", str(folder), {})
    assert editor.settle(1).options.offload == "group"
    add_config(folder / "unet" / "config.json", NF4)
    assert editor.settle(1).options.offload == "model"
    assert editor.with_params(offload="none").settle(1).options.offload == "none"


def test_the_version_of_the_package_is_in_the_environment_and_no_compilation_is_chosen(
    tiny, tmp_path, monkeypatch
):
    folder = shutil.copytree(tiny("flux-kontext"), tmp_path / "model")
    plain = Diffusers.of("diffusers", str(folder), {})
    monkeypatch.setattr("pytest_imgedit.kinds.diffusers.COMPILE_BYTES", 0)
    assert plain.settle(1e12).params.get("compile") == "if possible"
    assert "torchao" not in plain.requirements.packages
    before = identify(plain, tmp_path / "cache.json")
    add_config(folder / "transformer" / "config.json", {"quant_method": "torchao"})
    model = Diffusers.of("diffusers", str(folder), {})
    assert model.settle(1e12).params.get("compile", "auto") == "auto"
    assert "torchao" in model.requirements.packages
    assert identify(model, tmp_path / "cache.json").digest != before.digest


def test_a_quantised_judge_is_decoded_by_transformers_and_counts_its_package(tiny, tmp_path):
    folder = shutil.copytree(tiny("judge-qwen3-vl"), tmp_path / "judge")
    assert unpackable(read_config(folder)) == ""
    add_config(folder / "config.json", {"quant_method": "torchao"})
    assert unpackable(read_config(folder)) == "its weights are quantised"
    assert "torchao" in QwenVL.of("qwen-vl", str(folder), {}).requirements.packages


def test_no_adapter_is_merged_into_quantised_weights(tiny, tmp_path):
    folder = shutil.copytree(tiny("judge-qwen3-vl"), tmp_path / "judge")
    add_config(folder / "config.json", {"quant_method": "fp8"})
    for name in ADAPTER_FILES:
        (tmp_path / name).write_text("{}")
    with pytest.raises(SettingError, match="which merging would round again") as raised:
        QwenVL.of("qwen-vl", str(folder), {"adapter": str(tmp_path)}).check(Site())
    assert raised.value.key == "adapter"


def weights(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """A whole safetensors file of zeros: by name the format, the shape and the bytes of a tensor."""
    header: dict[str, object] = {}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))


SCALED = [
    "proj.weight_scale",
    "proj.scale_weight",
    "proj.weight_scale_inv",
    "proj.input_scale",
    "proj.scale_input",
    "_weight_scale",
]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "I8", "U8"])
@pytest.mark.parametrize("scale", SCALED)
def test_scaled_weights_without_a_config_are_refused(tmp_path, dtype, scale):
    folder = pipeline(tmp_path / "model")
    path = folder / "unet" / UNET
    weights(path, {"proj.weight": (dtype, [2, 2], 4), scale: ("F32", [1], 4)})
    with pytest.raises(UsageError) as raised:
        Checkpoint(str(folder), Layout.PIPELINE).component_bytes("auto")
    assert str(raised.value) == (
        f"{path}: {scale!r} scales weights in {dtype}, and no quantization_config says how, "
        "expected weights in bfloat16 or float32, or a quantization_config in its config: multiply "
        "each weight by its scale, and save_pretrained"
    )


@pytest.mark.parametrize("dtype", ["I8", "U8", "F4"])
def test_integers_without_a_scale_are_refused(tmp_path, dtype):
    folder = pipeline(tmp_path / "model")
    path = folder / "unet" / UNET
    weights(path, {"bias": ("F32", [2], 8), "proj.weight": (dtype, [2, 2], 4)})
    with pytest.raises(UsageError) as raised:
        Checkpoint(str(folder), Layout.PIPELINE).component_bytes("auto")
    assert str(raised.value).startswith(
        f"{path}: 'proj.weight' is in {dtype} without a scale, expected weights in bfloat16"
    )


def test_scales_of_plain_weights_and_scales_with_a_config_are_taken(tmp_path):
    folder = pipeline(tmp_path / "model")
    path = folder / "unet" / UNET
    weights(path, {"a.weight": ("F32", [2, 2], 16), "a.input_scale": ("F32", [1], 4)})
    checkpoint = Checkpoint(str(folder), Layout.PIPELINE)
    assert checkpoint.component_bytes("float32") == {"unet": 20}
    weights(path, {"a.weight": ("F8_E4M3", [2, 2], 4), "a.weight_scale": ("F32", [1], 4)})
    config(folder / "unet" / "config.json", {"quant_method": "torchao"})
    assert checkpoint.component_bytes("float32") == {"unet": 8}


def test_memory_of_float8_is_that_of_what_it_is_cast_to_and_of_quantised_weights_their_own(
    tmp_path,
):
    folder = pipeline(tmp_path / "model")
    weights(
        folder / "unet" / UNET,
        {
            "a.weight": ("F8_E4M3", [4, 4], 16),
            "b.weight": ("BF16", [4, 4], 32),
            "a.bias": ("F32", [4], 16),
        },
    )
    checkpoint = Checkpoint(str(folder), Layout.PIPELINE)
    assert checkpoint.component_bytes("auto") == {"unet": 32 + 32 + 8}
    assert checkpoint.component_bytes("float32") == {"unet": 64 + 32 + 16}
    config(folder / "unet" / "config.json", {"quant_method": "torchao"}, **OF_DIFFUSERS)
    assert checkpoint.component_bytes("auto") == {"unet": 16 + 32 + 8}


def edited(folder: Path, *loras: dict[str, str]) -> np.ndarray:
    options = {"num_inference_steps": 2, "loras": list(loras)}
    editor = DiffusersEditor(str(folder), device="cpu", **options)
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    request = EditRequest("a", "physics", "make it snow", Image.fromarray(pixels), 5)
    return np.asarray(editor.edit(request), int)


def test_float8_without_scales_edits_as_the_same_weights_cast_by_hand(tiny, tmp_path):
    """Also where the weights of the base, before they were rounded to float8, edit otherwise."""
    images = {}
    for name in ("whole", "float8", "by hand"):
        folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / name)
        path = folder / "unet" / UNET
        tensors = safetensors.load_file(path)
        if name != "whole":
            tensors = {
                key: tensor.to(torch.float8_e4m3fn) if tensor.ndim > 1 else tensor
                for key, tensor in tensors.items()
            }
        if name == "by hand":
            tensors = {key: tensor.float() for key, tensor in tensors.items()}
        safetensors.save_file(tensors, path, metadata={"format": "pt"})
        images[name] = edited(folder)
    assert (images["float8"] == images["by hand"]).all()
    assert (images["float8"] != images["whole"]).any()


def by_hand(network: object, values: dict[str, torch.Tensor], to: Path) -> None:
    """Save a network with other values of some of its weights."""
    with torch.no_grad():
        for name, value in values.items():
            network.get_parameter(name).copy_(value)
    network.save_pretrained(to)


@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
@pytest.mark.parametrize(("kind", "rounding"), [("Float8", 0), ("Int8", 1)])
def test_weights_of_torchao_edit_as_their_values_saved_plainly(tiny, tmp_path, kind, rounding):
    """float8 to the bit. Products with int8 weights are scaled after the sum, and so round
    otherwise: a few values of an edit by one level of 255.
    """
    from torchao import quantization

    base_folder = tiny("instruct-pix2pix")
    as_torchao = diffusers.TorchAoConfig(
        quantization.Float8WeightOnlyConfig()
        if kind == "Float8"
        else quantization.Int8WeightOnlyConfig(version=2)
    )
    load = diffusers.UNet2DConditionModel.from_pretrained
    network = load(base_folder / "unet", quantization_config=as_torchao, dtype=torch.float32)
    folders = {
        name: shutil.copytree(base_folder, tmp_path / name) for name in ("quantised", "by hand")
    }
    (folders["quantised"] / "unet" / UNET).unlink()
    network.save_pretrained(folders["quantised"] / "unet")
    stored = {
        name: value.dequantize()
        for name, value in network.state_dict().items()
        if type(value).__name__ == f"{kind}Tensor"
    }
    assert len(stored) > 20
    by_hand(load(base_folder / "unet"), stored, folders["by hand"] / "unet")
    Diffusers.of("diffusers", str(folders["quantised"]), {}).check(Site(may_have_gpus=False))
    quantised = edited(folders["quantised"])
    difference = np.abs(quantised - edited(folders["by hand"]))
    assert difference.max() <= rounding
    assert (difference > 0).mean() < 0.01
    assert np.abs(quantised - edited(base_folder)).max() > rounding
    pytest.importorskip("peft")
    adapter = {}
    for name in stored:
        if name.endswith(("to_q.weight", "to_v.weight")):
            layer, rows, columns = name.removesuffix(".weight"), *stored[name].shape
            adapter[f"unet.{layer}.lora_A.weight"] = torch.randn(4, columns) / 8
            adapter[f"unet.{layer}.lora_B.weight"] = torch.randn(rows, 4)
    safetensors.save_file(adapter, tmp_path / "lora.safetensors")
    lora = {"path": str(tmp_path / "lora.safetensors")}
    adapted = edited(folders["quantised"], lora)
    difference = np.abs(adapted - edited(folders["by hand"], lora))
    assert difference.max() <= rounding
    assert np.abs(adapted - quantised).max() > 1


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
def test_a_text_encoder_in_nf4_edits_as_its_values_saved_plainly(tiny, tmp_path):
    """transformers loads it on the CPU too."""
    import transformers
    from bitsandbytes import functional, nn

    base_folder = tiny("instruct-pix2pix")
    nf4 = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    )
    load = transformers.CLIPTextModel.from_pretrained
    encoder = load(base_folder / "text_encoder", quantization_config=nf4, dtype=torch.float32)
    folders = {
        name: shutil.copytree(base_folder, tmp_path / name) for name in ("quantised", "by hand")
    }
    encoder.save_pretrained(folders["quantised"] / "text_encoder")
    stored = {
        f"{name}.weight": functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
        for name, layer in encoder.named_modules()
        if isinstance(layer, nn.Linear4bit)
    }
    assert stored
    by_hand(load(base_folder / "text_encoder"), stored, folders["by hand"] / "text_encoder")
    Diffusers.of("diffusers", str(folders["quantised"]), {}).check(Site(may_have_gpus=False))
    quantised = edited(folders["quantised"])
    assert np.abs(quantised - edited(folders["by hand"])).max() <= 1
    assert (quantised != edited(base_folder)).any()


@pytest.mark.skipif(find_spec("torchao") is not None, reason="torchao is installed")
def test_a_package_that_another_interpreter_lacks_ends_the_run_before_its_worker(bench, tiny):
    """The interpreter is this one by another name, as far as the run knows."""
    other = bench.path / "other-python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    folder = shutil.copytree(tiny("instruct-pix2pix"), bench.path / "model")
    add_config(folder / "unet" / "config.json", {"quant_method": "torchao"})
    result = bench.run(
        "--imgedit-editor=diffusers:model",
        "--imgedit-judge=none",
        f"--imgedit-set=workers.editor_python={other}",
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*unet/config.json: *expected the package torchao: pip install*"])


@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
def test_a_judge_in_float8_answers_as_its_values_saved_plainly(tiny, tmp_path):
    """In transformers' own decoder; where weights lie in memory decides the last bit of products on
    some processors.
    """
    import transformers
    from torchao import quantization

    def logits(folder, **params):
        judge = QwenVLJudge(str(folder), device="cpu", **params)
        return judge.decoder.decode([judge._trial_prompt()], 4, keep_logits=True).logits[0]

    folder = tiny("judge-qwen3-vl")
    float8 = transformers.TorchAoConfig(quantization.Float8WeightOnlyConfig())
    load = transformers.AutoModelForImageTextToText.from_pretrained
    model = load(folder, quantization_config=float8, dtype=torch.float32)
    judges = {name: shutil.copytree(folder, tmp_path / name) for name in ("quantised", "by hand")}
    model.save_pretrained(judges["quantised"])
    stored = {
        name: value.dequantize()
        for name, value in model.named_parameters()
        if type(value).__name__ == "Float8Tensor"
    }
    assert len(stored) > 10
    by_hand(load(folder), stored, judges["by hand"])
    QwenVL.of("qwen-vl", str(judges["quantised"]), {}).check(Site(may_have_gpus=False))
    quantised = logits(judges["quantised"])
    torch.testing.assert_close(
        quantised, logits(judges["by hand"], attention="sdpa"), atol=1e-6, rtol=0
    )
    assert (quantised - logits(folder, attention="sdpa")).abs().max() > 1e-3
