"""Editors of known quality, by which a judge and the harness itself are tried."""

from __future__ import annotations

import numpy as np
from PIL import Image

from pytest_imgedit.core.requests import EditRequest


class _Control:
    """Computes on the CPU, wherever it runs."""

    def __init__(self, *, device: str) -> None:
        del device


class Identity(_Control):
    """Returns the source: a judge that rewards it does not look at the instruction."""

    def edit(self, request: EditRequest) -> Image.Image:
        return request.source


class Reference(_Control):
    """Returns the reference that it is shown: the pair's own (`oracle`) or another pair's (`shuffled`)."""

    def edit(self, request: EditRequest) -> Image.Image:
        if request.reference is None:
            raise ValueError("the suite has no reference image to show for this pair")
        return request.reference


class Blank(_Control):
    """Returns a mid-grey image of the source's size."""

    def edit(self, request: EditRequest) -> Image.Image:
        return Image.new("RGB", request.source.size, (128, 128, 128))


class Noise(_Control):
    """Returns uniform noise of the source's size, drawn from the request's seed."""

    def edit(self, request: EditRequest) -> Image.Image:
        shape = (request.source.height, request.source.width, 3)
        return Image.fromarray(np.random.default_rng(request.seed).integers(0, 256, shape, dtype=np.uint8))
