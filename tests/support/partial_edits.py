"""An editor of a known quality: the right edit, blended with the source by a share that is drawn
anew for each pair and seed.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from pytest_imgedit import EditRequest
    from pytest_imgedit.core.pairs import ImageSource

#: How far the share of the way to the right edit is from the quality, at most.
SPREAD = 0.2


class Partial:
    """Goes a share of the way to the right edits of the suite `truth`: within `SPREAD` of the
    quality, 0 to 1.
    """

    def __init__(self, *, device: str, truth: str, quality: float = 0.7) -> None:
        del device
        self.quality = quality
        self.right = right_edits(truth)

    def edit(self, request: EditRequest) -> Image.Image:
        source = request.source.convert("RGB")
        right = self.right[source.tobytes(), request.instruction]
        off = np.random.default_rng(request.seed).uniform(-SPREAD, SPREAD)
        return Image.blend(source, right, float(np.clip(self.quality + off, 0, 1)))


def right_edits(truth: str) -> dict[tuple[bytes, str], Image.Image]:
    """Return the references of a suite by the pixels of the source and the instruction."""
    return {
        (_image(pair.source).tobytes(), pair.instruction): _image(pair.reference)
        for pair in load_suite(SuiteSettings(spec=truth)).pairs
        if pair.reference is not None
    }


def _image(source: ImageSource) -> Image.Image:
    return Image.open(io.BytesIO(source.read())).convert("RGB")
