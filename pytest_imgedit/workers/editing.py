"""How a worker calls its editor: in batches of one size, which halves where memory runs out."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_imgedit.core.errors import SetupError, is_out_of_memory
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.compute.seeding import has_drawn, seed_all
from pytest_imgedit.workers.messages import clock


class Dropped(BaseException):
    """The run is stopping, and the job that is being done has taken too long since then. No editor
    catches it.
    """


@dataclass(frozen=True)
class Output:
    """What an editor returned or raised for a request.

    `seconds` is its share of those of its call, which was for `batch_size` edits, padding included.
    """

    value: Any
    seconds: float = 0.0
    batch_size: int = 1


class EditCalls:
    """Calls an editor for `batch_size` requests at once.

    Where it `pads`, a call for fewer repeats its last request: calls of one shape round alike, so
    that no edit depends on the others of its call. An editor of which that is not so on this
    machine makes one edit a call. The size halves for good where memory does not suffice, and
    becomes 1 where batches fail or draw from global generators, whose one seed decides the edits of
    a call together.

    Raises `SetupError` if the editor is to make more edits a call than it can.
    """

    def __init__(self, editor: Any, batch_size: int = 1, pads: bool = False) -> None:
        self.editor, self.pads = editor, pads
        if batch_size > 1 and not callable(getattr(editor, "edit_batch", None)):
            name = type(editor).__name__
            raise SetupError(
                f"editor.batch_size: found {batch_size}, but {name} has no method edit_batch"
            )
        self.batch_size = self._proven(batch_size) if pads else batch_size

    def _proven(self, size: int) -> int:
        """Try calls of a size that are to be padded; return a smaller one where these fail or do
        not fit.
        """
        while size > 1:
            try:
                if self.editor.is_batch_invariant(size):
                    return size
                return 1
            except Exception as error:
                is_full = is_out_of_memory(error)
                traceback.print_exception(error)
            size = size // 2 if is_full else 1
            free_memory()
        return size

    def edit(self, requests: Sequence[EditRequest]) -> list[Output]:
        """Edit; each request ends in its own output, an exception where it failed."""
        outputs: list[Output] = []
        while len(outputs) < len(requests):
            batch = requests[len(outputs) :][: self.batch_size]
            is_alone = self.batch_size == 1 or (len(batch) == 1 and not self.pads)
            outputs += [self._edit_one(batch[0])] if is_alone else self._edit_batch(batch)
        return outputs

    def _edit_batch(self, batch: Sequence[EditRequest]) -> list[Output]:
        """Edit in one call; one by one if that fails, and nothing, with a smaller batch size, if
        memory runs out.
        """
        padding = [batch[-1]] * (self.batch_size - len(batch)) if self.pads else []
        call = [*batch, *padding]
        started = clock()
        try:
            values = self._seeded(call, lambda fresh: self.editor.edit_batch(fresh))
            if not isinstance(values, list | tuple) or len(values) != len(call):
                if isinstance(values, list | tuple):
                    found = f"{len(values)} values"
                else:
                    found = type(values).__name__
                raise TypeError(
                    f"edit_batch returned {found}, expected a list of {len(call)} images"
                )
            if has_drawn(call[0].seed) and len(call) > 1:
                raise RuntimeError(
                    "edit_batch drew from a global generator, whose seed is that of the first "
                    "edit only"
                )
        except Exception as error:
            is_full = is_out_of_memory(error)
            if not is_full:
                traceback.print_exception(error)
        else:
            seconds = (clock() - started) / len(batch)
            return [Output(value, seconds, len(call)) for value in values[: len(batch)]]
        if (
            is_full
        ):  # the failed call's tensors live until its exception is gone, so not before here
            self.batch_size = len(call) // 2
            free_memory()
            return []
        alone = [self._edit_one(request) for request in batch]
        if not any(isinstance(output.value, BaseException) for output in alone):
            self.batch_size = 1  # it is the batch that fails
        return alone

    def _edit_one(self, request: EditRequest) -> Output:
        """Edit one request; whatever an editor raises, SystemExit too, is the error of this edit
        alone.
        """
        started = clock()
        try:
            return Output(self.edit_alone(request), clock() - started)
        except Dropped:
            raise
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

    def _seeded(
        self, batch: Sequence[EditRequest], call: Callable[[list[EditRequest]], Any]
    ) -> Any:
        """Call with all global generators seeded, so that the seed alone decides; the editor may
        draw on its source.
        """
        seeded = seed_all(batch[0].seed)
        value = call(_fresh(batch))
        if any(
            name in sys.modules for name in {"numpy", "torch"} - seeded
        ):  # imported, unseeded, by this first edit
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
