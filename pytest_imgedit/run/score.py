"""The score stage: edits are judged in batches, and unreadable replies are requested again."""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import (
    environments,
    errors,
    protocol,
    requests,
    results,
    sanitize,
    strict_json,
)
from pytest_imgedit.core.images import as_jpeg, resampled
from pytest_imgedit.core.reply import SCALE
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.rubric import Rubric, load_rubric
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


def swap_images(parts: Parts) -> Parts:
    """Swap the first source and the first edited image, each with the text before it."""
    spans: dict[str, tuple[int, int]] = {}
    for index, (kind, name) in enumerate(parts):
        if kind == "image" and name in ("source", "edited"):
            has_caption = index > 0 and parts[index - 1][0] == "text"
            spans.setdefault(name, (index - has_caption, index))
    if len(spans) < 2:
        return parts
    first, second = sorted(spans.values())
    return (
        *parts[: first[0]],
        *parts[second[0] : second[1] + 1],
        *parts[first[1] + 1 : second[0]],
        *parts[first[0] : first[1] + 1],
        *parts[second[1] + 1 :],
    )


#: Fields that a record shares with its verdict.
_SHARED = ("reply", "aspects", "score", "batch_size", "greedy", "off_scale", "measured")


class BadScore(errors.ReplyError):
    """A number of the judge's own that is no score; asking again would not help."""


def verdict_recipe(judge: Identity, rubric: Rubric, work: Work) -> strict_json.JsonObject:
    """Return all that decides a verdict, but for the environment: images, rendered prompts, score
    formula, judge.

    The text of a reminder is not among it: only a verdict that needed one depends on it.
    """
    pair = work.pair
    recipe: strict_json.JsonObject = {"judge": judge.digest}
    shown = {
        "source": work.source.sha256 if work.source else None,
        "edited": work.edit.blob if work.edit else None,
        "reference": work.reference.sha256 if work.reference else None,
    }
    if not judge.model.measures:
        system, parts = rubric.render(pair)
        recipe["asked"] = {
            "system": system,
            "parts": [list(part) for part in parts],
            "aspects": list(rubric.aspects),
            "formula": rubric.score,
        }
        if not judge.sees_pair:  # it is shown the prompt, and nothing else of the pair
            names = {text for kind, text in parts if kind == "image"}
            shown = {name: sha256 for name, sha256 in shown.items() if name in names}
    if judge.sees_pair:
        recipe |= {"pair": pair.id, "category": pair.category, "instruction": pair.instruction}
    if work.perturbation:
        recipe |= {"repeat": work.repeat, "perturbation": work.perturbation}
    return {**recipe, **shown}


class Scorer:
    """Scores edits with one judge and the rubric of the settings; replies are stored without the
    secrets that these name.
    """

    def __init__(self, settings: Settings, judge: Identity, store: Store) -> None:
        self.settings, self.judge, self.store = settings.judge, judge, store
        self.rubric = load_rubric(settings.judge.rubric, settings.rubrics)
        self.redactor = settings.redactor
        self.first_at = 0.0  # when the first batch was scored, by the run's clock
        # Tokens of all answers, those of unreadable ones and re-asks too.
        self.tokens = {"tokens_in": 0, "tokens_out": 0}

    @property
    def usage(self) -> results.Usage | None:
        """The tokens of this run's answers and their cost; `None` for a judge without prices."""
        prices = self.judge.model.requirements.prices
        if prices is None:
            return None
        cost = (self.tokens["tokens_in"] * prices[0] + self.tokens["tokens_out"] * prices[1]) / 1e6
        return results.Usage(**self.tokens, cost=round(cost, 6) if any(prices) else None)

    def stored_verdict(self, work: Work, policy: environments.Reuse) -> results.Verdict | None:
        """Return the verdict that an earlier run reached, if the policy allows it.

        A verdict that took reminders counts only while these read the same and as many are allowed.
        """

        def is_usable(record: VerdictRecord) -> bool:
            return record.asked == 1 or (
                record.reminder == self.rubric.reminder and record.asked <= 1 + self.settings.reasks
            )

        record = reusable(
            self.store.verdicts.of_content(
                environments.key(verdict_recipe(self.judge, self.rubric, work))
            ),
            self.judge.here,
            policy,
            is_usable,
        )
        return None if record is None else self._verdict_of(record)

    def _verdict_of(self, record: VerdictRecord) -> results.Verdict:
        digest = record.environment.digest
        self.store.environments[digest] = record.environment
        return results.Verdict(**record.model_dump(include={*_SHARED, "key"}), environment=digest)

    def question(self, work: Work) -> requests.Question[bytes]:
        """Build the question about one edit; raise `ImageError` if an image cannot be
        read.
        """
        system, parts = self.rubric.render(work.pair)
        edited = self.store.blobs.get(work.edit.blob) if work.edit else None
        if edited is None or work.source is None:
            raise errors.ImageError("the edited image is not in the store any more, or was damaged")
        images = {"source": work.source.read(), "edited": edited}
        if work.reference is not None:
            images["reference"] = work.reference.read()
        if work.perturbation == "order":
            parts = swap_images(parts)
        change = _IMAGE.get(work.perturbation, bytes)
        return requests.Question(
            pair_id=work.pair.id,
            category=work.pair.category,
            instruction=work.pair.instruction,
            images={name: change(data) for name, data in images.items()},
            system=system,
            parts=(*parts, *(("text", f"\n{text}") for text in work.reminders[-1:])),
            aspects=tuple(self.rubric.aspects),
        )

    def read(self, work: Work, answer: requests.Answer) -> bool:
        """Turn an answer into the work's verdict or error; return whether to ask again instead."""
        self.tokens["tokens_in"] += answer.tokens_in
        self.tokens["tokens_out"] += answer.tokens_out
        if answer.error is not None:
            work.fail("score", "judge", sanitize.shorten(self.redactor.text(answer.error)))
            return False
        try:
            work.verdict = self._verdict(answer)
        except BadScore as error:
            work.fail("score", "bad_score", sanitize.shorten(self.redactor.text(str(error))))
        except errors.ReplyError as error:
            if len(work.reminders) < self.settings.reasks:
                work.reminders.append(
                    self.rubric.remind("it was too long" if answer.cut else str(error))
                )
                return True
            work.fail(
                "score",
                "unreadable_reply",
                sanitize.shorten(self.redactor.text(str(error))),
                self.redactor.text(answer.reply),
            )
        return False

    def _verdict(self, answer: requests.Answer) -> results.Verdict:
        """Raises `BadScore` for a number out of range, and `ReplyError` for an unreadable reply."""
        reply = self.redactor.text(answer.reply)
        if answer.score is not None:
            if not SCALE[0] <= answer.score <= SCALE[1]:
                raise BadScore(
                    f"the judge's score is {answer.score}, expected a number from 0 to 10"
                )
            if not all(map(math.isfinite, answer.aspects.values())):
                raise BadScore(f"the judge's aspects are {answer.aspects}, expected finite numbers")
            return results.Verdict(
                reply, answer.aspects, answer.score, answer.batch_size, measured=True
            )
        if answer.cut:  # in the middle of a number, or of a thought
            raise errors.ReplyError(
                "the reply was cut short, expected a larger judge.max_new_tokens or shorter replies"
            )
        aspects, score = self.rubric.read(answer.reply)
        if not answer.expected:
            return results.Verdict(reply, aspects, score, answer.batch_size)
        expected = {name: answer.expected.get(name, math.nan) for name in self.rubric.aspects}
        for name, value in expected.items():
            if not SCALE[0] <= value <= SCALE[1]:
                raise BadScore(
                    f"the expected grade of {name!r} is {value}, expected a number from 0 to 10"
                )
        return results.Verdict(
            reply,
            expected,
            self.rubric.combine(expected),
            answer.batch_size,
            score,
            off_scale=min(1.0, max(0.0, answer.off_scale)),
        )

    def keep(self, works: Sequence[Work], worker: Worker) -> None:
        """Store the verdicts that a worker reached, and give each the key of its record."""
        records = []
        for work in [work for work in works if work.verdict is not None]:
            recipe = verdict_recipe(self.judge, self.rubric, work)
            record = VerdictRecord(
                key=environments.key(recipe, worker.computes_in),
                content=environments.key(recipe),
                recipe=recipe,
                environment=worker.computes_in,
                **{name: getattr(work.verdict, name) for name in _SHARED},
                asked=1 + len(work.reminders),
                reminder=self.rubric.reminder if work.reminders else "",
                code=self.judge.code_beside(worker.code),
            )
            records.append(record)
            work.verdict = self._verdict_of(record)
        if records:
            self.store.verdicts.append(records)


@dataclass
class Feed:
    """Passes finished edits from the edit stage to a score stage in another thread.

    The feed is closed when nothing more comes, and aborted when nothing more is to be judged.
    """

    is_open: bool = True
    aborted: bool = False
    works: deque[Work] = field(default_factory=deque)

    def take(self) -> list[Work]:
        """Return the edits that have come since the last call."""
        return [self.works.popleft() for _ in range(len(self.works))]


class ScoreStage:
    """Judges edits with the workers of a pool.

    Batches hold one category where possible. If a batch fails, or its worker dies, its edits are
    retried one by one, so that one edit cannot spoil the verdicts on others. While a `feed` is
    open, edits come through it, and a batch is judged once it is a quarter full. `done` is called
    with each work that has ended in a verdict or an error, which is stored by then.
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
        self.queue = deque(sorted(pending, key=_order))
        for batch, worker, reply in self.pool.run(self.take, self.may_get_more):
            self.scorer.first_at = self.scorer.first_at or self.clock()
            self.finish(batch, worker, reply)

    def may_get_more(self) -> bool:
        """Tell whether edits may still come through the feed."""
        if self.feed is None or self.feed.aborted:
            return False
        return self.feed.is_open or bool(self.feed.works or self.queue)

    def take(self, worker: Worker) -> tuple[list[Work], protocol.JudgeJob] | None:
        """Return the worker's next batch, or `None` if it must wait or nothing is left.

        Near the end, batches go to whichever worker is free first. An edit that was lost before is
        asked about alone. Without a batch size of the user, no batch is larger than a fair share.
        """
        if self.feed is not None and not self._take_from(self.feed, worker):
            return None
        if worker.jobs and (
            len(self.queue) < len(self.pool.workers)
            or worker.job[0].failures
            or self.queue[0].failures
        ):
            return None
        size = min(worker.batch_size, math.ceil(len(self.queue) / len(self.pool.slots)))
        if self.scorer.settings.batch_size != "auto":
            size = self.scorer.settings.batch_size
        batch: list[Work] = []
        questions: list[strict_json.JsonObject] = []
        while self.queue and len(batch) < size:
            if batch and self.queue[0].failures:
                break
            work = self.queue.popleft()
            try:
                questions.append(vars(self.scorer.question(work)))
                batch.append(work)
            except errors.ImageError as error:
                work.fail("score", "bad_image", str(error))
                self.done(work)
            if work.failures:
                break
        if not batch:
            return None
        return batch, {"op": "judge", "questions": questions}

    def _take_from(self, feed: Feed, worker: Worker) -> bool:
        """Queue what has come through the feed; return whether there is enough for a batch."""
        if feed.aborted:
            return False
        is_open = feed.is_open  # read first, so that no edit that comes in between is missed
        if works := feed.take():
            retried = [work for work in self.queue if work.failures]
            fresh = [work for work in (*self.queue, *works) if not work.failures]
            self.queue = deque([*sorted(fresh, key=_order), *retried])
        size = self.scorer.settings.batch_size
        full = worker.batch_size if size == "auto" else size
        return not is_open or len(self.queue) >= max(1, full // 4)

    def finish(self, batch: list[Work], worker: Worker, reply: protocol.JobReply) -> None:
        """Turn the reply on a batch into verdicts and errors; queue what is to be asked again.

        Edits of a batch that failed are asked about once more, alone.
        """
        again: list[Work] = []
        if reply["op"] == "error":
            if self.retries.allow(batch[0].failures, worker, reply["kind"]) or len(batch) > 1:
                again = batch
                for work in batch:
                    work.failures += 1
            else:
                batch[0].fail("score", reply["kind"], reply["message"])
        else:
            assert reply["op"] == "judged", "a judge was asked, and not an editor"
            again = [
                work
                for work, fields in zip(batch, reply["answers"], strict=True)
                if self.scorer.read(work, requests.Answer(**fields))
            ]
            worker.jobs_done += sum(work.verdict is not None for work in batch)
            if batch[0].failures:
                self.retries.helped()
        self.queue.extend(again)
        pending = {id(work) for work in again}
        finished = [work for work in batch if id(work) not in pending]
        self.scorer.keep(finished, worker)
        for work in finished:
            self.done(work)


def _order(work: Work) -> tuple[Any, ...]:
    """Sort edits by category, image size and length of the texts, so that batches are of one kind;
    repeats are in another order each time.
    """
    if work.perturbation:
        name = f"{work.repeat}:{work.pair.id}:{work.seed}"
        return (work.repeat, hashlib.sha256(name.encode()).hexdigest())
    texts = (work.pair.instruction, work.pair.description, work.pair.reference_text)
    pixels = math.prod(work.source.size) if work.source else 0
    return (0, work.pair.category, pixels, sum(map(len, texts)))
