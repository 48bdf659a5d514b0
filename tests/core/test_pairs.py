"""Ids, categories and results."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_imgedit.core.items import ItemFailed, ItemResult
from pytest_imgedit.core.pairs import category_slug, slug
from pytest_imgedit.core.results import ItemError, SeedResult, Verdict


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


def test_check_passes_a_scored_item_and_fails_others_with_a_reason():
    good = ItemResult("a", "physics", "scored", 6.0, {}, (), min_score=5.0)
    good.check()
    with pytest.raises(ItemFailed) as caught:
        ItemResult("a", "physics", "scored", 4.0, {}, (), min_score=5.0).check()
    assert caught.value.reason == "score 4.00 is under the suite's min_score 5"
    error = ItemError("edit", "oom", "out of memory")
    with pytest.raises(ItemFailed) as caught:
        ItemResult("a", "physics", "edit_error", None, {}, (), error).check()
    assert caught.value.reason == "out of memory (edit error: oom)"


def test_failing_pair_says_what_was_asked_what_the_judge_said_and_where_to_look(tmp_path):
    verdict = Verdict({"a": "instruction: 2\nrealism: \x1b[31m3"}, {"instruction": 2.0}, 2.4)
    paths = {
        "source": tmp_path / "s.png",
        "edited": tmp_path / "e.png",
        "report": tmp_path / "report.html",
    }
    seeds = (SeedResult(0, None, verdict),)
    item = ItemResult(
        "a", "physics", "scored", 2.4, {"instruction": 2.0}, seeds, None, "make it rain", paths, 5.0
    )
    with pytest.raises(ItemFailed) as caught:
        item.check()
    lines = str(caught.value).splitlines()
    assert lines[:5] == [
        "score 2.40 is under the suite's min_score 5",
        "  pair: a (physics)",
        "  instruction: make it rain",
        "  aspects: instruction 2.00",
        r"  judge: instruction: 2 / realism: \x1b[31m3",
    ]
    assert [line.partition(":")[0] for line in lines[5:]] == ["  source", "  edited", "  report"]
    assert lines[-1].endswith("report.html#view-a")


def test_images_of_an_item_are_read_when_asked_for(tmp_path):
    Image.new("RGB", (20, 10), "red").save(tmp_path / "s.png")
    error = ItemError("edit", "oom", "out of memory")
    item = ItemResult(
        "a", "physics", "edit_error", None, {}, (), error, paths={"source": tmp_path / "s.png"}
    )
    assert item.source.size == (20, 10)
    assert item.reference is None
    with pytest.raises(ItemFailed, match="out of memory"):
        _ = item.edited
