"""Editor and judge workers that a user's own test calls: what `edit_workers` and `reward_model` return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from PIL import Image

from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.core.pairs import category_slug
from pytest_imgedit.core.results import Verdict
from pytest_imgedit.core.strict_json import JsonObject


class EditCall(TypedDict):
    """An edit that is asked for; `source` is a PNG."""

    source: bytes
    instruction: str
    seed: int


class ScoreCall(TypedDict):
    """A verdict that is asked for; images are PNGs."""

    source: bytes
    edited: bytes
    reference: bytes | None
    instruction: str
    category: str


class Calls(Protocol):
    """Answers calls, here or in another process; raises `EditFailed`."""

    def edit(self, calls: Sequence[EditCall]) -> Sequence[bytes]:
        """Return the edited images as PNGs, in order."""

    def score(self, calls: Sequence[ScoreCall]) -> Sequence[JsonObject]:
        """Return the fields of the verdicts, in order."""


class EditWorkers:
    """Edits images with the run's editor and its workers; edits are kept in the store like any other."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def edit(self, source: Image.Image, instruction: str, seed: int = 0) -> Image.Image:
        """Edit one RGB image; raises `EditFailed` if the editor fails."""
        return self.edit_batch([(source, instruction)], seed)[0]

    def edit_batch(self, requests: Sequence[tuple[Image.Image, str]], seed: int = 0) -> list[Image.Image]:
        """Edit (image, instruction) pairs on all workers at once, in order; raises `EditFailed` at a failure.

        Sources of one size go into one call of the editor (`editor.batch_size`).
        """
        calls: list[EditCall] = [
            {"source": encode_png(source), "instruction": instruction, "seed": seed} for source, instruction in requests
        ]
        return [decode(image) for image in self._calls.edit(calls)]


class RewardModel:
    """Scores edits with the run's judge, rubric and workers; verdicts are kept in the store like any other."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def score(
        self,
        source: Image.Image,
        edited: Image.Image,
        instruction: str,
        category: str = "default",
        reference: Image.Image | None = None,
    ) -> Verdict:
        """Score one edit by the rubric of a category; raises `EditFailed` if no readable verdict comes."""
        references = None if reference is None else [reference]
        return self.score_batch([(source, edited, instruction)], category, references)[0]

    def score_batch(
        self,
        edits: Sequence[tuple[Image.Image, Image.Image, str]],
        category: str | Sequence[str] = "default",
        references: Sequence[Image.Image | None] | None = None,
    ) -> list[Verdict]:
        """Score (source, edited image, instruction) in batches, in order; raises `EditFailed` at a failure.

        `category` is that of all of them, or one for each, as `references` are. Raises `ValueError` for another number
        of these than of edits.
        """
        categories = [category] * len(edits) if isinstance(category, str) else category
        images = [None] * len(edits) if references is None else references
        calls: list[ScoreCall] = [
            {
                "source": encode_png(source),
                "edited": encode_png(edited),
                "reference": None if reference is None else encode_png(reference),
                "instruction": instruction,
                "category": category_slug(name),
            }
            for (source, edited, instruction), name, reference in zip(edits, categories, images, strict=True)
        ]
        return [Verdict(**verdict) for verdict in self._calls.score(calls)]
