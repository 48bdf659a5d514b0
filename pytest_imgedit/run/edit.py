"""The edit stage: every planned edit that the store does not have."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice

from pytest_imgedit.core.environments import Reuse, key
from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.protocol import (
    EditJob,
    Failed,
    FailedEdit,
    FinishedEdit,
    JobReply,
)
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.results import Edit
from pytest_imgedit.core.sanitize import counted
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run.work import Work, halves, in_batches_of, missing_edits, reusable
from pytest_imgedit.store.journal import EditRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool, Retries

#: Share of padding in calls from which on the plan names the way without.
MUCH_PADDING = 0.25
#: How far ahead an edit of the same source, or one of the same size, is looked for.
NEAR = 16

#: What a record of an edit holds of it.
_MADE = {
    "blob",
    "seconds",
    "worker",
    "near_copy",
    "width",
    "height",
    "reframed",
    "batch_size",
    "signature",
    "key",
}
Batch = tuple[list[Work], EditJob]


def stored_edit(work: Work, editor: Identity, store: Store, policy: Reuse) -> Edit | None:
    """Return a planned edit that an earlier run finished, if the policy lets it count and its image
    is whole.

    One that was made in calls of the planned size comes first, then those to which that size may
    have shrunk.
    """

    def is_whole(record: EditRecord) -> bool:
        return store.blobs.get(record.blob) is not None

    for size in halves(editor.model.batch_size):
        records = store.edits.of_content(key(in_batches_of(work.recipe, size)))
        if (record := reusable(records, editor.here, policy, is_whole)) is not None:
            return _edit_of(record, store)
    return None


def _edit_of(record: EditRecord, store: Store) -> Edit:
    store.environments[record.environment.digest] = record.environment
    made = record.model_dump(include=_MADE)
    return Edit(
        **made, compiled=bool(record.environment.compiled), environment=record.environment.digest
    )


def batch_lines(model: Model, works: Sequence[Work]) -> list[str]:
    """Say how many calls for several edits at once there will be, and which edits were made in
    smaller ones.
    """
    size = model.batch_size
    if size == 1 or not model.pads_batches:
        return []
    lines: list[str] = []
    sizes = Counter(_size(work) for work in missing_edits(works))
    calls, edits = sum(math.ceil(count / size) for count in sizes.values()), sum(sizes.values())
    if edits:
        padding = 1 - edits / (calls * size)
        line = (
            f"plan: {counted(edits, 'edit')} in {counted(calls, 'call')} of {size}, "
            f"{padding:.0%} of them padding"
        )
        lines.append(f"{line}; editor.batch_size=1 needs none" if padding > MUCH_PADDING else line)
    smaller = Counter(
        work.edit.batch_size
        for work in works
        if work.edit is not None and work.edit.batch_size != size
    )
    lines += [
        f"plan: {counted(count, 'edit')} of the store, made with batch size {made}, stand for "
        f"those of {size}"
        for made, count in sorted(smaller.items())
    ]
    return lines


def edit_request(work: Work) -> EditRequest[bytes]:
    """Say what an editor is asked for; raise `ImageError` if an image cannot be read."""
    if work.source is None:
        raise ImageError("no source image")
    return EditRequest(
        pair_id=work.pair.id,
        category=work.pair.category,
        instruction=work.pair.instruction,
        source=work.source.read(),
        seed=work.generator_seed,
        reference=None if work.shown is None else work.shown.read(),
    )


class EditStage:
    """Edits with the workers of a pool, in batches where the editor takes any.

    A batch holds sources of one size. One whose worker dies is made again, one by one, so that one
    edit cannot spoil others. Each work ends in an edit or an error, stored before `done` hears of
    it.
    """

    def __init__(
        self, editor: Identity, pool: Pool, store: Store, done: Callable[[Work], None]
    ) -> None:
        self.editor, self.pool, self.store, self.done = editor, pool, store, done
        self.queue: deque[Work] = deque()
        self.retries = Retries(pool)

    def run(self, pending: Sequence[Work]) -> None:
        """Make all pending edits.

        The largest come first, since a pipeline may need the longer for them, and long jobs at the
        end leave workers idle.
        """
        self.store.remember(self.editor.digest, self.editor.recipe)
        self.queue = deque(sorted(pending, key=_place_in_queue))
        for batch, worker, reply in self.pool.run(self.take):
            self.finish(batch, worker, reply)

    def take(self, worker: Worker) -> Batch | None:
        """Return the next batch for a worker; `None` where it gets none, or none ahead.

        Near the end, jobs go to whoever is free first; one that was lost before is done alone.
        Batches that are padded are full as long as there is enough of their size, others are spread
        over the workers.
        """
        few = len(self.queue) < len(self.pool.workers)
        if worker.jobs and (few or worker.job[0].failures or self.queue[0].failures):
            return None
        wanted = worker.batch_size
        if not self.editor.model.pads_batches:
            wanted = min(wanted, math.ceil(len(self.queue) / len(self.pool.slots)))
        last = worker.jobs[-1][0][-1] if worker.jobs else None
        batch: list[Work] = []
        edits: list[JsonObject] = []
        while len(batch) < wanted and (work := self._next(last, batch)) is not None:
            try:
                edits.append(vars(edit_request(work)))
                batch.append(work)
            except ImageError as error:
                work.fail("edit", "bad_image", str(error))
                self.done(work)
            if work.failures:
                break
        if batch:
            return (batch, {"op": "edit", "edits": edits})
        return None

    def _next(self, last: Work | None, batch: Sequence[Work]) -> Work | None:
        """Take the next edit off the queue; `None` if nothing near fits into a batch that was
        begun.

        A batch begins with an edit of the source of the worker's `last`, if there is one near,
        since an editor may remember that.
        """
        ahead = list(islice(self.queue, NEAR))
        if batch:
            size = _size(batch[0])
            place = next(
                (n for n, work in enumerate(ahead) if not work.failures and _size(work) == size),
                None,
            )
        else:
            known = last.source if last else None
            near = (
                n
                for n, work in enumerate(ahead)
                if known and work.source == known and not work.failures
            )
            place = next(near, 0 if ahead else None)
        if place is None:
            return None
        work = self.queue[place]
        del self.queue[place]
        return work

    def finish(self, batch: list[Work], worker: Worker, reply: JobReply) -> None:
        """Store what a worker made of a batch, or try it again, or end its edits in their
        errors.
        """
        if reply["op"] == "error":
            self._failed(batch, worker, reply)
            return
        if reply["op"] == "judged":
            raise AssertionError("an editor was asked, and not a judge")
        for work, made in zip(batch, reply["edits"], strict=True):
            if made["op"] == "failed":
                self._failed([work], worker, made)
                continue
            store_edit(work, self.editor, worker, made, self.store)
            worker.jobs_done += 1
            if work.failures:
                self.retries.helped()
            self._end(work)

    def _failed(self, batch: Sequence[Work], worker: Worker, reply: Failed | FailedEdit) -> None:
        """Queue what is tried once more, alone, or end it in its error."""
        retry = self.retries.allow(batch[0].failures, worker, reply["kind"])
        for work in batch:
            if not retry and len(batch) == 1:
                work.fail("edit", reply["kind"], reply["message"])
                self._end(work)
                continue
            work.failures += 1
            if reply["kind"] == "oom":
                self.queue.appendleft(work)  # at once, while the process is fresh
            else:
                self.queue.append(work)

    def _end(self, work: Work) -> None:
        work.failures = 0
        self.done(work)


def _size(work: Work) -> tuple[int, int]:
    if work.source:
        return work.source.size
    return (0, 0)


def _place_in_queue(work: Work) -> tuple[int, tuple[int, int]]:
    width, height = _size(work)
    return -width * height, (width, height)


def store_edit(
    work: Work, editor: Identity, worker: Worker | None, made: FinishedEdit, store: Store
) -> None:
    """Keep an edit that a worker made, or this process as a control: the image, then its record.

    An edit of padded calls is a function of their size, which may have shrunk since it was planned.
    """
    blob = store.blobs.put(made["image"])
    store.blobs.put_thumbnail(blob, made["thumbnail"])
    if work.source is not None:
        store.blobs.put_thumbnail(work.source.sha256, made["source_thumbnail"])
    environment = editor.here if worker is None else worker.computes_in
    recipe = (
        in_batches_of(work.recipe, made["batch_size"]) if editor.model.pads_batches else work.recipe
    )
    record = EditRecord(
        key=key(recipe, environment),
        content=key(recipe),
        recipe=recipe,
        environment=environment,
        blob=blob,
        seconds=max(0.0, round(made["edit_s"], 4)),
        worker="controls" if worker is None else worker.slot.name,
        near_copy=made["near_copy"],
        width=made["width"],
        height=made["height"],
        reframed=made["reframed"],
        batch_size=made["batch_size"],
        signature=made["signature"],
        code={} if worker is None else editor.code_beside(worker.code),
    )
    store.edits.append([record])
    work.edit = _edit_of(record, store)
