"""Calls of the editor and the judge from tests: what fixtures hand out, and what answers."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Protocol, TypedDict

from PIL import Image

from pytest_imgedit.core.environments import Environment, key
from pytest_imgedit.core.errors import EditFailed, UsageError
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.core.pairs import EditPair, category_slug
from pytest_imgedit.core.results import Edit, Verdict
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.kinds.registry import CustomEditor
from pytest_imgedit.protocols.rubric import load_rubric
from pytest_imgedit.run.edit import EditStage, stored_edit
from pytest_imgedit.run.pools import SessionWorkers
from pytest_imgedit.run.score import Scorer, ScoreStage
from pytest_imgedit.run.work import Seeds, Work, make_works
from pytest_imgedit.suites.base import Suite


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
    """Edits images with the run's editor and its workers; edits are kept in the store like any
    other.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def edit(self, source: Image.Image, instruction: str, seed: int = 0) -> Image.Image:
        """Edit one RGB image; raises `EditFailed` if the editor fails."""
        return self.edit_batch([(source, instruction)], seed)[0]

    def edit_batch(
        self, requests: Sequence[tuple[Image.Image, str]], seed: int = 0
    ) -> list[Image.Image]:
        """Edit (image, instruction) pairs on all workers at once, in order; raises `EditFailed` at
        a failure.

        Sources of one size go into one call of the editor (`editor.batch_size`).
        """
        calls: list[EditCall] = [
            {"source": encode_png(source), "instruction": instruction, "seed": seed}
            for source, instruction in requests
        ]
        return [decode(image) for image in self._calls.edit(calls)]


class RewardModel:
    """Scores edits with the run's judge, rubric and workers; verdicts are kept in the store like
    any other.
    """

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
        """Score one edit by the rubric of a category; raises `EditFailed` if no readable verdict
        comes.
        """
        references = None if reference is None else [reference]
        return self.score_batch([(source, edited, instruction)], category, references)[0]

    def score_batch(
        self,
        edits: Sequence[tuple[Image.Image, Image.Image, str]],
        category: str | Sequence[str] = "default",
        references: Sequence[Image.Image | None] | None = None,
    ) -> list[Verdict]:
        """Score (source, edited image, instruction) in batches, in order; raises `EditFailed` at a
        failure.

        `category` is that of all of them, or one for each, as `references` are. Raises `ValueError`
        for another number of these than of edits.
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
            for (source, edited, instruction), name, reference in zip(
                edits, categories, images, strict=True
            )
        ]
        return [Verdict(**verdict) for verdict in self._calls.score(calls)]


@dataclass(frozen=True, slots=True)
class _Bytes:
    data: bytes

    def read(self) -> bytes:
        return self.data


class SessionCalls:
    """Answers calls with the session's workers, one call at a time; what the store has starts
    none.
    """

    def __init__(self, workers: SessionWorkers) -> None:
        self.workers, self.settings, self.store = workers, workers.settings, workers.store
        self._one_at_a_time = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Answer no more calls, once that which is being answered has ended."""
        with self._one_at_a_time:
            self._is_closed = True

    def edit(self, calls: Sequence[EditCall]) -> list[bytes]:
        """Return the edited images as PNGs; raises `EditFailed` for the first that failed."""
        pairs = [_pair(call["source"], call["instruction"], call["seed"]) for call in calls]
        with self._calling("editor"):
            identity = self.workers.identity("editor")
            works = make_works(
                _suite(pairs), pairs, Seeds(base=self.settings.editor.seed), identity, self.store
            )
            for work in works:
                work.edit = stored_edit(work, identity, self.store, self.settings.run.reuse)
            pending = {
                work.content: work for work in works if work.edit is None and work.error is None
            }
            if pending:
                pool = self.workers.pool("editor", len(pending))
                EditStage(identity, pool, self.store, _ignore).run(list(pending.values()))
        return [self._image(pending.get(work.content, work)) for work in works]

    def _image(self, work: Work) -> bytes:
        data = self.store.blobs.get(work.edit.blob) if work.edit else None
        if data is None:
            raise EditFailed(str(work.error))
        return data

    def score(self, calls: Sequence[ScoreCall]) -> list[JsonObject]:
        """Return the fields of the verdicts; raises `EditFailed` for the first that could not be
        reached.
        """
        pairs = []
        for call in calls:
            pair = _pair(call["source"], call["instruction"])
            reference = None if call["reference"] is None else _Bytes(call["reference"])
            pairs.append(replace(pair, category=call["category"], reference=reference))
        nowhere = Environment(device="cpu", versions={})
        caller = Identity(
            CustomEditor("call"), "", {}, key({"kind": "call"}), {"kind": "call"}, nowhere
        )
        with self._calling("judge"):
            works = make_works(_suite(pairs), pairs, Seeds(), caller, self.store)
            scorer = self._scorer()
            for work, call in zip(works, calls, strict=True):
                work.edit = Edit(self.store.blobs.put(call["edited"]), 0.0, "call")
                work.verdict = scorer.stored_verdict(work, self.settings.run.reuse)
            pending = [work for work in works if work.verdict is None and work.error is None]
            if pending:
                ScoreStage(
                    scorer, self.workers.pool("judge", len(pending)), _ignore, time.perf_counter
                ).run(pending)
        failed = next((work for work in works if work.verdict is None), None)
        if failed is not None:
            raise EditFailed(str(failed.error))
        return [asdict(work.verdict) for work in works if work.verdict is not None]

    def _scorer(self) -> Scorer:
        rubric = load_rubric(self.settings.judge.rubric, self.settings.rubrics)
        return Scorer(
            self.settings.judge,
            self.workers.identity("judge"),
            rubric,
            self.store,
            self.settings.redactor,
        )

    @contextmanager
    def _calling(self, role: Role) -> Iterator[None]:
        """Turn a refusal of hosts or workers to start into a failure of the call, which leaves none
        of them.
        """
        with self._one_at_a_time:
            if self._is_closed:
                raise EditFailed("the session has ended")
            try:
                yield
            except UsageError as error:
                self.workers.release(role)
                if not self.workers.has_any:
                    self.workers.close()  # the connections to hosts too
                raise EditFailed(str(error)) from None


def _ignore(work: Work) -> None: ...


def _suite(pairs: Sequence[EditPair]) -> Suite:
    return Suite("calls", pairs, "", {})


def _pair(source: bytes, instruction: str, seed: int = 0) -> EditPair:
    name = hashlib.sha256(source + instruction.encode()).hexdigest()[:16]
    return EditPair(f"call-{name}", "default", instruction, _Bytes(source), seed=seed)
