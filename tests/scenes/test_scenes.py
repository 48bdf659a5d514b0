"""The embedded suite: deterministic, bilingual, varied, and each reference differs where it
must.
"""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import decode
from pytest_imgedit.scenes.canvas import Canvas
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.scenes import TEMPLATES, make_scene

EVERY = [
    (category, index)
    for category, templates in TEMPLATES.items()
    for index in range(len(templates))
]


def suite(spec, **settings):
    return load_suite(SuiteSettings(spec=spec, **settings))


def pixels(image):
    return np.asarray(decode(image.read()), dtype=np.int16)


@pytest.mark.parametrize(
    ("spec", "counts"),
    [("scenes", [20] * 5), ("scenes:full", [50, 50, 70, 50, 50]), ("scenes:n=3,seed=4", [3] * 5)],
)
def test_counts_by_category(spec, counts):
    pairs = suite(spec).pairs
    assert [sum(pair.category == category for pair in pairs) for category in TEMPLATES] == counts


def test_every_category_has_at_least_four_templates():
    assert all(len(templates) >= 4 for templates in TEMPLATES.values())


@pytest.mark.parametrize(("category", "index"), EVERY)
@pytest.mark.everyday
def test_template_draws_a_change_and_says_it_in_two_languages(category, index):
    for seed in range(6):
        scene = make_scene(category, index, seed)
        before, after = Canvas(), Canvas()
        scene.draw(before, False)
        scene.draw(after, True)
        first, last = before.finish(), after.finish()
        assert first.size == last.size == (128, 128)
        changed = (
            np.abs(np.asarray(first, dtype=np.int16) - np.asarray(last, dtype=np.int16)).max(
                axis=-1
            )
            > 10
        )
        assert changed.mean() > 0.0015, (category, index, seed)
        for text in (scene.instruction, scene.description, scene.result):
            assert text.en.isascii()
            assert text.en.endswith(".")
            assert not text.zh.isascii()
            assert "{" not in text.en + text.zh


def test_the_same_id_and_seed_always_draw_the_same_picture():
    once, again = suite("scenes").pairs, suite("scenes").pairs
    make_scene.cache_clear()
    for one, two in zip(once, again, strict=True):
        assert one.source.read() == two.source.read()
        assert one.reference.read() == two.reference.read()


def test_different_seeds_draw_different_pictures():
    first, second = suite("scenes:n=5,seed=1").pairs, suite("scenes:n=5,seed=2").pairs
    assert all(
        not np.array_equal(pixels(a.source), pixels(b.source))
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.everyday
def test_hundreds_of_pairs_are_all_different():
    pairs = suite("scenes:n=60").pairs
    assert len({(pair.source.read(), pair.instruction) for pair in pairs}) == len(pairs) == 300


def test_no_file_is_needed_and_pictures_are_antialiased():
    image = Image.fromarray(pixels(suite("scenes").pairs[0].source).astype(np.uint8))
    assert len(image.getcolors(100_000)) > 200


def test_language_chooses_the_texts():
    assert suite("scenes", language="zh").pairs[0].instruction == "把架子拿走。"


@pytest.mark.parametrize("argument", ["all", "n=x", "n=-1", "n=0", "m=3", "n=٣"])
def test_other_arguments_are_usage_errors(argument):
    with pytest.raises(UsageError, match="expected full, or n=NUMBER and seed=NUMBER"):
        suite(f"scenes:{argument}")
