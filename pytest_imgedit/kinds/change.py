"""How much an edit changes what its source shows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_imgedit.kinds.image_registration import Levels, alignments, robust_weights

#: Longest side in pixels at which both images are compared, and the least of the other.
SIDE = 256
MIN_SIDE = 32
#: Before the filter resizes a large image, boxes reduce it to no less than this many times its size
#: afterwards.
REDUCING_GAP = 1.3
#: Side of the windows whose largest mean is the change: 6% of the longest side.
WINDOW = 16
#: In a busy neighbourhood, of windows of this side, a difference counts less: half if the standard
#: deviation there is `HALVING` levels.
NEIGHBOURHOOD = 20
HALVING = 14.0
#: The largest change of contrast, as a factor, and of brightness, in levels, that is taken as no
#: change of what the image shows.
MAX_CONTRAST = 1.5
MAX_BRIGHTNESS = 48.0
#: The tone is fitted in `TONE_STEPS` steps to every fourth pixel of every fourth row.
TONE_STRIDE = 4
TONE_STEPS = 4
#: Residuals of up to this many times their mean count for the tone.
TONE_TOLERANCE = 3.0
#: Added to covariance and variance, so that the contrast of a flat channel is near 1.
TONE_RIDGE = 1.0
#: Weights of the channels in a mean.
GREY = np.full(3, 1 / 3, dtype=np.float32)
#: The change of an edit that cannot be laid over its source.
LARGEST = 255.0


def change(source: Image.Image, edited: Image.Image) -> float:
    """Return how much an edit changes what its source shows, from 0 (nothing) to 255.

    Both RGB images are resized, and the edit is laid over its source and brought to its contrast
    and brightness. Each pixel counts by how far it lies outside the levels that the other image has
    within one pixel, in levels of 255, and less where both images are busy. The result is the
    largest mean of a window, so that a small object counts as much as a large one.

    The steps above forgive small shifts and scales, resampling, codecs and autoencoders, and also a
    change of contrast or brightness alone. If the aspect ratios differ, only what both images show
    is compared.
    """
    if source.size == edited.size and source.tobytes() == edited.tobytes():
        return 0.0
    factor = SIDE / max(source.size)
    size = (
        max(MIN_SIDE, round(source.width * factor)),
        max(MIN_SIDE, round(source.height * factor)),
    )
    first = source.resize(size, Image.Resampling.HAMMING, reducing_gap=REDUCING_GAP)
    second = edited.resize(size, Image.Resampling.HAMMING, reducing_gap=REDUCING_GAP)
    ratio = edited.width * source.height / (edited.height * source.width)
    changes = [LARGEST]
    for alignment in alignments(first, second, ratio):
        overlap = alignment.overlap(size)
        before = np.asarray(first, dtype=np.float32)[overlap]
        after = alignment.laid_over(second, Image.Resampling.BICUBIC)[overlap]
        if min(before.shape[:2]) >= WINDOW:
            before, after = _of_one_tone(before, after)
            changes.append(_largest_difference(before, after))
    return round(min(changes), 2)


def _of_one_tone(before: Levels, after: Levels) -> tuple[Levels, Levels]:
    """Return copies of a source and its edit, the edit brought to the source's contrast and
    brightness, each channel by itself.

    The source is clipped to the levels that the edit can then have.
    """
    before = before.copy()
    after = after.copy()
    for channel in range(3):
        tone = _fitted_tone(
            after[::TONE_STRIDE, ::TONE_STRIDE, channel].ravel(),
            before[::TONE_STRIDE, ::TONE_STRIDE, channel].ravel(),
        )
        toned = tone.contrast * after[..., channel] + tone.brightness
        after[..., channel] = np.clip(toned, 0, 255)
        lightest = tone.contrast * 255 + tone.brightness
        before[..., channel] = np.clip(before[..., channel], tone.brightness, lightest)
    return before, after


class Tone(NamedTuple):
    """What brings levels to their targets: a contrast around their mean, and another mean."""

    contrast: float
    mean: float
    target_mean: float

    @classmethod
    def fit(cls, levels: Levels, targets: Levels, weights: Levels) -> "Tone":
        """Return the tone that brings levels closest to targets, by weighted least squares."""
        total = weights.sum()
        mean = float(weights @ levels / total)
        target_mean = float(weights @ targets / total)
        deviations = levels - mean
        weighted = weights * deviations
        covariance = weighted @ (targets - target_mean)
        variance = weighted @ deviations
        contrast = float((covariance + TONE_RIDGE) / (variance + TONE_RIDGE))
        return cls(_clamped(contrast, 1 / MAX_CONTRAST, MAX_CONTRAST), mean, target_mean)

    def residuals(self, levels: Levels, targets: Levels) -> Levels:
        """Return by how much levels miss their targets."""
        return targets - self.target_mean - self.contrast * (levels - self.mean)

    @property
    def brightness(self) -> float:
        """What is added to levels that were multiplied by the contrast."""
        shift = _clamped(self.target_mean - self.mean, -MAX_BRIGHTNESS, MAX_BRIGHTNESS)
        return self.mean + shift - self.contrast * self.mean


def _fitted_tone(levels: Levels, targets: Levels) -> Tone:
    """Return the tone fitted by iteratively reweighted least squares."""
    tone = Tone.fit(levels, targets, np.ones_like(levels))
    for _ in range(TONE_STEPS - 1):
        weights = robust_weights(tone.residuals(levels, targets), TONE_TOLERANCE)
        tone = Tone.fit(levels, targets, weights)
    return tone


def _clamped(value: float, lowest: float, highest: float) -> float:
    return min(max(value, lowest), highest)


def _largest_difference(before: Levels, after: Levels) -> float:
    """Return the largest mean difference of all windows; differences in busy places count less."""
    outside = np.maximum(_outside(before, after), _outside(after, before)) @ GREY
    busy = np.minimum(_spread(before @ GREY), _spread(after @ GREY))
    return float(_window_means(outside / (1 + busy / HALVING), WINDOW).max())


def _outside(levels: Levels, other: Levels) -> Levels:
    """Return how far each pixel (H, W, 3) lies outside the range that the other image has within
    one pixel of it.
    """
    padded = np.pad(other, ((1, 1), (1, 1), (0, 0)), mode="edge")
    low = _of_neighbours(padded, np.minimum)
    high = _of_neighbours(padded, np.maximum)
    return np.abs(levels - np.clip(levels, low, high))


def _of_neighbours(padded: Levels, extreme: np.ufunc) -> Levels:
    """Return the `extreme` (smallest or largest) of each pixel and its eight neighbours.

    `scipy.ndimage.minimum_filter` gives the same, and takes 13 times as long.
    """
    rows = extreme(extreme(padded[:-2], padded[1:-1]), padded[2:])
    return np.asarray(extreme(extreme(rows[:, :-2], rows[:, 1:-1]), rows[:, 2:]))


def _spread(grey: Levels) -> Levels:
    """Return the standard deviation in the window of side `NEIGHBOURHOOD` around each pixel."""
    half = NEIGHBOURHOOD // 2
    padded = np.pad(grey, ((half, half - 1), (half, half - 1)), mode="symmetric")
    mean = _window_means(padded, NEIGHBOURHOOD)
    variance = _window_means(padded**2, NEIGHBOURHOOD) - mean**2
    return np.asarray(np.sqrt(np.maximum(variance, 0)), dtype=np.float32)


def _window_means(values: NDArray[np.floating[Any]], side: int) -> NDArray[np.float64]:
    """Return the mean of every square window with this side, from a table of sums; values of shape
    (H, W) have means of shape (H - side + 1, W - side + 1).
    """
    # sums[y, x] is the sum of values[:y, :x]
    sums = np.pad(values.astype(np.float64), ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    to_right = sums[:, side:]
    to_left = sums[:, :-side]
    totals: NDArray[np.float64] = (
        to_right[side:] - to_right[:-side] - to_left[side:] + to_left[:-side]
    )
    return totals / side**2
