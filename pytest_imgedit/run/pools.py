"""Pools of workers: where the models of a run compute, and those that a session keeps for calls."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.protocol import Preparing
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.kinds.requirements import Where
from pytest_imgedit.run.placement import STAGE_OF, Group, Peak, Placement, groups_of, place, settle
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Slot, State, Worker
from pytest_imgedit.workers.hardware import Hardware, threads_in
from pytest_imgedit.workers.hosts import HostExecutor, Hosts
from pytest_imgedit.workers.local import LocalExecutor
from pytest_imgedit.workers.pool import Pool, Setup, Watcher
from pytest_imgedit.workers.timeouts import Deadline

#: The most threads of a worker without a GPU, and of one that makes several edits in one call.
#: Their number decides how sums round, so that it does not depend on how many workers there are;
#: with more threads than two, how an edit of a batch rounds depends on its place.
MOST_THREADS, BATCH_THREADS = 4, 2
#: Host memory that a worker process takes for libraries, buffers and images.
PROCESS_BYTES = 6 * 2**30


def is_remote(settings: Settings) -> bool:
    """Tell whether workers run on hosts that are to be connected to first."""
    return settings.workers.executor == "ray"


def python_of(settings: Settings, role: Role) -> str | None:
    """Return the interpreter of a role's workers; `None` for this one."""
    if role == "editor":
        return settings.workers.editor_python
    return settings.workers.judge_python


@contextmanager
def connected(settings: Settings) -> Iterator[Hosts | None]:
    """Connect to the hosts of a run, if it has any, and let go of them at the end."""
    hosts = connect(settings)
    try:
        yield hosts
    finally:
        if hosts is not None:
            hosts.close()


def connect(settings: Settings) -> Hosts | None:
    """Connect to the hosts that workers are to run on; `None` if they run here, or none do. Raises
    `UsageError`.
    """
    workers = settings.workers
    if workers.executor != "ray" or settings.run.stage == "report":
        return None
    from pytest_imgedit.workers.ray import RayHosts

    size = max(workers.gpus_per_worker, settings.judge.gpus_per_replica)
    return RayHosts(workers.ray_address, size, workers.gpus != "none", workers.cpu_workers)


@dataclass(frozen=True)
class Launcher:
    """Knows where the models of a run compute, and makes pools of workers there.

    `hosts` are those that are connected to, if workers do not run here; `folder` is where workers
    write what they print.
    """

    settings: Settings
    hardware: Hardware
    hosts: Hosts | None
    folder: Path
    watcher: Watcher

    def identify(self, model: Model, cache: Path) -> Identity:
        """Find what identifies a model where its workers compute; a server is asked from here.

        Raises `UsageError` if hosts have unlike libraries, or do not tell them.
        """
        python = python_of(self.settings, model.role)
        on_gpus = bool(groups_of(model, self.hardware))
        products = {gpu.product for gpu in self.hardware.gpus} if on_gpus else set()
        is_elsewhere = self.hosts is not None and not model.is_served
        versions = (
            partial(self.hosts.versions, python, on_gpus) if self.hosts and is_elsewhere else None
        )
        product = products.pop() if len(products) == 1 else None
        if on_gpus or is_elsewhere:
            threads = None
        else:
            threads = threads_in({"OMP_NUM_THREADS": f"{self._threads(model)}", **os.environ})
        where = Where(
            "cuda" if on_gpus else "cpu",
            product,
            None if is_elsewhere else python,
            versions,
            threads,
        )
        return identify(model, cache, where)

    def pool(self, model: Model, identity: Identity) -> Pool:
        """Make a pool of workers of a model, one a GPU group; no process is started yet.

        Workers on other hosts compare what they find there with the `identity` of the model.
        """
        hosts = (
            None if model.is_served else self.hosts
        )  # a server is asked from here, with this environment's key
        slots = self._slots(model)
        workers = self.settings.workers
        load = Deadline(workers.load_timeout, "workers.load_timeout")
        limits = {"editor": workers.edit_timeout, "judge": workers.judge_timeout}
        job = Deadline(limits[model.role], f"workers.{STAGE_OF[model.role]}_timeout")
        deadlines: dict[State, Deadline] = {"starting": load, "loading": load, "busy": job}
        setup = self._setup(model, identity)
        if model.role == "editor":
            setup["batch_size"], setup["pads_batches"] = model.batch_size, model.pads_batches
        if hosts is not None:
            if model.checkpoint is not None:
                setup["checkpoint"] = model.checkpoint.elsewhere(identity.recipe["files"])
            setup["code"], setup["files"] = identity.recipe.get("code", {}), identity.files
        executor = (
            self._executor_here(model) if hosts is None else self._executor_there(model, hosts)
        )
        wanted = Setup(setup, self._loads_at_once(model, slots), deadlines)
        return Pool(executor, slots, wanted, self.watcher)

    def _setup(self, model: Model, identity: Identity) -> Preparing:
        target = model.target
        return {
            "target": {
                "module": target.module,
                "attribute": target.attribute,
                "argument": target.argument,
            },
            "params": model.worker_params,
            "libraries": list(identity.libraries),
            "unused": list(model.requirements.unused_packages),
            "is_served": model.is_served,
            "may_be_blank": model.may_be_blank,
        }

    def _slots(self, model: Model) -> list[Slot]:
        """Name the places of a model's workers: a group of GPUs each, or a part of the CPU."""
        places = groups_of(model, self.hardware) or self._cpu_places(model)
        machines = {"": ""} | {host.name: host.machine for host in self.hardware.hosts}
        return [
            Slot(f"{STAGE_OF[model.role]}-{n}", gpus, host, machines[host])
            for n, (host, gpus) in enumerate(places)
        ]

    def _cpu_places(self, model: Model) -> list[Group]:
        """Places without GPUs: on each host as many as the config says, or, to ask a server, as it
        is to be asked at once. A host of Ray is one place.
        """
        if model.is_served:
            return [("", ())] * model.requirements.concurrency
        times = 1 if self.settings.workers.executor == "ray" else self.settings.workers.cpu_workers
        places: list[Group] = [(host.name, ()) for host in self.hardware.hosts]
        return places * times

    def _executor_there(self, model: Model, hosts: Hosts) -> HostExecutor:
        threads = {host.name: _threads(host.cores, model) for host in self.hardware.hosts}
        return HostExecutor(
            hosts, python_of(self.settings, model.role), self.settings.workers.load_timeout, threads
        )

    def _executor_here(self, model: Model) -> LocalExecutor:
        python = python_of(self.settings, model.role)
        if python is not None and os.sep in python:
            python = str(Path(python).absolute())
        patience = self.settings.workers.load_timeout
        return LocalExecutor(
            self.folder, python, patience, self.settings.redactor, self._threads(model)
        )

    def _threads(self, model: Model) -> int:
        """Threads of each worker of this machine that has no GPU."""
        return _threads(
            self.hardware.hosts[0].cores if self.hosts is None else os.cpu_count() or 1, model
        )

    def _loads_at_once(self, model: Model, slots: Sequence[Slot]) -> int:
        """How many models may load at the same time on a machine: all if its memory has room for
        that, else one.
        """
        wanted = self.settings.workers.load_concurrency
        if wanted != "auto":
            return wanted
        if model.is_served:
            return len(slots)
        memory = model.memory()
        weights = memory.reads
        if weights is None or not slots[0].gpus:
            return 1
        # Processes read the same files, which the system holds once; each has its libraries and
        # buffers beside them.
        available, keeps = self.hardware.memory_by_machine, memory.kept > 0
        for machine, count in Counter(slot.machine for slot in slots).items():
            copies = count if keeps else 1
            if (
                weights * (1.2 if copies == 1 else copies) + count * PROCESS_BYTES
                > available[machine]
            ):
                return 1
        return len(slots)


def _threads(cores: int, model: Model) -> int:
    """Threads of a worker: of one that makes several edits in one call, as many as share them
    evenly.
    """
    if model.batch_size == 1:
        return min(cores, MOST_THREADS)
    if model.batch_size % BATCH_THREADS == 0:
        return min(cores, BATCH_THREADS)
    return 1


class Audience:
    """Passes what workers do on to whoever listens at the time: to a run, or to the calls after
    it.
    """

    def __init__(self, progress: Watcher) -> None:
        self.progress = progress

    @property
    def stopping(self) -> bool:
        return self.progress.stopping

    def worker_changed(self, worker: Worker) -> None:
        self.progress.worker_changed(worker)

    def worker_said(self, slot: Slot, line: str) -> None:
        self.progress.worker_said(slot, line)

    def note(self, text: str) -> None:
        self.progress.note(text)


class Silence:
    """Hears nothing: workers that wait for calls have no one to tell."""

    stopping = False

    def worker_changed(self, worker: Worker) -> None: ...

    def worker_said(self, slot: Slot, line: str) -> None: ...

    def note(self, text: str) -> None: ...


class SessionWorkers:
    """Pools of workers by role, each started once and kept until the session ends or the other one
    needs its GPUs.

    A run takes its pools from here, and gives them back: those of the roles that it `keeps` go on.
    `models` are what the run has settled, `identities` what it has found out.
    """

    def __init__(
        self, settings: Settings, models: Mapping[Role, Model], hardware: Hardware, store: Store
    ) -> None:
        self.settings, self.models, self.store = settings, dict(models), store
        self.audience = Audience(Silence())
        self.peaks: Mapping[Role, Peak] = {}
        self.identities: dict[Role, Identity] = {}
        self.keeps: Collection[Role] = ()
        self._hardware = hardware
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._launcher: Launcher | None = None
        self._pools: dict[Role, Pool] = {}

    @property
    def hosts(self) -> Hosts | None:
        """The other hosts on which workers run, if there are any."""
        return self.launcher.hosts

    @property
    def launcher(self) -> Launcher:
        """What makes pools; connected to the other hosts, if there are any, until `close`. Raises
        `UsageError`.
        """
        if self._launcher is None:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="imgedit-")
            folder = Path(self._folder.name)
            hosts = connect(self.settings)
            hardware = self._hardware if hosts is None else hosts.hardware
            self._launcher = Launcher(self.settings, hardware, hosts, folder, self.audience)
        return self._launcher

    @property
    def has_any(self) -> bool:
        """Whether any workers go on."""
        return bool(self._pools)

    def adopt(
        self,
        models: Mapping[Role, Model],
        peaks: Mapping[Role, Peak],
        identities: Mapping[Role, Identity],
    ) -> None:
        """Take what a run has found out of its models, and settled."""
        self.models |= models
        self.peaks = peaks
        self.identities |= identities

    def identity(self, role: Role) -> Identity:
        """Return what identifies a model; on other hosts, what they run decides that."""
        if role not in self.identities:
            self.identities[role] = self.launcher.identify(
                self.models[role], self.store.fingerprints
            )
        return self.identities[role]

    def launch(self, role: Role) -> Pool:
        """Make a pool for a run; no process is started yet."""
        return self.launcher.pool(self.models[role], self.identity(role))

    def give_back(self, role: Role, pool: Pool) -> None:
        """Take a pool that a run does not need any more: keep it, or end it."""
        if role in self.keeps and any(worker.loaded_at for worker in pool.workers):
            self._pools[role] = pool
        else:
            pool.close()

    def pool(self, role: Role, jobs: int) -> Pool:
        """Return workers for so many jobs, started if need be; raises `UsageError` for a model that
        does not fit.
        """
        if role in self._pools:
            self._pools[role].extend(jobs)
            return self._pools[role]
        if role not in self.identities:  # no run has settled it
            self.models[role] = settle(self.models[role], 0, self.launcher.hardware)
        placement = self._place(role)
        for line in placement.lines:
            self.audience.note(line)
        if placement.mode == "swap":
            for rival in [name for name in self._pools if name != role]:
                self.release(rival)
        pool = self.launch(role)
        pool.start(jobs)
        self._pools[role] = pool
        return pool

    def _place(self, role: Role) -> Placement:
        """Decide whether both models stay; where the other one does not fit at all, this one is
        alone.
        """
        hardware, wanted = self.launcher.hardware, self.settings.workers.placement
        with suppress(UsageError):
            return place(list(self.models.values()), hardware, wanted, self.peaks)
        return place([self.models[role]], hardware, wanted, self.peaks)

    def release(self, role: Role) -> None:
        """End the workers of a role, which gives their memory back; the next call starts new
        ones.
        """
        if role in self._pools:
            self._pools.pop(role).close()

    def close(self) -> None:
        """End all workers, and let go of their hosts; a later call starts anew."""
        for role in list(self._pools):
            self.release(role)
        if self._launcher is not None and self._launcher.hosts is not None:
            self._launcher.hosts.close()
        self._launcher = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
