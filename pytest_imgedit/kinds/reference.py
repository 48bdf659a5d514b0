"""Judges without a model: one that measures the distance to the reference image, and none at
all.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.core.results import Measure
from pytest_imgedit.kinds.base import Model, Parameters

Pixels = NDArray[np.float64]

#: A pixel counts as changed where source and reference differ by more than this, on [0, 1].
CHANGED = 0.04
#: Mean absolute difference from which nothing counts as preserved, on [0, 1].
LOST = 0.1
#: PSNR of equal images, in dB, where the formula gives infinity.
MAX_PSNR = 100.0


class ReferenceJudge:
    """Scores 10·√(change · min(preserved, max(0, SSIM))) against the reference image.

    `change` = max(0, 1 − L1(edit, reference) / L1(source, reference)), both taken over the pixels
    in which source and reference differ: 0 where nothing was done, 1 where all was. It is 1 if they
    differ nowhere. `preserved` = max(0, 1 − L1(edit, reference) / 0.1) over the other pixels: 1
    where nothing else changed, 0 from a tenth of the range on. SSIM is taken over the whole
    picture. Aspects: `change` [0, 1], `preserved` [0, 1], `l1` [0, 1] mean absolute difference
    (lower is better), `psnr` in dB (at most 100), `ssim` [-1, 1]. The edit and the source are
    resized to the reference's size first. A pair without a reference is an error.
    """

    batch_size = 8

    def __init__(self, *, device: str) -> None:
        del device

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [self._measure(question) for question in questions]

    def _measure(self, question: Question) -> Answer:
        """Return the score and aspects of one edit; an error if the pair has no reference image."""
        if "reference" not in question.images:
            return Answer(
                error="the pair has no reference image, which the judge 'reference' needs"
            )
        reference = question.images["reference"]
        target = pixels(reference, reference.size)
        edited = pixels(question.images["edited"], reference.size)
        source = pixels(question.images["source"], reference.size)
        changed = np.abs(source - target).max(axis=-1) > CHANGED
        aspects = {
            "change": change(source, edited, target, changed),
            "preserved": preserved(edited, target, ~changed),
            "l1": float(np.abs(edited - target).mean()),
            "psnr": psnr(edited, target),
            "ssim": ssim(edited, target),
        }
        likeness = min(aspects["preserved"], max(0.0, aspects["ssim"]))
        return Answer(score=10 * math.sqrt(aspects["change"] * likeness), aspects=aspects)


def pixels(image: Image.Image, size: tuple[int, int]) -> Pixels:
    """Return an image, resized bicubically to (width, height), as RGB of shape (H, W, 3) on
    [0, 1].
    """
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC).convert("RGB"), np.float64) / 255


def change(source: Pixels, edited: Pixels, target: Pixels, region: NDArray[np.bool_]) -> float:
    """Return the share of the requested change that was made in a region (H, W), in [0, 1]; 1 if
    the region is empty. Images are (H, W, 3) on [0, 1].
    """
    if not region.any():
        return 1.0
    remaining = np.abs(edited - target)[region].mean()
    requested = np.abs(source - target)[region].mean()
    return max(0.0, 1 - float(remaining / requested))


def preserved(edited: Pixels, target: Pixels, region: NDArray[np.bool_]) -> float:
    """Return how well a region (H, W) was preserved, in [0, 1]: 0 from a mean absolute difference
    of `LOST` on, 1 if the region is empty. Images are (H, W, 3) on [0, 1].
    """
    if not region.any():
        return 1.0
    return max(0.0, 1 - float(np.abs(edited - target)[region].mean()) / LOST)


def psnr(image: Pixels, target: Pixels) -> float:
    """Return the peak signal-to-noise ratio in dB for a peak of 1, at most `MAX_PSNR`."""
    error = float(((image - target) ** 2).mean())
    return MAX_PSNR if error == 0 else min(MAX_PSNR, -10 * math.log10(error))


def ssim(image: Pixels, target: Pixels) -> float:
    """Return the structural similarity in [-1, 1], as the mean over pixels and channels.

    Gaussian window with σ = 1.5 and radius 5, K1 = 0.01, K2 = 0.03, peak 1 (Wang et al., IEEE TIP
    13(4), 2004).
    """
    from scipy.ndimage import gaussian_filter

    blur = partial(gaussian_filter, sigma=(1.5, 1.5, 0), radius=(5, 5, 0))
    c1 = 0.01**2
    c2 = 0.03**2
    mean_i = blur(image)
    mean_t = blur(target)
    var_i = blur(image * image) - mean_i**2
    var_t = blur(target * target) - mean_t**2
    covariance = blur(image * target) - mean_i * mean_t
    numerator = (2 * mean_i * mean_t + c1) * (2 * covariance + c2)
    denominator = (mean_i**2 + mean_t**2 + c1) * (var_i + var_t + c2)
    return float((numerator / denominator).mean())


class Reference(Model):
    """The distance to the reference image, 10·√(change · min(preserved, SSIM)), as the docstring of
    `ReferenceJudge` defines it.
    """

    role = "judge"
    name = "reference"
    worker = ReferenceJudge
    has_weights = False
    measures = True
    aspects: ClassVar[Mapping[str, Measure]] = {
        "change": Measure(scale=(0.0, 1.0), is_main=True),
        "preserved": Measure(scale=(0.0, 1.0), is_main=True),
        "l1": Measure(scale=(0.0, 1.0), lower_is_better=True),
        "psnr": Measure(scale=(0.0, MAX_PSNR)),
        "ssim": Measure(scale=(-1.0, 1.0)),
    }
    blind_to_words = "it does not read instructions"

    @property
    def needs_reference(self) -> bool:
        return True


class NoJudge(Model):
    """No judge: the run ends with its edits."""

    role = "judge"
    name = "none"
    worker = type(None)
    Params = Parameters
    has_weights = False
    scores = False
