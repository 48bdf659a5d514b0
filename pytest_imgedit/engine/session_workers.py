"""The workers of a session: those that a run has left, and those that calls of fixtures start."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.engine.launch import Launcher, connect
from pytest_imgedit.engine.placement import Peak, Placement, place, settle
from pytest_imgedit.engine.plan import RunPlan
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Slot, Worker
from pytest_imgedit.workers.hardware import Hardware
from pytest_imgedit.workers.hosts import Hosts
from pytest_imgedit.workers.pool import Pool, Watcher


class Audience:
    """Passes what workers do on to whoever listens at the time: to a run, or to the calls after it."""

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
    """Pools of workers by role, each started once and kept until the session ends or the other one needs its GPUs.

    A run takes its pools from here, and gives them back: those of the roles that it `keeps` go on. `models` are what
    the run has settled, `identities` what it has found out.
    """

    def __init__(self, settings: Settings, models: Mapping[Role, Model], hardware: Hardware, store: Store) -> None:
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
        """What makes pools; connected to the other hosts, if there are any, until `close`. Raises `UsageError`."""
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

    def adopt(self, plan: RunPlan) -> None:
        """Take what a run has found out of its models, and settled."""
        self.models |= plan.models
        self.peaks = plan.peaks
        self.identities["editor"] = plan.editor
        if plan.judge is not None:
            self.identities["judge"] = plan.judge

    def identity(self, role: Role) -> Identity:
        """Return what identifies a model; on other hosts, what they run decides that."""
        if role not in self.identities:
            self.identities[role] = self.launcher.identify(self.models[role], self.store.fingerprints)
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
        """Return workers for so many jobs, started if need be; raises `UsageError` for a model that does not fit."""
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
        """Decide whether both models stay; where the other one does not fit at all, this one is alone."""
        hardware, wanted = self.launcher.hardware, self.settings.workers.placement
        with suppress(UsageError):
            return place(list(self.models.values()), hardware, wanted, self.peaks)
        return place([self.models[role]], hardware, wanted, self.peaks)

    def release(self, role: Role) -> None:
        """End the workers of a role, which gives their memory back; the next call starts new ones."""
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
