"""Editor and judge workers that a user's own test calls: what `edit_workers` and `reward_model` return."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from PIL import Image

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.environments import Environment, key
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.core.pairs import EditPair, category_slug
from pytest_imgedit.core.results import Edit, Verdict
from pytest_imgedit.engine.edit_stage import EditStage, stored_edit
from pytest_imgedit.engine.launch import Launcher, connect
from pytest_imgedit.engine.placement import place, settle
from pytest_imgedit.engine.progress import RunProgress
from pytest_imgedit.engine.score_stage import ScoreStage
from pytest_imgedit.engine.scoring import Scorer
from pytest_imgedit.engine.work import Seeds, Work, make_works
from pytest_imgedit.models.classes import OwnEditor
from pytest_imgedit.models.identity import Identity
from pytest_imgedit.models.kinds import Model, Role
from pytest_imgedit.protocols.rubric import load_rubric
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.hardware import Hardware
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


@dataclass(frozen=True)
class Resources:
    """What these work with: checked settings, the models by role, the machine, the store, and a file for lines."""

    settings: Settings
    models: Mapping[Role, Model]
    hardware: Hardware
    store: Store
    file: TextIO


class _CallableModel:
    """Workers of one model, started at the first call. That ends the workers of `rivals`, which need the same GPUs."""

    role: Role

    def __init__(self, resources: Resources, rivals: Sequence[_CallableModel] = ()) -> None:
        self.resources, self.settings, self.store = resources, resources.settings, resources.store
        self.rivals = rivals
        self.progress = RunProgress(self.store.folder / "fixtures.log", resources.file, quiet=True)
        self._folder = tempfile.TemporaryDirectory(prefix="imgedit-")
        self._launcher: Launcher | None = None
        self._identity: Identity | None = None
        self._pool: Pool | None = None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn a refusal of hosts or workers to start into a failure of the call, which leaves none of them."""
        try:
            yield
        except UsageError as error:
            self.release()
            raise EditFailed(str(error)) from None

    @property
    def launcher(self) -> Launcher:
        """Where the workers run; connected to the other hosts of this run, if it has any, until `release`."""
        if self._launcher is None:
            folder = Path(self._folder.name)
            hosts = connect(self.settings, folder)
            hardware = self.resources.hardware if hosts is None else hosts.hardware
            self._launcher = Launcher(self.settings, hardware, hosts, folder, self.progress)
        return self._launcher

    @property
    def identity(self) -> Identity:
        """What identifies the model; on other hosts, what they run decides that."""
        if self._identity is None:
            self._identity = self.launcher.identify(self.resources.models[self.role], self.store.fingerprints)
        return self._identity

    @property
    def pool(self) -> Pool:
        """The workers, kept until `release` or `close`."""
        if self._pool is None:
            for rival in self.rivals:
                if rival is not self:
                    rival.release()
            launcher = self.launcher
            model = settle(self.resources.models[self.role], 0, launcher.hardware)
            for line in place([model], launcher.hardware, self.settings.workers.placement).lines:
                self.progress.note(line)
            self._pool = launcher.pool(model, self.identity)
            self._pool.start(sys.maxsize)
        return self._pool

    def release(self) -> None:
        """End the workers, which gives their memory back; the next call starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._launcher is not None:
            if self._launcher.hosts is not None:
                self._launcher.hosts.close()
            self._launcher = None

    def close(self) -> None:
        """End the workers for good."""
        self.release()
        self.progress.close()
        self._folder.cleanup()


class EditWorkers(_CallableModel):
    """Edits images with the run's editor on the run's GPUs; edits are kept in the store like any other."""

    role = "editor"

    def edit(self, source: Image.Image, instruction: str, seed: int = 0) -> Image.Image:
        """Edit one RGB image; raises `EditFailed` if the editor fails."""
        return self.edit_batch([(source, instruction)], seed)[0]

    def edit_batch(self, requests: Sequence[tuple[Image.Image, str]], seed: int = 0) -> list[Image.Image]:
        """Edit (image, instruction) pairs on all workers at once, in order; raises `EditFailed` at a failure."""
        pairs = [_pair(source, instruction, seed) for source, instruction in requests]
        with self._failures():
            seeds = Seeds(base=self.settings.editor.seed)
            works = make_works(Suite("calls", pairs, "", {}), pairs, seeds, self.identity, self.store)
            for work in works:
                work.edit = stored_edit(work, self.identity, self.store, self.settings.run.reuse)
            pending = {work.content: work for work in works if work.edit is None}
            if pending:
                EditStage(self.identity, self.pool, self.store, lambda work: None).run(list(pending.values()))
        return [self._image(pending.get(work.content, work)) for work in works]

    def _image(self, work: Work) -> Image.Image:
        data = self.store.blobs.get(work.edit.blob) if work.edit else None
        if data is None:
            raise EditFailed(str(work.error))
        return decode(data)


class RewardModel(_CallableModel):
    """Scores edits with the run's judge and rubric; verdicts are kept in the store like any other."""

    role = "judge"

    @property
    def scorer(self) -> Scorer:
        rubric = load_rubric(self.settings.judge.rubric, self.settings.rubrics)
        return Scorer(self.settings.judge, self.identity, rubric, self.store, self.settings.redactor)

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
        (work,) = make_works(Suite("calls", [pair], "", {}), [pair], Seeds(), caller, self.store)
        work.edit = Edit(self.store.blobs.put(encode_png(edited)), 0.0, "call")
        with self._failures():
            scorer = self.scorer
            work.verdict = scorer.stored_verdict(work, self.settings.run.reuse)
            if work.verdict is None:
                ScoreStage(scorer, self.pool, lambda work: None, time.perf_counter).run([work])
        if work.verdict is None:
            raise EditFailed(str(work.error))
        return work.verdict
