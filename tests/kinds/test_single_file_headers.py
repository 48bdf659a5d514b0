"""What `editor.single_file` names is looked at before anything loads: taken or refused by its
header.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import time
from importlib.util import find_spec

import numpy as np
import pytest

from pytest_imgedit.core.errors import SettingError
from pytest_imgedit.kinds import checkpoint_files, single_files
from pytest_imgedit.kinds import diffusers as diffusers_kind
from pytest_imgedit.kinds.base import Site, Where
from pytest_imgedit.kinds.checkpoint_files import find_checkpoint
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model

needs_gguf = pytest.mark.skipif(not find_spec("gguf"), reason="gguf is not installed")
NETWORK = {"transformer_blocks.0.attn.to_q.weight": ("BF16", [4, 4]), "img_in.bias": ("F32", [4])}
BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I64": 8}


def safetensors(path, tensors):
    """A file of safetensors with zeros, of types and shapes by name."""
    header, end = {}, 0
    for name, (kind, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * BYTES[kind]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    return path


def gguf(path, tensors, architecture="qwen_image", **numbers):
    """A GGUF file with zeros, of types and shapes by name."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    for name, value in numbers.items():
        writer.add_uint32(name.replace("_", "."), value)
    for name, (kind, shape) in tensors.items():
        of_kind = gguf.GGMLQuantizationType[kind]
        stored = np.zeros(gguf.quant_shape_to_byte_shape(shape, of_kind), np.uint8)
        writer.add_tensor(name, stored.view(np.float32) if kind == "F32" else stored, None, of_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def folder(tmp_path):
    """A pipeline of Qwen-Image-Edit with a text encoder, and without weights of its transformer."""
    folder = tmp_path / "base"
    index = {
        "_class_name": "QwenImageEditPipeline",
        "transformer": ["diffusers", "QwenImageTransformer2DModel"],
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "processor": ["transformers", "Qwen2VLProcessor"],
        "vae": ["diffusers", "AutoencoderKLQwenImage"],
    }
    for name in ("scheduler", "tokenizer", "processor", "vae"):
        (folder / name).mkdir(parents=True)
    for name in ("transformer", "text_encoder"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
    (folder / "model_index.json").write_text(json.dumps(index))
    safetensors(folder / "text_encoder" / "model.safetensors", {"w": ("BF16", [2])})
    return folder


def renamed(folder, component, class_name):
    """Another class for a component of a pipeline."""
    index = json.loads((folder / "model_index.json").read_text())
    index[component] = ["diffusers", class_name]
    (folder / "model_index.json").write_text(json.dumps(index))


def model(folder, path, **params):
    return make_model("editor", f"diffusers:{folder}", {"single_file": str(path), **params})


def refusal(folder, path, gpus=1, site=None, **params):
    """The key and the text of the refusal of a file, with `FILE` for its path."""
    editor = make_model(
        "editor", f"diffusers:{folder}", {"single_file": str(path), **params}, gpus=gpus
    )
    with pytest.raises(SettingError) as raised:
        editor.check(site or Site(may_have_gpus=True))
    return raised.value.key, str(raised.value).replace(str(path), "FILE")


REFUSED = {
    "adapter": (
        {"transformer_blocks.0.attn.to_q.lora_A.weight": ("BF16", [4, 4])},
        "an adapter (transformer_blocks.0.attn.to_q.lora_A.weight), expected weights: editor.loras "
        "names it",
    ),
    "kohya": (
        {"lora_unet_blocks_0_to_q.lora_down.weight": ("BF16", [4, 4])},
        "an adapter (lora_unet_blocks_0_to_q.lora_down.weight), expected weights: editor.loras "
        "names it",
    ),
    "scaled": (
        {**NETWORK, "img_in.scale_weight": ("F32", [1])},
        "weights with scales beside them (img_in.scale_weight), expected bfloat16, float8 without "
        "scales, or GGUF",
    ),
    "comfy-quant": (
        {**NETWORK, "img_in.comfy_quant": ("U8", [1])},
        "weights with scales beside them (img_in.comfy_quant), expected bfloat16, float8 without "
        "scales, or GGUF",
    ),
    "integers": (
        {"img_in.weight": ("U8", [4])},
        "img_in.weight is of the type U8, expected one of F32, F16, BF16, F8_E4M3, F8_E5M2",
    ),
    "clip": (
        {"text_model.encoder.layers.0.self_attn.q_proj.weight": ("F16", [4])},
        "a text encoder, expected the denoising network",
    ),
    "t5": (
        {"encoder.block.0.layer.0.SelfAttention.q.weight": ("F16", [4])},
        "a text encoder, expected the denoising network",
    ),
    "language-model": (
        {"model.layers.0.self_attn.q_proj.weight": ("F16", [4])},
        "a text encoder, expected the denoising network",
    ),
    "autoencoder": (
        {"decoder.conv_in.weight": ("F16", [4])},
        "an autoencoder, expected the denoising network",
    ),
    "unknown-part": (
        {"model.diffusion_model.x": ("F16", [4]), "text_encoders.t5xxl.y": ("F16", [4])},
        "1 tensor of no known component (text_encoders.t5xxl.y), expected the denoising network "
        "alone",
    ),
    "further-component": (
        {"model.diffusion_model.x": ("F16", [4]), "conditioner.embedders.1.y": ("F16", [4])},
        "it holds text_encoder_2, which QwenImageEditPipeline does not have",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_of_another_kind_is_refused_by_its_header(folder, tmp_path, case):
    tensors, reason = REFUSED[case]
    path = safetensors(tmp_path / "weights.safetensors", tensors)
    assert refusal(folder, path) == ("single_file", f"FILE: {reason}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "w.ckpt",
            "weights that can run code when they load, expected safetensors or GGUF "
            "(safetensors.torch.save_file saves its tensors)",
        ),
        (
            "w-00001-of-00002.safetensors",
            "weights in several files, expected one: put their folder in the place of the "
            "network's in a copy of the pipeline, and name that as the model",
        ),
        ("w.onnx", "expected a file that ends in .safetensors or .gguf"),
        ("w.safetensors", "No such file or directory, expected weights in safetensors"),
        pytest.param("w.gguf", "No such file or directory, expected a GGUF file", marks=needs_gguf),
    ],
)
def test_a_file_of_another_format_is_refused(folder, tmp_path, name, reason):
    assert refusal(folder, tmp_path / name) == ("single_file", f"FILE: {reason}")


def test_a_damaged_file_is_refused(folder, tmp_path):
    path = safetensors(tmp_path / "w.safetensors", NETWORK)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-4])
    assert refusal(folder, path)[1] == (
        f"FILE: {size - 4} bytes, expected {size}: the file was cut short or damaged"
    )


@needs_gguf
def test_a_damaged_gguf_file_is_refused(folder, tmp_path):
    path = gguf(tmp_path / "w.gguf", {"img_in.weight": ("Q8_0", [64, 32])})
    content = path.read_bytes()
    size = len(content)
    for missing in (1, 1024):
        path.write_bytes(content[:-missing])
        assert refusal(folder, path)[1] == (
            f"FILE: {size - missing} bytes, expected {size} or more: the file was cut short or "
            "damaged"
        )
    whole_header = size - 64 * 34
    damaged = [content[:length] for length in range(0, whole_header, 7)]
    for text in (*damaged, b"GGUF", b"another", b"GGUF" + b"\xff" * 60, bytes(60)):
        path.write_bytes(text)
        assert "expected a GGUF file" in refusal(folder, path)[1]
    path.unlink()
    os.mkfifo(path)
    assert refusal(folder, path)[1] == "FILE: not a regular file, expected a GGUF file"
    path = gguf(tmp_path / "aligned.gguf", {}, general_alignment=0)
    assert "Invalid alignment" in refusal(folder, path)[1]


@needs_gguf
@pytest.mark.parametrize("size", [2**10, 2**28])
@pytest.mark.parametrize("damage", ["tensors", "entries", "list", "text", "sides"])
def test_absurd_counts_are_no_work(folder, tmp_path, monkeypatch, damage, size):
    monkeypatch.setattr("pytest_imgedit.kinds.gguf_header._MOST_PARTS", 1000)
    most = struct.pack("<Q", 2**60)
    one, none = struct.pack("<Q", 1), bytes(8)
    entry = one + b"a"
    header = {
        "tensors": most + none,
        "entries": none + most,
        "list": none + one + entry + struct.pack("<II", 9, 0) + most,
        "text": none + one + entry + struct.pack("<I", 8) + most,
        "sides": one + none + entry + struct.pack("<I", 2**32 - 1),
    }[damage]
    path = tmp_path / "w.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + header)
    os.truncate(path, size)
    started = time.process_time()
    assert "no readable header" in refusal(folder, path)[1]
    assert time.process_time() - started < 1


@needs_gguf
@pytest.mark.parametrize(
    ("tensors", "more", "reason"),
    [
        (
            {"img_in.weight": ("IQ2_XXS", [1, 256])},
            {},
            "img_in.weight is of the GGUF type IQ2_XXS, expected one that diffusers reads: BF16, "
            "F16, F32, IQ4_NL, IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0",
        ),
        (
            {"img_in.weight": ("Q8_0", [1, 32])},
            {"architecture": "flux"},
            "its architecture is 'flux', expected that of a QwenImageTransformer2DModel",
        ),
        (
            {"blk.0.attn_q.weight": ("Q8_0", [1, 32])},
            {"architecture": "qwen2vl"},
            "a text encoder, expected the denoising network",
        ),
        (
            {"img_in.weight": ("Q8_0", [1, 32])},
            {"split_count": 3},
            "one of 3 parts, expected one file: llama-gguf-split --merge makes it",
        ),
        ({}, {}, "no tensors, expected weights"),
    ],
    ids=["type", "architecture", "text-encoder", "split", "empty"],
)
def test_a_gguf_file_that_cannot_be_taken_is_refused(folder, tmp_path, tensors, more, reason):
    path = gguf(tmp_path / "w.gguf", tensors, **more)
    assert refusal(folder, path) == ("single_file", f"FILE: {reason}")


def test_a_class_that_diffusers_loads_from_no_single_file_is_refused(folder, tmp_path):
    path = safetensors(tmp_path / "w.safetensors", NETWORK)
    renamed(folder, "transformer", "GlmImageTransformer2DModel")
    assert refusal(folder, path)[1] == (
        "FILE: diffusers 0.42.1 loads no GlmImageTransformer2DModel from a single file; a file "
        f"with diffusers' names is {folder}/transformer/diffusion_pytorch_model.safetensors, "
        "without editor.single_file"
    )
    renamed(folder, "transformer", "OmniGenTransformer2DModel")
    assert refusal(folder, path)[1] == (
        "FILE: diffusers 0.42.1 loads no OmniGenTransformer2DModel from a single file; "
        "scripts/convert_omnigen_to_diffusers.py of its repository converts the file"
    )


def test_a_folder_without_the_config_is_refused(folder, tmp_path):
    path = safetensors(tmp_path / "w.safetensors", NETWORK)
    (folder / "transformer" / "config.json").unlink()
    assert refusal(folder, path)[1] == (
        f"FILE: {folder}/transformer/config.json: no such file, expected the config of these "
        "weights"
    )


@pytest.mark.parametrize("name", ["kontext.safetensors", "models/kontext.gguf"])
def test_a_file_in_place_of_the_folder_is_refused(name):
    with pytest.raises(SettingError) as raised:
        make_model("editor", f"diffusers:{name}", {}).check(Site())
    assert raised.value.key == "spec"
    assert str(raised.value) == (
        f"editor diffusers:{name}: a file, expected diffusers:FOLDER and "
        f"editor.single_file={name}, FOLDER being the pipeline that it was made from"
    )


def test_a_pickle_in_place_of_the_folder_says_what_to_make_of_it():
    with pytest.raises(SettingError) as raised:
        make_model("editor", "diffusers:x/model.pt", {}).check(Site())
    line = str(raised.value)
    assert "expected diffusers:FOLDER and editor.single_file=x/model.safetensors" in line
    assert line.endswith("; safetensors.torch.save_file saves its tensors to x/model.safetensors")


def test_a_gguf_file_needs_the_package(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(single_files, "find_spec", lambda name: None)
    missing = "FILE: the package gguf is not installed, pip install gguf"
    assert refusal(folder, tmp_path / "w.gguf") == ("single_file", missing)


@needs_gguf
def test_other_settings_do_not_all_go_with_a_single_file(folder, tmp_path, monkeypatch):
    path = gguf(tmp_path / "w.gguf", {"img_in.weight": ("Q8_0", [1, 32])})
    monkeypatch.setattr(diffusers_kind, "find_spec", lambda name: name)
    assert refusal(folder, path, quantize="fp8") == ("quantize", "not with a GGUF file")
    compiled = "not with a GGUF file, whose compiled layers give other edits"
    for value in (True, "if possible"):
        assert refusal(folder, path, compile=value) == ("compile", compiled)
    expected = ("single_file", 'not with shards, expected editor.shard.strategy "context"')
    for strategy in ("full", "none"):
        assert refusal(folder, path, gpus=2, shard={"strategy": strategy}) == expected
    model(folder, path).check(Site())


@needs_gguf
def test_the_files_weights_count_in_place_of_the_folders(folder, tmp_path):
    path = safetensors(tmp_path / "w.safetensors", NETWORK)
    assert model(folder, path).component_bytes() == {"text_encoder": 4, "transformer": 32 + 8}
    assert model(folder, path, dtype="float32").weight_bytes == 4 + 32 + 16
    kinds = {"a.weight": ("Q4_K", [2, 256]), "b.bias": ("F32", [4])}
    quantized = model(folder, gguf(tmp_path / "w.gguf", kinds))
    assert quantized.component_bytes() == {"text_encoder": 4, "transformer": 2 * 144 + 8}
    safetensors(path, {"a.weight": ("F8_E4M3", [4, 4])})
    assert model(folder, path).component_bytes() == {"text_encoder": 4, "transformer": 32}


@needs_gguf
def test_weights_of_fewer_bits_are_lossy_and_gguf_is_recorded(folder, tmp_path):
    kinds = {"a.weight": ("Q4_K", [2, 256]), "b.bias": ("F32", [4])}
    quantized = model(folder, gguf(tmp_path / "w.gguf", kinds))
    assert quantized.lossy == ("single_file=Q4_K",)
    assert "gguf" in quantized.requirements.packages
    path = safetensors(tmp_path / "w.safetensors", {"a.weight": ("F8_E4M3", [4, 4])})
    assert model(folder, path).lossy == ("single_file=F8_E4M3",)
    safetensors(path, NETWORK)
    plain = model(folder, path)
    assert plain.lossy == ()
    assert "gguf" not in plain.requirements.packages


@needs_gguf
def test_quantized_weights_are_not_compiled_by_themselves(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(diffusers_kind, "COMPILE_BYTES", 0)
    path = safetensors(tmp_path / "w.safetensors", NETWORK)
    assert model(folder, path).settle(2**40).options.compile == "if possible"
    path = gguf(tmp_path / "w.gguf", {"a.weight": ("Q8_0", [1, 32])})
    assert model(folder, path).settle(2**40).options.compile == "auto"


def test_the_key_holds_the_files_content_alone(folder, tmp_path):
    def key(path, where=folder):
        return identify(model(where, path), tmp_path / "digests.json", Where()).digest

    path = safetensors(tmp_path / "w.safetensors", NETWORK)
    first = key(path)
    (tmp_path / "other").mkdir()
    assert key(shutil.copy(path, tmp_path / "other" / "another-name.safetensors")) == first
    whole = shutil.copytree(folder, tmp_path / "whole")
    safetensors(whole / "transformer" / "diffusion_pytorch_model.safetensors", NETWORK)
    assert key(path, whole) == first
    (whole / "transformer" / "config.json").write_text('{"num_layers": 1}')
    assert key(path, whole) != first
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert key(path) != first


def test_another_host_finds_the_folder_without_the_replaced_weights(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    editor = model(folder, safetensors(tmp_path / "w.safetensors", NETWORK))
    identity = identify(editor, tmp_path / "digests.json", Where())
    assert list(identity.files) == [str(tmp_path / "w.safetensors")]
    assert "transformer/config.json" in identity.recipe["files"]
    there = json.loads(json.dumps(editor.checkpoint.elsewhere(identity.recipe["files"])))
    assert find_checkpoint(**there) == str(folder)


def test_replaced_weights_are_not_downloaded(tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot(repository, **options):
        asked.append(options["ignore_patterns"])
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(checkpoint_files, "_PINNED", {})
    editor = model("org/model", safetensors(tmp_path / "w.safetensors", NETWORK))
    assert editor.checkpoint.folder == tmp_path
    assert asked == [["transformer/*.safetensors", "unet/*.safetensors"]]
    assert make_model("editor", "diffusers:org/model", {}).checkpoint.snapshot is None


def test_the_files_that_load_are_read_ahead(folder, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr("pytest_imgedit.core.files.read_ahead", read.extend)
    whole = shutil.copytree(folder, tmp_path / "whole")
    safetensors(whole / "transformer" / "diffusion_pytorch_model.safetensors", NETWORK)
    path = safetensors(tmp_path / "w.safetensors", NETWORK)
    DiffusersEditor.warm_up(str(whole), single_file=str(path))
    assert read == [path, whole / "text_encoder" / "model.safetensors"]


def test_classes_are_read_from_the_source_of_diffusers():
    classes = single_files.loadable_classes()
    assert {"FluxTransformer2DModel", "QwenImageTransformer2DModel", "AutoencoderKL"} <= classes
    assert "OmniGenTransformer2DModel" not in classes
