"""A driver that shows GPUs on which nothing is computed, as text for a conftest."""


def driver(gpus: int) -> str:
    """Return what makes NVML show so many GPUs of 80 GiB."""
    return f"""
import pynvml
from types import SimpleNamespace
gib = 2**30
pynvml.nvmlInit = lambda: None
pynvml.nvmlDeviceGetCount = lambda: {gpus}
pynvml.nvmlDeviceGetHandleByIndex = lambda index: index
pynvml.nvmlDeviceGetName = lambda handle: "X"
pynvml.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(free=80 * gib, total=80 * gib, used=0)
pynvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: []
pynvml.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=25)
"""
