"""Hosts of a Ray cluster: an actor holds the GPUs of each place for the whole run, and starts workers beside it."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.protocol import FromAgent, ToAgent
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.workers.base import NotStarted
from pytest_imgedit.workers.remote.agent import Agent
from pytest_imgedit.workers.remote.hosts import Host, Hosts

#: Seconds until the cluster must have placed an actor.
PATIENCE = 120.0
_LOCAL: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}


class InOrder:
    """Passes on messages numbered from 0 in that order; what overtook others waits for them."""

    def __init__(self, handle: Callable[[ToAgent], None]) -> None:
        self.handle = handle
        self._early: dict[int, ToAgent] = {}
        self._next = 0
        self._lock = threading.Lock()

    def put(self, number: int, message: ToAgent) -> None:
        with self._lock:
            self._early[number] = message
            while self._next in self._early:
                self.handle(self._early.pop(self._next))
                self._next += 1


class AgentActor:
    """An agent behind Ray's calls: `post` hands it a message, `poll` waits for what it has to say.

    Ray may run calls in another order than they were made in, so messages are numbered.
    """

    def __init__(self, has_gpus: bool) -> None:
        self.said: queue.Queue[FromAgent] = queue.Queue()
        self.agent = Agent(self.said.put)
        self._inbox = InOrder(self.agent.handle)
        self.agent.hello("auto" if has_gpus else "none")  # Ray shows an actor its own GPUs only

    def post(self, number: int, message: ToAgent) -> None:
        """Hand over a message."""
        self._inbox.put(number, message)

    def poll(self) -> list[FromAgent]:
        """Return all messages that there are, at least one, or none after ten seconds."""
        messages = []
        with suppress(queue.Empty):
            messages.append(self.said.get(timeout=10))
            while True:
                messages.append(self.said.get_nowait())
        return messages


class RayHosts(Hosts):
    """Joins the cluster at `address` or `RAY_ADDRESS`, else starts one on loopback; takes its GPUs, or `cpu_places`.

    Every place has `size` GPUs. Raises `UsageError` in one line for a cluster that is not there or has no room.
    """

    def __init__(self, address: str | None, size: int, use_gpus: bool, cpu_places: int) -> None:
        super().__init__()
        address = address or os.environ.get("RAY_ADDRESS")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.own = "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
        self._environment = _keep_to_this_machine() if self.own and not address else {}
        try:
            import ray
        except ImportError:
            raise UsageError("--imgedit-executor=ray: ray is not installed, pip install ray") from None
        self.ray = ray
        self._actors: dict[str, Any] = {}
        self._group: Any = None
        if self.own:
            try:
                if address:
                    _reach(address)
                    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
                else:
                    cpus = max(os.cpu_count() or 1, cpu_places)
                    ray.init("local", num_cpus=cpus, log_to_driver=False, logging_level=logging.ERROR, **_LOCAL)
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise UsageError(f"workers.ray_address: {address or 'a local cluster'}: {one_line(error)}") from None
        room = ray.cluster_resources()
        has_gpus = use_gpus and room.get("GPU", 0) >= 1
        self.bundle: dict[str, float] = {"GPU": size, "CPU": 1} if has_gpus else {"CPU": 1}
        of_nodes = [int(node["Resources"].get("GPU", 0)) // size for node in ray.nodes() if node["Alive"]]
        count = sum(of_nodes) if has_gpus else cpu_places
        try:
            self._reserve(count, {name: int(room.get(name, 0)) for name in self.bundle})
        except Exception as error:  # what Ray raises has no common class
            self.close()
            raise UsageError(f"--imgedit-executor=ray: {one_line(error)}") from None
        self.connect_all([f"ray-{number}" for number in range(count)])

    def _reserve(self, count: int, room: dict[str, int]) -> None:
        has = ", ".join(f"{number} {name}s" for name, number in room.items())
        if not count:
            raise ValueError(f"the cluster has {has}, expected {self.bundle['GPU']} GPUs on one node")
        if room["CPU"] < count:
            option = "" if "GPU" in room else " (workers.cpu_workers)"
            raise ValueError(f"the cluster has {has}, expected a CPU for each of {count} places{option}")
        self._group = self.ray.util.placement_group([self.bundle] * count, strategy="SPREAD")
        if not self._group.wait(PATIENCE):
            wanted = f"{count} places of {self.bundle}"
            raise ValueError(f"no room for {wanted} within {PATIENCE:g} s; the cluster has {has}")

    def connect(self, name: str) -> Host:
        """Have an actor made at its place, which Ray moves to another node if there is room, and listen to it."""
        ray = self.ray
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=int(name.removeprefix("ray-"))
        )
        options = {"num_cpus": self.bundle["CPU"], "num_gpus": self.bundle.get("GPU", 0), "max_concurrency": 3}
        try:
            actor = ray.remote(AgentActor).options(scheduling_strategy=strategy, **options).remote("GPU" in self.bundle)
        except Exception as error:
            raise NotStarted(f"host {name}: {one_line(error)}") from None
        self._actors[name] = actor
        numbers, lock = itertools.count(), threading.Lock()

        def post(message: ToAgent) -> None:
            with lock:
                number = next(numbers)
            actor.post.remote(number, message)

        host = Host(name, post)
        threading.Thread(target=self._listen, args=(actor, host), daemon=True).start()
        host.greet(PATIENCE)
        return host

    def _listen(self, actor: Any, host: Host) -> None:
        try:
            while True:
                for message in self.ray.get(actor.poll.remote()):
                    host.hear(message)
        except Exception as error:  # the actor, its node, or Ray itself is gone
            host.hear({"op": "refused", "message": one_line(error.__cause__ or error)})
            host.hear(None)

    def close(self) -> None:
        super().close()
        for actor in self._actors.values():
            with suppress(Exception):
                self.ray.kill(actor)
        with suppress(Exception):
            self.ray.util.remove_placement_group(self._group)
        if self.own:
            self.ray.shutdown()
        for name in self._environment:
            os.environ.pop(name, None)


def _keep_to_this_machine() -> dict[str, str]:
    """Have a local cluster listen on loopback, and to those who know its token; return the variables that say so.

    Ray replaces a loopback address by a reachable one except where it has no clusters, as on macOS; its variable for
    that is read when it is first imported.
    """
    wanted = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if "RAY_AUTH_MODE" not in os.environ:
        wanted |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.update(wanted)
    return wanted


def _reach(address: str) -> None:
    """Raise `OSError` at once for an address that nobody listens at; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.rpartition("/")[2].strip("[]"), int(port)), timeout=10).close()
