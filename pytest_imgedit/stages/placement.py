"""What fits where: whether editor and judge stay on the GPUs together, and which options would make them fit."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.checkpoints import MODEL_KINDS, check_checkpoint, component_bytes
from pytest_imgedit.editors import controls
from pytest_imgedit.editors.base import resolve_editor
from pytest_imgedit.endpoints import ENDPOINT_KINDS
from pytest_imgedit.errors import UsageError
from pytest_imgedit.hub import model_folder
from pytest_imgedit.judges.base import MEASURING, resolve_judge
from pytest_imgedit.params import OFFLOADS, STEP_CACHE_THRESHOLD
from pytest_imgedit.workers.gpus import choose_gpus, gpu_memory, group_gpus, require_memory
from pytest_imgedit.workers.local import available_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.registry import Target
    from pytest_imgedit.workers.hosts import Hosts

GIB = 2**30
#: Memory to work in beside the weights: a share of them and a part of its own, generous for images of a megapixel.
WORKING_SHARE, WORKING_BYTES = 0.15, GIB
#: Compiling pays from so many denoising steps a worker on, for weights of so many bytes.
COMPILE_STEPS, COMPILE_BYTES = 300, 2 * GIB
#: What `editor.compile` becomes where that was left to the harness: no error where it cannot be done.
COMPILE_IF_POSSIBLE = "if possible"
#: Steps where the config names none.
USUAL_STEPS = 50
#: Parameters of an editor that change its images for speed, visibly.
LOSSY = ("quantize", "step_cache")
#: What attention backends of diffusers that compute in fewer bits have in their names.
LOSSY_ATTENTION = ("sage", "int8", "fp8")


@dataclass(frozen=True)
class Need:
    """What one role needs: bytes of `weights` on its GPUs, `None` if that is not known before loading.

    `kept` are the bytes of weights that each of its workers keeps in host memory.
    """

    role: str
    spec: str
    weights: int | None
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    hint: str = ""
    offload: str = "none"
    kept: int = 0

    @property
    def size(self) -> str:
        """The weights as the plan shows them."""
        if self.offload == "group":
            return "one block at a time, offloaded"
        return f"{_gib(self.weights)} at a time, offloaded" if self.offload == "model" else _gib(self.weights)

    @property
    def total(self) -> int:
        """Bytes of weights and of memory to work in."""
        return int((1 + WORKING_SHARE) * self.weights) + WORKING_BYTES if self.weights else 0


@dataclass(frozen=True)
class Placement:
    """Where models stand: on the `cpu`, one after the other (`swap`), or both at a time (`resident`)."""

    mode: Literal["cpu", "swap", "resident"]
    lines: tuple[str, ...] = ()


def target_of(settings: Settings, role: str) -> tuple[Target, dict[str, Any]]:
    """Return the class of the editor (`edit`) or judge (`judge`) that workers build, and its parameters."""
    if role == "judge":
        return resolve_judge(settings.judge.spec), settings.judge.params
    target, params = resolve_editor(settings.editor.spec), settings.editor.params
    if target.kind != "diffusers":
        return target, params
    shard, ranks = params.pop("shard", {}), settings.workers.gpus_per_worker
    if ranks == 1 or shard.get("strategy") == "none":
        return target, params
    sharded = replace(target, module="pytest_imgedit.editors.sharded", attribute="ShardedEditor")
    return sharded, {**params, "shard": {**shard, "ranks": ranks}}


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


def groups_of(settings: Settings, role: str, hosts: Hosts | None = None) -> list[tuple[str, tuple[str, ...]]]:
    """The host and the GPUs of each worker; none where no GPU is used, as by what a server computes."""
    target, params = target_of(settings, role)
    if target.kind in ENDPOINT_KINDS or (hosts is None and is_remote(settings)):
        return []
    size, option = settings.workers.gpus_per_worker, "--imgedit-gpus-per-worker"
    if role == "judge":
        size, option = settings.judge.gpus_per_replica, "judge.gpus_per_replica"
    if hosts is None:
        of_host = {"": choose_gpus(settings.workers.gpus)}
    else:
        of_host = {host.name: host.gpus for host in hosts.all}
    if role == "edit" and "shard" in params and not any(of_host.values()):
        return []  # its ranks share the CPU
    grouped = {host: group_gpus(gpus, size, option) for host, gpus in of_host.items() if gpus or hosts is None}
    found = [(number, host, group) for host, groups in grouped.items() for number, group in enumerate(groups)]
    return [(host, group) for _, host, group in sorted(found, key=lambda one: one[0])]  # few jobs go to all hosts


def place(settings: Settings, roles: Sequence[str], hosts: Hosts | None = None) -> Placement:
    """Decide where the models of a run stand; raises `UsageError` for one that does not fit, with what would help."""
    served = [role for role in roles if target_of(settings, role)[0].kind in ENDPOINT_KINDS]
    beside = len(roles) > 1 and bool(served) and settings.workers.placement != "swap"
    gpus = all_gpus(settings, hosts)  # that tell their memory
    if not any(groups_of(settings, role, hosts) for role in roles):
        return Placement("resident" if beside else "cpu")
    needs = [need_of(settings, role, gpus, hosts) for role in roles]
    for need in needs:
        _require_host_memory(need, hosts)
        if need.weights:
            for group in need.groups:
                known = [gpu for gpu in gpus if _is_in(gpu, group)]
                if len(known) == len(group[1]):  # a GPU that does not tell its memory counts as free
                    require_memory(known, need.weights, need.spec, need.hint)
    mode = "resident" if beside else _mode(settings, needs, gpus)
    models = [f"{need.role} {need.size}" for need in needs if need.weights != 0]
    room = ", ".join(f"GPU {_named(gpu)} {gpu['free_gib']} of {gpu['total_gib']} GiB free" for gpu in gpus)
    room = room or "GPUs that do not tell their memory"
    where = {"swap": "one after the other", "resident": "both stay, no swap"}[mode] if len(models) > 1 else "stays"
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
    return Placement(mode, (*idle, *busy, f"plan: {' and '.join(models) or 'no model'} on {room}: {where}"))


def _require_host_memory(need: Need, hosts: Hosts | None) -> None:
    """Raise `UsageError` where workers of a machine keep more in its memory than is available, if that is known."""
    machines = {"": ""} if hosts is None else {host.name: host.machine for host in hosts.all}
    memory = memory_by_machine(hosts)
    for machine, count in Counter(machines[host] for host, _ in need.groups).items():
        if 0 < memory[machine] < count * need.kept:
            names = ", ".join(name for name, its in machines.items() if its == machine)
            fewer = memory[machine] // need.kept * len(need.groups[0][1])
            hint = f"; {fewer} GPUs (--imgedit-gpus) would fit" if fewer else ""
            raise UsageError(
                f"{need.spec}: {count} workers that offload (editor.offload, editor.shard.cpu_offload) keep "
                f"{_gib(need.kept)} of weights each in host memory, expected at most {_gib(memory[machine])} in all, "
                f"which is available{f' on {names}' if names else ''}{hint}"
            )


def memory_by_machine(hosts: Hosts | None) -> dict[str, int]:
    """Bytes of host memory that are available on each machine of a run; `""` is this one, where no hosts are named."""
    return {"": available_memory()} if hosts is None else {host.machine: host.memory for host in hosts.all}


def keeps_weights(params: dict[str, Any]) -> bool:
    """Tell from an editor's parameters whether each of its workers keeps the weights in host memory."""
    return params.get("offload") in OFFLOADS or bool(params.get("shard", {}).get("cpu_offload"))


def _is_in(gpu: dict[str, Any], group: tuple[str, tuple[str, ...]]) -> bool:
    return gpu["host"] == group[0] and gpu["name"] in group[1]


def _named(gpu: dict[str, Any]) -> str:
    return f"{gpu['name']} of {gpu['host']}" if gpu["host"] else str(gpu["name"])


def _mode(settings: Settings, needs: Sequence[Need], gpus: Sequence[dict[str, Any]]) -> Literal["swap", "resident"]:
    wanted = settings.workers.placement
    if wanted == "swap" or len(needs) < 2:
        return "swap"
    if not gpus or any(need.weights is None for need in needs):
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


def need_of(settings: Settings, role: str, gpus: Sequence[dict[str, Any]], hosts: Hosts | None = None) -> Need:
    """Tell what a role needs; `gpus`, as `all_gpus` describes them, are what its hint is for."""
    target, params = target_of(settings, role)
    groups = tuple(groups_of(settings, role, hosts))
    spec = settings.editor.spec if role == "edit" else settings.judge.spec
    if target.kind not in MODEL_KINDS:
        idle = target.module == controls.__name__ or target.kind in ("folder", *MEASURING, *ENDPOINT_KINDS)
        return Need(role, spec, 0 if idle else None, groups)
    parts = component_bytes(model_folder(target.argument or "", target.kind), target.kind, params.get("dtype", "auto"))
    parts |= {lora["path"]: Path(lora["path"]).stat().st_size for lora in params.get("loras", ())}
    weights = sum(parts.values())
    hint = _hint(role, weights, params, gpus, settings.workers.gpus_per_worker)
    if role == "judge":
        return Need(role, spec, weights, groups, hint)
    kept, offload, shard = weights if keeps_weights(params) else 0, params.get("offload", "none"), params.get("shard")
    if offload == "group" or (shard and shard.get("cpu_offload")):
        return Need(role, spec, None, groups, offload=offload, kept=kept)
    if offload == "model":
        return Need(role, spec, max(parts.values()), groups, hint, offload, kept)
    return Need(role, spec, weights if shard is None else _shared(parts, shard), groups, hint)


def _shared(parts: dict[str, int], shard: dict[str, Any]) -> int:
    """Bytes that the ranks of a group hold together: a part each, all of it each, or with `"grad_op"` both."""
    strategy, ranks = shard.get("strategy", "full"), int(shard["ranks"])
    copies = {"full": 1, "grad_op": ranks + 1, "context": ranks}[strategy]
    replicates = shard.get("text_encoder") == "replicate"
    whole = sum(size for name, size in parts.items() if replicates and name.startswith("text_encoder"))
    return copies * (sum(parts.values()) - whole) + ranks * whole


def _hint(role: str, weights: int, params: dict[str, Any], gpus: Sequence[dict[str, Any]], ranks: int) -> str:
    """Name the option with which weights would fit into what is free, if there is one; nothing if that is not told."""
    if not gpus:
        return ""
    free, total = (min(gpu[name] for gpu in gpus) * GIB for name in ("free_gib", "total_gib"))
    count = next((k for k in range(2, len(gpus) + 1) if len(gpus) % k == 0 and weights <= k * free), None)
    if role == "judge":
        if count is not None:
            return f"; judge.gpus_per_replica={count} would fit"
        own = f"; {math.ceil(weights / total)} such GPUs would hold them"
        return "; a GPU of its own would hold them" if weights <= total else own
    shard = params.get("shard", {})
    if shard.get("strategy", "full") != "full":
        return '; editor.shard.strategy="full" needs less'
    if shard.get("text_encoder") == "replicate":
        return '; editor.shard.text_encoder="shard" needs less'
    if params.get("offload") == "model":
        return '; editor.offload="group" needs least'
    if count is not None:
        return f"; --imgedit-gpus-per-worker={count} would fit"
    if ranks > 1:
        return '; editor.shard.strategy="full" with editor.shard.cpu_offload=true needs least'
    return f'; {"a GPU of its own would hold them, " if weights <= total else ""}editor.offload="group" needs least'


def settle_editor(settings: Settings, planned: int, hosts: Hosts | None = None) -> Settings:
    """Decide what is left to the harness, `editor.compile` and `editor.offload`, for a run that plans so many edits.

    Where compiling pays, the workers' `compile` becomes `COMPILE_IF_POSSIBLE`; where a GPU cannot hold the editor,
    `offload` becomes `"group"`, which also where whole components would fit takes no longer for an edit of up to 50
    steps. Edits that are stored already count as planned.
    """
    target, params = target_of(settings, "edit")
    workers = len(groups_of(settings, "edit", hosts))
    if target.kind != "diffusers" or not workers or settings.workers.gpus_per_worker > 1:
        return settings
    folder, dtype = model_folder(target.argument or "", target.kind), params.get("dtype", "auto")
    weights = check_checkpoint(folder, target.kind, dtype)
    settled: dict[str, Any] = {}
    if params.get("offload", "auto") == "auto":
        smallest = min((gpu["total_gib"] for gpu in all_gpus(settings, hosts)), default=math.inf) * GIB
        if smallest < weights:
            settled["offload"] = "group"
    offloads = settled.get("offload", params.get("offload")) in OFFLOADS
    steps = planned / workers * params.get("num_inference_steps", USUAL_STEPS)
    pays = steps >= COMPILE_STEPS and weights >= COMPILE_BYTES and not params.get("step_cache") and not offloads
    if pays and params.get("compile", "auto") == "auto":
        settled["compile"] = COMPILE_IF_POSSIBLE
    return settings.model_copy(update={"editor": settings.editor.model_copy(update=settled)})


def lossy(params: dict[str, Any]) -> list[str]:
    """Name the parameters that trade an editor's quality for speed, as `key=value`."""
    named = [f"{name}={params[name]}" for name in LOSSY if params.get(name)]
    backend = str(params.get("attention_backend", ""))
    if any(word in backend for word in LOSSY_ATTENTION):
        named.append(f"attention_backend={backend}")
    if params.get("step_cache"):
        named.append(f"step_cache_threshold={params.get('step_cache_threshold', STEP_CACHE_THRESHOLD)}")
    return named


def _gib(size: float | None) -> str:
    return "of unknown size" if size is None else f"{size / GIB:.1f} GiB"
