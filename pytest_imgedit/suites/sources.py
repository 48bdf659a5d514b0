"""The source images of a suite's row: one in a cell, a list in a cell, or one in each of several
numbered columns.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from pytest_imgedit.core.text import counted
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.parquet import ParquetImage
from pytest_imgedit.suites.rows import SuiteRow

#: Behind the name of a column: the place of its source. Three digits are more often a width.
_PLACE = r"(?P<place>\d{1,2})"
_MARK = r"[ ._-]"
_ENCODED = "_b64"
_NUMBER_AT_END = re.compile(rf"(?P<name>.*?[^\d ._-]){_MARK}?{_PLACE}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SourceCell:
    """One source image of a row: what the cell of a column holds, or the part `index` of its
    list.
    """

    column: str
    value: object
    index: int | None = None

    def text(self, row: SuiteRow) -> str:
        """Return its text, an empty one for an image in a table; raise `UsageError` for any other
        value.
        """
        if isinstance(self.value, ParquetImage):
            return ""
        try:
            return cells.as_text(self.value) or ""
        except ValueError as error:
            place = "" if self.index is None else f" in place {self.index + 1}"
            raise row.error(f"{self.column!r} is {self.value!r:.40}{place}, {error}") from None


class SourceColumns:
    """Columns that hold source images: those of `names`, and numbered ones beside each.

    Of several names, one holds the sources of a row; another may hold the same single one.
    """

    def __init__(
        self,
        names: Sequence[str],
        known: Mapping[str, tuple[str, int] | None] | None = None,
        is_complete: bool = False,
        key: str = "image",
    ) -> None:
        """`known` are columns whose places do not follow from their names, `None` for those that
        hold something else; if it `is_complete`, no other column holds a source. Messages name the
        `key` of `[suite.fields]`.
        """
        self.key = key
        self.names = tuple(names)
        self._places = dict(known or {})
        self._is_complete = is_complete
        self._latest: tuple[SuiteRow | None, list[SourceCell]] = (None, [])

    @classmethod
    def fixed(cls, places: Mapping[str, int]) -> "SourceColumns":
        """Return columns whose places are given, and begin at 1; no other column is one."""
        name = next(iter(places))
        known = {column: (name, place) for column, place in places.items()}
        return cls((name,), known, is_complete=True)

    def place_of(self, column: str) -> tuple[str, int] | None:
        """Return the name that a column is numbered by, and its place; `None` for a column that
        holds no source.
        """
        if column not in self._places:
            self._places[column] = self._numbered(column)
        return self._places[column]

    def _numbered(self, column: str) -> tuple[str, int] | None:
        if self._is_complete:
            return None
        for name in self.names:
            place = place_beside(name, column)
            if place is not None:
                return name, place
        return None

    def cells(self, row: SuiteRow) -> list[SourceCell]:
        """Return the sources of a row in their order; none if no column holds any.

        Raises `UsageError` for two sources in one place, for sources of two names, for a gap, and
        for a list beside other sources, or with an empty part.
        """
        latest, sources = self._latest
        if latest is not row:  # each is looked at several times, one after the other
            sources = self._cells(row)
            self._latest = (row, sources)
        return sources

    def _cells(self, row: SuiteRow) -> list[SourceCell]:
        held = self._held(row)
        named = [name for name in self.names if name in held]
        sources_by_name = [self._cells_of(row, name, held[name]) for name in named]
        filled = [sources for sources in sources_by_name if sources]  # a list may be empty
        if not filled:
            return []
        chosen, *others = filled
        for sources in others:
            if len(chosen) > 1 or len(sources) > 1 or not _is_same(chosen[0], sources[0]):
                column = chosen[0].column
                raise row.error(
                    f"{column!r} and {sources[0].column!r} both hold sources, expected one of "
                    f"them: suite.fields.{self.key}={column!r} chooses"
                )
        return chosen

    def _held(self, row: SuiteRow) -> dict[str, dict[int, str]]:
        """Return the columns of a row that hold a value, by their name and their place."""
        held: dict[str, dict[int, str]] = {}
        for column, value in row.values.items():
            numbered = self.place_of(column)
            if numbered is None or value == [] or cells.is_missing(value):
                continue
            name, place = numbered
            other = held.setdefault(name, {}).setdefault(place, column)
            if other != column:
                raise row.error(
                    f"{other!r} and {column!r} both hold source {place}, expected one of them, or "
                    f"all in their order: suite.fields.{self.key}=[{other!r}, {column!r}, …]"
                )
        return held

    def _cells_of(self, row: SuiteRow, name: str, columns: Mapping[int, str]) -> list[SourceCell]:
        """Return the sources in the columns of one name by their places."""
        in_order = [column for _, column in sorted(columns.items())]
        for column in in_order:
            parts = row.read(column, cells.as_parts)
            if parts is None:
                continue
            others = [other for other in in_order if other != column]
            if others:
                raise row.error(
                    f"{column!r} is a list and {others[0]!r} holds a source too, expected all in "
                    "the list, or one in each column"
                )
            self._require_no_gap(row, name, columns)
            return _parts_of(row, column, parts)
        self._require_no_gap(row, name, columns)
        return [SourceCell(column, row.values[column]) for column in in_order]

    def _require_no_gap(self, row: SuiteRow, name: str, columns: Mapping[int, str]) -> None:
        """Raise `UsageError` unless the places of the columns of a name are 1, 2, and so on."""
        for place, (found, column) in enumerate(sorted(columns.items()), 1):
            if found < place:
                raise row.error(f"{column!r} holds source {found}, expected numbers from 1")
            if found > place:
                empty = [other for other in row.values if self.place_of(other) == (name, place)]
                lack = f"{empty[0]!r} is empty" if empty else f"no column holds source {place}"
                raise row.error(
                    f"{column!r} holds source {found} and {lack}, expected no gap: fill it, or "
                    "move the later ones"
                )


@lru_cache(maxsize=256)
def _pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of columns that are numbered beside the one of this name."""
    mark = _MARK if name[-1].isdigit() else f"{_MARK}?"
    behind = rf"{re.escape(name)}{mark}{_PLACE}"
    if not name.endswith(_ENCODED):
        return re.compile(behind, re.ASCII)
    stem = re.escape(name.removesuffix(_ENCODED))
    inside = rf"{stem}{_MARK}?{_PLACE.replace('place', 'inner')}{_ENCODED}"
    return re.compile(rf"{re.escape(name)}{_MARK}{_PLACE}|{inside}", re.ASCII)


def place_beside(name: str, column: str) -> int | None:
    """Return the place of a column beside the one of a name: 1 for itself and `image1`, 2 for
    `image2`, `image_2`, `image-2`, `image.2` and `image 2`; `None` for any other column.
    """
    if column == name:
        return 1
    match = _pattern(name).fullmatch(column) if name else None
    if match is None:
        return None
    return int(next(filter(None, match.groups())))


def columns_beside(column: str, names: Iterable[str]) -> dict[str, int]:
    """Return the columns among `names` that are numbered beside a column, or as it is, with their
    places in order; the column alone if no column is the first. Case does not count.
    """
    lowered = column.strip().lower()
    candidates = [lowered]
    numbered = _NUMBER_AT_END.fullmatch(lowered)
    if numbered is not None:
        candidates.insert(0, numbered["name"])
    for candidate in candidates:
        found = {name: place_beside(candidate, name.strip().lower()) for name in names}
        places = {name: place for name, place in found.items() if place is not None}
        if 1 in places.values():
            return dict(sorted(places.items(), key=itemgetter(1)))
    return {column: 1}


def as_place(value: object, count: int) -> int:
    """Read the place of the edited source among `count`, 1 if it is missing; raises `ValueError` as
    the functions of `cells` do.
    """
    expected = "expected 1: the pair has one source"
    if count != 1:
        expected = f"expected a whole number from 1 to {count}: {counted(count, 'source')}"
    try:
        place = cells.as_whole(value)
    except ValueError:
        raise ValueError(expected) from None
    if place is None:
        return 1
    if not 1 <= place <= count:
        raise ValueError(expected)
    return place


def as_paths(value: object) -> list[str]:
    """Read a path, or the paths of several sources; none if it is missing."""
    parts = cells.as_parts(value)
    if parts is None:
        parts = [value]
    return [(cells.as_text(part) or "").strip() for part in parts if not cells.is_missing(part)]


def digests(value: object) -> object:
    """Return the digest of a base64 text, or those of a list; any other value as it is."""
    with suppress(ValueError):  # raised again where the pair is made
        parts = cells.as_parts(value)
        if parts is not None:
            return [digest(part) for part in parts]
    return digest(value)


def digest(value: object) -> object:
    """Return the SHA-256 of a text; a missing value, and what is no text, as it is."""
    if not isinstance(value, str) or cells.is_missing(value):
        return value
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def _is_same(cell: SourceCell, other: SourceCell) -> bool:
    """Tell whether two cells hold the same text; images in a table are not compared."""
    values = (cell.value, other.value)
    first, second = [value.strip() if isinstance(value, str) else value for value in values]
    return first == second


def _parts_of(row: SuiteRow, column: str, parts: Sequence[object]) -> list[SourceCell]:
    """Return the sources in a list; raises `UsageError` for a part without one."""
    for place, part in enumerate(parts, 1):
        if cells.is_missing(part):
            raise row.error(
                f"{column!r} has nothing in place {place} of {len(parts)}, expected an image in "
                "each place"
            )
    return [SourceCell(column, part, index) for index, part in enumerate(parts)]
