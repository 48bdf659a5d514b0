"""Checkpoints that are not whole, not safetensors, or bring code are refused by name before
anything loads.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil

import pytest
from later import Later

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds.checkpoint_files import Checkpoint, Layout
from pytest_imgedit.kinds.safetensors_header import tensor_bytes

safetensors = Later("safetensors.torch")


class Boom:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (open, ("pwned", "w"))


def as_pickle(folder):
    (folder / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    (folder / "vae" / "diffusion_pytorch_model.bin").write_bytes(pickle.dumps(Boom()))


def edit_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def own_component(folder):
    edit_json(folder / "model_index.json", unet=["my_unet", "MyUNet"])
    (folder / "unet" / "my_unet.py").write_text("open('pwned', 'w')\n")


def sharded_without_a_shard(folder):
    index = {"weight_map": {"a": "diffusion_pytorch_model-00001-of-00002.safetensors"}}
    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    (folder / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(
        json.dumps(index)
    )


def cut(folder):
    path = folder / "unet" / "diffusion_pytorch_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def scramble(folder):
    (folder / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"\xff" * 64)


EDITORS = [
    pytest.param(
        as_pickle,
        "*diffusion_pytorch_model.bin: weights that can run code when they load, expected "
        "safetensors",
        id="bin",
    ),
    pytest.param(
        lambda folder: (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink(),
        "*unet: no weights, expected diffusion_pytorch_model.safetensors or model.safetensors",
        id="no-weights",
    ),
    pytest.param(
        cut,
        "*unet/diffusion_pytorch_model.safetensors: * the file was cut short or damaged",
        id="cut",
    ),
    pytest.param(
        scramble,
        "*model.safetensors: no readable header, expected a safetensors file",
        id="no-header",
    ),
    pytest.param(
        sharded_without_a_shard,
        "*00001-of-00002.safetensors: No such file *, expected weights *",
        id="shard-missing",
    ),
    pytest.param(
        lambda folder: shutil.rmtree(folder / "vae"),
        "*vae: no such folder, expected the component *",
        id="component",
    ),
    pytest.param(
        own_component,
        "*my_unet.py: code of the checkpoint, expected none: it is never run",
        id="own-code",
    ),
    pytest.param(
        lambda folder: edit_json(folder / "model_index.json", _class_name=["mine", "Pipeline"]),
        "*model_index.json: _class_name is *, expected the name of a diffusers pipeline *",
        id="own-pipeline",
    ),
    pytest.param(
        lambda folder: (folder / "model_index.json").write_text("{"),
        "*model_index.json:1: not valid JSON: *, expected a diffusers checkpoint",
        id="index-broken",
    ),
]


@pytest.mark.parametrize(("damage", "line"), EDITORS)
def test_editor_checkpoint_is_refused(bench, tiny, damage, line):
    shutil.copytree(tiny("instruct-pix2pix"), bench.path / "model")
    damage(bench.path / "model")
    bench.refuses(line, "--imgedit-editor=diffusers:model")
    assert not (bench.path / "pwned").exists()


JUDGES = [
    pytest.param(
        lambda folder: edit_json(folder / "config.json", auto_map={"AutoConfig": "mine.Config"}),
        "*config.json: it requires running code from the checkpoint (auto_map), which is not allowed",
        id="auto-map",
    ),
    pytest.param(
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "*pytorch_model.bin: weights that can run code when they load, expected safetensors",
        id="bin",
    ),
    pytest.param(
        lambda folder: (folder / "config.json").unlink(),
        "*config.json: No such file *",
        id="no-config",
    ),
]


@pytest.mark.parametrize(("damage", "line"), JUDGES)
def test_judge_checkpoint_is_refused(bench, tiny, damage, line):
    shutil.copytree(tiny("judge-qwen3-vl"), bench.path / "model")
    damage(bench.path / "model")
    bench.refuses(line, "--imgedit-judge=qwen-vl:model")


@pytest.mark.parametrize("role", ["editor=diffusers", "judge=qwen-vl"])
def test_trust_remote_code_is_refused(bench, tiny, role):
    name, _, kind = role.partition("=")
    model = tiny("instruct-pix2pix" if name == "editor" else "judge-qwen3-vl")
    bench.refuses(
        f"{name}.trust_remote_code: code of a checkpoint is never run, expected no such key",
        f"--imgedit-{name}={kind}:{model}",
        f"--imgedit-set={name}.trust_remote_code=true",
    )


@pytest.mark.parametrize("name", ["qwen-image-edit", "flux-kontext", "instruct-pix2pix"])
def test_whole_checkpoint_counts_every_byte_of_its_weights(tiny, tmp_path, name):
    folder = tiny(name)
    stored = [
        tensor
        for path in folder.rglob("*.safetensors")
        for tensor in safetensors.load_file(path).values()
    ]
    checkpoint = Checkpoint(str(folder), Layout.PIPELINE)
    assert sum(checkpoint.component_bytes("float32").values()) == sum(
        tensor.nbytes for tensor in stored
    )
    halved = sum(tensor.nbytes // (2 if tensor.dtype.itemsize == 4 else 1) for tensor in stored)
    assert sum(
        Checkpoint(str(folder), Layout.PIPELINE).component_bytes("auto").values()
    ) <= halved + len(stored)
    del tmp_path


def test_sharded_checkpoint_counts_its_shards_once(tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny("judge-qwen3-vl"), folder)
    weights = safetensors.load_file(folder / "model.safetensors")
    checkpoint = Checkpoint(str(folder), Layout.MODEL)
    whole = sum(checkpoint.component_bytes("float32").values())
    (folder / "model.safetensors").unlink()
    names = list(weights)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, held in shards.items():
        safetensors.save_file({name: weights[name] for name in held}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {name: shard for shard, held in shards.items() for name in held}})
    )
    assert sum(checkpoint.component_bytes("float32").values()) == whole


def with_header(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + b"1234"


def with_offsets(offsets: bytes) -> bytes:
    return with_header(b'{"w": {"dtype": "U8", "shape": [4], "data_offsets": ' + offsets + b"}}")


WEIGHTS = {
    "lists without end": with_header(b"[" * 100_000),
    "tables without end": with_header(b'{"w":' * 50_000),
    "NaN": with_offsets(b"[NaN, 4]"),
    "from infinity": with_offsets(b"[Infinity, 4]"),
    "to infinity": with_offsets(b"[0, 1e999]"),
    "fractions": with_offsets(b"[0.0, 4.5]"),
    "texts": with_offsets(b'["0", "4"]'),
    "thousands of digits": with_offsets(b"[0, " + b"9" * 5_000 + b"]"),
    "no length": b"123",
    "length of exabytes": (2**63).to_bytes(8, "little") + b"{}",
    "no table": with_header(b'"tensors"'),
    "no UTF-8": with_header(b"\xff{}"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_with_an_odd_header_are_refused_in_one_line(tmp_path, name):
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS[name])
    with pytest.raises(UsageError) as raised:
        tensor_bytes(tmp_path / "model.safetensors")
    [line] = str(raised.value).splitlines()
    assert line == (
        f"{tmp_path}/model.safetensors: no readable header, expected a safetensors file"
    )


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to itself", "nothing"])
def test_weights_that_are_no_file_are_refused_without_waiting(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "nothing":
        path.symlink_to("/dev/zero" if kind == "device" else path.name)
    with pytest.raises(UsageError, match=r"model\.safetensors: .*, expected weights in safetens"):
        tensor_bytes(path)


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3_000, "a\0b"])
@pytest.mark.parametrize("place", ["component", "library"])
def test_an_index_of_names_that_no_file_can_have_is_refused(tmp_path, name, place):
    entry = {"component": {name: ["diffusers", "A"]}, "library": {"unet": [name, "A"]}}[place]
    (tmp_path / "model" / "vae").mkdir(parents=True)
    (tmp_path / "model" / "model_index.json").write_text(
        json.dumps({"_class_name": "StableDiffusionPipeline", **entry})
    )
    with pytest.raises(UsageError, match="no such folder, expected the component") as raised:
        Checkpoint(str(tmp_path / "model"), Layout.PIPELINE).component_bytes("auto")
    assert len(str(raised.value)) < 500
