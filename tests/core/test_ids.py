"""Readable ids for pairs of any suite."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.suites.native import Ids

NAMES = st.lists(st.text(min_size=1), unique=True, max_size=8)


def of_images(*paths):
    ids = Ids([], paths)
    return [ids.of_image(path, f"text {place}", "physics") for place, path in enumerate(paths)]


@given(NAMES)
def test_names_of_any_script_get_safe_ids(names):
    ids = Ids(names, [])
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,128}", ids.named(name)) for name in names)


@given(NAMES, st.randoms())
def test_ids_do_not_depend_on_the_order(names, random):
    shuffled = random.sample(names, len(names))
    first, second = Ids(names, names), Ids(shuffled, shuffled)
    assert [first.named(name) for name in names] == [second.named(name) for name in names]
    assert [first.of_image(name, "", "a") for name in names] == [
        second.of_image(name, "", "a") for name in names
    ]


def test_names_that_are_safe_stay_as_they_are():
    assert Ids(["a.b_c-1"], []).named("a.b_c-1") == "a.b_c-1"


def test_names_lose_what_is_not_safe_and_keep_apart():
    names = ["00000_物理_medium", "00001_物理_medium", "猫", "a 猫", "a 犬"]
    first, second, cat, *others = (Ids(names, []).named(name) for name in names)
    assert (first, second) == ("00000-medium", "00001-medium")
    assert re.fullmatch("[0-9a-f]{8}", cat)
    assert all(re.fullmatch("a-[0-9a-f]{8}", name) for name in others)
    assert len({*others}) == 2


def test_images_give_their_stem_where_that_is_unique():
    assert of_images("photos/img_000.jpg", "photos/img_001.jpg") == ["img_000", "img_001"]
    cat, spaced = of_images("photos/猫.jpg", "photos/a 1.jpg")
    assert spaced == "a-1"
    assert re.fullmatch("physics-[0-9a-f]{8}", cat)


def test_images_of_one_name_in_two_folders_give_their_path():
    assert of_images("a/1.png", "b/1.png", "b/2.png") == ["a-1", "b-1", "2"]


@given(st.text(), st.text(min_size=1))
def test_a_pair_without_a_name_gets_a_safe_id(path, category):
    ids = Ids([], [path, path])
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", ids.of_image(path, "make it snow", category))


def test_ids_without_a_path_keep_what_is_safe_of_the_category():
    assert re.fullmatch("[0-9a-f]{8}", Ids([], []).of_image("", "make it snow", "自定义"))
    assert re.fullmatch("own-[0-9a-f]{8}", Ids([], []).of_image("", "make it snow", "own定"))


def test_a_long_name_of_an_image_leaves_room_for_the_digest():
    path = f"{'a' * 125}.png"
    assert len(Ids([], [path, path]).of_image(path, "make it snow", "physics")) <= 128


def test_pairs_of_one_image_differ_by_a_digest():
    first, second = of_images("a/1.png", "a/1.png")
    assert first != second
    assert all(re.fullmatch("1-[0-9a-f]{8}", name) for name in (first, second))


def test_a_pair_without_a_path_is_called_by_its_category():
    assert re.fullmatch("physics-[0-9a-f]{8}", of_images("")[0])
