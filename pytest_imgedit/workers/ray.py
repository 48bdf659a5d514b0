"""Hosts of a Ray cluster: an actor holds the GPUs of each place for the whole run, and starts
workers beside it.
"""

import itertools
import logging
import os
import secrets
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import one_line
from pytest_imgedit.workers.base import NotStarted
from pytest_imgedit.workers.hosts import PATIENCE, Agent, Host, HostLost, Hosts

#: Calls that an actor carries out at once: of its editor and its judge one that waits for news
#: each, and short ones.
CALLS = 16
#: Seconds to connect to the address of a cluster.
CONNECT_PATIENCE = 10.0


class AgentActor(Agent):
    """An agent as an actor of Ray, which may run calls in another order than they were made in."""

    def __init__(self) -> None:
        super().__init__()
        self._posted: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self._next = 0
        self._lock = threading.Lock()

    def post(self, number: int, method: str, args: tuple[Any, ...]) -> None:
        """Call a method once all calls with smaller numbers, from 0 on, have been made."""
        with self._lock:
            self._posted[number] = (method, args)
            while self._next in self._posted:
                due_method, due_args = self._posted.pop(self._next)
                self._next += 1
                getattr(self, due_method)(*due_args)


class RayTransport:
    """Calls an actor of Ray."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self.ray = ray
        self.actor = actor
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def call(self, method: str, *args: Any, timeout: float = PATIENCE) -> Any:
        """See `hosts.Transport`."""
        try:
            return self.ray.get(getattr(self.actor, method).remote(*args), timeout=timeout)
        except self.ray.exceptions.GetTimeoutError:
            raise HostLost(f"no answer within {timeout:g} s") from None
        except self.ray.exceptions.RayTaskError as error:
            is_ours = isinstance(error.cause, errors.UsageError)
            reason = str(error.cause) if is_ours else one_line(error.cause)
            raise NotStarted(reason) from None
        except Exception as error:  # the actor, its node, or Ray itself is gone
            raise HostLost(one_line(error)) from None

    def post(self, method: str, *args: Any) -> None:
        """See `hosts.Transport`."""
        # What is for a host that is gone is dropped: its workers end.
        with self._lock, suppress(Exception):
            self.actor.post.remote(next(self._numbers), method, args)


class RayHosts(Hosts):
    """Uses the cluster that this process is in, else joins that at `address` or `RAY_ADDRESS`, else
    starts one on loopback; a host is a place in it.

    If it may `use_gpus` and the cluster has some, it takes as many places of `size` GPUs as the
    nodes hold; otherwise it takes `cpu_places`. Raises `UsageError` in one line if Ray is not
    installed, or for a cluster that is not there or has no room.
    """

    def __init__(self, address: str | None, size: int, use_gpus: bool, cpu_places: int) -> None:
        super().__init__()
        address = address or os.environ.get("RAY_ADDRESS")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.starts_ray = "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
        self._environment = _keep_to_this_machine() if self.starts_ray and not address else {}
        try:
            import ray
        except ImportError:
            raise errors.UsageError(
                "--imgedit-executor=ray: ray is not installed, pip install ray"
            ) from None
        self.ray = ray
        self._actors: dict[str, Any] = {}
        self._group: Any = None
        if self.starts_ray:
            self._init_ray(address, cpu_places)
        room = ray.cluster_resources()
        has_gpus = use_gpus and room.get("GPU", 0) >= 1
        self.bundle: dict[str, float] = {"GPU": size, "CPU": 1} if has_gpus else {"CPU": 1}
        places_by_node = [
            int(node["Resources"].get("GPU", 0)) // size for node in ray.nodes() if node["Alive"]
        ]
        count = sum(places_by_node) if has_gpus else cpu_places
        try:
            self._reserve(count, {name: int(room.get(name, 0)) for name in self.bundle})
        except Exception as error:  # what Ray raises has no common class
            self.close()
            raise errors.UsageError(f"--imgedit-executor=ray: {one_line(error)}") from None
        self.connect_all([f"ray-{number}" for number in range(count)])

    def _init_ray(self, address: str | None, cpu_places: int) -> None:
        """Join the cluster at an address, or without one start a local cluster with a CPU for each
        place; raise `UsageError` if that fails.
        """
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address:
                _reach(address)
            else:
                options |= {
                    "num_cpus": max(os.cpu_count() or 1, cpu_places),
                    "include_dashboard": False,
                    "_node_ip_address": "127.0.0.1",
                }
            self.ray.init(address or "local", **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise errors.UsageError(
                f"workers.ray_address: {address or 'a local cluster'}: {one_line(error)}"
            ) from None

    def _reserve(self, count: int, room: dict[str, int]) -> None:
        """Reserve `count` places; raise `ValueError` if there is no room for them.

        `room` says how many of each resource the whole cluster has.
        """
        resources = ", ".join(f"{number} {name}s" for name, number in room.items())
        if not count:
            raise ValueError(
                f"the cluster has {resources}, expected {self.bundle['GPU']} GPUs on one node"
            )
        if room["CPU"] < count:
            option = "" if "GPU" in room else " (workers.cpu_workers)"
            raise ValueError(
                f"the cluster has {resources}, expected a CPU for each of {count} places{option}"
            )
        self._group = self.ray.util.placement_group([self.bundle] * count, strategy="SPREAD")
        if not self._group.wait(PATIENCE):
            raise ValueError(
                f"no room for {count} places of {self.bundle} within {PATIENCE:g} s; the cluster "
                f"has {resources}"
            )

    def connect(self, name: str) -> Host:
        """Return a host whose agent is a new actor in the bundle that its name numbers; raise
        `NotStarted` if that fails. Ray moves a bundle of a lost node to another with room.
        """
        strategy = self.ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=int(name.removeprefix("ray-"))
        )
        with suppress(Exception):  # an actor that does not answer occupies the resources
            self.ray.kill(self._actors.pop(name))
        try:
            actor = (
                self.ray.remote(AgentActor)
                .options(
                    scheduling_strategy=strategy,
                    max_concurrency=CALLS,
                    num_cpus=self.bundle["CPU"],
                    num_gpus=self.bundle.get("GPU", 0),
                )
                .remote()
            )
        except Exception as error:
            raise NotStarted(f"host {name}: {one_line(error)}") from None
        self._actors[name] = actor
        return Host(
            name,
            "auto" if "GPU" in self.bundle else "none",  # Ray shows an actor its own GPUs only
            RayTransport(self.ray, actor),
        )

    def close(self) -> None:
        """End the actors, free their places, and end the cluster if it was started here."""
        super().close()
        for actor in self._actors.values():
            with suppress(Exception):
                self.ray.kill(actor)
        with suppress(Exception):
            self.ray.util.remove_placement_group(self._group)
        if self.starts_ray:
            self.ray.shutdown()
        for name in self._environment:
            os.environ.pop(name, None)


def _keep_to_this_machine() -> dict[str, str]:
    """Restrict a local cluster to loopback and to clients with its token, unless the environment
    sets another way to authenticate; return the environment variables that were set.

    Ray replaces a loopback address by a reachable one, except on systems for which it has no
    clusters, such as macOS; its variable for that is read when it is first imported.
    """
    variables = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if "RAY_AUTH_MODE" not in os.environ:
        variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.update(variables)
    return variables


def _reach(address: str) -> None:
    """Raise `OSError` at once if nobody listens at an address, for which Ray would try for minutes;
    pass an address without a host or port, such as `auto`.
    """
    before_port, _, port = address.rpartition(":")
    if before_port and port.isdigit():
        _, _, host = before_port.rpartition("/")  # as in ray://host:port
        place = (host.strip("[]"), int(port))
        socket.create_connection(place, timeout=CONNECT_PATIENCE).close()
