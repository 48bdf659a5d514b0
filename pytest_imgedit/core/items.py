"""One pair's result as a test sees it: numbers, images, and a check whose failure shows the
evidence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from pytest_imgedit.core import results
from pytest_imgedit.core.text import printable, shorten


@dataclass(frozen=True, slots=True, repr=False)
class ItemResult:
    """How one pair ended. `score` in [0, 10] and `aspects` are means over seeds, `None` and empty
    on error.

    In stage `edit`, pairs end as `edited`. `interrupted` pairs were stopped before they were done;
    pairs `not_needed` were left out since every gate was decided. `paths` holds the existing image
    files `source`, `reference` and `edited` (of the first seed), and the `report`; of a pair with
    several sources, also `source-N` for each that is not the edited one, in the pair's order.
    """

    id: str
    category: str
    status: results.Status
    score: float | None
    aspects: Mapping[str, float]
    seeds: tuple[results.SeedResult, ...]
    error: results.ItemError | None = None
    instruction: str = ""
    paths: Mapping[str, Path] = field(default_factory=dict, compare=False)
    min_score: float | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, item: results.Item, min_score: float | None, store: Path, report: Path
    ) -> ItemResult:
        """Return the result of an item of results.json; the folder `store` holds its images, and
        `report` is the run's report.
        """
        blobs = item.sources
        if item.reference is not None:
            blobs["reference"] = item.reference
        if item.edits:
            blobs["edited"] = item.edits[0].blob_path
        paths = {name: store / "blobs" / blob for name, blob in blobs.items()}
        return cls(
            id=item.id,
            category=item.category,
            status=item.status,
            score=item.score,
            aspects=item.aspects,
            seeds=item.seeds,
            error=item.error,
            instruction=item.instruction,
            paths={**paths, "report": report},
            min_score=min_score,
        )

    def __repr__(self) -> str:
        """Return the id and the status, without texts from data, since pytest prints it for failing
        tests.
        """
        return f"<ItemResult {self.id}: {self.status}>"

    @property
    def source(self) -> Image.Image:
        """The source image, or of several the one that is edited, 8-bit sRGB of shape (H, W, 3),
        read at each access; raises `ItemFailed` if there is none.
        """
        return self._image("source")

    @property
    def sources(self) -> tuple[Image.Image, ...]:
        """All source images in the pair's order, each like `source`; empty if there is none."""
        return tuple(self._image(name) for name in _source_names(self))

    @property
    def edited(self) -> Image.Image:
        """The edited image of the first seed, like `source`; raises `ItemFailed` if the edit
        failed.
        """
        return self._image("edited")

    @property
    def reference(self) -> Image.Image | None:
        """The reference image, like `source`; `None` for a pair without one."""
        return self._image("reference") if "reference" in self.paths else None

    def _image(self, name: str) -> Image.Image:
        """Return the image of a name in `paths`; raises `ItemFailed` if there is none."""
        __tracebackhide__ = True
        from pytest_imgedit.core.images import FileImage, decode

        if name not in self.paths:
            raise ItemFailed(self, str(self.error or f"no {name} image"))
        return decode(FileImage(self.paths[name]).read())

    def check(self) -> None:
        """Raise `ItemFailed` if this pair ended in an error, or with a score under the suite's
        `min_score`.

        The failure tells the reason, the instruction, the judge's replies, and the paths of the
        images.
        """
        __tracebackhide__ = True
        if self.error is not None:
            raise ItemFailed(self, str(self.error))
        if self.min_score is not None and self.score is not None and self.score < self.min_score:
            raise ItemFailed(
                self, f"score {self.score:.2f} is under the suite's min_score {self.min_score:g}"
            )


class ItemFailed(AssertionError):
    """A pair fails a test: `reason` is one line, the text holds all evidence."""

    def __init__(self, item: ItemResult, reason: str) -> None:
        """Make the text of the reason and of the evidence about the pair that is there."""
        self.reason = reason
        lines = [printable(reason)]
        for name, text in _evidence(item).items():
            if text:
                lines.append(f"  {name}: {printable(text)}")
        super().__init__("\n".join(lines))


def _evidence(item: ItemResult) -> dict[str, str]:
    """Return what a failure shows, by name; an empty text is not shown."""
    aspects = [f"{name} {value:.2f}" for name, value in item.aspects.items()]
    replies = [_on_one_line(reply) for reply in _replies(item) if reply]
    evidence = {
        "pair": f"{item.id} ({item.category})",
        "instruction": item.instruction,
        "aspects": ", ".join(aspects),
        "judge": " | ".join(replies),
    }
    for name in (*_source_names(item), "edited"):
        if name in item.paths:
            evidence[name] = os.path.relpath(item.paths[name])
    if "report" in item.paths:
        evidence["report"] = f"{os.path.relpath(item.paths['report'])}#view-{item.id}"
    return evidence


def _source_names(item: ItemResult) -> list[str]:
    """Return the names of the sources in `paths`, in the pair's order."""
    return [name for name in item.paths if name.startswith("source")]


def _replies(item: ItemResult) -> list[str]:
    """Return the judge's replies about all seeds, and last the one that could not be read."""
    replies: list[str] = []
    for seed in item.seeds:
        if seed.verdict is not None:
            replies += seed.verdict.replies.values()
    if item.error is not None and item.error.reply is not None:
        replies.append(item.error.reply)
    return replies


def _on_one_line(reply: str) -> str:
    return shorten(" / ".join(reply.split("\n")), most=400)
