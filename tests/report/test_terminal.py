"""Tables in narrow terminals: whole columns or none."""

from __future__ import annotations

import re

import pytest
from documents import a_run, an_item

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.report import html, terminal
from pytest_imgedit.report.measure_tables import COMPARED_HEADER
from pytest_imgedit.report.tables import CATEGORY_HEADER, COMPARISON_HEADER
from pytest_imgedit.run.assemble import protocol_table

#: Two values of each column.
CELLS = {
    "category": ("environment", "style-transfer-of-paintings"),
    "n": ("10", "500"),
    "scored": ("10", "500"),
    "errors": ("0", "12"),
    "refused": ("0", "3"),
    "mean": ("10.00", "7.25"),
    "95% CI": ("6.94 to 10.00", "6.65 to 9.83"),
    "std": ("0.41", "1.41"),
    "median": ("10.00", "9.49"),
    "min": ("8.94", "0.00"),
    "max": ("10.00", "10.00"),
}
ROWS = list(zip(*(CELLS[name] for name in CATEGORY_HEADER), strict=True))


@pytest.mark.parametrize(
    ("header", "terminal_keeps", "page_keeps"),
    [
        (CATEGORY_HEADER, "category, n, mean", "category, n, mean, 95% CI"),
        (
            COMPARISON_HEADER,
            "category, n, now, diff, finding",
            "category, n, diff, 95% CI, finding",
        ),
    ],
)
def test_what_stays_of_a_table_in_a_narrow_terminal_and_on_a_narrow_page(
    header, terminal_keeps, page_keeps
):
    droppable = {*terminal.DROPPED_FIRST, *terminal.DROPPED_LAST}
    assert ", ".join(name for name in header if name not in droppable) == terminal_keeps
    assert ", ".join(name for name in header if name not in html.WIDE_ONLY) == page_keeps


#: By table: its columns, two cells of each, and what is hidden at 80 and at 60 columns.
TABLES = {
    "categories": (
        (*CATEGORY_HEADER, "realism"),
        ("10.00", "6.94 to 10.00"),
        ("95% CI", "95% CI, std, median, min"),
    ),
    "comparison": (
        COMPARISON_HEADER,
        ("-10.00", "-6.94 to +10.00"),
        ("MDE", "MDE, p of drop, 95% CI"),
    ),
    "measures": (
        ("measure", "n", *COMPARED_HEADER),
        ("-10.00", "-6.94 to +10.00"),
        ("MDE, p of rise, p of drop, 95% CI", "MDE, p of rise, p of drop, 95% CI, before"),
    ),
    "leaderboard": (
        ("system", "rank", "n", "mean", "95% CI", "errors", "refused", "median", "finding"),
        ("10.00", "6.94 to 10.00"),
        ("", "95% CI, median"),
    ),
    "controls": (
        ("control", "n", "errors", "pending", "mean", "95% CI", "AUC", "judge"),
        ("10.00", "6.94 to 10.00"),
        ("95% CI, AUC", "95% CI, AUC, pending"),
    ),
}
WIDE = {"AUC": "0.95 (0.90 to 1.00)", "finding": "no change shown", "judge": "not told apart"}
NAMES = {"measure": "preserved (0 to 1, lower is better)", "control": "counterfactual colours"}


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("name", TABLES)
def test_columns_are_hidden_in_one_order_and_never_the_finding(name, width):
    header, (number, interval), hidden = TABLES[name]
    row = [
        WIDE.get(column) or NAMES.get(column) or (interval if column == "95% CI" else number)
        for column in header
    ]
    text = terminal.render_table(header, [row], width, further=["realism"])
    assert max(map(len, text.splitlines())) <= width
    told = text.replace("\n", " ").partition("hidden at this width: ")[2]
    assert told == hidden[width == 60]
    shown = text.splitlines()[0]
    for column in ("now", "diff", "mean", "finding", "judge", header[0]):
        assert column not in header or column in shown


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
    dropped = re.search(r"hidden at this width: (.+)", text.replace("\n", " "))
    shown = {name for name in CATEGORY_HEADER if name in lines[0]}
    assert shown | set(dropped[1].split(", ") if dropped else ()) >= set(CATEGORY_HEADER)


def test_a_wide_terminal_drops_nothing():
    assert "hidden" not in terminal.render_table(CATEGORY_HEADER, ROWS, 100)


def test_the_mean_is_never_dropped():
    text = terminal.render_table(CATEGORY_HEADER, ROWS, 40)
    assert text.splitlines()[0].split() == ["category", "n", "mean"]


def run_of(name, pairs):
    items = [
        an_item(f"p{number}", "causal", aspects={"score": 5.0, "accuracy": 1.0})
        for number in range(pairs)
    ]
    protocol = load_protocol(Settings.model_validate({"judge": {"protocol": name}}))
    return a_run(items=items, protocol=protocol_table(protocol, items, (), sees_change=True))


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("risebench", "360 pairs, judge gpt-4.1-2025-04-14, 2026-05"),
        ("kris", "1267 pairs, judge not stated, 2025-08"),
        ("gedit", "606 pairs, judge not stated, 2026-03"),
        ("imgedit", "737 pairs, judge not stated, 2026-03"),
    ],
)
@pytest.mark.parametrize("width", [72, 80, 120])
def test_published_rows_say_what_they_are_of_at_every_width(name, made, width):
    text = terminal.render(run_of(name, 1), width, color=False)
    _, _, table = text.partition("published for")
    rows = {column.strip() for line in table.splitlines() for column in re.split(r" {2,}", line)}
    assert "made of" in table
    assert set(made.replace(",", "").split()) <= set(" ".join(rows).replace(",", "").split())


def test_a_subset_stands_beside_published_rows_as_such():
    subset = terminal.render(run_of("risebench", 64), 80, color=False)
    assert subset.replace("\n", " ").count("(this run: 64 of 360 pairs)") == 2
    assert "of 360 pairs)" not in terminal.render(run_of("risebench", 360), 80, color=False)
