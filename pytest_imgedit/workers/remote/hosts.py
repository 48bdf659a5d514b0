"""Workers on other hosts, as the controller sees them: each host has an agent, which starts and keeps its workers."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from pytest_imgedit.core.environments import alike
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.protocol import AboutWorker, FromAgent, FromWorker, Hello, Refused, ToAgent, ToWorker
from pytest_imgedit.core.results import HostOrigin
from pytest_imgedit.core.versions import __version__
from pytest_imgedit.models.source import user_import_paths
from pytest_imgedit.workers.base import ENDED, NotStarted, Slot
from pytest_imgedit.workers.gpus import Gpu
from pytest_imgedit.workers.hardware import Hardware, HostHardware
from pytest_imgedit.workers.supervisor import GRACE

#: Seconds between two tries to reach a host that was lost.
WAITS = (1, 2, 4, 8, 16, 30)
_NUMBERS = itertools.count()
#: Seconds in which an interpreter must have told the versions of its packages; it may start from a cold network disk.
ANSWER = 60


class Host:
    """One host. A transport hands it what the agent says (`hear`), and takes what is for the agent (`send_out`).

    That happens in a thread, since a connection may take its time; one that fails means that the host is lost.
    """

    told: Hello  # of its host, by the agent

    def __init__(self, name: str, send: Callable[[ToAgent], None]) -> None:
        self.name, self._send_out = name, send
        self._outbox: queue.Queue[ToAgent | None] = queue.Queue()
        self.lost = False
        self._workers: dict[int, _Worker] = {}
        self._greeting: queue.Queue[Hello | Refused] = queue.Queue()
        self._asked: dict[int, queue.Queue[dict[str, str] | None]] = {}
        threading.Thread(target=self._send_all, daemon=True).start()

    def greet(self, patience: float) -> None:
        """Wait until the agent has described its host; raise `NotStarted` if it does not, or is another version."""
        try:
            said = self._greeting.get(timeout=patience)
        except queue.Empty:
            said = {"op": "refused", "message": f"no answer within {patience:g} s"}
        if said["op"] != "hello":
            raise NotStarted(f"host {self.name}: {said['message']}")
        if said["version"] != __version__:
            raise NotStarted(f"host {self.name} has pytest-imgedit {said['version']}, expected {__version__} as here")
        self.told = said

    def versions(self, python: str | None, names: Sequence[str]) -> dict[str, str]:
        """Ask which versions of packages an interpreter has there (`None`: the agent's).

        Raises `UsageError` if it cannot tell, or the host is lost.
        """
        answer = self._asked[number := next(_NUMBERS)] = queue.Queue()
        self.send(
            {
                "op": "versions",
                "id": number,
                "python": python,
                "names": list(names),
                "paths": user_import_paths(),
                "patience": ANSWER,
            }
        )
        found = None
        with suppress(queue.Empty):
            found = None if self.lost else answer.get(timeout=ANSWER + GRACE)
        del self._asked[number]
        if found is None:
            who = f"host {self.name}: {python or 'its interpreter'}"
            raise UsageError(f"{who} did not tell the versions of its packages within {ANSWER} s")
        return found

    @property
    def origin(self) -> HostOrigin:
        """The host's name, package versions and machine, as results tell them."""
        return HostOrigin(name=self.name, **self.told["origin"])

    @property
    def hardware(self) -> HostHardware:
        """What the host has for a run."""
        told = self.told
        known = tuple(replace(Gpu(**gpu), host=self.name) for gpu in told["gpu_memory"])
        return HostHardware(
            self.name, str(told["machine"]), tuple(told["gpus"]), known, int(told["memory"]), int(told["cores"])
        )

    def hear(self, message: FromAgent | None) -> None:
        """Take what the agent says; `None` says that the connection is gone."""
        if message is None:
            self.leave()
            self._greeting.put({"op": "refused", "message": "the connection ended"})
            for answer in list(self._asked.values()):
                answer.put(None)
            for worker in list(self._workers.values()):
                worker.lose()
        elif message["op"] == "hello" or message["op"] == "refused":
            self._greeting.put(message)
        elif message["op"] == "versions":
            if (waiting := self._asked.get(message["id"])) is not None:
                waiting.put(message["versions"])
        elif (asked := self._workers.get(message["id"])) is not None:
            asked.hear(message)
        elif message["op"] == "started":  # nobody waits for it any more
            self.send({"op": "close", "id": message["id"]})

    def send(self, message: ToAgent) -> None:
        """Send to the agent; what is for a host that is gone is dropped, since its workers are told to have ended."""
        self._outbox.put(message)

    def leave(self) -> None:
        """Send nothing any more."""
        self.lost = True
        self._outbox.put(None)

    def _send_all(self) -> None:
        while (message := self._outbox.get()) is not None and not self.lost:
            try:
                self._send_out(message)
            except Exception:  # whatever a transport raises when the other side is gone
                self.hear(None)

    def start(self, slot: Slot, python: str | None, patience: float, threads: int) -> _Worker:
        """Start a worker; raise `NotStarted` if it does not come up."""
        number = next(_NUMBERS)
        worker = self._workers[number] = _Worker(self, number)
        self.send(
            {
                "op": "start",
                "id": number,
                "slot": slot.name,
                "gpus": list(slot.gpus),
                "python": python,
                "patience": patience,
                "threads": threads,
                "paths": user_import_paths(),
            }
        )
        try:
            problem = worker.started.get(timeout=patience + GRACE + 10)
        except queue.Empty:
            problem = "its agent does not answer"
        if problem:
            del self._workers[number]
            raise NotStarted(f"host {self.name}: {problem}")
        return worker


class _Worker:
    """The connection to one worker through its host's agent."""

    def __init__(self, host: Host, number: int) -> None:
        self.host, self.number = host, number
        self.started: queue.Queue[str] = queue.Queue()  # why not, or an empty text
        self._closed: queue.Queue[str] = queue.Queue()
        self._lock = threading.Lock()
        self._hear: Callable[[FromWorker], None] | None = None
        self._early: list[FromWorker] = []
        self._lines: list[str] = []
        self._alive = True

    def hear(self, message: AboutWorker) -> None:
        if message["op"] == "started":
            self.started.put("")
        elif message["op"] == "not_started":
            self.started.put(message["message"])
        elif message["op"] == "message":
            self._tell(message["message"])
        elif message["op"] == "ended":
            self._tell(ENDED)
        elif message["op"] == "gone":
            self._alive = False
        else:
            with self._lock:
                self._lines += message["lines"]
            if message["op"] == "closed":
                self._closed.put(message["how"])

    def lose(self) -> None:
        """Take note that the host is gone."""
        self._alive = False
        self.started.put("the connection ended")
        self._closed.put(f"host {self.host.name} is gone")
        self._tell(ENDED)

    def _tell(self, message: FromWorker) -> None:
        with self._lock:
            if self._hear is None:
                self._early.append(message)
                return
        self._hear(message)

    def listen(self, hear: Callable[[FromWorker], None]) -> None:
        with self._lock:
            early, self._early = self._early, []
            for message in early:
                hear(message)
            self._hear = hear

    def send(self, message: ToWorker) -> None:
        self.host.send({"op": "send", "id": self.number, "message": message})

    def alive(self) -> bool:
        return self._alive

    def lines(self, final: bool = False) -> list[str]:
        with self._lock:
            lines, self._lines = self._lines, []
        return lines

    def terminate(self) -> None:
        self.host.send({"op": "terminate", "id": self.number})

    def close(self) -> str:
        self.host.send({"op": "close", "id": self.number})
        try:
            return self._closed.get(timeout=0 if self.host.lost and self._closed.empty() else 2 * GRACE + 10)
        except queue.Empty:
            self.host.hear(None)  # its connection stands still: another one may not
            return "its host does not answer"


class HostExecutor:
    """Starts each worker on the host of its slot, with the interpreter of that host's agent unless one is named."""

    def __init__(self, hosts: Hosts, python: str | None, patience: float, threads: dict[str, int]) -> None:
        self.hosts, self.python, self.patience, self.threads = hosts, python, patience, threads

    def start(self, slot: Slot) -> _Worker:
        return self.hosts.get(slot.host).start(slot, self.python, self.patience, self.threads[slot.host])

    def abandon(self, slot: Slot) -> None:
        """The host's agent ends what does not answer."""


def _one(versions: dict[str, str], name: str) -> dict[str, str]:
    return {name: versions[name]} if name in versions else {}


class Hosts:
    """The hosts of a run; a subclass says how to `connect` to one by its name, and lets go of all in `close`.

    `all` holds them in order, as they were when the run began.
    """

    def __init__(self) -> None:
        self.all: list[Host] = []
        self._hosts: dict[str, Host] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._leaving = threading.Event()

    def connect_all(self, names: Sequence[str]) -> None:
        """Connect to all hosts at once; raises `UsageError` for the first that cannot be had."""
        self._locks = {name: threading.Lock() for name in names}
        threads = ThreadPoolExecutor(max(1, len(names)))
        connecting = [threads.submit(self.connect, name) for name in names]
        try:
            self.all = [one.result() for one in connecting]
        except NotStarted as error:
            self.close()
            raise UsageError(str(error)) from None
        except BaseException:
            self.close()
            raise
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        self._hosts = dict(zip(names, self.all, strict=True))

    @property
    def hardware(self) -> Hardware:
        """What the hosts have told of themselves."""
        return Hardware(tuple(host.hardware for host in self.all), remote=True)

    def versions(self, python: str | None, on_gpus: bool, names: Sequence[str]) -> dict[str, str]:
        """Return the versions of packages on the hosts that compute: those with GPUs, or all.

        Raises `UsageError` if they differ by more than patches: it would be chance which of them made a result.
        """
        computing = [host for host in self.all if host.told["gpus"] or not on_gpus]
        with ThreadPoolExecutor(len(computing)) as threads:
            told: list[dict[str, str]] = list(threads.map(lambda host: host.versions(python, names), computing))
        first, *others = told
        for host, found in zip(computing[1:], others, strict=True):
            if not alike(first, found):
                name = next(name for name in names if not alike(_one(first, name), _one(found, name)))
                raise UsageError(
                    f"{name} is {first.get(name, 'absent')} on {computing[0].name} and {found.get(name, 'absent')} on "
                    f"{host.name}, expected the same major and minor version on all hosts"
                )
        return first

    def get(self, name: str) -> Host:
        """Return a host, connected to anew if it was lost; raise `NotStarted` if that fails for over a minute."""
        with self._locks[name]:
            if self._hosts[name].lost:
                self._hosts[name] = self._connect_again(name)
            return self._hosts[name]

    def _connect_again(self, name: str) -> Host:
        for wait in WAITS:
            try:
                return self.connect(name)
            except NotStarted:
                if self._leaving.wait(wait):
                    raise
        return self.connect(name)

    def connect(self, name: str) -> Host:
        """Return a host whose agent has described it; raise `NotStarted` if it cannot be had."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was started, and let go of all hosts."""
        self._leaving.set()
        for host in self._hosts.values():
            host.leave()
