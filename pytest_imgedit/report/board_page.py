"""The HTML page of `imgedit leaderboard --duel`."""

from collections.abc import Callable

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import signed
from pytest_imgedit.report.board_tables import AGAINST, Ratings
from pytest_imgedit.report.leaderboard_page import Mark, chart_of, render_parts, told_apart
from pytest_imgedit.stats.boards import Board


def _no_page(*_: str) -> str:
    return ""


def render(
    ratings: Ratings, board: Board | None, pairs_of: Callable[[str, str], str] = _no_page
) -> str:
    """Render ratings as one HTML page, those of a board with a chart and a line on the best
    system. `pairs_of` returns the address of the pairs of two systems, empty if there is none.
    """
    parts: list[JsonObject] = []
    for table in ratings.tables:
        links = {}
        if board is not None and table.title == AGAINST:
            links = _links(board, pairs_of)
        parts.append({"board": table, "intervals": None, "chart": None, "links": links})
    headline = ""
    if board is not None:
        parts[0]["chart"] = chart(board)
        best = board.rows[0]
        elo = signed(best.overall.elo, 0)
        headline = f"{best.system}: Elo {elo}, {told_apart(board.rows)}"
    return render_parts(
        parts,
        title=ratings.title,
        judge="",
        pairs_url="",
        headline=headline,
        notes=ratings.notes,
        quantity="Elo rating",
    )


def _links(board: Board, pairs_of: Callable[[str, str], str]) -> dict[tuple[int, int], str]:
    """Return the address of each cell of the table of every two systems, by row and column."""
    links = {}
    for place, row in enumerate(board.rows):
        for column, other in enumerate(board.rows, 1):
            if other.system in row.against:
                links[place, column] = pairs_of(row.system, other.system)
    return links


def chart(board: Board) -> JsonObject:
    """Place the rating and the interval of each system on an axis that holds them all."""
    marks = []
    for row in board.rows:
        text = signed(row.overall.elo, 0)
        marks.append(Mark(row.system, row.overall.elo, row.overall.ci95, text))
    return chart_of(marks)
