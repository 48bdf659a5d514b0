"""Whether a served editor obeys the seeds that it is sent, tried once a store and recipe."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pytest_imgedit.core import environments
from pytest_imgedit.core.results import SeedTrial
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run.work import Work
from pytest_imgedit.store.store import Store


@dataclass
class TriedSeeds:
    """Three edits of one pair: the planned one, another of its seed, and one of another seed.

    The last two are compared with the first, and are stored nowhere.
    """

    editor: Identity
    store: Store
    planned: Work
    same: Work
    other: Work
    #: SHA-256 of the edits so far, by the `id` of their works.
    images: dict[int, str] = field(default_factory=dict)

    @property
    def works(self) -> tuple[Work, Work]:
        """The edits that the trial adds."""
        return self.same, self.other

    def has(self, work: Work) -> bool:
        """Tell whether a work is one that the trial adds."""
        return work is self.same or work is self.other

    def take(self, work: Work, image: bytes) -> None:
        """Take an edit of the three; the third one ends the trial, and its result is stored. Any
        other edit is ignored.
        """
        if not (self.has(work) or work is self.planned):
            return
        self.images[id(work)] = hashlib.sha256(image).hexdigest()
        if len(self.images) == 3:
            planned = self.images[id(self.planned)]
            trial = SeedTrial(
                repeats=self.images[id(self.same)] == planned,
                varies=self.images[id(self.other)] != planned,
            )
            recipe = _subject(self.editor) | trial.model_dump()
            self.store.remember(environments.key(_subject(self.editor)), recipe)


def _subject(editor: Identity) -> dict[str, str]:
    return {"seeds_of": editor.digest}


def result_of(editor: Identity, store: Store) -> SeedTrial | None:
    """Return what an earlier trial, or that of this run, has shown; `None` without one."""
    record = store.models.records.get(environments.key(_subject(editor)))
    if record is None:
        return None
    return SeedTrial(repeats=record.recipe["repeats"], varies=record.recipe["varies"])


def plan_trial(editor: Identity, store: Store, missing: Sequence[Work]) -> TriedSeeds | None:
    """Plan the trial of an editor on the first of its `missing` edits; `None` without one, for an
    editor that sends no seeds, and where the store has its trial.
    """
    if not (missing and editor.model.sends_seeds) or result_of(editor, store) is not None:
        return None
    planned = missing[0]
    other_seed = planned.generator_seed ^ 1
    other = replace(planned, generator_seed=other_seed)
    return TriedSeeds(editor, store, planned, same=replace(planned), other=other)
