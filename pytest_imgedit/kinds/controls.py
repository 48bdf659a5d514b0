"""Editors of known quality, by which a judge and the harness itself are tried."""

import numpy as np
from PIL import Image

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.base import Model, Parameters


class ControlEditor:
    """Computes on the CPU, wherever it runs."""

    def __init__(self, *, device: str) -> None:
        del device


class SourceEditor(ControlEditor):
    """Returns the source: a judge that rewards it does not look at the instruction."""

    def edit(self, request: EditRequest) -> Image.Image:
        return request.source


class ReferenceEditor(ControlEditor):
    """Returns the reference that it is shown: the pair's own (`oracle`) or another pair's
    (`shuffled`).
    """

    def edit(self, request: EditRequest) -> Image.Image:
        if request.reference is None:
            raise ValueError("the suite has no reference image to show for this pair")
        return request.reference


class BlankEditor(ControlEditor):
    """Returns a mid-grey image of the source's size."""

    def edit(self, request: EditRequest) -> Image.Image:
        return Image.new("RGB", request.source.size, (128, 128, 128))


class NoiseEditor(ControlEditor):
    """Returns uniform noise of the source's size, drawn from the request's seed."""

    def edit(self, request: EditRequest) -> Image.Image:
        return Image.fromarray(
            np.random.default_rng(request.seed).integers(
                0, 256, (*request.source.size[::-1], 3), dtype=np.uint8
            )
        )


class Control(Model):
    """An editor without weights."""

    role = "editor"
    has_weights = False
    Params = Parameters


class IdentityControl(Control):
    """The source."""

    name = "identity"
    worker = SourceEditor


class Oracle(Control):
    """The pair's own reference."""

    name = "oracle"
    worker = ReferenceEditor
    shown_reference = "own"


class Shuffled(Control):
    """The reference of the next pair in its category."""

    name = "shuffled"
    worker = ReferenceEditor
    shown_reference = "next"


class Blank(Control):
    """A grey image."""

    name = "blank"
    worker = BlankEditor
    may_be_blank = True


class Noise(Control):
    """Noise."""

    name = "noise"
    worker = NoiseEditor
