"""How much an edit changes what its source shows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_imgedit.kinds.registration import Levels, placements, robust_weights

#: Longest side in pixels at which both images are compared, and the least of the other.
SIDE, MIN_SIDE = 256, 32
#: Side of the windows whose largest mean is the change: 6% of the longest side.
WINDOW = 16
#: In a busy neighbourhood, of windows of this side, a difference counts less: half if the standard
#: deviation there is `HALVING` levels.
NEIGHBOURHOOD, HALVING = 20, 14.0
#: The largest change of contrast, as a factor, and of brightness, in levels, that is taken as no
#: change of what the image shows.
MAX_CONTRAST, MAX_BRIGHTNESS = 1.5, 48.0
#: Every so many pixels of a row and column are used to fit the tone, in so many steps.
TONE_STRIDE, TONE_STEPS = 4, 4
#: Residuals of so many times their mean still count for the tone.
TONE_TOLERANCE = 3.0
#: Weights of the channels in a mean.
GREY = np.full(3, 1 / 3, dtype=np.float32)
#: The change of an edit that cannot be laid over its source.
LARGEST = 255.0


def change(source: Image.Image, edited: Image.Image) -> float:
    """Return how much an edit changes what its source shows, from 0 (nothing) to 255.

    Both RGB images are reduced, and the edit is laid over its source and brought to its contrast
    and brightness. Each pixel counts by how far it lies outside the levels that the other image has
    within one pixel, in levels of 255, and less where both images are busy. The result is the
    largest mean of a window, so that a small object counts as much as a large one.

    The steps above forgive small shifts and scales, resampling, codecs and autoencoders, and also a
    change of contrast or brightness alone. Of an edit with another aspect ratio, only what both
    images show is compared.
    """
    if source.size == edited.size and source.tobytes() == edited.tobytes():
        return 0.0
    factor = SIDE / max(source.size)
    size = (
        max(MIN_SIDE, round(source.width * factor)),
        max(MIN_SIDE, round(source.height * factor)),
    )
    first, second = (
        image.resize(size, Image.Resampling.HAMMING, reducing_gap=1.3) for image in (source, edited)
    )
    ratio = edited.width * source.height / (edited.height * source.width)
    changes = [LARGEST]
    for placement in placements(first, second, ratio):
        overlap = placement.overlap(size)
        before = np.asarray(first, dtype=np.float32)[overlap]
        after = placement.laid_over(second, Image.Resampling.BICUBIC)[overlap]
        if min(before.shape[:2]) >= WINDOW:
            changes.append(_largest_difference(*_of_one_tone(before, after)))
    return round(min(changes), 2)


def _of_one_tone(before: Levels, after: Levels) -> tuple[Levels, Levels]:
    """Bring an edit to the contrast and brightness of its source, each channel by itself.

    Of the source, what the edit's tone cuts off is cut off too.
    """
    before, after = before.copy(), after.copy()
    for channel in range(3):
        contrast, brightness = _tone(
            before[::TONE_STRIDE, ::TONE_STRIDE, channel].ravel(),
            after[::TONE_STRIDE, ::TONE_STRIDE, channel].ravel(),
        )
        after[..., channel] = np.clip(contrast * after[..., channel] + brightness, 0, 255)
        darkest, lightest = brightness, contrast * 255 + brightness
        before[..., channel] = np.clip(before[..., channel], darkest, lightest)
    return before, after


def _tone(target: Levels, levels: Levels) -> tuple[float, float]:
    """Fit the contrast and brightness that bring levels to their targets, by iteratively reweighted
    least squares.
    """
    weights = np.ones_like(levels)
    for _ in range(TONE_STEPS):
        total = weights.sum()
        mean, target_mean = float(weights @ levels / total), float(weights @ target / total)
        deviations = levels - mean
        weighted = weights * deviations
        contrast = float((weighted @ (target - target_mean) + 1) / (weighted @ deviations + 1))
        contrast = min(max(contrast, 1 / MAX_CONTRAST), MAX_CONTRAST)
        weights = robust_weights(target - target_mean - contrast * deviations, TONE_TOLERANCE)
    shift = min(max(target_mean - mean, -MAX_BRIGHTNESS), MAX_BRIGHTNESS)
    return contrast, mean + shift - contrast * mean


def _largest_difference(before: Levels, after: Levels) -> float:
    """Return the largest mean difference of a window; differences in busy places count less."""
    outside = np.maximum(_outside(before, after), _outside(after, before)) @ GREY
    busy = np.minimum(_spread(before @ GREY), _spread(after @ GREY))
    return float(_window_means(outside / (1 + busy / HALVING), WINDOW).max())


def _outside(levels: Levels, other: Levels) -> Levels:
    """Return how far pixels lie outside the range of the other image within one pixel."""
    padded = np.pad(other, ((1, 1), (1, 1), (0, 0)), mode="edge")
    low, high = _of_three(padded, np.minimum), _of_three(padded, np.maximum)
    return np.abs(levels - np.clip(levels, low, high))


def _of_three(padded: Levels, extreme: np.ufunc) -> Levels:
    """Return the smallest or largest of each pixel and its eight neighbours."""
    rows = extreme(extreme(padded[:-2], padded[1:-1]), padded[2:])
    return np.asarray(extreme(extreme(rows[:, :-2], rows[:, 1:-1]), rows[:, 2:]))


def _spread(grey: Levels) -> Levels:
    """Return the standard deviation around each pixel."""
    half = NEIGHBOURHOOD // 2
    padded = np.pad(grey, ((half, half - 1), (half, half - 1)), mode="symmetric")
    variance = _window_means(padded**2, NEIGHBOURHOOD) - _window_means(padded, NEIGHBOURHOOD) ** 2
    return np.asarray(np.sqrt(np.maximum(variance, 0)), dtype=np.float32)


def _window_means(values: NDArray[np.floating[Any]], side: int) -> NDArray[np.float64]:
    """Return the mean of each square window of a side, from a table of sums."""
    sums = np.pad(values.astype(np.float64), ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    totals: NDArray[np.float64] = (
        sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    )
    return totals / side**2
