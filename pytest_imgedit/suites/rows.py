"""Reads the rows of JSON, JSONL, CSV and TOML files one at a time, so that the images in them stay
on disk.
"""

import codecs
import csv
import json
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.core import file_types, files, images, pairs, strict_json
from pytest_imgedit.core.errors import ImageError, SpecError, UsageError
from pytest_imgedit.core.text import shorten
from pytest_imgedit.suites import cells

# A string without an end runs to the end of the file, so that no byte is looked at twice.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_MAX_DEPTH = 64
MAX_SUITE_BYTES = 16 * 2**30
_SUITE = "a suite in JSON, JSONL, CSV or TOML"
#: Bytes at the beginning of a file that tell what it is.
_HEAD = 4096
#: Mistakes of a suite file that its error names.
_PROBLEMS_SHOWN = 5
#: What helps against links out of a folder; a message says it once.
COPIES_LINKS = "cp -rL copies what links lead to"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRow:
    """One row: its values, the range of its bytes in the file, its line, and the category key above
    it.

    `number` counts rows from 1 if all are on one line; otherwise it is 0. A row of an object has a
    `key` instead of a line.
    """

    path: Path
    values: strict_json.JsonObject
    line: int = 1
    start: int = 0
    end: int = 0
    group: str | None = None
    number: int = 0
    key: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether all values in the file's format are texts."""
        return self.path.suffix.lower() == ".csv"

    def __str__(self) -> str:
        if self.key is not None:
            return f"{self.path}: {shorten(self.key, 80)!a}"
        return f"{self.path}:{self.line}" + (f": row {self.number}" if self.number else "")

    def error(self, message: str) -> UsageError:
        return UsageError(f"{self}: {message}")

    def read(self, name: str, read: Callable[[object], T]) -> T:
        """Return what the cell of a column says, as a function of `cells` reads it.

        Raises `UsageError` that names the column and its value for what that function refuses.
        """
        value = self.values.get(name)
        try:
            return read(value)
        except ValueError as error:
            raise self.error(f"{name!r} is {value!r:.40}, {error}") from None


def image_below(row: SuiteRow, relative: object, root: Path | None = None) -> images.FileImage:
    """Return an image file below `root`, by default the folder of the row's file.

    Every reader of suites takes paths that data name from here. Links may lead to the `blobs` of
    the hub cache that the folder is in, as `hf download` makes them. Raises `UsageError` for what
    is no path, or leads out in any other way.
    """
    if not isinstance(relative, str):
        raise row.error(f"image {relative!r:.200}, expected the path of a file")
    if "://" in relative:
        raise row.error(f"image {relative!r:.200} is a URL, expected a path beside the file")
    remedy = "a path below it" if root is not None else "a path below it, or another suite.root"
    folder = (root or row.path.parent).resolve()
    try:
        path = (folder / relative).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise row.error(
            f"image {relative!r:.200}: {error}, expected a path below {folder}"
        ) from None
    if path == folder:
        raise row.error(f"image {relative!r:.200} is a folder, expected a file")
    if _leads_out(folder, folder / relative):
        raise row.error(f"image {relative!r:.200} leads out of {folder}, expected {remedy}")
    if _leads_out(folder, path) and path.parent not in _blobs(folder):
        raise row.error(
            f"image {relative!r:.200} is a link out of {folder}, expected {remedy}: {COPIES_LINKS}"
        )
    return images.FileImage(path)


def _leads_out(folder: Path, path: Path) -> bool:
    """Tell whether a path is not below a folder, by its text alone."""
    return not Path(os.path.normpath(path)).is_relative_to(folder)


def _blobs(folder: Path) -> set[Path]:
    """Return the folder to which links of a hub cache lead, if `folder` is in a snapshot of one."""
    return {
        place.parent.parent / "blobs"
        for place in (folder, *folder.parents)
        if place.parent.name == "snapshots"
    }


@dataclass(frozen=True, slots=True)
class RowImage:
    """A base64 image in one field of a row, or in the part `index` of a list there; `read` reads
    the row again.
    """

    path: Path
    start: int
    end: int
    name: str
    index: int | None = None

    def read(self) -> bytes:
        """Return the decoded bytes; raise `ImageError` if the file changed or the text is not
        base64.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                data = file.read(self.end - self.start)
            text = json.loads(data)[self.name]
            if self.index is not None:
                parts = cells.as_parts(text) or []
                text = parts[self.index]
            return images.Base64Image(text).read()
        except OSError as error:
            raise ImageError(f"{self.path}: {error.strerror}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise ImageError(f"{self.path}: field {self.name!r}: {error}") from error


def read_rows(path: Path, problems: list[UsageError]) -> Iterator[SuiteRow]:
    """Yield the rows of a JSON list, a JSON dict of lists, a JSONL or CSV file, or a TOML file with
    `[[pairs]]`.

    A row that cannot be read is left out, and its error is appended to `problems`. Raises
    `UsageError` with `file:line: what was found, what was expected` if the file as a whole is
    wrong.
    """
    if not path.is_file():
        missing = SpecError(f"{path}: no such file, expected {_SUITE}")
        raise files.error_of_misfit(path, _SUITE) or missing
    size = path.stat().st_size
    if size == 0:
        raise UsageError(f"{path}:1: empty file, expected at least one pair")
    if size > MAX_SUITE_BYTES:
        raise UsageError(f"{path}: file of {size} bytes, expected at most {MAX_SUITE_BYTES}")
    with path.open("rb") as file:
        found = file_types.misfit(file.read(_HEAD))  # some are a table of one column, or a comment
    if found not in (None, file_types.EMPTY):
        raise UsageError(found.message(str(path), _SUITE))
    suffix = path.suffix.lower()
    if suffix == ".toml":
        yield from _toml_rows(path)
    elif suffix == ".csv":
        yield from _csv_rows(path)
    else:
        yield from _json_rows(path, suffix, problems)


def _json_rows(path: Path, suffix: str, problems: list[UsageError]) -> Iterator[SuiteRow]:
    """Yield the rows of a JSON or JSONL file as `read_rows` does.

    Raises `UsageError` for a mistake around the rows of a JSON file, and instead of the first
    mistake in a row if the file is of another kind.
    """
    with path.open("rb") as file:  # the mapping lives as long as a match object needs it
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    has_mark = data[: len(codecs.BOM_UTF8)] == codecs.BOM_UTF8
    first = len(codecs.BOM_UTF8) if has_mark else 0
    spans = _json_spans(path, data, first)
    if suffix == ".jsonl":
        spans = _jsonl_spans(data, first)
    line = 1
    counted = 0  # bytes whose lines are counted
    is_one_line = suffix == ".json" and data.find(b"\n", 0, len(data) - 1) < 0
    for number, (start, end, group) in enumerate(spans, 1):
        line += data[counted:start].count(b"\n")
        counted = start
        try:
            values = _parse(path, line, data[start:end], is_last=end == len(data))
            yield SuiteRow(
                path=path,
                values=values,
                line=line,
                start=start,
                end=end,
                group=group,
                number=number if is_one_line else 0,
            )
        except UsageError as error:
            found = None if problems else file_types.misfit(data)
            if found:
                raise UsageError(found.message(str(path), _SUITE)) from None
            problems.append(error)


def make_pairs(
    rows: Iterable[SuiteRow], make: Callable[[SuiteRow], pairs.EditPair], problems: list[UsageError]
) -> Iterator[pairs.EditPair]:
    """Yield what `make` makes of rows; raises one `UsageError` at the end for all `problems`, those
    of `make` too.
    """
    for row in rows:
        try:
            yield make(row)
        except UsageError as error:
            problems.append(error)
    raise_problems(problems)


def raise_problems(problems: Sequence[UsageError]) -> None:
    """Raise one `UsageError` for the mistakes of a suite file, if there are any: the first five,
    and how many more there are.
    """
    if problems:
        messages = [str(error) for error in problems[:_PROBLEMS_SHOWN]]
        for index, message in enumerate(messages):
            if any(later.endswith(COPIES_LINKS) for later in messages[index + 1 :]):
                messages[index] = message.removesuffix(f": {COPIES_LINKS}")
        if len(problems) > _PROBLEMS_SHOWN:
            messages.append(f"and {len(problems) - _PROBLEMS_SHOWN} more")
        raise UsageError("; ".join(messages))


def _toml_rows(path: Path) -> Iterator[SuiteRow]:
    """Yield a row for each table `[[pairs]]`, with the line of its heading; raises `UsageError` if
    the file has none, or is no TOML.
    """
    file = ConfigFile.read(path, "a suite in TOML")
    rows = file.tables.get("pairs")
    if not isinstance(rows, list) or not all(isinstance(values, dict) for values in rows):
        raise UsageError(f"{path}:1: no [[pairs]], expected one table a pair")
    lines = [number for number, text in enumerate(file.text.splitlines(), 1) if "[[pairs]]" in text]
    for index, values in enumerate(rows):
        line = lines[index] if index < len(lines) else 1
        yield SuiteRow(path=path, values=values, line=line)


def _csv_rows(path: Path) -> Iterator[SuiteRow]:
    """Yield a row for each record but the first, which names the columns; blank lines are skipped.

    Columns are separated by commas, or if the header has none, by semicolons or tabs. The text is
    UTF-8, or UTF-16 with a byte order mark. Raises `UsageError` for anything else.
    """
    with path.open(newline="", encoding=_encoding(path)) as file:
        try:
            header = file.readline()
            file.seek(0)
            delimiter = next((mark for mark in ",;\t" if mark in header), ",")
            reader = csv.reader(file, strict=True, delimiter=delimiter)
            names = next(reader, [])
            if len(set(names)) < len(names) or not all(names):
                raise UsageError(
                    f"{path}:1: columns {names!r:.200}, expected a name for each, none twice"
                )
            line = reader.line_num + 1
            for values in reader:
                if values:
                    _require_value_of_each(path, line, values, names)
                    record = dict(zip(names, values, strict=True))
                    yield SuiteRow(path=path, values=record, line=line)
                line = reader.line_num + 1
        except UnicodeError as error:
            problem = (
                f"{path}:{_first_bad_line(path)}: not UTF-8, expected UTF-8 text: save it as CSV "
                "UTF-8 in the spreadsheet"
            )
            raise files.unusable(path, _SUITE, problem) from error
        except csv.Error as error:
            problem = f"{path}:{reader.line_num}: not valid CSV: {error}"
            raise files.unusable(path, _SUITE, problem) from error


def _require_value_of_each(
    path: Path, line: int, values: Sequence[str], names: Sequence[str]
) -> None:
    """Raise `UsageError` unless a record has one value for each column; it asks if a table that
    ends within a line was cut short.
    """
    if len(values) == len(names):
        return
    problem = f"{path}:{line}: {len(values)} values, expected {len(names)}, one a column"
    if len(values) < len(names) and _is_unfinished(path):
        problem += ": cut short?"
    raise files.unusable(path, _SUITE, problem)


def _encoding(path: Path) -> str:
    """Return the encoding of a table: spreadsheets also write UTF-16, with a mark at its
    beginning.
    """
    with path.open("rb") as file:
        first = file.read(2)
    return "utf-16" if first in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def _is_unfinished(path: Path) -> bool:
    """Tell whether a table ends within a line."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() not in (b"\n", b"\r", b"\0")


def _first_bad_line(path: Path) -> int:
    """Return the number of the first line that is not UTF-8, or else 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _jsonl_spans(data: mmap.mmap, start: int) -> Iterator[tuple[int, int, None]]:
    """Yield the beginning and the end of each line that is not blank; such rows have no group."""
    while start < len(data):
        newline = data.find(b"\n", start)
        end = newline if newline >= 0 else len(data)
        if data[start:end].strip():
            yield start, end, None
        start = end + 1


def _json_spans(path: Path, data: mmap.mmap, first: int) -> Iterator[tuple[int, int, str | None]]:
    """Yield the beginning and the end of each row, found by its brackets, and the key of the list
    that it is in, if the file is an object of lists; `_parse` reads the row itself.

    The text around the rows is checked at the end, so that the file as a whole is strict JSON too.
    """
    depth = 0
    row_depth = 2  # of rows in a list; 3 for those of an object of lists
    start = -1
    group: str | None = None
    gaps: list[tuple[int, int]] = []
    end = first
    for token in _TOKEN.finditer(data):
        mark = token[0][:1]
        if mark in (b"[", b"{"):
            depth += 1
            if depth > _MAX_DEPTH:
                line = data[: token.start()].count(b"\n") + 1
                raise UsageError(f"{path}:{line}: nested deeper than {_MAX_DEPTH} levels")
            if depth == 1:
                row_depth = 2 if mark == b"[" else 3
            elif depth == row_depth:
                start = token.start()
        elif mark in (b"]", b"}"):
            if depth == row_depth:
                gaps.append((end, start))
                end = token.end()
                yield start, end, group
            depth -= 1
        elif row_depth == 3 and depth == 1:
            with suppress(ValueError):  # found when the gaps are checked
                group = json.loads(token[0])
    gaps.append((end, len(data)))
    _check_gaps(path, data, gaps)


def _check_gaps(path: Path, data: mmap.mmap, gaps: Sequence[tuple[int, int]]) -> None:
    """Parse the text around the rows, with a 0 for each row.

    Raises `UsageError` unless it is strict JSON: a list, or an object of lists, with nothing but
    the rows in them.
    """
    text = b"0".join(data[start:end] for start, end in gaps)
    try:
        value = strict_json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = _line(data, gaps, error.start)
        problem = f"{path}:{line}: not UTF-8, expected UTF-8 text"
        raise files.unusable(path, _SUITE, problem) from error
    except json.JSONDecodeError as error:
        line = _line(data, gaps, len(error.doc[: error.pos].encode()))
        problem = f"{path}:{line}: not valid JSON: {file_types.why_no_json(error.doc, error)}"
        raise files.unusable(path, _SUITE, problem) from error
    except ValueError as error:
        raise UsageError(f"{path}:1: not valid JSON: {error}") from error
    lists = list(value.values()) if isinstance(value, dict) else [value]
    if not all(isinstance(part, list) for part in lists) or sum(map(len, lists)) != len(gaps) - 1:
        raise UsageError(
            f"{path}:1: expected a list of objects or a dict of such lists by category"
        )


def _line(data: mmap.mmap, gaps: Sequence[tuple[int, int]], offset: int) -> int:
    """Return the line in the file of an offset in the text around the rows."""
    for start, end in gaps:
        if offset <= end - start:
            break
        offset -= end - start + 1  # the text before a row, and the 0 that stands for it
    return data[: start + offset].count(b"\n") + 1


def _parse(path: Path, line: int, data: bytes, is_last: bool) -> strict_json.JsonObject:
    """Return the object in the bytes of a row, which begins on `line`.

    Raises `UsageError` for what is no strict JSON, no object, or nested too deeply; for a row that
    `is_last`, it says if the file seems cut short.
    """
    try:
        values = strict_json.loads(data.decode("utf-8"))
        if _is_deep(values):
            raise RecursionError
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}:{line}: not UTF-8, expected UTF-8 text") from error
    except json.JSONDecodeError as error:
        reason = file_types.why_no_json(error.doc, error) if is_last else error.msg
        raise UsageError(f"{path}:{line + error.lineno - 1}: not valid JSON: {reason}") from error
    except ValueError as error:
        raise UsageError(f"{path}:{line}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}:{line}: nested deeper than {_MAX_DEPTH} levels") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}:{line}: {type(values).__name__}, expected an object (one pair)")
    return values


def _is_deep(value: Any) -> bool:
    """Tell whether lists and objects are nested deeper than `_MAX_DEPTH` levels."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        next_level: list[Any] = []
        for child in level:
            if isinstance(child, list):
                next_level.extend(child)
            elif isinstance(child, dict):
                next_level.extend(child.values())
        level = next_level
    return bool(level)
