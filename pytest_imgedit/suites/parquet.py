"""Rows of parquet files, as the Hugging Face hub has them; images stay in the file."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_imgedit.core import files
from pytest_imgedit.core.errors import ImageError, UsageError
from pytest_imgedit.core.text import one_line
from pytest_imgedit.suites.rows import SuiteRow

#: With these bytes a parquet file begins and ends.
_MARK = b"PAR1"


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """The image in one cell: a struct with `bytes`, or bytes; `read` reads its row group."""

    path: Path
    group: int
    position: int
    column: str

    def read(self) -> bytes:
        """Return the encoded image; raise `ImageError` if it cannot be read."""
        try:
            path = self.path.absolute()
            changed = path.stat().st_mtime_ns
            value = _column(path, changed, self.group, self.column)[self.position].as_py()
        except Exception as error:  # pyarrow can raise anything for a damaged file
            raise ImageError(f"{self.path}: column {self.column!r}: {one_line(error)}") from None
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise ImageError(f"{self.path}: column {self.column!r} holds no image in this row")
        return data


@lru_cache(maxsize=2)  # pairs are read in the order of the file
def _column(path: Path, changed: int, group: int, column: str) -> Any:
    """Return a column of a row group; `changed`, the file's time, keeps the cache from returning
    that of an older file.
    """
    from pyarrow import parquet

    return parquet.ParquetFile(path).read_row_group(group, columns=[column]).column(0)


def parquet_rows(path: Path) -> Iterator[SuiteRow]:
    """Yield the rows of a parquet file, numbered from 1; a value of an image column is a
    `ParquetImage`, or `None` where the cell of a struct is empty.

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
            images = [field.name for field in schema if _is_image(field.type)]
            # of an image only its name is read, which tells whether there is one
            structs = [name for name in images if types.is_struct(schema.field(name).type)]
            columns = [name for name in schema.names if name not in images]
            columns += [f"{name}.path" for name in structs]
            number = 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=columns).to_pylist()
                for position, values in enumerate(rows):
                    number += 1
                    for name in images:
                        is_empty = name in values and values[name] is None
                        image = ParquetImage(path, group, position, name)
                        values[name] = None if is_empty else image
                    yield SuiteRow(path=path, values=values, number=number)
    except (OSError, lib.ArrowException) as error:
        raise files.unusable(path, "a parquet file", _no_parquet(path, error)) from None


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


def _is_image(kind: Any) -> bool:
    """Tell whether columns of a type hold images: structs as the hub has them, or bytes."""
    from pyarrow import types

    if types.is_struct(kind):
        return {"bytes", "path"} <= {field.name for field in kind}
    return bool(types.is_binary(kind) or types.is_large_binary(kind))
