"""Files that users name for a command or a run to write: what they may replace, and how they are
written.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_imgedit.config.ini_file import configs_here
from pytest_imgedit.config.toml_file import suite_path
from pytest_imgedit.core import errors, files, images
from pytest_imgedit.store.store import store_names, store_of

#: Names of configs, which no output replaces.
_CONFIGS = ("imgedit.toml", "pyproject.toml")
#: Number of bytes at the beginning of a file that say what it is.
_HEAD = 100


def inputs(store: Path, *suites: str) -> list[Path]:
    """Return what no output may replace: a store, if the folder is one, and the files or folders of
    suites, which are named by their specs or by the config of the working directory.

    A folder in which the working directory lies is left out.
    """
    specs = list(suites)
    with suppress(errors.UsageError):  # who reads the config says what is wrong with it
        for config in configs_here():
            table = config.tables.get("suite")
            spec = table.get("spec") if isinstance(table, dict) else None
            if isinstance(spec, str):
                specs.append(spec)
    paths = (path for path in map(suite_path, specs) if path is not None)
    kept = [path for path in paths if not Path.cwd().is_relative_to(os.path.realpath(path))]
    if store_names(store):
        kept.insert(0, store)
    return kept


def check(outputs: Mapping[str, Path], kept: Iterable[Path] = ()) -> None:
    """Raise `UsageError` if a file cannot be written, would replace an input or a part of a store,
    or is named twice.

    `outputs` are paths by the format of what is written; `json` may replace a results.json. `kept`
    are inputs: files, and folders with all that is below them.
    """
    kept = list(kept)
    seen: set[Path] = set()
    for format_, path in outputs.items():
        target = target_of(path, kept)
        if target in seen:
            raise errors.UsageError(f"{path}: asked for as two reports, expected a path for each")
        seen.add(target)
        if files.is_folder(target):
            raise errors.UsageError(f"{path}: cannot be written, expected the path of a file")
        if not files.is_stream(path):
            _require_folder(path, target.parent)
            _refuse_content(format_, path, target)
        if os.path.lexists(target) and not os.access(target, os.W_OK):
            raise errors.UsageError(f"{path}: is read-only, expected a file that can be written")


def check_folder(path: Path, kept: Iterable[Path] = ()) -> None:
    """Raise `UsageError` if files cannot be written into a folder, or it is in a store or an
    input.
    """
    _require_folder(path, target_of(path, kept))


def check_empty(folder: Path) -> None:
    """Raise `UsageError` unless a folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise errors.UsageError(f"{folder}: is there already, expected a new or an empty folder")


def view_folder(store: Path) -> Path:
    """Return the only folder of a store that a command may write, that of `imgedit view`; raises
    `UsageError` if it cannot be written, or is no folder of the store.
    """
    folder = store / "view"
    if folder.is_symlink() or (not files.is_folder(folder) and os.path.lexists(folder)):
        raise errors.UsageError(f"{folder}: not a folder of the store, expected one, or nothing")
    _require_folder(folder, folder)
    return folder


def write(path: Path, text: str, kept: Iterable[Path] = (), format_: str = "") -> None:
    """Write a file completely or not at all, through links, and into devices and pipes.

    Raises `UsageError` as `check` does, and if writing fails; the old content is there then.
    """
    check({format_: path}, kept)
    with naming(path):
        if files.is_stream(path):
            files.append_bytes(path, text.encode())
        else:
            target = path.resolve()
            target.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(target, text)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn the error of a write into a `UsageError` that names the file, the reason and, on a full
    disk, the free space.
    """
    try:
        yield
    except OSError as error:
        raise errors.UsageError(f"{_shown(path)}: {files.why_unwritten(error)}") from error


def target_of(path: Path, kept: Iterable[Path]) -> Path:
    """Return where a path leads; raise `UsageError` if that is in a store or an input."""
    try:
        target = path.resolve()
        with suppress(FileNotFoundError, NotADirectoryError):
            target.lstat()  # fails for a name that is too long
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it leads nowhere"
        raise errors.UsageError(f"{_shown(path)}: {reason}, expected the path of a file") from None
    store = store_of(target)
    if store is not None:
        raise errors.UsageError(f"{path}: in the store {store}, expected a path outside of it")
    for place in kept:
        if target.is_relative_to(place.resolve()):
            raise errors.UsageError(
                f"{path}: in {place}, which holds results or inputs, expected a path outside of it"
            )
    return target


def _require_folder(path: Path, folder: Path) -> None:
    """Raise `UsageError` unless a folder is there, or can be made, and files can be made in it."""
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not files.is_folder(nearest):
        raise errors.UsageError(f"{path}: {nearest} is no folder, expected one to write into")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise errors.UsageError(
            f"{path}: folder {nearest} cannot be written, expected one that can"
        )


def _refuse_content(format_: str, path: Path, target: Path) -> None:
    """Raise `UsageError` if the file that is there is a config, an image or a baseline, or, unless
    `format_` is `json`, a results.json.
    """
    if not files.is_file(target):
        return
    with suppress(OSError), target.open("rb") as file:
        head = file.read(_HEAD)
        found = None
        if target.name in _CONFIGS:
            found = "a config"
        elif images.is_image(head):
            found = "an image"
        elif b'"imgedit.baseline/' in head:
            found = "a baseline"
        elif b'"imgedit.results/' in head and format_ != "json":
            found = "a results.json"
        if found is not None:
            raise errors.UsageError(
                f"{path}: is {found}, expected a new file or that of an older report"
            )


def _shown(path: Path) -> str:
    return str(path)[:200]
