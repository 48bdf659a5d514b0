"""The GPU list parser, visibility and grouping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.errors import UsageError
from pytest_imgedit.workers import gpus


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", [0]), ("0-5", [0, 1, 2, 3, 4, 5]), ("0,2", [0, 2]), ("0-3,6", [0, 1, 2, 3, 6]), ("3, 1", [3, 1])],
)
def test_lists(text, numbers):
    assert gpus.parse_gpus(text) == numbers


@pytest.mark.parametrize(
    "text", ["5-0", "0,0", "a-b", "", "0,,1", "0-", "-1", "0-2-4", "０", "1_0", "0-99999999999", "1.0", "+1", "0-3,2"]
)
def test_bad_lists_are_usage_errors(text):
    with pytest.raises(UsageError, match=r"^--imgedit-gpus="):
        gpus.parse_gpus(text)


@given(st.text(max_size=12))
def test_any_text_gives_distinct_numbers_or_a_usage_error(text):
    try:
        numbers = gpus.parse_gpus(text)
    except UsageError:
        return
    assert numbers
    assert len(set(numbers)) == len(numbers)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True))
def test_a_written_list_is_read_back(numbers):
    assert gpus.parse_gpus(",".join(map(str, numbers))) == numbers


def test_numbers_count_over_the_visible_gpus(monkeypatch):
    monkeypatch.setattr(gpus, "visible_gpus", lambda: ["4", "GPU-abc", "7"])
    assert gpus.choose_gpus("auto") == ["4", "GPU-abc", "7"]
    assert gpus.choose_gpus("1-2") == ["GPU-abc", "7"]
    assert gpus.choose_gpus("none") == []
    with pytest.raises(UsageError, match="no GPU 3, this machine shows GPUs 0-2"):
        gpus.choose_gpus("0,3")


def test_groups_come_out_even_or_are_refused():
    assert gpus.group_gpus(["0", "1", "2", "3"], 2, "--k") == [("0", "1"), ("2", "3")]
    assert gpus.group_gpus([], 1, "--k") == []
    with pytest.raises(UsageError, match="--k=2: 3 GPUs, expected a multiple of 2"):
        gpus.group_gpus(["0", "1", "2"], 2, "--k")
