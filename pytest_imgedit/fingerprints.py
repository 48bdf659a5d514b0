"""What identifies an editor or judge for good: hashes of weights, folders and source files."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_imgedit.checkpoints import MODEL_KINDS, model_folder
from pytest_imgedit.endpoints import ENDPOINT_KINDS
from pytest_imgedit.errors import UsageError
from pytest_imgedit.registry import source_file
from pytest_imgedit.store.runs import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_imgedit.registry import Target

#: To be raised when a built-in editor or judge changes what it computes, so that stored results are not reused.
REVISION = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")


def fingerprint(target: Target, params: Mapping[str, object], cache: Path) -> str:
    """Return what identifies an editor or judge apart from the text of its parameters, as 64 hex digits.

    A model folder counts with every byte of its files, a server with its URL and the model's name, a folder of
    finished images with names, sizes and times. A class counts with its own source file, and with every byte of the
    files and folders that its parameters name; other modules that it imports do not count. `cache` remembers file
    hashes by path, size and time, so that weights are read once, not once a run. Raises `UsageError` if a model is not
    there.
    """
    parts: list[object] = [target.kind, target.attribute]
    if target.module.startswith("pytest_imgedit."):
        parts.append(REVISION)
    if target.kind in MODEL_KINDS:
        parts.append(_folder_digest(model_folder(target.argument or "", target.kind), cache))
    elif target.kind in ENDPOINT_KINDS:
        parts.append(target.argument)
    elif target.kind == "folder":
        files = sorted(path for path in Path(target.argument or "").rglob("*") if path.is_file())
        parts.append([(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files])
    elif not target.module.startswith("pytest_imgedit."):
        path = source_file(target.module)
        named = (value for value in (target.argument, *params.values()) if isinstance(value, str) and value)
        parts += [target.module, target.argument, _sha256(path) if path else ""]
        parts += [_folder_digest(Path(value), cache) for value in named if _is_named_data(value, cache)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _is_named_data(name: str, cache: Path) -> bool:
    """Tell whether a parameter names a file or folder of its own, not one that holds the store or all there is."""
    try:
        path = Path(name)
        return path.name not in ("", "..") and path.exists() and not cache.resolve().is_relative_to(path.resolve())
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or a loop of links: no path
        return False


def _folder_digest(folder: Path, cache: Path) -> list[tuple[str, str]]:
    known = _read_cache(cache)
    files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    files = [path for path in files if path.is_file() and not _hidden(path.relative_to(folder))]

    stop = threading.Event()

    def digest(path: Path) -> tuple[str, str]:
        real = path.resolve()
        if _SHA256.fullmatch(real.name):  # the hub's cache names large files by their SHA-256
            return str(real), real.name
        status = real.stat()
        stamp = f"{real}:{status.st_size}:{status.st_mtime_ns}"
        return stamp, known.get(stamp) or _sha256(real, stop)

    with ThreadPoolExecutor(8) as pool:
        try:
            digests = list(pool.map(digest, files))
        except OSError as error:
            raise UsageError(
                f"{error.filename or folder}: {error.strerror}, expected a file that can be read"
            ) from error
        finally:
            stop.set()  # after Ctrl-C the other threads end at once
    fresh = {stamp: sha256 for stamp, sha256 in digests if ":" in stamp and stamp not in known}
    if fresh:
        with suppress(OSError):  # it saves time only
            write_json(cache, {**known, **fresh})
    return [(str(path.relative_to(folder)), sha256) for path, (_, sha256) in zip(files, digests, strict=True)]


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _read_cache(path: Path) -> dict[str, str]:
    """Read the remembered hashes; a file that is missing or damaged costs only the time to hash again."""
    try:
        known = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _sha256(path: Path, stop: threading.Event | None = None) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while (chunk := file.read(2**23)) and not (stop is not None and stop.is_set()):
            digest.update(chunk)
    return digest.hexdigest()
