"""The header of a GGUF file, which ggml's docs/gguf.md describes, without its tensors."""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pytest_imgedit.core import errors, files

#: Types of tensors that diffusers reads: name, values of a block, and bytes of it, by number.
TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}
#: Formats of `struct` of the numbers in metadata, by the number of their type.
_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_TEXT = 8
_LIST = 9
#: More than any file has: a damaged length must not take all memory.
_MOST = 2**24
#: Where tensors begin, in bytes, in a file whose metadata does not say it.
_ALIGNMENT = 32


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: the name of its type, its number of values, and its bytes there."""

    type: str
    values: int
    bytes: int


@dataclass(frozen=True)
class Header:
    """The metadata of a GGUF file, and its tensors by name."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read(path: Path) -> Header:
    """Return the header of a GGUF file of version 2 or 3.

    Raises `UsageError`, naming the file, for one that cannot be read, is of another format, is cut
    short, or has tensors of a type that diffusers does not read.
    """
    expected = "a GGUF file"
    try:
        if path.exists() and not files.is_file(path):  # reading a pipe would wait
            raise errors.UsageError(f"{path}: not a regular file, expected {expected}")
        with path.open("rb") as file:
            header, end = _parse(file, path)
        size = path.stat().st_size
    except OSError as error:
        problem = f"{path}: {error.strerror}, expected {expected}"
        raise files.unusable(path, expected, problem) from error
    except (ValueError, KeyError, TypeError, ArithmeticError, struct.error) as error:
        problem = f"{path}: no readable header, expected {expected}"
        raise files.unusable(path, expected, problem) from error
    if size < end:
        raise errors.UsageError(
            f"{path}: {size} bytes, expected {end}: the file was cut short or damaged"
        )
    return header


def _parse(file: BinaryIO, path: Path) -> tuple[Header, int]:
    """Return the header, and the number of bytes that the file must have at least."""
    if file.read(4) != b"GGUF" or _number(file, "<I") not in (2, 3):
        raise ValueError("another format")
    count = _number(file, "<Q")
    entries = _number(file, "<Q")
    metadata = {_text(file): _value(file) for _ in range(_checked(entries))}
    tensors: dict[str, Tensor] = {}
    end = 0
    for _ in range(_checked(count)):
        name = _text(file)
        shape = [_number(file, "<Q") for _ in range(_checked(_number(file, "<I")))]
        kind = _number(file, "<I")
        offset = _number(file, "<Q")
        if kind not in TYPES:
            raise errors.UsageError(
                f"{path}: {name} is of the GGUF type {kind}, expected one that diffusers reads: "
                f"{', '.join(label for label, _, _ in TYPES.values())}"
            )
        label, values_of_block, bytes_of_block = TYPES[kind]
        values = math.prod(shape)
        tensors[name] = Tensor(label, values, values // values_of_block * bytes_of_block)
        end = max(end, offset + tensors[name].bytes)
    alignment = int(metadata.get("general.alignment", _ALIGNMENT))
    start = math.ceil(file.tell() / alignment) * alignment
    return Header(metadata, tensors), start + end


def _checked(count: int) -> int:
    if count > _MOST:
        raise ValueError(f"{count} entries")
    return count


def _number(file: BinaryIO, layout: str) -> Any:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]


def _text(file: BinaryIO) -> str:
    length = _checked(_number(file, "<Q"))
    data = file.read(length)
    if len(data) < length:
        raise ValueError("cut short")
    return data.decode("utf-8", "replace")


def _value(file: BinaryIO) -> Any:
    """Return a value of the metadata; of a list its values."""
    kind = _number(file, "<I")
    if kind != _LIST:
        return _of_type(kind)(file)
    read_one = _of_type(_number(file, "<I"))
    return [read_one(file) for _ in range(_checked(_number(file, "<Q")))]


def _of_type(kind: int) -> Callable[[BinaryIO], Any]:
    if kind == _TEXT:
        return _text
    layout = _NUMBERS[kind]
    return lambda file: _number(file, layout)
