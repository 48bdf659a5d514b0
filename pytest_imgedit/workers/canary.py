"""One small edit that every host of a run makes when its editor has loaded, so that hosts that differ are found."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from pytest_imgedit.core.environments import Environment
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.protocol import EditMessage
from pytest_imgedit.workers.base import Worker

#: Levels out of 255 by which, on average over all values, edits of hosts may differ whose GPUs or libraries differ.
TOLERANCE = 4.0


def canary_edit() -> EditMessage:
    """Return the message of the edit: a gradient to be made brighter."""
    return {
        "pair": "canary",
        "category": "default",
        "instruction": "make it brighter",
        "source": encode_png(Image.linear_gradient("L")),
        "reference": None,
        "seed": 0,
    }


class Canaries:
    """The edits that hosts have made, and the first of them, with which all others are compared."""

    def __init__(self, decides: bool) -> None:
        self.decides = decides
        self._first: tuple[Worker, Environment, bytes] | None = None

    def compare(self, worker: Worker, image: bytes | None) -> str | None:
        """Compare a worker's edit with that of the first; return what to say of it, if anything.

        Hosts of equal GPUs and libraries must make equal pixels, others alike ones. Raises `UsageError` if they do
        not; where this does not decide, as for an editor that may draw on more than its seed, it is said only.
        """
        if image is None:
            return f"{worker.slot.label} could not edit the canary pair: hosts are compared by their files alone"
        if self._first is None:
            self._first = (worker, worker.computes_in, image)
            return None
        other, environment, expected = self._first
        if image == expected:
            return None
        one, two = (np.asarray(Image.open(io.BytesIO(data)), dtype=np.float64) for data in (expected, image))
        alike = environment == worker.computes_in
        if one.shape == two.shape:
            mean, largest = float(np.abs(one - two).mean()), float(np.abs(one - two).max())
            found = f"the canary pair by {largest:.0f} of 255 at most, {mean:.2f} on average"
            fits = not alike and mean <= TOLERANCE
        else:
            found, fits = f"the canary pair in size ({one.shape} and {two.shape})", False
        text = f"{worker.slot.label} and {other.slot.label} edit {found}"
        if fits or not self.decides:
            return text
        raise UsageError(f"{text}, expected {'equal pixels' if alike else f'at most {TOLERANCE:g} on average'}")
