"""Boards of duels in tables, Markdown, CSV, JSON and on a page."""

from __future__ import annotations

import csv
import io

import pytest
from boards_by_hand import DIFFERENCE, a_board, rated

from pytest_imgedit.report import board_page, board_tables
from pytest_imgedit.report.board_tables import ratings_of, ratings_of_fit, tables_of
from pytest_imgedit.stats.boards import Board, Chance, Elo

pytestmark = pytest.mark.everyday


def several() -> Board:
    """A board with a reference, two dimensions, and three categories, one of which has no fit."""
    dimensions = {"quality": Elo(30.0, (10.0, 50.0)), "instruction": Elo(-4.6, None)}
    categories = {"add": Elo(12.0, (-3.0, 27.0)), "colour": Elo(1.0, None)}
    return a_board(
        rated("one", 1, 57.4, dimensions=dimensions, categories=categories),
        rated("two", 2, -57.4, dimensions=dimensions, difference=DIFFERENCE, rank_interval=(1, 2)),
    )


def test_a_row_has_a_system_with_its_rating_and_votes() -> None:
    (table,) = tables_of(a_board())
    assert table.header == board_tables.HEADER
    assert table.rows[0] == ("one", "1", "1", "a", "+57", "+17 to +98", "10", "2", "3")


def test_a_reference_brings_columns_of_differences() -> None:
    table = tables_of(several())[0]
    assert table.header[-3:] == ("diff", "95% CI of diff", "p")
    assert table.rows[0][-3:] == ("reference", "", "")
    assert table.rows[1][-3:] == ("-115", "-190 to -40", "<0.001")
    assert table.rows[1][2] == "1–2"


def test_several_dimensions_and_categories_have_tables() -> None:
    _, dimensions, categories = tables_of(several())
    assert dimensions.header == ("system", "quality", "instruction")
    assert dimensions.rows[0] == ("one", "+30 (+10 to +50)", "-5")
    assert categories.header == ("system", "add", "colour", "all")
    assert categories.rows[0] == ("one", "+12 (-3 to +27)", "+1", "–")


def three() -> Board:
    """A board of three systems, of which the second and the third never met."""
    return a_board(
        rated("one", 1, 57.4, against={"two": 0.75, "three": 0.5}),
        rated("two", 2, 0.0, against={"one": 0.25}),
        rated("three", 3, -57.4, against={"one": 0.5}),
    )


def test_every_two_of_several_systems_have_a_share() -> None:
    table = tables_of(three())[-1]
    assert table.title == board_tables.AGAINST
    assert table.header == ("system", "one", "two", "three")
    assert table.rows == [
        ("one", "–", "0.75", "0.50"),
        ("two", "0.25", "–", "–"),
        ("three", "0.50", "–", "–"),
    ]


def test_a_share_links_to_the_pairs_that_decided_it() -> None:
    board = three()

    def pairs_of(one: str, other: str) -> str:
        return "" if "three" in (one, other) else f"view/index.html#a={one}&b={other}"

    page = board_page.render(ratings_of(board, None), board, pairs_of)
    assert page.count("<a href=") == 2
    assert '<a href="view/index.html#a=one&amp;b=two">0.75</a>' in page
    assert '<a href="view/index.html#a=two&amp;b=one">0.25</a>' in page


def test_lines_tell_votes_orders_ties_the_unit_and_what_was_not_fitted() -> None:
    assert list(ratings_of(a_board(), None).notes) == [
        "30 votes on 15 pairs of 5 source images",
        "judge j: the edit shown first wins 60.0% (55.0 to 65.0) of the decided votes between equal "
        "systems",
        "dimension score: equal systems tie in 10.0% of the votes",
        *board_tables.NOTES,
        "a note",
    ]
    assert "400 points are odds of 10 to 1; 0 is the mean of all systems" in board_tables.NOTES[0]


def test_many_judges_have_ten_lines_and_a_count() -> None:
    judges = {f"j{number}": Chance(0.5, None) for number in range(12)} | {"": Chance(0.5, None)}
    notes = ratings_of(a_board(first=judges), None).notes
    assert sum(note.startswith("judge ") for note in notes) == 10
    assert "and 3 judges more (--json has all)" in notes
    (line,) = (
        note
        for note in ratings_of(a_board(first={"": Chance(0.5, None)}), None).notes
        if "judge" in note
    )
    assert line.startswith("judge (not named): the edit shown first wins 50.0% of")


def test_markdown_has_all_tables_and_lines() -> None:
    text = board_tables.markdown(ratings_of(several(), "one"))
    assert text.startswith("# Board of duels of 2 systems\n\n## all votes\n")
    assert text.count("| one |") == 3
    assert "- a note" in text


def test_csv_has_a_row_a_system_and_column() -> None:
    rows = list(csv.DictReader(io.StringIO(ratings_of(several(), "one").csv)))
    assert [(row["column"], row["group"]) for row in rows if row["system"] == "one"] == [
        ("overall", "overall"),
        ("dimension", "quality"),
        ("dimension", "instruction"),
        ("category", "add"),
        ("category", "colour"),
    ]
    assert rows[0] | {"elo": "57.4", "low": "17.0", "wins": "10", "difference": ""} == rows[0]
    assert rows[2] | {"elo": "-4.6", "low": "", "rank": ""} == rows[2]
    assert rows[5] | {"p": "0.0004", "rank_low": "1", "rank_high": "2"} == rows[5]


def test_json_has_all_that_a_board_says() -> None:
    document = ratings_of(several(), "one").document
    assert document["reference"] == "one"
    assert [row["groups"] for row in document["rows"]] == ["a", "b"]
    assert document["rows"][1]["difference"] == {
        "elo": -114.8,
        "ci95": (-190.0, -39.6),
        "p": 0.0004,
    }
    assert document["first"] == {"j": {"share": 0.6, "ci95": (0.55, 0.65)}}


def test_the_page_has_a_chart_of_ratings_and_all_tables() -> None:
    board = several()
    page = board_page.render(ratings_of(board, "one"), board)
    assert page.count('<circle class="mean"') == 2
    assert page.count('<line class="interval"') == 2
    assert page.count('<th scope="row">one</th>') == 3
    assert "one: Elo +57, better than all others" in page
    assert "Elo rating with its simultaneous 95% interval" in page
    assert page.count("<script") == 1


def test_systems_that_may_be_equal_are_named_and_need_no_interval() -> None:
    rows = [rated(name, 1, 0.0, groups=(1,), overall=Elo(0.0, None)) for name in ("x", "y")]
    board = a_board(*rows)
    page = board_page.render(ratings_of(board, None), board)
    assert "x: Elo +0, not told apart from y" in page
    assert '<line class="interval"' not in page
    ticks = board_page.chart(board)["ticks"]
    assert float(ticks[0]["score"]) <= 0 < float(ticks[-1]["score"])


def test_ratings_of_another_arena_are_a_table_the_best_first() -> None:
    ratings = ratings_of_fit("their ratings", {"low": 990.25, "high": 1010.0}, ["no intervals"])
    (table,) = ratings.tables
    assert table.rows == [("high", "1010.0"), ("low", "990.2")]
    assert ratings.csv == "system,rating\nhigh,1010.0\nlow,990.25\n"
    assert ratings.document["ratings"] == {"high": 1010.0, "low": 990.25}
    assert "no intervals" in board_page.render(ratings, None)
    assert "| high | 1010.0 |" in board_tables.markdown(ratings)
