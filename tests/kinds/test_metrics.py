"""Metrics without weights: their values, what they are compared with, and what is an error."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.core.requests import Question
from pytest_imgedit.kinds import metrics
from pytest_imgedit.kinds.registry import make_model


def picture(seed: int = 0) -> Image.Image:
    patches = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize((48, 40), Image.Resampling.BICUBIC)


def noisy(image: Image.Image) -> Image.Image:
    noise = np.random.default_rng(2).integers(-20, 21, (40, 48, 3))
    return Image.fromarray((np.asarray(image, int) + noise).clip(0, 255).astype(np.uint8))


SOURCE = picture()
EDITS = {"noisy": noisy(SOURCE), "other": picture(1), "dark": SOURCE.point(lambda v: v // 2)}


def answer(spec, edited, params=None, **images):
    """Measure one edit of `SOURCE`."""
    model = make_model("metric", spec, params or {})
    question = Question("a", "physics", "x", {"source": SOURCE, "edited": edited, **images})
    return model.target.build("cpu", model.worker_params).answer([question])[0]


# scikit-image 0.26.0: peak_signal_noise_ratio(source, edit, data_range=1), and the mean of the map
# of structural_similarity(source, edit, gaussian_weights=True, sigma=1.5, data_range=1,
# use_sample_covariance=False, channel_axis=-1, full=True), of images on [0, 1] as float64
@pytest.mark.parametrize(
    ("spec", "edit", "value"),
    [
        ("psnr", "noisy", 26.708017249047053),
        ("psnr", "other", 9.022938242227488),
        ("psnr", "dark", 10.710391932098522),
        ("ssim", "noisy", 0.8760297483163969),
        ("ssim", "other", 0.011015296461616038),
        ("ssim", "dark", 0.6548319405425318),
    ],
)
def test_values_are_those_of_scikit_image(spec, edit, value):
    assert answer(spec, EDITS[edit]).score == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("spec", "best"), [("psnr", 100), ("ssim", 1)])
def test_an_untouched_source_has_the_end_of_the_scale(spec, best):
    assert make_model("metric", spec, {}).measure.scale[1] == best
    assert answer(spec, SOURCE).score == pytest.approx(best)


@pytest.mark.parametrize("spec", ["psnr", "ssim"])
def test_edit_is_compared_with_the_reference_if_that_is_asked_for(spec):
    reference = EDITS["dark"]
    against = {"against": "reference"}
    model = make_model("metric", spec, against)
    assert model.needs_reference
    assert not make_model("metric", spec, {}).needs_reference
    equal = answer(spec, reference, against, reference=reference)
    untouched = answer(spec, SOURCE, against, reference=reference)
    assert equal.score == pytest.approx(model.measure.scale[1])
    assert untouched.score < equal.score
    assert answer(spec, reference, reference=reference).score == pytest.approx(untouched.score)


def test_pair_without_a_reference_is_an_error_and_the_others_keep_their_values():
    model = make_model("metric", "psnr", {"against": "reference"})
    images = {"source": SOURCE, "edited": SOURCE}
    questions = [
        Question("a", "physics", "x", {**images, "reference": EDITS["dark"]}),
        Question("b", "physics", "x", images),
        Question("c", "physics", "x", {**images, "reference": SOURCE}),
    ]
    first, second, third = model.target.build("cpu", model.worker_params).answer(questions)
    assert first.score == pytest.approx(10.710391932098522)
    assert second.score is None
    assert second.error == (
        "the pair has no reference image, which the parameter against='reference' needs"
    )
    assert third.score == 100


def test_edit_of_another_size_is_resized_to_the_image_that_it_is_compared_with():
    big = SOURCE.resize((192, 160), Image.Resampling.BICUBIC)
    resized = big.resize(SOURCE.size, Image.Resampling.BICUBIC)
    assert answer("psnr", big).score == pytest.approx(answer("psnr", resized).score)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_value_that_is_no_finite_number_is_an_error(value):
    assert metrics.finite_score(value).score is None
    assert "expected a finite number" in metrics.finite_score(value).error


def test_wrong_parameter_is_named():
    with pytest.raises(SettingError, match=r"'source' or 'reference', found 'edited'") as problem:
        make_model("metric", "ssim", {"against": "edited"}).options  # noqa: B018
    assert problem.value.key == "against"


def test_metric_without_weights_takes_no_argument():
    with pytest.raises(UsageError, match="metric 'psnr' takes no argument, found 'x'"):
        make_model("metric", "psnr:x", {})


def test_metric_of_the_documentation_measures_as_a_class_and_as_a_kind():
    page = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
    text = page.read_text().partition("## A metric of your own")[2]
    names = {"__name__": "page"}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, names)
    white, grey = Image.new("RGB", (8, 8), "white"), Image.new("RGB", (4, 4), (155, 155, 155))
    question = Question("a", "physics", "x", {"source": white, "edited": grey})
    kind = names["DifferenceMetric"].of("difference", None, {})
    assert kind.role == "metric"
    assert kind.measure.lower_is_better
    assert names["Difference"](device="cpu").answer([question])[0].score == 100
