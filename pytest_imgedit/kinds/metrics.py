"""Metrics: what they share, and `psnr` and `ssim`, which need no weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from PIL import Image
from pydantic import Field

from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.core.results import Measure
from pytest_imgedit.kinds import reference
from pytest_imgedit.kinds.base import Metric, Parameters

#: Edits that a worker compares at a time: NumPy and SciPy compute each in one thread.
THREADS = 4
#: The image that an edit is compared with.
Against = Literal["source", "reference"]


def against_field() -> Any:
    """Return the field for the parameter `against` of metrics that compare an edit with another
    image.
    """
    return Field(
        default="source",
        description="the image that the edit is compared with; the edit is resized to its size "
        'first, bicubically. `"reference"` needs a reference image in every pair',
    )


class ComparisonParameters(Parameters):
    """What the metrics `psnr` and `ssim` take."""

    against: Against = against_field()


def images_to_compare(question: Question, against: Against) -> tuple[Image.Image, Image.Image]:
    """Return the edit, resized bicubically, and the image of the same size that it is compared
    with.
    """
    target = question.images[against]
    return question.images["edited"].resize(target.size, Image.Resampling.BICUBIC), target


def missing(against: Against) -> Answer:
    """Return the answer for a pair without the image to compare with: an error."""
    return Answer(
        error=f"the pair has no {against} image, which the parameter against={against!r} needs"
    )


def finite_score(value: float) -> Answer:
    """Return the answer with a value; an error if it is not finite."""
    if not math.isfinite(value):
        return Answer(error=f"the metric is {value}, expected a finite number")
    return Answer(score=value)


class PixelComparison(ABC):
    """Compares pixels on [0, 1] by a formula; `params` are those of `ComparisonParameters`."""

    batch_size = 8

    def __init__(self, *, device: str, **params: Any) -> None:
        del device
        self.against: Against = ComparisonParameters.parse(params).against
        self._threads = ThreadPoolExecutor(THREADS)

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one value a question, or an error for a pair without the image to compare
        with.
        """
        return list(self._threads.map(self._answer, questions))

    def _answer(self, question: Question) -> Answer:
        if self.against not in question.images:
            return missing(self.against)
        size = question.images[self.against].size
        edited = reference.pixels(question.images["edited"], size)
        target = reference.pixels(question.images[self.against], size)
        return finite_score(self.formula(edited, target))

    @abstractmethod
    def formula(self, edited: reference.Pixels, target: reference.Pixels) -> float:
        """Return the value for two images of shape (H, W, 3) on [0, 1]."""


class PSNRComparison(PixelComparison):
    """Peak signal-to-noise ratio over all pixels and channels, in dB, at most 100."""

    def formula(self, edited: reference.Pixels, target: reference.Pixels) -> float:
        return reference.psnr(edited, target)


class SSIMComparison(PixelComparison):
    """Structural similarity, mean over all pixels and channels."""

    def formula(self, edited: reference.Pixels, target: reference.Pixels) -> float:
        return reference.ssim(edited, target)


class PSNR(Metric):
    """Peak signal-to-noise ratio in dB over all pixels and channels; 100 for equal images."""

    name = "psnr"
    worker = PSNRComparison
    Params = ComparisonParameters
    has_weights = False
    measure = Measure(scale=(0.0, reference.MAX_PSNR))


class SSIM(Metric):
    """Structural similarity: Gaussian window with σ = 1.5 and radius 5, mean over all pixels and
    channels; 1 for equal images.
    """

    name = "ssim"
    worker = SSIMComparison
    Params = ComparisonParameters
    has_weights = False
    measure = Measure(scale=(-1.0, 1.0))
