"""Rows of a CSV file that say which of two edits is better, one a vote."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.choices import Winner
from pytest_imgedit.core.text import shorten
from pytest_imgedit.suites import cells

#: The most bytes of a file of votes.
MAX_BYTES = 64 * 2**20
#: Columns of every such file.
REQUIRED = ("id", "a", "b", "winner", "rater")
_WINNERS: Mapping[str, Winner] = {"a": "a", "b": "b", "tie": "tie"}
_MOST_SHOWN = 80


@dataclass(frozen=True)
class VoteRow:
    """A row with its place, `FILE:LINE`; an empty or missing cell is an empty text."""

    place: str
    cells: Mapping[str, str | None]

    def text(self, column: str) -> str:
        with suppress(ValueError):
            return cells.as_name(self.cells.get(column)) or ""
        return ""

    def required(self, column: str, expected: str) -> str:
        text = self.text(column)
        if not text:
            raise self.error(column, expected)
        return text

    @property
    def winner(self) -> Winner:
        text = self.text("winner")
        if text.casefold() not in _WINNERS:
            raise self.error("winner", "a, b or tie")
        return _WINNERS[text.casefold()]

    def error(self, column: str, expected: str) -> errors.UsageError:
        """Return the error of a cell."""
        found = shown(self.cells.get(column))
        return errors.UsageError(f"{self.place}: {column} is {found}, expected {expected}")


def shown(value: str | None) -> str:
    """Return a cell as messages show it: in quotes, and cut if it is long."""
    return shorten(repr(value or ""), _MOST_SHOWN)


@dataclass(frozen=True)
class Layout:
    """What a file may have beside the columns `REQUIRED`: `optional` columns, of which it has all
    or none of those `together`. `text` is the layout as messages show it.
    """

    optional: Sequence[str]
    text: str
    together: Sequence[str] = ()


def read_vote_rows(path: Path, layout: Layout) -> Iterator[VoteRow]:
    """Yield the rows of a CSV file; columns that its layout lacks are passed over.

    Raises `UsageError` for a file that is no CSV, for a column that is missing or occurs twice, and
    for a row with more cells than columns; it names the line.
    """
    text = files.read_utf8(path, MAX_BYTES, "a CSV file")
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = list(rows.fieldnames or ())
        _check_header(path, columns, layout)
        for cells_of_row in rows:
            place = f"{path}:{rows.line_num}"
            surplus = cells_of_row.pop(None, None)
            if surplus:
                raise errors.UsageError(
                    f"{place}: {len(columns) + len(surplus)} cells, expected {len(columns)}, one a "
                    "column: put a text with a comma in quotes"
                )
            yield VoteRow(place, cells_of_row)
    except csv.Error as error:
        problem = f"{path}:{rows.line_num + 1}: not valid CSV: {error}"
        raise files.unusable(path, "a CSV file", problem) from None


def _check_header(path: Path, header: Sequence[str], layout: Layout) -> None:
    for column in (*REQUIRED, *layout.optional):
        if header.count(column) > 1:
            raise errors.UsageError(f"{path}:1: twice column {column!r}, expected {layout.text}")
        if column in REQUIRED and column not in header:
            problem = f"{path}:1: no column {column!r}, expected {layout.text}"
            raise files.unusable(path, "a CSV file", problem)
    if 0 < sum(column in header for column in layout.together) < len(layout.together):
        names = " and ".join(map(repr, layout.together))
        raise errors.UsageError(
            f"{path}:1: one of the columns {names}, expected {layout.text}: both or none"
        )
