"""An append-only JSONL file of keyed records, each with its own checksum and synced before `append` returns."""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import StoreError, UsageError
from pytest_imgedit.store.blobs import sync_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from io import FileIO
    from pathlib import Path


class Journal:
    """Records by key; a later record of the same key replaces an earlier one.

    A torn last line, as a crash leaves it, is dropped when the file is opened, and `torn` is set. A damaged line
    before the last raises `UsageError` with `file:line`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        self._file: FileIO | None = None
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: not a regular file, expected the records of the store")
        self._size = self._load() if path.exists() else 0
        self.torn = path.exists() and self._size < path.stat().st_size
        if self.torn:
            os.truncate(path, self._size)

    def _load(self) -> int:
        good = 0
        with self.path.open("rb") as file:
            size = self.path.stat().st_size
            for number, line in enumerate(file, start=1):
                record = _unpack(line)
                if record is None:
                    if file.tell() < size:
                        raise UsageError(f"{self.path}:{number}: damaged record, expected JSON with its checksum")
                    break
                self.records[record.pop("key")] = record
                good += len(line)
        return good

    def get(self, key: str, **types: type | tuple[type, ...]) -> dict[str, Any] | None:
        """Return the record of a key; `None` if there is none, or its fields are not of these types."""
        record = self.records.get(key)
        if record is None or not all(isinstance(record.get(name), kind) for name, kind in types.items()):
            return None
        return record

    def append(self, records: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Write records and sync once; raises `StoreError`, such as for a full disk, with none of them kept."""
        data = b"".join(_pack(key, record) for key, record in records)
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
        self.records.update({key: dict(record) for key, record in records})

    def _open(self) -> FileIO:
        """Open the file, without a buffer of its own so that what cannot be written is not kept for later."""
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
            sync_folder(self.path.parent)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _pack(key: str, record: Mapping[str, Any]) -> bytes:
    body = json.dumps({"key": key, **record}, ensure_ascii=True, sort_keys=True, allow_nan=False)
    return f"{body}\t{zlib.crc32(body.encode()):08x}\n".encode()


def _unpack(line: bytes) -> dict[str, Any] | None:
    body, tab, checksum = line.rstrip(b"\n").rpartition(b"\t")
    if not (tab and line.endswith(b"\n")) or f"{zlib.crc32(body):08x}".encode() != checksum:
        return None
    record = json.loads(body)
    return record if isinstance(record, dict) and isinstance(record.get("key"), str) else None
