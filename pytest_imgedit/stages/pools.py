"""From settings to pools of workers."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.checkpoints import MODEL_KINDS, check_checkpoint, describe_checkpoint
from pytest_imgedit.endpoints import CONCURRENCY, ENDPOINT_KINDS, Asking, parse_endpoint
from pytest_imgedit.errors import SetupError, UsageError
from pytest_imgedit.hub import model_folder
from pytest_imgedit.recipes import Identity, Where, identify
from pytest_imgedit.redaction import Redactor
from pytest_imgedit.stages.placement import (
    all_gpus,
    groups_of,
    is_remote,
    keeps_weights,
    memory_by_machine,
    target_of,
)
from pytest_imgedit.workers.base import Deadline, Slot
from pytest_imgedit.workers.canary import Canaries, canary_edit
from pytest_imgedit.workers.hosts import HostExecutor
from pytest_imgedit.workers.local import LocalExecutor, available_cores
from pytest_imgedit.workers.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.workers.base import Message, State
    from pytest_imgedit.workers.hosts import Hosts
    from pytest_imgedit.workers.pool import Watcher

#: Host memory that a worker process takes for libraries, buffers and images.
PROCESS_BYTES = 6 * 2**30


def connect(settings: Settings, folder: Path) -> Hosts | None:
    """Connect to the hosts that a run's workers are to run on, `None` if they run here; raises `UsageError`."""
    workers = settings.workers
    if workers.executor == "ray":
        from pytest_imgedit.workers.ray import RayHosts

        size = max(workers.gpus_per_worker, settings.judge.gpus_per_replica)
        return RayHosts(workers.ray_address, size, workers.gpus != "none", workers.cpu_workers)
    if workers.hosts:
        from pytest_imgedit.workers.ssh import SshHosts

        return SshHosts(workers.hosts, workers.gpus, folder)
    return None


def identify_role(settings: Settings, role: str, cache: Path, hosts: Hosts | None = None) -> Identity:
    """Find what identifies the editor (`edit`) or `judge` of a run, where its workers will compute.

    Hosts that are not connected to yet count as having GPUs, and the libraries that are installed here. A server is
    asked from here. Raises `UsageError` if hosts have unlike libraries, or do not tell them.
    """
    target, params = target_of(settings, role)
    python = settings.workers.editor_python if role == "edit" else settings.workers.judge_python
    remote = is_remote(settings) and target.kind not in ENDPOINT_KINDS
    unknown = hosts is None and remote
    on_gpus = settings.workers.gpus != "none" if unknown else bool(groups_of(settings, role, hosts))
    products = {gpu["product"] for gpu in all_gpus(settings, hosts)} if on_gpus else set()
    where = Where(
        device="cuda" if on_gpus else "cpu",
        gpu=products.pop() if len(products) == 1 else None,
        python=None if remote else python,
        is_spread=role == "judge" and settings.judge.gpus_per_replica > 1,
        versions=partial(hosts.versions, python, on_gpus) if hosts is not None and remote else None,
    )
    return identify(target, params, cache, where)


def ask_servers(settings: Settings, roles: Sequence[str]) -> None:
    """Raise `UsageError` for a server of a role that cannot be reached or refuses its key, before anything starts."""
    for role in roles:
        target, params = target_of(settings, role)
        python = settings.workers.editor_python if role == "edit" else settings.workers.judge_python
        if target.kind in ENDPOINT_KINDS and python is None:
            named = {field.name: params[field.name] for field in fields(Asking) if field.name in params}
            try:
                Asking(parse_endpoint(target.kind, target.argument or ""), **named).check()
            except SetupError as error:
                raise UsageError(str(error)) from None


def make_pool(
    settings: Settings, role: str, identity: Identity, folder: Path, watcher: Watcher, hosts: Hosts | None = None
) -> Pool:
    """Make a pool of `edit` or `judge` workers, one a GPU group; no process is started yet.

    Workers on other hosts compare what they find there with the `identity` of the editor or judge.
    """
    workers, (target, params) = settings.workers, target_of(settings, role)
    python = workers.editor_python if role == "edit" else workers.judge_python
    argument = target.argument
    if target.kind in MODEL_KINDS:
        argument = str(model_folder(argument or "", target.kind).absolute())
    if target.kind in ENDPOINT_KINDS:
        hosts = None  # a server is asked from here, with this environment's key
    places = groups_of(settings, role, hosts) or _cpu_places(settings, role, hosts)
    machines = {} if hosts is None else {host.name: host.machine for host in hosts.all}
    slots = [Slot(f"{role}-{n}", group, host, machines.get(host, "")) for n, (host, group) in enumerate(places)]
    setup: Message = {
        "target": {
            "kind": target.kind,
            "module": target.module,
            "attribute": target.attribute,
            "argument": argument,
        },
        "params": params,
        "libraries": identity.libraries,
    }
    load = Deadline(workers.load_timeout, "workers.load_timeout")
    job = Deadline(getattr(workers, f"{role}_timeout"), f"workers.{role}_timeout")
    deadlines: dict[State, Deadline] = {"starting": load, "loading": load, "busy": job}
    at_once = _loads_at_once(settings, slots, target.kind, argument, params, hosts)
    if hosts is not None:
        if target.kind in MODEL_KINDS and argument:
            setup["checkpoint"] = describe_checkpoint(Path(argument), target.kind, identity.recipe["files"])
        setup["code"] = identity.recipe.get("code", {})
        setup["files"] = identity.files
        canaries = None
        if role == "edit" and len(hosts.all) > 1:
            setup["canary"], canaries = canary_edit(), Canaries(decides=target.kind in MODEL_KINDS)
        workers_of = Counter(slot.machine for slot in slots)
        threads = {host.name: _threads(host.facts["cores"], workers_of[host.machine]) for host in hosts.all}
        on_hosts = HostExecutor(hosts, python, load.seconds, threads)
        return Pool(on_hosts, slots, setup, at_once, deadlines, watcher, canaries)
    if python is not None and os.sep in python:
        python = str(Path(python).absolute())
    executor = LocalExecutor(
        folder, python, load.seconds, Redactor.of(settings), _threads(available_cores(), len(slots))
    )
    return Pool(executor, slots, setup, at_once, deadlines, watcher)


def _threads(cores: int, workers: int) -> int:
    """Threads of each worker of a machine: one core is that of the run, or of the agent that leads to it."""
    return max(1, (cores - 1) // max(1, workers))


def _cpu_places(settings: Settings, role: str, hosts: Hosts | None) -> list[tuple[str, tuple[str, ...]]]:
    """Places without GPUs: on each host as many as the config says, or, to ask a server, as it is to be asked at once.

    One judge asks a server, since it asks much at a time. A host of Ray is one place.
    """
    target, params = target_of(settings, role)
    if target.kind in ENDPOINT_KINDS:
        return [("", ())] * (1 if role == "judge" else int(params.get("concurrency", CONCURRENCY)))
    if hosts is None:
        return [("", ())] * settings.workers.cpu_workers
    times = 1 if settings.workers.executor == "ray" else settings.workers.cpu_workers
    places: list[tuple[str, tuple[str, ...]]] = [(host.name, ()) for host in hosts.all]
    return places * times


def _loads_at_once(
    settings: Settings,
    slots: list[Slot],
    kind: str,
    argument: str | None,
    params: dict[str, Any],
    hosts: Hosts | None,
) -> int:
    """How many models may load at the same time on a machine: all if its memory has room for that, else one."""
    wanted = settings.workers.load_concurrency
    if wanted != "auto":
        return wanted
    if kind in ENDPOINT_KINDS:
        return len(slots)
    if kind not in MODEL_KINDS or argument is None or not slots[0].gpus:
        return 1
    # Processes read the same files, which the system holds once; each has its libraries and buffers beside them.
    weights = check_checkpoint(Path(argument), kind)
    memory = memory_by_machine(hosts)
    for machine, count in Counter(slot.machine for slot in slots).items():
        copies = count if keeps_weights(params) else 1
        if weights * (1.2 if copies == 1 else copies) + count * PROCESS_BYTES > memory[machine]:
            return 1
    return len(slots)
