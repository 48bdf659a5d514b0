"""Pairs, their categories, and their shards: the parts of a run for several machines."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

#: English slug of each known category -> its other names, as used in data files, `-k` and gates.
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "physics": ("物理", "physical"),
    "environment": ("环境", "environmental"),
    "social": ("社会", "cultural"),
    "causal": ("因果", "causal_reasoning"),
    "referential": ("指代",),
    "logical": ("逻辑", "logical_reasoning"),
    "spatial": ("空间", "spatial_reasoning"),
    "temporal": ("时间", "temporal_reasoning"),
}
_SLUG_OF = {name: slug for slug, aliases in CATEGORIES.items() for name in (slug, *aliases)}

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
#: The most characters of an id.
_MAX_ID = 128
#: Hex digits of the digest in an id.
_DIGEST_LENGTH = 8
#: The most characters of the readable part of an id, before a hyphen and the digest.
READABLE_LENGTH = _MAX_ID - _DIGEST_LENGTH - 1


def slug(text: str) -> str:
    """Return the id of a text: 1 to 128 characters out of `[A-Za-z0-9._-]`.

    The text is NFC-normalised. If it is no id as it stands, hyphens replace other characters, and
    eight hex digits of its SHA-256 follow, so that different texts have different ids.
    """
    text = unicodedata.normalize("NFC", text)
    cleaned = UNSAFE.sub("-", text)
    is_folder = not text.strip(".")  # "." and ".." are
    if cleaned == text and not is_folder and len(text) <= _MAX_ID:
        return text
    return digested(cleaned.strip("-."), text)


def digested(readable: str, text: str) -> str:
    """Return an id of at most `READABLE_LENGTH` readable characters, and eight hex digits of the
    SHA-256 of a text.
    """
    data = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST_LENGTH]
    return f"{readable[:READABLE_LENGTH]}-{digest}".removeprefix("-")


def category_slug(name: str) -> str:
    """Return the English slug of a category's name or alias.

    An unknown name, in any script, becomes a new category: its letters, digits, `_` and `.`, with
    `-` between words. One without any of these becomes a `slug`.
    """
    name = unicodedata.normalize("NFC", name).strip()
    known = _SLUG_OF.get(name) or _SLUG_OF.get(name.lower())
    return known or re.sub(r"[^\w.]+", "-", name).strip("-.") or slug(name)


def in_order(categories: Iterable[str]) -> list[str]:
    """Return distinct categories: the known ones in the order of `CATEGORIES`, then the others in
    order of appearance.
    """
    rank = {name: position for position, name in enumerate(CATEGORIES)}
    return sorted(dict.fromkeys(categories), key=lambda name: rank.get(name, len(rank)))


class ImageSource(Protocol):
    """The origin of an image; nothing is read or decoded before `read`."""

    def read(self) -> bytes:
        """Return the encoded image (PNG, JPEG or WebP); raise `ImageError` if it cannot be
        read.
        """


ImageT = TypeVar("ImageT")


def in_order_of_sources(
    source: ImageT, further: Sequence[ImageT], edited_source: int
) -> tuple[ImageT, ...]:
    """Return all sources of a pair in its order: `source`, the edited one, has the place
    `edited_source`, which begins at 1, among the `further` ones.
    """
    before = edited_source - 1
    return (*further[:before], source, *further[before:])


def source_names(count: int, edited_source: int = 1) -> tuple[str, ...]:
    """Return the names of a pair's sources in its order: the edited one is `source`, each other one
    `source-N` with its place N, which begins at 1. The last one is the edited one where sources
    could not be read and so few are there.
    """
    edited_place = min(edited_source, count)
    places = range(1, count + 1)
    return tuple("source" if place == edited_place else f"source-{place}" for place in places)


def named_images(
    source: ImageT | None,
    further: Sequence[ImageT],
    reference: ImageT | None,
    edited_source: int = 1,
) -> dict[str, ImageT]:
    """Return the images of a pair by the names that calls of a protocol use: those of
    `source_names` in the pair's order, and `reference`.
    """
    images: dict[str, ImageT | None] = {}
    sources = in_order_of_sources(source, further, edited_source)
    images.update(zip(source_names(len(sources), edited_source), sources, strict=True))
    images["reference"] = reference
    return {name: image for name, image in images.items() if image is not None}


@dataclass(frozen=True, slots=True, repr=False)
class EditPair:
    """One source image, or several, with an edit instruction of a suite.

    `source` is the image that is edited: the edit has its size, and is compared with it. `further`
    are the other source images in their order, among which the edited one has the place
    `edited_source`, which begins at 1. `rewritten` is the instruction for the editor, if it is not
    the pair's own.

    `id` is unique in its suite and matches `[A-Za-z0-9._-]{1,128}`. `category` is a slug. `seed` is
    the base seed, to which the number of the repetition is added. `own_id` and `own_category` are
    the suite's names, in any script. `fields` holds further fields of the pair as text. `row` is
    the location in a suite file, such as `pairs.jsonl:3`.
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
    further: tuple[ImageSource, ...] = ()
    edited_source: int = 1
    rewritten: str = ""
    row: str = field(default="", compare=False)

    def __repr__(self) -> str:
        """Return the id, without texts from data."""
        return f"<EditPair {self.id!a}>"

    @property
    def images(self) -> dict[str, ImageSource]:
        """Its images by the names that calls of a protocol use."""
        return named_images(self.source, self.further, self.reference, self.edited_source)

    @property
    def sources(self) -> tuple[ImageSource, ...]:
        """All its source images in their order."""
        return in_order_of_sources(self.source, self.further, self.edited_source)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of its source images in their order."""
        return source_names(1 + len(self.further), self.edited_source)

    @property
    def editor_instruction(self) -> str:
        """The instruction that the editor gets."""
        return self.rewritten or self.instruction

    @property
    def category_names(self) -> tuple[str, ...]:
        """The category's slug, its aliases, and the suite's name for it."""
        names = [self.category]
        names += CATEGORIES.get(self.category, ())
        names.append(self.own_category)
        return tuple(dict.fromkeys(filter(None, names)))

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names by which `-k` finds this pair: those of its category, its tags, its difficulty, and
        the suite's id.
        """
        names = self.category_names + tuple(self.tags) + (self.difficulty, self.own_id)
        return tuple(filter(None, names))


@dataclass(frozen=True)
class Shard:
    """The shard `index` of `count`; indices begin at 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard `I/N`, with N up to 9999; raises `ValueError` for any other text."""
        match = re.fullmatch(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})", text, re.ASCII)
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError("expected I/N with I from 1 to N, such as 1/4")
        return cls(int(match[1]), int(match[2]))

    def has(self, pair_id: str) -> bool:
        """Return whether a pair belongs to this shard, which depends only on the SHA-256 of its
        id.
        """
        return number_of(pair_id) % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def number_of(pair_id: str) -> int:
    """Return the number that assigns a pair to a shard: the first 64 bits of the SHA-256 of its
    id.
    """
    return int.from_bytes(hashlib.sha256(pair_id.encode()).digest()[:8], "big")


def shards_of(pair_ids: Iterable[str], count: int) -> list[int]:
    """Return the indices of the shards that have any of these pairs, in order."""
    return sorted({number_of(pair_id) % count + 1 for pair_id in pair_ids})
