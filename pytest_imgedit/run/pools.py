"""Pools of workers: where the models of a run compute, and those that a session keeps for calls."""

import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import errors, messages
from pytest_imgedit.kinds.base import Model, Role, Where
from pytest_imgedit.kinds.identity import Identity, identify, sketch
from pytest_imgedit.run.placement import STAGE_OF, Group, Peak, groups_of, place, settle, spread
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers import local, timeouts
from pytest_imgedit.workers.base import Executor, Slot, State, Worker
from pytest_imgedit.workers.hardware import Hardware, threads_in
from pytest_imgedit.workers.hosts import HostExecutor, Hosts
from pytest_imgedit.workers.pool import Pool, Watcher

#: The most threads of a worker without a GPU, and of one that makes several edits in one call.
#: Their number decides how sums round, so that it does not depend on how many workers there are;
#: with more threads than two, how an edit of a batch rounds depends on its place.
MOST_THREADS = 4
BATCH_THREADS = 2
#: Host memory that a worker process takes for libraries, buffers and images.
PROCESS_BYTES = 6 * 2**30
#: Host memory for files that all workers of a machine read, as a multiple of their size: they are
#: in the system's cache once, and a part of them in buffers.
CACHED_COPIES = 1.2


def is_remote(settings: Settings) -> bool:
    """Tell whether workers run on hosts that are to be connected to first."""
    return settings.workers.executor == "ray"


def python_of(settings: Settings, role: Role) -> str | None:
    """Return the interpreter of a role's workers; `None` for this one."""
    workers = settings.workers
    return workers.editor_python if role == "editor" else workers.judge_python


@contextmanager
def connected(settings: Settings) -> Iterator[Hosts | None]:
    """Connect to the hosts of a run until the block ends; `None` if workers run here, or none do.

    Raises `UsageError` if the cluster of the hosts is not there or has no room.
    """
    workers = settings.workers
    if not is_remote(settings) or settings.run.stage == "report":
        yield None
        return
    from pytest_imgedit.workers.ray import RayHosts

    hosts = RayHosts(
        workers.ray_address,
        size=max(workers.gpus_per_worker, settings.judge.gpus_per_replica),
        use_gpus=workers.gpus != "none",
        cpu_places=workers.cpu_workers,
    )
    with closing(hosts):
        yield hosts


@dataclass(frozen=True)
class Launcher:
    """Makes pools of workers where the models of a run compute.

    `hosts` are the connected ones if workers do not run here; workers write what they print to
    files in `folder`.
    """

    settings: Settings
    hardware: Hardware
    hosts: Hosts | None
    folder: Path
    watcher: Watcher

    def identify(self, model: Model, cache: Path) -> Identity:
        """Find what identifies a model where its workers compute; a server is asked from here.

        Raises `UsageError` if hosts have different libraries, or do not report them.
        """
        return identify(model, cache, self._where(model))

    def sketch(self, model: Model, cache: Path) -> Identity | None:
        """Return the identity of a model of this machine without the digests for which files are to
        be read; `None` if there are none.
        """
        return sketch(model, cache, self._where(model))

    def _where(self, model: Model) -> Where:
        """Return where the workers of a model compute."""
        python = python_of(self.settings, model.role)
        on_gpus = bool(groups_of(model, self.hardware))
        where = Where(device="cpu", python=python)
        if on_gpus:
            where = Where(device="cuda", gpu=self._only_product(), python=python)
        if self.hosts is not None and not model.is_served:
            where = replace(
                where, python=None, versions=partial(self.hosts.versions, python, on_gpus)
            )
        elif not on_gpus:
            threads = threads_in({"OMP_NUM_THREADS": f"{self._threads_here(model)}", **os.environ})
            where = replace(where, threads=threads)
        return where

    def _only_product(self) -> str | None:
        """Return the product name of all GPUs; `None` if they differ."""
        products = {gpu.product for gpu in self.hardware.gpus}
        return products.pop() if len(products) == 1 else None

    def pool(self, model: Model, identity: Identity) -> Pool:
        """Make a pool of workers of a model, one per GPU group; no process is started yet.

        Workers on other hosts compare what they find there with the `identity` of the model. A
        server is asked from here, with the API key of this environment. Raises `UsageError` for
        what the model lacks there.
        """
        model.check_environment(identity.here, identity.libraries)
        hosts = None if model.is_served else self.hosts
        slots = self._slots(model)
        message = _preparing(model, identity)
        if hosts is not None:
            if model.checkpoint is not None:
                message["checkpoint"] = model.checkpoint.elsewhere(identity.recipe["files"])
            message["code"] = identity.recipe.get("code", {})
            message["files"] = identity.files
        return Pool(
            self._executor(model, hosts),
            slots,
            message,
            load_concurrency=self._loads_at_once(model, slots),
            deadlines=self._deadlines(model),
            watcher=self.watcher,
        )

    def _deadlines(self, model: Model) -> dict[State, timeouts.Deadline]:
        """Return the deadlines of a worker by its state."""
        workers = self.settings.workers
        load = timeouts.Deadline(workers.load_timeout, "workers.load_timeout")
        job = timeouts.Deadline(workers.edit_timeout, "workers.edit_timeout")
        if model.role != "editor":
            job = timeouts.Deadline(workers.judge_timeout, "workers.judge_timeout")
        return {"starting": load, "loading": load, "busy": job}

    def _slots(self, model: Model) -> list[Slot]:
        """List a slot per worker: a group of GPUs, or a part of the CPU.

        Without GPUs, each host has as many slots as the config says, or one if it is of Ray; a
        metric without weights gets a slot for every `MOST_THREADS` cores of the host, if that is
        more. A served model has one, whose process has many requests at a time.
        """
        hosts = self.hardware.hosts
        groups = groups_of(model, self.hardware)
        if model.is_served:
            groups.append(("", ()))
        elif not groups:
            count = 1 if is_remote(self.settings) else self.settings.workers.cpu_workers
            by_host: list[list[Group]] = []
            for host in hosts:
                is_light = model.role == "metric" and not model.has_weights
                places = max(count, host.cores // MOST_THREADS) if is_light else count
                by_host.append([(host.name, ())] * places)
            groups = spread(by_host)
        machines = {"": ""} | {host.name: host.machine for host in hosts}
        return [
            Slot(f"{STAGE_OF[model.role]}-{number}", gpus, host, machines[host])
            for number, (host, gpus) in enumerate(groups)
        ]

    def _executor(self, model: Model, hosts: Hosts | None) -> Executor:
        """Return what starts the processes of a model's workers, on `hosts` or else here.

        Here, the path of an interpreter may be relative to the working directory.
        """
        python = python_of(self.settings, model.role)
        patience = self.settings.workers.load_timeout
        if hosts is not None:
            return HostExecutor(
                hosts,
                python,
                patience,
                {host.name: _threads(host.cores, model) for host in self.hardware.hosts},
            )
        if python is not None and os.sep in python:
            python = str(Path(python).absolute())
        return local.LocalExecutor(
            self.folder,
            python,
            patience,
            self.settings.redactor,
            threads=self._threads_here(model),
            environment=local.OF_CLIENTS if model.is_served else (),
        )

    def _threads_here(self, model: Model) -> int:
        """Return the number of threads of each worker of this machine that has no GPU."""
        cores = self.hardware.hosts[0].cores if self.hosts is None else os.cpu_count()
        return _threads(cores or 1, model)

    def _loads_at_once(self, model: Model, slots: Sequence[Slot]) -> int:
        """Return the number of models that may load at once on a machine: the setting, or if it is
        "auto", all that are known to fit into its memory, or else one.
        """
        limit = self.settings.workers.load_concurrency
        if limit != "auto":
            return limit
        if model.is_served:
            return len(slots)
        memory = model.memory()
        if memory.reads is None or not slots[0].gpus:
            return 1
        # Processes read the same files, which the system caches once; each has its libraries and
        # buffers beside them.
        for machine, count in Counter(slot.machine for slot in slots).items():
            copies = count if memory.kept > 0 and count > 1 else CACHED_COPIES
            needed = memory.reads * copies + count * PROCESS_BYTES
            if needed > self.hardware.memory_by_machine[machine]:
                return 1
        return len(slots)


def _preparing(model: Model, identity: Identity) -> messages.Preparing:
    """Return the message that sets up a worker of this machine."""
    message: messages.Preparing = {
        "target": {
            "module": model.target.module,
            "attribute": model.target.attribute,
            "argument": model.target.argument,
        },
        "params": model.worker_params,
        "libraries": list(identity.libraries),
        "unused": list(model.requirements.unused_packages),
        "is_served": model.is_served,
        "may_be_blank": model.may_be_blank,
    }
    if model.role == "editor":
        message["batch_size"] = model.batch_size
        message["pads_batches"] = model.pads_batches
    return message


def _threads(cores: int, model: Model) -> int:
    """Return the number of threads of a worker without a GPU; the edits of a batch share them
    evenly, and one thread makes them all if they cannot.
    """
    if model.batch_size == 1:
        return min(cores, MOST_THREADS)
    return min(cores, BATCH_THREADS) if model.batch_size % BATCH_THREADS == 0 else 1


class Reporter:
    """Reports what workers do to the current `watcher`: to a run, to calls after it, or to none."""

    watcher: Watcher | None = None

    @property
    def stopping(self) -> bool:
        return self.watcher is not None and self.watcher.stopping

    def worker_changed(self, worker: Worker) -> None:
        if self.watcher is not None:
            self.watcher.worker_changed(worker)

    def worker_said(self, slot: Slot, line: str) -> None:
        if self.watcher is not None:
            self.watcher.worker_said(slot, line)

    def note(self, text: str) -> None:
        if self.watcher is not None:
            self.watcher.note(text)


class SessionWorkers:
    """Pools of workers by role, each started once and kept until the session ends or the other one
    needs its GPUs.

    A run takes its pools from here and gives them back; those of the roles that it `keeps` live on
    in `pools`. `models`, `identities` and `peaks` are what the run has settled and found out.
    """

    def __init__(
        self, settings: Settings, models: Mapping[Role, Model], hardware: Hardware, store: Store
    ) -> None:
        self.settings = settings
        self.models = dict(models)
        self.store = store
        self.reporter = Reporter()
        self.peaks: Mapping[Role, Peak] = {}
        self.identities: dict[Role, Identity] = {}
        self.keeps: Collection[Role] = ()
        self._hardware = hardware
        self._open = ExitStack()
        self.pools: dict[Role, Pool] = {}
        self._ahead: Pool | None = None

    def settle(
        self,
        models: Mapping[Role, Model],
        identities: Mapping[Role, Identity],
        peaks: Mapping[Role, Peak],
    ) -> None:
        """Take what a run has settled and found out of models."""
        self.models |= models
        self.identities |= identities
        self.peaks = peaks

    @cached_property
    def launcher(self) -> Launcher:
        """What makes pools, connected to the other hosts, if there are any, until `close`.

        Raises `UsageError` if the hosts cannot be connected.
        """
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="imgedit-"))
        hosts = self._open.enter_context(connected(self.settings))
        hardware = self._hardware if hosts is None else hosts.hardware
        return Launcher(self.settings, hardware, hosts, Path(folder), self.reporter)

    def identity(self, role: Role) -> Identity:
        """Return what identifies the model of a role: what a run has found out, or else what is
        found out where its workers compute, once.

        Raises `UsageError` if hosts cannot be connected, or have different libraries.
        """
        if role not in self.identities:
            self.identities[role] = self.launcher.identify(
                self.models[role], self.store.fingerprints
            )
        return self.identities[role]

    def start_ahead(self, jobs: int) -> None:
        """Start processes of the judge for a number of jobs if its weights are to be hashed first,
        which takes seconds to minutes: they import meanwhile, and `launch` hands them out.
        """
        judge = self.models["judge"]
        if judge.checkpoint is None or self.launcher.hosts is not None:
            return
        identity = self.launcher.sketch(judge, self.store.fingerprints)
        if identity is not None:
            self._ahead = self.launcher.pool(judge, identity)
            self._ahead.start(jobs)

    def launch(self, role: Role) -> Pool:
        """Make a pool for a run; no process is started yet, but a judge's by `start_ahead`."""
        if role == "judge" and self._ahead is not None:
            pool = self._ahead
            self._ahead = None
            return pool
        return self.launcher.pool(self.models[role], self.identity(role))

    def launch_additional(self, identity: Identity) -> Pool:
        """Make a pool of an additional judge or metric; what the session keeps on the GPUs ends."""
        if groups_of(identity.model, self.launcher.hardware):
            for role in list(self.pools):
                self.release(role)
        return self.launcher.pool(identity.model, identity)

    def give_back(self, role: Role, pool: Pool) -> None:
        """Take a pool that a run no longer needs: keep it if its role is one that the run `keeps`
        and a worker has loaded, else end it.
        """
        if role in self.keeps and any(worker.loaded_at for worker in pool.workers):
            self.pools[role] = pool
        else:
            pool.close()

    def pool(self, role: Role, jobs: int) -> Pool:
        """Return workers for a number of jobs, started if need be; workers of another role that
        needs the same GPUs are ended before. Raises `UsageError` for a model that does not fit.
        """
        if role in self.pools:
            self.pools[role].extend(jobs)
            return self.pools[role]
        if role not in self.identities:  # no run has settled it
            self.models[role] = settle(self.models[role], self.launcher.hardware)
        hardware = self.launcher.hardware
        mode = self.settings.workers.placement
        try:
            placement = place(list(self.models.values()), hardware, mode, self.peaks)
        except errors.UsageError:  # the other model may not fit
            placement = place([self.models[role]], hardware, mode, self.peaks)
        for line in placement.lines:
            self.reporter.note(line)
        if placement.mode == "swap":
            for rival in self.pools.keys() - {role}:
                self.release(rival)
        pool = self.launch(role)
        pool.start(jobs)
        self.pools[role] = pool
        return pool

    def release(self, role: Role) -> None:
        """End the workers of a role, which frees their memory; the next call starts new ones."""
        if role in self.pools:
            self.pools.pop(role).close()

    def close(self) -> None:
        """End all workers, and disconnect from their hosts; a later call starts anew."""
        for role in list(self.pools):
            self.release(role)
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        vars(self).pop("launcher", None)  # the cached property is made anew
        self._open.close()
