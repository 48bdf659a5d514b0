"""The tables of a board of duels, and their Markdown, CSV and JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import (
    counted,
    interval,
    number,
    percent,
    percent_interval,
    shorten,
    signed,
)
from pytest_imgedit.report import leaderboard_tables
from pytest_imgedit.report.leaderboard_tables import DIFFERENCE_HEADER, csv_text, letters, ranks
from pytest_imgedit.report.markdown import escape, table_lines
from pytest_imgedit.report.tables import LONGEST_LABEL, LONGEST_NAME, Table, p_value
from pytest_imgedit.stats.boards import Board, Chance, Elo, EloDifference, RatedSystem

HEADER = ("system", "rank", "ranks", "groups", "Elo", "95% CI of Elo", "won", "tied", "lost")
CSV_HEADER = (
    "column",
    "group",
    "system",
    "rank",
    "rank_low",
    "rank_high",
    "groups",
    "elo",
    "low",
    "high",
    "wins",
    "ties",
    "losses",
    "difference",
    "difference_low",
    "difference_high",
    "p",
)
#: What the columns mean.
NOTES = (
    "Elo: 400 points are odds of 10 to 1; 0 is the mean of all systems",
    *leaderboard_tables.NOTES[:2],
    "95% CI of Elo: simultaneous for all systems of a column",
)
#: The title of the table of every two systems.
AGAINST = "share of votes that the row won over the column"
#: The most judges or dimensions that have a line; JSON has all.
_MOST_LINES = 10
#: What is shown for a judge whose votes do not name it.
UNNAMED = "(not named)"


@dataclass(frozen=True, kw_only=True)
class Ratings:
    """Ratings as every format shows them: tables, the first with a row a system, and lines below
    them.

    `document` is what `--json` prints, and `csv` the CSV file.
    """

    title: str
    tables: Sequence[Table]
    notes: Sequence[str]
    document: JsonObject
    csv: str


def ratings_of(board: Board, reference: str | None) -> Ratings:
    """Return what is shown of a board; `reference` is the system of differences, if there is
    one.
    """
    title = f"Board of duels of {counted(len(board.rows), 'system')}"
    return Ratings(
        title=title,
        tables=tables_of(board),
        notes=[*_lines(board), *NOTES, *board.notes],
        document=_as_json(board, title, reference),
        csv=_csv_of(board),
    )


def ratings_of_fit(title: str, ratings: Mapping[str, float], notes: Sequence[str]) -> Ratings:
    """Return what is shown of ratings without intervals, as another arena computes them."""
    best_first = sorted(ratings, key=lambda system: -ratings[system])
    in_order = {system: ratings[system] for system in best_first}
    rows = []
    rows_of_csv = []
    for system, rating in in_order.items():
        rows.append((shorten(system, LONGEST_NAME), number(rating, 1)))
        rows_of_csv.append({"system": system, "rating": rating})
    return Ratings(
        title=title,
        tables=[Table("ratings", ("system", "rating"), rows, [])],
        notes=notes,
        document={"title": title, "ratings": in_order, "notes": list(notes)},
        csv=csv_text(("system", "rating"), rows_of_csv),
    )


def tables_of(board: Board) -> list[Table]:
    """Return a table of all votes, one by dimension and one by category if there are several, and
    one of every two systems if there are more.
    """
    tables = [_overall_table(board)]
    for title, columns in (
        ("by dimension", [row.dimensions for row in board.rows]),
        ("by category", [row.categories for row in board.rows]),
    ):
        groups = list(dict.fromkeys(name for column in columns for name in column))
        if len(groups) > 1:
            tables.append(_groups_table(title, board, groups, columns))
    if len(board.rows) > 2:
        tables.append(_against_table(board))
    return tables


def _overall_table(board: Board) -> Table:
    """Return a row for each system, the best first; with a reference, columns of the difference
    from it.
    """
    has_reference = any(row.difference is not None for row in board.rows)
    header: tuple[str, ...] = HEADER
    if has_reference:
        header += DIFFERENCE_HEADER
    rows = []
    for row in board.rows:
        cells = _overall(row)
        if has_reference:
            cells += _difference(row.difference)
        rows.append(cells)
    return Table("all votes", header, rows, [])


def _overall(row: RatedSystem) -> tuple[str, ...]:
    """Return the cells of a system in the columns of `HEADER`."""
    return (
        shorten(row.system, LONGEST_NAME),
        str(row.rank),
        ranks(row),
        letters(row.groups),
        signed(row.overall.elo, 0),
        interval(row.overall.ci95, signs=True, digits=0),
        str(row.wins),
        str(row.ties),
        str(row.losses),
    )


def _difference(difference: EloDifference | None) -> tuple[str, ...]:
    """Return the cells of a system in the columns of `DIFFERENCE_HEADER`."""
    if difference is None:
        return ("reference", "", "")
    return (
        signed(difference.elo, 0),
        interval(difference.ci95, signs=True, digits=0),
        p_value(difference.p),
    )


def _groups_table(
    title: str, board: Board, groups: Sequence[str], columns: Sequence[Mapping[str, Elo]]
) -> Table:
    """Return a row for each system with its ratings by some groups alone, the mappings of
    `columns`, one a system.
    """
    rows = []
    for row, ratings in zip(board.rows, columns, strict=True):
        cells = [_rating(ratings.get(group)) for group in groups]
        rows.append((shorten(row.system, LONGEST_NAME), *cells))
    header = ("system", *[shorten(group, LONGEST_LABEL) for group in groups])
    return Table(f"{title}: Elo (95% CI)", header, rows, [])


def _against_table(board: Board) -> Table:
    """Return the share of votes that each system won over each other one, the best first."""
    systems = [row.system for row in board.rows]
    rows = []
    for row in board.rows:
        shares = [number(row.against.get(other)) for other in systems]
        rows.append((shorten(row.system, LONGEST_NAME), *shares))
    header = ("system", *[shorten(system, LONGEST_LABEL) for system in systems])
    return Table(AGAINST, header, rows, [])


def _rating(rating: Elo | None) -> str:
    if rating is None:
        return "–"
    if rating.ci95 is None:
        return signed(rating.elo, 0)
    return f"{signed(rating.elo, 0)} ({interval(rating.ci95, signs=True, digits=0)})"


def _lines(board: Board) -> Iterator[str]:
    """Yield lines on the votes, on the order of edits by judge, and on ties by dimension."""
    yield (
        f"{counted(board.votes, 'vote')} on {counted(board.pairs, 'pair')} of "
        f"{counted(board.clusters, 'source image')}"
    )
    first = "the edit shown first wins {} of the decided votes between equal systems"
    yield from _chances("judge", board.first, first)
    yield from _chances("dimension", board.ties, "equal systems tie in {} of the votes")


def _chances(what: str, chances: Mapping[str, Chance], text: str) -> Iterator[str]:
    """Yield a line for each of the first judges or dimensions, and one that counts the others."""
    for name, chance in list(chances.items())[:_MOST_LINES]:
        share = f"{percent(chance.share)}{percent_interval(chance.ci95)}"
        yield f"{what} {shorten(name, LONGEST_NAME) or UNNAMED}: {text.format(share)}"
    if len(chances) > _MOST_LINES:
        yield f"and {counted(len(chances) - _MOST_LINES, what)} more (--json has all)"


def markdown(ratings: Ratings) -> str:
    """Render all tables as Markdown."""
    lines = [f"# {escape(ratings.title)}", ""]
    for table in ratings.tables:
        lines += [f"## {escape(table.title)}", ""]
        lines += table_lines(table.header, table.rows)
        lines.append("")
    lines += [f"- {escape(note)}" for note in ratings.notes]
    lines.append("")
    return "\n".join(lines)


def _csv_of(board: Board) -> str:
    """Render a row of CSV for each system and column: all votes, a dimension, a category; only rows
    of all votes have ranks, counts of votes, and differences.
    """
    return csv_text(CSV_HEADER, _csv_rows(board))


def _csv_rows(board: Board) -> Iterator[dict[str, object]]:
    """Yield rows by column; a column that a row lacks is empty."""
    for row in board.rows:
        system: dict[str, object] = {"system": row.system}
        yield system | {"column": OVERALL, "group": OVERALL} | _csv_overall(row)
        for column, ratings in (("dimension", row.dimensions), ("category", row.categories)):
            for group, rating in ratings.items():
                yield system | {"column": column, "group": group} | _csv_rating(rating)


def _csv_rating(rating: Elo) -> dict[str, object]:
    cells: dict[str, object] = {"elo": rating.elo}
    if rating.ci95:
        cells["low"], cells["high"] = rating.ci95
    return cells


def _csv_overall(row: RatedSystem) -> dict[str, object]:
    """Return the cells of a system over all votes, by column; without a difference for the
    reference.
    """
    cells = _csv_rating(row.overall)
    cells["rank"] = row.rank
    cells["rank_low"], cells["rank_high"] = row.rank_interval
    cells["groups"] = letters(row.groups)
    cells |= {"wins": row.wins, "ties": row.ties, "losses": row.losses}
    if row.difference is not None:
        cells["difference"] = row.difference.elo
        if row.difference.ci95:
            cells["difference_low"], cells["difference_high"] = row.difference.ci95
        cells["p"] = row.difference.p
    return cells


def _as_json(board: Board, title: str, reference: str | None) -> JsonObject:
    """Return all that a board says; groups are letters, as in the tables."""
    document: JsonObject = {"title": title, "reference": reference}
    document |= asdict(board)
    for row in document["rows"]:
        row["groups"] = letters(row["groups"])
    return document
