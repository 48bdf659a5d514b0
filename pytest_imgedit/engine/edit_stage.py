"""The edit stage: every planned edit that the store does not have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from pytest_imgedit.core.environments import Reuse, key
from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.protocol import EditJob, FinishedEdit, JobReply
from pytest_imgedit.core.requests import job_seed
from pytest_imgedit.core.results import Edit
from pytest_imgedit.engine.retries import Retries
from pytest_imgedit.engine.reuse import reusable
from pytest_imgedit.engine.work import Work
from pytest_imgedit.models.identity import Identity
from pytest_imgedit.store.records import EditRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool

#: How far ahead an edit of the same source is looked for.
NEAR = 16


def stored_edit(work: Work, editor: Identity, store: Store, policy: Reuse) -> Edit | None:
    """Return a planned edit that an earlier run finished, if the policy lets it count and its image is whole."""

    def is_whole(record: EditRecord) -> bool:
        return store.blobs.get(record.blob) is not None

    record = reusable(store.edits.of_content(work.content), editor.here, policy, is_whole)
    return None if record is None else _edit_of(record, store)


def _edit_of(record: EditRecord, store: Store) -> Edit:
    store.environments[record.environment.digest] = record.environment
    made = record.model_dump(include={"blob", "seconds", "worker", "near_copy", "width", "height", "reframed", "key"})
    return Edit(**made, compiled=bool(record.environment.compiled), environment=record.environment.digest)


def edit_message(work: Work) -> EditJob:
    """Build the message that has a worker do one edit; raise `ImageError` if an image cannot be read."""
    if work.source is None:
        raise ImageError("no source image")
    return {
        "op": "edit",
        "pair": work.pair.id,
        "category": work.pair.category,
        "instruction": work.pair.instruction,
        "source": work.source.read(),
        "reference": None if work.shown is None else work.shown.read(),
        "seed": job_seed(work.seed, work.pair.id),
    }


class EditStage:
    """Edits with the workers of a pool; each work ends in an edit or an error, stored before `done` hears of it."""

    def __init__(self, editor: Identity, pool: Pool, store: Store, done: Callable[[Work], None]) -> None:
        self.editor, self.pool, self.store, self.done = editor, pool, store, done
        self.queue: deque[Work] = deque()
        self.retries = Retries(pool)

    def run(self, pending: Sequence[Work]) -> None:
        """Make all pending edits.

        The largest come first, since a pipeline may need the longer for them, and long jobs at the end leave workers
        idle.
        """
        self.store.remember(self.editor.digest, self.editor.recipe)
        self.queue = deque(sorted(pending, key=lambda work: -work.source.pixels if work.source else 0))
        for work, worker, reply in self.pool.run(self.take):
            self.finish(work, worker, reply)

    def take(self, worker: Worker) -> tuple[Work, EditJob] | None:
        """Return the next edit for a worker; `None` where it gets none, or none ahead.

        Near the end, jobs go to whoever is free first; one that was lost before is done alone.
        """
        few = len(self.queue) < len(self.pool.workers)
        if worker.jobs and (few or worker.job.failures or self.queue[0].failures):
            return None
        while self.queue:
            work = self._next_for(worker)
            try:
                return work, edit_message(work)
            except ImageError as error:
                work.fail("edit", "bad_image", str(error))
                self.done(work)
        return None

    def _next_for(self, worker: Worker) -> Work:
        """Take the next edit; one of the worker's last source, if there is one near, since an editor may remember
        that.
        """
        last = worker.jobs[-1][0].source if worker.jobs else None
        ahead = enumerate(islice(self.queue, NEAR))
        place = next((n for n, work in ahead if last and work.source == last and not work.failures), 0)
        work = self.queue[place]
        del self.queue[place]
        return work

    def finish(self, work: Work, worker: Worker, reply: JobReply) -> None:
        """Store what a worker made of an edit, or try it again, or end it in its error."""
        if reply["op"] == "edited":
            store_edit(work, self.editor, worker, reply["edit"], self.store)
            worker.jobs_done += 1
            if work.failures:
                self.retries.helped()
        elif reply["op"] == "judged":
            raise AssertionError("an editor was asked, and not a judge")
        elif self.retries.allow(work.failures, worker, reply["kind"]):
            work.failures += 1
            if reply["kind"] == "oom":
                self.queue.appendleft(work)  # at once, while the process is fresh
            else:
                self.queue.append(work)
            return
        else:
            work.fail("edit", reply["kind"], reply["message"])
        work.failures = 0
        self.done(work)


def store_edit(work: Work, editor: Identity, worker: Worker | None, made: FinishedEdit, store: Store) -> None:
    """Keep an edit that a worker made, or this process as a control: the image, then its record."""
    blob = store.blobs.put(made["image"])
    environment = editor.here if worker is None else worker.computes_in
    record = EditRecord(
        key=key(work.recipe, environment),
        content=work.content,
        recipe=work.recipe,
        environment=environment,
        blob=blob,
        seconds=max(0.0, round(made["edit_s"], 4)),
        worker="controls" if worker is None else worker.slot.name,
        near_copy=made["near_copy"],
        width=made["width"],
        height=made["height"],
        reframed=made["reframed"],
        code={} if worker is None else editor.code_beside(worker.code),
    )
    store.edits.append([record])
    work.edit = _edit_of(record, store)
