"""The edit stage: every planned edit that the store does not have."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from pytest_imgedit.core import environments, errors, messages, requests, results, strict_json
from pytest_imgedit.core.breaker import Breaker
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds import base, identity
from pytest_imgedit.run.planned_works import in_batches_of
from pytest_imgedit.run.work import StoredImage, Work, missing_edits, record_to_reuse
from pytest_imgedit.store.journal import EditRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool, Retries

#: If a larger share of the calls is padding, the plan names the setting that avoids it.
MUCH_PADDING = 0.25
#: How many queued edits are searched for one of the same source, or of the same size.
NEAR = 16


def stored_edit(
    work: Work, editor: identity.Identity, store: Store, policy: environments.Reuse
) -> results.Edit | None:
    """Return a planned edit that an earlier run finished, if the policy allows it and its image is
    whole.

    An edit with the planned batch size comes first, then those with the sizes to which it may have
    been halved.
    """
    size = editor.model.batch_size
    for halvings in range(size.bit_length()):
        record = record_to_reuse(
            store.edits.of_content(environments.key(in_batches_of(work.recipe, size >> halvings))),
            editor.here,
            policy,
            lambda record: store.blobs.has(record.blob),
        )
        if record is not None:
            return _edit_of(record, store)
    return None


def _edit_of(record: EditRecord, store: Store) -> results.Edit:
    """Return the edit of a record, and make its environment known to the store."""
    environment = record.environment
    store.environments[environment.digest] = environment
    return results.Edit(
        **record.model_dump(exclude={"content", "recipe", "environment", "code"}),
        compiled=bool(environment.compiled),
        environment=environment.digest,
    )


def batch_lines(model: base.Model, works: Sequence[Work]) -> list[str]:
    """Describe the planned calls of an editor that pads batches, and stored edits of smaller ones.

    Returns one line per fact; none for batch size 1, and for an editor that does not pad.
    """
    size = model.batch_size
    if size == 1 or not model.pads_batches:
        return []
    lines: list[str] = []
    missing = missing_edits(works)
    if missing:
        counts = Counter(map(_source_sizes, missing))
        calls = sum(math.ceil(count / size) for count in counts.values())
        padding = 1 - len(missing) / (calls * size)
        advice = "; editor.batch_size=1 needs none" if padding > MUCH_PADDING else ""
        lines.append(
            f"plan: {counted(len(missing), 'edit')} in {counted(calls, 'call')} of {size}, "
            f"{padding:.0%} of them padding{advice}"
        )
    sizes = Counter(work.edit.batch_size for work in works if work.edit is not None)
    for smaller, count in sorted(sizes.items()):
        if smaller != size:
            lines.append(
                f"plan: {counted(count, 'edit')} of the store, made with batch size {smaller}, "
                f"stand for those of {size}"
            )
    return lines


def edit_request(work: Work) -> requests.EditRequest[bytes]:
    """Build the request for one edit; raise `ImageError` if an image cannot be read."""
    if work.source is None:
        raise errors.ImageError("no source image")
    return requests.EditRequest(
        pair_id=work.pair.id,
        category=work.pair.category,
        instruction=work.pair.editor_instruction,
        source=work.source.read(),
        further=tuple(image.read() for image in work.further),
        edited_source=work.pair.edited_source,
        seed=work.generator_seed,
        reference=None if work.shown is None else work.shown.read(),
    )


def probe_lines(works: Iterable[Work], store: Store) -> Iterator[str]:
    """Yield a warning for each type of GPU on which stored edits have more than one probe."""
    places = [store.environments[work.edit.environment] for work in works if work.edit is not None]
    counts = Counter((place.gpu or "CPU", place.probe) for place in places if place.probe)
    for product in dict.fromkeys(product for product, _ in counts):
        probes = [
            f"{counted(count, 'edit')} of probe {probe}"
            for (gpu, probe), count in counts.items()
            if gpu == product
        ]
        if len(probes) > 1:
            yield (
                f"warning: stored edits were computed in unlike ways on {product}: "
                f"{', '.join(probes)}; --imgedit-reuse=exact keeps those of one probe"
            )


class EditStage:
    """Edits with the workers of a pool, in batches if the editor takes batches.

    The sources of all pairs of a batch are as many, of the same sizes. If the worker of a batch
    dies, its edits are retried one by one, so that one edit cannot spoil others. Each work ends in
    an edit or an error, which is stored before `done` is called with the work. Edits that all fail
    alike end the stage.
    """

    def __init__(
        self, editor: identity.Identity, pool: Pool, store: Store, done: Callable[[Work], None]
    ) -> None:
        self.editor = editor
        self.pool = pool
        self.store = store
        self.done = done
        self.queue: deque[Work] = deque()
        self.retries = Retries(pool)
        self.breaker = Breaker("edits")

    def run(self, pending: Sequence[Work]) -> None:
        """Make all pending edits; raises `FailsAlike` if they all fail alike.

        The largest come first: a pipeline may take longer for them, and long jobs at the end leave
        workers idle.
        """
        self.store.remember(self.editor.digest, self.editor.recipe)
        self.queue = deque(sorted(pending, key=_largest_first))
        for batch, worker, reply in self.pool.run(self.take):
            self.finish(batch, worker, reply)
            self.breaker.check()

    def take(self, worker: Worker) -> tuple[list[Work], messages.EditJob] | None:
        """Return the worker's next batch, or `None` if it must wait or nothing is left.

        Near the end, jobs go to whichever worker is free first. A job that was lost before is done
        alone. Padded batches are full as long as there are enough edits of their size; others are
        spread over the workers. A work with an image that cannot be read ends in an error.
        """
        if worker.jobs and self._may_not_queue(worker):
            return None
        size = worker.batch_size
        if not self.editor.model.pads_batches:
            size = min(size, math.ceil(len(self.queue) / len(self.pool.slots)))
        sources = [job[-1].source for job, _ in worker.jobs]
        batch: list[Work] = []
        edits: list[strict_json.JsonObject] = []
        while len(batch) < size:
            work = self._next(sources, batch)
            if work is None:
                break
            try:
                edits.append(vars(edit_request(work)))
                batch.append(work)
            except errors.ImageError as error:
                work.fail("bad_image", str(error))
                self.done(work)
            if work.failures:
                break
        if not batch:
            return None
        return batch, {"op": "edit", "edits": edits}

    def _may_not_queue(self, worker: Worker) -> bool:
        """Tell whether a busy worker gets no batch ahead: near the end, and beside an edit that is
        made alone.
        """
        if len(self.queue) < len(self.pool.workers):
            return True
        return worker.job[0].failures > 0 or self.queue[0].failures > 0

    def _next(self, sources: Sequence[StoredImage | None], batch: Sequence[Work]) -> Work | None:
        """Take the next edit off the queue; `None` if none nearby fits into the `batch`.

        A batch begins with a nearby edit of one of the `sources` of the worker's jobs, which an
        editor may have cached, or else with the first edit. While edits fail alike, it begins with
        the last: they may do so for their size, by which the queue is sorted.
        """
        nearby = [
            (position, work)
            for position, work in enumerate(islice(self.queue, NEAR))
            if not work.failures
        ]
        if batch:
            sizes = _source_sizes(batch[0])
            positions = [position for position, work in nearby if _source_sizes(work) == sizes]
        else:
            positions = [position for position, work in nearby if work.source in sources]
            if self.queue:
                positions.append(0)
            if self.breaker.may_trip:
                untried = [index for index, work in enumerate(self.queue) if not work.failures]
                positions = untried[-1:] or positions
        if not positions:
            return None
        position = positions[0]
        work = self.queue[position]
        del self.queue[position]
        return work

    def finish(self, batch: list[Work], worker: Worker, reply: messages.JobReply) -> None:
        """Store the edits of a batch; retry those that failed, or end them in their errors."""
        if reply["op"] == "error":
            self._retry_or_fail(batch, worker, reply)
            return
        assert reply["op"] == "edited", "an editor was asked, and not a judge"
        for work, output in zip(batch, reply["edits"], strict=True):
            if output["op"] == "failed":
                self._retry_or_fail([work], worker, output)
                continue
            store_edit(work, self.editor, worker, output, self.store)
            worker.jobs_done += 1
            if work.failures:
                self.retries.helped()
            work.failures = 0
            self.breaker.worked()
            self.done(work)

    def _retry_or_fail(
        self, batch: Sequence[Work], worker: Worker, reply: messages.Failed | messages.FailedEdit
    ) -> None:
        """Queue the works of a batch that failed again, each to be made alone; a work that was
        alone and is not retried ends in its error.
        """
        if not batch[0].failures:
            self.breaker.failed(reply["kind"], reply["message"])
        retry = self.retries.allow(batch[0].failures, worker, reply["kind"])
        if not retry and len(batch) == 1:
            work = batch[0]
            work.failures = 0
            is_image = reply["kind"] == "bad_image"
            message = work.located(reply["message"]) if is_image else reply["message"]
            work.fail(reply["kind"], message)
            self.done(work)
            return
        for work in batch:
            work.failures += 1
            if reply["kind"] == "oom":
                self.queue.appendleft(work)  # at once, while the process is fresh
            else:
                self.queue.append(work)


def _source_sizes(work: Work) -> tuple[tuple[int, int], ...]:
    """Return the sizes of all sources of a pair, in its order."""
    return tuple(image.size for image in work.sources)


def _largest_first(work: Work) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return a sort key: the number of pixels of all sources, from the most, then their sizes."""
    sizes = _source_sizes(work)
    return -sum(map(math.prod, sizes)), sizes


def store_edit(
    work: Work,
    editor: identity.Identity,
    worker: Worker,
    output: messages.FinishedEdit,
    store: Store,
) -> None:
    """Store an edit that a worker made, the image, then its record, and give it to its work.

    The recipe of an edit in a padded batch names the size of that batch, which may have shrunk
    since the edit was planned.
    """
    blob = store.blobs.put(output["image"])
    store.blobs.put_thumbnail(blob, output["thumbnail"])
    for image, thumbnail in zip(work.sources, output["source_thumbnails"], strict=True):
        store.blobs.put_thumbnail(image.sha256, thumbnail)
    recipe = (
        in_batches_of(work.recipe, output["batch_size"])
        if editor.model.pads_batches
        else work.recipe
    )
    record = EditRecord(
        key=environments.key(recipe, worker.computes_in),
        content=environments.key(recipe),
        recipe=recipe,
        environment=worker.computes_in,
        blob=blob,
        seconds=max(0.0, round(output["edit_s"], 4)),
        worker=worker.slot.name,
        change=output["change"],
        near_copy=output["near_copy"],
        width=output["width"],
        height=output["height"],
        reframed=output["reframed"],
        composited=output["composited"],
        sources=len(output["source_thumbnails"]),
        batch_size=output["batch_size"],
        signature=output["signature"],
        code=editor.code_beside(worker.code),
    )
    store.edits.append([record])
    work.edit = _edit_of(record, store)
