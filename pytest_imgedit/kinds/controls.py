"""Editors of known quality, by which a judge and the harness itself are tried."""

import numpy as np
from PIL import Image

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.base import Model, Parameters

#: Share of the reference in a blend.
HALF = 0.5
#: Share of each side that is damaged.
DAMAGED_SHARE = 0.5
#: Where the damaged part may begin, as shares of a side.
BEGINNINGS = (0.0, 0.25, 0.5)


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


class BlendEditor(ReferenceEditor):
    """Returns the mean of source and reference: an edit that is half done."""

    def edit(self, request: EditRequest) -> Image.Image:
        reference = super().edit(request)
        return Image.blend(_resized(request.source, reference.size), reference, HALF)


class DamagedEditor(ReferenceEditor):
    """Returns the reference with a quarter of it in inverted colours.

    It is the quarter that differs least from the source, so that the change stays visible.
    """

    def edit(self, request: EditRequest) -> Image.Image:
        """Return the reference with its damaged quarter; raise `ValueError` if there is none."""
        reference = super().edit(request)
        before = np.asarray(_resized(request.source, reference.size), np.int16)
        after = np.asarray(reference).copy()
        differences = np.abs(after - before).sum(axis=-1)
        height, width = differences.shape
        windows = [(rows, columns) for rows in _spans(height) for columns in _spans(width)]
        damaged = min(windows, key=lambda window: differences[window].mean())
        after[damaged] = 255 - after[damaged]
        return Image.fromarray(after)


def _spans(side: int) -> list[slice]:
    """Return where the damaged part may lie along a side, in pixels."""
    return [
        slice(int(beginning * side), int((beginning + DAMAGED_SHARE) * side))
        for beginning in BEGINNINGS
    ]


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image.resize(size, Image.Resampling.BICUBIC)


class BlankEditor(ControlEditor):
    """Returns a mid-grey image of the source's size."""

    def edit(self, request: EditRequest) -> Image.Image:
        return Image.new("RGB", request.source.size, (128, 128, 128))


class NoiseEditor(ControlEditor):
    """Returns uniform noise of the source's size, drawn from the request's seed."""

    def edit(self, request: EditRequest) -> Image.Image:
        width, height = request.source.size
        generator = np.random.default_rng(request.seed)
        return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


class Control(Model):
    """An editor without weights."""

    role = "editor"
    has_weights = False
    Params = Parameters

    @property
    def max_sources(self) -> int | None:
        return None


class IdentityControl(Control):
    """A control: the source."""

    name = "identity"
    worker = SourceEditor


class Oracle(Control):
    """A control: the pair's own reference."""

    name = "oracle"
    worker = ReferenceEditor
    shown_reference = "own"


class Blend(Control):
    """A control: the mean of source and reference."""

    name = "blend"
    worker = BlendEditor
    shown_reference = "own"


class Damaged(Control):
    """A control: the pair's own reference, damaged beside the change."""

    name = "damaged"
    worker = DamagedEditor
    shown_reference = "own"


class Shuffled(Control):
    """A control: the reference of another pair of its source, or else of the next pair in its
    category.
    """

    name = "shuffled"
    worker = ReferenceEditor
    shown_reference = "next"


class Blank(Control):
    """A control: a grey image."""

    name = "blank"
    worker = BlankEditor
    may_be_blank = True


class NoiseControl(Control):
    """A control: noise."""

    name = "noise"
    worker = NoiseEditor
