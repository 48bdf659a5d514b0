"""An image editor as a worker of verl, for reinforcement learning that has edits made in its rollouts.

Each rank edits its part of a batch (data parallel); with FSDP the ranks share the weights, so that all of them edit
equally many images at the same time, which verl's dispatch sees to. A rank whose pipeline fails raises, since the
others wait for its part in vain, and edits no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import distributed as dist
from verl.protocol import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register

from pytest_imgedit.core.images import decode, to_rgb
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.editors.diffusers import DiffusersEditor
from pytest_imgedit.editors.fsdp import load_sharded
from pytest_imgedit.editors.loading import load_pipeline
from pytest_imgedit.editors.output import checked
from pytest_imgedit.inference.numerics import pick_dtype, set_deterministic
from pytest_imgedit.inference.seeding import seed_all
from pytest_imgedit.models.diffusers import ShardParameters

IMAGES, INSTRUCTIONS = "preliminary_edited_images", "re_edit_instructions"
EDITED, ERRORS = "final_edited_images", "edit_errors"
_STRATEGIES: dict[str, Literal["full", "grad_op"]] = {"FULL_SHARD": "full", "SHARD_GRAD_OP": "grad_op"}


#: An edited image, or `None` and why there is none.
Outcome = tuple[Image.Image | None, str]


@dataclass
class ImageEditConfig:
    """What `worker.image_edit` holds.

    `fsdp_sharding_strategy` is `FULL_SHARD`, `SHARD_GRAD_OP` or `NO_SHARD` (every rank has the whole editor, as without
    `enable_fsdp`). `fsdp_cpu_offload` keeps shards in host memory also while they are used, `enable_cpu_offload` moves
    the editor there between calls. Without `fsdp_sync_module_states` every rank reads the weights itself. `image_size`
    is the side in pixels of a square as large as each edited image, whose shape is that of its source. `batch_size` is
    how many edits a rank makes in one call of the pipeline, where that takes several sources of one size; with shared
    weights they go into one call only if the sources of all ranks are of one size.
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

    def __post_init__(self) -> None:
        if self.fsdp_sharding_strategy not in (*_STRATEGIES, "NO_SHARD"):
            known = ", ".join((*_STRATEGIES, "NO_SHARD"))
            raise ValueError(f"fsdp_sharding_strategy: found {self.fsdp_sharding_strategy!r}, expected one of {known}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size: found {self.batch_size}, expected at least 1")

    @property
    def call(self) -> JsonObject:
        """Arguments of the pipeline's call."""
        named = {"true_cfg_scale": self.true_cfg_scale, "num_inference_steps": self.num_inference_steps}
        return {name: value for name, value in named.items() if value is not None}


class ImageEditWorker(Worker):
    """Edits images between a model's answer and its reward; make it with verl's worker groups."""

    def __init__(self, config: ImageEditConfig | Mapping[str, Any]) -> None:
        super().__init__()
        self.config = config if isinstance(config, ImageEditConfig) else ImageEditConfig(**dict(config))
        self.editor: DiffusersEditor | None = None
        self.out_of_step = ""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the editor on every rank, sharded if the config says so."""
        config = self.config
        kind = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        if kind.startswith("cuda"):
            alone = torch.cuda.device_count() == 1  # as verl gives each of its workers one
            torch.cuda.set_device(0 if alone else int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if kind.startswith("cuda") else "gloo")
        self.place = (
            torch.device("cuda", torch.cuda.current_device()) if kind.startswith("cuda") else torch.device(kind)
        )
        set_deterministic(True)
        dtype = pick_dtype(config.torch_dtype, self.place.type)
        strategy = _STRATEGIES.get(config.fsdp_sharding_strategy)
        self.sharded = config.enable_fsdp and strategy is not None and dist.get_world_size() > 1
        if self.sharded and strategy is not None:
            shard = ShardParameters(strategy=strategy, cpu_offload=config.fsdp_cpu_offload)
            pipeline = load_sharded(
                Path(config.model_path), self.place, dtype, shard, rank0_reads=config.fsdp_sync_module_states
            )
        else:
            pipeline = load_pipeline(Path(config.model_path), str(self.place), dtype)
        self.editor = DiffusersEditor.around(pipeline, config.call)
        dist.barrier()
        self._move(to_rest=True)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def edit_images_batch(self, data: DataProto) -> DataProto:
        """Edit `preliminary_edited_images` as `re_edit_instructions` say; both are in `non_tensor_batch`.

        Images are PIL images, arrays of shape (H, W, 3), or PNG, JPEG or WebP bytes. Arrays hold integers in [0, 255]
        or floats in [0, 1]. All images of a batch are edited with one seed. Returns
        `final_edited_images`, PIL images, and `edit_errors`, texts: an edit that failed is `None` with its reason, the
        others have an empty one. Where ranks share weights, raises what the pipeline itself raises, and `RuntimeError`
        from then on. `meta_info["seed"]` takes the place of the config's.
        """
        images, instructions = (data.non_tensor_batch[name] for name in (IMAGES, INSTRUCTIONS))
        seed = int(data.meta_info.get("seed", self.config.seed))
        edited, errors = np.empty(len(images), dtype=object), np.empty(len(images), dtype=object)
        with self._at_work():
            for start in range(0, len(images), self.config.batch_size):
                chunk = slice(start, start + self.config.batch_size)
                outcomes = self._edit_chunk(list(zip(images[chunk], instructions[chunk], strict=True)), seed)
                for n, outcome in enumerate(outcomes, start):
                    edited[n], errors[n] = outcome
        return DataProto(non_tensor_batch={EDITED: edited, ERRORS: errors})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def process_batch(self, data: DataProto) -> DataProto:
        """Do what `edit_images_batch` does."""
        found: DataProto = self.edit_images_batch(data)
        return found

    def _edit_chunk(self, asked: Sequence[tuple[Any, Any]], seed: int) -> list[Outcome]:
        """Edit up to `batch_size` images: those of one size in one call, the others one by one.

        Where ranks share weights, an image that cannot be edited still takes its part in the calls.
        """
        assert self.editor is not None, "init_model comes first"
        if self.out_of_step:
            raise RuntimeError(f"this rank fell out of step ({self.out_of_step}): make a new worker group")
        if self.config.image_size is not None:
            self.editor.area = self.config.image_size**2
        read = [_read(image, instruction, seed) for image, instruction in asked]
        outcomes: dict[int, Outcome] = {
            n: (None, problem) for n, problem in enumerate(read) if isinstance(problem, str)
        }
        requests = {n: request for n, request in enumerate(read) if not isinstance(request, str)}
        if self.sharded:
            requests |= {n: EditRequest("edit", "default", "", Image.new("RGB", (256, 256)), seed) for n in outcomes}
        for places in self._calls(requests):
            made = self._call([requests[n] for n in places])
            outcomes = {**dict(zip(places, made, strict=True)), **outcomes}
        return [outcomes[n] for n in range(len(asked))]

    def _calls(self, requests: Mapping[int, EditRequest]) -> list[list[int]]:
        """Say which requests go into one call: those of one size, or with shared weights all or none."""
        assert self.editor is not None
        by_size: dict[tuple[int, int], list[int]] = {}
        for n in sorted(requests):
            by_size.setdefault(requests[n].source.size, []).append(n)
        together = self.editor.adapter.batches and (not self.sharded or self._agree(len(by_size) == 1))
        return list(by_size.values()) if together else [[n] for n in sorted(requests)]

    def _agree(self, mine: bool) -> bool:
        """Tell whether something holds on all ranks."""
        flag = torch.tensor(int(mine))
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        return bool(flag.item())

    def _call(self, requests: Sequence[EditRequest]) -> list[Outcome]:
        """Edit in one call, and one by one where that fails; raises where ranks share weights."""
        assert self.editor is not None
        seed_all(requests[0].seed)
        try:
            output = self.editor.run(requests[0], "pt") if len(requests) == 1 else self.editor.run_batch(requests)
        except Exception as error:
            problem = f"{type(error).__name__}: {one_line(error)}"
            if self.sharded:  # the others wait for its part, and what they send next would answer that
                self.out_of_step = problem
                raise
            if len(requests) == 1:
                return [(None, problem)]
        else:
            return [self._finished(output, place, request) for place, request in enumerate(requests)]
        return [outcome for request in requests for outcome in self._call([request])]

    def _finished(self, output: Any, place: int, request: EditRequest) -> Outcome:
        assert self.editor is not None
        try:
            return checked(self.editor.picture(output, place), request.source, may_be_blank=False), ""
        except Exception as error:
            return None, f"{type(error).__name__}: {one_line(error)}"

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._move(to_rest=False)
        try:
            yield
        finally:
            self._move(to_rest=True)

    def _move(self, to_rest: bool) -> None:
        """Move the editor to host memory, or back to the GPU, if the config wants that."""
        if not self.config.enable_cpu_offload or self.config.fsdp_cpu_offload or self.editor is None:
            return
        for component in self.editor.pipeline.components.values():
            if isinstance(component, torch.nn.Module):
                component.to("cpu" if to_rest else self.place)
        if to_rest and self.place.type == "cuda":
            torch.cuda.empty_cache()


def _read(image: Any, instruction: Any, seed: int) -> EditRequest | str:
    """Read what is to be edited; return why it cannot be, if so."""
    try:
        source = _picture(image)
        if not isinstance(instruction, str):
            raise TypeError(f"an instruction that is {instruction!r:.80}")
    except Exception as error:
        return f"{type(error).__name__}: {one_line(error)}"
    return EditRequest("edit", "default", instruction, source, seed)


def _bytes(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return pixel values as uint8: integers in [0, 255] as they are, floats in [0, 1] times 255.

    Raises `ValueError` for any others; floats of a larger range do not say what white is.
    """
    if not np.issubdtype(pixels.dtype, np.number):
        raise ValueError(f"an array of {pixels.dtype}, expected integers in [0, 255] or floats in [0, 1]")
    floats = np.issubdtype(pixels.dtype, np.floating)
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 0.0)
    top = 1.0 if floats else 255.0
    if not 0 <= low <= high <= top:  # also for NaN
        raise ValueError(f"{pixels.dtype} values from {low:g} to {high:g}, expected [0, {top:g}]")
    return (pixels * 255).round().astype(np.uint8) if floats else pixels.astype(np.uint8)


def _picture(image: Any) -> Image.Image:
    if isinstance(image, bytes):
        return decode(image)
    if isinstance(image, np.ndarray):
        return to_rgb(Image.fromarray(_bytes(image)))
    if not isinstance(image, Image.Image):
        raise TypeError(f"an image that is a {type(image).__name__}")
    if image.mode == "F":
        raise ValueError("an image of floats, expected an array of floats in [0, 1]")
    return to_rgb(image)
