"""Starts and keeps the workers of one host, for a controller elsewhere that calls it."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pytest_imgedit.core.environments import ask_versions
from pytest_imgedit.core.protocol import FromWorker, ToWorker
from pytest_imgedit.core.provenance import machine, versions
from pytest_imgedit.core.redaction import Redactor
from pytest_imgedit.core.results import HostOrigin
from pytest_imgedit.core.versions import __version__
from pytest_imgedit.workers.base import Connection, Slot
from pytest_imgedit.workers.gpus import find_gpus
from pytest_imgedit.workers.hardware import HostHardware, available_cores, available_memory
from pytest_imgedit.workers.local import LocalExecutor

#: Seconds that `Agent.news` waits for a message.
INTERVAL = 0.5


class Agent:
    """Carries out the calls of the controller, which come from several threads; workers are known
    by numbers.
    """

    def __init__(self) -> None:
        self._workers: dict[int, tuple[Connection, queue.Queue[FromWorker]]] = {}

    def describe(self, name: str, gpus: str) -> tuple[str, HostHardware, HostOrigin]:
        """Return the version of this package, what the host has, and where results say it computed;
        `gpus` is a list as `--imgedit-gpus` takes it. Raises `UsageError`.
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
        described = machine(gpu.product for gpu in known)
        origin = HostOrigin(name=name, versions=versions(), machine=described)
        return __version__, hardware, origin

    def versions(
        self, python: str | None, names: Sequence[str], paths: Sequence[str], patience: float
    ) -> dict[str, str] | None:
        """Return the versions of packages in an interpreter (`None`: this one), or `None` if it
        cannot tell.
        """
        # A new process, as workers are: this one has begun before its environment was set.
        with suppress(ValueError, subprocess.SubprocessError):
            return ask_versions(python or sys.executable, tuple(names), tuple(paths), patience)
        return None

    def start(
        self,
        number: int,
        slot: Slot,
        python: str | None,
        patience: float,
        threads: int,
        paths: Sequence[str],
    ) -> None:
        """Start a worker; raises `NotStarted` if it does not come up."""
        # Nothing in the folder has a name any more once the worker is up.
        with tempfile.TemporaryDirectory(prefix="imgedit-agent-") as folder:
            executor = LocalExecutor(
                Path(folder), python, patience, Redactor(os.environ), threads, paths
            )
            connection = executor.start(slot)
        inbox: queue.Queue[FromWorker] = queue.Queue()
        self._workers[number] = connection, inbox
        connection.listen(inbox.put)

    def news(self, number: int) -> tuple[list[FromWorker], list[str], bool]:
        """Return what a worker has sent and printed since the last call, and whether its process
        runs, once it has sent something or after `INTERVAL` seconds.
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
            self._workers[number][0].send(message)

    def terminate(self, number: int) -> None:
        """Ask a worker to end, unless it was closed."""
        if number in self._workers:
            self._workers[number][0].terminate()

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
