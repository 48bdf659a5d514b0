"""What fits where: whether editor and judge stay on the GPUs together, and which options would make
them fit.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds.base import GIB, GPUS_OPTION, Memory, Model, Role, Room
from pytest_imgedit.workers.gpus import group_gpus, require_memory
from pytest_imgedit.workers.hardware import Hardware

Mode = Literal["auto", "swap", "resident"]
PlacedMode = Literal["cpu", "swap", "resident", "apart"]
#: The host and the GPUs of one worker.
Group = tuple[str, tuple[str, ...]]
#: Memory to work in beside the weights: a share of them plus a constant, generous for images of a
#: megapixel.
WORKING_SHARE = 0.15
WORKING_BYTES = GIB
#: A GPU is busy if other processes hold at least this much of its memory.
BUSY_GIB = 1
#: Why models are where they are, in plans.
AFTER = "one after the other"
BOTH = "both stay, no swap"
#: The name of a role's work, in plans, names of workers and settings.
STAGE_OF: Mapping[Role, str] = {"editor": "edit", "judge": "judge", "metric": "metric"}


@dataclass(frozen=True)
class Peak:
    """The peak memory of a worker of a model in an earlier `run`, with `batch_size` jobs per call.

    `gpu` is in bytes as PyTorch allocated them on one GPU; `host` is resident, with files that are
    mapped.
    """

    gpu: int
    host: int
    run: str
    batch_size: int


@dataclass(frozen=True)
class Need:
    """What a model needs: its memory in each worker, and the host and GPUs of each.

    `peak` is known from an earlier run. Batches take what memory there is, so that only the peak of
    a worker with one job per call tells what is needed.
    """

    model: Model
    memory: Memory
    groups: tuple[Group, ...]
    hint: str = ""
    peak: Peak | None = None

    @property
    def total(self) -> int:
        """Bytes that a worker takes: weights and memory to work in, or what it took in an earlier
        run with one job per call; 0 without weights, and if they are not known.
        """
        if self.peak is not None and self.peak.batch_size == 1 and self.model.gpus == 1:
            return self.peak.gpu + WORKING_BYTES
        if not self.memory.weights:
            return 0
        return self.memory.weights + int(WORKING_SHARE * self.memory.weights) + WORKING_BYTES

    @property
    def bytes_a_gpu(self) -> float:
        """The share of `total` that one GPU holds; all of it for a model that uses no GPU."""
        return self.total / self.model.gpus if self.groups else self.total

    def __str__(self) -> str:
        stage_and_memory = f"{STAGE_OF[self.model.role]} {self.memory}"
        if self.peak is None:
            return stage_and_memory
        sizes = f"{_gib(self.peak.gpu)}, host {_gib(self.peak.host)}"
        return f"{stage_and_memory} (at most {sizes} in run {self.peak.run})"


@dataclass(frozen=True)
class Placement:
    """Where models are: on the `cpu`, one after the other (`swap`), or both at a time.

    Both are on the same GPUs (`resident`), or each is on its own (`apart`).
    """

    mode: PlacedMode
    lines: tuple[str, ...] = ()


def groups_of(model: Model, hardware: Hardware) -> list[Group]:
    """Return the host and the GPUs of each worker of a model; none if it uses no GPU of the run.

    A few workers are spread over all hosts. Raises `UsageError` if the GPUs of a host cannot be
    grouped.
    """
    if model.is_served or (model.requirements.shares_cpu and not hardware.has_gpus):
        return []
    by_host: list[list[Group]] = []
    for host in hardware.hosts:
        if host.gpus or not hardware.remote:
            groups = group_gpus(host.gpus_of(model.role), model.gpus, GPUS_OPTION[model.role])
            by_host.append([(host.name, group) for group in groups])
    return spread(by_host)


def spread(by_host: Iterable[Sequence[Group]]) -> list[Group]:
    """Join the groups of each host, one of each host in turn."""
    in_turn: list[Group] = []
    for one_of_each_host in zip_longest(*by_host):
        in_turn += [group for group in one_of_each_host if group is not None]
    return in_turn


def place(
    models: Sequence[Model],
    hardware: Hardware,
    requested: Mode,
    peaks: Mapping[Role, Peak] | None = None,
) -> Placement:
    """Decide where models are; `requested` is `workers.placement`, `peaks` are of earlier runs.

    Raises `UsageError` for a model that does not fit, with what would help.
    """
    overlaps = len(models) > 1 and any(model.is_served for model in models) and requested != "swap"
    if not any(groups_of(model, hardware) for model in models):
        return Placement("resident" if overlaps else "cpu")
    needs: list[Need] = []
    for model in models:
        peak = None if peaks is None else peaks.get(model.role)
        needs.append(replace(need_of(model, hardware), peak=peak))
    for need in needs:
        _require_host_memory(need, hardware)
        _require_gpu_memory(need, hardware)
    mode, reason = _mode(requested, needs, hardware, overlaps)
    return Placement(mode, tuple(_lines(hardware, needs, reason)))


def need_of(model: Model, hardware: Hardware) -> Need:
    """Return what a model needs, and which option would make it fit."""
    memory = model.memory()
    gpus = hardware.gpus
    hint = ""
    if memory.weights and gpus:
        free = min(gpu.free_gib for gpu in gpus) * GIB
        total = min(gpu.total_gib for gpu in gpus) * GIB
        hint = model.hint(Room(free, total, _group_that_holds(memory.weights, free, len(gpus))))
    return Need(model, memory, tuple(groups_of(model, hardware)), hint)


def _group_that_holds(weights: float, free: float, gpus: int) -> int | None:
    """Return the smallest number of GPUs, from two, that weights fit into and that divides their
    number; `None` if no number does.
    """
    for count in range(2, gpus + 1):
        if gpus % count == 0 and weights <= count * free:
            return count
    return None


def settle(model: Model, hardware: Hardware) -> Model:
    """Return a model with the parameters decided that are left to the harness; one that uses no
    GPU stays as it is.
    """
    if not groups_of(model, hardware):
        return model
    smallest = min((gpu.total_gib for gpu in hardware.gpus), default=math.inf) * GIB
    return model.settle(smallest)


def _require_gpu_memory(need: Need, hardware: Hardware) -> None:
    """Raise `UsageError` if the weights of a worker do not fit into its GPUs."""
    if not need.memory.weights:
        return
    for host, names in need.groups:
        known = [gpu for gpu in hardware.gpus if gpu.host == host and gpu.name in names]
        if len(known) == len(names):  # a GPU of unknown memory counts as free
            require_memory(known, need.memory.weights, need.model.spec, need.hint)


def _require_host_memory(need: Need, hardware: Hardware) -> None:
    """Raise `UsageError` if workers keep more weights in the memory of a machine than is available;
    a machine of unknown memory has enough.
    """
    kept = need.memory.kept
    for machine, count in _workers_by_machine(need, hardware).items():
        available = hardware.memory_by_machine[machine]
        if not 0 < available < count * kept:
            continue
        names = [host.name for host in hardware.hosts if host.machine == machine]
        on_hosts = f" on {', '.join(names)}" if any(names) else ""
        option = f" ({need.model.role}.offload)" if need.memory.offloads else ""
        fewer = available // kept * need.model.gpus
        hint = f"; {fewer} GPUs (--imgedit-gpus) would fit" if fewer else ""
        raise UsageError(
            f"{need.model.spec}: {count} workers that offload{option} keep {_gib(kept)} of weights "
            f"each in host memory, expected at most {_gib(available)} in all, which is "
            f"available{on_hosts}{hint}"
        )


def _workers_by_machine(need: Need, hardware: Hardware) -> Counter[str]:
    return Counter(hardware.machine_of(host) for host, _ in need.groups)


def _mode(
    requested: Mode, needs: Sequence[Need], hardware: Hardware, overlaps: bool
) -> tuple[PlacedMode, str]:
    """Decide where models are, and say why; with `overlaps`, a server computes for one of them.

    Raises `UsageError` if models that are to be resident are known not to fit together.
    """
    if hardware.is_split and len(needs) > 1:
        return "apart", "side by side, workers.judge_gpus"
    if overlaps:
        return "resident", BOTH
    if len(needs) < 2:
        return "swap", "stays"
    if requested == "swap":
        return "swap", f"{AFTER}, workers.placement"
    if not hardware.gpus or any(need.memory.weights is None for need in needs):
        if requested == "resident":
            return "resident", BOTH
        return "swap", f"{AFTER}, whether both fit is not known"
    together = sum(need.bytes_a_gpu for need in needs)
    smallest = min(gpu.free_gib for gpu in hardware.gpus) * GIB
    if requested == "resident" and together > smallest:
        raise UsageError(
            "workers.placement: found 'resident', but editor and judge do not fit together: "
            f"{_gib(together)} a GPU with room to work, {_gib(smallest)} free"
        )
    # Parts of one model may differ in size, so that only the user can know of groups.
    is_known = all(need.model.gpus == 1 for need in needs if need.groups)
    if requested == "resident" or (is_known and together <= smallest):
        return "resident", BOTH
    return (
        "swap",
        f"{AFTER}, each on all GPUs: together they would take {_gib(together)} of {_gib(smallest)}",
    )


def _host_peak_lines(need: Need, hardware: Hardware) -> Iterator[str]:
    """Warn where the workers took more host memory in an earlier run than is available now.

    A warning alone: part of a peak may be files that are mapped, which the system can drop.
    """
    if need.peak is None:
        return
    for machine, count in _workers_by_machine(need, hardware).items():
        available = hardware.memory_by_machine[machine]
        if 0 < available < count * need.peak.host:
            workers = counted(count, f"{STAGE_OF[need.model.role]} worker")
            yield (
                f"warning: {workers} of {need.model.spec} took up to {_gib(need.peak.host)} of "
                f"host memory each in run {need.peak.run}, {_gib(available)} is available; fewer "
                "GPUs (--imgedit-gpus) take less"
            )


def _lines(hardware: Hardware, needs: Sequence[Need], reason: str) -> Iterator[str]:
    """Yield warnings about hosts and GPUs, and the plan: what models with weights take, what is
    free, and the reason for their places.
    """
    for host in hardware.hosts:
        if hardware.remote and not host.gpus:
            yield f"warning: {host.name} has no GPU, beside hosts that have: it takes no part"
    for gpu in hardware.gpus:
        if gpu.held_gib >= BUSY_GIB:
            holders = gpu.holders or "other processes"
            yield f"warning: GPU {gpu} is busy: {gpu.held_gib} GiB held by {holders}"
    for need in needs:
        yield from _host_peak_lines(need, hardware)
    sizes = [str(need) for need in needs if need.memory.weights != 0]
    if not sizes:
        return
    free = [f"GPU {gpu} {gpu.free_gib} of {gpu.total_gib} GiB free" for gpu in hardware.gpus]
    room = ", ".join(free) or "GPUs that do not tell their memory"
    if len(sizes) == 1:
        reason = "stays"
    yield f"plan: {' and '.join(sizes)} on {room}: {reason}"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
