"""From settings to pools of workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_imgedit.checkpoints import MODEL_KINDS, check_checkpoint, model_folder
from pytest_imgedit.endpoints import CONCURRENCY, ENDPOINT_KINDS
from pytest_imgedit.redaction import Redactor
from pytest_imgedit.stages.placement import groups_of, target_of
from pytest_imgedit.workers.base import Deadline, Slot
from pytest_imgedit.workers.local import LocalExecutor, available_cores
from pytest_imgedit.workers.pool import Pool

if TYPE_CHECKING:
    from pytest_imgedit.config import Settings
    from pytest_imgedit.workers.base import State
    from pytest_imgedit.workers.pool import Watcher

#: Host memory that a worker process takes for libraries, buffers and images.
PROCESS_BYTES = 6 * 2**30


def make_pool(settings: Settings, role: str, folder: Path, watcher: Watcher) -> Pool:
    """Make a pool of `edit` or `judge` workers, one a GPU group; no process is started yet."""
    workers, (target, params) = settings.workers, target_of(settings, role)
    python = workers.editor_python if role == "edit" else workers.judge_python
    argument = target.argument
    if target.kind in MODEL_KINDS:
        argument = str(model_folder(argument or "", target.kind).absolute())
    places = groups_of(settings, role) or [()] * _cpu_workers(settings, role)
    slots = [Slot(f"{role}-{index}", group) for index, group in enumerate(places)]
    setup = {
        "target": {
            "kind": target.kind,
            "module": target.module,
            "attribute": target.attribute,
            "argument": argument,
        },
        "params": params,
    }
    load = Deadline(workers.load_timeout, "workers.load_timeout")
    job = Deadline(getattr(workers, f"{role}_timeout"), f"workers.{role}_timeout")
    deadlines: dict[State, Deadline] = {"starting": load, "loading": load, "busy": job}
    if python is not None and os.sep in python:
        python = str(Path(python).absolute())
    threads = max(1, (available_cores() - 1) // len(slots))  # one core is the run's own
    executor = LocalExecutor(folder, python, load.seconds, Redactor.of(settings), threads)
    at_once = _loads_at_once(settings, slots, target.kind, argument)
    return Pool(executor, slots, setup, at_once, deadlines, watcher)


def _cpu_workers(settings: Settings, role: str) -> int:
    """How many workers a role has without GPUs; a server is asked by one judge, which asks much at a time."""
    target, params = target_of(settings, role)
    if target.kind not in ENDPOINT_KINDS:
        return settings.workers.cpu_workers
    return 1 if role == "judge" else int(params.get("concurrency", CONCURRENCY))


def _loads_at_once(settings: Settings, slots: list[Slot], kind: str, argument: str | None) -> int:
    """How many models may load at the same time: on every GPU if the host's memory has room for that, else one."""
    wanted = settings.workers.load_concurrency
    if wanted != "auto":
        return wanted
    if kind in ENDPOINT_KINDS:
        return len(slots)
    if kind not in MODEL_KINDS or argument is None or not slots[0].gpus:
        return 1
    # Processes read the same files, which the system holds once; each has its libraries and buffers beside them.
    offloads = target_of(settings, "edit")[1].get("offload") == "model" and kind == "diffusers"
    copies = len(slots) if offloads else 1  # what is offloaded lies in each process's own memory
    needed = check_checkpoint(Path(argument), kind) * (1.2 if copies == 1 else copies) + len(slots) * PROCESS_BYTES
    return len(slots) if needed <= available_memory() else 1


def available_memory() -> int:
    """Bytes of host memory that processes can still take, file caches included; 0 if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
