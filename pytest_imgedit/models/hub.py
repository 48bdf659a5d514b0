"""Where a model is: a folder here, or a commit of a repository of the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.models.checkpoints import Layout

_HUB_ID = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
_SUFFIXES = ("json", "safetensors", "txt", "model", "jinja")
#: Snapshots by model and layout, so that a model that was found once stays the same commit for the whole run.
_PINNED: dict[tuple[str, Layout], Path] = {}


def is_local(model: str) -> bool:
    """Tell whether a MODEL names a folder here rather than a hub id, `ORG/MODEL` or `ORG/MODEL@REVISION`."""
    return Path(model).is_dir() or not _HUB_ID.fullmatch(model)


def split_id(model: str) -> tuple[str, str | None]:
    """Return the repository and the revision of a hub id; the revision is `None` where the id names none."""
    match = _HUB_ID.fullmatch(model)
    if match is None:
        raise UsageError(f"model {model!r}: expected a checkpoint folder, or a hub id ORG/MODEL or ORG/MODEL@REVISION")
    return match["repository"], match["revision"]


def model_folder(model: str, layout: Layout, download: bool = True) -> Path:
    """Return the folder of a model: the local one, or the hub snapshot, which is downloaded if need be and allowed.

    A hub id is resolved to a commit once a process; every later call returns that commit's snapshot, whatever was
    pushed meanwhile. Raises `UsageError` if a local folder does not exist or the snapshot cannot be had.
    """
    if is_local(model):
        if not Path(model).is_dir():
            raise UsageError(f"model {model!r}: no such folder, expected a checkpoint folder or a hub id")
        return Path(model)
    if (model, layout) not in _PINNED:
        _PINNED[model, layout] = _snapshot(model, layout, download)
    return _PINNED[model, layout]


def pinned(model: str, layout: Layout) -> Path | None:
    """Return the snapshot to which `model_folder` has pinned a hub id; `None` for a folder or an unpinned id."""
    return None if is_local(model) else _PINNED.get((model, layout))


def commit_of(model: str, layout: Layout) -> str | None:
    """Return the commit to which `model_folder` has pinned a hub id; `None` for a folder or an unpinned id."""
    folder = pinned(model, layout)
    return None if folder is None else folder.name


def _snapshot(model: str, layout: Layout, download: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, revision = split_id(model)
    # A pipeline's weights lie in folders; safetensors beside model_index.json are the same weights again.
    patterns = ["model_index.json"] + [f"*/*.{suffix}" for suffix in _SUFFIXES]
    if layout is Layout.MODEL:
        patterns = [f"*.{suffix}" for suffix in _SUFFIXES]
    try:
        return Path(
            snapshot_download(repository, revision=revision, allow_patterns=patterns, local_files_only=not download)
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        if not download:
            raise UsageError(f"model {model!r}: not on this machine yet; a run downloads it from the hub") from error
        reason = str(error).splitlines()[0]
        raise UsageError(f"model {model!r}: neither a folder nor to be had from the hub: {reason}") from error
