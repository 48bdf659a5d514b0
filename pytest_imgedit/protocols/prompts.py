"""Texts of a public benchmark that are read from the user's copy of it, and pinned by SHA-256."""

import ast
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path

from pytest_imgedit.core import errors, files

_EXPECTED = "the benchmark's own prompts (judge.prompts=FOLDER)"
#: Levels of folders in which a file of a benchmark is looked for, the nearest first.
DEPTH = 4


def find(folder: Path, names: Sequence[str], expected: str) -> Path:
    """Return the first of some files, by their paths below `folder` or up to three folders deeper.

    The nearest folder counts first, then the order of the names. Raises `UsageError` if there is
    none; it says that `expected` was expected.
    """
    near = [folder]
    seen = {os.path.realpath(folder)}
    for _ in range(DEPTH):
        for name, place in product(names, near):
            if files.is_file(place / name):
                return place / name
        near = list(_below(near, seen))
    raise errors.UsageError(f"{folder}: no {' or '.join(names)} in it, expected {expected}")


def _below(places: Sequence[Path], seen: set[str]) -> Iterator[Path]:
    """Yield the folders in some folders, each once, however many links lead to it; none that is in
    `seen`, to which their real paths are added.
    """
    for place in places:
        for path in sorted(place.glob("*/")):
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                yield path


class Prompts:
    """The prompts of a benchmark: texts by name in the first of `files` below `folder`, and their
    SHA-256 in `pins`.

    With `any_version` texts of another version are used as they are. A file is JSON, or Python, of
    which the texts that are assigned to names are read and nothing is run.
    """

    def __init__(
        self,
        folder: Path | None,
        files: Sequence[str] = (),
        pins: Mapping[str, str] | None = None,
        any_version: bool = False,
    ) -> None:
        self.folder = folder
        self.files = files
        self.pins = pins or {}
        self.any_version = any_version

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        """The prompts by name; raises `UsageError` if the file is missing, of another form, or of
        another version.
        """
        if not self.files:
            return {}
        if self.folder is None:
            raise errors.UsageError(
                "judge.prompts: not set, expected the folder of the benchmark with "
                f"{' or '.join(self.files)}"
            )
        return self._pinned(self.folder)

    def _pinned(self, folder: Path) -> dict[str, str]:
        """Return the texts of the first file below a folder; raises `UsageError` as `_texts`
        does.
        """
        path = find(folder, self.files, _EXPECTED)
        texts = _read(path)
        for name in self.pins:
            if name not in texts:
                raise errors.UsageError(f"{path}: no prompt {name!r}, expected it in this file")
            self._require_pin(path, name, texts[name])
        return texts

    def _require_pin(self, path: Path, name: str, text: str) -> None:
        """Raise `UsageError` for a text of another version."""
        pin = self.pins[name]
        found = _digest(text)
        if found != pin and not self.any_version:
            raise errors.UsageError(
                f"{path}: {name!r} has the SHA-256 {found[:16]}…, expected {pin[:16]}…: it is "
                "of another version, which judge.any_version=true takes"
            )

    @property
    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of the prompts that are in use."""
        return {name: _digest(self._texts[name]) for name in self.pins}

    def __getitem__(self, name: str) -> str:
        """Return a prompt; raises `UsageError` for one that is not among the pinned ones."""
        if name not in self.pins:
            raise errors.UsageError(f"no prompt {name!r}, expected one of {', '.join(self.pins)}")
        return self._texts[name]

    def filled(self, name: str, values: Mapping[str, str], raw: Sequence[str] = ()) -> str:
        """Return a prompt with values in place of its `{name}`; one of `raw` stays as it is, double
        braces too, since its authors do not format it.
        """
        return self[name] if name in raw else self[name].format(**values)


class PromptFiles(Prompts):
    """Prompts of a benchmark that keeps each in a file of its own: each of `files` is looked for
    below `folder`, and `pins` has the SHA-256 of its whole text.
    """

    def _pinned(self, folder: Path) -> dict[str, str]:
        texts = {}
        for name in self.files:
            path = find(folder, [name], _EXPECTED)
            texts[name] = files.read_utf8(path, files.MAX_TEXT_BYTES, "a prompt")
            self._require_pin(path, name, texts[name])
        return texts


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> dict[str, str]:
    """Return the texts of a JSON object or a module by name; raises `UsageError` for a file that is
    neither.
    """
    if path.suffix != ".py":
        texts = files.read_object(path, "prompts")
        return {name: text for name, text in texts.items() if isinstance(text, str)}
    source = files.read_utf8(path, files.MAX_TEXT_BYTES, "prompts")
    try:
        return _constants(source)
    except (SyntaxError, ValueError) as error:
        raise errors.UsageError(f"{path}: {error}, expected prompts") from None


def _constants(source: str) -> dict[str, str]:
    """Return the texts that a module assigns to names, without running it.

    Raises `SyntaxError` or `ValueError` for what is no module.
    """
    texts: dict[str, str] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        target = node.targets[0]
        text = node.value.value
        if isinstance(target, ast.Name) and isinstance(text, str):
            texts[target.id] = text
    return texts
