"""The most memory that a worker process has used so far."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress

from pytest_imgedit.core.protocol import MemoryUsed


class PeakMemory:
    """Follows the memory of this process, also where someone resets PyTorch's own count."""

    def __init__(self) -> None:
        self._gpu = 0

    def look(self) -> MemoryUsed:
        """Return bytes of host memory (resident set), and those that PyTorch took on the GPU of this process with most.

        `gpu` is `None` where this process has not used a GPU.
        """
        torch = sys.modules.get("torch")
        with suppress(AttributeError):  # another thread is importing PyTorch, which holds nothing yet
            if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
                taken = (torch.cuda.max_memory_reserved(number) for number in range(torch.cuda.device_count()))
                self._gpu = max(self._gpu, *taken)
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
        return {"gpu": self._gpu or None, "host": host}
