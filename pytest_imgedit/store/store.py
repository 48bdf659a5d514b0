"""The store's folder: one holder at a time, its images and journals, and a folder for each run."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from pytest_imgedit.core import environments, errors, files, locks, strict_json
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.journal import EditRecord, Journal, ModelRecord, VerdictRecord

#: A folder with any of these is a store; a lock that a cleaner removed is made again.
_KNOWN_BY = frozenset(
    {"lock", "lock.held", "edits.jsonl", "verdicts.jsonl", "models.jsonl", "runs", "blobs"}
)


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
        #: What a user should know of how the store is held; empty if it is held as usual.
        self.warning = ""
        self._lock: locks.Lock | None = None

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
        """Store the recipe of an editor or judge, which other recipes name by its digest, unless it
        is there; raise `StoreError` if it cannot be written.
        """
        if digest not in self.models.records:
            self.models.append([ModelRecord(key=digest, recipe=recipe)])

    def __enter__(self) -> Store:
        """Make the folder, unless it is there, and take its lock; raise `UsageError` if it cannot
        be written, is no store, or is locked by another process.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            names = {path.name for path in self.folder.iterdir()} - {".gitignore"}
            if names and names.isdisjoint(_KNOWN_BY):
                raise errors.UsageError(
                    f"{self.folder}: holds other files, expected a store or an empty or new folder"
                )
            gitignore = self.folder / ".gitignore"
            lock = self.folder / "lock"
            for path in (gitignore, lock):
                if path.exists() and not path.is_file():
                    raise errors.UsageError(f"{path}: not a regular file, expected that of a store")
            if not gitignore.exists() or not gitignore.stat().st_size:
                gitignore.write_text("*\n")
            self._lock = self._take_lock(lock)
            try:
                self._opened = self.folder.stat()
                self._require_writable()
            except BaseException:
                self._release()
                raise
        except OSError as error:
            raise errors.UsageError(
                f"{error.filename or self.folder}: {files.why_unwritten(error)}, expected a folder "
                "that can be written"
            ) from error
        return self

    def _take_lock(self, path: Path) -> locks.Lock:
        """Return the lock, taken; raise `UsageError` for one that is held, a link, or of another
        user. On a file system without locks, `warning` says what stands in for one.
        """
        try:
            lock = locks.take(path)
        except locks.Held as held:
            over = f"; if that run is over, delete {held.file}" if held.file else ""
            raise errors.UsageError(
                f"{self.folder}: the store is held by {held.holder}; wait for it or use "
                f"--imgedit-out{over}"
            ) from None
        except OSError as error:
            place = Path(error.filename or path)
            reason = "a link" if place.is_symlink() else error.strerror
            if error.errno in (errno.EACCES, errno.EPERM):
                reason = f"{reason}{files.owner_note(place)}"
            raise errors.UsageError(
                f"{place}: {reason}, expected a folder that can be written, and its lock too; "
                "remove the lock if no run holds it, or use --imgedit-out"
            ) from error
        if lock.why:
            self.warning = (
                f"{self.folder}: the file system has no locks (flock: {lock.why}); {lock.made} "
                "keeps other runs out"
            )
        return lock

    def _require_writable(self) -> None:
        """Raise `UsageError` if a part of the store cannot be written, as one that another user
        made.
        """
        names = ("edits.jsonl", "verdicts.jsonl", "models.jsonl", "runs", "blobs")
        paths = [self.folder / name for name in names]
        paths += self.blobs.folder.glob("??")
        for path in paths:
            place = path if os.path.lexists(path) else self.folder
            if not files.is_writable(place):
                raise errors.UsageError(
                    f"{place}: {files.why_denied(place)}, expected a store that can be written: "
                    "its owner can change that (chmod -R), or use --imgedit-out"
                )

    def _require_there(self) -> None:
        """Raise `StoreError` if the folder that was opened has been removed or moved since."""
        with suppress(OSError):
            if self._opened is None or os.path.samestat(self._opened, self.folder.stat()):
                return
        raise errors.StoreError(
            f"{self.folder}: the store is gone, expected it where the run began"
        )

    def __exit__(self, *error: object) -> None:
        """Close the journals that were opened, and release the lock."""
        for name in ("edits", "verdicts", "models"):
            if name in self.__dict__:
                with suppress(OSError):  # all of it is synced
                    self.__dict__.pop(name).close()
        self._release()

    def _release(self) -> None:
        """Let go of the lock, also where its file can no longer be written."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def new_run(self) -> Path:
        """Create and return the folder of a new run, `runs/<UTC time>-<random id>`; raise
        `StoreError` if it cannot be created.
        """
        now = datetime.now(UTC)
        folder = self.folder / "runs" / f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise errors.StoreError(
                f"{folder}: {files.why_unwritten(error)}, expected a folder that can be written"
            ) from error
        return folder


def store_names(folder: Path) -> int:
    """Return how many of the names by which a store is known a folder has."""
    return sum(os.path.lexists(folder / name) for name in _KNOWN_BY)


def store_of(path: Path) -> Path | None:
    """Return the nearest folder above a path that is a store, if any: it has two of a store's names
    or more, as one alone may be another folder's.
    """
    return next((folder for folder in path.parents if store_names(folder) > 1), None)


def blobs_around(path: Path, store: Store) -> list[Blobs]:
    """Return the images of a store, and those of the store that a path is in, if it is another."""
    own = store_of(path.resolve())
    if own in (None, store.folder.resolve()):
        return [store.blobs]
    return [store.blobs, Blobs(own / "blobs")]


def finished_runs(folder: Path) -> list[Path]:
    """Return the results.json of each finished run of a store, the oldest first."""
    return sorted(folder.glob("runs/*/results.json"), key=lambda path: path.lstat().st_mtime_ns)
