"""The bill of a run: what its judges and a served editor will be asked, before anything is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core import environments
from pytest_imgedit.core.requests import token_cost
from pytest_imgedit.core.results import JudgeInfo, Results
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.protocols.protocol import Call
from pytest_imgedit.run.canary import make_canary, rounds_of
from pytest_imgedit.run.duels import AskedDuels, Duels, judgements_of
from pytest_imgedit.run.first_edits import FirstEdits
from pytest_imgedit.run.first_questions import FirstQuestion, first_question
from pytest_imgedit.run.judge_trials import Trials
from pytest_imgedit.run.questions import Ask, reply_recipe, shown_size
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import Judgement, Work

#: Rough numbers of bytes of text in a token, and of tokens of a grade behind its label and of a
#: reply that gives reasons.
BYTES_A_TOKEN = 4
TOKENS_OF_A_GRADE = 2
TOKENS_OF_REASONS = 150
#: What a first question or edit is for.
TO_TRY = "to try the server"
TO_TRY_SEVERAL = "to try the servers"
#: Fields of a judge that two runs have in common if their questions are about as long.
SAME_QUESTIONS = ("spec", "params", "protocol", "variant", "protocol_sha256")


@dataclass(frozen=True)
class Bill:
    """What one judge will be asked: the `lowest` number of questions if every edit succeeds and
    every reply can be read, and the `highest` with re-asks.

    `parts` says what the lowest number is made of, `stored` counts questions that the store
    answers, and `tokens` are rough ones of a question and of a reply, or those of the run `origin`.
    The server of the judge is tried with `first`.
    """

    lowest: int
    highest: int
    parts: tuple[str, ...]
    stored: int
    tokens: tuple[float, float]
    origin: str = ""
    first: FirstQuestion | None = None

    def line(self, title: str, prices: tuple[float, float]) -> str:
        """Say what the judge will be asked, and what that costs; `prices` are those of a million
        tokens in and out, both 0 if they are not known.
        """
        parts = f" ({', '.join(self.parts)})" if self.parts else ""
        questions = "question" if self.highest == 1 else "questions"
        line = f"plan: {title}: {_span(self.lowest, self.highest)} {questions}{parts}"
        line += f", {self.stored:,} in the store"
        if not (self.highest and any(self.tokens)):
            return line
        tokens_in, tokens_out = self.tokens
        line += f"; about {self._rough_span(tokens_in)} input"
        line += f" and {self._rough_span(tokens_out)} output tokens"
        if self.origin:
            line += f", as in run {self.origin}"
        if any(prices):
            question_cost = token_cost(self.tokens, prices)
            lowest_cost = f"{self.lowest * question_cost:.3g}"
            highest_cost = f"{self.highest * question_cost:.3g}"
            cost = _joined(lowest_cost, highest_cost)
            line += f", about {cost} by judge.price_in and judge.price_out"
        return line

    def _rough_span(self, tokens: float) -> str:
        """Format the tokens of all questions, where each has this many."""
        return _span(_rounded(self.lowest * tokens), _rounded(self.highest * tokens))


class Billing:
    """Counts what the judges of a run will be asked, in the order in which they are.

    What one is asked is in the store for those after it. A run that `may_end_early` may ask fewer
    questions, and asks its canary after every block.
    """

    def __init__(self, run: RunSettings, may_end_early: bool = False) -> None:
        self.run = run
        self.may_end_early = may_end_early
        self._answered: set[tuple[str, str]] = set()

    def bill(
        self,
        scorer: Scorer,
        works: Sequence[Work],
        trials: Trials,
        first_requests: int = 0,
        duels: AskedDuels | None = None,
    ) -> Bill:
        """Count the questions of a judge about works, in its trials and in duels, and those that
        come first, to try its servers.
        """
        about_edits = self.questions(scorer, [Judgement(work) for work in works])
        canary, highest_of_canary = self._canary(scorer, about_edits.asks)
        topics = {
            "edit": about_edits,
            "trial": self.questions(scorer, trials.of_controls),
            "repeat": self.questions(scorer, trials.repeats),
        }
        if duels is not None:
            topics["vote"] = self.questions(duels.scorer, duels.judgements)
        parts: list[str] = []
        asks: list[Ask] = []
        for noun, topic in topics.items():
            asks += topic.asks
            if topic.asks:
                parts.append(_part(topic.asks, noun))
        if canary:
            parts.append(f"{len(canary)} of the canary")
        questions = asks + canary
        repeated = sum(topic.repeated for topic in topics.values())
        highest = (len(asks) + repeated) * scorer.most_asks + highest_of_canary
        first = first_question(asks) if first_requests else None
        tries = 0 if first is None else first_requests
        if tries:
            parts.append(f"{tries} {TO_TRY if tries == 1 else TO_TRY_SEVERAL}")
        compared = scorer.model.compared_servers if asks else 0
        if compared:
            parts.append(f"{compared} to compare the servers")
        lowest = 0 if self.may_end_early else len(questions) + compared
        return Bill(
            lowest=lowest + tries,
            highest=highest + tries + compared,
            parts=tuple(parts),
            stored=sum(topic.stored for topic in topics.values()),
            tokens=_mean_tokens(questions, scorer.model),
            first=first,
        )

    def questions(self, scorer: Scorer, judgements: Iterable[Judgement]) -> "Questions":
        """Find the questions of judgements that will be put, and count those that will not."""
        questions = Questions()
        for judgement in judgements:
            if judgement.error is None:
                self._add_unanswered(questions, scorer, judgement)
        if self.run.fresh:
            return questions
        asks = questions.asks
        keys = [_key(scorer, ask) for ask in asks]
        questions.asks = [
            ask for ask, key in zip(asks, keys, strict=True) if key not in self._answered
        ]
        questions.repeated = len(asks) - len(questions.asks)
        self._answered.update(keys)
        return questions

    def _add_unanswered(self, questions: "Questions", scorer: Scorer, judgement: Judgement) -> None:
        """Add the questions of a judgement that the store does not answer, and count the others."""
        planned = replace(judgement, answers={})  # what is recalled here is for the bill alone
        asks = scorer.asks(planned)
        missing = asks
        if planned.edit is not None and scorer.store.verdicts.records and not self.run.fresh:
            scorer.recall(planned, self.run.reuse)
            missing = scorer.asks(planned)
        questions.asks += missing
        questions.stored += len(asks) - len(missing)

    def _canary(self, scorer: Scorer, asks: Sequence[Ask]) -> tuple[list[Ask], int]:
        """Return the questions of the canary if every reply can be read, and the number of them at
        most; none for a run without a canary.
        """
        works = [ask.judgement.work for ask in asks]
        canary = make_canary(scorer.model, scorer.protocol, works, len(asks))
        if canary is None:
            return [], 0
        asks_of_round = [Ask(Judgement(canary.work), canary.call)] * len(canary.pictures)
        most_rounds = rounds_of(len(asks) * scorer.most_asks)
        if self.may_end_early:  # a round after each block, which has at least one pair
            most_rounds += len({work.pair.id for work in works})
        return asks_of_round * rounds_of(len(asks)), len(asks_of_round) * most_rounds


@dataclass
class Questions:
    """The questions that will be put, how many the store answers, and how many will be answered by
    then, since the same was asked before.
    """

    asks: list[Ask] = field(default_factory=list)
    stored: int = 0
    repeated: int = 0


def duel_questions(duels: Duels, run: RunSettings) -> str:
    """Say how many questions duels take, apart from those of the judge's controls, and how many of
    both the store answers. They are put all at once, so that none answers another.
    """
    of_pairs = Billing(run).questions(duels.scorer, judgements_of(duels.bouts))
    of_controls = Billing(run).questions(duels.scorer, judgements_of(duels.of_controls))
    text = counted(len(of_pairs.asks), "question")
    if duels.controls:
        text += f", and {len(of_controls.asks):,} of the judge's trial"
    return f"{text}; {of_pairs.stored + of_controls.stored:,} in the store"


def _key(scorer: Scorer, ask: Ask) -> tuple[str, str]:
    """Return what an answer is stored by; an edit that is still to be made stands for itself."""
    recipe = environments.key(reply_recipe(scorer.identity, ask))
    work = ask.judgement.work
    return recipe, "" if work.edit else work.content


def _part(asks: Sequence[Ask], noun: str) -> str:
    """Say what questions are about: `3 edits`, or `6 for 3 edits` where an edit has several."""
    judgements = len({id(ask.judgement) for ask in asks})
    plural = noun if judgements == 1 else f"{noun}s"
    subject = f"{judgements:,} {plural}"
    return subject if judgements == len(asks) else f"{len(asks):,} for {subject}"


def editor_line(edits: int, first: FirstEdits, stored: int) -> str:
    """Say what a served editor will be asked for `edits` of the plan, after the `first`, and how
    many edits the store has.
    """
    requests = f"{edits + first.count:,} requests"
    if first.count:
        subject = f"{TO_TRY} and its seeds" if first.tries_seeds else TO_TRY
        requests += f" ({counted(edits, 'edit')}, {first.count} {subject})"
    return f"plan: editor: {requests}, {stored:,} in the store"


def with_known_tokens(bill: Bill, scorer: Scorer, runs: Iterable[Results]) -> Bill:
    """Return a bill with the mean tokens of the first of `runs` in which the same judge was asked
    by the same protocol; without such a run, the bill as it is.
    """
    facts = scorer.facts
    for run in runs:
        judges: list[JudgeInfo] = [run.judge]
        judges += run.further.values()
        for judge in judges:
            answers = _answers(judge)
            if answers and all(getattr(judge, name) == facts[name] for name in SAME_QUESTIONS):
                assert judge.usage is not None, "it has answers"
                tokens = (judge.usage.tokens_in / answers, judge.usage.tokens_out / answers)
                return replace(bill, tokens=tokens, origin=run.run.id)
    return bill


def _answers(judge: JudgeInfo) -> int:
    """Return how many answers the tokens of a judge were counted in, those to its canary too; 0 if
    its tokens are not known.
    """
    if judge.usage is None or not judge.usage.tokens_in:
        return 0
    answers = sum(judge.returned.values())
    if answers and judge.canary is not None:
        answers += judge.canary.answers
    return answers


def _mean_tokens(asks: Sequence[Ask], judge: Model) -> tuple[float, float]:
    """Return the mean rough tokens of questions and of replies to them."""
    count = max(1, len(asks))
    tokens_in = sum(_tokens_in(ask, judge) for ask in asks)
    tokens_out = sum(_tokens_out(ask.call) for ask in asks)
    return tokens_in / count, tokens_out / count


def _tokens_in(ask: Ask, judge: Model) -> float:
    """Return the rough tokens of a question; 0 for a judge that measures."""
    if ask.call is None:
        return 0.0
    texts = [ask.call.system]
    texts += [text for kind, text in ask.parts if kind == "text"]
    tokens = sum(len(text.encode(errors="replace")) for text in texts) / BYTES_A_TOKEN
    preparation = ask.call.preparation
    for name in ask.call.images:
        width, height = shown_size(ask.judgement.work, name, preparation)
        tokens += judge.image_tokens(width, height, preparation)
    return tokens


def _tokens_out(call: Call | None) -> float:
    """Return the rough tokens of a reply: a call that may take long is one that wants reasons. A
    judge that measures replies with none.
    """
    if call is None:
        return 0.0
    grammar = call.grammar
    if call.max_new_tokens or grammar.form not in ("lines", "number"):
        return TOKENS_OF_REASONS
    labels = grammar.called if grammar.form == "lines" else ()
    grades = TOKENS_OF_A_GRADE * len(grammar.names)
    return grades + sum(len(label.encode()) for label in labels) / BYTES_A_TOKEN


def _span(lowest: float, highest: float) -> str:
    """Format a range of whole numbers; one number for a range of one."""
    return _joined(f"{lowest:,.0f}", f"{highest:,.0f}")


def _joined(lowest: str, highest: str) -> str:
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _rounded(number: float) -> float:
    """Round to two significant digits."""
    return float(f"{number:.2g}")
