"""Which GPUs there are, which the user asked for, and how they are grouped."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PART = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?", re.ASCII)
EXPECTED = "expected a list such as 0-5, 0,2 or 0-3,6, or auto, or none"


def parse_gpus(text: str) -> list[int]:
    """Parse a GPU list such as `0-3,6` to sorted-as-written, distinct numbers; raise `UsageError` otherwise."""
    numbers: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip(" "))
        if not match:
            raise UsageError(f"--imgedit-gpus={text}: {part!r}, {EXPECTED}")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first:
            raise UsageError(f"--imgedit-gpus={text}: {part!r} counts down, {EXPECTED}")
        numbers.extend(range(first, last + 1))
    if len(set(numbers)) != len(numbers):
        raise UsageError(f"--imgedit-gpus={text}: a GPU is named twice, {EXPECTED}")
    return numbers


def visible_gpus() -> list[str]:
    """Return the CUDA names of the GPUs that this process may use, in the order in which CUDA numbers them.

    `CUDA_VISIBLE_DEVICES` decides where it is set, else the driver (through NVML). No CUDA context is made.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()
    if listed is None:
        return [str(index) for index in range(count)]
    names = [name.strip() for name in listed.split(",")]
    stop = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
    return names[:stop]


def _handle(name: str) -> Any:
    """Return NVML's handle of a GPU by its CUDA name, an index or a UUID; NVML must be initialised."""
    import pynvml

    return pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)


def require_memory(gpus: Sequence[Mapping[str, Any]], needed: int, what: str, hint: str = "") -> None:
    """Raise `UsageError` if a group of GPUs, as `gpu_memory` describes them, has less than `needed` bytes free.

    The message names the processes that hold memory, and ends in `hint`, which says what would help.
    """
    free, total = (sum(gpu[name] for gpu in gpus) for name in ("free_gib", "total_gib"))
    if free * 2**30 < needed:
        holders = ", ".join(gpu["holders"] for gpu in gpus if gpu["holders"])
        held = f" (held by processes {holders})" if holders else ""
        raise UsageError(
            f"GPU {','.join(gpu['name'] for gpu in gpus)}: {free:.1f} of {total:.1f} GiB free{held}, "
            f"expected at least {needed / 2**30:.1f} GiB for the weights of {what}{hint}"
        )


def gpu_memory(gpus: Sequence[str]) -> list[dict[str, Any]]:
    """Describe GPUs by `name` as given, `product`, and memory in GiB, as far as they tell: `free_gib`, `total_gib`,
    `held_gib` by processes, whose numbers are `holders` where the driver names them.
    """
    import pynvml

    found: list[dict[str, Any]] = []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return found
    try:
        for name in gpus:
            with suppress(pynvml.NVMLError):  # it does not tell
                handle = _handle(name)
                memory, product = pynvml.nvmlDeviceGetMemoryInfo(handle), str(pynvml.nvmlDeviceGetName(handle))
                holders = ", ".join(str(one.pid) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
                sizes = {"free_gib": memory.free, "total_gib": memory.total, "held_gib": memory.used}
                rounded = {key: round(size / 2**30, 1) for key, size in sizes.items()}
                found.append({"name": name, "product": product, **rounded, "holders": holders})
    finally:
        pynvml.nvmlShutdown()
    return found


def choose_gpus(text: str) -> list[str]:
    """Return the CUDA names of the GPUs to use, an empty list for the CPU.

    Numbers count from 0 over the visible GPUs, as in PyTorch. Raises `UsageError` for a GPU that is not there.
    """
    if text == "none":
        return []
    if text == "auto":
        return visible_gpus()
    numbers = parse_gpus(text)
    visible = visible_gpus()
    for number in numbers:
        if number >= len(visible):
            have = f"GPUs 0-{len(visible) - 1}" if visible else "no GPU"
            raise UsageError(f"--imgedit-gpus={text}: no GPU {number}, this machine shows {have}")
    return [visible[number] for number in numbers]


def group_gpus(gpus: list[str], size: int, option: str) -> list[tuple[str, ...]]:
    """Split GPUs into groups of `size`; raise `UsageError` naming `option` if they do not come out even."""
    if size > 1 and not gpus:
        raise UsageError(f"{option}={size}: no GPU, and only diffusers editors are shared by processes without one")
    if len(gpus) % size:
        raise UsageError(f"{option}={size}: {len(gpus)} GPUs, expected a multiple of {size}")
    return [tuple(gpus[start : start + size]) for start in range(0, len(gpus), size)]


class BusyMeter:
    """Samples which share of the time GPUs compute, in a thread of its own (NVML's utilisation, each half second)."""

    INTERVAL = 0.5

    def __init__(self, gpus: Sequence[str], counts: Callable[[], bool]) -> None:
        self.gpus, self.counts = gpus, counts
        self._samples: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> BusyMeter:
        if self.gpus:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self.gpus:
            self._thread.join(timeout=5)

    @property
    def share(self) -> float | None:
        """Mean share in [0, 1] over all GPUs while `counts()` held; `None` if nothing was measured."""
        return sum(self._samples) / len(self._samples) if self._samples else None

    def _watch(self) -> None:
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        try:
            handles = [_handle(name) for name in self.gpus]
            while not self._stop.wait(self.INTERVAL):
                if self.counts():
                    self._samples += [pynvml.nvmlDeviceGetUtilizationRates(one).gpu / 100 for one in handles]
        except pynvml.NVMLError:
            return  # a GPU that does not tell
        finally:
            pynvml.nvmlShutdown()
