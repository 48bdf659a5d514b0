"""Which GPUs there are, which the user asked for, and how they are grouped."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

from pytest_imgedit.core.errors import UsageError

OPTION = "--imgedit-gpus"
EXPECTED = "expected a list such as 0-5, 0,2 or 0-3,6, or auto, or none"


def parse_gpus(text: str, option: str = OPTION) -> list[int]:
    """Return the numbers of a GPU list such as `0-3,6`, in the order in which it names them.

    Raise `UsageError`, naming the option, for any other text and for a number that is named twice.
    """
    numbers: list[int] = []
    for entry in text.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", entry.strip(" "), re.ASCII)
        if not match:
            raise UsageError(f"{option}={text}: {entry!r}, {EXPECTED}")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first:
            raise UsageError(f"{option}={text}: {entry!r} counts down, {EXPECTED}")
        numbers += range(first, last + 1)
    if len(set(numbers)) != len(numbers):
        raise UsageError(f"{option}={text}: a GPU is named twice, {EXPECTED}")
    return numbers


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as the driver describes it: its CUDA `name`, `product`, and memory in GiB.

    Processes hold `held_gib`; `holders` lists their ids if the driver names them. `host` is empty
    on this machine.
    """

    name: str
    product: str
    free_gib: float
    total_gib: float
    held_gib: float = 0.0
    holders: str = ""
    host: str = ""

    def __str__(self) -> str:
        return f"{self.name} of {self.host}" if self.host else self.name


def find_gpus(text: str, option: str = OPTION) -> tuple[list[str], list[Gpu]]:
    """Return the CUDA names of the GPUs to use, none for the CPU, and descriptions of those that
    report their memory.

    `text` is a list as `--imgedit-gpus` takes it, the value of `option`; its numbers count from 0
    over the visible GPUs, as in PyTorch. No CUDA context is made. Raise `UsageError` for a text
    that is no such list, and for a GPU that is not there.
    """
    if text == "none":
        return [], []
    numbers = None if text == "auto" else parse_gpus(text, option)
    driver = _driver()
    names = [] if driver is None else _visible(driver.nvmlDeviceGetCount())
    for number in numbers or ():
        if number >= len(names):
            visible = f"GPUs 0-{len(names) - 1}" if names else "no GPU"
            raise UsageError(
                f"{option}={text}: no GPU {number}, this machine shows {visible}; "
                "expected auto or none"
            )
    if numbers is not None:
        names = [names[number] for number in numbers]
    return names, list(_describe(driver, names))


@cache
def _driver() -> Any:
    """Return the driver (NVML), opened once in a process; `None` where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _visible(count: int) -> list[str]:
    """Return the CUDA names of the GPUs that this process may use, in CUDA's order: the entries of
    `CUDA_VISIBLE_DEVICES` before the first that is empty or -1, or without that variable the
    indexes of the driver's `count` GPUs.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [str(index) for index in range(count)]
    names = [name.strip() for name in listed.split(",")]
    return list(takewhile(lambda name: name not in ("", "-1"), names))


def _handle(driver: Any, name: str) -> Any:
    """Return NVML's handle of a GPU by its CUDA name, an index or a UUID; raise `NVMLError` if the
    driver does not know it.
    """
    if name.isdigit():
        return driver.nvmlDeviceGetHandleByIndex(int(name))
    return driver.nvmlDeviceGetHandleByUUID(name)


def _describe(driver: Any, names: Sequence[str]) -> Iterator[Gpu]:
    """Yield the description of each GPU that reports its memory."""
    for name in names:
        with suppress(driver.NVMLError):
            handle = _handle(driver, name)
            memory = driver.nvmlDeviceGetMemoryInfo(handle)
            processes = driver.nvmlDeviceGetComputeRunningProcesses(handle)
            yield Gpu(
                name=name,
                product=str(driver.nvmlDeviceGetName(handle)),
                free_gib=_in_gib(memory.free),
                total_gib=_in_gib(memory.total),
                held_gib=_in_gib(memory.used),
                holders=", ".join(str(process.pid) for process in processes),
            )


def _in_gib(size: int) -> float:
    return round(size / 2**30, 1)


def require_memory(gpus: Sequence[Gpu], needed: int, model: str, hint: str = "") -> None:
    """Raise `UsageError` if GPUs together have less than `needed` bytes free for a model's weights.

    The message names the processes that hold memory, and ends in `hint`, which says what would
    help.
    """
    free = sum(gpu.free_gib for gpu in gpus)
    total = sum(gpu.total_gib for gpu in gpus)
    if free * 2**30 < needed:
        names = ",".join(gpu.name for gpu in gpus)
        available = f"{free:.1f} of {total:.1f} GiB free"
        holders = ", ".join(gpu.holders for gpu in gpus if gpu.holders)
        if holders:
            available += f" (held by processes {holders})"
        raise UsageError(
            f"GPU {names}: {available}, expected at least {needed / 2**30:.1f} GiB for the "
            f"weights of {model}{hint}"
        )


def group_gpus(gpus: Sequence[str], size: int, option: str) -> list[tuple[str, ...]]:
    """Return groups of `size` GPUs.

    Raise `UsageError`, naming `option`, if the number of GPUs is not a multiple of `size`, or if
    there is none for groups of several.
    """
    if size > 1 and not gpus:
        raise UsageError(
            f"{option}={size}: no GPU, without which a model of this kind runs in one process"
        )
    if len(gpus) % size:
        raise UsageError(f"{option}={size}: {len(gpus)} GPUs, expected a multiple of {size}")
    return [tuple(gpus[start : start + size]) for start in range(0, len(gpus), size)]


class BusyMeter:
    """Samples the share of the time that GPUs compute, in a thread (NVML's utilisation, every
    `INTERVAL` seconds), while `counts()` holds.
    """

    INTERVAL = 0.5
    #: Seconds that the driver has to answer at the end.
    PATIENCE = 5.0

    def __init__(self, gpus: Sequence[str], counts: Callable[[], bool]) -> None:
        self.gpus = gpus
        self.counts = counts
        self._samples: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> BusyMeter:
        with suppress(RuntimeError):  # no more threads: nothing is measured
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=self.PATIENCE)

    @property
    def share(self) -> float | None:
        """The mean share in [0, 1] over all GPUs and samples; `None` if nothing was measured."""
        return sum(self._samples) / len(self._samples) if self._samples else None

    def _watch(self) -> None:
        """Take samples until the meter is stopped or the driver reports no utilisation."""
        driver = _driver() if self.gpus else None
        if driver is None:
            return
        with suppress(driver.NVMLError):
            handles = [_handle(driver, name) for name in self.gpus]
            while not self._stop.wait(self.INTERVAL):
                if self.counts():
                    self._samples += [
                        driver.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles
                    ]
