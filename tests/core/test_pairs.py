"""Ids, categories and results."""

from __future__ import annotations

import re

import pytest
from documents import an_item
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


def test_an_item_of_several_sources_gives_them_in_the_order_of_the_pair(tmp_path):
    blobs = [f"{color}/{color * 32}.png" for color in ("a1", "a2", "a3")]
    for number, blob in enumerate(blobs, 1):
        path = tmp_path / "blobs" / blob
        path.parent.mkdir(parents=True)
        Image.new("RGB", (10 * number, 20)).save(path)
    shown = {"source": blobs[1], "further": (blobs[0], blobs[2]), "edited_source": 2}
    item = ItemResult.of(an_item("a", score=4.0, **shown), 5.0, tmp_path, tmp_path / "report.html")
    assert [image.width for image in item.sources] == [10, 20, 30]
    assert item.source.width == 20
    assert item.paths["source-3"] == tmp_path / "blobs" / blobs[2]
    with pytest.raises(ItemFailed) as caught:
        item.check()
    names = [line.split(":")[0].strip() for line in str(caught.value).splitlines()]
    assert names[-5:] == ["source-1", "source", "source-3", "edited", "report"]


def test_a_source_keeps_its_name_though_none_of_the_others_could_be_read(tmp_path):
    item = an_item("a", score=None, error=ItemError("edit", "bad_image", "x"), edited_source=2)
    assert item.sources == {"source": item.source}
    assert ItemResult.of(item, None, tmp_path, tmp_path).paths["source"]


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
