"""Files that users name: bounded reads of regular files, digests, files that are written completely
or not at all, and files that are read ahead.
"""

import errno
import hashlib
import json
import mmap
import os
import pwd
import secrets
import shutil
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pytest_imgedit.core import errors, file_types, folders, strict_json
from pytest_imgedit.core.text import escaped_json, shorten

#: The largest JSON object or TOML file that is read.
MAX_TEXT_BYTES = 64 * 2**20
#: Characters of a text that are encoded at a time.
_BLOCK = 2**20
#: Bytes of a file that are hashed at a time.
_CHUNK = 2**23
#: Files that are read ahead at a time, and bytes of each.
_READ_AHEAD_THREADS = 4
_READ_AHEAD_BYTES = 2**24
#: Characters of a path that messages show.
_MAX_SHOWN = 200
#: Characters of a file's name in that of its partial file, so that no file system refuses it.
_MAX_NAME = 40
#: What the system says of a disk without space, and of a quota that is used up.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def read_ahead(paths: Iterable[Path]) -> None:
    """Have the system hold files in memory, by reading them in threads; return at once.

    `POSIX_FADV_WILLNEED` is not enough: Linux cuts each advice to a few hundred KiB.
    """
    waiting = deque(paths)

    def read() -> None:
        """Read one waiting file after another to its end, into a buffer that nobody uses."""
        buffer = bytearray(_READ_AHEAD_BYTES)
        with suppress(IndexError):  # until no file is waiting
            while True:
                with waiting.popleft().open("rb", buffering=0) as file:
                    while file.readinto(buffer):
                        pass

    for _ in range(_READ_AHEAD_THREADS):
        threading.Thread(target=read, daemon=True).start()


def read_regular(path: Path, most: int, expected: str) -> bytes:
    """Return the bytes of a regular file of at most `most` bytes.

    Raises `UsageError`, which names the file, if it cannot be opened or read, is too large, or is
    not regular: reading a pipe blocks, and a device never ends. The message says what was
    `expected`, unless the file is too large.
    """
    shown = _shown(path)
    try:
        with _opened(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise errors.UsageError(f"{shown}: not a regular file, expected {expected}")
            if status.st_size > most:
                raise errors.UsageError(f"{shown}: {status.st_size} bytes, expected at most {most}")
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise unusable(path, expected, f"{shown}: {reason}, expected {expected}") from None


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= _MAX_SHOWN else f"…{text[-_MAX_SHOWN:]}"


def _opened(path: Path) -> BinaryIO:
    """Open a file to read; a pipe is opened without waiting for a writer."""
    return open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))


def unusable(path: Path, expected: str, otherwise: str) -> errors.UsageError:
    """Return the error of a file that its reader cannot use: what it is by its bytes, and what
    mends it; with the message `otherwise` if the bytes do not tell.
    """
    return error_of_misfit(path, expected) or errors.UsageError(otherwise)


def error_of_misfit(path: Path, expected: str) -> errors.UsageError | None:
    """Return the error of a file that is a dead link, or by its bytes not what is expected; `None`
    for any other file.
    """
    found = misfit(path)
    return None if found is None else errors.UsageError(found.message(_shown(path), expected))


def misfit(path: Path) -> file_types.Misfit | None:
    """Return what a file is by its bytes, as `file_types.misfit` does, or that it is a dead link;
    `None` also for a file that cannot be read or is not regular.
    """
    if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114 - any name
        return _dead_link(path)
    with suppress(OSError, ValueError), _opened(path) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size == 0:
            return file_types.EMPTY
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return file_types.misfit(data)
    return None


def _dead_link(path: Path) -> file_types.Misfit:
    """Return where a dead link leads, and what fetches the missing file, as far as that tells."""
    target = str(path.readlink())
    entry = folders.hub_entry(path)
    if entry is not None:
        remedy = f"{entry.download} fetches it"
    elif ".git/annex/objects/" in target:
        remedy = "git annex get fetches it"
    elif ".dvc/cache/" in target or "/dvc/" in target:
        remedy = "dvc pull fetches it"
    else:
        remedy = "copy the files too that links lead to (cp -rL)"
    return file_types.Misfit(f"a dead link to {shorten(target, 200)}", remedy)


def read_utf8(path: Path, most: int, expected: str) -> str:
    """Return the text of a regular file of at most `most` bytes, without a byte order mark.

    An empty file is an empty text. Raises `UsageError` as `read_regular` does, and for a file that
    is not UTF-8, or by its bytes no text that is read here.
    """
    data = read_regular(path, most, expected)
    found = file_types.misfit(data)
    if found not in (None, file_types.EMPTY):
        raise errors.UsageError(found.message(_shown(path), expected))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise errors.UsageError(
            f"{path}: not UTF-8 (byte {error.start}), expected {expected}"
        ) from None


def read_json(
    path: Path, most: int, expected: str, parse: Callable[[str], Any] = json.loads
) -> Any:
    """Return the value that `parse` makes of a JSON file of at most `most` bytes.

    Raises `UsageError` as `read_utf8` does, and if `parse` refuses the text; the message names the
    file, and the line only if the JSON is malformed.
    """
    text = read_utf8(path, most, expected)
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = file_types.why_no_json(text, error)
        problem = f"{path}{line}: not valid JSON: {reason}, expected {expected}"
        raise unusable(path, expected, problem) from None


def read_object(path: Path, expected: str) -> strict_json.JsonObject:
    """Return the JSON object in a file; raises `UsageError` as `read_json` does, and for any other
    value.
    """
    value = read_json(path, MAX_TEXT_BYTES, expected)
    if not isinstance(value, dict):
        raise errors.UsageError(f"{path}: {type(value).__name__}, expected {expected}")
    return value


def digest(path: Path, stop: threading.Event | None = None) -> str:
    """Return the SHA-256 of a file in hex; once `stop` is set, that of the part read so far."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            if stop is not None and stop.is_set():
                break
            sha256.update(chunk)
    return sha256.hexdigest()


def no_such(path: Path | str, what: str) -> str:
    """Return a phrase for a path at which there is no `what`, such as a folder."""
    note = " (~ is not expanded)" if str(path).startswith("~") else ""
    return f"{path}: no such {what}{note}"


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file; false for an impossible name."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for one


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; false for an impossible name."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises for one


def write_json(path: Path, document: Any) -> None:
    """Write JSON as `write_text` does; raises `ValueError` for NaN and infinity."""
    write_text(path, to_json(document))


def to_json(document: Any) -> str:
    """Return a document as JSON in the format of all files that are written; raises `ValueError`
    for NaN and infinity.
    """
    return escaped_json(json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text as `write_bytes` does, a block at a time."""
    starts = range(0, len(text), _BLOCK)
    _write(path, (text[start : start + _BLOCK].encode() for start in starts))


def write_bytes(path: Path, data: bytes, durable: bool = True) -> None:
    """Write a file so that readers see the old or the new content, never a part of it.

    The new file keeps the mode of the old one. A durable file is on disk when this returns. Raises
    `OSError`, which names the file; the old content is left then, and nothing else.
    """
    _write(path, [data], durable)


def _write(path: Path, blocks: Iterable[bytes], durable: bool = True) -> None:
    """Write blocks as `write_bytes` writes data: to a file beside, which then takes the name."""
    # Two writers at a time use two names.
    partial = path.with_name(f".{secrets.token_hex(4)}.{path.name[-_MAX_NAME:]}.partial")
    try:
        with partial.open("xb") as file:
            file.writelines(blocks)
            file.flush()
            with suppress(OSError):  # there is no old file
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode):
                    os.fchmod(file.fileno(), stat.S_IMODE(mode))
            if durable:
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:  # also Ctrl-C
        with suppress(OSError):
            partial.unlink()
        _name_file(error, path)
        raise


def is_stream(path: Path) -> bool:
    """Return whether writing to a path replaces nothing: it is a device, a pipe, or an open file
    such as /dev/stdout.
    """
    folder = os.path.realpath(path.parent)
    is_other = os.path.exists(path) and not is_file(path) and not is_folder(path)  # noqa: PTH110
    return is_other or folder == "/dev" or folder.startswith("/proc/")


def append_bytes(path: Path, data: bytes) -> None:
    """Write to the end of a file, which is made if it is missing, or of a stream.

    Raises `OSError`, which names the path, also for a pipe that nobody reads.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, 0o666)
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
    except OSError as error:
        _name_file(error, path)
        raise


def _name_file(error: BaseException, path: Path) -> None:
    """Make an error of the system name the file that was to be written; no other error changes."""
    if isinstance(error, OSError):
        error.filename = str(path)
        error.filename2 = None


def why_unwritten(error: OSError) -> str:
    """Return the reason of an error of writing; if the disk is full, with the space that is free
    at the file that the error names, if it names one.
    """
    return _with_free_space(error, error.filename)


def _with_free_space(error: OSError, file: Path | str | None) -> str:
    """Return the reason of an error; if the disk is full, with the space that is free at a file."""
    reason = error.strerror or str(error)
    if error.errno not in _FULL or not file:
        return reason
    folder = next(parent for parent in Path(file).absolute().parents if is_folder(parent))
    return f"{reason} ({shutil.disk_usage(folder).free / 2**20:.1f} MiB free)"


def why_not_stored(path: Path, error: OSError) -> str:
    """Return why a file of a store cannot be written; if the disk is full, also what to do."""
    reason = f"{path}: {_with_free_space(error, error.filename or path)}"
    if error.errno not in _FULL:
        return reason
    return f"{reason}: free some, or use --imgedit-out; what is stored is kept"


def is_writable(path: Path) -> bool:
    """Return whether a file can be written, or files can be made in a folder; false for a path that
    does not exist.
    """
    mode = os.W_OK | os.X_OK if is_folder(path) else os.W_OK
    return os.access(path, mode, effective_ids=True)


def why_denied(path: Path) -> str:
    """Return why a path cannot be written: its file system is read-only, or access is denied, with
    its owner and its mode.
    """
    with suppress(OSError):
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return os.strerror(errno.EROFS)
    return f"{os.strerror(errno.EACCES)}{owner_note(path)}"


def owner_note(path: Path) -> str:
    """Return whose a path is, for the end of a message: ` (of user ann, mode 0644)`; an empty text
    if that cannot be seen.
    """
    try:
        status = path.lstat()
    except OSError:
        return ""
    name = str(status.st_uid)
    with suppress(KeyError):
        name = pwd.getpwuid(status.st_uid).pw_name
    return f" (of user {name}, mode {stat.S_IMODE(status.st_mode):04o})"
