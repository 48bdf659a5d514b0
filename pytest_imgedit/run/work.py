"""A work of a run, which is one repetition of a pair, and what is judged of its edit."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pytest_imgedit.core import environments, images, results, strict_json
from pytest_imgedit.core.pairs import (
    EditPair,
    ImageSource,
    Shard,
    in_order_of_sources,
    named_images,
    number_of,
    shards_of,
)
from pytest_imgedit.core.text import printable
from pytest_imgedit.kinds.user_code import is_unchanged
from pytest_imgedit.store.journal import EditRecord, VerdictRecord
from pytest_imgedit.store.store import Store


@dataclass(frozen=True)
class StoredImage:
    """A source or reference image in the store, with the `origin` from which it was read.

    `size` is (width, height) in pixels.
    """

    sha256: str
    suffix: str
    size: tuple[int, int]
    origin: ImageSource
    store: Store

    @property
    def blob_path(self) -> str:
        """The path of the blob below the store's `blobs` folder."""
        return f"{self.sha256[:2]}/{self.sha256}{self.suffix}"

    def read(self) -> bytes:
        """Return the bytes of the blob, or of the origin if the blob is gone or cut short."""
        data = self.store.blobs.get(self.sha256, self.suffix)
        return self.origin.read() if data is None else data


#: The name of the judge whose verdicts decide the items; additional judges and metrics have names.
FIRST = ""


@dataclass
class Work:
    """One repetition of a pair on its way through the edit stage; it ends in an edit or an error.

    `seed` is the seed of the pair plus the number of the repetition; the editor's noise is drawn
    from `generator_seed`. `shown` is the reference that the editor is shown, or a finished image.
    `recipe` holds all that decides the planned edit, except the environment, and `content` is its
    hash. `further` are the source images beside the edited one. `failures` counts lost jobs of the
    edit stage. `judgements` are those of the edit, by the name of the judge or metric.
    """

    pair: EditPair
    seed: int
    generator_seed: int = 0
    source: StoredImage | None = None
    reference: StoredImage | None = None
    further: tuple[StoredImage, ...] = ()
    shown: ImageSource | None = None
    recipe: strict_json.JsonObject = field(default_factory=dict, repr=False)
    content: str = ""
    edit: results.Edit | None = None
    edit_error: results.ItemError | None = None
    failures: int = 0
    judgements: dict[str, "Judgement"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def judged_by(self, scorer: str) -> "Judgement":
        """Return the judgement of a judge or metric by its name, a new one the first time."""
        if scorer not in self.judgements:
            self.judgements[scorer] = Judgement(self)
        return self.judgements[scorer]

    @property
    def judgement(self) -> "Judgement":
        """The judgement of the first judge, which decides the item."""
        return self.judged_by(FIRST)

    @property
    def additional_judgements(self) -> dict[str, "Judgement"]:
        """The judgements of additional judges and metrics by name."""
        return {name: judged for name, judged in self.judgements.items() if name != FIRST}

    @property
    def verdict(self) -> results.Verdict | None:
        """The verdict of the first judge."""
        return self.judgement.verdict

    @property
    def error(self) -> results.ItemError | None:
        """Why there is no edit, or no verdict of the first judge."""
        return self.judgement.error

    @property
    def inputs(self) -> results.PairInputs:
        """What the pair consists of."""
        return results.PairInputs(
            category=self.pair.category,
            instruction=self.pair.instruction,
            description=self.pair.description,
            reference_text=self.pair.reference_text,
            source=None if self.source is None else self.source.blob_path,
            reference=None if self.reference is None else self.reference.blob_path,
            further=tuple(image.blob_path for image in self.further),
            edited_source=self.pair.edited_source,
        )

    @property
    def sources(self) -> tuple[StoredImage, ...]:
        """The source images of the pair, in its order."""
        if self.source is None:
            return ()
        return in_order_of_sources(self.source, self.further, self.pair.edited_source)

    @property
    def images(self) -> dict[str, StoredImage]:
        """The images of the pair by the names that calls use."""
        return named_images(self.source, self.further, self.reference, self.pair.edited_source)

    def located(self, message: str) -> str:
        """Return a message of a worker about an image, `name: reason`, with where the suite has
        that image; any other message as it is.
        """
        name, _, reason = message.partition(": ")
        image: ImageSource | None = self.images.get(name)
        if name == "reference" and self.shown is not None:
            image = self.shown
        if image is None:
            return message
        origin = image.origin if isinstance(image, StoredImage) else image
        row = f"{self.pair.row}: " if self.pair.row else ""
        return f"{row}{name}: {file_prefix(origin)}{reason}"

    def fail(self, kind: str, message: str) -> None:
        """End without an edit."""
        self.edit_error = results.ItemError("edit", kind, printable(message))


@dataclass(eq=False)
class Judgement:
    """What one judge or metric makes of the edit of a work: a verdict or an error.

    `answers` holds those to its calls so far. The verdict of a `repeat` is requested with a
    `perturbation` (`questions.PERTURBATIONS`).
    """

    work: Work
    verdict: results.Verdict | None = None
    score_error: results.ItemError | None = None
    answers: dict[str, VerdictRecord] = field(default_factory=dict, repr=False)
    repeat: int = 0
    perturbation: str = ""

    @property
    def pair(self) -> EditPair:
        return self.work.pair

    @property
    def edit(self) -> results.Edit | None:
        return self.work.edit

    @property
    def edits(self) -> dict[str, str | None]:
        """The SHA-256 of the edits that are judged by the names that calls use; `None` for one that
        is not made.
        """
        return {"edited": None if self.edit is None else self.edit.blob}

    @property
    def images(self) -> dict[str, StoredImage]:
        """The images of the pair by the names that calls use."""
        return self.work.images

    @property
    def error(self) -> results.ItemError | None:
        """Why there is no edit, or no verdict on it."""
        return self.work.edit_error or self.score_error

    @property
    def is_open(self) -> bool:
        """Whether the edit still needs a verdict; a stage that makes none leaves it open."""
        if self.verdict is not None:
            return False
        return self.error is None or self.error.kind in ("not_edited", "not_scored")

    def fail(self, kind: str, message: str, reply: str | None = None) -> None:
        """End without a verdict."""
        self.score_error = results.ItemError("score", kind, printable(message), reply)


@dataclass(eq=False, kw_only=True)
class DuelJudgement(Judgement):
    """What a judge makes of the edit of a work and an `other` one of its pair, which is shown
    first if the work's `comes_second`.
    """

    other: str
    comes_second: bool = False

    @property
    def edits(self) -> dict[str, str | None]:
        own = super().edits["edited"]
        first, second = (self.other, own) if self.comes_second else (own, self.other)
        return {"first": first, "second": second}


@dataclass(frozen=True)
class SelectedShard:
    """A shard of a run, and the selected `pairs` of all its shards."""

    shard: Shard
    pairs: Sequence[EditPair]

    def tries(self, pair: EditPair) -> bool:
        """Tell whether this shard tries the judge on a pair; exactly one shard with pairs does."""
        indices = shards_of((selected.id for selected in self.pairs), self.shard.count)
        return indices[number_of(pair.id) % len(indices)] == self.shard.index


def missing_edits(works: Iterable[Work]) -> list[Work]:
    """List the works that have neither an edit nor an error."""
    return [work for work in works if work.error is None and work.edit is None]


def file_prefix(image: ImageSource) -> str:
    """Return the file of an image, with a colon; nothing for one inside a row, or made by code."""
    return f"{image.path}: " if isinstance(image, images.FileImage) else ""


def source_of(pair: EditPair) -> Hashable:
    """Return what pairs of one source have in common; a source that is not hashable is its own."""
    return pair.source if isinstance(pair.source, Hashable) else pair.id


T = TypeVar("T")
K = TypeVar("K")


def grouped(members: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group members by a key of each, in the order in which the keys first occur."""
    groups: dict[K, list[T]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups


R = TypeVar("R", EditRecord, VerdictRecord)


def record_to_reuse(
    records: Sequence[R],
    here: environments.Environment,
    policy: environments.Reuse,
    is_usable: Callable[[R], bool],
) -> R | None:
    """Return the record to reuse, `None` if there is none: the one from the most similar
    environment, of those that the policy allows and that are usable.

    `records` share one recipe and are sorted from oldest to newest; the newest wins a tie. A record
    that a user's class made counts only while the modules that it had imported are unchanged.
    """
    newest_first = reversed(records)
    allowed = [record for record in newest_first if record.environment.serves(here, policy)]
    allowed.sort(key=lambda record: len(record.environment.differences(here)))
    for record in allowed:
        if is_usable(record) and is_unchanged(record.code):
            return record
    return None


def by_pair(works: Iterable[Work]) -> dict[str, list[Work]]:
    """Group works by the ids of their pairs."""
    return grouped(works, lambda work: work.pair.id)
