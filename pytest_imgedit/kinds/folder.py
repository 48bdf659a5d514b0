"""The editor `folder`: finished images, for models that cannot run here."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from string import Formatter

from PIL import Image

from pytest_imgedit.core import errors, files, requests
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.text import counted, did_you_mean, first_of
from pytest_imgedit.kinds.base import FinishedImages, Model, Site, refuse_if

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


class FolderEditor:
    """Hands over a pair's finished image, which the harness puts in the request."""

    def __init__(self, folder: str, *, device: str) -> None:
        del folder, device

    def edit(self, request: requests.EditRequest) -> Image.Image:
        """Return the finished image; raise `ImageError` for a request that belongs to no pair of
        the suite, such as a test's own photograph.
        """
        if request.reference is None:
            raise errors.ImageError("editor folder: has finished images of the suite's pairs only")
        return request.reference


class Folder(Model):
    """Finished images: those of `DIR`, or those that `DIR?PATTERN` names."""

    role = "editor"
    name = "folder"
    worker = FolderEditor
    takes = "DIR or folder:DIR?PATTERN"
    argument_is = "path"
    has_weights = False

    @property
    def max_sources(self) -> int | None:
        return None

    def check(self, site: Site) -> None:
        folder, pattern = split_argument(self.argument or "")
        refuse_if(not folder.is_dir(), "spec", f"editor folder:{folder}: no such folder")
        if pattern:
            check_pattern(pattern)
        super().check(site)

    def finished_images(self, pairs: Iterable[EditPair]) -> FinishedImages:
        return find_images(self.argument or "", pairs)


def has_finished_edits(spec: str) -> bool:
    """Tell whether the spec of an editor is one of finished images."""
    return spec.partition(":")[0] == Folder.name


def split_argument(argument: str) -> tuple[Path, str]:
    """Return the folder and the pattern of `DIR?PATTERN`; the pattern is empty if none is given."""
    folder, _, pattern = argument.partition("?")
    return Path(folder), pattern


def check_pattern(pattern: str) -> None:
    """Raise `UsageError` unless a pattern is a relative path without `..` that has at least one
    field, and each of its fields is a plain `{name}`.
    """
    try:
        fields = [
            (name, spec, conversion)
            for _, name, spec, conversion in Formatter().parse(pattern)
            if name is not None
        ]
    except ValueError as error:
        raise errors.UsageError(f"editor folder: pattern {pattern!r}: {error}") from None
    are_plain = [
        str(name).isidentifier() and not spec and not conversion
        for name, spec, conversion in fields
    ]
    if not fields or not all(are_plain):
        raise errors.UsageError(
            f"editor folder: pattern {pattern!r}, expected fields such as {{category}}/{{id}}.jpg"
        )
    if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts:
        raise errors.UsageError(
            f"editor folder: pattern {pattern!r} leads out of the folder, expected a path below it"
        )


def find_images(argument: str, pairs: Iterable[EditPair]) -> FinishedImages:
    """Return the finished image of each pair by id, or a line that says why it has none, with a
    summary of what the folder holds.

    An image that would belong to several pairs belongs to none. Raise `UsageError` for a pattern
    that names a field which no pair has, and for a pair that has several images.
    """
    pairs = list(pairs)
    _, pattern = split_argument(argument)
    _require_fields(pattern, pairs)
    pictures = Pictures(argument)
    paths = {pair.id: pictures.of(pair) for pair in pairs}
    counts = Counter(paths.values())
    images: dict[str, Path | str] = {}
    for pair in pairs:
        path = paths[pair.id]
        if path is None:
            images[pair.id] = f"no finished image of {pair.category}/{pair.id} in {argument}"
        elif counts[path] > 1:
            images[pair.id] = (
                f"{path} would be the finished image of {counts[path]} pairs, expected one for each"
            )
        else:
            images[pair.id] = path
    matched = [path for path in paths.values() if path is not None]
    return FinishedImages(images, pictures.summary(matched))


def _require_fields(pattern: str, pairs: Iterable[EditPair]) -> None:
    """Raise `UsageError` if a pattern names a field that no pair has."""
    field_names = {"category", "id", "difficulty", "seed"}
    for pair in pairs:
        field_names.update(pair.fields)
    for _, name, _, _ in Formatter().parse(pattern):
        if name is not None and name not in field_names:
            raise errors.UsageError(
                f"editor folder: pattern {pattern!r}: no pair has a field {name!r}, expected one "
                f"of {', '.join(sorted(field_names))}{did_you_mean(name, field_names)}"
            )


class Pictures:
    """The pictures below `DIR`: a pair has the one with its id, or the one that a pattern names.

    Without a pattern that is `DIR/<category>/<id>` or `DIR/<id>`. Every name that the category has,
    and the suite's own id of the pair, are tried after the slug and the id. Where the pattern names
    no suffix of `SUFFIXES`, each of them is tried, in any case.
    """

    def __init__(self, argument: str) -> None:
        self.folder, self.pattern = split_argument(argument)
        self._has_suffix = PurePath(self.pattern).suffix.lower() in SUFFIXES
        self._listed: dict[Path, dict[str, list[Path]]] = {}

    def of(self, pair: EditPair) -> Path | None:
        """Return the finished image of a pair; `None` if there is none.

        Raises `UsageError` if the pair has several of the same name, which differ by their suffix
        or by the name of their category.
        """
        if self.pattern:
            candidates = _names_by_pattern(self.pattern, pair)
        else:
            candidates = _names_without_pattern(pair)
        for names in candidates:
            paths = self._distinct_files(names)
            if len(paths) > 1:
                raise errors.UsageError(
                    f"editor folder: pair {pair.id!r} has {len(paths)} finished images, "
                    f"{first_of([str(path) for path in paths])}, expected one: delete the others, "
                    f"or name them by a pattern such as folder:{self.folder}?{{category}}/{{id}}"
                    ".png"
                )
            if paths:
                return paths[0]
        return None

    def _distinct_files(self, names: Iterable[str]) -> list[Path]:
        """Return the files that have any of these names, each once, by the first path to it."""
        path_by_file: dict[Path, Path] = {}
        for name in names:
            for path in self._named(name):
                path_by_file.setdefault(path.resolve(), path)
        return list(path_by_file.values())

    def _named(self, name: str) -> list[Path]:
        """Return the files below the folder with this name, or with it and a suffix if the pattern
        has none. In that case the name alone counts too if it ends with a suffix, or if a pattern
        made it and no file has it and a suffix.
        """
        path = self.folder / name
        top = self.folder.resolve()
        paths = [path]
        if not self._has_suffix:
            paths = self._with_suffix(path)
            is_picture = path.suffix.lower() in SUFFIXES  # the pattern's last field holds it
            if is_picture or (self.pattern and not paths):
                paths = paths + [path]
        return [
            path for path in paths if files.is_file(path) and path.resolve().is_relative_to(top)
        ]

    def _with_suffix(self, path: Path) -> list[Path]:
        """Return the pictures in a path's folder whose names are that of the path and a suffix."""
        if path.parent not in self._listed:
            by_stem: dict[str, list[Path]] = {}
            with suppress(OSError, ValueError):  # what cannot be listed holds no pictures
                for beside in sorted(path.parent.iterdir()):
                    if beside.suffix.lower() in SUFFIXES:
                        by_stem.setdefault(beside.stem, []).append(beside)
            self._listed[path.parent] = by_stem
        return self._listed[path.parent].get(path.name, [])

    def summary(self, matched: Iterable[Path]) -> str:
        """Return a line that says how many pictures the folder holds, how many of them match ids
        (`matched`), and what names are expected.
        """
        pictures = sorted(
            path
            for path in self.folder.rglob("*")
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        )
        expected = self.pattern or "{category}/{id}.png or {id}.png"
        if self.pattern and not self._has_suffix:
            expected = f"{self.pattern}.png"
        if not pictures:
            return f"{self.folder} holds no pictures, expected {expected}"
        matching = set(matched)
        unmatched = [
            str(path.relative_to(self.folder)) for path in pictures if path not in matching
        ]
        number = len(pictures) - len(unmatched)
        match = "matches an id" if number == 1 else "match ids"
        line = f"{self.folder} holds {counted(len(pictures), 'picture')}, {number} of them {match}"
        if unmatched:
            line += f", {len(unmatched)} match none: {first_of(unmatched, 3)}"
        return f"{line}; expected {expected}"


def _ids(pair: EditPair) -> list[str]:
    """Return the ids by which a pair's image may be named: the slug, and the suite's own id if it
    is a plain file name.
    """
    if PurePath(pair.own_id).name != pair.own_id:
        return [pair.id]
    return [name for name in dict.fromkeys((pair.id, pair.own_id)) if name]


def _names_without_pattern(pair: EditPair) -> Iterator[list[str]]:
    """Yield the names, without suffix, that a pair's image may have without a pattern: those of its
    id in the folders of its category, then of its id alone. The first list that fits counts.
    """
    folders = [name for name in pair.category_names if "/" not in name and name.strip(".")]
    for name in _ids(pair):
        yield [f"{folder}/{name}" for folder in folders]
    for name in _ids(pair):
        yield [name]


def _names_by_pattern(pattern: str, pair: EditPair) -> Iterator[list[str]]:
    """Yield the names that a pattern makes of each id of a pair, one for each name of its category;
    none if the pair lacks a field of the pattern. A slash in the text of a field becomes a dash.
    """
    categories = [category.replace("/", "-") for category in pair.category_names]
    for pair_id in _ids(pair):
        values = {
            **pair.fields,
            "id": pair_id,
            "difficulty": pair.difficulty,
            "seed": pair.seed,
        }
        texts = {key: str(value).replace("/", "-") for key, value in values.items()}
        with suppress(KeyError):  # a row without that field has no finished image
            yield [pattern.format_map({**texts, "category": category}) for category in categories]
