"""How an edit is laid over its source: editors shift, scale and crop the frame a little."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Levels = NDArray[np.float32]
#: Longest sides in pixels at which an alignment is fitted, from coarse to fine, and the steps at
#: each.
FIT_SIDES = (32, 64, 128)
FIT_STEPS = 3
#: The least of the other side, in pixels.
MIN_SIDE = 4
#: Residuals of up to this many times their mean count, by side: at first all, so that the few edges
#: of a flat drawing do, then less, so that a changed object does not.
TOLERANCES = (100.0, 20.0, 6.0)
#: Added to that limit, in levels, so that small residuals count where their mean is near 0.
LEAST_LIMIT = 2.0
#: How far a fit may move from its start: a share of the scale, and a share of the side. Editors
#: that do nothing stay within 4%. With a wider reach, a fit may move a changed object out of the
#: frame.
MAX_SCALING = 0.06
MAX_SHIFT = 0.05
#: Source and edit must overlap on this share of each side.
MIN_OVERLAP = 0.5
#: If the ratio of the aspect ratios differs from 1 by more than this, crops are fitted too; a fit
#: reaches smaller ones anyway.
SQUASHED = 0.03
#: Added to the diagonal of the normal equations: relative, and absolute for flat images.
DAMPING = 1e-4
FLOOR = 1e-3


@dataclass(frozen=True)
class Axis:
    """Where a source lies in its edit along one axis: `scale` times the distance from the centre,
    plus `shift` in sides.
    """

    scale: float = 1.0
    shift: float = 0.0

    def moved(self, scaling: float, shift: float) -> "Axis":
        """Return the axis after a step of a fit."""
        return Axis(self.scale + scaling, self.shift + shift)

    def near(self, start: "Axis") -> "Axis":
        """Return this axis with scale and shift limited to what a fit from `start` may reach."""
        scaling = np.clip(self.scale / start.scale, 1 - MAX_SCALING, 1 + MAX_SCALING)
        shift = np.clip(self.shift, -MAX_SHIFT, MAX_SHIFT)
        return Axis(float(scaling * start.scale), float(shift))

    def overlap(self, side: int) -> slice:
        """Return the pixels of the source that the edit shows, without the outermost pixels of the
        edit; an empty slice if they are less than `MIN_OVERLAP` of the side.
        """
        in_edit = self.scale * _from_centre(side) + self.shift * side
        without_outermost = side / 2 - 1
        shown = np.flatnonzero(np.abs(in_edit) <= without_outermost)
        if len(shown) < MIN_OVERLAP * side:
            return slice(0, 0)
        return slice(int(shown[0]), int(shown[-1]) + 1)

    def offset(self, side: int) -> float:
        """Return the pixel of the edit on which pixel 0 of the source lies."""
        return (1 - self.scale) * side / 2 + self.shift * side


@dataclass(frozen=True)
class Alignment:
    """Where a source lies in its edit if both are resized to one size."""

    x: Axis
    y: Axis

    def overlap(self, size: tuple[int, int]) -> tuple[slice, slice]:
        """Return the rows and the columns of the source that the edit shows, of images of this
        (width, height); a slice is empty if they are too few to be compared.
        """
        width, height = size
        return self.y.overlap(height), self.x.overlap(width)

    def laid_over(self, edited: Image.Image, resampling: Image.Resampling) -> Levels:
        """Return an edit as it lies over its source, in levels of shape (H, W) or (H, W, 3)."""
        width, height = edited.size
        x_row = (self.x.scale, 0.0, self.x.offset(width))
        y_row = (0.0, self.y.scale, self.y.offset(height))
        laid = edited.transform(edited.size, Image.Transform.AFFINE, x_row + y_row, resampling)
        return np.asarray(laid, dtype=np.float32)


def alignments(source: Image.Image, edited: Image.Image, ratio: float) -> Iterator[Alignment]:
    """Yield the fitted alignments of an edit that was resized to the size of its source.

    `ratio` is the edit's aspect ratio before that over the source's. An edit with another aspect
    ratio may show the whole source squashed, a part of it, or more than it, so a fit starts from
    each of these.
    """
    source_grey = source.convert("L")
    edited_grey = edited.convert("L")
    pyramid = [(_reduced(source_grey, side), _reduced(edited_grey, side)) for side in FIT_SIDES]
    starts = [Alignment(Axis(), Axis())]
    if abs(ratio - 1) > SQUASHED:
        starts.append(Alignment(Axis(), Axis(ratio)))
        starts.append(Alignment(Axis(1 / ratio), Axis()))
    for start in starts:
        yield _fitted(start, pyramid)


def _reduced(image: Image.Image, side: int) -> Image.Image:
    """Return a grey image resized to this longest side, in floating point."""
    factor = side / max(image.size)
    size = (
        max(MIN_SIDE, round(image.width * factor)),
        max(MIN_SIDE, round(image.height * factor)),
    )
    return image.resize(size, Image.Resampling.BOX).convert("F")


def _fitted(start: Alignment, pyramid: list[tuple[Image.Image, Image.Image]]) -> Alignment:
    """Return the alignment fitted from coarse to fine, at each size by a fixed number of
    Gauss-Newton steps (Lucas and Kanade, 1981).
    """
    alignment = start
    for (source, edited), tolerance in zip(pyramid, TOLERANCES, strict=True):
        levels = np.asarray(source)
        for _ in range(FIT_STEPS):
            moved = _step(alignment, levels, edited, tolerance)
            alignment = Alignment(moved.x.near(start.x), moved.y.near(start.y))
    return alignment


def _step(alignment: Alignment, source: Levels, edited: Image.Image, tolerance: float) -> Alignment:
    """Return an alignment moved by one step of a robust least-squares fit, with contrast and
    brightness as further unknowns; the same one if nothing overlaps.
    """
    overlap = alignment.overlap(edited.size)
    laid = alignment.laid_over(edited, Image.Resampling.BILINEAR)
    rise_y, rise_x = np.gradient(laid)
    height, width = laid.shape
    unknowns = (
        rise_x * _from_centre(width),
        rise_x * width,
        rise_y * _from_centre(height)[:, None],
        rise_y * height,
        laid,
        np.ones_like(laid),
    )
    design = np.array([unknown[overlap].ravel() for unknown in unknowns], dtype=np.float64)
    residual = (source - laid)[overlap].ravel()
    if not residual.size:
        return alignment
    weighted = design * robust_weights(residual, tolerance)
    normal = weighted @ design.T
    normal += np.diag(DAMPING * np.diag(normal) + FLOOR)
    step = np.linalg.solve(normal, weighted @ residual)
    x_scaling, x_shift, y_scaling, y_shift, _contrast, _brightness = step.tolist()
    return Alignment(
        alignment.x.moved(x_scaling, x_shift),
        alignment.y.moved(y_scaling, y_shift),
    )


def robust_weights(residual: Levels, tolerance: float) -> Levels:
    """Return the weights of residuals: those far above `tolerance` times their mean, as of a
    changed object, hardly count (Geman and McClure, 1987).
    """
    limit = LEAST_LIMIT + tolerance * np.abs(residual).mean()
    root: Levels = 1 / (1 + np.square(residual / limit, dtype=np.float32))
    return root * root


def _from_centre(side: int) -> Levels:
    """Return how far the centre of each pixel of a side lies from the centre of the side."""
    return np.arange(side, dtype=np.float32) + np.float32(0.5 - side / 2)
