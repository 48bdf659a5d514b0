"""A driver that shows GPUs on which nothing is computed, for a test's process or as text for a
conftest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from pytest_imgedit.workers import gpus as workers_gpus

if TYPE_CHECKING:
    import pytest


def driver(gpus: int, gib: float = 80) -> str:
    """Return what makes NVML show so many GPUs of so much memory."""
    return f"""
import pynvml
from types import SimpleNamespace
size = {gib} * 2**30
pynvml.nvmlInit = lambda: None
pynvml.nvmlDeviceGetCount = lambda: {gpus}
pynvml.nvmlDeviceGetHandleByIndex = lambda index: index
pynvml.nvmlDeviceGetName = lambda handle: "X"
pynvml.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(free=size, total=size, used=0)
pynvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: []
pynvml.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=25)
"""


def show_gpus(patch: pytest.MonkeyPatch, gpus: int, gib: float = 80) -> None:
    """Make NVML show so many GPUs in this process, until `patch` is undone."""
    for name in [name for name in dir(pynvml) if f"pynvml.{name} = " in driver(gpus)]:
        patch.setattr(pynvml, name, getattr(pynvml, name))
    patch.setattr(workers_gpus, "_driver", lambda: pynvml)  # it remembers what it has found
    exec(driver(gpus, gib), {})
