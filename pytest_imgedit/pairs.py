"""The vocabulary: pairs, edits, verdicts and results as frozen dataclasses."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from pytest_imgedit.text import printable, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from PIL import Image

#: Characters of a judge's reply that a failing item shows.
MAX_REPLY_SHOWN = 400

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

    Where characters had to go, eight hex digits of the text's SHA-256 follow, so that different texts
    keep different ids. The text is NFC-normalised first.
    """
    text = unicodedata.normalize("NFC", text)
    if _SAFE.fullmatch(text) and text.strip("."):  # "." and ".." would be folders
        return text
    cleaned = _UNSAFE.sub("-", text).strip("-.")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[:119]}-{digest}" if cleaned else digest


def category_slug(name: str) -> str:
    """Return the English slug of a category name or alias.

    An unknown name, in any script, becomes a category of its own: its letters and digits with `-` between words.
    """
    name = unicodedata.normalize("NFC", name).strip()
    known = _SLUG_OF.get(name) or _SLUG_OF.get(name.lower())
    return known or re.sub(r"[^\w.]+", "-", name).strip("-.") or slug(name)


def aliases_of(category: str) -> tuple[str, ...]:
    """Return all names of a category by its slug, the slug first."""
    return (category, *CATEGORIES.get(category, ()))


def in_order(categories: Iterable[str]) -> list[str]:
    """List distinct categories: the known ones in the order of the alias table, then the others as they appear."""
    present = dict.fromkeys(categories)
    return [*(name for name in CATEGORIES if name in present), *(name for name in present if name not in CATEGORIES)]


class ImageSource(Protocol):
    """Where an image comes from; nothing is read or decoded before `read`."""

    def read(self) -> bytes:
        """Return the encoded image (PNG, JPEG or WebP); raise `ImageError` if it cannot be had."""


@dataclass(frozen=True, slots=True, repr=False)
class EditPair:
    """One (source image, edit instruction) of a suite.

    `id` is unique in its suite and made of `[A-Za-z0-9._-]{1,128}`; `category` is a slug; `seed` is the
    base seed, to which the number of the repetition is added. `own_id` and `own_category` are the suite's own words for
    them, in any script; `fields` holds what else the suite says of the pair, as text.
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

    def __repr__(self) -> str:
        """Say which one it is, without texts from data."""
        return f"<EditPair {self.id!a}>"

    @property
    def category_names(self) -> tuple[str, ...]:
        """The category's slug, its aliases, and what the suite calls it."""
        return tuple(dict.fromkeys(filter(None, (*aliases_of(self.category), self.own_category))))

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names by which `-k` finds this pair: those of its category, its tags, its difficulty, the suite's own id."""
        return tuple(filter(None, (*self.category_names, *self.tags, self.difficulty, self.own_id)))


@dataclass(frozen=True, slots=True)
class Edit:
    """One edited image: `blob` is the SHA-256 of its PNG in the store, `seconds` the editor's own time.

    `near_copy` says that it hardly differs from the source, `reframed` that its aspect ratio does by over 3%; see
    `editors/output.py`. `width` and `height` are in pixels. `compiled` says that a compiled network made it, whose
    images differ from others by rounding. `key` is that of its record in the store, `environment` the digest of where
    it was computed.
    """

    blob: str
    seconds: float
    worker: str
    near_copy: bool = False
    compiled: bool = False
    width: int = 0
    height: int = 0
    reframed: bool = False
    key: str = ""
    environment: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said of one edit: the raw reply, its aspects, and a score in [0, 10].

    `batch_size` is the number of edits that were judged together with this one. Where aspects and score are
    expectations over the judge's probabilities, `greedy` is the score of the reply as it stands, and `off_scale` the
    largest probability in [0, 1] that the judge gave to something else than a grade. `measured` says that the judge
    gave the score itself, rather than a reply to read. `key` is that of its record in the store, `environment` the
    digest of where it was computed.
    """

    reply: str
    aspects: Mapping[str, float]
    score: float
    batch_size: int = 1
    greedy: float | None = None
    off_scale: float | None = None
    measured: bool = False
    key: str = ""
    environment: str = ""


@dataclass(frozen=True, slots=True)
class ItemError:
    """Why a pair has no score: the stage, a short kind such as `worker_died`, and one line of text."""

    stage: Literal["edit", "score"]
    kind: str
    message: str
    reply: str | None = None

    def __str__(self) -> str:
        return f"{self.stage} error ({self.kind}): {self.message}"


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One repetition of a pair: its edit and verdict, or the error that ended it."""

    seed: int
    edit: Edit | None = None
    verdict: Verdict | None = None
    error: ItemError | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ItemResult:
    """How one pair ended. `score` in [0, 10] and `aspects` are means over seeds, `None` and empty on error.

    `edited` is the end of a pair in stage `edit`; `interrupted` pairs were cut off before they were done, and pairs
    `not_needed` left out since every gate was decided. `paths` are those of the image files `source`, `reference` and
    `edited` (of the first seed), as far as there are any, and of the `report`.
    """

    id: str
    category: str
    status: Literal["scored", "edited", "edit_error", "judge_error", "interrupted", "not_needed"]
    score: float | None
    aspects: Mapping[str, float]
    seeds: tuple[SeedResult, ...]
    error: ItemError | None = None
    instruction: str = ""
    paths: Mapping[str, Path] = field(default_factory=dict, compare=False)
    min_score: float | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Say which one it is; pytest prints that of a test that fails, and texts from data do not belong there."""
        return f"<ItemResult {self.id}: {self.status}>"

    @property
    def source(self) -> Image.Image:
        """The source image, 8-bit sRGB of shape (H, W, 3), read at each call; raises `ItemFailed` without one."""
        return self._image("source")

    @property
    def edited(self) -> Image.Image:
        """The edited image of the first seed, as `source`; raises `ItemFailed` if the edit failed."""
        return self._image("edited")

    @property
    def reference(self) -> Image.Image | None:
        """The reference image, as `source`; `None` for a pair without one."""
        return self._image("reference") if "reference" in self.paths else None

    def _image(self, name: str) -> Image.Image:
        __tracebackhide__ = True
        from pytest_imgedit.images import FileImage, decode

        if name not in self.paths:
            raise ItemFailed(self, str(self.error or f"no {name} image"))
        return decode(FileImage(self.paths[name]).read())

    def check(self) -> None:
        """Fail the calling test unless this pair was edited, judged, and reached the suite's `min_score`.

        Raises `ItemFailed` with the reason, the instruction, what the judge said, and where the images are.
        """
        __tracebackhide__ = True
        if self.error is not None:
            raise ItemFailed(self, str(self.error))
        if self.min_score is not None and self.score is not None and self.score < self.min_score:
            raise ItemFailed(self, f"score {self.score:.2f} is under the suite's min_score {self.min_score:g}")


class ItemFailed(AssertionError):
    """A pair is not as a test wants it: `reason` in one line, and as text all that helps to see why."""

    def __init__(self, item: ItemResult, reason: str) -> None:
        self.reason = reason
        replies = [seed.verdict.reply for seed in item.seeds if seed.verdict is not None and seed.verdict.reply]
        if item.error is not None and item.error.reply:
            replies.append(item.error.reply)
        told = {
            "pair": f"{item.id} ({item.category})",
            "instruction": item.instruction,
            "aspects": ", ".join(f"{name} {value:.2f}" for name, value in item.aspects.items()),
            "judge": " | ".join(shorten(" / ".join(reply.split("\n")), MAX_REPLY_SHOWN) for reply in replies),
            **{name: os.path.relpath(item.paths[name]) for name in ("source", "edited") if name in item.paths},
        }
        if "report" in item.paths:
            told["report"] = f"{os.path.relpath(item.paths['report'])}#view-{item.id}"
        lines = [f"  {name}: {printable(text)}" for name, text in told.items() if text]
        super().__init__("\n".join([printable(reason), *lines]))
