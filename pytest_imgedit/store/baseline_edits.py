"""The edits that baselines keep, `ab/<sha256>.png` as in a store, and those of a baseline wherever
they are.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.text import counted, printable
from pytest_imgedit.store.baselines import Baseline, BaselineItem
from pytest_imgedit.store.blobs import MAX_BLOB_BYTES, Blobs

#: The folder of the edits of baselines, in that of the baselines.
FOLDER = "edits"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BaselineEdits:
    """A folder of edits that baselines name by their SHA-256, in hex.

    No link below the folder is followed, so that nothing outside of it is read, written or removed.
    Several runs may write at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """Return the path that an edit has or would have; raise `ValueError` for what is no SHA-256
        in hex.
        """
        if not _DIGEST.fullmatch(sha256):
            raise ValueError(f"{sha256[:80]!r}: expected 64 digits of hex in lower case")
        return self.folder / sha256[:2] / f"{sha256}.png"

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the digests that have no file, in their order; what files hold is not read."""
        return [sha256 for sha256 in digests if self._size(sha256) is None]

    def damaged(self, digests: Iterable[str]) -> list[str]:
        """Return the digests in whose places is something else: a file with another SHA-256 or that
        cannot be read, a link or a folder; each file is read.
        """
        there = [sha256 for sha256 in digests if os.path.lexists(self.path(sha256))]
        return [sha256 for sha256 in there if self.get(sha256) is None]

    def get(self, sha256: str) -> bytes | None:
        """Return the bytes of an edit; `None` for a file that is missing, or a link, or that has
        another SHA-256.
        """
        if self._size(sha256) is None:
            return None
        with suppress(errors.UsageError):
            data = files.read_regular(self.path(sha256), MAX_BLOB_BYTES, "an edit")
            if hashlib.sha256(data).hexdigest() == sha256:
                return data
        return None

    def put(self, data: bytes) -> str:
        """Keep an edit, unless it is there and whole, and return its SHA-256.

        It is on disk when this returns. Raise `OSError` if it cannot be written, also for a folder
        that is a link.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        if self.get(sha256) is None:
            path = self.path(sha256)
            if path.parent.is_symlink():
                reason = "its folder is a link, which is not followed"
                raise NotADirectoryError(errno.ENOTDIR, reason, str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_bytes(path, data)
        return sha256

    def size(self, digests: Iterable[str]) -> int:
        """Return how many bytes the edits have that are there, each counted once."""
        return sum(self._size(sha256) or 0 for sha256 in set(digests))

    def remove(self, digests: Iterable[str]) -> None:
        """Remove edits that nobody needs; one that cannot be removed stays."""
        for sha256 in digests:
            path = self.path(sha256)
            if self._size(sha256) is not None:
                with suppress(OSError):
                    path.unlink()
                    path.parent.rmdir()  # fails while it has other edits

    def _size(self, sha256: str) -> int | None:
        """Return the number of bytes of a regular file with a digest's name; `None` if there is
        none, or a link leads to it.
        """
        path = self.path(sha256)
        try:
            if path.parent.is_symlink():
                return None
            status = path.lstat()
        except OSError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None


@dataclass(frozen=True)
class OtherEdits:
    """The edits of the baseline or run that a run is compared with: in `stores`, or else in
    `folders` of edits that baselines keep.

    `option` asks for them.
    """

    stores: Sequence[Blobs]
    folders: Sequence[BaselineEdits]
    option: str = "--imgedit-duel"

    def edit_of(self, sha256: str) -> bytes | None:
        """Return an edit by its SHA-256; `None` if no place has it whole."""
        found = chain(
            (store.get(sha256) for store in self.stores),
            (edits.get(sha256) for edits in self.folders),
        )
        return next((data for data in found if data is not None), None)

    def require_edits(self, baseline: Baseline, ids: Collection[str]) -> None:
        """Raise `UsageError` if an edit that the baseline has of one of these pairs is in no place,
        or in none with its digest; each edit is read.

        A pair that the baseline has no edit of, and an id that it does not have, are no reason.
        """
        wanted = set(ids)
        items = [item for item in baseline.items if item.id in wanted and any(item.edits)]
        lacking = {item.id: self._lacking(item) for item in items}
        lacking = {name: digests for name, digests in lacking.items() if digests}
        if not lacking:
            return
        has = "has no edits" if len(lacking) == len(items) else "lacks edits"
        places = [store.folder.parent for store in self.stores]
        places += [edits.folder for edits in self.folders]
        found = self._damage([digest for digests in lacking.values() for digest in digests])
        raise errors.UsageError(
            f"{self.option}: baseline {baseline.name} {has}: those of {len(lacking)} of "
            f"{len(items)} pairs are in none of {', '.join(map(shown, places))} (such "
            f"as {next(iter(lacking))}){found}; expected a baseline saved with "
            "--imgedit-save-edits, or a run of this store"
        )

    def _lacking(self, item: BaselineItem) -> list[str]:
        """Return the digests of the edits of a pair that no place has whole."""
        digests = [sha256 for sha256 in item.edits if sha256 is not None]
        return [sha256 for sha256 in digests if not self._has(sha256)]

    def _has(self, sha256: str) -> bool:
        if any(store.has(sha256) for store in self.stores):
            return True
        return any(edits.get(sha256) is not None for edits in self.folders)

    def _damage(self, digests: Sequence[str]) -> str:
        """Say how many of the files that are there have another content or cannot be read, and what
        the first one is; empty if there is none.
        """
        paths = [edits.path(sha256) for edits in self.folders for sha256 in edits.damaged(digests)]
        if not paths:
            return ""
        is_content = all(map(_is_regular, paths))
        said = "damaged" if is_content else "not readable"
        return f"; {counted(len(paths), 'file')} {said}, such as {_problem_at(paths[0])}"


def shown(path: Path) -> str:
    """Return a path for messages: from the working directory, if it is below that."""
    relative = os.path.relpath(path)
    return printable(str(path) if relative.startswith(os.pardir) else relative)


def _problem_at(path: Path) -> str:
    """Say where an edit is damaged or not readable, what is in its place, and what mends it, as far
    as its bytes tell.
    """
    if _is_linked(path):
        return f"{shown(path)}: behind a link, which is not followed"
    if path.is_dir():
        return f"{shown(path)}: a folder, expected a file"
    if not _is_regular(path):
        return f"{shown(path)}: not a regular file"
    found = files.misfit(path)
    if found is not None:
        return found.message(shown(path), "an edit")
    return f"{shown(path)}: of another SHA-256"


def _is_linked(path: Path) -> bool:
    return path.is_symlink() or path.parent.is_symlink()


def _is_regular(path: Path) -> bool:
    """Tell whether a file is one, and not behind a link."""
    return path.is_file() and not _is_linked(path)


def unneeded(old: Iterable[Baseline], kept: Iterable[Baseline]) -> set[str]:
    """Return the digests of the edits that baselines name and those which are kept do not."""
    return _named(old) - _named(kept)


def edits_of(baseline: Baseline) -> dict[str, str]:
    """Return, by the SHA-256 of each edit that a baseline names, the id of the first pair that has
    it.
    """
    found: dict[str, str] = {}
    for item in baseline.items:
        for sha256 in item.edits:
            if sha256 is not None:
                found.setdefault(sha256, item.id)
    return found


def _named(baselines: Iterable[Baseline]) -> set[str]:
    return {sha256 for baseline in baselines for sha256 in edits_of(baseline)}


def amount(size: int) -> str:
    """Return a number of bytes for messages, such as `3.1 MB`."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
