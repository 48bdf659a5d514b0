"""How a worker calls its editor: one edit at a time, or batches that halve where memory runs out."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pytest_imgedit.core.errors import SetupError, is_out_of_memory
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.inference.seeding import seed_all
from pytest_imgedit.workers.messages import clock

#: Edits a call of an editor that has `edit_batch` and names no `batch_size`, and the most that is tried by measuring.
USUAL_BATCH = 8
#: With fewer jobs than this, measuring costs more than batches save.
WORTH_MEASURING = 16


@dataclass(frozen=True)
class BatchLimits:
    """What `editor.batch_size` says, the jobs that the worker is about to get, and bytes of GPU memory for a batch.

    `memory` is `None` where all that is free may be used.
    """

    wanted: int | Literal["auto"] = 1
    jobs: int = 1
    memory: int | None = None


@dataclass(frozen=True)
class Output:
    """What an editor returned or raised for a request; `seconds` is its share of those of a call for `batch_size`."""

    value: Any
    seconds: float = 0.0
    batch_size: int = 1


class EditCalls:
    """Calls an editor. `batch_size` is the most requests of one call; it shrinks where memory does not suffice.

    Raises `SetupError` if the editor is to make more edits a call than it can.
    """

    def __init__(self, editor: Any, limits: BatchLimits) -> None:
        self.editor = editor
        self.batch_size, self.remark = self._settle(limits)

    def _settle(self, limits: BatchLimits) -> tuple[int, str]:
        """Decide how many requests go into one call; return what to say of it too."""
        name = type(self.editor).__name__
        takes_batches = callable(getattr(self.editor, "edit_batch", None))
        measure = getattr(self.editor, "measure_batch_size", None)
        refuses = getattr(self.editor, "refuses_batches", str)
        if limits.wanted != "auto" and limits.wanted > 1 and (reason := refuses()):
            raise SetupError(f"editor.batch_size: found {limits.wanted}, but {reason}")
        if limits.wanted != "auto":
            if limits.wanted > 1 and not takes_batches:
                raise SetupError(f"editor.batch_size: found {limits.wanted}, but {name} has no method edit_batch")
            return limits.wanted, ""
        if not takes_batches:
            return 1, ""
        if callable(measure):
            if limits.jobs < WORTH_MEASURING:
                return 1, ""
            size, remark = measure(USUAL_BATCH, limits.memory)
            return size, remark
        size = getattr(self.editor, "batch_size", USUAL_BATCH)
        if not isinstance(size, int) or size < 1:
            raise SetupError(f"{name}.batch_size is {size!r}, expected a count of at least 1")
        return size, ""

    def edit(self, requests: Sequence[EditRequest]) -> list[Output]:
        """Edit; each request ends in its own output, an exception where it failed."""
        outputs: list[Output] = []
        while len(outputs) < len(requests):
            batch = requests[len(outputs) :][: self.batch_size]
            outputs += [self._edit_one(batch[0])] if len(batch) == 1 else self._edit_batch(batch)
        return outputs

    def _edit_batch(self, batch: Sequence[EditRequest]) -> list[Output]:
        """Edit in one call; one by one if that fails, and nothing, with a smaller batch size, if memory runs out."""
        started = clock()
        try:
            values = self._seeded(batch, lambda fresh: self.editor.edit_batch(fresh))
            if not isinstance(values, list | tuple) or len(values) != len(batch):
                found = f"{len(values)} values" if isinstance(values, list | tuple) else type(values).__name__
                raise TypeError(f"edit_batch returned {found}, expected a list of {len(batch)} images")
        except Exception as error:
            is_full = is_out_of_memory(error)
            if not is_full:
                traceback.print_exception(error)
        else:
            seconds = (clock() - started) / len(batch)
            return [Output(value, seconds, len(batch)) for value in values]
        if is_full:  # the failed call's tensors live until its exception is gone, so not before here
            self.batch_size = len(batch) // 2
            free_memory()
            return []
        alone = [self._edit_one(request) for request in batch]
        if not any(isinstance(output.value, BaseException) for output in alone):
            self.batch_size = 1  # it is the batch that fails
        return alone

    def _edit_one(self, request: EditRequest) -> Output:
        """Edit one request; whatever an editor raises, SystemExit too, is the error of this edit alone."""
        started = clock()
        try:
            return Output(self.edit_alone(request), clock() - started)
        except BaseException as error:
            return Output(error, clock() - started)

    def edit_alone(self, request: EditRequest) -> Any:
        """Edit one request; when memory runs out, free what can be freed and try once more."""
        try:
            return self._seeded([request], lambda fresh: self.editor.edit(fresh[0]))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        free_memory()
        return self._seeded([request], lambda fresh: self.editor.edit(fresh[0]))

    def _seeded(self, batch: Sequence[EditRequest], call: Callable[[list[EditRequest]], Any]) -> Any:
        """Call with all global generators seeded, so that the seed alone decides; the editor may draw on its source."""
        seeded = seed_all(batch[0].seed)
        value = call(_fresh(batch))
        if any(name in sys.modules for name in {"numpy", "torch"} - seeded):  # imported, unseeded, by this first edit
            seed_all(batch[0].seed)
            value = call(_fresh(batch))
        return value


def _fresh(batch: Sequence[EditRequest]) -> list[EditRequest]:
    return [replace(request, source=request.source.copy()) for request in batch]


def free_memory() -> None:
    """Give back what nobody uses any more, cached GPU memory too where torch is in use."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
