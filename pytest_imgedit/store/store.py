"""The store's folder: one holder at a time, its images and journals, and a folder for each run."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from io import FileIO
from pathlib import Path

from pytest_imgedit.core import environments, errors, strict_json
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.journal import EditRecord, Journal, ModelRecord, VerdictRecord

#: A folder with any of these is a store; a lock that a cleaner removed is made again.
_KNOWN_BY = frozenset({"lock", "edits.jsonl", "verdicts.jsonl", "models.jsonl", "runs", "blobs"})

#: What the holder of a lock writes into it, and the most bytes of that. The last number is when its
#: process started, which tells it from a later process of the same number.
_HOLDER = re.compile(
    r"(process ([0-9]{1,9}) on (\S+) since [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC) ([0-9]*)"
)
_MAX_HOLDER = 400


class Store:
    """Everything under `--imgedit-out`; open it with `with`, which takes and releases its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = Blobs(folder / "blobs", self._require_there)
        #: The file that caches digests of weights.
        self.fingerprints = folder / "fingerprints.json"
        self._opened: os.stat_result | None = None
        #: Environments of the records that were read or written, by their digests.
        self.environments: dict[str, environments.Environment] = {}
        self._lock: FileIO | None = None

    @cached_property
    def edits(self) -> Journal[EditRecord]:
        return Journal(self.folder / "edits.jsonl", EditRecord, self._require_there)

    @cached_property
    def verdicts(self) -> Journal[VerdictRecord]:
        return Journal(self.folder / "verdicts.jsonl", VerdictRecord, self._require_there)

    @cached_property
    def models(self) -> Journal[ModelRecord]:
        return Journal(self.folder / "models.jsonl", ModelRecord, self._require_there)

    def remember(self, digest: str, recipe: strict_json.JsonObject) -> None:
        """Store the recipe of an editor or judge, which other recipes name by its digest; raises
        `StoreError`.
        """
        if digest not in self.models.records:
            self.models.append([ModelRecord(key=digest, recipe=recipe)])

    def __enter__(self) -> Store:
        """Raises `UsageError` if the folder cannot be written, is no store, or is locked by another
        process.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            names = {path.name for path in self.folder.iterdir()} - {".gitignore"}
            if names and names.isdisjoint(_KNOWN_BY):
                raise errors.UsageError(
                    f"{self.folder}: holds other files, expected a store or an empty or new folder"
                )
            ignore, lock = self.folder / ".gitignore", self.folder / "lock"
            for path in (ignore, lock):
                if path.exists() and not path.is_file():
                    raise errors.UsageError(f"{path}: not a regular file, expected that of a store")
            if not ignore.exists() or not ignore.stat().st_size:
                ignore.write_text("*\n")
            file = self._open_lock(lock)
            try:
                self._take_lock(file)
                self._opened = self.folder.stat()
            except BaseException:
                file.close()
                raise
            self._lock = file
        except OSError as error:
            raise errors.UsageError(
                f"{error.filename or self.folder}: {error.strerror}, expected a folder that can be "
                "written"
            ) from error
        return self

    @staticmethod
    def _open_lock(path: Path) -> FileIO:
        """Open the lock for reading and writing; raises `UsageError` for a link, and for a file of
        another user that this one cannot write.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            reason = "a link" if path.is_symlink() else error.strerror
            raise errors.UsageError(
                f"{path}: {reason}, expected a folder that can be written, and its lock too; "
                "remove the lock if no run holds it"
            ) from error
        return os.fdopen(descriptor, "r+b", buffering=0)

    def _require_there(self) -> None:
        """Raise `StoreError` if the folder that was opened has been removed or moved since."""
        with suppress(OSError):
            if self._opened is None or os.path.samestat(self._opened, self.folder.stat()):
                return
        raise errors.StoreError(
            f"{self.folder}: the store is gone, expected it where the run began"
        )

    def _take_lock(self, file: FileIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file.read(_MAX_HOLDER).decode("utf-8", "replace"))
            raise errors.UsageError(
                f"{self.folder}: the store is held by {holder}; wait for it or use --imgedit-out"
            ) from None
        except OSError as error:
            raise errors.UsageError(
                f"{self.folder}: {error.strerror}, expected a file system that has locks (flock); "
                "use --imgedit-out"
            ) from error
        file.truncate(0)
        file.write(
            f"process {os.getpid()} on {socket.gethostname()} since "
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC {_start_of(os.getpid())}".encode()
        )

    def __exit__(self, *error: object) -> None:
        for name in ("edits", "verdicts", "models"):
            if name in self.__dict__:
                with suppress(OSError):  # all of it is synced
                    self.__dict__.pop(name).close()
        self._release()

    def _release(self) -> None:
        """Let go of the lock, also where its file can no longer be written."""
        if self._lock is not None:
            with suppress(OSError):
                self._lock.truncate(0)
            with suppress(OSError):
                self._lock.close()
            self._lock = None

    def new_run(self) -> Path:
        """Create and return the folder of a new run, `runs/<UTC time>-<random id>`; raises
        `StoreError`.
        """
        now = datetime.now(UTC)
        folder = self.folder / "runs" / f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise errors.StoreError(
                f"{folder}: {error.strerror}, expected a folder that can be written"
            ) from error
        return folder


def _holder(text: str) -> str:
    """Say who holds a lock by the text of its holder, which a process that was killed, or one that
    shares the lock with it, may have left.
    """
    match = _HOLDER.fullmatch(text)
    if match is None:
        return "another process"
    named, pid, host, start = match.groups()
    if host == socket.gethostname() and _start_of(pid) != start:
        return f"another process (its lock names {named}, which is not to be found here)"
    return named


def _start_of(pid: int | str) -> str:
    """Return when a process started, in clock ticks since the boot; empty for one that has ended or
    is hidden.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def store_names(folder: Path) -> int:
    """Return how many of the names by which a store is known a folder has."""
    return sum(os.path.lexists(folder / name) for name in _KNOWN_BY)


def store_of(path: Path) -> Path | None:
    """Return the folder above a path that is a store, if any: one name alone may be of another."""
    return next((folder for folder in path.parents if store_names(folder) > 1), None)


def finished_runs(folder: Path) -> list[Path]:
    """Return the results.json of each finished run of a store, the oldest first."""
    return sorted(folder.glob("runs/*/results.json"), key=lambda path: path.lstat().st_mtime_ns)
