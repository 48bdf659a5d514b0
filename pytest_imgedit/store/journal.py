"""The store's journals: append-only JSONL files of typed records, each with a checksum and synced
before `append` returns.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_imgedit.core import (
    environments,
    errors,
    file_types,
    files,
    results,
    strict_json,
)
from pytest_imgedit.core.text import shorten
from pytest_imgedit.store.blobs import sync_folder


class ModelRecord(BaseModel):
    """The parts of an editor or judge; the recipes of its edits or verdicts hold its key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    key: results.Sha256
    recipe: strict_json.JsonObject


class Record(ModelRecord):
    """An edit or a verdict. `content` is the hash of its recipe, `key` that of its recipe and
    environment, and `code` holds further files that its class imported.
    """

    content: results.Sha256
    environment: environments.Environment
    batch_size: Annotated[int, Field(ge=1)]
    code: dict[str, results.Sha256] = Field(default_factory=dict)

    def contradiction(self) -> str:
        """Name a digest that is not that of the recipe and the environment, if any."""
        if self.content != environments.key(self.recipe):
            return "content"
        return "" if self.key == environments.key(self.recipe, self.environment) else "key"


class EditRecord(Record):
    """One edit; `blob` is its image, the other fields are those of `Edit`."""

    blob: results.Sha256
    seconds: float = Field(ge=0)
    worker: str
    change: results.Change
    near_copy: bool
    width: Annotated[int, Field(ge=1)]
    height: Annotated[int, Field(ge=1)]
    reframed: bool
    composited: bool = False
    sources: Annotated[int, Field(ge=1)] = 1
    signature: results.Signature


class VerdictRecord(Record):
    """A judge's answer to one call of a protocol: a `reply`, or a `score` with `aspects` from a
    judge that measures; or the `value` of a metric, on its own scale.

    `expected` are grades that replace those of the reply. `asked` counts the questions that were
    necessary; the last one ended with `reminder`, whose problem is `…`. `model` is what a server
    says has answered, and `finish_reason` why it says that the reply has ended (`none`: it says
    nothing; empty: the answer is of a time when that was not asked, or not from a server).
    """

    reply: str
    score: results.Score | None
    value: float | None = None
    aspects: dict[str, float]
    expected: dict[str, float]
    off_scale: float | None = Field(ge=0, le=1)
    model: str
    asked: Annotated[int, Field(ge=1)]
    reminder: str
    finish_reason: str = ""

    @property
    def measured(self) -> float | None:
        """The number of a judge that measures, or of a metric."""
        return self.score if self.value is None else self.value


R = TypeVar("R", bound=ModelRecord)


class Journal(Generic[R]):
    """Records by key; a later record of the same key replaces an earlier one.

    A torn last line, as a crash leaves it, is dropped when the file is opened, and `torn` is set.
    With `reads_only` it stays in the file, since a run may be writing it. A damaged line before the
    last, or a line with a correct checksum that is no record of this `kind`, raises `UsageError`
    with `file:line`; so does a last line that no crash can have left, which is of another type of
    file.
    """

    def __init__(
        self,
        path: Path,
        kind: type[R],
        require_there: Callable[[], None] = lambda: None,
        reads_only: bool = False,
    ) -> None:
        self.path = path
        self.kind = kind
        self.require_there = require_there
        self.records: dict[str, R] = {}
        #: Keys of records by content, the oldest first.
        self._keys: dict[str, dict[str, None]] = {}
        self._file: FileIO | None = None
        self._size = 0
        self.torn = False
        if path.exists():
            if not path.is_file():
                raise errors.UsageError(
                    f"{path}: not a regular file, expected the records of the store"
                )
            self._load()
            self.torn = self._size < path.stat().st_size
        if self.torn and not reads_only:
            os.truncate(path, self._size)

    def _load(self) -> None:
        """Read the records, and add up the bytes of the whole lines; the class says which lines
        raise `UsageError`.
        """
        with self.path.open("rb") as file:
            size = self.path.stat().st_size
            for number, line in enumerate(file, start=1):
                body = _unpack(line)
                if body is None:
                    self._require_torn(line, number, is_last=file.tell() >= size)
                    break
                self._remember(self._parse(body, number))
                self._size += len(line)

    def _require_torn(self, line: bytes, number: int, *, is_last: bool) -> None:
        """Raise `UsageError` unless a damaged line is the last one, and as a crash may leave it."""
        expected = "JSON with its checksum"
        if not is_last:
            problem = f"{self.path}:{number}: damaged record, expected {expected}"
            raise files.unusable(self.path, expected, problem)
        found = file_types.misfit(line)
        if found is not None and line.strip(b"\0 "):  # a crash leaves zeros and blanks, too
            raise errors.UsageError(found.message(str(self.path), expected))

    def _parse(self, body: bytes, number: int) -> R:
        """Return the record of the line of this number; raise `UsageError` if it is none, or its
        digests are not those of its recipe.
        """
        try:
            record = self.kind.model_validate(strict_json.loads(body.decode()))
            field = record.contradiction() if isinstance(record, Record) else ""
            if not field:
                return record
            problem = f"contradicts itself: its {field} is not the digest of its recipe"
        except ValidationError as error:
            problem = errors.first_problem(error)
        except (ValueError, RecursionError) as error:
            problem = f"not strict JSON: {error}"
        raise errors.UsageError(
            f"{self.path}:{number}: {shorten(problem, 300)}, expected a record as this "
            "version writes it (another store: --imgedit-out=DIR)"
        )

    def _remember(self, record: R) -> None:
        """Add a record as the newest; it replaces one of the same key."""
        self.records.pop(record.key, None)  # so that the newest stands last
        self.records[record.key] = record
        if isinstance(record, Record):
            keys = self._keys.setdefault(record.content, {})
            keys.pop(record.key, None)
            keys[record.key] = None

    def of_content(self, content: str) -> list[R]:
        """Return the records of one recipe in different environments, the oldest first."""
        return [self.records[key] for key in self._keys.get(content, ())]

    def append(self, records: Sequence[R]) -> None:
        """Write records and sync once; raise `StoreError` if that fails, for example as the disk is
        full, or if the store is gone. After any error none of them is kept.
        """
        self.require_there()
        data = b"".join(map(_pack, records))
        try:
            if self._file is None:
                # Without a buffer, what cannot be written is not kept for later.
                self._file = self.path.open("ab", buffering=0)
                sync_folder(self.path.parent)
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except BaseException as error:
            with suppress(OSError):  # else the torn line is dropped when the file is opened next
                os.truncate(self.path, self._size)
            if isinstance(error, OSError):
                raise errors.StoreError(files.why_not_stored(self.path, error)) from error
            raise
        self._size += len(data)
        for record in records:
            self._remember(record)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _pack(record: ModelRecord) -> bytes:
    body = json.dumps(record.model_dump(), ensure_ascii=True, sort_keys=True, allow_nan=False)
    return f"{body}\t{zlib.crc32(body.encode()):08x}\n".encode()


def _unpack(line: bytes) -> bytes | None:
    """Return the body of a line, without its checksum; `None` if the line is torn or damaged."""
    body, tab, checksum = line.rstrip(b"\n").rpartition(b"\t")
    is_whole = tab and line.endswith(b"\n") and f"{zlib.crc32(body):08x}".encode() == checksum
    return body if is_whole else None
