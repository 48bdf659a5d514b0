"""What a run computes on: the GPUs, memory and cores of this machine or its hosts; and how much of
them a worker uses.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_imgedit.core import errors, messages
from pytest_imgedit.workers.gpus import Gpu, find_gpus

#: Seconds for which threads must have run or waited before their share says something.
ENOUGH_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class HostHardware:
    """What one host has for a run; `name` is empty for this machine.

    `gpus` are the CUDA names of the GPUs that the run may use, `judge_gpus` those reserved for the
    judge, if any; `known` describes those that report their memory. `memory` is the host memory in
    bytes that processes can still take, 0 if unknown. Several hosts may be on one `machine`.
    """

    name: str = ""
    machine: str = ""
    gpus: tuple[str, ...] = ()
    known: tuple[Gpu, ...] = ()
    memory: int = 0
    cores: int = 1
    judge_gpus: tuple[str, ...] = ()

    def gpus_of(self, role: str) -> tuple[str, ...]:
        """Return the GPUs that a role may use: `"editor"`, or any other for a judge or metric."""
        if not self.judge_gpus:
            return self.gpus
        if role != "editor":
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
        """Return what this machine has; `gpus` is a list as `--imgedit-gpus` takes it, `judge_gpus`
        one of those for the judge alone, or `None` if both share all.

        Raise `UsageError` for a list that cannot be read, for a GPU that is not there, or if the
        editor is left without any.
        """
        names, known = find_gpus(gpus)
        reserved, known_reserved = find_gpus(
            "none" if judge_gpus is None else judge_gpus, "workers.judge_gpus"
        )
        if reserved and set(names) <= set(reserved):
            raise errors.UsageError(
                f"workers.judge_gpus={judge_gpus}: leaves the editor none of --imgedit-gpus={gpus}"
            )
        by_name = {gpu.name: gpu for gpu in known + known_reserved}
        host = HostHardware(
            gpus=tuple(dict.fromkeys(names + reserved)),
            judge_gpus=tuple(reserved),
            known=tuple(by_name.values()),
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
        """The GPUs that report their memory."""
        return [gpu for host in self.hosts for gpu in host.known]

    @property
    def memory_by_machine(self) -> dict[str, int]:
        """Bytes of host memory that are available on each machine."""
        return {host.machine: host.memory for host in self.hosts}

    def machine_of(self, name: str) -> str:
        """Return the machine that a host is on."""
        return next(host.machine for host in self.hosts if host.name == name)


def available_cores() -> int:
    """Return how many cores this process may use, or those of the machine if that is unknown."""
    if hasattr(os, "sched_getaffinity"):  # not everywhere
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Return the bytes of host memory that processes can still take, file caches included; 0 if
    the system does not report them.
    """
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                kib = int(line.split()[1])
                return kib * 1024
    return 0


def threads_in(environ: Mapping[str, str]) -> int | None:
    """Return the number of OpenMP threads that environment variables ask for; `None` if they ask
    for none, or not by a plain number.
    """
    count = environ.get("OMP_NUM_THREADS", "")
    return int(count) if count.isdecimal() else None


class CpuShare:
    """Measures, from its making on, which share the threads of this process get of the CPU time
    that they could use.
    """

    def __init__(self) -> None:
        self._start = _scheduled()

    def look(self) -> float | None:
        """Return the share in [0, 1]; `None` if the system does not report it, or before the
        threads have run or waited for `ENOUGH_SECONDS`.

        A thread that wants to compute either runs or waits for a processor; one that sleeps does
        neither.
        """
        ran, waited = _scheduled()
        ran_before, waited_before = self._start
        ran = max(0.0, ran - ran_before)
        waited = max(0.0, waited - waited_before)
        if ran + waited < ENOUGH_SECONDS:
            return None
        return ran / (ran + waited)


def _scheduled() -> tuple[float, float]:
    """Return the seconds for which the threads of this process have run, and those for which they
    have waited for a processor, from /proc/self/task/TID/schedstat; 0 where there is none.
    """
    ran = waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended meanwhile
            on_processor, in_queue, _timeslices = path.read_text("ascii").split()
            ran += int(on_processor)
            waited += int(in_queue)
    return ran / 1e9, waited / 1e9  # from nanoseconds


class PeakMemory:
    """Follows the memory of this process, even if someone resets PyTorch's count."""

    def __init__(self) -> None:
        self._gpu = 0

    def look(self) -> messages.MemoryUsed:
        """Return the peaks in bytes: of host memory (resident set), and of what PyTorch reserved on
        the GPU where it reserved most; `gpu` is `None` if this process has not used a GPU.
        """
        torch = sys.modules.get("torch")
        # Another thread may be importing PyTorch, which holds nothing yet.
        with suppress(AttributeError):
            if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
                for number in range(torch.cuda.device_count()):
                    self._gpu = max(self._gpu, torch.cuda.max_memory_reserved(number))
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
        return {"gpu": self._gpu or None, "host": host}
