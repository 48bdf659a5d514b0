"""Steps of decoding as CUDA graphs.

A step is thousands of small kernels that take longer to start than to run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

import torch

from pytest_imgedit.core.errors import is_out_of_memory
from pytest_imgedit.core.sanitize import one_line


class Owner(Protocol):
    """Remembers, for all steps of one model, whether this GPU can record them."""

    records_steps: bool


class Recorded:
    """A step that works on tensors that stay where they are, and that a GPU may replay from a
    recording.

    Where that cannot be done, steps stay as they are, with this owner for good: a grouped matrix
    product of experts without a kernel of its own asks the GPU for sizes, which no graph can hold.
    That is so in float32 anywhere, and in bfloat16 on GPUs before Hopper. The step is given to each
    call, not kept: a method of what holds this would keep its gigabytes of keys and values alive
    until Python collects cycles.
    """

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: torch.Tensor | None = None

    def __call__(self, advance: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Take the step; what it returns holds until the next call."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self.result = advance()
        assert self.result is not None
        return self.result

    def record(self, advance: Callable[[], torch.Tensor]) -> None:
        """Record the step, without taking it; it must have been taken before, so that all kernels
        are there.
        """
        if not self.owner.records_steps:
            return
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(
                graph, capture_error_mode="thread_local"
            ):  # other threads prepare images meanwhile
                self.result = advance()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            torch.cuda.synchronize()
            self.owner.records_steps = False
            print(
                f"steps are not recorded as a CUDA graph: {one_line(error)}"[:300], file=sys.stderr
            )
            return
        self.graph = graph
