"""Files of checkpoints that nobody loads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def tensors(data: bytes) -> bytes:
    """A whole safetensors file with one tensor of these bytes."""
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    ).encode()
    return len(header).to_bytes(8, "little") + header + data


def pipeline(folder: Path) -> Path:
    """The files of a pipeline with one network, one tokenizer, and what its folder may hold beside
    them.
    """
    for name in ("unet", "tokenizer", "optimizer"):
        (folder / name).mkdir(parents=True)
    index = {
        "_class_name": "P",
        "unet": ["diffusers", "UNet"],
        "tokenizer": ["transformers", "T"],
        "x": [None, None],
    }
    (folder / "model_index.json").write_text(json.dumps(index))
    (folder / "unet" / "config.json").write_text("{}")
    (folder / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(tensors(b"1234"))
    (folder / "tokenizer" / "tokenizer.json").write_text("{}")
    for beside in (
        "README.md",
        "model.safetensors",
        "unet/training_args.json",
        "optimizer/state.safetensors",
    ):
        (folder / beside).write_bytes(b"x")
    return folder
