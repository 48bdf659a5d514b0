"""What a worker process computes with: its threads, its share of the processor, and the most memory
so far.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pytest_imgedit.core.protocol import MemoryUsed

#: Seconds of its threads that must have passed before a share says something.
ENOUGH_SECONDS = 10.0


def threads_in(environ: Mapping[str, str]) -> int | None:
    """Return the number of OpenMP threads that variables of an environment ask for; `None` if they
    do not say.
    """
    count = environ.get("OMP_NUM_THREADS", "")
    if count.isdecimal():
        return int(count)
    return None


class CpuShare:
    """Follows how much of the CPU time that the threads of this process could use they get, from
    its making on.
    """

    def __init__(self) -> None:
        self._ran, self._waited = _scheduled()

    def look(self) -> float | None:
        """Return the share on [0, 1]; `None` if the system does not tell, or so far too little.

        A thread that wants to compute either runs or waits for a processor; one that sleeps does
        neither.
        """
        ran, waited = (
            max(0.0, now - was)
            for now, was in zip(_scheduled(), (self._ran, self._waited), strict=True)
        )
        if ran + waited >= ENOUGH_SECONDS:
            return ran / (ran + waited)
        return None


def _scheduled() -> tuple[float, float]:
    """Seconds that the threads of this process have run, and waited for a processor:
    /proc/PID/task/TID/schedstat.
    """
    ran = waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended meanwhile
            on, off, _ = map(int, path.read_text("ascii").split())
            ran, waited = ran + on, waited + off
    return ran / 1e9, waited / 1e9


class PeakMemory:
    """Follows the memory of this process, also where someone resets PyTorch's own count."""

    def __init__(self) -> None:
        self._gpu = 0

    def look(self) -> MemoryUsed:
        """Return bytes of host memory (resident set), and those that PyTorch took on the GPU of
        this process with most.

        `gpu` is `None` where this process has not used a GPU.
        """
        torch = sys.modules.get("torch")
        with suppress(
            AttributeError
        ):  # another thread is importing PyTorch, which holds nothing yet
            if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
                taken = (
                    torch.cuda.max_memory_reserved(number)
                    for number in range(torch.cuda.device_count())
                )
                self._gpu = max(self._gpu, *taken)
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
        return {"gpu": self._gpu or None, "host": host}
