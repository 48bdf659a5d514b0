"""The native suite format: rows with an instruction and an image, base64 or a path beside the
file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import Base64Image, FileImage
from pytest_imgedit.core.pairs import EditPair, ImageSource, category_slug
from pytest_imgedit.core.sanitize import did_you_mean, steering
from pytest_imgedit.suites.ids import Ids
from pytest_imgedit.suites.rows import Problems, Row, RowImage, make_pairs, read_rows

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
#: Formats whose rows cannot be read again by their bytes, so that a base64 image stays in memory.
INLINE = (".toml", ".csv")
#: What people call these fields elsewhere; `imgedit init` and messages guess by them.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "image": (
        *(
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
        ),
        *("文件", "图片"),
    ),
    "instruction": (
        *(
            "instruction",
            "prompt",
            "text",
            "edit",
            "edit_prompt",
            "caption",
            "instructions",
            "query",
        ),
        *("指令", "提示词"),
    ),
    "category": ("category", "subset", "kind", "type", "class", "task", "group", "类别", "分类"),
    "reference": ("reference", "target", "ground_truth", "gt"),
}


def load(argument: str, settings: SuiteSettings) -> Iterator[EditPair]:
    """Return the pairs of one file, with `[suite.fields]` naming fields that are called otherwise
    there.

    Rows without a category are of the category `all`. Raises `UsageError` for a row without
    instruction or image, and for values of a wrong type.
    """
    for key in settings.fields:
        if key not in FIELDS:
            near = did_you_mean(key, FIELDS)
            raise UsageError(
                f"suite.fields: unknown {key!r}, expected one of {', '.join(FIELDS)}{near}"
            )
    path = Path(argument)
    if settings.root is not None and not settings.root.is_dir():
        raise UsageError(f"suite.root: {settings.root}: no such folder")
    reader = _Reader(
        settings.language,
        {**FIELDS, **{k: (v,) for k, v in settings.fields.items()}},
        settings.root,
    )
    problems = Problems()
    seen: dict[str, int] = {}
    rows = list(reader.drop_images(read_rows(path, problems)))
    ids = Ids(reader.given_names(rows), reader.image_paths(rows))

    def make(row: Row) -> EditPair:
        pair = reader.pair(row, ids)
        if pair.id in seen:
            raise row.error(
                f"id {pair.id!r} is already used on line {seen[pair.id]}, expected unique ids"
            )
        seen[pair.id] = row.line
        return pair

    return make_pairs(rows, make, problems)


class _Reader:
    def __init__(
        self, language: str, fields: dict[str, tuple[str, ...]], root: Path | None
    ) -> None:
        self.languages = (language, "zh" if language == "en" else "en")
        self.fields, self.root = fields, root
        self.read_names = {name for names in fields.values() for name in names}

    def drop_images(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Put a short digest in the place of each base64 text, so that no row keeps its image in
        memory.
        """
        names = (*self.fields["image_b64"], *self.fields["reference_b64"])
        for row in rows:
            for name in names:
                text = row.values.get(name)
                if isinstance(text, str) and text and row.path.suffix.lower() not in INLINE:
                    row.values[name] = hashlib.sha256(
                        text.encode("utf-8", "surrogatepass")
                    ).hexdigest()
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

    def given_names(self, rows: Iterable[Row]) -> Iterator[str]:
        """Yield the ids that rows have as text."""
        values = (self.field(row, "id")[1] for row in rows)
        return (value for value in values if isinstance(value, str))

    def image_paths(self, rows: Iterable[Row]) -> Iterator[str]:
        """Yield the paths of source images; one that is no text is told where its pair is read."""
        for row in rows:
            with suppress(UsageError):
                yield self.path(row)

    def pair(self, row: Row, ids: Ids) -> EditPair:
        category = self.text(row, "category") or row.group or "all"
        instruction = self.translated(row, "instruction")
        if not instruction:
            raise row.error(f"no instruction, expected text in {self.names(row, 'instruction')}")
        source = self.image(row, "image")
        if source is None:
            raise row.error(f"no image, expected one in {self.names(row, 'image', 'image_b64')}")
        seed_name, seed = self.field(row, "seed")
        if isinstance(seed, str) and row.is_text:
            seed = read_seed(seed)
        if seed is not None and (
            not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63
        ):
            raise row.error(
                f"{seed_name!r} is {seed!r:.40}, expected an integer of at least 0 and under 2**63"
            )
        tags_name, tags = self.field(row, "tags")
        if isinstance(tags, str) and row.is_text:
            tags = split_tags(tags)
        if tags is not None and not (
            isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        ):
            raise row.error(f"{tags_name!r} is {tags!r:.80}, expected a list of texts")
        return EditPair(
            id=self.id(row, category_slug(category), instruction, ids),
            category=category_slug(category),
            instruction=instruction,
            source=source,
            description=self.translated(row, "description"),
            reference=self.image(row, "reference"),
            reference_text=self.translated(row, "reference_text"),
            tags=tuple(tags or ()),
            difficulty=self.text(row, "difficulty"),
            seed=seed or 0,
            own_id=self.own_id(row),
            own_category=category,
            fields={
                name: _short(value)
                for name, value in row.values.items()
                if name not in self.read_names
            },
            row=str(row),
        )

    def names(self, row: Row, *keys: str) -> str:
        """List the fields that would do, and the row's own field that looks most like one of
        them.
        """
        names = [name for key in keys for name in self.fields[key]]
        known = " or ".join(map(repr, names))
        present = [name for name in row.values if name not in self.read_names]
        guess = next(
            (name for name in present if name.lower() in USUAL_NAMES.get(keys[0], ())), None
        )
        if guess:
            return f"{known}; if {guess!r} is that, set suite.fields.{keys[0]}={guess!r}"
        return known

    def id(self, row: Row, category: str, instruction: str, ids: Ids) -> str:
        name, given = self.field(row, "id")
        if isinstance(given, int) and not isinstance(given, bool):
            given = f"{category}-{given:04d}"
        if given is not None and not isinstance(given, str):
            raise row.error(f"{name!r} is {type(given).__name__}, expected text or an integer")
        path = self.path(row)
        if found := steering(given or path):
            raise row.error(
                f"{name!r} is {given or path!a:.200} with {found}, expected printable text"
            )
        if given:
            return ids.named(given)
        return ids.of_image(path, json.dumps([self.text(row, "image_b64"), instruction]), category)

    def own_id(self, row: Row) -> str:
        """Return the suite's own name of a pair: its id, else the stem of its image's path."""
        _, given = self.field(row, "id")
        if isinstance(given, str):
            return given
        return PurePath(self.path(row)).stem

    def path(self, row: Row) -> str:
        return self.text(row, "image_path") or self.text(row, "image")

    def image(self, row: Row, key: str) -> ImageSource | None:
        name, value = self.field(row, f"{key}_b64")
        if value is not None:
            self.text(row, f"{key}_b64")
            if row.path.suffix.lower() in INLINE:
                return Base64Image(value)
            return RowImage(row.path, row.start, row.end, name)
        relative = self.text(row, key)
        if relative:
            return beside(row, relative, self.root)
        return None


def read_seed(text: str) -> int | str:
    """Return the seed that a table's cell holds; a text that is none stays one."""
    is_number = (
        text.isascii() and text.isdigit() and len(text) < 20
    )  # Python refuses to read thousands of digits
    if is_number:
        return int(text)
    return text


def split_tags(text: str) -> list[str]:
    """Return the tags of a table's cell, which `;` separates."""
    return [tag for part in text.split(";") if (tag := part.strip())]


def _short(value: Any) -> str:
    """Keep a further field as text, if it is short enough to be one; a list or table is kept as its
    name only.
    """
    if isinstance(value, str | int | float):
        return str(value)[:200]
    return ""


def beside(row: Row, relative: str, root: Path | None = None) -> FileImage:
    """Return an image file below `root`, by default the suite file's folder.

    Raises `UsageError` if the path leads out of it.
    """
    if "://" in relative:
        raise row.error(f"image {relative!r:.200} is a URL, expected a path beside the file")
    remedy = "a path below it" if root is not None else "a path below it, or another suite.root"
    root = (root or row.path.parent).resolve()
    try:
        path = (root / relative).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise row.error(f"image {relative!r:.200}: {error}, expected a path below {root}") from None
    if path == root:
        raise row.error(f"image {relative!r:.200} is a folder, expected a file")
    if Path(relative).is_absolute() or not path.is_relative_to(root):
        raise row.error(f"image {relative!r:.200} leads out of {root}, expected {remedy}")
    return FileImage(path)
