"""The native suite format: rows with an instruction and an image, base64 or a path beside the file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import UsageError
from pytest_imgedit.images import Base64Image, FileImage
from pytest_imgedit.pairs import EditPair, category_slug, slug
from pytest_imgedit.suites.rows import Problems, Row, RowImage, read_rows
from pytest_imgedit.text import steering

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_imgedit.config import SuiteSettings
    from pytest_imgedit.pairs import ImageSource

#: What a pair needs -> the field names that may hold it, the first one present wins.
FIELDS: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "category": ("category", "subset"),
    "image": ("image",),
    "image_b64": ("src_img_b64", "image_b64"),
    "image_path": ("original_image_path",),
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


def load(argument: str, settings: SuiteSettings) -> Iterator[EditPair]:
    """Yield the pairs of one file, with `[suite.fields]` naming fields that are called otherwise there.

    Raises `UsageError` for a row without category, instruction or image, and for values of a wrong type.
    """
    unknown = set(settings.fields) - set(FIELDS)
    if unknown:
        raise UsageError(f"suite.fields: unknown {sorted(unknown)[0]!r}, expected one of {', '.join(FIELDS)}")
    path = Path(argument)
    reader = _Reader(settings.language, {**FIELDS, **{k: (v,) for k, v in settings.fields.items()}})
    problems = Problems()
    rows = list(reader.drop_images(read_rows(path, problems)))
    shared = Counter(reader.stems(rows))
    seen: dict[str, int] = {}
    for row in rows:
        try:
            pair = reader.pair(row, shared)
            if pair.id in seen:
                raise row.error(f"id {pair.id!r} is already used on line {seen[pair.id]}, expected unique ids")
        except UsageError as error:
            problems.add(error)
            continue
        seen[pair.id] = row.line
        yield pair
    problems.check()


class _Reader:
    def __init__(self, language: str, fields: dict[str, tuple[str, ...]]) -> None:
        self.languages = (language, "zh" if language == "en" else "en")
        self.fields = fields

    def drop_images(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Put a short digest in the place of each base64 text, so that no row keeps its image in memory."""
        names = (*self.fields["image_b64"], *self.fields["reference_b64"])
        for row in rows:
            for name in names:
                text = row.values.get(name)
                if isinstance(text, str) and text and row.path.suffix != ".toml":
                    row.values[name] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            yield row

    def field(self, row: Row, key: str) -> tuple[str, Any]:
        for name in self.fields[key]:
            if row.values.get(name) not in (None, ""):
                return name, row.values[name]
        return self.fields[key][0], None

    def text(self, row: Row, key: str) -> str:
        name, value = self.field(row, key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise row.error(f"{name!r} is {type(value).__name__}, expected text")
        return value.strip()

    def translated(self, row: Row, key: str) -> str:
        names = (*(f"{key}_{language}" for language in self.languages), key)
        return next((text for name in names if (text := self.text(row, name))), "")

    def pair(self, row: Row, shared: Counter[str]) -> EditPair:
        category = self.text(row, "category") or row.group or ""
        instruction = self.translated(row, "instruction")
        for key, value in (("category", category), ("instruction", instruction)):
            if not value:
                raise row.error(f"no {key}, expected text in {' or '.join(map(repr, self.fields[key]))}")
        source = self.image(row, "image")
        if source is None:
            names = (*self.fields["image"], *self.fields["image_b64"])
            raise row.error(f"no image, expected one in {' or '.join(map(repr, names))}")
        seed_name, seed = self.field(row, "seed")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63):
            raise row.error(f"{seed_name!r} is {seed!r:.40}, expected an integer of at least 0 and under 2**63")
        tags_name, tags = self.field(row, "tags")
        if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
            raise row.error(f"{tags_name!r} is {tags!r}, expected a list of texts")
        return EditPair(
            id=self.id(row, category_slug(category), instruction, shared),
            category=category_slug(category),
            instruction=instruction,
            source=source,
            description=self.translated(row, "description"),
            reference=self.image(row, "reference"),
            reference_text=self.translated(row, "reference_text"),
            tags=tuple(tags or ()),
            difficulty=self.text(row, "difficulty"),
            seed=seed or 0,
        )

    def id(self, row: Row, category: str, instruction: str, shared: Counter[str]) -> str:
        name, given = self.field(row, "id")
        if isinstance(given, int) and not isinstance(given, bool):
            given = f"{category}-{given:04d}"
        if given is not None and not isinstance(given, str):
            raise row.error(f"{name!r} is {type(given).__name__}, expected text or an integer")
        stem = self.stem(row)
        if found := steering(given or stem):
            raise row.error(f"{name!r} is {given or stem!a} with {found}, expected printable text")
        if given:
            return slug(given)
        if stem and shared[stem] == 1:
            return slug(stem)
        texts = (self.path(row), self.text(row, "image_b64"), instruction)
        digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:10]
        return slug(f"{stem or category}-{digest}")

    def path(self, row: Row) -> str:
        return self.text(row, "image_path") or self.text(row, "image")

    def stem(self, row: Row) -> str:
        """Return the image path without its suffix, by which a pair without an id is named."""
        path = self.path(row)
        return str(Path(path).with_suffix("")) if Path(path).name else ""

    def stems(self, rows: Iterable[Row]) -> Iterator[str]:
        for row in rows:
            with suppress(UsageError):  # a path that is no text is told where its pair is read
                yield self.stem(row)

    def image(self, row: Row, key: str) -> ImageSource | None:
        name, value = self.field(row, f"{key}_b64")
        if value is not None:
            self.text(row, f"{key}_b64")
            return Base64Image(value) if row.path.suffix == ".toml" else RowImage(row.path, row.start, row.end, name)
        relative = self.text(row, key)
        return beside(row, relative) if relative else None


def beside(row: Row, relative: str) -> FileImage:
    """Return the image file beside a suite file; raise `UsageError` if the path leads out of its folder."""
    if "://" in relative:
        raise row.error(f"image {relative!r} is a URL, expected a path beside the file")
    root = row.path.parent.resolve()
    try:
        path = (root / relative).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise row.error(f"image {relative!r}: {error}, expected a path below {root}") from None
    if path == root:
        raise row.error(f"image {relative!r} is a folder, expected a file")
    if Path(relative).is_absolute() or not path.is_relative_to(root):
        raise row.error(f"image {relative!r} leads out of {root}, expected a path below it")
    return FileImage(path)
