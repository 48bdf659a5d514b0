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

#: What the holder of a lock writes into it, and the most bytes of that. `start` is when its process
#: started, which tells it from a later process of the same number. `place`, in a file that stands
#: for a lock, is `_here`.
_HOLDER = re.compile(
    r"(?P<name>process (?P<pid>[0-9]{1,9}) on (?P<host>\S+) since "
    r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC) (?P<start>[0-9]*)(?: (?P<place>\S+))?"
)
_MAX_HOLDER = 400
#: Seconds between two looks at the file of another holder.
_PAUSE = 0.05
#: The most looks at a file that is being written or removed, which takes no time.
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
        """Take the lock by `flock`, and by a file beside it if `flock` is missing or such a file is
        there already.

        Raises as the function `take` does.
        """
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
    """Return the lock of a file, taken; the file is made if it is missing.

    Raises `Held` for another holder, unless `waits`: then it is waited for. A holder on another
    host is not waited for where the file system has no locks, since nothing tells whether it has
    ended. Raises `OSError`, which names the file, if the file cannot be opened or is a link.
    """
    lock = Lock(_open(path))
    try:
        lock.take(path, waits)
    except BaseException:
        lock.release()
        raise
    return lock


def holder(path: Path) -> str:
    """Return the name of the process that the files of a lock call its holder; an empty text if
    there is none, or it has ended.

    The lock is not taken, not even for a moment, so that no run is kept out.
    """
    for text in (_read(path), _read(path.with_name(f"{path.name}.held"))):
        match = _HOLDER.fullmatch(text)
        if match is not None and not (_is_here(match) and _is_over(match)):
            return match["name"]
    return ""


def _open(path: Path) -> FileIO:
    # With O_RDWR, opening a pipe waits for nobody.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    return os.fdopen(descriptor, "r+b", buffering=0)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file; wait for another holder, and raise, as `take` does with `waits`."""
    lock = take(path, waits=True)
    try:
        yield
    finally:
        lock.release()


def _make(path: Path, waits: bool) -> None:
    """Make the file that stands for a lock; one whose process has ended is removed before.

    Raises `Held` for one of another process, unless it `waits` and that process is of this host,
    and for a file that stays unreadable or cannot be removed.
    """
    looks = _LOOKS
    while True:
        with suppress(FileExistsError):
            _create(path)
            return
        text = _read(path)
        match = _HOLDER.fullmatch(text)
        if match is None:  # it is being written, or gone by now
            looks -= 1
        elif match["place"] != _here():
            raise Held(_named(text), path)
        elif not _is_over(match):
            if not waits:
                raise Held(_named(text))
        elif _remove(path):
            continue
        else:
            looks -= 1
        if looks == 0:
            raise Held(_named(text), path if match is None else _guard(path))
        time.sleep(_PAUSE)


def _create(path: Path) -> None:
    """Make a file that names this process; raises `FileExistsError` if there is one already."""
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
    """Remove a file if its process has ended; return false if another process is about to do that.

    Only the process that has made the guard looks and removes, so that nobody removes a file that
    another process has made meanwhile.
    """
    guard = _guard(path)
    try:
        _create(guard)
    except FileExistsError:
        return False
    try:
        match = _HOLDER.fullmatch(_read(path))
        if match is not None and match["place"] == _here() and _is_over(match):
            path.unlink()
    finally:
        guard.unlink()
    return True


def _read(path: Path) -> str:
    """Return the beginning of a lock's file; an empty text if it cannot be read, or is a link."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(descriptor, _MAX_HOLDER).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    return ""


def _myself() -> str:
    """Return what this process writes as the holder of a lock, without its place."""
    return (
        f"process {os.getpid()} on {socket.gethostname()} since "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC {_start_of(os.getpid())}"
    )


def _here() -> str:
    """Return the place in which the number of a process means one process: the host, its boot, and
    the namespace of a container, as far as these can be read.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return "/".join(parts)


def _is_of_this_process(text: str) -> bool:
    match = _HOLDER.fullmatch(text)
    if match is None:
        return False
    return (match["pid"], match["place"]) == (str(os.getpid()), _here())


def _named(text: str) -> str:
    """Return who holds a lock, by the text in its file.

    A process that has ended may have left that text, so that the holder is another process.
    """
    match = _HOLDER.fullmatch(text)
    if match is None:
        return "another process"
    if _is_here(match) and _is_over(match):
        return f"another process (its lock names {match['name']}, which is not to be found here)"
    return match["name"]


def _is_here(holder: re.Match[str]) -> bool:
    return holder["host"] == socket.gethostname() and holder["place"] in (None, _here())


def _is_over(holder: re.Match[str]) -> bool:
    """Return whether a process of this host has ended, even if another one has its number now."""
    pid = holder["pid"]
    start = holder["start"]
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
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    _, _, behind_name = text.rpartition(")")  # the name may hold blanks, and is field 2
    fields = behind_name.split()
    state = fields[0]  # field 3 in proc(5)
    start = fields[19]  # field 22
    return "" if state in "ZX" else start
