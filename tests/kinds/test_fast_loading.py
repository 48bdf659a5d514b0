"""Weights read in pieces are those of the file."""

import json
import os

import pytest
from later import Later

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds.checkpoint_files import weight_files

torch = Later("torch")
safetensors = Later("safetensors.torch")
transformers = Later("transformers")
fast_loading = Later("pytest_imgedit.kinds.compute.fast_loading")


@pytest.mark.parametrize("model", ["judge-qwen3-vl", "judge-qwen3-vl-moe"])
def test_model_read_in_pieces_equals_the_one_of_transformers(tiny, model, monkeypatch):
    monkeypatch.setattr(
        "pytest_imgedit.kinds.compute.fast_loading.CHUNK", 1000
    )  # many pieces, the last one shorter
    folder = tiny(model)
    with fast_loading.stored_tensors(folder, "cpu", torch.float32) as tensors:
        ours = fast_loading.load_on_gpu(folder, tensors, "cpu", torch.float32).state_dict()
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32
    ).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert "HF_DEACTIVATE_ASYNC_LOAD" not in os.environ


@pytest.mark.everyday
def test_file_that_ends_early_is_an_error(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"x" * 10)
    file = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match="ends 5 bytes early"):
        fast_loading.Reader("cpu").begin(file, 0, 15).result()
    os.close(file)


def test_shards_are_those_of_the_index(tmp_path):
    with pytest.raises(UsageError, match="no weights, expected"):
        weight_files(tmp_path)
    index = {"weight_map": {"b": "2.safetensors", "a": "1.safetensors", "c": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [path.name for path in weight_files(tmp_path)] == ["1.safetensors", "2.safetensors"]
    (tmp_path / "model.safetensors").touch()  # which transformers prefers
    assert weight_files(tmp_path) == [tmp_path / "model.safetensors"]
    (tmp_path / "diffusion_pytorch_model.safetensors").touch()
    for config, name in (
        ('{"_class_name": "A"}', "diffusion_pytorch_model"),
        ('{"model_type": "a"}', "model"),
    ):
        (tmp_path / "config.json").write_text(config)
        assert [path.stem for path in weight_files(tmp_path)] == [name]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_stored_tensors_have_the_files_values(tiny, dtype):
    """Those of the model's dtype, which are read ahead, and those of another."""
    folder = tiny("judge-qwen3-vl")
    with fast_loading.stored_tensors(folder, "cpu", getattr(torch, dtype)) as tensors:
        for name, expected in safetensors.load_file(weight_files(folder)[0]).items():
            assert torch.equal(tensors.pop(name)[...], expected)
    assert not tensors


def test_only_tensors_of_the_models_dtype_are_read_ahead(tiny, monkeypatch):
    """Others take more memory before they are converted than after."""
    folder = tiny("judge-qwen3-vl")
    begun = []
    begin = fast_loading.Reader.begin

    def noted(reader, file, start, stop):
        begun.append(start)
        return begin(reader, file, start, stop)

    monkeypatch.setattr(fast_loading.Reader, "begin", noted)
    with fast_loading.stored_tensors(folder, "cpu", torch.bfloat16):
        assert not begun
    with fast_loading.stored_tensors(folder, "cpu", torch.float32) as tensors:
        assert len(begun) == len(tensors)
        for tensor in tensors.values():
            tensor[...]
        assert len(begun) == len(tensors)
