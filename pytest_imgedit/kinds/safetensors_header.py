"""The headers of safetensors files: names, types, shapes and sizes of tensors, without their
values.

Format: 8 bytes little-endian length N, N bytes of JSON with `dtype`, `shape` and `data_offsets` of
each tensor, and `__metadata__`, then the data.
"""

import json
import operator
import os
from dataclasses import dataclass
from pathlib import Path

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.files import is_file
from pytest_imgedit.core.strict_json import JsonObject

#: The first bytes of a file, which hold the length of its header, and the most bytes of that
#: header.
_LENGTH_BYTES = 8
_MAX_HEADER = 100 * 2**20


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself: texts by name, and of each tensor `dtype`, `shape` and
    `data_offsets`.
    """

    metadata: dict[str, str]
    tensors: dict[str, JsonObject]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors by name."""
        return {name: tuple(entry["shape"]) for name, entry in self.tensors.items()}


def read(path: Path) -> Header:
    """Return the header of a safetensors file; raise `UsageError` for a file that cannot be read,
    is of another format, or is cut short.
    """
    size = length = 0
    try:
        if os.path.exists(path) and not is_file(path):  # noqa: PTH110 - reading a pipe would wait
            raise errors.UsageError(f"{path}: not a regular file, expected weights in safetensors")
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            content: JsonObject = {}
            if length <= _MAX_HEADER:
                content = json.loads(file.read(length))
        metadata = content.pop("__metadata__", None) or {}
        end = max(_checked_end(entry) for entry in content.values())
        if not all(isinstance(text, str) for text in metadata.values()):
            raise TypeError("metadata holds more than texts")
    except OSError as error:
        expected = "weights in safetensors"
        problem = f"{path}: {error.strerror}, expected {expected}"
        raise files.unusable(path, expected, problem) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{path}: no readable header, expected a safetensors file"
        data_start = _LENGTH_BYTES + length
        if _LENGTH_BYTES < size < data_start <= _MAX_HEADER:
            problem = f"{path}: {size} bytes, expected over {data_start}: the file was cut short"
        raise files.unusable(path, "a safetensors file", problem) from error
    expected_size = _LENGTH_BYTES + length + end
    if size != expected_size:
        raise errors.UsageError(
            f"{path}: {size} bytes, expected {expected_size}: the file was cut short or damaged"
        )
    return Header(metadata, content)


def _checked_end(entry: JsonObject) -> int:
    """Return where the data of a tensor ends; raise `TypeError` or `ValueError` for an entry that
    does not say what it must.
    """
    _, end = map(operator.index, entry["data_offsets"])
    for side in entry["shape"]:
        operator.index(side)
    if not isinstance(entry["dtype"], str):
        raise TypeError("dtype is no text")
    return end


def stored_bytes(entry: JsonObject) -> int:
    """Return the bytes of a tensor by its entry in a header."""
    start, end = entry["data_offsets"]
    return int(end - start)


def tensor_bytes(path: Path) -> int:
    """Return the bytes of the tensors in a file; raise `UsageError` as `read` does."""
    return sum(stored_bytes(entry) for entry in read(path).tensors.values())
