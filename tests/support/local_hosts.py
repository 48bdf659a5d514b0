"""Hosts that are this process: all of workers on other hosts but what carries the calls there."""

from __future__ import annotations

from typing import Any

from pytest_imgedit.workers.base import NotStarted
from pytest_imgedit.workers.hosts import Agent, Host, HostLost, Hosts


class LocalTransport:
    """Calls an agent in this process; `lost` makes its host one that is gone."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.lost = agent, False

    def call(self, method: str, *args: Any, timeout: float = 0) -> Any:
        if self.lost:
            raise HostLost("the connection ended")
        try:
            return getattr(self.agent, method)(*args)
        except Exception as error:
            raise NotStarted(str(error)) from None

    def post(self, method: str, *args: Any) -> None:
        if not self.lost:
            getattr(self.agent, method)(*args)


class LocalHosts(Hosts):
    """Takes the place of `RayHosts`, and what that is made with: as many hosts as there are to be
    workers.
    """

    def __init__(self, address: str | None, size: int, use_gpus: bool, cpu_places: int) -> None:
        super().__init__()
        self.connect_all([f"node-{number}" for number in range(cpu_places)])

    def connect(self, name: str) -> Host:
        return Host(name, "none", LocalTransport(Agent()))
