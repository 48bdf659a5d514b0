"""Locks between processes: `flock` on a file, and where the file system has none, a file beside it
that exclusive creation makes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

#: What `flock` says of a file system without locks: Lustre, NFS and FUSE as some mount them.
NO_FLOCK = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP})

#: What the holder of a lock writes into it, and the most bytes of that. The last number is when its
#: process started, which tells it from a later process of the same number. The word after it, in a
#: file that stands for a lock, is `_here`.
_HOLDER = re.compile(
    r"(process ([0-9]{1,9}) on (\S+) since [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC) ([0-9]*)"
    r"(?: (\S+))?"
)
_MAX_HOLDER = 400
#: Seconds between two looks at the file of another holder.
_PAUSE = 0.05
#: Looks at a file that is being written or removed, which takes no time.
_LOOKS = 20


class Held(Exception):
    """Another process holds a lock: `holder` names it. `file` is what to delete if that process has
    ended where this one cannot see it, else `None`.
    """

    def __init__(self, holder: str, file: Path | None = None) -> None:
        super().__init__(holder)
        self.holder = holder
        self.file = file


class Lock:
    """A lock that is held until `release`. `made` is the file that stands for it where the file
    system has no locks, `why` what the system says of these.
    """

    def __init__(self, file: FileIO) -> None:
        self.made: Path | None = None
        self.why = ""
        self._file = file
        self._is_flocked = False

    def take(self, path: Path, waits: bool) -> None:
        """Take the lock, as the function of this name says."""
        made = path.with_name(f"{path.name}.held")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            self._is_flocked = True
        except BlockingIOError:
            raise Held(_named(self._file.read(_MAX_HOLDER).decode("utf-8", "replace"))) from None
        except OSError as error:
            if error.errno not in NO_FLOCK:
                error.filename = str(path)
                raise
            self.why = os.strerror(error.errno)
        # The file may be that of a host that mounts the same folder without locks.
        if not self._is_flocked or os.path.lexists(made):
            _make(made, waits)
            self.made = made
        if self._is_flocked:
            self._file.truncate(0)
            self._file.write(_myself().encode())

    def release(self) -> None:
        """Let go of the lock, also where its files can no longer be written."""
        if self._is_flocked:
            with suppress(OSError):
                self._file.truncate(0)
        if self.made is not None and _is_of_this_process(_read(self.made)):
            with suppress(OSError):
                self.made.unlink()
        with suppress(OSError):
            self._file.close()


def take(path: Path, waits: bool = False) -> Lock:
    """Take the lock of a file, which is made if it is missing; with `waits`, wait for a holder.

    A holder on another host is not waited for where the file system has no locks: it cannot be seen
    whether it has ended. Raises `Held`, and `OSError`, which names the file, also for a link.
    """
    lock = Lock(_open(path))
    try:
        lock.take(path, waits)
    except BaseException:
        lock.release()
        raise
    return lock


def holder(path: Path) -> str:
    """Name who holds the lock of a file, as far as its files tell; an empty text if nobody does.

    Nothing is taken, not even for a moment, so that no run is kept out.
    """
    for text in (_read(path), _read(path.with_name(f"{path.name}.held"))):
        match = _HOLDER.fullmatch(text)
        if match is not None and not (_is_here(match) and _is_over(match)):
            return match[1]
    return ""


def _open(path: Path) -> FileIO:
    # With O_RDWR, opening a pipe waits for nobody.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    return os.fdopen(descriptor, "r+b", buffering=0)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file; wait for whoever holds it, and raise as `take` does."""
    lock = take(path, waits=True)
    try:
        yield
    finally:
        lock.release()


def _make(path: Path, waits: bool) -> None:
    """Make the file that stands for a lock, in place of one whose process has ended."""
    looks = _LOOKS
    while True:
        with suppress(FileExistsError):
            return _create(path)
        text = _read(path)
        holder = _HOLDER.fullmatch(text)
        if holder is None:  # it is being written, or gone by now
            looks -= 1
        elif holder[5] != _here():
            raise Held(_named(text), path)
        elif not _is_over(holder):
            if not waits:
                raise Held(_named(text))
        elif _remove(path):
            continue
        else:
            looks -= 1
        if looks == 0:
            raise Held(_named(text), path if holder is None else _guard(path))
        time.sleep(_PAUSE)


def _create(path: Path) -> None:
    """Make a file that names this process; raises `FileExistsError` for one that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(descriptor, f"{_myself()} {_here()}".encode())
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _guard(path: Path) -> Path:
    return path.with_name(f"{path.name}.removing")


def _remove(path: Path) -> bool:
    """Remove a file whose process has ended, unless another process is about to.

    Only who has made the guard looks and removes: nobody takes away the file that another process
    has made meanwhile.
    """
    guard = _guard(path)
    try:
        _create(guard)
    except FileExistsError:
        return False
    try:
        holder = _HOLDER.fullmatch(_read(path))
        if holder is not None and holder[5] == _here() and _is_over(holder):
            path.unlink()
    finally:
        guard.unlink()
    return True


def _read(path: Path) -> str:
    """Return the beginning of a lock's file; an empty text if it is gone or no file."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(descriptor, _MAX_HOLDER).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    return ""


def _myself() -> str:
    return (
        f"process {os.getpid()} on {socket.gethostname()} since "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC {_start_of(os.getpid())}"
    )


def _here() -> str:
    """Name where the number of a process means one process: the host, its boot, and the namespace
    of a container.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return "/".join(parts)


def _is_of_this_process(text: str) -> bool:
    match = _HOLDER.fullmatch(text)
    return match is not None and (match[2], match[5]) == (str(os.getpid()), _here())


def _named(text: str) -> str:
    """Say who holds a lock by the text of its holder, which a process that was killed, or one that
    shares the lock with it, may have left.
    """
    match = _HOLDER.fullmatch(text)
    if match is None:
        return "another process"
    if _is_here(match) and _is_over(match):
        return f"another process (its lock names {match[1]}, which is not to be found here)"
    return match[1]


def _is_here(holder: re.Match[str]) -> bool:
    return holder[3] == socket.gethostname() and holder[5] in (None, _here())


def _is_over(holder: re.Match[str]) -> bool:
    """Return whether a process of this host has ended, also where another one has its number."""
    pid = holder[2]
    start = holder[4]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # of another user, whose processes may be hidden
        return _start_of(pid) not in ("", start)
    return _start_of(pid) != start


def _start_of(pid: int | str) -> str:
    """Return when a process started, in clock ticks since the boot; empty for one that has ended or
    is hidden.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
