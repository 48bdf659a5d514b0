"""What a run computes on, looked at once: the GPUs, memory and cores of this machine, or of its
hosts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.workers.gpus import Gpu, find_gpus


@dataclass(frozen=True)
class HostHardware:
    """What one host has for a run; `name` is empty for this machine.

    `gpus` are the CUDA names of the GPUs that the run may use, `judge_gpus` those that the judge
    has for itself, if it has any; `known` describes those that tell their memory. `memory` are
    bytes of host memory that processes can still take, 0 if the system does not tell. Several hosts
    may be on one `machine`.
    """

    name: str = ""
    machine: str = ""
    gpus: tuple[str, ...] = ()
    known: tuple[Gpu, ...] = ()
    memory: int = 0
    cores: int = 1
    judge_gpus: tuple[str, ...] = ()

    def gpus_of(self, role: str) -> tuple[str, ...]:
        """Return the GPUs that the editor or the judge may use."""
        if not self.judge_gpus:
            return self.gpus
        if role == "judge":
            return self.judge_gpus
        return tuple(name for name in self.gpus if name not in self.judge_gpus)


@dataclass(frozen=True)
class Hardware:
    """The hosts of a run, and whether they are `remote`: to be connected to, rather than this
    process's machine.
    """

    hosts: tuple[HostHardware, ...]
    remote: bool = False

    @classmethod
    def here(cls, gpus: str, judge_gpus: str | None = None) -> Hardware:
        """Look at this machine; `gpus` is a list as `--imgedit-gpus` takes it, `judge_gpus` that of
        the judge alone.

        Raises `UsageError`.
        """
        names, known = find_gpus(gpus)
        apart, known_apart = (
            find_gpus(judge_gpus, "workers.judge_gpus") if judge_gpus is not None else ([], [])
        )
        if apart and not set(names) - set(apart):
            raise UsageError(
                f"workers.judge_gpus={judge_gpus}: leaves the editor none of --imgedit-gpus={gpus}"
            )
        described = {gpu.name: gpu for gpu in (*known, *known_apart)}
        host = HostHardware(
            gpus=tuple(dict.fromkeys([*names, *apart])),
            judge_gpus=tuple(apart),
            known=tuple(described.values()),
            memory=available_memory(),
            cores=available_cores(),
        )
        return cls((host,))

    @property
    def is_split(self) -> bool:
        """Whether the judge has GPUs for itself."""
        return any(host.judge_gpus for host in self.hosts)

    @property
    def has_gpus(self) -> bool:
        """Whether any GPU may be used."""
        return any(host.gpus for host in self.hosts)

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs that tell their memory."""
        return [gpu for host in self.hosts for gpu in host.known]

    @property
    def memory_by_machine(self) -> dict[str, int]:
        """Bytes of host memory that are available on each machine."""
        return {host.machine: host.memory for host in self.hosts}

    def machine_of(self, name: str) -> str:
        """Return the machine that a host is on."""
        return next(host.machine for host in self.hosts if host.name == name)


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not everywhere
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Bytes of host memory that processes can still take, file caches included; 0 if the system
    does not tell.
    """
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0
    )
