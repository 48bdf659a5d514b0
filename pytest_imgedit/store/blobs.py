"""Content-addressed images: `blobs/ab/<sha256>.<png|jpg|webp>`, written once and never changed.

The thumbnail of an image for reports is beside it: `<sha256>.thumbnail.webp`.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pytest_imgedit.core import errors, files, images

#: The largest image that an editor may return has fewer bytes as a PNG.
MAX_BLOB_BYTES = 2**29
_THUMBNAIL = ".thumbnail.webp"
#: What the files of images and of their thumbnails are called.
BLOB_NAME = re.compile(r"[0-9a-f]{64}\.(png|jpg|webp)")
THUMBNAIL_NAME = re.compile(r"[0-9a-f]{64}\.thumbnail\.webp")
#: Inode, size, and time of the last change in nanoseconds, of a file.
_FileState = tuple[int, int, int]


class Blobs:
    """The images of one store; `require_there` raises `StoreError` if the store is gone."""

    def __init__(self, folder: Path, require_there: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self.require_there = require_there
        self._folders: set[Path] = set()
        #: What the file of a blob was when it had the hash of its name, by that name.
        self._whole: dict[str, _FileState] = {}

    def path(self, sha256: str, suffix: str = ".png") -> Path:
        """Return the path that a blob has or would have."""
        return self.folder / f"{sha256[:2]}/{sha256}{suffix}"

    def put(self, data: bytes, durable: bool = True) -> str:
        """Store an encoded image and return its SHA-256 in hex.

        A blob that is there and whole is not written again. A durable one is on disk when this
        returns (file and folder synced). Others are for reports only, and may be lost when the
        machine stops. Raise `StoreError` if it cannot be written, or the store is gone.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256, images.suffix_of(data))
        with suppress(OSError):  # it is not there, or cannot be read: it is written
            if path.stat().st_size == len(data) and self.has(sha256, path.suffix):
                return sha256
        self.require_there()
        # A store has one writer; with one name, a crash leaves at most one file.
        partial = self.folder / ".partial"
        try:
            if path.parent not in self._folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                partial.unlink(missing_ok=True)
                self._folders.add(path.parent)
            with partial.open("xb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            partial.replace(path)
            if durable:
                sync_folder(path.parent)
        except OSError as error:
            with suppress(OSError):
                partial.unlink()
            raise errors.StoreError(files.why_not_stored(path, error)) from error
        return sha256

    def thumbnail(self, sha256: str) -> Path | None:
        """Return the path of a blob's thumbnail; `None` if it is missing, a link, or by its header
        no thumbnail.
        """
        path = self.path(sha256, _THUMBNAIL)
        return path if images.is_thumbnail(path) else None

    def made_thumbnail(self, sha256: str, suffix: str = ".png") -> Path | None:
        """Return the path of a blob's thumbnail, which is made again if `thumbnail` has none;
        `None` if that cannot be done.
        """
        path = self.thumbnail(sha256)
        if path is not None:
            return path
        with suppress(errors.ImageError, errors.StoreError):
            # `get` returns only bytes that have this digest
            data = self.get(sha256, suffix) or b""
            self.put_thumbnail(sha256, images.thumbnail(images.decode(data)))
        return self.thumbnail(sha256)

    def put_thumbnail(self, sha256: str, data: bytes) -> None:
        """Store the thumbnail of a blob, unless there is one; raise `StoreError` if it cannot be
        written.

        It may be lost or damaged when the machine stops; `made_thumbnail` makes it again.
        """
        path = self.path(sha256, _THUMBNAIL)
        try:
            if self.thumbnail(sha256) is None:
                files.write_bytes(path, data, durable=False)
        except OSError as error:
            raise errors.StoreError(files.why_not_stored(path, error)) from error

    def get(self, sha256: str, suffix: str = ".png") -> bytes | None:
        """Return a blob's bytes; `None` if `has` is not true of it."""
        if not self.has(sha256, suffix):
            return None
        try:
            return files.read_regular(self.path(sha256, suffix), MAX_BLOB_BYTES, "an image")
        except errors.UsageError:
            return None

    def has(self, sha256: str, suffix: str = ".png") -> bool:
        """Tell whether a blob can be read and has the hash of its name, which is computed once for
        a file that does not change.
        """
        path = self.path(sha256, suffix)
        try:
            status = path.stat()
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._whole.get(path.name) == state:
                return True
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BLOB_BYTES:
                return False
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
        except OSError:
            return False
        if digest.hexdigest() != sha256:
            return False
        self._whole[path.name] = state
        return True


def sync_folder(folder: Path) -> None:
    """Make renames and new files in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
