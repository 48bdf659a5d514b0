"""The score stage: every edit is judged in batches, unreadable replies are asked again."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.protocol import Failed, JobReply, JudgeJob, QuestionMessage
from pytest_imgedit.engine.retries import Retries
from pytest_imgedit.engine.scoring import Scorer
from pytest_imgedit.engine.work import Work
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool

Batch = tuple[list[Work], JudgeJob]


class Feed:
    """Finished edits on their way from the edit stage to a score stage that overlaps it, in another thread."""

    def __init__(self) -> None:
        self.is_open, self.aborted = True, False
        self._works: deque[Work] = deque()

    @property
    def holds_any(self) -> bool:
        return bool(self._works)

    def put(self, work: Work) -> None:
        self._works.append(work)

    def take(self) -> list[Work]:
        """Return what has come since the last call."""
        return [self._works.popleft() for _ in range(len(self._works))]

    def close(self) -> None:
        """Say that nothing more comes."""
        self.is_open = False

    def abort(self) -> None:
        """Say that nothing more is to be judged either."""
        self.is_open, self.aborted = False, True


class ScoreStage:
    """Judges edits with the workers of a pool.

    Batches hold one category where possible. A batch that fails, or whose worker dies, is asked once more, one by one,
    so that one edit cannot spoil the verdicts on others. While a `feed` is open, edits come through it, and a batch is
    judged once it is a quarter full. `done` hears of each work that has ended in a verdict or an error, which is
    stored by then.
    """

    def __init__(
        self,
        scorer: Scorer,
        pool: Pool,
        done: Callable[[Work], None],
        clock: Callable[[], float],
        feed: Feed | None = None,
    ) -> None:
        self.scorer, self.pool, self.done, self.clock, self.feed = scorer, pool, done, clock, feed
        self.queue: deque[Work] = deque()
        self.retries = Retries(pool)

    def run(self, pending: Sequence[Work]) -> None:
        """Judge all pending edits, and those that come through the feed."""
        self.scorer.store.remember(self.scorer.judge.digest, self.scorer.judge.recipe)
        self.queue = deque(sorted(pending, key=_place_in_queue))
        for batch, worker, reply in self.pool.run(self.take, self.may_get_more):
            self.scorer.first_at = self.scorer.first_at or self.clock()
            self.finish(batch, worker, reply)

    def may_get_more(self) -> bool:
        """Tell whether edits may still come through the feed."""
        feed = self.feed
        return feed is not None and not feed.aborted and (feed.is_open or feed.holds_any or bool(self.queue))

    def take(self, worker: Worker) -> Batch | None:
        """Return the next batch for a worker; `None` while there is none."""
        if self.feed is not None and not self._take_from(self.feed, worker):
            return None
        if worker.jobs and self._is_better_left(worker):
            return None
        wanted = self._batch_size(worker)
        batch: list[Work] = []
        questions: list[QuestionMessage] = []
        while self.queue and len(batch) < wanted:
            if batch and self.queue[0].failures:
                break
            work = self.queue.popleft()
            try:
                questions.append(self.scorer.question(work))
                batch.append(work)
            except ImageError as error:
                work.fail("score", "bad_image", str(error))
                self.done(work)
            if work.failures:
                break
        return (batch, {"op": "judge", "questions": questions}) if batch else None

    def _take_from(self, feed: Feed, worker: Worker) -> bool:
        """Queue what has come through the feed; return whether there is enough for a batch."""
        if feed.aborted:
            return False
        is_open = feed.is_open  # asked before, so that nothing comes between
        if fed := feed.take():
            again = [work for work in self.queue if work.failures]
            fresh = [work for work in (*self.queue, *fed) if not work.failures]
            self.queue = deque([*sorted(fresh, key=_place_in_queue), *again])
        full = self.scorer.settings.batch_size
        full = worker.batch_size if full == "auto" else full
        return not is_open or len(self.queue) >= max(1, full // 4)

    def _is_better_left(self, worker: Worker) -> bool:
        """Tell whether a worker that is busy gets nothing ahead.

        Near the end, batches go to whoever is free first; one that was lost before goes alone.
        """
        is_retry = bool(worker.job[0].failures) or bool(self.queue and self.queue[0].failures)
        return len(self.queue) < len(self.pool.workers) or is_retry

    def _batch_size(self, worker: Worker) -> int:
        """What the user set; else what fits, but no more than a fair share, so that no worker is left idle."""
        if self.scorer.settings.batch_size != "auto":
            return self.scorer.settings.batch_size
        return min(worker.batch_size, math.ceil(len(self.queue) / len(self.pool.slots)))

    def finish(self, batch: list[Work], worker: Worker, reply: JobReply) -> None:
        """Turn the reply on a batch into verdicts and errors; what is to be asked again goes back to the queue."""
        if reply["op"] == "judged":
            again = [
                work for work, answer in zip(batch, reply["answers"], strict=True) if self.scorer.read(work, answer)
            ]
            worker.jobs_done += sum(work.verdict is not None for work in batch)
            if batch[0].failures:
                self.retries.helped()
        elif reply["op"] == "error":
            again = self._failed(batch, worker, reply)
        else:
            raise AssertionError("a judge was asked, and not an editor")
        self.queue.extend(again)
        waiting = {id(work) for work in again}
        finished = [work for work in batch if id(work) not in waiting]
        self.scorer.keep(finished, worker)
        for work in finished:
            self.done(work)

    def _failed(self, batch: list[Work], worker: Worker, reply: Failed) -> list[Work]:
        """End the edits of a failed batch in its error, or return those that are to be asked once more, alone."""
        retry = self.retries.allow(batch[0].failures, worker, reply["kind"])
        if retry or len(batch) > 1:
            for work in batch:
                work.failures += 1
            return batch
        for work in batch:
            work.fail("score", reply["kind"], reply["message"])
        return []


def _place_in_queue(work: Work) -> tuple[Any, ...]:
    """Order in which edits are judged: by category, then by image size and length of the texts, so that a batch is
    of one kind; for repeats in another order each time.
    """
    if not work.perturbation:
        texts = (work.pair.instruction, work.pair.description, work.pair.reference_text)
        return (0, work.pair.category, work.source.pixels if work.source else 0, sum(len(text or "") for text in texts))
    return (work.repeat, hashlib.sha256(f"{work.repeat}:{work.pair.id}:{work.seed}".encode()).hexdigest())
