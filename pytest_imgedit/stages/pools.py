"""From settings to pools of workers."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_imgedit.models.identity import Identity, Where, identify
from pytest_imgedit.redaction import Redactor
from pytest_imgedit.stages.placement import all_gpus, groups_of, is_remote, memory_by_machine, model_of
from pytest_imgedit.workers.base import Deadline, Slot
from pytest_imgedit.workers.canary import Canaries, canary_edit
from pytest_imgedit.workers.hosts import HostExecutor
from pytest_imgedit.workers.local import LocalExecutor, available_cores
from pytest_imgedit.workers.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.models.kinds import Model, Role
    from pytest_imgedit.workers.base import Message, State
    from pytest_imgedit.workers.hosts import Hosts
    from pytest_imgedit.workers.pool import Watcher

#: Host memory that a worker process takes for libraries, buffers and images.
PROCESS_BYTES = 6 * 2**30
#: What workers of a role are called, and the setting that limits one job of theirs.
_WORKER_NAMES = {"editor": "edit", "judge": "judge"}
_JOB_TIMEOUTS = {"editor": "edit_timeout", "judge": "judge_timeout"}


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


def python_of(settings: Settings, role: Role) -> str | None:
    """Return the interpreter of a role's workers; `None` for this one."""
    return settings.workers.editor_python if role == "editor" else settings.workers.judge_python


def identify_role(settings: Settings, role: Role, cache: Path, hosts: Hosts | None = None) -> Identity:
    """Find what identifies the editor or judge of a run, where its workers will compute.

    Hosts that are not connected to yet count as having GPUs, and the libraries that are installed here. A server is
    asked from here. Raises `UsageError` if hosts have unlike libraries, or do not tell them.
    """
    model, python = model_of(settings, role), python_of(settings, role)
    remote = is_remote(settings) and not model.is_served
    unknown = hosts is None and remote
    on_gpus = settings.workers.gpus != "none" if unknown else bool(groups_of(settings, model, hosts))
    products = {gpu["product"] for gpu in all_gpus(settings, hosts)} if on_gpus else set()
    where = Where(
        device="cuda" if on_gpus else "cpu",
        gpu=products.pop() if len(products) == 1 else None,
        python=None if remote else python,
        versions=partial(hosts.versions, python, on_gpus) if hosts is not None and remote else None,
    )
    return identify(model, cache, where)


def ask_servers(settings: Settings, wanted: Iterable[tuple[Role, object]]) -> None:
    """Raise `UsageError` for a server that cannot be reached or refuses its key, before anything starts.

    `wanted` says of each role whether there is work for it.
    """
    for role, has_work in wanted:
        if has_work and python_of(settings, role) is None:
            model_of(settings, role).reach()


def make_pool(
    settings: Settings, role: Role, identity: Identity, folder: Path, watcher: Watcher, hosts: Hosts | None = None
) -> Pool:
    """Make a pool of workers that edit or judge, one a GPU group; no process is started yet.

    Workers on other hosts compare what they find there with the `identity` of the editor or judge.
    """
    workers, model, python = settings.workers, model_of(settings, role), python_of(settings, role)
    if model.is_served:
        hosts = None  # a server is asked from here, with this environment's key
    places = groups_of(settings, model, hosts) or _cpu_places(settings, model, hosts)
    machines = {} if hosts is None else {host.name: host.machine for host in hosts.all}
    slots = [
        Slot(f"{_WORKER_NAMES[role]}-{n}", group, host, machines.get(host, ""))
        for n, (host, group) in enumerate(places)
    ]
    target = model.target
    setup: Message = {
        "target": {"module": target.module, "attribute": target.attribute, "argument": target.argument},
        "params": model.worker_params,
        "libraries": identity.libraries,
        "is_served": model.is_served,
        "may_be_blank": model.may_be_blank,
    }
    load = Deadline(workers.load_timeout, "workers.load_timeout")
    job = Deadline(getattr(workers, _JOB_TIMEOUTS[role]), f"workers.{_JOB_TIMEOUTS[role]}")
    deadlines: dict[State, Deadline] = {"starting": load, "loading": load, "busy": job}
    at_once = _loads_at_once(settings, slots, model, hosts)
    if hosts is not None:
        setup["checkpoint"] = model.checkpoint_elsewhere(identity.recipe)
        setup["code"] = identity.recipe.get("code", {})
        setup["files"] = identity.files
        canaries = None
        if role == "editor" and len(hosts.all) > 1:
            setup["canary"], canaries = canary_edit(), Canaries(decides=model.checkpoint is not None)
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


def _cpu_places(settings: Settings, model: Model, hosts: Hosts | None) -> list[tuple[str, tuple[str, ...]]]:
    """Places without GPUs: on each host as many as the config says, or, to ask a server, as it is to be asked at once.

    A host of Ray is one place.
    """
    if model.is_served:
        return [("", ())] * model.concurrency
    if hosts is None:
        return [("", ())] * settings.workers.cpu_workers
    times = 1 if settings.workers.executor == "ray" else settings.workers.cpu_workers
    places: list[tuple[str, tuple[str, ...]]] = [(host.name, ()) for host in hosts.all]
    return places * times


def _loads_at_once(settings: Settings, slots: Sequence[Slot], model: Model, hosts: Hosts | None) -> int:
    """How many models may load at the same time on a machine: all if its memory has room for that, else one."""
    wanted = settings.workers.load_concurrency
    if wanted != "auto":
        return wanted
    if model.is_served:
        return len(slots)
    weights = model.weight_bytes
    if weights is None or not slots[0].gpus:
        return 1
    # Processes read the same files, which the system holds once; each has its libraries and buffers beside them.
    available, keeps = memory_by_machine(hosts), model.memory().kept > 0
    for machine, count in Counter(slot.machine for slot in slots).items():
        copies = count if keeps else 1
        if weights * (1.2 if copies == 1 else copies) + count * PROCESS_BYTES > available[machine]:
            return 1
    return len(slots)
