"""Editor and judge workers that a user's own test calls: what `edit_workers` and `reward_model` return."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_imgedit.core.results import Edit
from pytest_imgedit.environments import Environment, key
from pytest_imgedit.errors import UsageError
from pytest_imgedit.images import decode, encode_png
from pytest_imgedit.models.classes import OwnEditor
from pytest_imgedit.models.identity import Identity
from pytest_imgedit.pairs import EditPair, category_slug
from pytest_imgedit.redaction import Redactor
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.rubrics.rubric import load_rubric
from pytest_imgedit.stages.edit import run_edits, stored_edit
from pytest_imgedit.stages.placement import model_of, place, settle_editor
from pytest_imgedit.stages.plan import make_plan
from pytest_imgedit.stages.pools import connect, identify_role, make_pool
from pytest_imgedit.stages.score import Scorer
from pytest_imgedit.suites.base import Suite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from PIL import Image

    from pytest_imgedit.config import Settings
    from pytest_imgedit.core.results import Verdict
    from pytest_imgedit.models.kinds import Role
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.workers.hosts import Hosts
    from pytest_imgedit.workers.pool import Pool


class EditFailed(Exception):
    """An edit or a verdict that a test asked for could not be had; the text says why."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    data: bytes

    def read(self) -> bytes:
        return self.data


def _pair(source: Image.Image, instruction: str, seed: int = 0) -> EditPair:
    data = encode_png(source)
    name = hashlib.sha256(data + instruction.encode()).hexdigest()[:16]
    return EditPair(f"call-{name}", "default", instruction, _Bytes(data), seed=seed)


class _Service:
    """Workers of one role, started at the first call. That ends the workers of `rivals`, which need the same GPUs."""

    role: Role

    def __init__(self, settings: Settings, store: Store, file: TextIO, rivals: Sequence[_Service]) -> None:
        self.settings, self.store, self.rivals = settings, store, rivals
        self.identity = identify_role(settings, self.role, store.fingerprints)
        self.progress = RunProgress(store.folder / "services.log", file, quiet=True)
        self._folder = tempfile.TemporaryDirectory(prefix="imgedit-")
        self._pool: Pool | None = None
        self._hosts: Hosts | None = None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn a refusal of hosts or workers to start into a failure of the call, which leaves none of them."""
        try:
            yield
        except UsageError as error:
            self.release()
            raise EditFailed(str(error)) from None

    def _settle(self) -> None:
        """Connect to the other hosts of this run, if it has any; what they run decides what identifies the model."""
        if self._hosts is None and (hosts := connect(self.settings, Path(self._folder.name))) is not None:
            self._hosts = hosts
            self.identity = identify_role(self.settings, self.role, self.store.fingerprints, hosts)

    @property
    def pool(self) -> Pool:
        """The workers, kept until `release` or `close`."""
        if self._pool is None:
            for rival in self.rivals:
                if rival is not self:
                    rival.release()
            self._settle()
            settled = settle_editor(self.settings, 0, self._hosts)
            for line in place(settled, [model_of(settled, self.role)], self._hosts).lines:
                self.progress.note(line)
            folder = Path(self._folder.name)
            self._pool = make_pool(settled, self.role, self.identity, folder, self.progress, self._hosts)
            self._pool.start(len(self._pool.slots))
        return self._pool

    def release(self) -> None:
        """End the workers, which gives their memory back; the next call starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._hosts is not None:
            self._hosts.close()
            self._hosts = None

    def close(self) -> None:
        """End the workers for good."""
        self.release()
        self.progress.close()
        self._folder.cleanup()


class EditWorkers(_Service):
    """Edits images with the run's editor on the run's GPUs; edits are kept in the store like any other."""

    role = "editor"

    def edit(self, source: Image.Image, instruction: str, seed: int = 0) -> Image.Image:
        """Edit one RGB image; raises `EditFailed` if the editor fails."""
        return self.edit_batch([(source, instruction)], seed)[0]

    def edit_batch(self, requests: Sequence[tuple[Image.Image, str]], seed: int = 0) -> list[Image.Image]:
        """Edit (image, instruction) pairs on all workers at once, in order; raises `EditFailed` at a failure."""
        pairs = [_pair(source, instruction, seed) for source, instruction in requests]
        with self._failures():
            self._settle()
            plan = make_plan(Suite("calls", pairs, "", {}), pairs, 1, self.identity, self.store)
            for work in plan:
                work.edit = stored_edit(work, self.identity, self.store, self.settings.run.reuse)
            pending = {work.content: work for work in plan if work.edit is None}
            if pending:
                run_edits(list(pending.values()), self.identity, self.pool, self.store, lambda work: None)
        return [self._image(pending.get(work.content, work)) for work in plan]

    def _image(self, work: Work) -> Image.Image:
        data = self.store.blobs.get(work.edit.blob) if work.edit else None
        if data is None:
            raise EditFailed(str(work.error))
        return decode(data)


class RewardModel(_Service):
    """Scores edits with the run's judge and rubric; verdicts are kept in the store like any other."""

    role = "judge"

    def __init__(self, settings: Settings, store: Store, file: TextIO, rivals: Sequence[_Service] = ()) -> None:
        super().__init__(settings, store, file, rivals)
        rubric = load_rubric(settings.judge.rubric, settings.rubrics)
        self.scorer = Scorer(settings.judge, self.identity, rubric, store, Redactor.of(settings))

    def score(
        self,
        source: Image.Image,
        edited: Image.Image,
        instruction: str,
        category: str = "default",
        reference: Image.Image | None = None,
    ) -> Verdict:
        """Score one edit by the rubric of a category; raises `EditFailed` if no readable verdict comes."""
        pair = replace(
            _pair(source, instruction),
            category=category_slug(category),
            reference=None if reference is None else _Bytes(encode_png(reference)),
        )
        caller = Identity(
            OwnEditor("call"), "", {}, key({"kind": "call"}), {"kind": "call"}, Environment(device="cpu", versions={})
        )
        work = make_plan(Suite("calls", [pair], "", {}), [pair], 1, caller, self.store)[0]
        work.edit = Edit(self.store.blobs.put(encode_png(edited)), 0.0, "call")
        with self._failures():
            self._settle()
            self.scorer.judge = self.identity
            work.verdict = self.scorer.stored_verdict(work, self.settings.run.reuse)
            if work.verdict is None:
                self.scorer.run([work], self.pool, lambda work: None)
        if work.verdict is None:
            raise EditFailed(str(work.error))
        return work.verdict
