"""The score stage: edits are judged in batches, and unreadable replies are requested again."""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_imgedit.core import errors, messages, requests, strict_json
from pytest_imgedit.run.canary import JudgeCanary
from pytest_imgedit.run.durations import IDLE_BATCH, SHARE_OF_A_BATCH
from pytest_imgedit.run.questions import Ask, make_question, make_question_about
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import Judgement
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool, Retries


@dataclass
class Feed:
    """Passes finished edits from the edit stage to a score stage in another thread.

    The feed is closed when nothing more comes, and aborted when nothing more is to be judged.
    """

    is_open: bool = True
    aborted: bool = False
    judgements: deque[Judgement] = field(default_factory=deque)

    def take(self) -> list[Judgement]:
        """Return the judgements to make that have come since the last call."""
        return [self.judgements.popleft() for _ in range(len(self.judgements))]


class ScoreStage:
    """Judges edits with the workers of a pool.

    Batches hold one category where possible. If a batch fails, or its worker dies, its edits are
    retried one by one, so that one edit cannot spoil the verdicts on others. While a `feed` is
    open, edits come through it, and a batch is judged once it is a quarter full. `done` is called
    with each judgement that has ended in a verdict or an error, which is stored by then. A `canary`
    stands for a batch of its own, a job that is an empty list. Jobs that all fail alike end the
    stage.
    """

    def __init__(
        self,
        scorer: Scorer,
        pool: Pool,
        done: Callable[[Judgement], None],
        clock: Callable[[], float],
        feed: Feed | None = None,
        *,
        canary: JudgeCanary | None = None,
    ) -> None:
        self.scorer = scorer
        self.pool = pool
        self.done = done
        self.clock = clock
        self.feed = feed
        self.canary = canary
        self.queue: deque[Ask] = deque()
        self.retries = Retries(pool)
        self.breaker = scorer.breaker

    def run(self, pending: Sequence[Judgement]) -> None:
        """Judge all pending edits, and those that come through the feed; raises `FailsAlike` if the
        judge fails alike on all of them.
        """
        self.scorer.store.remember(self.scorer.identity.digest, self.scorer.identity.recipe)
        self.queue = deque(self._asks(pending))
        for batch, worker, reply in self.pool.run(self.take, self.may_get_more):
            if not batch and self.canary is not None:
                self._take_canary(self.canary, reply)
            else:
                self.scorer.first_at = self.scorer.first_at or self.clock()
                self.finish(batch, worker, reply)
            self.breaker.check()

    def _take_canary(self, canary: JudgeCanary, reply: messages.JobReply) -> None:
        """Give the canary the answers to its questions, none if they failed, and count their
        tokens.
        """
        fields = reply["answers"] if reply["op"] == "judged" else []
        answers = [requests.Answer(**answer) for answer in fields]
        for answer in answers:
            self.scorer.tally.add(answer)
            self.breaker.answered(answer)
        canary.take(answers)

    def may_get_more(self) -> bool:
        """Tell whether edits may still come through the feed."""
        if self.feed is None or self.feed.aborted:
            return False
        return self.feed.is_open or bool(self.feed.judgements or self.queue)

    def _asks(self, judgements: Iterable[Judgement]) -> list[Ask]:
        asks: list[Ask] = []
        for judgement in sorted(judgements, key=_order):
            asks += self.scorer.asks(judgement)
        return asks

    def take(self, worker: Worker) -> tuple[list[Ask], messages.JudgeJob] | None:
        """Return the worker's next batch, or `None` if it must wait or nothing is left.

        Near the end, batches go to whichever worker is free first. An edit that was lost before is
        asked about alone. Unless the user sets a batch size, no batch is larger than a fair share,
        nor that of an idle worker than `IDLE_BATCH`.
        """
        if self.feed is not None and not self._take_from(self.feed, worker):
            return None
        canary_questions = self._canary_questions()
        if canary_questions:
            return [], {"op": "judge", "questions": canary_questions}
        if worker.jobs and self._may_not_queue(worker):
            return None
        batch, questions = self._next_batch(self._batch_size(worker))
        if not batch:
            return None
        if self.canary is not None:
            self.canary.count(len(batch))
        return batch, {"op": "judge", "questions": questions}

    def _may_not_queue(self, worker: Worker) -> bool:
        """Tell whether a busy worker gets no batch ahead: near the end, and beside an edit that is
        asked about alone.
        """
        if len(self.queue) < len(self.pool.workers):
            return True
        is_retrying = any(ask.failures for ask in worker.job[:1])
        return is_retrying or self.queue[0].failures > 0

    def _next_batch(self, size: int) -> tuple[list[Ask], list[strict_json.JsonObject]]:
        """Take up to `size` calls off the queue, and build their questions. A call that was lost
        before is taken alone, and one about an image that cannot be read ends in an error.
        """
        if self.breaker.may_trip:  # a judge may fail on one category, by which the queue is sorted
            self.queue.rotate(size)
        batch: list[Ask] = []
        questions: list[strict_json.JsonObject] = []
        while self.queue and len(batch) < size:
            if batch and self.queue[0].failures:
                break
            ask = self.queue.popleft()
            if ask.judgement.error is not None:  # another call about this edit failed
                continue
            try:
                question = make_question(self.scorer.identity, self.scorer.store, ask)
                questions.append(question.fields)
                batch.append(ask)
            except errors.ImageError as error:
                ask.judgement.fail("bad_image", str(error))
                self.done(ask.judgement)
            if ask.failures:
                break
        return batch, questions

    def _batch_size(self, worker: Worker) -> int:
        if self.scorer.settings.batch_size != "auto":
            return self.scorer.settings.batch_size
        most = worker.batch_size if worker.jobs else min(worker.batch_size, IDLE_BATCH)
        return min(most, math.ceil(len(self.queue) / len(self.pool.slots)))

    def _canary_questions(self) -> list[strict_json.JsonObject]:
        """Return the canary's questions if they are due, which they are after the last job too.

        None are returned if an image cannot be read: the round has failed then.
        """
        canary = self.canary
        if canary is None:
            return []
        is_idle = not any(worker.jobs for worker in self.pool.workers)
        is_fed = self.feed is not None and self.may_get_more()
        ends = is_idle and not self.queue and not is_fed
        if not canary.is_due(ends):
            return []
        canary.leave()
        try:
            questions = []
            for picture in canary.pictures.values():
                ask = Ask(Judgement(canary.work), canary.call)
                question = make_question_about(self.scorer.identity, ask, picture.read())
                questions.append(question.fields)
            return questions
        except errors.ImageError:
            canary.take([])
            return []

    def _take_from(self, feed: Feed, worker: Worker) -> bool:
        """Queue what has come through the feed; return whether there is enough for a batch."""
        if feed.aborted:
            return False
        is_open = feed.is_open  # read first, so that no edit that comes in between is missed
        judgements = feed.take()
        if judgements:
            retried = [ask for ask in self.queue if ask.failures]
            fresh = [ask for ask in self.queue if not ask.failures]
            fresh += self._asks(judgements)
            fresh.sort(key=lambda ask: _order(ask.judgement))
            self.queue = deque(fresh + retried)
        size = self.scorer.settings.batch_size
        full = worker.batch_size if size == "auto" else size
        return not is_open or len(self.queue) >= max(1, int(full * SHARE_OF_A_BATCH))

    def finish(self, batch: list[Ask], worker: Worker, reply: messages.JobReply) -> None:
        """Turn the reply on a batch into verdicts and errors; queue what is to be asked again.

        Calls of a batch that failed are made once more, alone, and a call that was alone ends in
        its error if it may not be retried.
        """
        again: list[Ask] = []
        open_judgements = {
            id(ask.judgement): ask.judgement for ask in batch if ask.judgement.is_open
        }
        if reply["op"] == "error":
            if not batch[0].failures:
                self.breaker.failed(reply["kind"], reply["message"])
            if self.retries.allow(batch[0].failures, worker, reply["kind"]) or len(batch) > 1:
                again = batch
                for ask in batch:
                    ask.failures += 1
            else:
                batch[0].judgement.fail(reply["kind"], reply["message"])
        else:
            assert reply["op"] == "judged", "a judge was asked, and not an editor"
            for ask, fields in zip(batch, reply["answers"], strict=True):
                answer = requests.Answer(**fields)
                self.breaker.answered(answer)
                if self.scorer.take_answer(ask, answer, worker):
                    again.append(ask)
            if batch[0].failures:
                self.retries.helped()
        self.queue.extend(again)
        self.scorer.keep([ask for ask in batch if ask not in again])
        ended = [judgement for judgement in open_judgements.values() if not judgement.is_open]
        worker.jobs_done += sum(judgement.verdict is not None for judgement in ended)
        for judgement in ended:
            self.done(judgement)


def _order(judgement: Judgement) -> tuple[Any, ...]:
    """Return a sort key: category, image size and length of the texts, so that batches are of one
    kind. Repeats come last, each in an order of its own.
    """
    pair = judgement.pair
    if judgement.perturbation:
        name = f"{judgement.repeat}:{pair.id}:{judgement.work.seed}"
        return (judgement.repeat, hashlib.sha256(name.encode()).hexdigest())
    texts = (pair.instruction, pair.description, pair.reference_text)
    source = judgement.work.source
    pixels = math.prod(source.size) if source else 0
    return (0, pair.category, pixels, sum(map(len, texts)))
