"""The score stage: edits are judged in batches, and unreadable replies are requested again."""

import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import (
    environments,
    errors,
    messages,
    redaction,
    requests,
    results,
    sanitize,
    strict_json,
)
from pytest_imgedit.core.images import as_jpeg, resampled
from pytest_imgedit.core.measures import SCORE, SCORE_ONLY
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import SCALE
from pytest_imgedit.kinds.base import Metric
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.protocols.protocol import Call, Parts
from pytest_imgedit.run.breaker import Breaker
from pytest_imgedit.run.canary import Canary, make_canary
from pytest_imgedit.run.work import StoredImage, Work, reusable
from pytest_imgedit.store.journal import VerdictRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool, Retries

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


#: How often the limit of a reply that was cut is doubled.
DOUBLINGS = 2
#: Stands for any problem in the text of a reminder by which records are compared.
_PROBLEM = "…"


class BadScore(errors.ReplyError):
    """A number of the judge's own that is no score; asking again would not help."""


@dataclass(eq=False)
class Ask:
    """One call about one edit, on its way through the stage; `call` is `None` for a judge that
    measures.

    `failures` counts lost jobs, `reminders` holds the re-asks so far, and `doublings` counts how
    often a reply may be twice as long, since one was cut.
    """

    work: Work
    call: Call | None
    failures: int = 0
    reminders: list[str] = field(default_factory=list)
    doublings: int = 0

    @property
    def name(self) -> str:
        return self.call.name if self.call else ""

    @property
    def pair(self) -> EditPair:
        return self.work.pair

    @property
    def parts(self) -> Parts:
        """What is shown, as the work's perturbation has it."""
        parts = self.call.parts if self.call else ()
        return swap_images(parts) if self.work.perturbation == "order" else parts


def reply_recipe(judge: Identity, ask: Ask) -> strict_json.JsonObject:
    """Return all that decides an answer, but for the environment: images, rendered question, judge.

    The text of a reminder is not among it: only an answer that needed one depends on it. Nor is
    what the protocol makes of a reply.
    """
    work, pair = ask.work, ask.pair
    recipe: strict_json.JsonObject = {"judge": judge.digest}
    if ask.call is not None:
        recipe["asked"] = ask.call.recipe
    if judge.sees_pair:
        recipe |= {"pair": pair.id, "category": pair.category, "instruction": pair.instruction}
    if work.perturbation:
        recipe |= {"repeat": work.repeat, "perturbation": work.perturbation}
    shown = {name: image.sha256 for name, image in _shown(judge, ask).items()}
    return {**recipe, "images": shown, "edited": work.edit.blob if work.edit else None}


def _shown(judge: Identity, ask: Ask) -> dict[str, StoredImage]:
    """Return the images beside the edit that decide an answer: all for a judge that is shown more
    than the question.
    """
    images = ask.work.images
    if ask.call is None or judge.sees_pair:
        return images
    # an edit that is resized depends on the source
    needed = {*ask.call.images, *(["source"] if ask.call.preparation.at_source_size else [])}
    return {name: image for name, image in images.items() if name in needed}


class Scorer:
    """Scores edits with one judge and one protocol; replies are stored without the secrets that the
    settings name.
    """

    def __init__(self, settings: Settings, judge: Identity, store: Store) -> None:
        self.settings, self.judge, self.store = settings.judge, judge, store
        self.protocol = load_protocol(settings)
        self.redactor = settings.redactor
        self.first_at = 0.0  # when the first batch was scored, by the run's clock
        # Tokens of all answers, those of unreadable ones and re-asks too.
        self.tokens = {"tokens_in": 0, "tokens_out": 0}
        #: How often each model answered, as the server named it.
        self.models: Counter[str] = Counter()
        self.canary: Canary | None = None

    @property
    def usage(self) -> results.Usage | None:
        """The tokens of this run's answers and their cost; `None` for a judge without prices."""
        prices = self.judge.model.requirements.prices
        if prices is None:
            return None
        cost = requests.token_cost(self.tokens.values(), prices)
        return results.Usage(**self.tokens, cost=round(cost, 6) if any(prices) else None)

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        """What the judge or the protocol declares that edits are measured by, beside the score."""
        judge = self.judge.model
        return (judge.aspects or {}) if judge.measures else self.protocol.measures

    @property
    def facts(self) -> dict[str, Any]:
        """What results tell of the judge and its protocol: fields of `JudgeInfo`."""
        judge = self.judge
        facts = {
            "spec": redaction.mask_shapes(judge.model.spec),
            **judge.told,
            "decoder": judge.recipe.get("decoder"),
            "usage": self.usage,
            "returned": dict(self.models),
            "canary": self.canary.info if self.canary and self.canary.rounds else None,
        }
        if judge.model.measures:
            return {**facts, "protocol": None, "variant": None, "protocol_sha256": None}
        return {
            **facts,
            "protocol": self.protocol.name,
            "variant": self.protocol.variant,
            "protocol_sha256": self.protocol.sha256,
        }

    @property
    def is_compat(self) -> bool:
        return self.protocol.variant == "compat"

    @property
    def reasks(self) -> int:
        """How often a question is put again; the authors' scripts do not."""
        return 0 if self.is_compat else self.settings.reasks

    @property
    def doublings(self) -> int:
        """How often a question whose reply was cut is put again with twice the limit."""
        return DOUBLINGS if self.judge.model.reply_limit > 0 and not self.is_compat else 0

    @property
    def most_puts(self) -> int:
        """How often one question is put at most."""
        return 1 if self.judge.model.measures else 1 + self.reasks + self.doublings

    def asks(self, work: Work) -> list[Ask]:
        """List the calls about an edit that have no answer yet; none once an answer was a score."""
        if any(record.measured is not None for record in work.answers.values()):
            return []
        if self.judge.model.measures:
            calls: Sequence[Call | None] = [None]
        else:
            calls = self.protocol.checked_calls(work.pair)
        asks = [Ask(work, call) for call in calls]
        return [ask for ask in asks if ask.name not in work.answers]

    def stored_verdict(self, work: Work, policy: environments.Reuse) -> results.Verdict | None:
        """Return the verdict that earlier answers amount to, if the policy allows them; answers to
        some of the calls are given to the work.

        An answer that took reminders counts only while these read the same and as many are allowed.
        """
        work.answers = {}
        asks = self.asks(work)
        for ask in asks:
            record = reusable(
                self.store.verdicts.of_content(environments.key(reply_recipe(self.judge, ask))),
                self.judge.here,
                policy,
                partial(self._is_usable, ask),
            )
            if record is not None:
                work.answers[ask.name] = record
        if self.asks(work):
            return None
        try:
            return self._verdict(work)
        except errors.ReplyError:  # what the protocol makes of replies has changed
            work.answers = {}
            return None

    def _is_usable(self, ask: Ask, record: VerdictRecord) -> bool:
        if ask.call is None:
            return record.measured is not None and self._is_on_scale(record.measured)
        if record.asked > 1 and not (
            record.asked <= 1 + self.reasks
            and record.reminder == self.protocol.remind(ask.call, _PROBLEM)
        ):
            return False
        try:
            self._numbers(ask, record)
        except errors.ReplyError:
            return False
        return True

    def question(self, ask: Ask) -> requests.Question[bytes]:
        """Build the question of a call about one edit; raise `ImageError` if an image cannot be
        read.
        """
        work, call = ask.work, ask.call
        edited = self.store.blobs.get(work.edit.blob) if work.edit else None
        if edited is None:
            raise errors.ImageError("the edited image is not in the store any more, or was damaged")
        shown = {name: image.read() for name, image in _shown(self.judge, ask).items()}
        shown["edited"] = edited
        needed = call.images if call else ("source",)
        if missing := [name for name in needed if name not in shown]:
            raise errors.ImageError(f"no image {missing[0]!r}")
        change = _IMAGE.get(work.perturbation, bytes)
        return self._question(ask, {name: change(data) for name, data in shown.items()})

    def question_about(self, work: Work, call: Call, edited: bytes) -> requests.Question[bytes]:
        """Build the question of a call about a picture in place of an edit; raises `ImageError` if
        an image cannot be read.
        """
        ask = Ask(work, call)
        shown = {name: image.read() for name, image in _shown(self.judge, ask).items()}
        return self._question(ask, {**shown, "edited": edited})

    def _question(self, ask: Ask, images: Mapping[str, bytes]) -> requests.Question[bytes]:
        pair, call = ask.pair, ask.call
        return requests.Question(
            pair_id=pair.id,
            category=pair.category,
            instruction=pair.instruction,
            images=images,
            system=call.system if call else "",
            parts=(*ask.parts, *(("text", f"\n{text}") for text in ask.reminders[-1:])),
            aspects=call.grammar.graded if call else (),
            preparation=call.preparation if call else requests.Preparation(),
            max_new_tokens=self._length(ask),
        )

    def _length(self, ask: Ask) -> int:
        """Return how long a reply may be at least, in tokens."""
        length = ask.call.max_new_tokens if ask.call else 0
        if not ask.doublings:
            return length
        return int(2**ask.doublings) * max(length, self.judge.model.reply_limit)

    def start_canary(self, works: Iterable[Work]) -> Canary | None:
        """Return the canary of a judge that is to score works, the same one each time."""
        if self.canary is None:
            open_works = [work for work in works if work.error is None and work.verdict is None]
            questions = 0
            if self.judge.model.is_served:
                questions = sum(len(self.asks(work)) for work in open_works)
            self.canary = make_canary(self.judge.model, self.protocol, open_works, questions)
        return self.canary

    def pay(self, answer: requests.Answer) -> None:
        """Count the tokens of an answer."""
        self.tokens["tokens_in"] += answer.tokens_in
        self.tokens["tokens_out"] += answer.tokens_out

    def read(self, ask: Ask, answer: requests.Answer, worker: Worker) -> bool:
        """Take an answer to a call: it ends the work, or waits for those to other calls; return
        whether to ask again instead.
        """
        work = ask.work
        self.pay(answer)
        if answer.model:
            self.models[answer.model] += 1
        if answer.error is not None:
            kind = "refused" if answer.refused else "judge"
            reason = work.located(answer.error)
            work.fail("score", kind, sanitize.shorten(reason, mask=self.redactor.text))
            return False
        try:
            if answer.cut and not self.is_compat:  # in the middle of a number, or of a thought
                raise errors.CutReply(
                    "the reply was cut short, expected a larger judge.max_new_tokens or shorter "
                    "replies"
                )
            self._take(ask, self._record(ask, answer, worker))
        except BadScore as error:
            work.fail("score", "bad_score", sanitize.shorten(str(error), mask=self.redactor.text))
        except errors.ReplyError as error:
            is_cut = isinstance(error, errors.CutReply)
            if is_cut and ask.doublings < self.doublings:
                ask.doublings += 1
                return True
            may_ask = len(ask.reminders) < self.reasks and not (is_cut and ask.doublings)
            if ask.call is not None and may_ask:
                problem = "it was too long" if is_cut else str(error)
                ask.reminders.append(self.protocol.remind(ask.call, problem))
                return True
            work.fail(
                "score",
                "unreadable_reply",
                sanitize.shorten(str(error), mask=self.redactor.text),
                self.redactor.text(answer.reply),
            )
        return False

    def _take(self, ask: Ask, record: VerdictRecord) -> None:
        """Give a work an answer; the last one makes the verdict. Raises `ReplyError` for an answer
        that does not count.
        """
        work = ask.work
        self._numbers(ask, record)
        work.answers[ask.name] = record
        try:
            if not self.asks(work):
                work.verdict = self._verdict(work)
        except errors.ReplyError:
            del work.answers[ask.name]
            raise

    def _record(self, ask: Ask, answer: requests.Answer, worker: Worker) -> VerdictRecord:
        recipe = reply_recipe(self.judge, ask)
        measured, is_metric = self._measured(answer), isinstance(self.judge.model, Metric)
        reminder = ""
        if ask.call is not None and ask.reminders:
            reminder = self.protocol.remind(ask.call, _PROBLEM)
        return VerdictRecord(
            key=environments.key(recipe, worker.computes_in),
            content=environments.key(recipe),
            recipe=recipe,
            environment=worker.computes_in,
            code=self.judge.code_beside(worker.code),
            reply=self.redactor.text(answer.reply),
            score=None if is_metric else measured,
            value=measured if is_metric else None,
            aspects=dict(answer.aspects) if answer.score is not None else {},
            expected=_expected(ask, answer),
            off_scale=min(1.0, max(0.0, answer.off_scale)) if answer.expected else None,
            batch_size=answer.batch_size,
            model=answer.model,
            asked=1 + len(ask.reminders),
            reminder=reminder,
            finish_reason=self.redactor.text(answer.finish_reason),
        )

    def _measured(self, answer: requests.Answer) -> float | None:
        """Return the score of a judge that measures, or the value of a metric; raises `BadScore`
        for numbers that are none.
        """
        if answer.score is None:
            return None
        if not self._is_on_scale(answer.score):
            raise BadScore(
                f"the {self.judge.model.role}'s score is {answer.score}, expected a finite number, "
                f"{self._measure.range}"
            )
        if not all(map(math.isfinite, answer.aspects.values())):
            raise BadScore(f"the judge's aspects are {answer.aspects}, expected finite numbers")
        return answer.score

    @property
    def _measure(self) -> results.Measure:
        """What a judge that measures, or a metric, returns as its score."""
        model = self.judge.model
        return model.measure if isinstance(model, Metric) else SCORE_ONLY[SCORE]

    def _is_on_scale(self, score: float) -> bool:
        lowest, highest = self._measure.ends
        return math.isfinite(score) and lowest <= score <= highest

    def _numbers(self, ask: Ask, record: VerdictRecord) -> dict[str, float] | None:
        """Return the numbers in a reply; `None` for one that `compat` takes although it cannot be
        read. It may also take some of the numbers for all.
        """
        if record.measured is not None:
            return {}
        if ask.call is None:
            raise errors.ReplyError(f"the {self.judge.model.role} gave no score, expected a number")
        try:
            return ask.call.grammar.read(record.reply, self.protocol.variant)
        except errors.ReplyError:
            if self.is_compat:
                return None
            raise

    def _verdict(self, work: Work) -> results.Verdict | None:
        """Make the verdict of a work with all answers; raises `ReplyError` for numbers that make no
        score.

        A work that `compat` leaves out of all means gets no verdict, but an error that says so.
        """
        records = work.answers
        for record in records.values():
            self.store.environments[record.environment.digest] = record.environment
        first = next(iter(records.values()))
        verdict = partial(
            results.Verdict,
            replies={name: record.reply for name, record in records.items()},
            batch_size=max(record.batch_size for record in records.values()),
            keys={name: record.key for name, record in records.items()},
            environment=_unlike(records.values(), self.judge.here).environment.digest,
        )
        if measured := [record for record in records.values() if record.measured is not None]:
            score = measured[0].measured
            assert score is not None, "only these were listed"
            return verdict(aspects=measured[0].aspects, score=score, measured=True)
        literal: dict[str, dict[str, float]] = {}
        touched = []
        for call in self.protocol.checked_calls(work.pair):
            numbers = self._numbers(Ask(work, call), records[call.name])
            if numbers is not None:
                literal[call.name] = numbers
            if not {*call.grammar.names} <= {*(numbers or ())}:
                touched.append(call.name)
        expected = {name: record.expected for name, record in records.items() if record.expected}
        values = self.protocol.checked_item(work.pair, {**literal, **expected})
        if "score" not in values:
            replies = " | ".join(records[name].reply for name in touched)
            why = f"the reply to {', '.join(touched)} cannot be read; compat leaves the pair out"
            work.fail("score", "dropped", why, replies)
            return None
        greedy = None
        if expected:
            greedy = self._on_scale(self.protocol.checked_item(work.pair, literal)["score"])
        score = values["score"]
        if self.protocol.scale == SCALE:
            del values["score"]
        return verdict(
            aspects=values,
            score=self._on_scale(score),
            greedy=greedy,
            off_scale=first.off_scale,
            touched=tuple(touched),
        )

    def _on_scale(self, score: float) -> float:
        """Return a score of the protocol on the scale from 0 to 10."""
        low, high = self.protocol.scale
        return SCALE[0] + (score - low) / (high - low) * (SCALE[1] - SCALE[0])

    def keep(self, asks: Iterable[Ask]) -> None:
        """Store the answers to calls; raises `StoreError`, and then none of them counts."""
        answered = [ask for ask in asks if ask.name in ask.work.answers]
        if not answered:
            return
        try:
            self.store.verdicts.append([ask.work.answers[ask.name] for ask in answered])
        except BaseException:
            for ask in answered:
                del ask.work.answers[ask.name]
                ask.work.verdict = ask.work.error = None
            raise


def _unlike(records: Iterable[VerdictRecord], here: environments.Environment) -> VerdictRecord:
    """Return the record whose environment differs most from `here`."""
    return max(records, key=lambda record: len(record.environment.differences(here)))


def _expected(ask: Ask, answer: requests.Answer) -> dict[str, float]:
    """Return the expected grades of an answer by name; raises `BadScore` for one out of range."""
    if ask.call is None or not answer.expected:
        return {}
    low, high = ask.call.grammar.scale
    expected = {}
    for name, label in zip(ask.call.grammar.names, ask.call.grammar.called, strict=True):
        expected[name] = answer.expected.get(label, math.nan)
        if not low <= expected[name] <= high:
            raise BadScore(
                f"the expected grade of {name!r} is {expected[name]}, expected a number from "
                f"{low:g} to {high:g}"
            )
    return expected


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
    with each work that has ended in a verdict or an error, which is stored by then. A `canary`
    stands for a batch of its own, a job that is an empty list. Jobs that all fail alike end the
    stage.
    """

    def __init__(
        self,
        scorer: Scorer,
        pool: Pool,
        done: Callable[[Work], None],
        clock: Callable[[], float],
        feed: Feed | None = None,
        canary: Canary | None = None,
    ) -> None:
        self.scorer, self.pool, self.done, self.clock, self.feed = scorer, pool, done, clock, feed
        self.canary = canary
        self.queue: deque[Ask] = deque()
        self.retries, self.breaker = Retries(pool), Breaker("verdicts")

    def run(self, pending: Sequence[Work]) -> None:
        """Judge all pending edits, and those that come through the feed; raises `FailsAlike` if the
        judge fails alike on all of them.
        """
        self.scorer.store.remember(self.scorer.judge.digest, self.scorer.judge.recipe)
        self.queue = deque(self._asks(pending))
        for batch, worker, reply in self.pool.run(self.take, self.may_get_more):
            if not batch and self.canary is not None:
                fields = reply["answers"] if reply["op"] == "judged" else []
                answers = [requests.Answer(**answer) for answer in fields]
                for answer in answers:
                    self.scorer.pay(answer)
                self.canary.take(answers)
                continue
            self.scorer.first_at = self.scorer.first_at or self.clock()
            self.finish(batch, worker, reply)
            self.breaker.check()

    def may_get_more(self) -> bool:
        """Tell whether edits may still come through the feed."""
        if self.feed is None or self.feed.aborted:
            return False
        return self.feed.is_open or bool(self.feed.works or self.queue)

    def _asks(self, works: Iterable[Work]) -> list[Ask]:
        return [ask for work in sorted(works, key=_order) for ask in self.scorer.asks(work)]

    def take(self, worker: Worker) -> tuple[list[Ask], messages.JudgeJob] | None:
        """Return the worker's next batch, or `None` if it must wait or nothing is left.

        Near the end, batches go to whichever worker is free first. An edit that was lost before is
        asked about alone. Without a batch size of the user, no batch is larger than a fair share.
        """
        if self.feed is not None and not self._take_from(self.feed, worker):
            return None
        if self.canary is not None and (of_canary := self._of_canary(self.canary)):
            return [], {"op": "judge", "questions": of_canary}
        if worker.jobs and (
            len(self.queue) < len(self.pool.workers)
            or any(ask.failures for ask in worker.job[:1])
            or self.queue[0].failures
        ):
            return None
        size = self._size(worker)
        if self.breaker.may_trip:  # a judge may fail on one category, by which the queue is sorted
            self.queue.rotate(size)
        batch: list[Ask] = []
        questions: list[strict_json.JsonObject] = []
        while self.queue and len(batch) < size:
            if batch and self.queue[0].failures:
                break
            ask = self.queue.popleft()
            if ask.work.error is not None:  # another call about this edit failed
                continue
            try:
                questions.append(_plain(self.scorer.question(ask)))
                batch.append(ask)
            except errors.ImageError as error:
                ask.work.fail("score", "bad_image", str(error))
                self.done(ask.work)
            if ask.failures:
                break
        if not batch:
            return None
        if self.canary is not None:
            self.canary.count(len(batch))
        return batch, {"op": "judge", "questions": questions}

    def _size(self, worker: Worker) -> int:
        if self.scorer.settings.batch_size != "auto":
            return self.scorer.settings.batch_size
        return min(worker.batch_size, math.ceil(len(self.queue) / len(self.pool.slots)))

    def _of_canary(self, canary: Canary) -> list[strict_json.JsonObject]:
        """Return the canary's questions if they are due: also after the last job has ended."""
        is_idle = not any(worker.jobs for worker in self.pool.workers)
        is_fed = self.feed is not None and self.may_get_more()
        ends = is_idle and not self.queue and not is_fed
        if not canary.is_due(ends):
            return []
        canary.leave()
        try:
            return [
                _plain(self.scorer.question_about(canary.pair, canary.call, picture.read()))
                for picture in canary.pictures.values()
            ]
        except errors.ImageError:
            canary.take([])
            return []

    def _take_from(self, feed: Feed, worker: Worker) -> bool:
        """Queue what has come through the feed; return whether there is enough for a batch."""
        if feed.aborted:
            return False
        is_open = feed.is_open  # read first, so that no edit that comes in between is missed
        if works := feed.take():
            retried = [ask for ask in self.queue if ask.failures]
            fresh = [ask for ask in self.queue if not ask.failures]
            fresh = sorted([*fresh, *self._asks(works)], key=lambda ask: _order(ask.work))
            self.queue = deque([*fresh, *retried])
        size = self.scorer.settings.batch_size
        full = worker.batch_size if size == "auto" else size
        return not is_open or len(self.queue) >= max(1, full // 4)

    def finish(self, batch: list[Ask], worker: Worker, reply: messages.JobReply) -> None:
        """Turn the reply on a batch into verdicts and errors; queue what is to be asked again.

        Calls of a batch that failed are made once more, alone.
        """
        again: list[Ask] = []
        open_works = {id(ask.work): ask.work for ask in batch if ask.work.is_open}
        if reply["op"] == "error":
            if not batch[0].failures:
                self.breaker.failed(reply["kind"], reply["message"])
            if self.retries.allow(batch[0].failures, worker, reply["kind"]) or len(batch) > 1:
                again = batch
                for ask in batch:
                    ask.failures += 1
            else:
                batch[0].work.fail("score", reply["kind"], reply["message"])
        else:
            assert reply["op"] == "judged", "a judge was asked, and not an editor"
            self.breaker.worked()
            for ask, fields in zip(batch, reply["answers"], strict=True):
                if self.scorer.read(ask, requests.Answer(**fields), worker):
                    again.append(ask)
            if batch[0].failures:
                self.retries.helped()
        self.queue.extend(again)
        if again != batch:
            self.scorer.keep([ask for ask in batch if ask not in again])
        ended = [work for work in open_works.values() if not work.is_open]
        worker.jobs_done += sum(work.verdict is not None for work in ended)
        for work in ended:
            self.done(work)


def _plain(question: requests.Question[bytes]) -> strict_json.JsonObject:
    """Return the fields of a question as they go over the wire."""
    return {**vars(question), "preparation": vars(question.preparation)}


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
