"""What fits where: whether editor and judge stay on the GPUs together, and which options would make
them fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds.base import GPUS_OPTION, Model, Role
from pytest_imgedit.kinds.requirements import GIB, Memory, Room, Workload
from pytest_imgedit.workers.gpus import Gpu, group_gpus, require_memory
from pytest_imgedit.workers.hardware import Hardware

Mode = Literal["auto", "swap", "resident"]
PlacedMode = Literal["cpu", "swap", "resident", "apart"]
#: The host and the GPUs of one worker.
Group = tuple[str, tuple[str, ...]]
#: Memory to work in beside the weights: a share of them and a part of its own, generous for images
#: of a megapixel.
WORKING_SHARE, WORKING_BYTES = 0.15, GIB
#: What the work of a role is called, in plans, names of workers and settings.
STAGE_OF: Mapping[Role, str] = {"editor": "edit", "judge": "judge"}


@dataclass(frozen=True)
class Peak:
    """The most bytes that PyTorch took on a GPU for a model in an earlier `run`, with `batch_size`
    jobs a call.
    """

    size: int
    run: str
    batch_size: int

    def __str__(self) -> str:
        return f"at most {_gib(self.size)} in run {self.run}"


@dataclass(frozen=True)
class Need:
    """What a model needs: its memory in each worker, and the host and GPUs of each.

    `peak` is what is known of it from earlier. Batches take what memory there is, so that it tells
    what is needed only of a worker that did one job a call.
    """

    model: Model
    memory: Memory
    groups: tuple[Group, ...]
    hint: str = ""
    peak: Peak | None = None

    @property
    def total(self) -> int:
        """Bytes of weights and of memory to work in."""
        if self.peak is not None and self.peak.batch_size == 1 and self.model.gpus == 1:
            return self.peak.size + WORKING_BYTES
        return (self.memory.weights or 0) + working_bytes(self.memory)


def working_bytes(memory: Memory) -> int:
    """Bytes of GPU memory that a worker may take beside its weights; none for a model that takes no
    GPU.
    """
    if memory.weights:
        return int(WORKING_SHARE * memory.weights) + WORKING_BYTES
    return 0


@dataclass(frozen=True)
class Placement:
    """Where models are: on the `cpu`, one after the other (`swap`), or both at a time.

    Both are on the same GPUs (`resident`), or each is on its own (`apart`).
    """

    mode: PlacedMode
    lines: tuple[str, ...] = ()


def groups_of(model: Model, hardware: Hardware) -> list[Group]:
    """The host and the GPUs of each worker of a model; none where no GPU is used, as by what a
    server computes.

    Raises `UsageError` if the GPUs of a host cannot be grouped.
    """
    if model.is_served or (model.requirements.shares_cpu and not hardware.has_gpus):
        return []
    numbered: list[tuple[int, Group]] = []
    for host in hardware.hosts:
        if host.gpus or not hardware.remote:
            groups = group_gpus(host.gpus_of(model.role), model.gpus, GPUS_OPTION[model.role])
            numbered += [(number, (host.name, group)) for number, group in enumerate(groups)]
    return [
        group for _, group in sorted(numbered, key=lambda one: one[0])
    ]  # few jobs go to all hosts


def place(
    models: Sequence[Model],
    hardware: Hardware,
    wanted: Mode,
    peaks: Mapping[Role, Peak] | None = None,
) -> Placement:
    """Decide where models are; `wanted` is `workers.placement`, `peaks` what earlier runs tell of
    their memory.

    Raises `UsageError` for a model that does not fit, with what would help.
    """
    overlaps = len(models) > 1 and any(model.is_served for model in models) and wanted != "swap"
    if not any(groups_of(model, hardware) for model in models):
        return Placement("resident" if overlaps else "cpu")
    needs = [
        replace(need_of(model, hardware), peak=(peaks or {}).get(model.role)) for model in models
    ]
    for need in needs:
        _require_host_memory(need, hardware)
        _require_gpu_memory(need, hardware)
    mode: PlacedMode
    if hardware.is_split and len(needs) > 1:
        mode, why = "apart", "side by side, workers.judge_gpus"
    elif overlaps:
        mode, why = "resident", "both stay, no swap"
    else:
        mode, why = _mode(wanted, needs, hardware.gpus)
    return Placement(mode, (*_warnings(hardware), _plan_line(why, needs, hardware.gpus)))


def need_of(model: Model, hardware: Hardware) -> Need:
    """Tell what a model needs, and which option would make it fit."""
    memory, gpus = model.memory(), hardware.gpus
    hint = _hint(model, memory.weights, gpus) if memory.weights and gpus else ""
    return Need(model, memory, tuple(groups_of(model, hardware)), hint)


def settle(model: Model, jobs: int, hardware: Hardware) -> Model:
    """Decide the parameters that are left to the harness, for so many jobs; those that are stored
    already count.
    """
    workers = len(groups_of(model, hardware))
    if not workers:
        return model
    smallest = min((gpu.total_gib for gpu in hardware.gpus), default=math.inf) * GIB
    return model.settle(Workload(jobs / workers, smallest))


def _hint(model: Model, weights: int, gpus: Sequence[Gpu]) -> str:
    free, total = min(gpu.free_gib for gpu in gpus) * GIB, min(gpu.total_gib for gpu in gpus) * GIB
    counts = (count for count in range(2, len(gpus) + 1) if len(gpus) % count == 0)
    return model.hint(
        Room(free, total, next((count for count in counts if weights <= count * free), None))
    )


def _require_gpu_memory(need: Need, hardware: Hardware) -> None:
    if not need.memory.weights:
        return
    for host, names in need.groups:
        known = [gpu for gpu in hardware.gpus if gpu.host == host and gpu.name in names]
        if len(known) == len(names):  # a GPU that does not tell its memory counts as free
            require_memory(known, need.memory.weights, need.model.spec, need.hint)


def _require_host_memory(need: Need, hardware: Hardware) -> None:
    """Raise `UsageError` where workers of a machine keep more in its memory than is available, if
    that is known.
    """
    kept, memory = need.memory.kept, hardware.memory_by_machine
    for machine, count in Counter(hardware.machine_of(host) for host, _ in need.groups).items():
        if 0 < memory[machine] < count * kept:
            names = ", ".join(host.name for host in hardware.hosts if host.machine == machine)
            fewer = memory[machine] // kept * need.model.gpus
            option = f" ({need.model.role}.offload)" if need.memory.offloads else ""
            hint = f"; {fewer} GPUs (--imgedit-gpus) would fit" if fewer else ""
            raise UsageError(
                f"{need.model.spec}: {count} workers that offload{option} keep {_gib(kept)} of "
                "weights each in host "
                f"memory, expected at most {_gib(memory[machine])} "
                f"in all, which is available{f' on {names}' if names else ''}{hint}"
            )


def _mode(
    wanted: Mode, needs: Sequence[Need], gpus: Sequence[Gpu]
) -> tuple[Literal["swap", "resident"], str]:
    """Decide whether both models stay on all GPUs, and say why."""
    after, both = "one after the other", "both stay, no swap"
    if len(needs) < 2:
        return "swap", "stays"
    if wanted == "swap":
        return "swap", f"{after}, workers.placement"
    if not gpus or any(need.memory.weights is None for need in needs):
        if wanted == "resident":
            return ("resident", both)
        return ("swap", f"{after}, whether both fit is not known")
    together = sum(need.total / (need.model.gpus if need.groups else 1) for need in needs)
    smallest = min(gpu.free_gib for gpu in gpus) * GIB
    if together <= smallest and (
        wanted == "resident" or all(need.model.gpus == 1 for need in needs if need.groups)
    ):
        return (
            "resident",
            both,
        )  # parts of one model may differ in size, so that only the user can know of groups
    if wanted == "resident":
        room = f"{_gib(together)} a GPU with room to work, {_gib(smallest)} free"
        raise UsageError(
            f"workers.placement: found 'resident', but editor and judge do not fit together: {room}"
        )
    return (
        "swap",
        f"{after}, each on all GPUs: together they would take {_gib(together)} of {_gib(smallest)}",
    )


def _warnings(hardware: Hardware) -> list[str]:
    idle = [
        f"warning: {host.name} has no GPU, beside hosts that have: it takes no part"
        for host in hardware.hosts
        if not host.gpus and hardware.remote
    ]
    busy = [
        f"warning: GPU {gpu} is busy: {gpu.held_gib} GiB held by {gpu.holders or 'other processes'}"
        for gpu in hardware.gpus
        if gpu.held_gib >= 1
    ]
    return [*idle, *busy]


def _plan_line(why: str, needs: Sequence[Need], gpus: Sequence[Gpu]) -> str:
    sizes = [
        f"{STAGE_OF[need.model.role]} {need.memory}{f' ({need.peak})' if need.peak else ''}"
        for need in needs
        if need.memory.weights != 0
    ]
    room = ", ".join(f"GPU {gpu} {gpu.free_gib} of {gpu.total_gib} GiB free" for gpu in gpus)
    where = why if len(sizes) > 1 else "stays"
    return (
        f"plan: {' and '.join(sizes) or 'no model'} on "
        f"{room or 'GPUs that do not tell their memory'}: {where}"
    )


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
