"""Where a model is: a folder here, or a commit of a repository of the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.protocol import CheckpointMessage
from pytest_imgedit.kinds.checkpoint_files import Layout, component_bytes, describe_checkpoint

_HUB_ID = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII
)
_SUFFIXES = ("json", "safetensors", "txt", "model", "jinja")
#: Snapshots by model and layout, so that a model that was found once stays the same commit for the
#: whole run.
_PINNED: dict[tuple[str, Layout], Path] = {}


def is_local(model: str) -> bool:
    """Tell whether a MODEL names a folder here rather than a hub id, `ORG/MODEL` or
    `ORG/MODEL@REVISION`.
    """
    return Path(model).is_dir() or not _HUB_ID.fullmatch(model)


def split_id(model: str) -> tuple[str, str | None]:
    """Return the repository and the revision of a hub id; the revision is `None` where the id names
    none.
    """
    match = _HUB_ID.fullmatch(model)
    if match is None:
        raise UsageError(
            f"model {model!r}: expected a checkpoint folder, or a hub id ORG/MODEL or "
            "ORG/MODEL@REVISION"
        )
    return match["repository"], match["revision"]


def model_folder(model: str, layout: Layout, download: bool = True) -> Path:
    """Return the folder of a model: the local one, or the hub snapshot, which is downloaded if need
    be and allowed.

    A hub id is resolved to a commit once a process; every later call returns that commit's
    snapshot, whatever was pushed meanwhile. Raises `UsageError` if a local folder does not exist or
    the snapshot cannot be had.
    """
    if is_local(model):
        if not Path(model).is_dir():
            raise UsageError(
                f"model {model!r}: no such folder, expected a checkpoint folder or a hub id"
            )
        return Path(model)
    if (model, layout) not in _PINNED:
        _PINNED[model, layout] = _snapshot(model, layout, download)
    return _PINNED[model, layout]


def pinned(model: str, layout: Layout) -> Path | None:
    """Return the snapshot to which `model_folder` has pinned a hub id; `None` for a folder or an
    unpinned id.
    """
    if is_local(model):
        return None
    return _PINNED.get((model, layout))


@dataclass(frozen=True)
class Checkpoint:
    """The weights that a MODEL names, a folder here or a hub id, whose files lie as `layout`
    says.
    """

    model: str
    layout: Layout

    @property
    def folder(self) -> Path:
        """The folder, downloaded if need be; raises `UsageError` if it cannot be had."""
        return model_folder(self.model, self.layout)

    @property
    def local_folder(self) -> Path:
        """The folder without a download; raises `UsageError` for a hub id that is not here."""
        return model_folder(self.model, self.layout, download=False)

    @property
    def commit(self) -> str | None:
        """The commit to which `folder` has pinned a hub id; `None` for a folder or an unpinned
        id.
        """
        folder = pinned(self.model, self.layout)
        if folder is None:
            return None
        return folder.name

    def component_bytes(self, dtype: str) -> dict[str, int]:
        """Bytes of weights in memory by component, in a number format; raises `UsageError` if it is
        not whole.
        """
        return component_bytes(self.folder, self.layout, dtype)

    def elsewhere(self, digests: Mapping[str, str]) -> CheckpointMessage:
        """Return what a worker on another host takes to find it there; `digests` are the SHA-256 of
        its files.
        """
        return describe_checkpoint(self.folder.absolute(), self.layout, digests)


def _snapshot(model: str, layout: Layout, download: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, revision = split_id(model)
    # A pipeline's weights lie in folders; safetensors beside model_index.json are the same weights
    # again.
    patterns = ["model_index.json"] + [f"*/*.{suffix}" for suffix in _SUFFIXES]
    if layout is Layout.MODEL:
        patterns = [f"*.{suffix}" for suffix in _SUFFIXES]
    try:
        return Path(
            snapshot_download(
                repository,
                revision=revision,
                allow_patterns=patterns,
                local_files_only=not download,
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        if not download:
            raise UsageError(
                f"model {model!r}: not on this machine yet; a run downloads it from the hub"
            ) from error
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"model {model!r}: neither a folder nor to be had from the hub: {reason}"
        ) from error
