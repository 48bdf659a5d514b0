"""What an editor in RL training is told and asked; imports neither torch nor anything of a
trainer's environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import numpy as np
from PIL import Image

from pytest_imgedit.training import check_size, decode, one_line, to_rgb

STRATEGIES: dict[str, Literal["full", "grad_op"]] = {
    "FULL_SHARD": "full",
    "SHARD_GRAD_OP": "grad_op",
}
#: An edited image, or `None` and why there is none.
Outcome = tuple[Image.Image | None, str]


@dataclass
class ImageEditConfig:
    """What `worker.image_edit` holds.

    `model_path` is a folder or a hub id, `ORG/MODEL` or `ORG/MODEL@REVISION`.
    `fsdp_sharding_strategy` is `FULL_SHARD`, `SHARD_GRAD_OP` or `NO_SHARD` (every rank has the
    whole editor, as without `enable_fsdp`). `fsdp_cpu_offload` keeps shards in host memory also
    while they are used, `enable_cpu_offload` moves the editor there between calls. Without
    `fsdp_sync_module_states` every rank reads the weights itself. `image_size` is the side in
    pixels of a square as large as each edited image, whose shape is that of its source.
    `batch_size` is how many edits a rank makes in one call of the pipeline, where that takes
    several sources of one size; with shared weights they go into one call only if the sources of
    all ranks are of one size. `editor_python` is an interpreter in which pytest-imgedit is
    installed with its dependencies: the editor then runs in a process of that, so that the
    trainer's environment and the editor's need not agree.
    """

    model_path: str
    enable_fsdp: bool = True
    fsdp_sharding_strategy: str = "FULL_SHARD"
    fsdp_cpu_offload: bool = False
    fsdp_sync_module_states: bool = True
    enable_cpu_offload: bool = False
    torch_dtype: str = "auto"
    device: str = "auto"
    batch_size: int = 1
    image_size: int | None = None
    true_cfg_scale: float | None = None
    num_inference_steps: int | None = None
    seed: int = 0
    editor_python: str | None = None

    @classmethod
    def of(cls, config: Any) -> ImageEditConfig:
        """Read a config, or that at `worker.image_edit` of a trainer's config; either may be a
        mapping, a dataclass or an object with attributes.

        Raises `ValueError` for a key that is not known, and where the trainer's config has none of
        this.
        """
        table = _table(config)
        if "worker" in table:
            table = _table(table["worker"])
            if "image_edit" not in table:
                raise ValueError(
                    "worker.image_edit: not in the trainer's config, expected the keys of "
                    "ImageEditConfig (README of imgedit-verl)"
                )
        if "image_edit" in table:
            config = table["image_edit"]
            table = _table(config)
        if isinstance(config, ImageEditConfig):
            return config
        known = {field.name for field in fields(cls)}
        if unknown := next((str(name) for name in table if name not in known), None):
            raise ValueError(
                f"worker.image_edit.{unknown}: no such key, expected one of "
                f"{', '.join(sorted(known))}"
            )
        if "model_path" not in table:
            raise ValueError("worker.image_edit.model_path: missing, expected a folder or a hub id")
        return cls(**table)

    def __post_init__(self) -> None:
        strategies = [*STRATEGIES, "NO_SHARD"]
        if self.fsdp_sharding_strategy not in strategies:
            raise ValueError(
                f"fsdp_sharding_strategy: found {self.fsdp_sharding_strategy!r}, expected one of "
                f"{', '.join(strategies)}"
            )
        if self.batch_size < 1:
            raise ValueError(f"batch_size: found {self.batch_size}, expected at least 1")

    @property
    def call(self) -> dict[str, Any]:
        """Arguments of the pipeline's call."""
        named = {
            "true_cfg_scale": self.true_cfg_scale,
            "num_inference_steps": self.num_inference_steps,
        }
        return {name: value for name, value in named.items() if value is not None}


def _table(config: Any) -> Mapping[str, Any]:
    """Return what a mapping, a dataclass or an object with attributes holds, by name."""
    if isinstance(config, Mapping):
        return config
    if not hasattr(config, "__dict__"):
        raise ValueError(
            f"worker.image_edit: found {config!r:.80}, expected a table, a dataclass or an object "
            "with its keys"
        )
    return dict(vars(config))


@dataclass(frozen=True)
class Asked:
    """An edit that is asked for: the RGB source and the instruction, or the `problem` why it cannot
    be made.
    """

    source: Image.Image | None
    instruction: str
    problem: str = ""

    @classmethod
    def read(cls, image: Any, instruction: Any) -> Asked:
        """Read what a trainer asks for."""
        try:
            source = picture(image)
            if not isinstance(instruction, str):
                raise TypeError(f"an instruction that is {instruction!r:.80}")
        except Exception as error:
            return cls(None, "", f"{type(error).__name__}: {one_line(error)}")
        return cls(source, instruction)


class RankedEditor(Protocol):
    """The editor of one rank, in this process or in another one."""

    def load(self) -> None:
        """Load the rank's part; returns when all ranks have loaded theirs."""

    def edit(self, asked: Sequence[Asked], seed: int) -> list[Outcome]:
        """Edit, with one seed for all; raises `RuntimeError` where ranks share weights and one has
        failed.
        """


def _bytes(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return pixel values as uint8: integers in [0, 255] as they are, floats in [0, 1] times 255.

    Raises `ValueError` for any others; floats of a larger range do not say what white is.
    """
    if not np.issubdtype(pixels.dtype, np.number):
        raise ValueError(
            f"an array of {pixels.dtype}, expected integers in [0, 255] or floats in [0, 1]"
        )
    floats = np.issubdtype(pixels.dtype, np.floating)
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 0.0)
    top = 1.0 if floats else 255.0
    if not 0 <= low <= high <= top:  # also for NaN
        raise ValueError(f"{pixels.dtype} values from {low:g} to {high:g}, expected [0, {top:g}]")
    if floats:
        return (pixels * 255).round().astype(np.uint8)
    return pixels.astype(np.uint8)


def picture(image: Any) -> Image.Image:
    """Read a PIL image, an array of shape (H, W, 3), or PNG, JPEG or WebP bytes; raises what is
    wrong with it, such as `ImageError` for a size that the harness edits nowhere.
    """
    if isinstance(image, bytes):
        return decode(image)
    if isinstance(image, np.ndarray):
        image = Image.fromarray(_bytes(image))
    if not isinstance(image, Image.Image):
        raise TypeError(f"an image that is a {type(image).__name__}")
    if image.mode == "F":
        raise ValueError("an image of floats, expected an array of floats in [0, 1]")
    check_size(*image.size)
    return to_rgb(image)
