"""What identifies an editor or judge for good: digests of the files that it loads and of the code
that it runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import digest, write_json

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Digests:
    """SHA-256 of what models are made of.

    `cache` is the file that remembers digests by path, size and times, so that weights are read
    once, not once a run. `sent` are the digests, by path, of files that workers on other hosts must
    find the same.
    """

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.sent: dict[str, str] = {}

    def of(self, folder: Path, names: Sequence[str], is_sent: bool = False) -> dict[str, str]:
        """Return the digests of files by their names relative to `folder`; raises `UsageError` for
        one that cannot be read.
        """
        digests = digest_files(folder, names, self.cache)
        if is_sent:
            self.sent |= {str(Path(folder, name)): sha256 for name, sha256 in digests.items()}
        return digests

    def resolved(self, value: Any) -> Any:
        """Return a parameter with each file and folder that it names, in lists and tables too, as
        its content.
        """

        def content_of(text: str) -> Any:
            if not text or not _is_named_data(text, self.cache):
                return text
            return {"content": self.of(Path(text), _files_below(Path(text)), is_sent=True)}

        return canonical(value, content_of)


def canonical(value: Any, of_text: Callable[[str], Any] = lambda text: text) -> Any:
    """Return a parameter in which a whole number is written as such, so that 4 and 4.0 are one;
    texts by `of_text`.
    """
    if isinstance(value, dict):
        return {name: canonical(inner, of_text) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(inner, of_text) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return of_text(value)
    return value


def _is_named_data(name: str, cache: Path) -> bool:
    """Tell whether a parameter names a file or folder of its own, not one that holds the store or
    all there is.
    """
    try:
        path = Path(name)
        return (
            path.name not in ("", "..")
            and path.exists()
            and not cache.resolve().is_relative_to(path.resolve())
        )
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or a loop of links: no path
        return False


def _files_below(folder: Path) -> list[str]:
    """Names of all files below a folder, through links too, but of no folder twice; hidden ones
    not.
    """
    if folder.is_file():
        return ["."]
    paths, seen = [], {folder.resolve()}
    for parent, folders, files in os.walk(folder, followlinks=True):
        inside = {
            name: Path(parent, name).resolve()
            for name in sorted(folders)
            if not name.startswith(".")
        }
        folders[:] = [name for name, real in inside.items() if real not in seen]
        seen.update(inside.values())
        paths += [Path(parent, name) for name in files if not name.startswith(".")]
    return sorted(str(path.relative_to(folder)) for path in paths if path.is_file())


def digest_files(folder: Path, names: Sequence[str], cache: Path) -> dict[str, str]:
    """Return the SHA-256 of files by their names relative to `folder`; links are followed.

    Raises `UsageError`, naming the file, for one that cannot be read.
    """
    with _locked(cache):
        known = _read_cache(cache)
        stop = threading.Event()

        def of(name: str) -> tuple[str, str]:
            real = (folder / name).resolve()
            if _is_hub_blob(real):  # named by its SHA-256
                return str(real), real.name
            status = real.stat()
            stamp = f"{real}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
            return stamp, known.get(stamp) or digest(real, stop)

        with ThreadPoolExecutor(8) as pool:
            try:
                digests = list(pool.map(of, names))
            except OSError as error:
                raise UsageError(
                    f"{error.filename or folder}: {error.strerror}, expected a readable file"
                ) from error
            finally:
                stop.set()  # after Ctrl-C the other threads end at once
        fresh = {stamp: sha256 for stamp, sha256 in digests if ":" in stamp and stamp not in known}
        if fresh:
            with suppress(OSError):  # it saves time only
                write_json(cache, {**known, **fresh})
    return {name: sha256 for name, (_, sha256) in zip(names, digests, strict=True)}


def _is_hub_blob(path: Path) -> bool:
    """Tell whether a file lies in the hub's cache, which names large files by their SHA-256."""
    return (
        path.parent.name == "blobs"
        and path.parent.parent.name.startswith(("models--", "datasets--"))
        and bool(_SHA256.fullmatch(path.name))
    )


def host_cache() -> Path:
    """Where a host that workers run on remembers digests: in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "pytest-imgedit", "fingerprints.json")


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Have processes of one host that want the same digests wait for the first one, where a lock
    can be had.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            cache.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(cache.with_name(f".{cache.name}.lock").open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read_cache(path: Path) -> dict[str, str]:
    """Read the remembered hashes; a file that is missing or damaged costs only the time to hash
    again.
    """
    with suppress(OSError, ValueError):
        digests = json.loads(path.read_text("utf-8"))
        if isinstance(digests, dict):
            return digests
    return {}
