"""Which files of a checkpoint are loaded, and the checkpoint of another machine found again on this
host.
"""

import os

import pytest
from checkpoint_files import pipeline

from pytest_imgedit.core.errors import SetupError, UsageError
from pytest_imgedit.kinds import checkpoint_files
from pytest_imgedit.kinds.checkpoint_files import (
    Checkpoint,
    Digests,
    KnownDigests,
    Layout,
    find_checkpoint,
    loaded_files,
)
from pytest_imgedit.scenes import WEIGHTS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def described(folder, layout, tmp_path):
    digests = Digests(tmp_path / "c.json").of(folder, loaded_files(folder, layout))
    return Checkpoint(str(folder), layout).elsewhere(digests)


def test_embedded_models_are_found_wherever_the_package_is(tmp_path, monkeypatch):
    there = described(WEIGHTS / "judge", Layout.MODEL, tmp_path)
    elsewhere = tmp_path / "site-packages" / "pytest_imgedit"
    elsewhere.mkdir(parents=True)
    (elsewhere / "scenes").symlink_to(WEIGHTS.parent)
    monkeypatch.setattr(checkpoint_files, "PACKAGE", elsewhere)
    assert find_checkpoint(**there) == str(elsewhere / "scenes" / "weights" / "judge")


def test_only_what_loaders_open_is_loaded(tmp_path):
    assert loaded_files(pipeline(tmp_path / "p"), Layout.PIPELINE) == [
        "model_index.json",
        "tokenizer/tokenizer.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
    ]


def test_other_models_have_the_same_path_and_the_same_content(tmp_path):
    folder = pipeline(tmp_path / "p")
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    there = described(folder, Layout.PIPELINE, tmp_path)
    assert there["embedded"] is None
    assert find_checkpoint(**there) == str(folder)
    (folder / "README.md").write_text("another")
    assert find_checkpoint(**there) == str(folder)
    weights.write_bytes(b"1235")  # of the same size, as checkpoints of one training run are
    with pytest.raises(
        SetupError,
        match=r"diffusion_pytorch_model.safetensors on .*: SHA-256 .*, expected SHA-256 .*",
    ):
        find_checkpoint(**there)
    weights.unlink()
    with pytest.raises(SetupError, match=r"model.safetensors on .*: no such file"):
        find_checkpoint(**there)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a pipe", "broken link", "large"])
def test_a_lock_of_digests_that_is_no_lock_is_not_waited_for(tmp_path, kind):
    (tmp_path / "weights").write_bytes(b"w")
    lock = tmp_path / ".c.json.lock"
    os.mkfifo(tmp_path / "pipe")
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    elif kind == "large":
        lock.write_bytes(bytes(5_000_000))
    else:
        lock.symlink_to(tmp_path / ("pipe" if kind == "link to a pipe" else "nothing"))
    digests = Digests(tmp_path / "c.json").of(tmp_path, ["weights"])
    assert digests["weights"].startswith("50e721e4")
    assert not (tmp_path / "nothing").exists()


def test_digests_that_are_known_are_had_without_reading(tmp_path):
    cache = tmp_path / "c.json"
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    read = Digests(cache).of(tmp_path, ["a"])
    known = KnownDigests(cache)
    assert known.of(tmp_path, ["a"]) == read
    assert not known.lacks
    assert known.of(tmp_path, ["a", "b"]) == read
    assert known.lacks
    known.of(tmp_path, ["a"])
    assert known.lacks
    assert not KnownDigests(cache).lacks


def test_a_file_of_the_hub_that_is_named_by_its_digest_is_known(tmp_path):
    blob = tmp_path / "models--o--m" / "blobs" / ("0" * 64)
    blob.parent.mkdir(parents=True)
    blob.write_text("weights")
    (tmp_path / "model.safetensors").symlink_to(blob)
    known = KnownDigests(tmp_path / "c.json")
    assert known.of(tmp_path, ["model.safetensors"]) == {"model.safetensors": "0" * 64}
    assert not known.lacks


def test_a_missing_file_is_no_unknown_digest(tmp_path):
    with pytest.raises(UsageError, match="No such file or directory, expected a readable file"):
        KnownDigests(tmp_path / "c.json").of(tmp_path, ["weights"])
