"""Checkpoint folders: where a model is, and whether it is whole, in safetensors, and free of code."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import SetupError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Holds the embedded models too.
PACKAGE = Path(__file__).parent
#: Kinds of editors and judges whose argument is a model: a checkpoint folder or a hub id.
MODEL_KINDS = ("diffusers", "qwen-vl")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
#: Names under which diffusers and transformers look for weights, and suffixes of formats that can run code.
_WEIGHTS = ("diffusion_pytorch_model.safetensors", "model.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_MAX_HEADER = 100 * 2**20


def is_local(model: str) -> bool:
    """Tell whether a MODEL names a folder here rather than a hub id."""
    return Path(model).is_dir() or not _HUB_ID.fullmatch(model)


def model_folder(model: str, kind: str, download: bool = True) -> Path:
    """Return the folder of a model: the local one, or the hub snapshot, which is downloaded if need be and allowed.

    Raises `UsageError` if a local folder does not exist or the snapshot cannot be had.
    """
    if is_local(model):
        if not Path(model).is_dir():
            raise UsageError(f"model {model!r}: no such folder, expected a checkpoint folder or a hub id")
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    suffixes = ("json", "safetensors", "txt", "model", "jinja")
    # A pipeline's weights lie in folders; safetensors beside model_index.json are the same weights again.
    patterns = ["model_index.json"] + [f"*/*.{suffix}" for suffix in suffixes]
    if kind != "diffusers":
        patterns = [f"*.{suffix}" for suffix in suffixes]
    try:
        return Path(snapshot_download(model, allow_patterns=patterns, local_files_only=not download))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        if not download:
            raise UsageError(f"model {model!r}: not on this machine yet; a run gets it from the hub") from error
        reason = str(error).splitlines()[0]
        raise UsageError(f"model {model!r}: neither a folder nor to be had from the hub: {reason}") from error


def describe_checkpoint(folder: Path) -> dict[str, Any]:
    """Return what `find_checkpoint` takes on another host: `folder`, its place in the package, each file's size."""
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    real, package = folder.resolve(), PACKAGE.resolve()
    embedded = str(real.relative_to(package)) if real.is_relative_to(package) else None
    return {"folder": str(folder), "embedded": embedded, "sizes": sizes}


def find_checkpoint(folder: str, embedded: str | None, sizes: Mapping[str, int]) -> str:
    """Return the folder here of a checkpoint elsewhere: the same path, or the same place in this package.

    Raises `SetupError` unless its files have the same sizes.
    """
    here = Path(folder) if embedded is None else PACKAGE / embedded
    for name, size in sizes.items():
        path = here / name
        found = f"{path.stat().st_size} bytes" if path.is_file() else "no such file"
        if not path.is_file() or path.stat().st_size != size:
            raise SetupError(
                f"{path} on {socket.gethostname()}: {found}, expected {size} bytes as where the run started"
            )
    return str(here)


def check_checkpoint(folder: Path, kind: str, dtype: str = "float32") -> int:
    """Return the bytes that a checkpoint's weights take at least in memory; nothing but file headers is read.

    Stored float32 counts half unless it is loaded as such (`dtype`).

    Raises `UsageError`, naming the file, if weights are missing, cut short, or not safetensors, and if the
    checkpoint wants code of its own to be run.
    """
    return sum(component_bytes(folder, kind, dtype).values())


def component_bytes(folder: Path, kind: str, dtype: str = "float32") -> dict[str, int]:
    """Return the bytes of a checkpoint's models by the names of their folders, as `check_checkpoint` counts them."""
    shrink = 1 if dtype == "float32" else 2
    return {model.name: _weight_bytes(model, shrink) for model in _model_folders(folder, kind)}


def _model_folders(folder: Path, kind: str) -> list[Path]:
    """Folders that hold the weights of a model each."""
    if kind != "diffusers":
        config = _read_json(folder / "config.json", "the config of a model")
        if "auto_map" in config:
            raise UsageError(
                f"{folder / 'config.json'}: 'auto_map' wants code of the checkpoint to run, which is refused"
            )
        return [folder]
    index = _read_json(folder / "model_index.json", "a diffusers checkpoint")
    if not isinstance(index.get("_class_name"), str):
        raise UsageError(
            f"{folder / 'model_index.json'}: _class_name is {index.get('_class_name')!r}, "
            "expected the name of a diffusers pipeline (code of the checkpoint is never run)"
        )
    components = []
    for name, value in index.items():
        library = value[0] if isinstance(value, list) and value else None
        if name.startswith("_") or not isinstance(library, str):
            continue
        component = folder / name
        if (component / f"{library}.py").exists():
            raise UsageError(f"{component / library}.py: code of the checkpoint, expected none: it is never run")
        if not component.is_dir():
            raise UsageError(f"{component}: no such folder, expected the component that model_index.json names")
        if (component / "config.json").exists():  # a model; schedulers, tokenizers and processors have other files
            components.append(component)
    return components


def _weight_bytes(folder: Path, shrink: int) -> int:
    found = sorted(path for path in folder.iterdir() if path.is_file())
    for name in _WEIGHTS:
        if (index := folder / f"{name}.index.json").exists():
            names = _read_json(index, "an index of weights").get("weight_map")
            if not isinstance(names, dict) or not all(isinstance(shard, str) for shard in names.values()):
                raise UsageError(f"{index}: no 'weight_map', expected file names by tensor")
            return sum(_tensor_bytes(folder / shard, shrink) for shard in sorted(set(names.values())))
        if (folder / name).exists():
            return _tensor_bytes(folder / name, shrink)
    pickled = next((path for path in found if path.suffix in _PICKLES), None)
    if pickled is not None:
        raise UsageError(f"{pickled}: weights that can run code when they load, expected safetensors")
    raise UsageError(f"{folder}: no weights, expected {' or '.join(_WEIGHTS)}")


def _tensor_bytes(path: Path, shrink: int) -> int:
    """Return the bytes of the tensors in a safetensors file, those of float32 divided by `shrink`.

    Format: 8 bytes little-endian length N, N bytes of JSON header with `dtype` and `data_offsets` for each tensor, then
    the data.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length)) if length <= _MAX_HEADER else {}
        tensors = [
            (*tensor["data_offsets"], tensor["dtype"]) for name, tensor in header.items() if name != "__metadata__"
        ]
        end = max(stop for _, stop, _ in tensors)
        total = sum((stop - start) // (shrink if dtype == "F32" else 1) for start, stop, dtype in tensors)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}, expected weights in safetensors") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"{path}: no readable header, expected a safetensors file") from error
    if size != 8 + length + end:
        raise UsageError(f"{path}: {size} bytes, expected {8 + length + end}: the file was cut short or damaged")
    return int(total)


def _read_json(path: Path, expected: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not JSON"
        raise UsageError(f"{path}: {reason}, expected {expected}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {type(value).__name__}, expected {expected}")
    return value
