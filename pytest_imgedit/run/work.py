"""What has to be done: each selected pair's images and keys, what the store has of it, and how it
ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pytest_imgedit.core.environments import Environment, Reuse, key
from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.images import FileImage, size_of, suffix_of
from pytest_imgedit.core.pairs import EditPair, ImageSource
from pytest_imgedit.core.requests import job_seed
from pytest_imgedit.core.results import (
    Edit,
    Item,
    ItemError,
    SeedResult,
    ShardInfo,
    Stage,
    Status,
    Verdict,
)
from pytest_imgedit.core.sanitize import one_line, printable
from pytest_imgedit.core.shards import Shard, number_of, shards_of
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.kinds.source import is_unchanged
from pytest_imgedit.store.journal import EditRecord, VerdictRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite


@dataclass(frozen=True)
class StoredImage:
    """A source or reference image as it was read once: its blob, and where to read it again."""

    sha256: str
    suffix: str
    size: tuple[int, int]
    origin: ImageSource
    store: Store

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def blob_name(self) -> str:
        """Path of the blob below the store's `blobs` folder."""
        return f"{self.sha256[:2]}/{self.sha256}{self.suffix}"

    def read(self) -> bytes:
        """Return the bytes of the blob; if it is gone or cut short, of the origin."""
        data = self.store.blobs.get(self.sha256, self.suffix)
        if data is None:
            return self.origin.read()
        return data


@dataclass(frozen=True)
class FinishedImage:
    """An edit that was made elsewhere; it stays in its file until it is handed over."""

    sha256: str
    file: FileImage

    def read(self) -> bytes:
        """Return the bytes of the file."""
        return self.file.read()


@dataclass
class Work:
    """One repetition of a pair on its way through the stages; at its end it has a verdict or an
    error.

    `seed` is the pair's own plus the repetition, and `generator_seed` what the editor's noise is
    drawn from. `recipe` holds all that decides the edit as planned, but for the environment, and
    `content` is its hash. `failures` counts the jobs of the present stage that were lost with it;
    `reminders` the re-asks so far. A `repeat` of a verdict is asked for with a `perturbation`, see
    `perturbations.py`.
    """

    pair: EditPair
    seed: int
    generator_seed: int = 0
    source: StoredImage | None = None
    reference: StoredImage | None = None
    shown: StoredImage | FinishedImage | None = None
    recipe: JsonObject = field(default_factory=dict, repr=False)
    content: str = ""
    edit: Edit | None = None
    verdict: Verdict | None = None
    error: ItemError | None = None
    failures: int = 0
    reminders: list[str] = field(default_factory=list)
    repeat: int = 0
    perturbation: str = ""

    @property
    def asked(self) -> tuple[str | None, ...]:
        """What is asked about the pair: category, texts, and images by their blobs."""
        texts = (
            self.pair.category,
            self.pair.instruction,
            self.pair.description,
            self.pair.reference_text,
        )
        return (
            *texts,
            *(
                None if image is None else image.blob_name
                for image in (self.source, self.reference)
            ),
        )

    @property
    def is_open(self) -> bool:
        """Tell whether this has come to neither a verdict nor an error, or only to that the stage
        makes none.
        """
        return self.verdict is None and (
            self.error is None or self.error.is_any_of("not_edited", "not_scored")
        )

    @property
    def is_needed(self) -> bool:
        """Tell whether every gate was not decided before this."""
        return self.error is None or not self.error.is_any_of("not_needed")

    def fail(self, stage: Any, kind: str, message: str, reply: str | None = None) -> None:
        self.error = ItemError(stage, kind, printable(message), reply)


@dataclass(frozen=True)
class SelectedShard:
    """A shard of a run, and the selected `pairs` of all its shards."""

    shard: Shard
    pairs: Sequence[EditPair]

    def tries(self, pair: EditPair) -> bool:
        """Tell whether this shard tries the judge on a pair of the suite: one of the shards that
        have pairs does.
        """
        indices = shards_of((selected.id for selected in self.pairs), self.shard.count)
        return indices[number_of(pair.id) % len(indices)] == self.shard.index

    @property
    def info(self) -> ShardInfo:
        """The shard as results tell it."""
        return ShardInfo(
            index=self.shard.index,
            count=self.shard.count,
            ids=tuple(pair.id for pair in self.pairs),
        )


@dataclass(frozen=True)
class Seeds:
    """How many edits of each pair are made, and the base seed that is mixed into the seed of
    each.
    """

    repetitions: int = 1
    base: int = 0


def make_works(
    suite: Suite, pairs: Sequence[EditPair], seeds: Seeds, editor: Identity, store: Store
) -> list[Work]:
    """List the work for the selected pairs and all their repetitions, in the order of the suite.

    An image that cannot be read is an error of its pair alone.
    """
    plan: list[Work] = []
    followers = _next_of_category(suite.pairs)
    shown_reference = editor.model.shown_reference
    finished_of = editor.model.finished_images(suite.pairs)
    for pair in pairs:
        source = reference = None
        shown: StoredImage | FinishedImage | None = None
        finished, problem = None, ""
        try:
            source, reference = _keep(pair.source, store), _keep(pair.reference, store)
            if shown_reference == "own":
                shown = reference
            elif shown_reference == "next" and followers[pair.id] is not pair:
                shown = _keep(followers[pair.id].reference, store)
            elif finished_of is not None:
                path = finished_of.by_pair[pair.id]
                shown = finished = None if isinstance(path, str) else _read_finished(path)
                problem = path if isinstance(path, str) else ""
        except ImageError as error:
            problem = str(error)
        for repetition in range(seeds.repetitions):
            seed = pair.seed + repetition
            work = Work(pair, seed, job_seed(seed, pair.id, seeds.base), source, reference, shown)
            if problem:
                lacks = finished_of is not None and source is not None and finished is None
                work.fail("edit", "no_edit" if lacks else "bad_image", problem)
            else:
                asked = _sha256(shown) if shown_reference else None
                work.recipe = edit_recipe(
                    editor, pair, work.generator_seed, _sha256(source), asked, _sha256(finished)
                )
                work.content = key(work.recipe)
            plan.append(work)
    return plan


def edit_recipe(
    editor: Identity,
    pair: EditPair,
    seed: int,
    source: str | None,
    shown: str | None,
    image: str | None = None,
) -> JsonObject:
    """Return what decides an edit: the generator's `seed`; `source`, `shown` and `image` are
    SHA-256 of encoded images.

    `image` is a finished image, which then is all there is to it.
    """
    asked: JsonObject = {"editor": editor.digest, "source": source}
    if image is not None:
        return {**asked, "image": image}
    asked |= {
        "instruction": pair.instruction,
        "seed": seed,
        "shown": shown,
        "batch_size": editor.model.batch_size,
    }
    if editor.sees_pair:
        return {**asked, "pair": pair.id, "category": pair.category}
    return asked


def in_batches_of(recipe: JsonObject, batch_size: int) -> JsonObject:
    """Return the recipe of an edit that is made in calls of another size."""
    if "batch_size" in recipe:
        return {**recipe, "batch_size": batch_size}
    return recipe


def halves(batch_size: int) -> list[int]:
    """List a batch size and those that it shrinks to where memory runs out or batches fail, down to
    1.
    """
    return [batch_size >> power for power in range(batch_size.bit_length())]


def missing_edits(works: Iterable[Work]) -> list[Work]:
    """List the works that are still to be edited."""
    return [work for work in works if work.error is None and work.edit is None]


def hand_over(plan: Iterable[Work], editor: Identity) -> None:
    """Have planned work done by another editor of the same kind; no edit counts as found."""
    for work in plan:
        if work.error is None:
            work.recipe = {**work.recipe, "editor": editor.digest}
            work.content, work.edit = key(work.recipe), None


def _sha256(image: StoredImage | FinishedImage | None) -> str | None:
    if image:
        return image.sha256
    return None


def _read_finished(path: Path) -> FinishedImage:
    """Read the image that the editor `folder` hands over for a pair; raise `ImageError` if it
    cannot be read.
    """
    image = FileImage(path)
    return FinishedImage(hashlib.sha256(image.read()).hexdigest(), image)


def _keep(image: ImageSource | None, store: Store) -> StoredImage | None:
    if image is None:
        return None
    try:
        data = image.read()
        if not isinstance(data, bytes):
            raise TypeError(f"read() returned {type(data).__name__}, expected bytes")
    except (ImageError, KeyboardInterrupt):
        raise
    except (
        BaseException
    ) as error:  # an image source of a user's own can raise anything, SystemExit too
        raise ImageError(f"{type(error).__name__}: {one_line(error)}") from error
    return StoredImage(
        store.blobs.put(data, durable=False), suffix_of(data), size_of(data), image, store
    )


def _next_of_category(pairs: Iterable[EditPair]) -> dict[str, EditPair]:
    members: dict[str, list[EditPair]] = {}
    for pair in pairs:
        members.setdefault(pair.category, []).append(pair)
    return {
        pair.id: group[(place + 1) % len(group)]
        for group in members.values()
        for place, pair in enumerate(group)
    }


R = TypeVar("R", EditRecord, VerdictRecord)


def reusable(
    records: Sequence[R], here: Environment, policy: Reuse, usable: Callable[[R], bool]
) -> R | None:
    """Return the record to reuse: of those that the policy allows and that are `usable`, the one
    made most alike.

    `records` are those of one recipe, the oldest first; of equals the newest counts. A record whose
    class had imported further modules counts only while these are unchanged.
    """
    allowed = [record for record in reversed(records) if record.environment.serves(here, policy)]
    allowed.sort(key=lambda record: len(record.environment.differences(here)))
    return next(
        (record for record in allowed if usable(record) and is_unchanged(record.code)), None
    )


def make_items(plan: Sequence[Work], needs_verdict: bool, stopped_by: str) -> list[Item]:
    """Join the repetitions of each pair; a pair is scored only if every repetition is.

    Work that has neither error nor what it was to get was cut off when the run was `stopped_by`
    someone or something: its status is `interrupted`, which counts neither as scored nor as an
    error. Without `needs_verdict` (stage `edit`) an edit is enough, and the status is `edited`.
    Work that no gate needed any more is `not_needed`.
    """
    by_pair: dict[str, list[Work]] = {}
    for work in plan:
        if work.error is None and (work.edit is None or (needs_verdict and work.verdict is None)):
            stage: Stage = "edit" if work.edit is None else "score"
            work.error = ItemError(
                stage, "interrupted", f"the run was stopped before this was done, by {stopped_by}"
            )
        by_pair.setdefault(work.pair.id, []).append(work)
    return [_item(works, needs_verdict) for works in by_pair.values()]


def _item(works: Sequence[Work], needs_verdict: bool) -> Item:
    pair, asked = works[0].pair, works[0].asked
    error = next((work.error for work in works if work.error is not None), None)
    score, aspects = _means(works) if error is None and needs_verdict else (None, {})
    return Item(
        id=pair.id,
        category=pair.category,
        instruction=pair.instruction,
        description=pair.description,
        reference_text=pair.reference_text,
        source=asked[-2],
        reference=asked[-1],
        tags=tuple(pair.tags),
        difficulty=pair.difficulty,
        status=_status(works, error, needs_verdict),
        score=score,
        aspects=aspects,
        seeds=tuple(SeedResult(work.seed, work.edit, work.verdict, work.error) for work in works),
        error=error,
    )


def _status(works: Sequence[Work], error: ItemError | None, needs_verdict: bool) -> Status:
    if error is None:
        if needs_verdict:
            return "scored"
        return "edited"
    if error.is_any_of("not_needed"):
        return "not_needed"
    if all(work.error is None or work.error.is_any_of("interrupted") for work in works):
        return "interrupted"
    if error.stage == "edit":
        return "edit_error"
    return "judge_error"


def _means(works: Sequence[Work]) -> tuple[float, dict[str, float]]:
    """Mean score over the seeds, and means of the aspects that all of them have."""
    verdicts = [work.verdict for work in works if work.verdict is not None]
    shared = [
        name for name in verdicts[0].aspects if all(name in verdict.aspects for verdict in verdicts)
    ]
    aspects = {
        name: sum(verdict.aspects[name] for verdict in verdicts) / len(verdicts) for name in shared
    }
    return sum(verdict.score for verdict in verdicts) / len(verdicts), aspects
