"""The editor `folder`: finished images, for models that cannot run here."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path, PurePath
from string import Formatter

from PIL import Image

from pytest_imgedit.core import errors, files, requests
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.sanitize import did_you_mean
from pytest_imgedit.kinds.base import FinishedImages, Model, Site, refuse_if

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


class FolderEditor:
    """Hands over a pair's finished image, which the harness puts in the request."""

    def __init__(self, folder: str, *, device: str) -> None:
        del folder, device

    def edit(self, request: requests.EditRequest) -> Image.Image:
        """Raises `ImageError` for a request that is of no pair of the suite, such as a test's own
        photograph.
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
    takes_further = True

    def check(self, site: Site) -> None:
        folder, pattern = split_argument(self.argument or "")
        refuse_if(not folder.is_dir(), "spec", f"editor folder:{folder}: no such folder")
        if pattern:
            check_pattern(pattern)
        super().check(site)

    def finished_images(self, pairs: Iterable[EditPair]) -> FinishedImages:
        argument = self.argument or ""
        return FinishedImages(find_images(argument, pairs), describe_folder(argument))


def split_argument(argument: str) -> tuple[Path, str]:
    """Split `DIR?PATTERN` into the folder and the pattern, which is empty where none is given."""
    folder, _, pattern = argument.partition("?")
    return Path(folder), pattern


def check_pattern(pattern: str) -> None:
    """Raise `UsageError` unless a pattern is a relative path with `{names}` of fields."""
    try:
        parts = [part[1:] for part in Formatter().parse(pattern) if part[1] is not None]
    except ValueError as error:
        raise errors.UsageError(f"editor folder: pattern {pattern!r}: {error}") from None
    if not parts or not all(
        str(name).isidentifier() and not (spec or how) for name, spec, how in parts
    ):
        raise errors.UsageError(
            f"editor folder: pattern {pattern!r}, expected fields such as {{category}}/{{id}}.jpg"
        )
    if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts:
        raise errors.UsageError(
            f"editor folder: pattern {pattern!r} leads out of the folder, expected a path below it"
        )


def find_images(argument: str, pairs: Iterable[EditPair]) -> dict[str, Path | str]:
    """Return the finished image of each pair by id, or a line that says why it has none.

    An image that would be that of several pairs is that of none. Raises `UsageError` for a pattern
    that names a field which no pair has.
    """
    pairs = list(pairs)
    _, pattern = split_argument(argument)
    field_names = {"category", "id", "difficulty", "seed"}.union(*(pair.fields for pair in pairs))
    for _, name, _, _ in Formatter().parse(pattern):
        if name is not None and name not in field_names:
            raise errors.UsageError(
                f"editor folder: pattern {pattern!r}: no pair has a field {name!r}, expected one "
                f"of {', '.join(sorted(field_names))}{did_you_mean(name, field_names)}"
            )
    paths = {pair.id: find_image(argument, pair) for pair in pairs}
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
    return images


def find_image(argument: str, pair: EditPair) -> Path | None:
    """Return the finished image of a pair in `DIR` or by `DIR?PATTERN`; `None` if there is none.

    Without a pattern that is `DIR/<category>/<id>` or `DIR/<id>`, with one of `SUFFIXES`. Every
    name that the category has, and the suite's own id of the pair, are tried after the slug and the
    id.
    """
    folder, pattern = split_argument(argument)
    for relative in _by_pattern(pattern, pair) if pattern else _usual(pair):
        path = folder / relative
        if files.is_file(path) and path.resolve().is_relative_to(folder.resolve()):
            return path
    return None


def describe_folder(argument: str) -> str:
    """Say how many images a folder holds, with an example."""
    folder, _ = split_argument(argument)
    images = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not images:
        return f"{folder} holds no images"
    return f"{folder} holds {len(images)} images, such as {images[0].relative_to(folder)}"


def _ids(pair: EditPair) -> list[str]:
    if PurePath(pair.own_id).name != pair.own_id:
        return [pair.id]
    return [name for name in dict.fromkeys((pair.id, pair.own_id)) if name]


def _usual(pair: EditPair) -> Iterator[str]:
    folders = [f"{name}/" for name in pair.category_names if "/" not in name and name.strip(".")]
    return map("".join, product([*folders, ""], _ids(pair), SUFFIXES))


def _by_pattern(pattern: str, pair: EditPair) -> Iterator[str]:
    for category, name in product(pair.category_names, _ids(pair)):
        values = {
            **pair.fields,
            "category": category,
            "id": name,
            "difficulty": pair.difficulty,
            "seed": pair.seed,
        }
        try:
            yield pattern.format_map(
                {key: str(value).replace("/", "-") for key, value in values.items()}
            )
        except KeyError:
            return  # a row without that field has no finished image
