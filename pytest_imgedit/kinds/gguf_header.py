"""Reads a GGUF file without its weights; needs the package gguf."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType
from numpy.typing import DTypeLike, NDArray

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.user_code import keys_of_table

_EXPECTED = "a GGUF file"
#: Types that diffusers reads without dequantising them.
_PLAIN = ("F32", "F16")
#: The most numbers and texts that a header is read for; one of a network has ten thousands.
_MOST_PARTS = 2**18
#: The most bytes of a text, and sides of a shape.
_LONGEST_PART = 2**24


class _Reader(GGUFReader):
    """A reader that stops at the end of a file, and at counts that no file of weights has, where
    the package's own would go on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = 0
        super().__init__(path)

    def _get(
        self, offset: int, dtype: DTypeLike, count: int = 1, override_order: Any = None
    ) -> NDArray[Any]:
        is_weight = hasattr(self, "data_offset")
        end = offset + np.dtype(dtype).itemsize * int(count)
        self.parts += 1
        if is_weight and end > self.data.size:
            raise errors.UsageError(
                f"{self.path}: {self.data.size} bytes, expected {end} or more: the file was cut "
                "short or damaged"
            )
        if end > self.data.size:
            raise ValueError("cut short")
        if not is_weight and (self.parts > _MOST_PARTS or count > _LONGEST_PART):
            raise ValueError("longer than that of a network")
        return super()._get(offset, dtype, count, override_order)


def read(path: Path) -> GGUFReader:
    """Return the reader of a GGUF file of version 2 or 3, which maps the weights.

    Raises `UsageError`, naming the file, for one that cannot be read, is of another format, is cut
    short, or has tensors of a type that diffusers does not read.
    """
    try:
        if path.exists() and not files.is_file(path):  # reading a pipe would wait
            raise errors.UsageError(f"{path}: not a regular file, expected {_EXPECTED}")
        reader = _Reader(path)
        if reader.byte_order != "I":
            raise ValueError("of another byte order")
    except OSError as error:
        problem = f"{path}: {error.strerror}, expected {_EXPECTED}"
        raise files.unusable(path, _EXPECTED, problem) from error
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        problem = f"{path}: no readable header ({one_line(error)}), expected {_EXPECTED}"
        raise files.unusable(path, _EXPECTED, problem) from error
    known = types()
    for tensor in reader.tensors:
        name = tensor.tensor_type.name
        if known and name not in known:
            raise errors.UsageError(
                f"{path}: {tensor.name} is of the GGUF type {name}, expected one that diffusers "
                f"reads: {', '.join(known)}"
            )
    return reader


def value(reader: GGUFReader, name: str) -> Any:
    """Return a text or a number of the metadata; `None` if it is not there."""
    field = reader.get_field(name)
    if field is None:
        return None
    part = field.parts[field.data[0]]
    is_text = field.types[0] == GGUFValueType.STRING
    return part.tobytes().decode("utf-8", "replace") if is_text else part[0].item()


@cache
def types() -> list[str]:
    """Return the names of the types that the installed diffusers reads, from its source; none if
    that is not found.
    """
    names = keys_of_table("diffusers.quantizers.gguf.utils", "dequantize_functions")
    return sorted([*_PLAIN, *names]) if names else []
