"""Hosts of a Ray cluster: an actor holds the GPUs of each place for the whole run, and starts workers beside it."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import UsageError
from pytest_imgedit.text import one_line
from pytest_imgedit.workers.agent import Agent
from pytest_imgedit.workers.base import Message, NotStarted
from pytest_imgedit.workers.hosts import Host, connect_all

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds until the cluster must have placed an actor.
PATIENCE = 120.0


class AgentActor:
    """An agent behind Ray's calls: `post` hands it a message, `poll` waits for what it has to say."""

    def __init__(self, has_gpus: bool) -> None:
        self.said: queue.Queue[Message] = queue.Queue()
        self.agent = Agent(self.said.put)
        self.agent.hello("auto" if has_gpus else "none")  # Ray shows an actor its own GPUs only

    def post(self, message: Message) -> None:
        self.agent.handle(message)

    def poll(self) -> list[Message]:
        """Return all messages that there are, at least one, or none after ten seconds."""
        messages = []
        with suppress(queue.Empty):
            messages.append(self.said.get(timeout=10))
            while True:
                messages.append(self.said.get_nowait())
        return messages


class RayHosts:
    """Joins the cluster at `address` or `RAY_ADDRESS`, else starts one on loopback; takes its GPUs, or `cpu_places`.

    Every place has `size` GPUs. Raises `UsageError` in one line for a cluster that is not there or has no room.
    """

    def __init__(self, address: str | None, size: int, use_gpus: bool, cpu_places: int) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError("--imgedit-executor=ray: ray is not installed, pip install pytest-imgedit[ray]") from None
        self.ray, self.own = ray, not ray.is_initialized()
        address = address or os.environ.get("RAY_ADDRESS")
        local: dict[str, Any] = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self.own:
            try:
                if address:
                    _reach(address)
                ray.init(
                    **({"address": address} if address else local), log_to_driver=False, logging_level=logging.ERROR
                )
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise UsageError(f"workers.ray_address: {address or 'a local cluster'}: {one_line(error)}") from None
        try:
            gpus = int(ray.cluster_resources().get("GPU", 0)) if use_gpus else 0
            bundle: dict[str, float] = {"GPU": size, "CPU": 1} if gpus else {"CPU": 1}
            self.bundle, count = bundle, gpus // size if gpus else cpu_places
            self._group = ray.util.placement_group([bundle] * count, strategy="SPREAD")
            if not self._group.wait(PATIENCE):
                raise UsageError(f"--imgedit-executor=ray: no room for {count} x {bundle} in the cluster")
            names = [f"ray-{number}" for number in range(count)]
            self._actors: dict[str, Any] = {}
            self._locks = {name: threading.Lock() for name in names}
            self.all: Sequence[Host] = connect_all([lambda name=name: self._connect(name) for name in names])  # type: ignore[misc]
        except UsageError:
            self.close()
            raise
        self._hosts = {host.name: host for host in self.all}

    def get(self, name: str) -> Host:
        with self._locks[name]:
            if self._hosts[name].lost:
                self._hosts[name] = self._connect(name)
            return self._hosts[name]

    def _connect(self, name: str) -> Host:
        """Have an actor made at its place, which Ray moves to another node if there is room, and listen to it."""
        ray = self.ray
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=int(name.removeprefix("ray-"))
        )
        options = {"num_cpus": self.bundle["CPU"], "num_gpus": self.bundle.get("GPU", 0), "max_concurrency": 2}
        try:
            actor = ray.remote(AgentActor).options(scheduling_strategy=strategy, **options).remote("GPU" in self.bundle)
        except Exception as error:
            raise NotStarted(f"host {name}: {one_line(error)}") from None
        self._actors[name] = actor
        host = Host(name, lambda message: actor.post.remote(message))
        threading.Thread(target=self._listen, args=(actor, host), daemon=True).start()
        host.greet(PATIENCE)
        return host

    def _listen(self, actor: Any, host: Host) -> None:
        try:
            while True:
                for message in self.ray.get(actor.poll.remote()):
                    host.hear(message)
        except Exception:  # the actor, its node, or Ray itself is gone
            host.hear(None)

    def close(self) -> None:
        for host in getattr(self, "all", ()):
            host.lost = True
        for actor in getattr(self, "_actors", {}).values():
            with suppress(Exception):
                self.ray.kill(actor)
        if hasattr(self, "_group"):
            with suppress(Exception):
                self.ray.util.remove_placement_group(self._group)
        if self.own:
            self.ray.shutdown()


def _reach(address: str) -> None:
    """Raise `OSError` at once for an address that nobody listens at; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=10).close()
