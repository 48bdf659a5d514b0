"""Rows of parquet files, as the Hugging Face hub has them; images stay in the file."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_imgedit.core import files
from pytest_imgedit.core.errors import ImageError, SpecError, UsageError
from pytest_imgedit.core.text import one_line
from pytest_imgedit.suites.rows import SuiteRow

#: With these bytes a parquet file begins and ends.
_MARK = b"PAR1"


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """The image in one cell, or in the part `index` of the list there: a struct with `bytes`, or
    bytes; `read` reads its row group.
    """

    path: Path
    group: int
    position: int
    column: str
    index: int | None = None

    def read(self) -> bytes:
        """Return the encoded image; raise `ImageError` if it cannot be read."""
        try:
            path = self.path.absolute()
            changed = path.stat().st_mtime_ns
            cell = _column(path, changed, self.group, self.column)[self.position]
            if self.index is not None:
                cell = cell[self.index]
            value = cell.as_py()
        except Exception as error:  # pyarrow can raise anything for a damaged file
            raise ImageError(f"{self.path}: column {self.column!r}: {one_line(error)}") from None
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise ImageError(f"{self.path}: column {self.column!r} holds no image in this row")
        return data


def _column(path: Path, changed: int, group: int, column: str) -> Any:
    """Return a column of a row group."""
    from pyarrow import parquet

    columns = _columns(path, changed, group)
    if column not in columns:
        file = parquet.ParquetFile(path)
        columns[column] = file.read_row_group(group, columns=[column]).column(0)
    return columns[column]


@lru_cache(maxsize=2)  # pairs are read in the order of the file
def _columns(path: Path, changed: int, group: int) -> dict[str, Any]:
    """Return the columns of a row group that were read; `changed`, the file's time, keeps the cache
    from returning those of an older file.
    """
    return {}


def hub_rows(folder: Path, spec: str, data_set: str) -> list[SuiteRow]:
    """Return the rows of all parquet files below a folder that holds a data set of the hub, for a
    suite; raises `UsageError` if there are none, and as `parquet_rows` does.
    """
    files_of_hub = sorted(folder.rglob("*.parquet"))
    if not files_of_hub:
        raise SpecError(
            f"suite {spec}: no parquet files in {folder}, expected those of the hub's data set "
            f"{data_set}"
        )
    return [row for file in files_of_hub for row in parquet_rows(file)]


def listed_images(row: SuiteRow, column: str) -> Sequence[ParquetImage]:
    """Return the images of the list in a column; raises `UsageError` unless there is at least
    one, and if one is missing.
    """
    images = row.values.get(column)
    if not isinstance(images, list) or not images:
        raise row.error(f"no images {column!r}, expected a list of at least one")
    for number, image in enumerate(images, 1):
        if not isinstance(image, ParquetImage):
            raise row.error(f"image {number} of {column!r} is missing, expected an image")
    return images


def parquet_rows(path: Path) -> Iterator[SuiteRow]:
    """Yield the rows of a parquet file, numbered from 1; a value of an image column is a
    `ParquetImage`, a list of them, or `None` where the cell is empty.

    Raises `UsageError` if `pyarrow` is not installed, or if the file is not Parquet.
    """
    try:
        from pyarrow import lib, parquet, types
    except ImportError:
        raise UsageError(
            f"{path}: parquet needs the package pyarrow: pip install 'pytest-imgedit[data]'"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            images = {field.name: field.type for field in schema if _holds_images(field.type)}
            structs = [name for name, kind in images.items() if types.is_struct(_part(kind))]
            columns = [name for name in schema.names if name not in images]
            # of an image only its name is read, which tells whether there is one
            columns += [leaf for name in structs for leaf in _names_of_images(file, name)]
            number = 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=columns).to_pylist()
                is_bytes = images.keys() - set(structs)
                filled = {name: _filled(file, group, name) for name in is_bytes}
                for position, values in enumerate(rows):
                    number += 1
                    for name in images:
                        image = ParquetImage(path, group, position, name)
                        content = filled[name][position] if name in filled else values[name]
                        values[name] = _cell(image, content)
                    yield SuiteRow(path=path, values=values, number=number)
    except (OSError, lib.ArrowException) as error:
        raise files.unusable(path, "a parquet file", _no_parquet(path, error)) from None


def _names_of_images(file: Any, column: str) -> Iterator[str]:
    """Yield the columns inside a column of structs that hold the names of images."""
    for index in range(len(file.schema)):
        leaf = file.schema.column(index).path
        if leaf.startswith(f"{column}.") and leaf.endswith(".path"):
            yield leaf


def _filled(file: Any, group: int, column: str) -> list[Any]:
    """Return for each row of a row group what fills the cell of a column of bytes: `True` for an
    image, a list of such for a list, and `None` where it is empty.

    Nothing is read unless a cell may be empty.
    """
    kind = file.schema_arrow.field(column).type
    metadata = file.metadata.row_group(group)
    chunks = [metadata.column(index) for index in range(metadata.num_columns)]
    whole = (chunk.statistics for chunk in chunks if chunk.path_in_schema == column)
    statistics = next(whole, None)  # a list has its parts in another chunk
    if statistics and statistics.has_null_count and not statistics.null_count:
        return [True] * metadata.num_rows
    cells = file.read_row_group(group, columns=[column]).column(column)
    return [_validity(cell, is_list=_is_list(kind)) for cell in cells]


def _validity(cell: Any, is_list: bool) -> Any:
    """Return `True` for a scalar of pyarrow that is not null, or a list of such, and `None` for
    null.
    """
    if not cell.is_valid:
        return None
    if not is_list:
        return True
    return [True if part.is_valid else None for part in cell]


def _cell(image: ParquetImage, filled: Any) -> ParquetImage | list[ParquetImage | None] | None:
    """Return the image or the images of a cell; `None` for each that is empty."""
    if filled is None:
        return None
    if not isinstance(filled, list):
        return image
    return [
        None if part is None else replace(image, index=index) for index, part in enumerate(filled)
    ]


def _no_parquet(path: Path, error: Exception) -> str:
    """Return why a file is no parquet file: the error, and that it is cut short if only its
    beginning is right.
    """
    reason = one_line(error)
    with suppress(OSError), path.open("rb") as file:
        begins_right = file.read(len(_MARK)) == _MARK
        file.seek(-len(_MARK), os.SEEK_END)
        if begins_right and file.read() != _MARK:
            reason = f"cut short, its end is missing ({reason})"
    return f"{path}: no parquet file: {reason}"


def _holds_images(kind: Any) -> bool:
    """Tell whether columns of a type hold images, or lists of them."""
    return _is_image(_part(kind))


def _part(kind: Any) -> Any:
    """Return the type of the parts of a list; any other type as it is."""
    return kind.value_type if _is_list(kind) else kind


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_image(kind: Any) -> bool:
    """Tell whether a type is that of an image: a struct as the hub has it, or bytes."""
    from pyarrow import types

    if types.is_struct(kind):
        return {"bytes", "path"} <= {field.name for field in kind}
    return bool(types.is_binary(kind) or types.is_large_binary(kind))
