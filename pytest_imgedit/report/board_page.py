"""The HTML page of `imgedit leaderboard --duel`."""

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import signed
from pytest_imgedit.report.board_tables import Ratings
from pytest_imgedit.report.leaderboard_page import Mark, chart_of, render_parts, told_apart
from pytest_imgedit.stats.boards import Board


def render(ratings: Ratings, board: Board | None) -> str:
    """Render ratings as one HTML page, those of a board with a chart and a line on the best
    system.
    """
    parts: list[JsonObject] = []
    for table in ratings.tables:
        parts.append({"board": table, "intervals": None, "chart": None})
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


def chart(board: Board) -> JsonObject:
    """Place the rating and the interval of each system on an axis that holds them all."""
    marks = []
    for row in board.rows:
        text = signed(row.overall.elo, 0)
        marks.append(Mark(row.system, row.overall.elo, row.overall.ci95, text))
    return chart_of(marks)
