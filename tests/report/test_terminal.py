"""Tables in narrow terminals: whole columns or none."""

from __future__ import annotations

import re

import pytest

from pytest_imgedit.report import terminal
from pytest_imgedit.report.tables import CATEGORY_HEADER, COMPARISON_HEADER

ROWS = [
    (
        "environment",
        "10",
        "10",
        "0",
        "0",
        "10.00",
        "6.94 to 10.00",
        "0.41",
        "10.00",
        "8.94",
        "10.00",
    ),
    (
        "style-transfer-of-paintings",
        "500",
        "500",
        "12",
        "3",
        "7.25",
        "6.65 to 9.83",
        "1.41",
        "9.49",
        "0.00",
        "10.00",
    ),
]


@pytest.mark.parametrize("width", range(40, 140, 7))
def test_names_and_numbers_stay_whole_at_every_width(width):
    text = terminal.render_table(CATEGORY_HEADER, ROWS, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].split()[0] == "category"
    for line, row in zip(lines[2:], ROWS, strict=False):
        cells = re.split(r" +", line.replace(" to ", "_to_"))
        assert cells[0] == row[0]
        assert {cell.replace("_to_", " to ") for cell in cells} <= set(row)
    dropped = re.search(r"too narrow for: (.+)", text.replace("\n", " "))
    shown = {name for name in CATEGORY_HEADER if name in lines[0]}
    assert shown | set(dropped[1].split(", ") if dropped else ()) >= set(CATEGORY_HEADER)


def test_a_wide_terminal_drops_nothing():
    assert "too narrow" not in terminal.render_table(CATEGORY_HEADER, ROWS, 100)


def test_the_mean_is_never_dropped():
    text = terminal.render_table(CATEGORY_HEADER, ROWS, 40)
    assert text.splitlines()[0].split() == ["category", "n", "mean"]


def test_a_comparison_keeps_difference_interval_p_and_mde():
    row = (
        "environment",
        "10",
        "10.00",
        "9.95",
        "-0.05",
        "-0.17 to +0.06",
        "1.000",
        "no change shown",
        "0.20",
    )
    text = terminal.render_table(COMPARISON_HEADER, [row], 60)
    assert text.splitlines()[0].split() == [
        "category",
        "n",
        "now",
        "diff",
        "95%",
        "CI",
        "p",
        "of",
        "drop",
        "MDE",
    ]
    assert "too narrow for: before, finding" in text
