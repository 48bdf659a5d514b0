"""Pairs and their categories."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

#: English slug of each known category -> its other names, as used in data files, `-k` and gates.
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "physics": ("物理",),
    "environment": ("环境",),
    "social": ("社会",),
    "causal": ("因果", "causal_reasoning"),
    "referential": ("指代",),
    "logical": ("逻辑", "logical_reasoning"),
    "spatial": ("空间", "spatial_reasoning"),
    "temporal": ("时间", "temporal_reasoning"),
}
_SLUG_OF = {name: slug for slug, aliases in CATEGORIES.items() for name in (slug, *aliases)}

_SAFE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def slug(text: str) -> str:
    """Turn any text into an id of 1 to 128 characters out of `[A-Za-z0-9._-]`.

    Where characters had to go, eight hex digits of the text's SHA-256 follow, so that different
    texts keep different ids. The text is NFC-normalised first.
    """
    text = unicodedata.normalize("NFC", text)
    if _SAFE.fullmatch(text) and text.strip("."):  # "." and ".." would be folders
        return text
    cleaned = _UNSAFE.sub("-", text).strip("-.")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if cleaned:
        return f"{cleaned[:119]}-{digest}"
    return digest


def category_slug(name: str) -> str:
    """Return the English slug of a category name or alias.

    An unknown name, in any script, becomes a category of its own: its letters and digits with `-`
    between words.
    """
    name = unicodedata.normalize("NFC", name).strip()
    known = _SLUG_OF.get(name) or _SLUG_OF.get(name.lower())
    return known or re.sub(r"[^\w.]+", "-", name).strip("-.") or slug(name)


def aliases_of(category: str) -> tuple[str, ...]:
    """Return all names of a category by its slug, the slug first."""
    return (category, *CATEGORIES.get(category, ()))


def in_order(categories: Iterable[str]) -> list[str]:
    """List distinct categories: the known ones in the order of the alias table, then the others as
    they appear.
    """
    present = dict.fromkeys(categories)
    return [
        *(name for name in CATEGORIES if name in present),
        *(name for name in present if name not in CATEGORIES),
    ]


class ImageSource(Protocol):
    """Where an image comes from; nothing is read or decoded before `read`."""

    def read(self) -> bytes:
        """Return the encoded image (PNG, JPEG or WebP); raise `ImageError` if it cannot be had."""


@dataclass(frozen=True, slots=True, repr=False)
class EditPair:
    """One (source image, edit instruction) of a suite.

    `id` is unique in its suite and made of `[A-Za-z0-9._-]{1,128}`; `category` is a slug; `seed` is
    the base seed, to which the number of the repetition is added. `own_id` and `own_category` are
    the suite's own words for them, in any script; `fields` holds what else the suite says of the
    pair, as text; `row` is where it stands, such as `pairs.jsonl:3`, as far as it stands in a file.
    """

    id: str
    category: str
    instruction: str
    source: ImageSource
    description: str = ""
    reference: ImageSource | None = None
    reference_text: str = ""
    tags: tuple[str, ...] = ()
    difficulty: str = ""
    seed: int = 0
    own_id: str = ""
    own_category: str = ""
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)
    row: str = field(default="", compare=False)

    def __repr__(self) -> str:
        """Say which one it is, without texts from data."""
        return f"<EditPair {self.id!a}>"

    @property
    def category_names(self) -> tuple[str, ...]:
        """The category's slug, its aliases, and what the suite calls it."""
        return tuple(dict.fromkeys(filter(None, (*aliases_of(self.category), self.own_category))))

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names by which `-k` finds this pair: those of its category, its tags, its difficulty, the
        suite's own id.
        """
        return tuple(filter(None, (*self.category_names, *self.tags, self.difficulty, self.own_id)))
