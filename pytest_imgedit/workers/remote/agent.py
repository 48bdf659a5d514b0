"""Starts and keeps the workers of one host, for a controller elsewhere to which one connection leads."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_imgedit.core.environments import ask_versions
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.protocol import AskVersions, FromAgent, FromWorker, StartWorker, ToAgent
from pytest_imgedit.core.provenance import machine, versions
from pytest_imgedit.core.redaction import Redactor
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.core.versions import __version__
from pytest_imgedit.workers.base import ENDED, Connection, NotStarted, Slot
from pytest_imgedit.workers.gpus import find_gpus
from pytest_imgedit.workers.hardware import available_cores, available_memory
from pytest_imgedit.workers.local import LocalExecutor

#: Seconds between two looks at what workers print and whether they live.
INTERVAL = 0.2


class Agent:
    """Does what a controller asks for in messages, and tells it all that its workers say.

    It tells it of itself first, with one `hello`.
    """

    def __init__(self, send: Callable[[FromAgent], None]) -> None:
        self.send = send
        self._connections: dict[int, Connection] = {}
        self._told_gone: set[int] = set()
        threading.Thread(target=self._watch, daemon=True).start()

    def hello(self, gpus: str) -> None:
        """Describe this host; `gpus` is a list as `--imgedit-gpus` takes it."""
        try:
            names, known = find_gpus(gpus)
        except UsageError as error:
            self.send({"op": "refused", "message": str(error)})
            return
        self.send(
            {
                "op": "hello",
                "version": __version__,
                "gpus": names,
                "gpu_memory": [asdict(gpu) for gpu in known],
                "origin": {
                    "versions": versions(),
                    "machine": machine(gpu.product for gpu in known).model_dump(mode="json"),
                },
                "machine": machine_id(),
                "cores": available_cores(),
                "memory": available_memory(),
            }
        )

    def handle(self, message: ToAgent) -> None:
        """Do what a message says, in a thread if it takes time."""
        number = message["id"]
        if message["op"] == "versions":
            threading.Thread(target=self._tell_versions, args=(number, message), daemon=True).start()
        elif message["op"] == "start":
            threading.Thread(target=self._start, args=(number, message), daemon=True).start()
        elif (connection := self._connections.get(number)) is None:
            return  # it is gone
        elif message["op"] == "send":
            connection.send(message["message"])
        elif message["op"] == "terminate":
            connection.terminate()
        else:
            del self._connections[number]
            threading.Thread(target=self._close, args=(number, connection), daemon=True).start()

    def _tell_versions(self, number: int, message: AskVersions) -> None:
        # By a process as workers are: the agent itself has begun before its environment was set.
        versions = None
        with suppress(ValueError, subprocess.SubprocessError):
            asked = tuple(message["names"]), tuple(message["paths"]), message["patience"]
            versions = ask_versions(message["python"] or sys.executable, *asked)
        self.send({"op": "versions", "id": number, "versions": versions})

    def _start(self, number: int, message: StartWorker) -> None:
        slot = Slot(message["slot"], tuple(message["gpus"]))
        given = (message["python"], message["patience"], Redactor(os.environ), message["threads"], message["paths"])
        try:
            # Nothing in the folder has a name any more once the worker is up.
            with tempfile.TemporaryDirectory(prefix="imgedit-agent-") as folder:
                connection = LocalExecutor(Path(folder), *given).start(slot)
        except Exception as error:  # NotStarted, or what the system has to say
            reason = str(error) if isinstance(error, NotStarted) else one_line(error)
            self.send({"op": "not_started", "id": number, "message": reason})
            return
        self._connections[number] = connection
        self.send({"op": "started", "id": number})
        connection.listen(lambda said: self._pass_on(number, said))

    def _pass_on(self, number: int, said: FromWorker) -> None:
        if said == ENDED:
            self.send({"op": "ended", "id": number})
        else:
            self.send({"op": "message", "id": number, "message": said})

    def _watch(self) -> None:
        while True:
            time.sleep(INTERVAL)
            for number, connection in list(self._connections.items()):
                if lines := connection.lines():
                    self.send({"op": "lines", "id": number, "lines": lines})
                if number not in self._told_gone and not connection.alive():
                    self._told_gone.add(number)
                    self.send({"op": "gone", "id": number})

    def _close(self, number: int, connection: Connection) -> None:
        how = connection.close()
        self.send({"op": "closed", "id": number, "how": how, "lines": connection.lines(final=True)})


def machine_id() -> str:
    """Tell this machine from others, also those of the same name; its containers are one machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:  # not everywhere
        return socket.gethostname()


def serve(channel: Any, gpus: str) -> None:
    """Be an agent at the other end of an execnet channel until that ends; workers end with it."""
    agent = Agent(channel.send)
    agent.hello(gpus)

    def receive(message: ToAgent | None) -> None:
        if message is None:
            os._exit(0)
        agent.handle(message)

    channel.setcallback(receive, endmarker=None)
    threading.Event().wait()
