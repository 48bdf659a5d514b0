"""The native suite format: rows with an instruction and an image, which is base64 text or a path
beside the file.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from operator import methodcaller
from pathlib import Path, PurePath
from typing import Any, TypeVar

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, images, pairs
from pytest_imgedit.core.text import counted, did_you_mean, first_of, steering
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.parquet import ParquetImage, parquet_rows
from pytest_imgedit.suites.rows import RowImage, SuiteRow, image_below, make_pairs, read_rows
from pytest_imgedit.suites.sources import (
    SourceCell,
    SourceColumns,
    as_paths,
    as_place,
    columns_beside,
    digest,
    digests,
)

#: What a pair needs -> the field names that may hold it; the first one present wins.
FIELDS: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "category": ("category", "subset"),
    "image": ("image", "images", "input_images", "source_images"),
    "image_b64": ("src_img_b64", "image_b64"),
    "image_path": ("original_image_path",),
    "edited_source": ("edited_source",),
    "instruction_en": ("edit_instruction_en", "instruction_en"),
    "instruction_zh": ("edit_instruction", "instruction_zh"),
    "instruction": ("instruction",),
    "description_en": ("original_description_en", "description_en"),
    "description_zh": ("original_description", "description_zh"),
    "description": ("description",),
    "reference": ("reference",),
    "reference_b64": ("reference_b64",),
    "reference_text_en": ("reference_text_en", "rationale_short_en"),
    "reference_text_zh": ("reference_text_zh", "rationale_short"),
    "reference_text": ("reference_text",),
    "tags": ("tags",),
    "difficulty": ("difficulty",),
    "seed": ("seed",),
}
T = TypeVar("T")
#: Formats whose rows cannot be read again by their bytes: their base64 images stay in memory.
INLINE = (".toml", ".csv", ".parquet")
#: What a pair may need several of, and may therefore be in several fields.
_SEVERAL = ("image", "image_b64")
_MARKS = re.compile(r"[._-]+")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
#: Names of these fields in other formats, by which `imgedit init` and messages guess.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "image": (
        "image",
        "file",
        "filename",
        "file_name",
        "path",
        "image_path",
        "img",
        "photo",
        "picture",
        "source",
        "images",
        "input_image",
        "input_images",
        "source_image",
        "source_images",
        "sources",
        "image_paths",
        "文件",
        "图片",
    ),
    "instruction": (
        "instruction",
        "prompt",
        "text",
        "edit",
        "edit_prompt",
        "caption",
        "instructions",
        "query",
        "指令",
        "提示词",
    ),
    "category": ("category", "subset", "kind", "type", "class", "task", "group", "类别", "分类"),
    "reference": ("reference", "target", "ground_truth", "gt"),
}


def load(argument: str, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of one file; `[suite.fields]` names fields that are called otherwise there.

    Rows without a category are of the category `all`. Raises `UsageError` for an unknown key of
    `[suite.fields]`, several fields for what is one, a root that is no folder, a row without
    instruction or image, and values of a wrong type.
    """
    for key, names in settings.fields.items():
        if key not in FIELDS:
            raise errors.UsageError(
                f"suite.fields: unknown {key!r}, expected one of {', '.join(FIELDS)}"
                f"{did_you_mean(key, FIELDS)}"
            )
        if not isinstance(names, str):
            _require_several(key, names)
    if settings.root is not None and not settings.root.is_dir():
        raise errors.UsageError(f"suite.root: {settings.root}: no such folder")
    problems: list[errors.UsageError] = []
    path = Path(argument)
    is_parquet = path.suffix.lower() == ".parquet"
    reader = _Reader(settings, parquet_rows(path) if is_parquet else read_rows(path, problems))
    return make_pairs(reader.rows, reader.pair, problems)


def _require_several(key: str, names: tuple[str, ...]) -> None:
    """Raise `UsageError` unless a key of `[suite.fields]` may name several fields, and these are
    some, each once.
    """
    if key not in _SEVERAL:
        expected = f"expected one name: only {' and '.join(_SEVERAL)} may be several fields"
    elif not names or len(set(names)) < len(names):
        expected = "expected the fields of the sources in their order, each once"
    else:
        return
    raise errors.UsageError(f"suite.fields.{key}: {list(names)!r:.200}, {expected}")


class _Reader:
    """Makes pairs of the rows of one file, whose ids depend on all of them.

    All rows are read at once; `lines` are those of the ids that are in use.
    """

    def __init__(self, settings: SuiteSettings, rows: Iterable[SuiteRow]) -> None:
        other_language = "zh" if settings.language == "en" else "en"
        self.languages = (settings.language, other_language)
        self.fields = {**FIELDS, **_mapped(settings)}
        self.root = settings.root
        self.read_names = {name for names in self.fields.values() for name in names}
        self.columns = {key: self._columns(key, settings) for key in _SEVERAL}
        self.rows = [self._without_images(row) for row in rows]
        self.ids = Ids(self._texts_of_ids(), self._paths())
        self.lines: dict[str, int] = {}

    def _columns(self, key: str, settings: SuiteSettings) -> SourceColumns:
        """Return the columns of a key that may hold several images: those that the settings list,
        or else those of its names with the numbered ones beside them that no other key names.
        """
        names = self.fields[key]
        if isinstance(settings.fields.get(key), tuple):
            return SourceColumns.fixed({name: place for place, name in enumerate(names, 1)})
        known = dict.fromkeys(self.read_names.difference(names))
        return SourceColumns(names, known, key=key)

    def _without_images(self, row: SuiteRow) -> SuiteRow:
        """Replace each base64 text of a row by a digest, so that its image is not kept in memory; a
        row of `INLINE` formats stays as it is.
        """
        if row.path.suffix.lower() in INLINE:
            return row
        for name, value in row.values.items():
            if name in self.fields["reference_b64"]:
                row.values[name] = digest(value)
            elif self.columns["image_b64"].place_of(name):
                row.values[name] = digests(value)
        return row

    def _texts_of_ids(self) -> Iterator[str]:
        """Yield the ids of rows that are text."""
        for row in self.rows:
            with suppress(errors.UsageError):  # raised again where the pair is made
                name = self._read(row, "id", cells.as_identifier)
                if isinstance(name, str):
                    yield name

    def _paths(self) -> Iterator[str]:
        for row in self.rows:
            with suppress(errors.UsageError):  # raised again where the pair is made
                yield self._path(row)

    def _field(self, row: SuiteRow, key: str) -> str:
        """Return the name of the first of a key's fields that holds a value in a row.

        If none does, it is the first with a text that stands for a missing value, or else the first
        of all.
        """
        names = [name for name in self.fields[key] if row.values.get(name) not in (None, "")]
        for name in names:
            if not cells.is_missing(row.values[name]):
                return name
        return names[0] if names else self.fields[key][0]

    def _read(self, row: SuiteRow, key: str, read: Callable[[object], T]) -> T:
        return row.read(self._field(row, key), read)

    def _text(self, row: SuiteRow, key: str) -> str:
        return (self._read(row, key, cells.as_text) or "").strip()

    def _translated(self, row: SuiteRow, key: str) -> str:
        """Return a text in the language that is asked for, or else in the other, or without one."""
        for language in self.languages:
            text = self._text(row, f"{key}_{language}")
            if text:
                return text
        return self._text(row, key)

    def _path(self, row: SuiteRow) -> str:
        """Return the path of a row's edited source; an empty text for an image in a table."""
        sources = self.columns["image"].cells(row)
        if sources and isinstance(sources[0].value, ParquetImage):
            return ""
        paths = row.read(self._field(row, "image_path"), as_paths)
        paths = paths or [cell.text(row).strip() for cell in sources]
        if len(paths) < 2:
            return "".join(paths)
        place = self._edited_source(row, len(self._cells(row)))
        return paths[place - 1] if place <= len(paths) else ""

    def _edited_source(self, row: SuiteRow, count: int) -> int:
        """Return the place of the edited source among as many as there are, or 1 without any."""
        return self._read(row, "edited_source", partial(as_place, count=max(count, 1)))

    def _cells(self, row: SuiteRow) -> list[SourceCell]:
        """Return the sources of a row: images in a table, else base64 texts, else paths.

        Raises `UsageError` where texts and paths are not equally many, so that some would be lost.
        """
        encoded = self.columns["image_b64"].cells(row)
        sources = self.columns["image"].cells(row)
        if not (encoded and sources):
            return encoded or sources
        if len(encoded) != len(sources):
            raise row.error(
                f"{counted(len(encoded), 'source')} in {encoded[0].column!r} and {len(sources)} in "
                f"{sources[0].column!r}, expected as many in each, or all in one of them"
            )
        in_table = isinstance(sources[0].value, ParquetImage)
        if in_table and not isinstance(encoded[0].value, ParquetImage):
            return sources
        return encoded

    def pair(self, row: SuiteRow) -> pairs.EditPair:
        """Make the pair of a row; raise `UsageError` if a value is missing or of a wrong type, or
        an earlier row has its id.
        """
        own_category = self._read(row, "category", cells.as_name) or row.group or "all"
        category = pairs.category_slug(own_category)
        instruction = self._translated(row, "instruction")
        if not instruction:
            fields = self._expected_fields(row, "instruction")
            raise row.error(f"no instruction, expected text in {fields}")
        sources = [self._source(row, cell) for cell in self._cells(row)]
        if not sources:
            fields = self._expected_fields(row, "image", "image_b64")
            raise row.error(f"no image, expected one in {fields}")
        edited_source = self._edited_source(row, len(sources))
        source = sources.pop(edited_source - 1)
        seed = self._seed(row)
        tags = self._tags(row)
        pair_id, own_id = self._ids(row, category)
        pair = pairs.EditPair(
            id=pair_id,
            category=category,
            instruction=instruction,
            source=source,
            further=tuple(sources),
            edited_source=edited_source,
            description=self._translated(row, "description"),
            reference=self._reference(row),
            reference_text=self._translated(row, "reference_text"),
            tags=tags,
            difficulty=self._text(row, "difficulty"),
            seed=seed,
            own_id=own_id,
            own_category=own_category,
            fields=self._unread_fields(row),
            row=str(row),
        )
        if pair_id in self.lines:
            raise row.error(
                f"id {pair_id!r} is already used on line {self.lines[pair_id]}, expected unique ids"
            )
        self.lines[pair_id] = row.line
        return pair

    def _unread_fields(self, row: SuiteRow) -> dict[str, str]:
        return {name: _as_short_text(row.values[name]) for name in self._unread_names(row)}

    def _unread_names(self, row: SuiteRow) -> list[str]:
        """Return the fields of a row that nothing reads."""
        sources = self.columns.values()
        return [
            name
            for name in row.values
            if name not in self.read_names and not any(map(methodcaller("place_of", name), sources))
        ]

    def _seed(self, row: SuiteRow) -> int:
        return self._read(row, "seed", as_seed) or 0

    def _tags(self, row: SuiteRow) -> tuple[str, ...]:
        tags = self._read(row, "tags", partial(cells.as_texts, splits=row.is_text))
        return tuple(tags or ())

    def _expected_fields(self, row: SuiteRow, key: str, *other_keys: str) -> str:
        """Return for a message the fields that may hold the value of some keys, the fields of the
        row that nothing reads, and which of these may be meant.
        """
        names: list[str] = []
        for each_key in (key, *other_keys):
            names += self.fields[each_key]
        known = " or ".join(map(repr, names))
        others = self._unread_names(row)
        if not others:
            return known
        found = f"{known}; found {first_of([f'{name!r:.80}' for name in others])}"
        for name in others:
            is_image = key == "image" and _names_image(row.values[name])
            if is_image or name.lower() in USUAL_NAMES.get(key, ()):
                return f"{found}; {_advice(row, key, name)}"
        return f"{found}; suite.fields.{key} may name one of them"

    def _ids(self, row: SuiteRow, category: str) -> tuple[str, str]:
        """Return the pair's id, which is the same in all languages, and the suite's own name of it:
        its id if that is text, else the stem of its image's path.

        Raises `UsageError` for an id or a path that is not printable.
        """
        name = self._field(row, "id")
        value = row.read(name, cells.as_identifier)
        path = self._path(row)
        own_id = PurePath(path).stem
        if isinstance(value, str):
            own_id = value
        elif value is not None:
            value = f"{category}-{value:04d}"
        text = value or path
        mark = steering(text)
        if mark:
            raise row.error(f"{name!r} is {text!a:.200} with {mark}, expected printable text")
        if value:
            return self.ids.named(value), own_id
        texts = json.dumps(self._texts_of_id(row))
        return self.ids.of_image(path, texts, category), own_id

    def _texts_of_id(self, row: SuiteRow) -> list[str]:
        """Return what tells pairs of one path apart, in the same order in each language."""
        sources = self._cells(row)
        texts = [cell.text(row) for cell in sources]
        is_encoded = sources and self._is_encoded(sources[0])
        first = texts[0].strip() if is_encoded else ""
        keys = ("instruction_en", "instruction_zh", "instruction")
        result = [first, *(self._text(row, key) for key in keys)]
        if len(sources) > 1:
            result += [*texts, str(self._edited_source(row, len(sources)))]
        return result

    def _is_encoded(self, cell: SourceCell) -> bool:
        """Tell whether a cell holds a base64 text."""
        is_text = not isinstance(cell.value, ParquetImage)
        return is_text and self.columns["image_b64"].place_of(cell.column) is not None

    def _source(self, row: SuiteRow, cell: SourceCell) -> pairs.ImageSource:
        """Return the image in a cell of a row."""
        if isinstance(cell.value, ParquetImage):
            return cell.value
        text = cell.text(row)
        if not self._is_encoded(cell):
            return image_below(row, text.strip(), self.root)
        if row.path.suffix.lower() in INLINE:
            return images.Base64Image(text)
        return RowImage(row.path, row.start, row.end, cell.column, cell.index)

    def _reference(self, row: SuiteRow) -> pairs.ImageSource | None:
        """Return the expected result of a row: an image in a table, else a base64 text, else the
        file that a path names; `None` without any.
        """
        for name in self.fields["reference_b64"] + self.fields["reference"]:
            image = row.values.get(name)
            if isinstance(image, ParquetImage):
                return image
            if isinstance(image, list) and any(isinstance(part, ParquetImage) for part in image):
                raise row.error(f"{name!r} is a list of {len(image)} images, expected one image")
        name = self._field(row, "reference_b64")
        text = row.read(name, cells.as_text)
        if text is not None:
            if row.path.suffix.lower() in INLINE:
                return images.Base64Image(text)
            return RowImage(row.path, row.start, row.end, name)
        path = self._text(row, "reference")
        return image_below(row, path, self.root) if path else None


def _advice(row: SuiteRow, key: str, name: str) -> str:
    """Say how a field would be read as what a key stands for; an image with those that are numbered
    as it is.
    """
    columns = [name]
    if key == "image":
        columns = list(columns_beside(name, row.values))
    if len(columns) == 1:
        return f"if {name!r} is that, set suite.fields.{key}={name!r}"
    names = ", ".join(map(json.dumps, columns))
    return f"if {' and '.join(map(repr, columns))} are that, set suite.fields.{key}=[{names}]"


def _mapped(settings: SuiteSettings) -> dict[str, tuple[str, ...]]:
    """Return the fields that the settings name, by what a pair needs."""
    mapped: dict[str, tuple[str, ...]] = {}
    for key, names in settings.fields.items():
        mapped[key] = (names,) if isinstance(names, str) else names
    return mapped


class Ids:
    """Makes ids of `[A-Za-z0-9._-]{1,128}` out of a suite's `names` and image `paths`, readable
    where unique.

    The id of a pair depends on all names and paths of the suite, but not on their order.
    """

    def __init__(self, names: Iterable[str], paths: Iterable[str]) -> None:
        paths = list(paths)
        self._names = Counter(map(_readable, set(names)))
        self._stems = Counter(_readable(PurePath(path).stem) for path in paths)
        self._paths = Counter(map(_joined, paths))

    def named(self, name: str) -> str:
        """Return the id for a suite's name of a pair; the same name gives the same id."""
        readable = _readable(name)
        if readable and (readable == name or self._names[readable] == 1):
            return readable
        return pairs.digested(readable, name)

    def of_image(self, path: str, text: str, category: str) -> str:
        """Return the id for a pair without a name: the stem of its image's path, or the whole path
        if two images share the stem.

        Pairs of the same image, and those without a path, get eight hex digits of a SHA-256 over
        `path` and `text`.
        """
        stem = _readable(PurePath(path).stem)
        if stem and self._stems[stem] == 1:
            return stem
        joined = _joined(path)
        if stem and self._paths[joined] == 1:
            return joined
        return pairs.digested(stem or _readable(category), f"{path}\n{text}")


def _joined(path: str) -> str:
    """Return an id of a whole path, without the file's suffix."""
    place = PurePath(path)
    return _readable("-".join([*place.parent.parts, place.stem]))


def _readable(name: str) -> str:
    """Return a name without what an id cannot hold; an empty text if nothing remains."""
    name = unicodedata.normalize("NFC", name)
    if pairs.slug(name) == name:
        return name
    cleaned = pairs.UNSAFE.sub("-", name)
    joined = _MARKS.sub(_joining_mark, cleaned)
    return joined.strip("-.")[: pairs.READABLE_LENGTH]


def _joining_mark(marks: re.Match[str]) -> str:
    """Return one hyphen for a run of marks that has any, and another run as it is."""
    run = marks.group()
    return "-" if "-" in run else run


def _names_image(value: object) -> bool:
    """Tell whether a value is an image, the name of an image file, or a list of these."""
    if isinstance(value, list):
        return bool(value) and all(map(_names_image, value))
    return isinstance(value, ParquetImage) or (
        isinstance(value, str) and value.lower().endswith(IMAGE_SUFFIXES)
    )


def as_seed(value: object) -> int | None:
    """Read the seed of a pair, `None` if it is missing; raises `ValueError` as the functions of
    `cells` do.
    """
    with suppress(ValueError):
        seed = cells.as_whole(value)
        if seed is None or 0 <= seed < 2**63:
            return seed
    raise ValueError("expected an integer of at least 0 and under 2**63")


def _as_short_text(value: Any) -> str:
    """Return the beginning of a text or number; an empty text for a list, a table or nothing."""
    return str(value)[:200] if isinstance(value, str | int | float) else ""
