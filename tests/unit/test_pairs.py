"""Ids, categories and results."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.pairs import ItemError, ItemResult, category_slug, slug


@given(st.text(min_size=1))
def test_slug_is_always_a_safe_id(text):
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", slug(text))


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_texts_get_different_slugs_unless_unicode_calls_them_equal(first, second):
    import unicodedata

    if unicodedata.normalize("NFC", first) != unicodedata.normalize("NFC", second):
        assert slug(first) != slug(second)


@given(st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True).filter(lambda text: text.strip(".")))
def test_a_safe_id_stays_as_it_is(text):
    assert slug(text) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("physics", "physics"),
        ("物理", "physics"),
        (" Social ", "social"),
        ("causal_reasoning", "causal"),
        ("style", "style"),
    ],
)
def test_category_aliases_come_from_one_table(name, expected):
    assert category_slug(name) == expected


def test_unknown_category_in_any_script_becomes_its_own_slug():
    assert category_slug("风格") == "风格"
    assert category_slug("Weather Effects") == "Weather-Effects"
    assert category_slug("../up/") == "up"
    assert re.fullmatch(r"[0-9a-f]{8}", category_slug("?!"))


def test_check_passes_a_scored_item_and_fails_others_with_one_line():
    good = ItemResult("a", "physics", "scored", 6.0, {}, (), min_score=5.0)
    good.check()
    with pytest.raises(AssertionError, match=r"^score 4\.00 is under the suite's min_score 5$"):
        ItemResult("a", "physics", "scored", 4.0, {}, (), min_score=5.0).check()
    error = ItemError("edit", "oom", "out of memory")
    with pytest.raises(AssertionError, match=r"^edit error \(oom\): out of memory$"):
        ItemResult("a", "physics", "edit_error", None, {}, (), error).check()
