"""What a trainer's own worker uses of this package: an editor, whole or sharded over ranks, and
single edits by it.

A distribution outside, such as `imgedit-verl`, imports this module and nothing else of the package.
Importing it loads neither torch nor diffusers nor transformers; `load_editor` does.

- `load_editor` loads a diffusers checkpoint as the harness does, and returns a `LoadedEditor`.
- `decode`, `encode_png`, `to_rgb` and `check_size` read, write and refuse images as the harness
  does.
- `send` and `receive` pass plain values between processes, over pipes.
- `one_line` tells an exception in one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.core.images import check_size, decode, encode_png, to_rgb
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import one_line
from pytest_imgedit.core.wire import receive, send

if TYPE_CHECKING:
    import torch
    from PIL import Image

__all__ = [
    "LoadedEditor",
    "check_size",
    "decode",
    "encode_png",
    "load_editor",
    "one_line",
    "receive",
    "send",
    "to_rgb",
]


def load_editor(
    model: str,
    device: torch.device,
    dtype: str,
    call: JsonObject,
    *,
    strategy: Literal["full", "grad_op"] | None = None,
    cpu_offload: bool = False,
    rank0_reads: bool = True,
) -> LoadedEditor:
    """Return the editor that a diffusers checkpoint is, loaded onto a device.

    `model` is a folder, or a hub id `ORG/MODEL` or `ORG/MODEL@REVISION`. `dtype` is as
    `editor.dtype`, and `call` holds arguments of the pipeline's call.

    With a `strategy` (as `editor.shard.strategy`) the ranks of the default process group share the
    weights by FSDP2, and all of them call this at the same time: rank 0 alone reads the weights if
    `rank0_reads`, and shards stay in host memory with `cpu_offload`. Raises
    `pytest_imgedit.core.errors.SetupError` for a checkpoint that is no editor, is not whole, or
    cannot be shared so, and `UsageError` for one that cannot be had.
    """
    from pytest_imgedit.kinds.checkpoint_files import Checkpoint, Layout
    from pytest_imgedit.kinds.compute.fsdp import load_sharded
    from pytest_imgedit.kinds.compute.numerics import pick_dtype, set_deterministic
    from pytest_imgedit.kinds.compute.pipeline import load_pipeline
    from pytest_imgedit.kinds.diffusers_parameters import ShardParameters

    folder = Checkpoint(model, Layout.PIPELINE).folder
    set_deterministic(True)
    torch_dtype = pick_dtype(dtype, device.type)
    if strategy is None:
        return LoadedEditor(load_pipeline(folder, str(device), torch_dtype), call)
    shard = ShardParameters(strategy=strategy, cpu_offload=cpu_offload)
    return LoadedEditor(
        load_sharded(folder, device, torch_dtype, shard, rank0_reads=rank0_reads), call
    )


class LoadedEditor:
    """An editor in this process, with the arithmetic of the harness's own workers.

    `pipeline` is that of diffusers. If it takes several sources in one call, `batches` is true.
    `area`, if it is set, is the number of pixels of an edit, which has the shape of its source.
    """

    def __init__(self, pipeline: Any, call: JsonObject) -> None:
        """Make an editor of a loaded pipeline; `call` holds arguments of its call."""
        from pytest_imgedit.kinds.diffusers import DiffusersEditor

        self.pipeline = pipeline
        self._editor = DiffusersEditor.around(pipeline, call)
        self.batches: bool = self._editor.adapter.batches

    @property
    def area(self) -> int | None:
        """The number of pixels of an edit; `None` leaves it to the pipeline."""
        return self._editor.area

    @area.setter
    def area(self, pixels: int | None) -> None:
        self._editor.area = pixels

    def edit(
        self, sources: Sequence[Image.Image], instructions: Sequence[str], seed: int
    ) -> list[Image.Image | Exception]:
        """Return the edits of RGB sources of one size, made in one call with a seed in [0, 2**63).

        An exception in place of an edit says why the output is none, such as a blank image. Raises
        what the pipeline raises, and `ValueError` for several sources if it takes only one, or for
        another number of instructions than of sources.
        """
        from pytest_imgedit.kinds.compute.seeding import seed_all

        if len(sources) > 1 and not self.batches:
            raise ValueError(
                f"{len(sources)} sources, expected one: {type(self.pipeline).__name__} takes no "
                "batches"
            )
        requests = [
            EditRequest("edit", "default", instruction, source, seed)
            for source, instruction in zip(sources, instructions, strict=True)
        ]
        seed_all(seed)
        if len(requests) == 1:
            output = self._editor.run(requests[0], "pt")
        else:
            output = self._editor.run_batch(requests)
        return [self._finished(output, place, request) for place, request in enumerate(requests)]

    def _finished(self, output: Any, place: int, request: EditRequest) -> Image.Image | Exception:
        """Return the edit at a place of the pipeline's output, or the error that says why it is
        none.
        """
        from pytest_imgedit.kinds.edit_checks import checked

        try:
            return checked(self._editor.picture(output, place), request.source, may_be_blank=False)
        except Exception as error:
            return error
