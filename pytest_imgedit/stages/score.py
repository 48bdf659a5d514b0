"""The score stage: every edit is judged in batches, unreadable replies are asked again."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from pytest_imgedit.core.results import Usage, Verdict
from pytest_imgedit.environments import Environment, key
from pytest_imgedit.errors import ImageError, ReplyError
from pytest_imgedit.rubrics.reply import SCALE
from pytest_imgedit.stages.repeats import perturbed, place_in_queue
from pytest_imgedit.stages.retry import Retries
from pytest_imgedit.stages.reuse import reusable
from pytest_imgedit.store.records import VerdictRecord
from pytest_imgedit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_imgedit.config import JudgeSettings
    from pytest_imgedit.environments import Reuse
    from pytest_imgedit.models.identity import Identity
    from pytest_imgedit.redaction import Redactor
    from pytest_imgedit.rubrics.rubric import Rubric
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.workers.base import Message, Worker
    from pytest_imgedit.workers.pool import Pool


class BadScore(ReplyError):
    """A number of the judge's own that is no score; asking again would not help."""


class Feed:
    """Finished edits on their way from the edit stage to a score stage that runs beside it, in another thread."""

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


class Scorer:
    """Scores edits with one rubric.

    Replies are kept without the secrets that `redactor` knows.
    """

    def __init__(
        self, settings: JudgeSettings, judge: Identity, rubric: Rubric, store: Store, redactor: Redactor
    ) -> None:
        self.settings, self.judge, self.rubric, self.store, self.redactor = settings, judge, rubric, store, redactor
        self.first_at = 0.0  # when the first batch was scored, by time.perf_counter
        self.tokens = {"tokens_in": 0, "tokens_out": 0}  # what answers cost, re-asks and unreadable ones too

    def usage(self, price_in: float, price_out: float) -> Usage:
        """Return the tokens of this run's answers and their cost, at prices for a million; `None` without prices."""
        cost = (self.tokens["tokens_in"] * price_in + self.tokens["tokens_out"] * price_out) / 1e6
        return Usage(**self.tokens, cost=round(cost, 6) if price_in or price_out else None)

    def recipe(self, work: Work) -> dict[str, Any]:
        """Return all that decides a verdict, but for the environment: images, rendered prompts, score formula, judge.

        The text of a reminder is not among it: only a verdict that needed one depends on it.
        """
        pair, judge = work.pair, self.judge
        recipe: dict[str, Any] = {"judge": judge.digest}
        shown = {
            "source": work.source.sha256 if work.source else None,
            "edited": work.edit.blob if work.edit else None,
            "reference": work.reference.sha256 if work.reference else None,
        }
        if not judge.model.measures:
            system, parts = self.rubric.render(pair)
            asked = {"system": system, "parts": [list(part) for part in parts]}
            recipe["asked"] = {**asked, "aspects": list(self.rubric.aspects), "formula": self.rubric.score}
            if not judge.sees_pair:  # it is shown the prompt, and nothing else of the pair
                names = {text for kind, text in parts if kind == "image"}
                shown = {name: sha256 for name, sha256 in shown.items() if name in names}
        if judge.sees_pair:
            recipe |= {"pair": pair.id, "category": pair.category, "instruction": pair.instruction}
        if work.perturbation:
            recipe |= {"repeat": work.repeat, "perturbation": work.perturbation}
        return {**recipe, **shown}

    def stored_verdict(self, work: Work, policy: Reuse) -> Verdict | None:
        """Return the verdict that an earlier run reached, if the policy lets it count.

        One that took reminders counts only while these read the same and as many are allowed.
        """

        def could_be(record: VerdictRecord) -> bool:
            reminded = record.asked > 1
            return not reminded or (
                record.reminder == self.rubric.reminder and record.asked <= 1 + self.settings.reasks
            )

        records = self.store.verdicts.of_content(key(self.recipe(work)))
        record = reusable(records, self.judge.here, policy, could_be)
        return None if record is None else self._verdict_of(record)

    def _verdict_of(self, record: VerdictRecord) -> Verdict:
        self.store.environments[record.environment.digest] = record.environment
        return Verdict(
            record.reply,
            record.aspects,
            record.score,
            record.batch_size,
            record.greedy,
            record.off_scale,
            record.measured,
            record.key,
            record.environment.digest,
        )

    def run(self, pending: Sequence[Work], pool: Pool, done: Callable[[Work], None], feed: Feed | None = None) -> None:
        """Judge all pending edits; each ends in `work.verdict` or `work.error` and is stored before `done`.

        Batches hold one category where possible. A batch that fails, or whose worker dies, is asked once more, one
        by one, so that one edit cannot spoil the verdicts on others. While a `feed` is open, edits come through it,
        and a batch is judged once it is a quarter full.
        """
        self.store.remember(self.judge)
        queue, retries = deque(sorted(pending, key=place_in_queue)), Retries(pool)

        def take(worker: Worker) -> tuple[list[Work], Message] | None:
            if feed is not None:
                if feed.aborted:
                    return None
                still_open = feed.is_open  # asked before, so that nothing comes between
                if fed := feed.take():
                    again = [work for work in queue if work.failures]
                    fresh = [work for work in (*queue, *fed) if not work.failures]
                    queue.clear()
                    queue.extend([*sorted(fresh, key=place_in_queue), *again])
                full = worker.batch_size if self.settings.batch_size == "auto" else self.settings.batch_size
                if still_open and len(queue) < max(1, full // 4):
                    return None
            if worker.jobs and (len(queue) < len(pool.workers) or worker.job[0].failures or queue[0].failures):
                return None  # near the end, batches go to whoever is free first; one that was lost before goes alone
            wanted = self._batch_size(worker, len(queue), len(pool.slots))
            batch: list[Work] = []
            questions: list[Message] = []
            while queue and len(batch) < wanted:
                if batch and queue[0].failures:
                    break
                work = queue.popleft()
                try:
                    questions.append(self._question(work))
                    batch.append(work)
                except ImageError as error:
                    work.fail("score", "bad_image", str(error))
                    done(work)
                if work.failures:
                    break
            return (batch, {"op": "judge", "questions": questions}) if batch else None

        def more() -> bool:
            return feed is not None and not feed.aborted and (feed.is_open or feed.holds_any or bool(queue))

        for batch, worker, reply in pool.run(take, more):
            self.first_at = self.first_at or time.perf_counter()
            if reply["op"] == "judged":
                finished = self._read(batch, reply["answers"])
                worker.jobs_done += sum(work.verdict is not None for work in finished)
                if batch[0].failures:
                    retries.helped()
            else:
                finished = _fail(batch, reply, retries.allow(batch[0].failures, worker, reply["kind"]))
            waiting = {id(work) for work in batch} - {id(work) for work in finished}
            queue.extend(work for work in batch if id(work) in waiting)
            self._store(finished, worker)
            for work in finished:
                done(work)

    def _batch_size(self, worker: Worker, waiting: int, workers: int) -> int:
        """What the user set; else what fits, but no more than a fair share, so that no worker is left idle."""
        if self.settings.batch_size != "auto":
            return self.settings.batch_size
        return min(worker.batch_size, math.ceil(waiting / workers))

    def _question(self, work: Work) -> Message:
        system, parts = self.rubric.render(work.pair)
        edited = self.store.blobs.get(work.edit.blob) if work.edit else None
        if edited is None or work.source is None:
            raise ImageError("the edited image is not in the store any more, or was damaged")
        images = {"source": work.source.read(), "edited": edited}
        if work.reference is not None:
            images["reference"] = work.reference.read()
        parts, images = perturbed(work, parts, images)
        return {
            "pair": work.pair.id,
            "category": work.pair.category,
            "instruction": work.pair.instruction,
            "images": images,
            "system": system,
            "aspects": list(self.rubric.aspects),
            "parts": [*parts, *(("text", f"\n{text}") for text in work.reminders[-1:])],
        }

    def _read(self, batch: Sequence[Work], answers: Sequence[Mapping[str, Any]]) -> list[Work]:
        """Turn answers into verdicts or errors; works that are to be asked again are left out."""
        finished = []
        for work, answer in zip(batch, answers, strict=True):
            for name in self.tokens:
                self.tokens[name] += answer[name]
            try:
                work.verdict = self._verdict(answer)
            except ReplyError as error:
                readable = answer["error"] is not None or isinstance(error, BadScore)
                if not readable and len(work.reminders) < self.settings.reasks:
                    work.reminders.append(self.rubric.remind("it was too long" if answer["cut"] else str(error)))
                    continue
                reply = None if readable else self.redactor.text(answer["reply"])
                kind = "judge" if answer["error"] is not None else "bad_score" if readable else "unreadable_reply"
                work.fail("score", kind, shorten(self.redactor.text(str(error))), reply)
            finished.append(work)
        return finished

    def _verdict(self, answer: Mapping[str, Any]) -> Verdict:
        if answer["error"] is not None:
            raise ReplyError(answer["error"])
        if answer["score"] is None:
            if answer["cut"]:  # in the middle of a number, or of a thought
                raise ReplyError("the reply was cut short, expected a larger judge.max_new_tokens or shorter replies")
            reply, (aspects, score) = self.redactor.text(answer["reply"]), self.rubric.read(answer["reply"])
            if not answer["expected"]:
                return Verdict(reply, aspects, score, answer["batch_size"])
            expected = self._expected(answer["expected"])
            off_scale = min(1.0, max(0.0, answer["off_scale"]))
            return Verdict(reply, expected, self.rubric.combine(expected), answer["batch_size"], score, off_scale)
        score = answer["score"]
        if not (math.isfinite(score) and SCALE[0] <= score <= SCALE[1]):
            raise BadScore(f"the judge's score is {score}, expected a number from 0 to 10")
        if not all(map(math.isfinite, answer["aspects"].values())):
            raise BadScore(f"the judge's aspects are {answer['aspects']}, expected finite numbers")
        reply = self.redactor.text(answer["reply"])
        return Verdict(reply, answer["aspects"], score, answer["batch_size"], measured=True)

    def _expected(self, grades: Mapping[str, float]) -> dict[str, float]:
        """Check the expected grades of an answer; raise `BadScore` if they are not one in [0, 10] for each aspect."""
        values = {name: grades.get(name, math.nan) for name in self.rubric.aspects}
        for name, value in values.items():
            if not SCALE[0] <= value <= SCALE[1]:
                raise BadScore(f"the expected grade of {name!r} is {value}, expected a number from 0 to 10")
        return values

    def _store(self, finished: Sequence[Work], worker: Worker) -> None:
        """Keep verdicts that a worker reached; each then names its record."""
        environment, code = Environment(**worker.environment), self.judge.code_beside(worker.code)
        records = []
        for work in finished:
            if work.verdict is None:
                continue
            recipe = self.recipe(work)
            record = VerdictRecord(
                key=key(recipe, environment),
                content=key(recipe),
                recipe=recipe,
                environment=environment,
                reply=work.verdict.reply,
                aspects=dict(work.verdict.aspects),
                score=work.verdict.score,
                batch_size=work.verdict.batch_size,
                greedy=work.verdict.greedy,
                off_scale=work.verdict.off_scale,
                measured=work.verdict.measured,
                asked=1 + len(work.reminders),
                reminder=self.rubric.reminder if work.reminders else "",
                code=code,
            )
            records.append(record)
            work.verdict = self._verdict_of(record)
        if records:
            self.store.verdicts.append(records)


def _fail(batch: Sequence[Work], reply: Message, retry: bool) -> list[Work]:
    """End the edits of a failed batch in its error; those that are to be asked once more, alone, are left out."""
    if retry or len(batch) > 1:
        for work in batch:
            work.failures += 1
        return []
    for work in batch:
        work.fail("score", reply["kind"], reply["message"])
    return list(batch)
