"""The score stage: every edit is judged in batches, unreadable replies are asked again."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_imgedit.config.settings import JudgeSettings
from pytest_imgedit.core.environments import Reuse, key
from pytest_imgedit.core.errors import ImageError, ReplyError
from pytest_imgedit.core.images import as_jpeg, resampled
from pytest_imgedit.core.protocol import Failed, JobReply, JudgeJob
from pytest_imgedit.core.redaction import Redactor
from pytest_imgedit.core.reply import SCALE
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.core.results import Usage, Verdict
from pytest_imgedit.core.sanitize import shorten
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.rubric import Rubric
from pytest_imgedit.run.work import Work, reusable
from pytest_imgedit.store.journal import VerdictRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool, Retries

Parts = tuple[tuple[str, str], ...]

#: What changes from one repeat to the next, in turn: `batch`, other neighbours in the batch;
#: `order`, the edit is shown before the source, each with the words before it; `jpeg`, both images
#: at quality 90; `resize`, both images at 95% of their size and back.
PERTURBATIONS = ("batch", "order", "jpeg", "resize")
_IMAGE = {"jpeg": as_jpeg, "resize": resampled}


def perturbed(
    work: Work, parts: Parts, images: Mapping[str, bytes]
) -> tuple[Parts, dict[str, bytes]]:
    """Change what the judge is shown as the work's perturbation says."""
    change = _IMAGE.get(work.perturbation)
    if change is not None:
        images = {name: change(data) for name, data in images.items()}
    return swap_images(parts) if work.perturbation == "order" else parts, dict(images)


def swap_images(parts: Parts) -> Parts:
    """Show the first edited image where the first source stands and the other way round, with the
    words before each.
    """
    places: dict[str, tuple[int, int]] = {}
    for index, (kind, name) in enumerate(parts):
        if kind == "image" and name in ("source", "edited") and name not in places:
            caption = index - 1 if index and parts[index - 1][0] == "text" else index
            places[name] = (caption, index)
    if len(places) < 2:
        return parts
    first, second = sorted(places.values())
    return (
        *parts[: first[0]],
        *parts[second[0] : second[1] + 1],
        *parts[first[1] + 1 : second[0]],
        *parts[first[0] : first[1] + 1],
        *parts[second[1] + 1 :],
    )


#: What a record of a verdict holds of it.
_SAID = ("reply", "aspects", "score", "batch_size", "greedy", "off_scale", "measured")


class BadScore(ReplyError):
    """A number of the judge's own that is no score; asking again would not help."""


def verdict_recipe(judge: Identity, rubric: Rubric, work: Work) -> JsonObject:
    """Return all that decides a verdict, but for the environment: images, rendered prompts, score
    formula, judge.

    The text of a reminder is not among it: only a verdict that needed one depends on it.
    """
    pair = work.pair
    recipe: JsonObject = {"judge": judge.digest}
    shown = {
        "source": work.source.sha256 if work.source else None,
        "edited": work.edit.blob if work.edit else None,
        "reference": work.reference.sha256 if work.reference else None,
    }
    if not judge.model.measures:
        system, parts = rubric.render(pair)
        asked = {"system": system, "parts": [list(part) for part in parts]}
        recipe["asked"] = {**asked, "aspects": list(rubric.aspects), "formula": rubric.score}
        if not judge.sees_pair:  # it is shown the prompt, and nothing else of the pair
            names = {text for kind, text in parts if kind == "image"}
            shown = {name: sha256 for name, sha256 in shown.items() if name in names}
    if judge.sees_pair:
        recipe |= {"pair": pair.id, "category": pair.category, "instruction": pair.instruction}
    if work.perturbation:
        recipe |= {"repeat": work.repeat, "perturbation": work.perturbation}
    return {**recipe, **shown}


class Scorer:
    """Scores edits with one judge and one rubric. Replies are kept without the secrets that
    `redactor` knows.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        judge: Identity,
        rubric: Rubric,
        store: Store,
        redactor: Redactor,
    ) -> None:
        self.settings, self.judge, self.rubric, self.store, self.redactor = (
            settings,
            judge,
            rubric,
            store,
            redactor,
        )
        self.first_at = 0.0  # when the first batch was scored, by the run's clock
        self.tokens = {
            "tokens_in": 0,
            "tokens_out": 0,
        }  # what answers cost, re-asks and unreadable ones too

    @property
    def usage(self) -> Usage | None:
        """The tokens of this run's answers and their cost; `None` for a judge that is not paid by
        tokens.
        """
        prices = self.judge.model.requirements.prices
        if prices is None:
            return None
        cost = (self.tokens["tokens_in"] * prices[0] + self.tokens["tokens_out"] * prices[1]) / 1e6
        return Usage(**self.tokens, cost=round(cost, 6) if any(prices) else None)

    def stored_verdict(self, work: Work, policy: Reuse) -> Verdict | None:
        """Return the verdict that an earlier run reached, if the policy lets it count.

        One that took reminders counts only while these read the same and as many are allowed.
        """

        def could_be(record: VerdictRecord) -> bool:
            reminded = record.asked > 1
            return not reminded or (
                record.reminder == self.rubric.reminder and record.asked <= 1 + self.settings.reasks
            )

        records = self.store.verdicts.of_content(key(verdict_recipe(self.judge, self.rubric, work)))
        record = reusable(records, self.judge.here, policy, could_be)
        if record is None:
            return None
        return self._verdict_of(record)

    def _verdict_of(self, record: VerdictRecord) -> Verdict:
        self.store.environments[record.environment.digest] = record.environment
        said = record.model_dump(include={*_SAID, "key"})
        return Verdict(**said, environment=record.environment.digest)

    def question(self, work: Work) -> Question[bytes]:
        """Build the question about one edit; raise `ImageError` if an image cannot be
        read.
        """
        system, parts = self.rubric.render(work.pair)
        edited = self.store.blobs.get(work.edit.blob) if work.edit else None
        if edited is None or work.source is None:
            raise ImageError("the edited image is not in the store any more, or was damaged")
        images = {"source": work.source.read(), "edited": edited}
        if work.reference is not None:
            images["reference"] = work.reference.read()
        parts, images = perturbed(work, parts, images)
        reminder = [("text", f"\n{text}") for text in work.reminders[-1:]]
        return Question(
            pair_id=work.pair.id,
            category=work.pair.category,
            instruction=work.pair.instruction,
            images=images,
            system=system,
            parts=(*parts, *reminder),
            aspects=tuple(self.rubric.aspects),
        )

    def read(self, work: Work, answer: Answer) -> bool:
        """Turn an answer into the work's verdict or error; return whether it is to be asked again
        instead.
        """
        self.tokens["tokens_in"] += answer.tokens_in
        self.tokens["tokens_out"] += answer.tokens_out
        try:
            work.verdict = self._verdict(answer)
        except ReplyError as error:
            readable = answer.error is not None or isinstance(error, BadScore)
            if not readable and len(work.reminders) < self.settings.reasks:
                work.reminders.append(
                    self.rubric.remind("it was too long" if answer.cut else str(error))
                )
                return True
            reply = None if readable else self.redactor.text(answer.reply)
            if answer.error is not None:
                kind = "judge"
            elif readable:
                kind = "bad_score"
            else:
                kind = "unreadable_reply"
            work.fail("score", kind, shorten(self.redactor.text(str(error))), reply)
        return False

    def _verdict(self, answer: Answer) -> Verdict:
        if answer.error is not None:
            raise ReplyError(answer.error)
        if answer.score is not None:
            return self._measured(answer, answer.score)
        if answer.cut:  # in the middle of a number, or of a thought
            raise ReplyError(
                "the reply was cut short, expected a larger judge.max_new_tokens or shorter replies"
            )
        reply, (aspects, score) = (
            self.redactor.text(answer.reply),
            self.rubric.read(answer.reply),
        )
        if not answer.expected:
            return Verdict(reply, aspects, score, answer.batch_size)
        expected = self._expected(answer.expected)
        off_scale = min(1.0, max(0.0, answer.off_scale))
        return Verdict(
            reply, expected, self.rubric.combine(expected), answer.batch_size, score, off_scale
        )

    def _measured(self, answer: Answer, score: float) -> Verdict:
        if not (math.isfinite(score) and SCALE[0] <= score <= SCALE[1]):
            raise BadScore(f"the judge's score is {score}, expected a number from 0 to 10")
        if not all(map(math.isfinite, answer.aspects.values())):
            raise BadScore(f"the judge's aspects are {answer.aspects}, expected finite numbers")
        reply = self.redactor.text(answer.reply)
        return Verdict(reply, answer.aspects, score, answer.batch_size, measured=True)

    def _expected(self, grades: Mapping[str, float]) -> dict[str, float]:
        """Check the expected grades of an answer; raise `BadScore` if they are not one in [0, 10]
        for each aspect.
        """
        values = {name: grades.get(name, math.nan) for name in self.rubric.aspects}
        for name, value in values.items():
            if not SCALE[0] <= value <= SCALE[1]:
                raise BadScore(
                    f"the expected grade of {name!r} is {value}, expected a number from 0 to 10"
                )
        return values

    def keep(self, works: Sequence[Work], worker: Worker) -> None:
        """Store the verdicts that a worker reached; each then names its record."""
        if not (reached := [work for work in works if work.verdict is not None]):
            return  # by a worker that may never have loaded
        environment, code = worker.computes_in, self.judge.code_beside(worker.code)
        records = []
        for work in reached:
            recipe = verdict_recipe(self.judge, self.rubric, work)
            record = VerdictRecord(
                key=key(recipe, environment),
                content=key(recipe),
                recipe=recipe,
                environment=environment,
                **{name: getattr(work.verdict, name) for name in _SAID},
                asked=1 + len(work.reminders),
                reminder=self.rubric.reminder if work.reminders else "",
                code=code,
            )
            records.append(record)
            work.verdict = self._verdict_of(record)
        self.store.verdicts.append(records)


Batch = tuple[list[Work], JudgeJob]


class Feed:
    """Finished edits on their way from the edit stage to a score stage that overlaps it, in another
    thread.
    """

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

    Batches hold one category where possible. A batch that fails, or whose worker dies, is asked
    once more, one by one, so that one edit cannot spoil the verdicts on others. While a `feed` is
    open, edits come through it, and a batch is judged once it is a quarter full. `done` hears of
    each work that has ended in a verdict or an error, which is stored by then.
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
        return (
            feed is not None
            and not feed.aborted
            and (feed.is_open or feed.holds_any or bool(self.queue))
        )

    def take(self, worker: Worker) -> Batch | None:
        """Return the next batch for a worker; `None` while there is none."""
        if self.feed is not None and not self._take_from(self.feed, worker):
            return None
        if worker.jobs and self._is_better_left(worker):
            return None
        wanted = self._batch_size(worker)
        batch: list[Work] = []
        questions: list[JsonObject] = []
        while self.queue and len(batch) < wanted:
            if batch and self.queue[0].failures:
                break
            work = self.queue.popleft()
            try:
                questions.append(vars(self.scorer.question(work)))
                batch.append(work)
            except ImageError as error:
                work.fail("score", "bad_image", str(error))
                self.done(work)
            if work.failures:
                break
        if batch:
            return (batch, {"op": "judge", "questions": questions})
        return None

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
        """What the user set; else what fits, but no more than a fair share, so that no worker is
        left idle.
        """
        if self.scorer.settings.batch_size != "auto":
            return self.scorer.settings.batch_size
        return min(worker.batch_size, math.ceil(len(self.queue) / len(self.pool.slots)))

    def finish(self, batch: list[Work], worker: Worker, reply: JobReply) -> None:
        """Turn the reply on a batch into verdicts and errors; what is to be asked again goes back
        to the queue.
        """
        if reply["op"] == "judged":
            again = [
                work
                for work, fields in zip(batch, reply["answers"], strict=True)
                if self.scorer.read(work, Answer(**fields))
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
        """End the edits of a failed batch in its error, or return those that are to be asked once
        more, alone.
        """
        retry = self.retries.allow(batch[0].failures, worker, reply["kind"])
        if retry or len(batch) > 1:
            for work in batch:
                work.failures += 1
            return batch
        for work in batch:
            work.fail("score", reply["kind"], reply["message"])
        return []


def _place_in_queue(work: Work) -> tuple[Any, ...]:
    """Order in which edits are judged: by category, then by image size and length of the texts, so
    that a batch is of one kind; for repeats in another order each time.
    """
    if not work.perturbation:
        texts = (work.pair.instruction, work.pair.description, work.pair.reference_text)
        return (
            0,
            work.pair.category,
            work.source.pixels if work.source else 0,
            sum(len(text or "") for text in texts),
        )
    return (
        work.repeat,
        hashlib.sha256(f"{work.repeat}:{work.pair.id}:{work.seed}".encode()).hexdigest(),
    )
