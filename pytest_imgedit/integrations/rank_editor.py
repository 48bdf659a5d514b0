"""The editor of one rank, which may share its weights with other ranks by FSDP.

Each rank edits its part of a batch (data parallel). Ranks that share weights make all calls together: one whose
pipeline fails raises, since the others wait for its part in vain, and edits no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import distributed as dist

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.editors.diffusers import DiffusersEditor
from pytest_imgedit.editors.fsdp import load_sharded
from pytest_imgedit.editors.loading import load_pipeline
from pytest_imgedit.editors.output import checked
from pytest_imgedit.inference.numerics import pick_dtype, set_deterministic
from pytest_imgedit.inference.seeding import seed_all
from pytest_imgedit.integrations.image_edit import STRATEGIES, Asked, ImageEditConfig, Outcome
from pytest_imgedit.models.diffusers import ShardParameters


class RankEditor:
    """Loads an editor as a config says, and edits."""

    def __init__(self, config: ImageEditConfig) -> None:
        self.config = config
        self.editor: DiffusersEditor | None = None
        self.out_of_step = ""

    def load(self) -> None:
        """Load the editor, sharded if the config says so; returns when all ranks have."""
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
        strategy = STRATEGIES.get(config.fsdp_sharding_strategy)
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

    def edit(self, asked: Sequence[Asked], seed: int) -> list[Outcome]:
        """Edit in batches, with one seed for all; raises where ranks share weights and one has failed."""
        outcomes: list[Outcome] = []
        with self._at_work():
            for start in range(0, len(asked), self.config.batch_size):
                outcomes += self._edit_chunk(asked[start : start + self.config.batch_size], seed)
        return outcomes

    def _edit_chunk(self, asked: Sequence[Asked], seed: int) -> list[Outcome]:
        """Edit up to `batch_size` images: those of one size in one call, the others one by one.

        Where ranks share weights, an image that cannot be edited still takes its part in the calls.
        """
        assert self.editor is not None, "load comes first"
        if self.out_of_step:
            raise RuntimeError(f"this rank fell out of step ({self.out_of_step}): make a new worker group")
        if self.config.image_size is not None:
            self.editor.area = self.config.image_size**2
        outcomes: dict[int, Outcome] = {n: (None, one.problem) for n, one in enumerate(asked) if one.source is None}
        requests = {
            n: EditRequest("edit", "default", one.instruction, one.source, seed)
            for n, one in enumerate(asked)
            if one.source is not None
        }
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
        calls = list(by_size.values()) if self.editor.adapter.batches else [[n] for n in requests]
        if self.sharded and not self._agree(len(calls) == 1):
            return [[n] for n in sorted(requests)]
        return calls

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
