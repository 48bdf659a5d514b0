"""What fits where: whether editor and judge stay on the GPUs together, and which options would make them fit."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.errors import UsageError
from pytest_imgedit.models.kinds import GIB, GPUS_OPTION, Memory, Model, Role, Room, Workload
from pytest_imgedit.models.specs import make_model
from pytest_imgedit.workers.gpus import choose_gpus, gpu_memory, group_gpus, require_memory
from pytest_imgedit.workers.local import available_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.workers.hosts import Hosts

#: Memory to work in beside the weights: a share of them and a part of its own, generous for images of a megapixel.
WORKING_SHARE, WORKING_BYTES = 0.15, GIB


@dataclass(frozen=True)
class Need:
    """What a model needs: its memory in each worker, and the host and GPUs of each."""

    model: Model
    memory: Memory
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    hint: str = ""

    @property
    def total(self) -> int:
        """Bytes of weights and of memory to work in."""
        weights = self.memory.weights
        return int((1 + WORKING_SHARE) * weights) + WORKING_BYTES if weights else 0


@dataclass(frozen=True)
class Placement:
    """Where models stand: on the `cpu`, one after the other (`swap`), or both at a time (`resident`)."""

    mode: Literal["cpu", "swap", "resident"]
    lines: tuple[str, ...] = ()


def model_of(settings: Settings, role: Role) -> Model:
    """Return the editor or the judge of a run; raises `UsageError` for a spec that names none."""
    if role == "judge":
        return make_model(role, settings.judge.spec, settings.judge.params, settings.judge.gpus_per_replica)
    return make_model(role, settings.editor.spec, settings.editor.params, settings.workers.gpus_per_worker)


#: What plans call the work of a role.
_STAGE_OF = {"editor": "edit", "judge": "judge"}


def is_remote(settings: Settings) -> bool:
    """Tell whether workers run on hosts that are to be connected to first, this one or others."""
    return bool(settings.workers.hosts) or settings.workers.executor == "ray"


def all_gpus(settings: Settings, hosts: Hosts | None = None) -> list[dict[str, Any]]:
    """Describe the GPUs of a run as `gpu_memory` does, each with its `host`; none of hosts not connected to yet."""
    if hosts is not None:
        return [gpu for host in hosts.all for gpu in host.gpu_memory]
    return (
        [] if is_remote(settings) else [{**gpu, "host": ""} for gpu in gpu_memory(choose_gpus(settings.workers.gpus))]
    )


def groups_of(settings: Settings, model: Model, hosts: Hosts | None = None) -> list[tuple[str, tuple[str, ...]]]:
    """The host and the GPUs of each worker; none where no GPU is used, as by what a server computes."""
    if model.is_served or (hosts is None and is_remote(settings)):
        return []
    if hosts is None:
        of_host = {"": choose_gpus(settings.workers.gpus)}
    else:
        of_host = {host.name: host.gpus for host in hosts.all}
    if model.shares_cpu and not any(of_host.values()):
        return []
    option = GPUS_OPTION[model.role]
    grouped = {host: group_gpus(gpus, model.gpus, option) for host, gpus in of_host.items() if gpus or hosts is None}
    found = [(number, host, group) for host, groups in grouped.items() for number, group in enumerate(groups)]
    return [(host, group) for _, host, group in sorted(found, key=lambda one: one[0])]  # few jobs go to all hosts


def place(settings: Settings, models: Sequence[Model], hosts: Hosts | None = None) -> Placement:
    """Decide where the models of a run stand; raises `UsageError` for one that does not fit, with what would help."""
    served = any(model.is_served for model in models)
    beside = len(models) > 1 and served and settings.workers.placement != "swap"
    gpus = all_gpus(settings, hosts)  # that tell their memory
    if not any(groups_of(settings, model, hosts) for model in models):
        return Placement("resident" if beside else "cpu")
    needs = [need_of(settings, model, gpus, hosts) for model in models]
    for need in needs:
        _require_host_memory(need, hosts)
        if need.memory.weights:
            for group in need.groups:
                known = [gpu for gpu in gpus if _is_in(gpu, group)]
                if len(known) == len(group[1]):  # a GPU that does not tell its memory counts as free
                    require_memory(known, need.memory.weights, need.model.spec, need.hint)
    mode = "resident" if beside else _mode(settings, needs, gpus)
    sizes = [f"{_STAGE_OF[need.model.role]} {need.memory}" for need in needs if need.memory.weights != 0]
    room = ", ".join(f"GPU {_named(gpu)} {gpu['free_gib']} of {gpu['total_gib']} GiB free" for gpu in gpus)
    room = room or "GPUs that do not tell their memory"
    where = {"swap": "one after the other", "resident": "both stay, no swap"}[mode] if len(sizes) > 1 else "stays"
    idle = [
        f"warning: {host.name} has no GPU, beside hosts that have: it takes no part"
        for host in (hosts.all if hosts is not None else [])
        if not host.gpus
    ]
    busy = [
        f"warning: GPU {_named(gpu)} is busy: {gpu['held_gib']} GiB held by {gpu['holders'] or 'other processes'}"
        for gpu in gpus
        if gpu["held_gib"] >= 1
    ]
    return Placement(mode, (*idle, *busy, f"plan: {' and '.join(sizes) or 'no model'} on {room}: {where}"))


def _require_host_memory(need: Need, hosts: Hosts | None) -> None:
    """Raise `UsageError` where workers of a machine keep more in its memory than is available, if that is known."""
    machines = {"": ""} if hosts is None else {host.name: host.machine for host in hosts.all}
    memory = memory_by_machine(hosts)
    for machine, count in Counter(machines[host] for host, _ in need.groups).items():
        if 0 < memory[machine] < count * need.memory.kept:
            names = ", ".join(name for name, its in machines.items() if its == machine)
            fewer = memory[machine] // need.memory.kept * len(need.groups[0][1])
            hint = f"; {fewer} GPUs (--imgedit-gpus) would fit" if fewer else ""
            raise UsageError(
                f"{need.model.spec}: {count} workers that offload (editor.offload, editor.shard.cpu_offload) keep "
                f"{_gib(need.memory.kept)} of weights each in host memory, expected at most {_gib(memory[machine])} "
                f"in all, which is available{f' on {names}' if names else ''}{hint}"
            )


def memory_by_machine(hosts: Hosts | None) -> dict[str, int]:
    """Bytes of host memory that are available on each machine of a run; `""` is this one, where no hosts are named."""
    return {"": available_memory()} if hosts is None else {host.machine: host.memory for host in hosts.all}


def _is_in(gpu: dict[str, Any], group: tuple[str, tuple[str, ...]]) -> bool:
    return gpu["host"] == group[0] and gpu["name"] in group[1]


def _named(gpu: dict[str, Any]) -> str:
    return f"{gpu['name']} of {gpu['host']}" if gpu["host"] else str(gpu["name"])


def _mode(settings: Settings, needs: Sequence[Need], gpus: Sequence[dict[str, Any]]) -> Literal["swap", "resident"]:
    wanted = settings.workers.placement
    if wanted == "swap" or len(needs) < 2:
        return "swap"
    if not gpus or any(need.memory.weights is None for need in needs):
        return "resident" if wanted == "resident" else "swap"
    sizes = [len(group) for need in needs for _, group in need.groups]
    together = sum(need.total / max((len(group) for _, group in need.groups), default=1) for need in needs)
    smallest = min(gpu["free_gib"] for gpu in gpus) * GIB
    if together <= smallest and (wanted == "resident" or all(size == 1 for size in sizes)):
        return "resident"  # parts of one model may differ in size, so that only the user can know of groups
    if wanted == "resident":
        room = f"{_gib(together)} a GPU with room to work, {_gib(smallest)} free"
        raise UsageError(f"workers.placement: found 'resident', but editor and judge do not fit together: {room}")
    return "swap"


def need_of(settings: Settings, model: Model, gpus: Sequence[dict[str, Any]], hosts: Hosts | None = None) -> Need:
    """Tell what a model needs; `gpus`, as `all_gpus` describes them, are what its hint is for."""
    memory, groups = model.memory(), tuple(groups_of(settings, model, hosts))
    return Need(model, memory, groups, _hint(model, memory.weights, gpus) if memory.weights and gpus else "")


def _hint(model: Model, weights: int, gpus: Sequence[dict[str, Any]]) -> str:
    """Name the option with which weights would fit into what is free, if there is one."""
    free, total = (min(gpu[name] for gpu in gpus) * GIB for name in ("free_gib", "total_gib"))
    enough = next((k for k in range(2, len(gpus) + 1) if len(gpus) % k == 0 and weights <= k * free), None)
    return model.hint(Room(free, total, enough))


def settle_editor(settings: Settings, planned: int, hosts: Hosts | None = None) -> Settings:
    """Decide what is left to the harness for a run that plans so many edits; those that are stored count as planned."""
    model = model_of(settings, "editor")
    workers = len(groups_of(settings, model, hosts))
    if not workers:
        return settings
    smallest = min((gpu["total_gib"] for gpu in all_gpus(settings, hosts)), default=math.inf) * GIB
    settled = model.settle(Workload(planned / workers, smallest)).params
    changed = {name: value for name, value in settled.items() if model.params.get(name) != value}
    return settings.model_copy(update={"editor": settings.editor.model_copy(update=changed)})


def _gib(size: float | None) -> str:
    return "of unknown size" if size is None else f"{size / GIB:.1f} GiB"
