"""The editor of one rank, which may share its weights with other ranks by FSDP.

Each rank edits its part of a batch (data parallel). Ranks that share weights make all calls
together: one whose pipeline fails raises, since the others wait for its part in vain, and edits no
more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from PIL import Image
from torch import distributed as dist

from imgedit_verl.config import STRATEGIES, Asked, ImageEditConfig, Outcome
from pytest_imgedit.training import LoadedEditor, load_editor, one_line


class Request(NamedTuple):
    """An edit that can be made: an RGB source, and what to do with it."""

    source: Image.Image
    instruction: str


class RankEditor:
    """Loads an editor as a config says, and edits."""

    def __init__(self, config: ImageEditConfig) -> None:
        self.config = config
        self.editor: LoadedEditor | None = None
        self.out_of_step = ""

    def load(self) -> None:
        """Load the editor, sharded if the config says so; returns when all ranks have."""
        config = self.config
        if config.device != "auto":
            kind = config.device
        elif torch.cuda.is_available():
            kind = "cuda"
        else:
            kind = "cpu"
        if kind.startswith("cuda"):
            alone = torch.cuda.device_count() == 1  # as verl gives each of its workers one
            torch.cuda.set_device(0 if alone else int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if kind.startswith("cuda") else "gloo")
        if kind.startswith("cuda"):
            self.place = torch.device("cuda", torch.cuda.current_device())
        else:
            self.place = torch.device(kind)
        strategy = STRATEGIES.get(config.fsdp_sharding_strategy)
        self.sharded = config.enable_fsdp and strategy is not None and dist.get_world_size() > 1
        self.editor = load_editor(
            config.model_path,
            self.place,
            config.torch_dtype,
            config.call,
            strategy=strategy if self.sharded else None,
            cpu_offload=config.fsdp_cpu_offload,
            rank0_reads=config.fsdp_sync_module_states,
        )
        dist.barrier()
        self._report_memory("loaded")
        if self._moves:
            self._move(to_rest=True)
            self._report_memory("moved to host memory")

    def edit(self, asked: Sequence[Asked], seed: int) -> list[Outcome]:
        """Edit in batches, with one seed for all; raises where ranks share weights and one has
        failed.
        """
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
            raise RuntimeError(
                f"this rank fell out of step ({self.out_of_step}): make a new worker group"
            )
        if self.config.image_size is not None:
            self.editor.area = self.config.image_size**2
        outcomes: dict[int, Outcome] = {
            n: (None, one.problem) for n, one in enumerate(asked) if one.source is None
        }
        requests = {
            n: Request(one.source, one.instruction)
            for n, one in enumerate(asked)
            if one.source is not None
        }
        if self.sharded:
            requests |= {n: Request(Image.new("RGB", (256, 256)), "") for n in outcomes}
        for places in self._calls(requests):
            made = self._call([requests[n] for n in places], seed)
            outcomes = {**dict(zip(places, made, strict=True)), **outcomes}
        return [outcomes[n] for n in range(len(asked))]

    def _calls(self, requests: Mapping[int, Request]) -> list[list[int]]:
        """Say which requests go into one call: those of one size, or with shared weights all or
        none.
        """
        assert self.editor is not None
        by_size: dict[tuple[int, int], list[int]] = {}
        for n in sorted(requests):
            by_size.setdefault(requests[n].source.size, []).append(n)
        calls = [[n] for n in requests]
        if self.editor.batches:
            calls = list(by_size.values())
        if self.sharded and not self._agree(len(calls) == 1):
            return [[n] for n in sorted(requests)]
        return calls

    def _agree(self, mine: bool) -> bool:
        """Tell whether something holds on all ranks."""
        flag = torch.tensor(int(mine))
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        return bool(flag.item())

    def _call(self, requests: Sequence[Request], seed: int) -> list[Outcome]:
        """Edit in one call, and one by one where that fails; raises where ranks share weights."""
        assert self.editor is not None
        sources = [request.source for request in requests]
        instructions = [request.instruction for request in requests]
        try:
            edits = self.editor.edit(sources, instructions, seed)
        except Exception as error:
            if self.sharded:
                # The others wait for its part, and what they send next would answer that.
                self.out_of_step = _problem(error)
                raise
            if len(requests) == 1:
                return [(None, _problem(error))]
        else:
            return [_outcome(edit) for edit in edits]
        return [outcome for request in requests for outcome in self._call([request], seed)]

    @property
    def _moves(self) -> bool:
        """Whether the editor leaves the GPU between calls."""
        return self.config.enable_cpu_offload and not self.config.fsdp_cpu_offload

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._move(to_rest=False)
        try:
            yield
        finally:
            self._move(to_rest=True)

    def _report_memory(self, what: str) -> None:
        """Print how much GPU memory this process holds; nothing without a GPU."""
        if self.place.type != "cuda":
            return
        allocated = torch.cuda.memory_allocated()
        reserved = torch.cuda.memory_reserved()
        print(
            f"imgedit-verl: rank {dist.get_rank()}: editor {what}, GPU memory "
            f"{allocated / 2**30:.1f} GiB allocated, {reserved / 2**30:.1f} GiB reserved",
            file=sys.stderr,
            flush=True,
        )

    def _move(self, to_rest: bool) -> None:
        """Move the editor to host memory, or back to the GPU, if the config wants that."""
        if not self._moves or self.editor is None:
            return
        for component in self.editor.pipeline.components.values():
            if isinstance(component, torch.nn.Module):
                component.to("cpu" if to_rest else self.place)
        if to_rest and self.place.type == "cuda":
            torch.cuda.empty_cache()


def _outcome(edit: Image.Image | Exception) -> Outcome:
    if isinstance(edit, Exception):
        return None, _problem(edit)
    return edit, ""


def _problem(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"
