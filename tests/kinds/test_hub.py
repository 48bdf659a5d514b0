"""Ids of models on the hub, and the commits to which they are pinned."""

from __future__ import annotations

import pytest

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds import checkpoint_files
from pytest_imgedit.kinds.checkpoint_files import Checkpoint, Layout, is_local, split_id


def test_hub_ids_may_name_a_revision():
    assert not is_local("org/model@v1.0")
    assert split_id("org/model@refs/pr/3") == ("org/model", "refs/pr/3")
    assert split_id("org/model") == ("org/model", None)
    with pytest.raises(UsageError, match="ORG/MODEL@REVISION"):
        split_id("model@v1")


def test_a_hub_id_is_resolved_to_a_commit_once(tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot(repository, revision, **_):
        asked.append((repository, revision))
        folder = tmp_path / f"snapshots/{len(asked):040x}"  # each call would find another push
        folder.mkdir(parents=True)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(checkpoint_files, "_PINNED", {})
    first = Checkpoint("org/model@main", Layout.PIPELINE).folder
    assert Checkpoint("org/model@main", Layout.PIPELINE).folder == first
    assert asked == [("org/model", "main")]
    assert Checkpoint("org/model@main", Layout.PIPELINE).commit == f"{1:040x}"
    assert Checkpoint("org/other", Layout.PIPELINE).commit is None
