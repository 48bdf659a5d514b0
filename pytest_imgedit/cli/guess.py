"""Guesses a suite from what a user has: a folder of images, a table of prompts, or a file that is a
suite already.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from pytest_imgedit.config import settings, toml_file
from pytest_imgedit.core import errors, files, folders, strict_json
from pytest_imgedit.core.text import counted, shorten, steering
from pytest_imgedit.kinds.folder import SUFFIXES
from pytest_imgedit.suites import base, cells, native
from pytest_imgedit.suites.rows import COPIES_LINKS, SuiteRow, raise_problems, read_rows
from pytest_imgedit.suites.sources import SourceColumns, columns_beside

#: Folders that hold no images of a benchmark.
_SKIPPED = {"benchmarks", "node_modules", "site-packages", "__pycache__"}
_TABLES = (".csv", ".jsonl", ".json")
#: A new suite in which a person is to write instructions.
TABLE = "pairs.csv"
#: Bytes of the text beside an image.
_MOST_TEXT = 2**16
#: Files and folders that cannot be used and are named.
_MOST_NAMED = 3
#: Characters of the path of each.
_MOST_SHOWN = 300
#: A column names images if it does so in at least this part of the rows.
_MOST_ROWS = 0.8
#: The column of images in a new suite, and what the reader takes for further sources beside it.
_IN_NEW_SUITE = SourceColumns(("image",))


@dataclass(frozen=True)
class Guess:
    """A suite: the `spec` of a file that is one already, or `rows` for a new file with images below
    `root`, or neither.

    Without both it is the embedded suite.

    `origin` says in a few words where it comes from, `unused` what was not used and why; `missing`
    counts the instructions that the user still has to write; the new file is `TABLE` then. `places`
    say in which file and line each of the rows was found, if they are from a file.
    """

    origin: str
    spec: Path | None = None
    rows: list[strict_json.JsonObject] = field(default_factory=list)
    root: Path = Path()
    missing: int = 0
    unused: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    @property
    def file_name(self) -> str:
        """What a new file of the suite is called."""
        return TABLE if self.missing else "pairs.jsonl"


def guess_suite(data: Path | None) -> Guess:
    """Return the suite that a path holds; without a path, that of this folder, or the embedded one
    if this folder holds nothing usable.

    Raises `UsageError` if a path holds no suite; the message names the wrong row.
    """
    _walk.cache_clear()  # a folder is looked through once a call
    if data is None:
        return _of_folder(Path(), is_named=False)
    if not data.exists():
        raise errors.UsageError(
            f"{data}: no such file or folder, expected a CSV, JSONL or JSON file, or a "
            "folder of images"
        )
    problem = _bad_name(data)
    if problem:
        raise errors.UsageError(f"{str(data)!a}: {problem}")
    if not data.is_file():
        return _of_folder(data, is_named=True)
    if data.suffix.lower() not in toml_file.SUITE_SUFFIXES:
        raise errors.UsageError(
            f"{data}: expected a file of {', '.join(toml_file.SUITE_SUFFIXES)}, or a folder of "
            "images"
        )
    return _of_table(data)


def _of_folder(folder: Path, is_named: bool) -> Guess:
    """Return the first table of a folder as a suite, or else its images, or the embedded suite.

    Raises `UsageError` if a folder that the user named has neither, or holds a dataset in a form
    that is not read.
    """
    if is_named:
        other_form = folders.hub_cache_hint(folder) or folders.arrow_hint(folder)
        if other_form is not None:
            raise errors.UsageError(f"{folder} is {other_form}")
    unused = _unusable(folder)
    guess = _first_table(folder, unused) or _all_images(folder, is_named, unused)
    if guess is None and is_named:
        nothing = f"{folder}: holds no table of prompts and no image"
        raise errors.UsageError(unused[0] if unused else nothing)
    return replace(guess or Guess("scenes (no prompts for images found)"), unused=unused)


def _first_table(folder: Path, unused: list[str]) -> Guess | None:
    """Return the first table of a folder that can be a suite; `None` if there is none.

    `unused` gets a line for each other table: how to use it, or why it cannot be used. A JSON file
    that cannot be a suite goes unmentioned.
    """
    first = None
    for table in _usable(folder, _TABLES):
        try:
            guess = _of_table(table)
        except errors.UsageError as error:
            if table.suffix.lower() != ".json":  # a JSON file can be anything
                unused.append(str(error))
            continue
        if first is None:
            first = guess
        else:
            unused.append(f"{table}; imgedit init {table} uses it instead")
    return first


def _all_images(folder: Path, is_named: bool, unused: list[str]) -> Guess | None:
    """Return the images of a folder as a suite; `None` if there are none.

    In a folder that the user has not named, images without instructions are not taken either:
    `unused` says so. An error is raised only for a folder that the user has named.
    """
    images = _usable(folder, SUFFIXES)
    if not images:
        return None
    try:
        guess = _of_images(folder, images)
        if is_named or not guess.missing:
            return guess
        unused.append(  # such as the pictures of a repository's documentation
            f"{counted(len(images), 'image')} without instructions; imgedit init FOLDER uses "
            "those of a folder"
        )
    except errors.UsageError as error:
        if is_named:
            raise
        unused.append(str(error))
    return None


def _of_table(path: Path) -> Guess:
    """Return a file as it is if it is a suite, or else a new suite from its columns.

    Raises `UsageError` if no column names images or holds instructions, for a row without either,
    and for an id that several rows have.
    """
    ready = _ready_suite(path)
    if ready is not None:
        return ready
    problems: list[errors.UsageError] = []
    rows = list(read_rows(path, problems))
    raise_problems(problems)
    is_below = path.resolve().is_relative_to(Path.cwd())
    finder = _Finder(Path() if is_below else path.parent)
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    image = _column(names, rows, "image", finder.finds)
    places = {} if image is None else columns_beside(image, names)
    others = [name for name in names if name not in places]
    instruction = _column(others, rows, "instruction", _is_text)
    linked = None if image else _column(names, rows, "image", finder.leads_out)
    if linked is not None:
        raise errors.UsageError(
            f"{path}: column {linked!r} names images by links out of {finder.root.resolve()}, "
            f"expected images below it: {COPIES_LINKS}"
        )
    if image is None or instruction is None:
        expected = "holds instructions"
        if image is None:
            expected = f"names images below {finder.root.resolve()}"
        found = ", ".join(names) or "none"
        raise errors.UsageError(f"{path}: no column {expected}, found {found}")
    sources = SourceColumns.fixed(places)
    pairs = [_pair(row, sources, instruction, finder) for row in rows]
    _check_unique_ids(path, pairs)
    images = ", ".join(map(repr, places))
    several = _of_several(sum(isinstance(pair["image"], list) for pair in pairs))
    return Guess(
        f"{counted(len(pairs), 'row')} of {path}{several}: image {images}, instruction "
        f"{instruction!r}",
        rows=pairs,
        root=finder.root,
        places=list(map(str, rows)),
    )


def _of_several(count: int) -> str:
    """Say how many pairs have several sources; nothing if none has."""
    return f" ({count} with several sources)" if count else ""


def _ready_suite(path: Path) -> Guess | None:
    """Return a file that can be read as a suite and whose images are there; `None` for a table that
    needs another look at its columns, also because nothing reads some.

    Raises `UsageError` for a file that is neither.
    """
    is_table = path.suffix.lower() in _TABLES
    try:
        suite = base.load_suite(settings.SuiteSettings(spec=f"native:{path}"))
    except errors.UsageError:
        if not is_table:  # it has no columns that could be found
            raise
        return None
    if is_table and suite.remarks:
        return None
    for pair in suite.pairs:
        for source in pair.sources:
            image = getattr(source, "path", None)
            if image is not None and not image.is_file():
                if is_table:
                    return None
                raise errors.UsageError(f"{pair.row}: no image {image}, expected it")
    several = _of_several(sum(bool(pair.further) for pair in suite.pairs))
    return Guess(f"{len(suite.pairs)} pairs of {path}{several}", spec=path)


def _check_unique_ids(path: Path, pairs: Sequence[strict_json.JsonObject]) -> None:
    """Raise `UsageError` for an id that several rows have."""
    counts = Counter(pair["id"] for pair in pairs if "id" in pair)
    for name, count in counts.items():
        if count > 1:
            raise errors.UsageError(
                f"{path}: id {name!r} occurs {count} times, expected unique ids"
            )


def _pair(
    row: SuiteRow, sources: SourceColumns, instruction: str, finder: _Finder
) -> strict_json.JsonObject:
    """Return a row of the new suite: its image as a path below the root, or a list of several, its
    instruction, and what else it holds under its usual name, or its own if the usual one is taken.

    A column that would be a further source in the new suite, but is none here, is left out. Raises
    `UsageError` for an image that is not found, an empty instruction, and a wrong value.
    """
    images = [_path(row, cell.column, cell.value, finder) for cell in sources.cells(row)]
    if not images:
        [name] = sources.names
        images = [_path(row, name, row.values.get(name), finder)]
    result: strict_json.JsonObject = {
        "image": images if len(images) > 1 else images[0],
        "instruction": row.values.get(instruction),
    }
    if not _is_text(result["instruction"]):
        raise row.error(f"{instruction!r} is empty, expected an instruction")
    if row.group:
        result["category"] = row.group
    for name, value in row.values.items():
        is_source = sources.place_of(name) is not None
        if is_source or name == instruction or cells.is_missing(value):
            continue
        usual = _usual_name(name)
        key = name if usual in result else usual
        if _IN_NEW_SUITE.place_of(key) is not None:
            continue
        if key == "reference":
            value = _path(row, name, value, finder)
        elif key == "edited_source":
            value = row.read(name, cells.as_whole)
        elif key == "tags":
            value = row.read(name, partial(cells.as_texts, splits=True))
        elif key == "seed":
            value = row.read(name, native.as_seed)
        result[key] = value
    return result


def _path(row: SuiteRow, name: str, value: Any, finder: _Finder) -> str:
    """Return the image that a value in a column names, below the root; raise `UsageError` if there
    is none.
    """
    path = finder.find(value)
    if path is None:
        expected = f"expected an image below {finder.root.resolve()}"
        if finder.leads_out(value):
            expected = f"a link out of the folder, {expected}: {COPIES_LINKS}"
        raise row.error(f"{name!r} is {value!r:.80}, {expected}")
    return str(path)


def _usual_name(name: str) -> str:
    """Return what the format calls a column, such as `category` for `Kind`; an unknown name
    stays.
    """
    lowered = name.strip().lower()
    if lowered in chain.from_iterable(native.FIELDS.values()):
        return lowered
    for key in ("category", "reference"):
        if lowered in native.USUAL_NAMES[key]:
            return key
    return name


def _column(
    names: Sequence[str], rows: Sequence[SuiteRow], key: str, holds: Callable[[Any], bool]
) -> str | None:
    """Return the first column that `holds` a value in most rows, `None` without one; columns with a
    usual name for `key` come first.
    """
    usual = [
        name
        for name in names
        if name.strip().lower() in native.USUAL_NAMES[key] or name in native.FIELDS[key]
    ]
    for name in usual + list(names):
        if sum(holds(row.values.get(name)) for row in rows) >= _MOST_ROWS * len(rows):
            return name
    return None


def _of_images(folder: Path, images: Sequence[Path]) -> Guess:
    """Return a suite with a row for each image; a text file of the same name beside it holds its
    instruction, which is missing without one.

    Raises `UsageError` for an instruction that is too long, not text, or outside the folder.
    """
    rows = []
    missing = 0
    for path in images:
        beside = path.with_suffix(".txt")
        text = ""
        if beside.exists():
            problem = _problem(beside, folder)
            if problem:
                raise errors.UsageError(f"{beside}: {problem}")
            text = files.read_utf8(beside, _MOST_TEXT, f"the instruction for {path.name}").strip()
        missing += not text
        rows.append({"image": str(path.relative_to(folder)), "instruction": text})
    return Guess(f"{len(rows)} images of {folder}", rows=rows, root=folder, missing=missing)


class _Finder:
    """Finds images below a folder by their path, their name, or their name without its suffix."""

    def __init__(self, root: Path) -> None:
        """Look for the images below `root`."""
        self.root = root
        self._known: dict[str, Path | None] = {}
        for relative in (path.relative_to(root) for path in _usable(root, SUFFIXES)):
            self._known[str(relative)] = relative
            for name in (relative.name, relative.stem):
                if self._known.get(name, relative) == relative:
                    self._known[name] = relative
                else:  # what two images are called names neither
                    self._known[name] = None

    def find(self, value: Any) -> Path | None:
        """Return an image's path below the root; `None` if the value names no image, or several."""
        if not isinstance(value, str | int) or value == "":
            return None
        text = str(value).removeprefix("./")
        return (
            self._known.get(text)
            or self._known.get(Path(text).name)
            or self._known.get(Path(text).stem)
        )

    def finds(self, value: Any) -> bool:
        """Tell whether a value names an image, or is a list of several values that do."""
        with suppress(ValueError):
            parts = cells.as_parts(value)
            if parts is not None:
                return bool(parts) and all(map(self.find, parts))
        return self.find(value) is not None

    def leads_out(self, value: Any) -> bool:
        """Tell whether a value is the path of an image that links put outside the root, or a list
        with one.
        """
        with suppress(ValueError):
            parts = cells.as_parts(value)
            if parts is not None:
                return any(map(self.leads_out, parts))
        if not isinstance(value, str) or Path(value).suffix.lower() not in SUFFIXES:
            return False
        root = self.root.resolve()
        written = Path(os.path.normpath(root / value))
        try:
            real = written.resolve()
            is_there = real.is_file()
        except (OSError, ValueError, RuntimeError):  # a name that is too long, or a link to itself
            return False
        return is_there and written.is_relative_to(root) and not real.is_relative_to(root)


def _usable(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files below a folder that have one of the suffixes and that a suite can name."""
    usable, _ = _walk(folder)
    return [path for path in usable if path.suffix.lower() in suffixes]


def _unusable(folder: Path) -> list[str]:
    """Say why no suite can name some tables and images below a folder, and which folders could not
    be read; the first few of these, and how many more there are.
    """
    _, unusable = _walk(folder)
    lines = unusable[:_MOST_NAMED]
    if len(unusable) > _MOST_NAMED:
        lines.append(f"and {len(unusable) - _MOST_NAMED} more")
    return lines


@lru_cache(maxsize=4)
def _walk(top: Path) -> tuple[list[Path], list[str]]:
    """Return the tables and images below a folder that a suite can name, and for each other one,
    and each folder that cannot be read, a line that says why.

    The files of a folder come before those of folders in it. Environments, what is hidden, links to
    folders, irregular files and folders of `_SKIPPED` are passed over.
    """
    named_suffixes = set(_TABLES) | set(SUFFIXES)
    usable: list[Path] = []
    unusable: list[str] = []
    pending = [top]
    while pending:
        folder = pending.pop()
        subfolders = []
        try:
            with os.scandir(folder) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:  # it may be another user's, or gone by now
            unusable.append(f"{_shown(folder)}: {error.strerror}")
            continue
        if folder != top and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED:
                    subfolders.append(path)
            elif path.suffix.lower() in named_suffixes:
                _sort(entry, top, usable, unusable)
        pending += reversed(subfolders)
    return usable, unusable


def _sort(entry: os.DirEntry[str], top: Path, usable: list[Path], unusable: list[str]) -> None:
    """Add a file below a folder to those that a suite can name, or why none can to `unusable`; an
    irregular file is added to neither.
    """
    path = Path(entry.path)
    try:
        if not entry.is_file():
            return
        problem = _problem(path, top)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        unusable.append(f"{_shown(path)}: {problem}")
    else:
        usable.append(path)


def _shown(path: Path) -> str:
    return shorten(ascii(str(path)), _MOST_SHOWN)


def _problem(path: Path, folder: Path) -> str:
    """Say why no suite can name a file below a folder; return an empty text if one can."""
    problem = _bad_name(path)
    # No folder on the way is a link.
    if not problem and path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        problem = f"leads out of {folder.resolve()}, expected a file below it"
    return problem


def _bad_name(path: Path) -> str:
    mark = steering(str(path))
    return f"a name with {mark}, expected printable text in UTF-8" if mark else ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not cells.is_missing(value)
