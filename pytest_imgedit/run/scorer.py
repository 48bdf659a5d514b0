"""A scorer: a judge or metric of a run, which gives every edit a judgement."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import environments, errors, redaction, requests, results
from pytest_imgedit.core.breaker import Breaker
from pytest_imgedit.core.measures import further_score
from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.run.answers import AnswerReader, BadScore, Dropped, Unread
from pytest_imgedit.run.canary import JudgeCanary, make_canary
from pytest_imgedit.run.questions import Ask, reply_recipe
from pytest_imgedit.run.work import FIRST, Judgement, Work, record_to_reuse
from pytest_imgedit.store.journal import VerdictRecord
from pytest_imgedit.store.judge_cards import people_shares
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Worker

#: How often the limit of a reply that was cut is doubled.
DOUBLINGS = 2
#: Stands for any problem in the text of a reminder by which records are compared.
_PROBLEM = "…"


def named_measures(
    name: str, model: Model, aspects: Mapping[str, results.Measure]
) -> dict[str, results.Measure]:
    """Return what an additional judge or metric measures edits by: a metric by `NAME`, a judge by
    `NAME.score` and by `NAME.ASPECT` for its `aspects`.
    """
    main = model.measure.model_copy(update={"is_main": True})
    if model.role == "metric":
        return {name: main}
    measures = {further_score(name): main}
    for aspect, measure in aspects.items():
        measures[f"{name}.{aspect}"] = measure.model_copy(update={"is_main": False})
    return measures


class TokenCount:
    """Counts the tokens of a judge's answers in a run, also of those that cannot be read."""

    def __init__(self) -> None:
        self.tokens = {"tokens_in": 0, "tokens_out": 0}
        #: How often each model answered, as the server named it.
        self.models: Counter[str] = Counter()

    def add(self, answer: requests.Answer) -> None:
        """Count the tokens of an answer."""
        self.tokens["tokens_in"] += answer.tokens_in
        self.tokens["tokens_out"] += answer.tokens_out

    def usage(self, prices: tuple[float, float] | None) -> results.Usage | None:
        """Return the tokens and their cost; `None` for a judge without prices."""
        if prices is None:
            return None
        cost = requests.token_cost(self.tokens.values(), prices)
        return results.Usage(**self.tokens, cost=round(cost, 6) if any(prices) else None)


class Scorer:
    """Scores edits with one judge and one protocol, or with one metric.

    The judge whose verdicts decide the items is the first scorer of a run; additional judges and
    metrics have the `name` that the settings give them. The `protocol` is by default that of the
    settings. Replies are stored without the secrets that
    the settings name.
    """

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        store: Store,
        name: str = FIRST,
        *,
        protocol: Protocol | None = None,
    ) -> None:
        self.name = name
        self.settings = settings.judge
        self.identity = identity
        self.store = store
        self.protocol = protocol or load_protocol(settings)
        self.reader = AnswerReader(identity, self.protocol)
        self.redactor = settings.redactor
        self.first_at = 0.0  # when the first batch was scored, by the run's clock
        self.tally = TokenCount()
        self.canary: JudgeCanary | None = None
        #: Counts failures in a row over all stages of the run, which may be short.
        self.breaker = Breaker("verdicts")

    @property
    def model(self) -> Model:
        return self.identity.model

    @property
    def is_judge(self) -> bool:
        """Whether it is a judge; else it is a metric."""
        return self.model.role == "judge"

    @property
    def title(self) -> str:
        """What it is called in lines of a run."""
        return f"{self.model.role} {self.name}".rstrip()

    @property
    def aspects(self) -> Mapping[str, results.Measure]:
        """What the judge or the protocol declares that edits are measured by, beside the score."""
        return (self.model.aspects or {}) if self.model.measures else self.protocol.measures

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        """What items are measured by, beside the score: aspects of the first judge, or the measures
        of an additional judge or metric, which bear its name.
        """
        if self.name == FIRST:
            return self.aspects
        return named_measures(self.name, self.model, self.aspects)

    @property
    def usage(self) -> results.Usage | None:
        """The tokens of this run's answers and their cost; `None` for a judge without prices."""
        return self.tally.usage(self.model.requirements.prices)

    @property
    def facts(self) -> dict[str, Any]:
        """What results tell of the judge and its protocol: fields of `JudgeInfo`."""
        has_protocol = not self.model.measures
        protocol_sha256 = self.protocol.sha256 if has_protocol else None
        canary = None
        if self.canary is not None and self.canary.rounds:
            canary = self.canary.info
        return {
            "spec": redaction.mask_shapes(self.model.spec),
            **self.identity.told,
            "decoder": self.identity.recipe.get("decoder"),
            "usage": self.usage,
            "returned": dict(self.tally.models),
            "canary": canary,
            "protocol": self.protocol.name if has_protocol else None,
            "variant": self.protocol.variant if has_protocol else None,
            "protocol_sha256": protocol_sha256,
            "people": people_shares(self.store.folder, self.identity.digest, protocol_sha256),
        }

    @property
    def reasks(self) -> int:
        """How often a question is asked again; scripts of protocols' authors never do."""
        return 0 if self.reader.is_compat else self.settings.reasks

    @property
    def doublings(self) -> int:
        """How often a question whose reply was cut is asked again with twice the limit."""
        return DOUBLINGS if self.model.reply_limit > 0 and not self.reader.is_compat else 0

    @property
    def most_asks(self) -> int:
        """How often one question is asked at most."""
        return 1 if self.model.measures else 1 + self.reasks + self.doublings

    def judgements(self, works: Iterable[Work]) -> list[Judgement]:
        """Return the scorer's judgements of works."""
        return [work.judged_by(self.name) for work in works]

    def scorable(self, works: Iterable[Work]) -> list[Work]:
        """Return the works of pairs that have what the scorer needs."""
        return [work for work in works if work.reference or not self.model.needs_reference]

    def asks(self, judgement: Judgement) -> list[Ask]:
        """List the calls about an edit that have no answer yet; none once an answer was a score."""
        if any(record.measured is not None for record in judgement.answers.values()):
            return []
        calls: Sequence[Call | None] = [None]
        if not self.model.measures:
            calls = self.protocol.checked_calls(judgement.pair)
        asks = [Ask(judgement, call) for call in calls]
        return [ask for ask in asks if ask.name not in judgement.answers]

    def recall(self, judgement: Judgement, policy: environments.Reuse) -> None:
        """Give a judgement the answers of earlier runs that the policy allows; if no call lacks
        one, also the verdict that they amount to.

        An answer that took reminders counts only while these read the same and as many are allowed.
        """
        judgement.answers = {}
        for ask in self.asks(judgement):
            record = record_to_reuse(
                self.store.verdicts.of_content(environments.key(reply_recipe(self.identity, ask))),
                self.identity.here,
                policy,
                partial(self._is_usable, ask),
            )
            if record is not None:
                judgement.answers[ask.name] = record
        try:
            self._conclude(judgement)
        except errors.ReplyError:  # what the protocol makes of replies has changed
            judgement.answers = {}

    def _is_usable(self, ask: Ask, record: VerdictRecord) -> bool:
        """Tell whether a stored answer would be taken today: a number on the scale of a scorer that
        measures, or a reply that can be read, after reminders that would be given again.
        """
        if ask.call is None:
            return record.measured is not None and self.reader.is_on_scale(record.measured)
        if record.asked > 1 and not (
            record.asked <= 1 + self.reasks
            and record.reminder == self.protocol.remind(ask.call, _PROBLEM)
        ):
            return False
        try:
            self.reader.numbers(ask.call, record)
        except errors.ReplyError:
            return False
        return True

    def start_canary(self, judgements: Iterable[Judgement]) -> JudgeCanary | None:
        """Return the canary of a judge that has these judgements to make, the same one each time;
        `None` as long as it needs none.
        """
        if self.canary is None:
            waiting = [
                judgement
                for judgement in judgements
                if judgement.error is None and judgement.verdict is None
            ]
            questions = 0
            if self.model.is_served:
                questions = sum(len(self.asks(judgement)) for judgement in waiting)
            works = [judgement.work for judgement in waiting]
            self.canary = make_canary(self.model, self.protocol, works, questions)
        return self.canary

    def count(self, answer: requests.Answer) -> None:
        """Count an answer to a question: its tokens, and the model that gave it."""
        self.tally.add(answer)
        if answer.model:
            self.tally.models[answer.model] += 1

    def take_answer(self, ask: Ask, answer: requests.Answer, worker: Worker) -> bool:
        """Take an answer to a call: it ends the judgement, or waits for the answers to other calls.

        Returns whether the call must be made again instead.
        """
        judgement = ask.judgement
        self.count(answer)
        if answer.error is not None:
            kind = "refused" if answer.refused else "judge"
            judgement.fail(kind, self._shortened(judgement.work.located(answer.error)))
            return False
        try:
            if answer.cut and not self.reader.is_compat:  # within a number, or a thought
                raise errors.CutReply(
                    "the reply was cut short, expected a larger judge.max_new_tokens or shorter "
                    "replies"
                )
            self._add_record(ask, self._record(ask, answer, worker))
        except BadScore as error:
            judgement.fail("bad_score", self._shortened(str(error)))
        except errors.ReplyError as error:
            if self._ask_again(ask, error):
                return True
            judgement.fail(
                "unreadable_reply",
                self._shortened(str(error)),
                self.redactor.text(answer.reply),
            )
        return False

    def _shortened(self, message: str) -> str:
        return shorten(message, mask=self.redactor.text)

    def _ask_again(self, ask: Ask, error: errors.ReplyError) -> bool:
        """Prepare a call whose reply cannot be read to be asked again, with twice the limit or a
        reminder; return `False` if it has been asked often enough.
        """
        is_cut = isinstance(error, errors.CutReply)
        if is_cut and ask.doublings < self.doublings:
            ask.doublings += 1
            return True
        if ask.call is None or len(ask.reminders) >= self.reasks:
            return False
        if is_cut and ask.doublings:
            return False
        problem = "it was too long" if is_cut else str(error)
        ask.reminders.append(self.protocol.remind(ask.call, problem))
        return True

    def _add_record(self, ask: Ask, record: VerdictRecord) -> None:
        """Give a judgement an answer; the last one makes the verdict. Raises `ReplyError` for an
        answer that does not count.
        """
        judgement = ask.judgement
        self.reader.numbers(ask.call, record)
        judgement.answers[ask.name] = record
        try:
            self._conclude(judgement)
        except errors.ReplyError:
            del judgement.answers[ask.name]
            raise

    def _conclude(self, judgement: Judgement) -> None:
        """Give a judgement with all its answers the verdict that they amount to; one that `compat`
        drops, or whose replies it cannot read, gets an error that says so. Raises `ReplyError` for
        numbers that make no score.
        """
        if self.asks(judgement):
            return
        for record in judgement.answers.values():
            self.store.environments[record.environment.digest] = record.environment
        try:
            judgement.verdict = self.reader.verdict(judgement.pair, judgement.answers)
        except Dropped as dropped:
            judgement.fail("dropped", str(dropped), dropped.replies)
        except Unread as unread:  # its answers are stored: compat asks nothing again
            judgement.fail("unreadable_reply", self._shortened(str(unread)), unread.replies)

    def _record(self, ask: Ask, answer: requests.Answer, worker: Worker) -> VerdictRecord:
        """Return the record of an answer; raises `BadScore` for numbers of its own that are off
        their scales.
        """
        recipe = reply_recipe(self.identity, ask)
        measured = self.reader.measured(answer)
        aspects: dict[str, float] = {}
        if answer.score is not None:
            aspects.update(answer.aspects)
        expected, off_scale = self.reader.expected(ask.call, answer)
        reminder = ""
        if ask.call is not None and ask.reminders:
            reminder = self.protocol.remind(ask.call, _PROBLEM)
        return VerdictRecord(
            key=environments.key(recipe, worker.computes_in),
            content=environments.key(recipe),
            recipe=recipe,
            environment=worker.computes_in,
            code=self.identity.code_beside(worker.code),
            reply=self.redactor.text(answer.reply),
            score=measured if self.is_judge else None,
            value=None if self.is_judge else measured,
            aspects=aspects,
            expected=expected,
            off_scale=off_scale,
            batch_size=answer.batch_size,
            model=answer.model,
            asked=1 + len(ask.reminders),
            reminder=reminder,
            finish_reason=self.redactor.text(answer.finish_reason),
        )

    def keep(self, asks: Iterable[Ask]) -> None:
        """Store the answers to calls; raises `StoreError`, and then none of them counts."""
        answered = [ask for ask in asks if ask.name in ask.judgement.answers]
        if not answered:
            return
        try:
            self.store.verdicts.append([ask.judgement.answers[ask.name] for ask in answered])
        except BaseException:
            for ask in answered:
                del ask.judgement.answers[ask.name]
                ask.judgement.verdict = None
                ask.judgement.score_error = None
            raise
