"""An append-only JSONL file of typed records, each with its own checksum and synced before `append`
returns.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from pytest_imgedit.core import strict_json
from pytest_imgedit.core.errors import StoreError, UsageError, first_problem
from pytest_imgedit.core.sanitize import shorten
from pytest_imgedit.store.blobs import sync_folder
from pytest_imgedit.store.records import ModelRecord, Record

R = TypeVar("R", bound=Record | ModelRecord)


class Journal(Generic[R]):
    """Records by key; a later record of the same key replaces an earlier one.

    A torn last line, as a crash leaves it, is dropped when the file is opened, and `torn` is set;
    with `reads_only` it stays in the file, since a run may just be writing it. A damaged line
    before the last, and any line whose checksum is right but which is no record of this `kind`,
    raises `UsageError` with `file:line`.
    """

    def __init__(
        self,
        path: Path,
        kind: type[R],
        require_there: Callable[[], None] = lambda: None,
        reads_only: bool = False,
    ) -> None:
        self.path, self.kind, self.require_there = path, kind, require_there
        self.records: dict[str, R] = {}
        self._by_content: dict[str, dict[str, R]] = {}
        self._file: FileIO | None = None
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: not a regular file, expected the records of the store")
        self._size = self._load() if path.exists() else 0
        self.torn = path.exists() and self._size < path.stat().st_size
        if self.torn and not reads_only:
            os.truncate(path, self._size)

    def _load(self) -> int:
        good = 0
        with self.path.open("rb") as file:
            size = self.path.stat().st_size
            for number, line in enumerate(file, start=1):
                body = _unpack(line)
                if body is None:
                    if file.tell() < size:
                        raise UsageError(
                            f"{self.path}:{number}: damaged record, expected JSON with its checksum"
                        )
                    break
                self._remember(self._parse(body, number))
                good += len(line)
        return good

    def _parse(self, body: bytes, number: int) -> R:
        kind: type[Any] = self.kind
        expected = "expected a record as this version writes it (another store: --imgedit-out=DIR)"
        try:
            document = strict_json.loads(body.decode())
            record: R = kind.model_validate(document)
            return record
        except ValidationError as error:
            what = first_problem(error)
        except (ValueError, RecursionError) as error:
            what = f"not strict JSON: {error}"
        raise UsageError(f"{self.path}:{number}: {shorten(what, 300)}, {expected}")

    def _remember(self, record: R) -> None:
        self.records.pop(record.key, None)  # so that the newest stands last
        self.records[record.key] = record
        if isinstance(record, Record):
            same = self._by_content.setdefault(record.content, {})
            same.pop(record.key, None)
            same[record.key] = record

    def of_content(self, content: str) -> list[R]:
        """Return the records of one recipe, each of another environment, the oldest first."""
        return list(self._by_content.get(content, {}).values())

    def append(self, records: Sequence[R]) -> None:
        """Write records and sync once; raises `StoreError`, such as for a full disk, with none of
        them kept.
        """
        self.require_there()
        data = b"".join(map(_pack, records))
        try:
            file = self._open()
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException as error:
            with suppress(OSError):  # else the torn line is dropped when the file is opened next
                os.truncate(self.path, self._size)
            if isinstance(error, OSError):
                raise StoreError(f"{self.path}: {error.strerror}") from error
            raise
        self._size += len(data)
        for record in records:
            self._remember(record)

    def _open(self) -> FileIO:
        """Open the file, without a buffer of its own so that what cannot be written is not kept for
        later.
        """
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
            sync_folder(self.path.parent)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _pack(record: Record | ModelRecord) -> bytes:
    body = json.dumps(record.model_dump(), ensure_ascii=True, sort_keys=True, allow_nan=False)
    return f"{body}\t{zlib.crc32(body.encode()):08x}\n".encode()


def _unpack(line: bytes) -> bytes | None:
    """Return the body of a line; `None` if it is not whole."""
    body, tab, checksum = line.rstrip(b"\n").rpartition(b"\t")
    if not (tab and line.endswith(b"\n")) or f"{zlib.crc32(body):08x}".encode() != checksum:
        return None
    return body
