"""From settings to pools of workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.checkpoints import MODEL_KINDS, check_checkpoint, model_folder
from pytest_imgedit.editors.base import resolve_editor
from pytest_imgedit.judges.base import resolve_judge
from pytest_imgedit.redaction import Redactor
from pytest_imgedit.workers.base import Deadline, Slot
from pytest_imgedit.workers.gpus import choose_gpus, group_gpus, require_memory
from pytest_imgedit.workers.local import LocalExecutor, available_cores
from pytest_imgedit.workers.pool import Pool

if TYPE_CHECKING:
    from pytest_imgedit.config import Settings
    from pytest_imgedit.registry import Target
    from pytest_imgedit.workers.base import State
    from pytest_imgedit.workers.pool import Watcher


def require_free_gpus(settings: Settings, role: str) -> None:
    """Raise `UsageError` if the weights of the editor or judge do not fit into what is free on its GPUs."""
    target, params = _target(settings, role)
    if target.kind in MODEL_KINDS:
        dtype = params.get("dtype", "auto")
        needed = check_checkpoint(model_folder(target.argument or "", target.kind), target.kind, dtype)
        for group in _groups(settings, role):
            require_memory(group, needed, f"{target.kind}:{target.argument}")


def make_pool(settings: Settings, role: str, folder: Path, watcher: Watcher) -> Pool:
    """Make a pool of `edit` or `judge` workers, one a GPU group; no process is started yet."""
    workers, (target, params) = settings.workers, _target(settings, role)
    python = workers.editor_python if role == "edit" else workers.judge_python
    argument = target.argument
    if target.kind in MODEL_KINDS:
        argument = str(model_folder(argument or "", target.kind).absolute())
    places = _groups(settings, role) or [()] * workers.cpu_workers
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
    return Pool(executor, slots, setup, workers.load_concurrency, deadlines, watcher)


def _target(settings: Settings, role: str) -> tuple[Target, dict[str, Any]]:
    if role == "edit":
        return resolve_editor(settings.editor.spec), settings.editor.params
    return resolve_judge(settings.judge.spec), settings.judge.params


def _groups(settings: Settings, role: str) -> list[tuple[str, ...]]:
    """GPU groups, one a worker; none where no GPU is used."""
    gpus = choose_gpus(settings.workers.gpus)
    if role == "edit":
        return group_gpus(gpus, settings.workers.gpus_per_worker, "--imgedit-gpus-per-worker")
    return group_gpus(gpus, settings.judge.gpus_per_replica, "judge.gpus_per_replica")
