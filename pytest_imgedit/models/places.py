"""Where a model is to run and to compute, and the memory that it takes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

GIB = 2**30


@dataclass(frozen=True)
class Site:
    """Where the workers of a model are about to run, as far as it is known before any of them starts.

    `may_have_gpus` is false where it is sure that no GPU is used. `is_here` says that workers run in this environment:
    a package that is missing here is missing there.
    """

    may_have_gpus: bool = True
    is_here: bool = True


@dataclass(frozen=True)
class Memory:
    """What one worker holds: bytes of `weights` on its GPUs together, and bytes that it has `kept` in host memory.

    `weights` is `None` where that is not known before loading. `offloads` says how a plan writes what is moved to the
    GPU part by part.
    """

    weights: int | None
    kept: int = 0
    offloads: Literal["", "model", "group"] = ""

    def __str__(self) -> str:
        if self.offloads == "group":
            return "one block at a time, offloaded"
        size = "of unknown size" if self.weights is None else f"{self.weights / GIB:.1f} GiB"
        return f"{size} at a time, offloaded" if self.offloads else size


@dataclass(frozen=True)
class Room:
    """What GPUs have for a model that does not fit: bytes `free` and `total` on the smallest of them.

    `enough` is the number of GPUs, of which all can be grouped so, that would hold the weights together.
    """

    free: float
    total: float
    enough: int | None


@dataclass(frozen=True)
class Workload:
    """What a run has for a model: `jobs` for each worker, and bytes of memory on its smallest GPU."""

    jobs: float
    gpu_bytes: float


@dataclass(frozen=True)
class Where:
    """Where an editor or judge would compute: the kind of device, the product of its GPUs as far as it is known, and
    the interpreter (`None`: this one).

    `versions` asks for those of packages by their names, where that is another machine. `threads` are those of a worker
    on the CPU, as far as they are known.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    gpu: str | None = None
    python: str | None = None
    versions: Callable[[Sequence[str]], dict[str, str]] | None = None
    threads: int | None = None

    def resolved_dtype(self, params: Mapping[str, Any]) -> str:
        """Return the number format in which a model computes: `auto` is float32 on the CPU and bfloat16 on a GPU."""
        name = str(params.get("dtype", "auto"))
        if name != "auto":
            return name
        return "float32" if self.device == "cpu" else "bfloat16"
