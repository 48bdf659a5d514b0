"""Where a model is to run and to compute, and what it needs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

GIB = 2**30
#: Packages of attention kernels, by what the names of backends that take them contain.
ATTENTION_KERNELS: dict[str, tuple[str, ...]] = {
    "flash": ("flash-attn", "flash-attn-3"),
    "sage": ("sageattention",),
    "xformers": ("xformers",),
    "aiter": ("aiter",),
    "hub": ("kernels",),
}


@dataclass(frozen=True)
class Site:
    """Where the workers of a model are about to run, as far as it is known before any of them
    starts.

    `may_have_gpus` is false where it is sure that no GPU is used. `is_here` says that workers run
    in this environment: a package that is missing here is missing there. A judge that is to score
    has the spec of its `suite`, and the name of its `rubric`, which may be a custom one.
    """

    may_have_gpus: bool = True
    is_here: bool = True
    suite: str | None = None
    rubric: str = ""
    is_custom_rubric: bool = False


@dataclass(frozen=True)
class Requirements:
    """What a model needs beside memory.

    `packages` are those whose versions decide what it computes, `unused_packages` optional ones
    that its libraries import where they are installed, and that it never uses. `concurrency` is how
    many workers ask a server at a time; a judge is one worker, which asks much at a time.
    `shares_cpu` says that one worker has several processes, which share the CPU where there is no
    GPU. `prices` are those of a million tokens, in and out, of a judge that is paid by them.
    """

    packages: tuple[str, ...] = ()
    unused_packages: tuple[str, ...] = ()
    concurrency: int = 1
    shares_cpu: bool = False
    prices: tuple[float, float] | None = None


@dataclass(frozen=True)
class Memory:
    """What one worker holds: bytes of `weights` on its GPUs together, and bytes that it has `kept`
    in host memory.

    `weights` is `None` where that is not known before loading, and so is `reads`, the bytes that
    loading reads. `offloads` says how a plan writes what is moved to the GPU part by part.
    """

    weights: int | None
    kept: int = 0
    offloads: Literal["", "model", "group"] = ""
    reads: int | None = None

    def __str__(self) -> str:
        if self.offloads == "group":
            return "one block at a time, offloaded"
        size = "of unknown size" if self.weights is None else f"{self.weights / GIB:.1f} GiB"
        if self.offloads:
            return f"{size} at a time, offloaded"
        return size


@dataclass(frozen=True)
class Room:
    """What GPUs have for a model that does not fit: bytes `free` and `total` on the smallest of
    them.

    `enough` is the number of GPUs, of which all can be grouped so, that would hold the weights
    together.
    """

    free: float
    total: float
    enough: int | None


@dataclass(frozen=True)
class Workload:
    """What a run has for a model: `jobs` for each worker, and bytes of memory on its smallest
    GPU.
    """

    jobs: float
    gpu_bytes: float


@dataclass(frozen=True)
class Where:
    """Where an editor or judge would compute: the kind of device, the product of its GPUs as far as
    it is known, and the interpreter (`None`: this one).

    `versions` asks for those of packages by their names, where that is another machine. `threads`
    are those of a worker on the CPU, as far as they are known.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    gpu: str | None = None
    python: str | None = None
    versions: Callable[[Sequence[str]], dict[str, str]] | None = None
    threads: int | None = None

    def resolved_dtype(self, params: Mapping[str, Any]) -> str:
        """Return the number format in which a model computes: `auto` is float32 on the CPU and
        bfloat16 on a GPU.
        """
        name = str(params.get("dtype", "auto"))
        if name != "auto":
            return name
        if self.device == "cpu":
            return "float32"
        return "bfloat16"


def attention_packages(backend: str) -> list[str]:
    """Names of the packages whose kernels an attention backend takes."""
    if "native" in backend:
        return []
    return [
        package
        for part, packages in ATTENTION_KERNELS.items()
        if part in backend
        for package in packages
    ]
