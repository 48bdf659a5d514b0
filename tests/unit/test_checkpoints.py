"""Checkpoints of the machine where a run started, found again on another host."""

import pytest

from pytest_imgedit import checkpoints
from pytest_imgedit.checkpoints import PACKAGE, describe_checkpoint, find_checkpoint
from pytest_imgedit.errors import SetupError
from pytest_imgedit.scenes import WEIGHTS


def test_embedded_models_are_found_wherever_the_package_is(tmp_path, monkeypatch):
    there = describe_checkpoint(WEIGHTS / "judge")
    elsewhere = tmp_path / "site-packages" / "pytest_imgedit"
    elsewhere.mkdir(parents=True)
    (elsewhere / "scenes").symlink_to(WEIGHTS.parent)
    monkeypatch.setattr(checkpoints, "PACKAGE", elsewhere)
    assert find_checkpoint(**there) == str(elsewhere / "scenes" / "weights" / "judge")


def test_other_models_have_the_same_path_and_the_same_sizes(tmp_path):
    weights = tmp_path / "vae" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"1234")
    there = describe_checkpoint(tmp_path)
    assert find_checkpoint(**there) == str(tmp_path)
    assert describe_checkpoint(PACKAGE / ".." / "benchmarks")["embedded"] is None
    weights.write_bytes(b"123")
    with pytest.raises(
        SetupError, match=r"model.safetensors on .*: 3 bytes, expected 4 bytes as where the run started"
    ):
        find_checkpoint(**there)
    weights.unlink()
    with pytest.raises(SetupError, match=r"model.safetensors on .*: no such file"):
        find_checkpoint(**there)
