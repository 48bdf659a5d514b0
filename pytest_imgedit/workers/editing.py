"""How a worker makes edits: in batches whose size halves if memory runs out, each edit checked and
encoded.
"""

import gc
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_imgedit.core import images, messages
from pytest_imgedit.core.errors import (
    FailsForGood,
    ImageError,
    OutputError,
    Refused,
    SetupError,
    is_out_of_memory,
)
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.change import change
from pytest_imgedit.kinds.compute.seeding import has_drawn, seed_all
from pytest_imgedit.kinds.edit_checks import checked, is_near_copy, is_reframed

#: Kinds of errors whose text needs no name of its type.
_KINDS = {
    SetupError: "setup",
    ImageError: "bad_image",
    OutputError: "degenerate_output",
    Refused: "refused",
    FailsForGood: "final",
}
#: Seconds that a stopping run leaves the current job. A denoising step may be begun until then.
STOP_GRACE = 10.0
#: Libraries whose global generators are seeded.
_GENERATORS = {"numpy", "torch"}
#: Where PyTorch's compiler counts, once it is imported.
_COMPILER = "torch._dynamo.utils"
#: Bound before any code of the user could replace it.
clock = time.perf_counter


class JobDropped(BaseException):
    """The run is stopping, and the current job has taken too long since then. No editor catches
    it.
    """


@dataclass(frozen=True)
class Output:
    """What an editor returned or raised for a request.

    `seconds` is its share of the duration of the call, which was for `batch_size` edits, padding
    included.
    """

    value: Any
    seconds: float = 0.0
    batch_size: int = 1


class EditCalls:
    """Calls an editor for `batch_size` requests at once.

    If it `pads`, a call for fewer repeats its last request: calls of one shape round alike, so that
    no edit depends on the others of its call. An editor that rounds otherwise on this machine makes
    one edit a call. The size halves for good if memory runs out, and becomes 1 if batches fail or
    draw from global generators, whose one seed decides all edits of a call.

    Raises `SetupError` if the editor has no `edit`, or for a batch size over 1 no `edit_batch`.
    """

    def __init__(self, editor: Any, batch_size: int = 1, pads: bool = False) -> None:
        self.editor = editor
        self.pads = pads
        if not callable(getattr(editor, "edit", None)):
            raise SetupError(
                f"{type(editor).__module__}:{type(editor).__name__} has no method edit, expected "
                "def edit(self, request)"
            )
        if batch_size > 1 and not callable(getattr(editor, "edit_batch", None)):
            raise SetupError(
                f"editor.batch_size: found {batch_size}, but {type(editor).__name__} has no method "
                "edit_batch"
            )
        self.batch_size = self._proven(batch_size) if pads else batch_size

    def _proven(self, size: int) -> int:
        """Return the batch size for padded calls: `size`, halved until memory is enough; 1 if such
        calls fail for another reason, or if an edit depends on its place in the batch.
        """
        while size > 1:
            try:
                return size if self.editor.is_batch_invariant(size) else 1
            except Exception as error:
                ran_out_of_memory = is_out_of_memory(error)
                traceback.print_exception(error)
            size = size // 2 if ran_out_of_memory else 1
            free_memory()
        return size

    def edit(self, requests: Sequence[EditRequest]) -> list[Output]:
        """Return an output for each request, in order; that of a failed edit is its exception."""
        outputs: list[Output] = []
        while len(outputs) < len(requests):
            batch = requests[len(outputs) :][: self.batch_size]
            if self.batch_size == 1 or (len(batch) == 1 and not self.pads):
                outputs.append(self._edit_one(batch[0]))
            else:
                outputs += self._edit_batch(batch)
        return outputs

    def _edit_batch(self, batch: Sequence[EditRequest]) -> list[Output]:
        """Return the outputs of a batch edited in one call.

        If memory runs out, halve the batch size and return none, so that the caller tries again. On
        any other failure, edit one by one; if that works, do so from then on.
        """
        padded = list(batch)
        if self.pads:
            padded += [batch[-1]] * (self.batch_size - len(batch))
        started = clock()
        try:
            values = self._batch_values(padded)
            seconds = (clock() - started) / len(batch)
            return [Output(value, seconds, len(padded)) for value in values[: len(batch)]]
        except Exception as error:
            ran_out_of_memory = is_out_of_memory(error)
            if not ran_out_of_memory:
                traceback.print_exception(error)
        # The failed call's tensors are gone with its exception, so not before here.
        if ran_out_of_memory:
            self.batch_size = len(padded) // 2
            free_memory()
            return []
        outputs = [self._edit_one(request) for request in batch]
        if not any(isinstance(output.value, BaseException) for output in outputs):
            self.batch_size = 1  # it is the batch that fails
        return outputs

    def _batch_values(self, requests: Sequence[EditRequest]) -> Sequence[Any]:
        """Return what `edit_batch` makes of requests. Raise `TypeError` if that is not a list or
        tuple with a value for each, `RuntimeError` if it drew from a global generator for several.
        """
        values: Sequence[Any] = _seeded(self.editor.edit_batch, requests)
        is_list = isinstance(values, list | tuple)
        if not is_list or len(values) != len(requests):
            returned = f"{len(values)} values" if is_list else type(values).__name__
            raise TypeError(
                f"edit_batch returned {returned}, expected a list of {len(requests)} images"
            )
        if len(requests) > 1 and has_drawn(requests[0].seed):
            raise RuntimeError(
                "edit_batch drew from a global generator, whose seed is that of the first edit only"
            )
        return values

    def _edit_one(self, request: EditRequest) -> Output:
        """Return the output of one request, in which anything that the editor raises, even
        `SystemExit`, is the error of this edit. Raise `JobDropped` if the run has no more time.
        """
        started = clock()
        try:
            return Output(self.edit_alone(request), clock() - started)
        except JobDropped:
            raise
        except BaseException as error:
            return Output(error, clock() - started)

    def edit_alone(self, request: EditRequest) -> Any:
        """Return what the editor makes of one request; if memory runs out, free what can be freed
        and retry once. Raise what the editor raises.
        """
        try:
            return _seeded(self._edit_first, [request])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        free_memory()
        return _seeded(self._edit_first, [request])

    def _edit_first(self, requests: Sequence[EditRequest]) -> Any:
        return self.editor.edit(requests[0])


def _seeded(call: Callable[[list[EditRequest]], Any], requests: Sequence[EditRequest]) -> Any:
    """Return what `call` makes of requests with all global generators seeded from the first one, so
    that the seed alone decides.

    The editor may change the sources that it gets, which are copies. It is called again if it
    imported a library whose generator was therefore not seeded, or if something was compiled
    meanwhile: some of its steps ran before that.
    """
    imported_before = _GENERATORS & sys.modules.keys()
    graphs_before = _compiled_graphs()
    value = _seeded_once(call, requests)
    if imported_before != _GENERATORS & sys.modules.keys():
        return _seeded(call, requests)
    if graphs_before != _compiled_graphs():
        return _seeded_once(call, requests)
    return value


def _seeded_once(call: Callable[[list[EditRequest]], Any], requests: Sequence[EditRequest]) -> Any:
    seed_all(requests[0].seed)
    return call([_copied(request) for request in requests])


def _copied(request: EditRequest) -> EditRequest:
    further = tuple(image.copy() for image in request.further)
    return replace(request, source=request.source.copy(), further=further)


def _compiled_graphs() -> int:
    """Return how many graphs PyTorch's compiler has made in this process; 0 without it."""
    compiler: Any = sys.modules.get(_COMPILER)
    return 0 if compiler is None else int(compiler.counters["stats"]["unique_graphs"])


def free_memory() -> None:
    """Release unused memory, also cached GPU memory if torch is in use."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def make_edit(
    edit: Callable[[EditRequest], Any], request: EditRequest, may_be_blank: bool
) -> messages.FinishedEdit:
    """Make an edit; return the message about it. Raise what `edit` raises, and `OutputError` if the
    result is not a valid edit.
    """
    started = clock()
    output = edit(request)
    return finished_edit(output, request, clock() - started, may_be_blank)


def finished_edit(
    output: Any, request: EditRequest, seconds: float, may_be_blank: bool, batch_size: int = 1
) -> messages.FinishedEdit:
    """Return the message about an edit that took `seconds`: the checked and encoded image, and how
    it differs from its sources. Raise `OutputError` if it is not a valid edit.
    """
    image = checked(output, request.source, may_be_blank=may_be_blank)
    changed = change(request.source, image)
    least_changed = min([changed, *(change(source, image) for source in request.further)])
    return {
        "op": "finished",
        "image": images.encode_png(image),
        "thumbnail": images.thumbnail(image),
        "source_thumbnails": [images.thumbnail(source) for source in request.sources],
        "signature": images.signature(image),
        "edit_s": seconds,
        "batch_size": batch_size,
        "change": changed,
        "near_copy": is_near_copy(least_changed),
        "width": image.width,
        "height": image.height,
        "reframed": is_reframed(request.source, image),
        "composited": images.COMPOSITED in image.info,
    }


def describe(error: BaseException) -> tuple[str, str]:
    """Return the kind of an error, as in `messages.Failed`, and one line about it."""
    text = one_line(error)
    for error_type, kind in _KINDS.items():
        if isinstance(error, error_type):
            return kind, text
    kind = "oom" if is_out_of_memory(error) else "exception"
    return kind, f"{type(error).__name__}: {text}"
