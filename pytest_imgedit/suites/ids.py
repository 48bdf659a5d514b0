"""Ids of pairs whose suite names them in any script, or not at all."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MARKS = re.compile(r"[._-]+")
#: Characters of a readable part, with room for a digest in the 128 of an id.
_MOST = 119


class Ids:
    """Makes ids of `[A-Za-z0-9._-]{1,128}` out of a suite's own `names` and image `paths`, readable
    where unique.

    Which id a pair gets depends on all names and paths of the suite, but not on their order.
    """

    def __init__(self, names: Iterable[str], paths: Iterable[str]) -> None:
        paths = list(paths)
        self._readable = Counter(_readable(name) for name in {*names})
        self._stems = Counter(_stem(path) for path in paths)
        self._paths = Counter(_joined(path) for path in paths)

    def named(self, name: str) -> str:
        """Return the id for a suite's own name of a pair; the same name gives the same id."""
        readable = _readable(name)
        if readable and (readable == name or self._readable[readable] == 1):
            return readable
        return _digested(readable, name)

    def of_image(self, path: str, text: str, category: str) -> str:
        """Return the id for a pair without a name: the stem of its image's path, or all of the path
        where two share it.

        Pairs of the same image, and those without a path, get eight hex digits of a SHA-256 over
        `path` and `text`.
        """
        stem, joined = _stem(path), _joined(path)
        if stem and self._stems[stem] == 1:
            return stem
        if stem and self._paths[joined] == 1:  # two images share the stem
            return joined
        return _digested(stem or category, f"{path}\n{text}")


def _digested(readable: str, text: str) -> str:
    digest = hashlib.sha256(
        unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
    ).hexdigest()[:8]
    if readable:
        return f"{readable}-{digest}"
    return digest


def _stem(path: str) -> str:
    return _readable(PurePath(path).stem)


def _joined(path: str) -> str:
    if PurePath(path).name:
        return _readable("-".join(PurePath(path).with_suffix("").parts))
    return ""


def _readable(name: str) -> str:
    """Leave out what an id cannot hold; empty where nothing remains."""
    name = unicodedata.normalize("NFC", name)
    cleaned = _UNSAFE.sub("-", name)
    if cleaned == name and name.strip(".") and len(name) <= 128:  # "." and ".." would be folders
        return name
    return _MARKS.sub(lambda marks: "-" if "-" in marks[0] else marks[0], cleaned).strip("-.")[
        :_MOST
    ]
