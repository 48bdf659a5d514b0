"""Workers on other hosts: an agent on each host starts and keeps its workers, and the controller
calls it.
"""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from pytest_imgedit.core import environments, errors, redaction, results
from pytest_imgedit.core.messages import FromWorker, ToWorker
from pytest_imgedit.core.provenance import machine, versions
from pytest_imgedit.core.versions import __version__
from pytest_imgedit.kinds.user_code import user_import_paths
from pytest_imgedit.workers import local, supervisor
from pytest_imgedit.workers.base import ENDED, Connection, NotStarted, Slot
from pytest_imgedit.workers.gpus import find_gpus
from pytest_imgedit.workers.hardware import (
    Hardware,
    HostHardware,
    available_cores,
    available_memory,
)

#: Seconds that `Agent.news` waits for a message.
INTERVAL = 0.5
#: Seconds between attempts to reach a host that was lost.
WAITS = (1, 2, 4, 8, 16, 30)
#: Seconds in which an agent must answer a short call.
PATIENCE = 120.0
#: Seconds that an answer may take beyond what the agent itself waits for.
ANSWER_MARGIN = 10.0
#: Seconds within which an interpreter must report the versions of its packages; it may start from
#: a cold network disk.
VERSIONS_PATIENCE = 60.0
_NUMBERS = count()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a worker is started: with which interpreter (`None`: the agent's), within how many
    seconds, for how many threads on the CPU; it imports from `paths` too.
    """

    python: str | None
    patience: float
    threads: int
    paths: Sequence[str]


class Agent:
    """Carries out the calls of the controller, which come from several threads; workers are known
    by numbers.
    """

    def __init__(self) -> None:
        self._workers: dict[int, tuple[Connection, queue.Queue[FromWorker]]] = {}

    def describe(self, name: str, gpus: str) -> tuple[str, HostHardware, results.HostOrigin]:
        """Return the version of this package, what the host has, and its description in results.

        `gpus` is a list as `--imgedit-gpus` takes it. Raise `UsageError` if a GPU is not there.
        """
        names, known = find_gpus(gpus)
        hardware = HostHardware(
            name=name,
            machine=machine_id(),
            gpus=tuple(names),
            known=tuple(replace(gpu, host=name) for gpu in known),
            memory=available_memory(),
            cores=available_cores(),
        )
        origin = results.HostOrigin(
            name=name,
            versions=versions(),
            machine=machine(gpu.product for gpu in known),
        )
        return __version__, hardware, origin

    def versions(
        self, python: str | None, names: Sequence[str], paths: Sequence[str], patience: float
    ) -> dict[str, str]:
        """Return the versions of the packages `names` in an interpreter (`None`: this one), which
        imports from `paths` too.

        Raise `UsageError` if it does not report them within `patience` seconds.
        """
        # A new process, as workers are: this one has begun before its environment was set.
        try:
            return environments.ask_versions(
                python or sys.executable, tuple(names), tuple(paths), patience
            )
        except (ValueError, subprocess.SubprocessError):
            raise errors.UsageError(
                f"{python or 'its interpreter'} did not tell the versions of its packages within "
                f"{patience:g} s"
            ) from None

    def start(self, number: int, slot: Slot, launch: Launch) -> None:
        """Start a worker, known as `number` from then on; raise `NotStarted` if it does not come
        up.
        """
        # Nothing in the folder has a name any more once the worker is up.
        with tempfile.TemporaryDirectory(prefix="imgedit-agent-") as folder:
            executor = local.LocalExecutor(
                Path(folder),
                launch.python,
                launch.patience,
                redaction.Redactor(os.environ),
                threads=launch.threads,
                paths=launch.paths,
            )
            connection = executor.start(slot)
        inbox: queue.Queue[FromWorker] = queue.Queue()
        self._workers[number] = connection, inbox
        connection.listen(inbox.put)

    def news(self, number: int) -> tuple[list[FromWorker], list[str], bool]:
        """Return what a worker has sent and printed since the last call, and whether its process
        runs, once it has sent something or after `INTERVAL` seconds; at once, and as gone, if it
        was closed.
        """
        if number not in self._workers:
            return [], [], False
        connection, inbox = self._workers[number]
        messages = []
        with suppress(queue.Empty):
            messages.append(inbox.get(timeout=INTERVAL))
            while True:
                messages.append(inbox.get_nowait())
        return messages, connection.lines(), connection.alive()

    def send(self, number: int, message: ToWorker) -> None:
        """Pass a message on to a worker, unless it was closed."""
        if number in self._workers:
            connection, _ = self._workers[number]
            connection.send(message)

    def terminate(self, number: int) -> None:
        """Ask a worker to end, unless it was closed."""
        if number in self._workers:
            connection, _ = self._workers[number]
            connection.terminate()

    def close(self, number: int) -> tuple[str, list[str]]:
        """End a worker, by force if need be; return how it ended, and the last lines that it
        printed.
        """
        connection, _ = self._workers.pop(number)
        how = connection.close()
        return how, connection.lines(final=True)


def machine_id() -> str:
    """Return an id of this machine, unlike those of others of its name; its containers share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:  # not everywhere
        return socket.gethostname()


class Transport(Protocol):
    """Calls the methods of one host's agent by name."""

    def call(self, method: str, *args: Any, timeout: float = PATIENCE) -> Any:
        """Return what a method returns.

        Raise `NotStarted` with the reason if the method raises an error, and `HostLost` if there is
        no answer within `timeout` seconds or the host is gone.
        """

    def post(self, method: str, *args: Any) -> None:
        """Have a method called, after those of earlier posts, without waiting for it; drop the call
        if the host is gone.
        """


class HostLost(NotStarted):
    """A host that is gone or does not answer."""


class Host:
    """One host, whose agent has described it; raises `NotStarted` if the agent does not, or has
    another version of this package.
    """

    def __init__(self, name: str, gpus: str, transport: Transport) -> None:
        self.name = name
        self.transport = transport
        self.lost = False
        described: tuple[str, HostHardware, results.HostOrigin] = self.call("describe", name, gpus)
        version, self.hardware, self.origin = described
        if version != __version__:
            raise NotStarted(
                f"host {name} has pytest-imgedit {version}, expected {__version__} as here"
            )

    def call(self, method: str, *args: Any, timeout: float = PATIENCE) -> Any:
        """Return what a method of the agent returns.

        Raise `NotStarted`, with the name of this host, if it fails. A host that is gone or does not
        answer within `timeout` seconds is `lost` from then on.
        """
        try:
            return self.transport.call(method, *args, timeout=timeout)
        except NotStarted as error:
            if isinstance(error, HostLost):
                self.lost = True
            raise NotStarted(f"host {self.name}: {error}") from None

    def versions(self, python: str | None, names: Sequence[str]) -> dict[str, str]:
        """Return the versions of packages in an interpreter there (`None`: the agent's).

        Raise `UsageError` if it does not report them, or the host is lost.
        """
        reported: dict[str, str] = self.call(
            "versions",
            python,
            list(names),
            user_import_paths(),
            VERSIONS_PATIENCE,
            timeout=VERSIONS_PATIENCE + supervisor.GRACE,
        )
        return reported

    def start(self, slot: Slot, python: str | None, patience: float, threads: int) -> HostWorker:
        """Start a worker, with an interpreter there (`None`: the agent's) that has `patience`
        seconds to come up; raise `NotStarted` if it does not.
        """
        number = next(_NUMBERS)
        launch = Launch(
            python=python, patience=patience, threads=threads, paths=user_import_paths()
        )
        # The agent ends a worker that has not come up in time, before it answers.
        timeout = patience + supervisor.GRACE + ANSWER_MARGIN
        self.call("start", number, slot, launch, timeout=timeout)
        return HostWorker(self, number)


class HostWorker:
    """The connection to one worker through its host's agent."""

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.number = number
        self._lines: deque[str] = deque()
        self._alive = True
        self._closed = False

    def listen(self, hear: Callable[[FromWorker], None]) -> None:
        threading.Thread(target=self._listen, args=(hear,), daemon=True).start()

    def _listen(self, hear: Callable[[FromWorker], None]) -> None:
        """Pass on what the agent reports, until the worker is closed or the host is lost."""
        while not self._closed:
            try:
                messages, lines, is_alive = self.host.call("news", self.number)
            except NotStarted:
                self._alive = False
                hear(ENDED)
                return
            self._lines.extend(lines)
            for message in messages:
                hear(message)
            self._alive = is_alive

    def send(self, message: ToWorker) -> None:
        self.host.transport.post("send", self.number, message)

    def alive(self) -> bool:
        return self._alive

    def lines(self, final: bool = False) -> list[str]:
        return [self._lines.popleft() for _ in range(len(self._lines))]

    def terminate(self) -> None:
        self.host.transport.post("terminate", self.number)

    def close(self) -> str:
        """End the process, as `base.Connection` says; return why that failed if the host does not
        answer.
        """
        self._closed = True
        if self.host.lost:
            return f"host {self.host.name} is gone"
        try:
            how, lines = self.host.call("close", self.number, timeout=local.ENDING + ANSWER_MARGIN)
        except NotStarted as error:
            return str(error)
        self._lines.extend(lines)
        return str(how)


class HostExecutor:
    """Starts each worker on the host of its slot, with the interpreter of that host's agent unless
    one is named.
    """

    def __init__(
        self, hosts: Hosts, python: str | None, patience: float, threads: dict[str, int]
    ) -> None:
        self.hosts = hosts
        self.python = python
        self.patience = patience
        self.threads = threads

    def start(self, slot: Slot) -> HostWorker:
        return self.hosts.get(slot.host).start(
            slot, self.python, self.patience, self.threads[slot.host]
        )

    def abandon(self, slot: Slot) -> None:
        """Do nothing: the host's agent ends what does not answer."""


class Hosts:
    """The hosts of a run; a subclass connects to one by name, and disconnects from all in `close`.

    `all` holds them in order, as they were when the run began.
    """

    def __init__(self) -> None:
        self.all: list[Host] = []
        self._hosts: dict[str, Host] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._leaving = threading.Event()

    def connect_all(self, names: Sequence[str]) -> None:
        """Connect to all hosts at once; if that fails, close all and raise `UsageError` for the
        first that was not reached.
        """
        self._locks = {name: threading.Lock() for name in names}
        threads = ThreadPoolExecutor(max(1, len(names)))
        try:
            self.all = list(threads.map(self.connect, names))
        except BaseException:
            self.close()
            raise
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        self._hosts = dict(zip(names, self.all, strict=True))

    @property
    def hardware(self) -> Hardware:
        """What the hosts have."""
        return Hardware(tuple(host.hardware for host in self.all), remote=True)

    def versions(self, python: str | None, on_gpus: bool, names: Sequence[str]) -> dict[str, str]:
        """Return the versions of the packages `names` on the first host that computes; if work is
        done `on_gpus`, hosts without a GPU do not.

        Raise `UsageError` if a host does not report them, or if those of two hosts differ by more
        than patches: chance would decide which of them made a result.
        """
        computing = [host for host in self.all if host.hardware.gpus or not on_gpus]
        with ThreadPoolExecutor(len(computing)) as threads:
            futures = [threads.submit(host.versions, python, names) for host in computing]
            reported = [future.result() for future in futures]
        first_host, *other_hosts = computing
        first_versions, *other_versions = reported
        for host, host_versions in zip(other_hosts, other_versions, strict=True):
            for name in names:
                expected = first_versions.get(name, "absent")
                version = host_versions.get(name, "absent")
                if not environments.alike({name: expected}, {name: version}):
                    raise errors.UsageError(
                        f"{name} is {expected} on {first_host.name} and {version} on {host.name}, "
                        "expected the same major and minor version on all hosts"
                    )
        return first_versions

    def get(self, name: str) -> Host:
        """Return a host, reconnected if it was lost; raise `NotStarted` if all attempts fail, which
        take over a minute, or if the run ends meanwhile.
        """
        waits = iter(WAITS)
        with self._locks[name]:
            while self._hosts[name].lost:
                try:
                    self._hosts[name] = self.connect(name)
                except NotStarted:
                    wait = next(waits, None)
                    if wait is None or self._leaving.wait(wait):
                        raise
            return self._hosts[name]

    def connect(self, name: str) -> Host:
        """Return a host; raise `NotStarted` if it cannot be reached."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up reconnecting; a subclass also ends what it started, and disconnects."""
        self._leaving.set()
