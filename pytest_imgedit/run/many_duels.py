"""Has a judge alone compare the edits of every pair of several finished runs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal, TextIO

from pytest_imgedit.core import errors, results
from pytest_imgedit.core.choices import Winner
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.measures import SCORE
from pytest_imgedit.core.pairs import slug
from pytest_imgedit.run.costs import Billing
from pytest_imgedit.run.duels import (
    Bout,
    ControlDuels,
    Opponent,
    duel_measures,
    duel_pairs,
    judgements_of,
    pairwise_scorer,
)
from pytest_imgedit.run.forecast import first_requests
from pytest_imgedit.run.judge_alone import BoutRun, Prepared, ask_judge
from pytest_imgedit.run.judge_trials import Trials, plan_trials
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.planned_works import make_works
from pytest_imgedit.run.run import RunContext
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.session import Session
from pytest_imgedit.run.work import FIRST, DuelJudgement, Judgement, Work
from pytest_imgedit.stats.duels import EVEN, DuelTrial, disagreement_of
from pytest_imgedit.stats.estimates import share_of

#: Who is shown first in a vote: a system, or nobody where scores decide.
Shown = Literal["a", "b", ""]
#: A duel that was decided elsewhere: two runs in the order of their ids, and the id of a vote.
Decided = tuple[str, str, str]
_SHOWN: dict[str, Shown] = {"now": "a", "before": "b", "": ""}


@dataclass(frozen=True)
class Entrant(Opponent):
    """A run or a baseline that takes part, by the name of its `system`."""

    system: str = field(kw_only=True)


@dataclass(frozen=True)
class Contest:
    """The duels of two entrants, whose runs are in the order of their ids; `now` is the edit of the
    first in all `bouts`.
    """

    a: Entrant
    b: Entrant
    bouts: Sequence[Bout]

    @property
    def undecided(self) -> list[Bout]:
        """The bouts that lack a vote."""
        return [bout for bout in self.bouts if _value(bout) is None]

    @cached_property
    def duels(self) -> dict[str, results.DuelPair]:
        """The duels of each pair by its id, as results have them."""
        return duel_pairs(self.bouts)

    @cached_property
    def share(self) -> results.Share:
        """The share of duels that the first entrant wins, over source images."""
        known = {name: pair.value(SCORE) for name, pair in self.duels.items()}
        shares = {name: share for name, share in known.items() if share is not None}
        return share_of(list(shares.values()), [self._clusters[name] for name in shares])

    @cached_property
    def disagreement(self) -> results.Share:
        """The share of pairs in which the vote changes with the order of the edits."""
        return disagreement_of(SCORE, self.duels, self._clusters)

    @property
    def _clusters(self) -> dict[str, str]:
        return {bout.work.pair.id: _source_of(bout) or bout.work.pair.id for bout in self.bouts}

    def vote_id(self, bout: Bout) -> str:
        """Return the id of a vote: that of its pair, with the seed where one of the runs has
        several.
        """
        has_several = max(self.a.baseline.seeds, self.b.baseline.seeds) > 1
        return f"{bout.work.pair.id}#{bout.work.seed}" if has_several else bout.work.pair.id

    def without(self, decided: Collection[Decided]) -> "Contest":
        """Return the contest without the bouts that were decided elsewhere."""
        runs = (self.a.baseline.run, self.b.baseline.run)
        bouts = [
            bout
            for bout in self.bouts
            if (*runs, self.vote_id(bout)) not in decided
            and (*runs, bout.work.pair.id) not in decided
        ]
        return replace(self, bouts=bouts)

    def votes(self, judge: str, dimensions: Sequence[str], by_scores: bool) -> Iterator[DuelVote]:
        """Yield the votes; equal edits are a tie in each order, and a vote that ended in an error
        is none.
        """
        for bout in self.bouts:
            for first, dimension, winner in _winners(bout, dimensions, by_scores):
                yield DuelVote(
                    pair=self.vote_id(bout),
                    a=self.a.baseline.run,
                    b=self.b.baseline.run,
                    winner=winner,
                    first=first,
                    judge=judge,
                    dimension=dimension,
                    category=bout.work.pair.category,
                    cluster=_source_of(bout),
                )


def _value(bout: Bout) -> float | None:
    return results.DuelPair(seeds=(bout.result,)).value(SCORE)


def _source_of(bout: Bout) -> str:
    return "" if bout.work.source is None else bout.work.source.sha256


def _winners(
    bout: Bout, dimensions: Sequence[str], by_scores: bool
) -> Iterator[tuple[Shown, str, Winner]]:
    """Yield the system that is shown first, the dimension and the winner of each vote."""
    result = bout.result
    if result.is_identical:
        orders: Sequence[Shown] = ("",) if by_scores else ("a", "b")
        for first in orders:
            for dimension in dimensions:
                yield first, dimension, "tie"
    for vote in result.votes:
        for dimension in dimensions:
            if dimension in vote.values:
                yield _SHOWN[vote.first], dimension, _winner(vote.values[dimension])


def _winner(share_of_a: float) -> Winner:
    if share_of_a == EVEN:
        return "tie"
    return "a" if share_of_a > EVEN else "b"


@dataclass(kw_only=True)
class ManyDuels(ControlDuels):
    """The duels of all pairs of entrants, and those of the judge's controls."""

    contests: Sequence[Contest]

    @property
    def bouts(self) -> list[Bout]:
        """The bouts of all pairs of entrants."""
        return [bout for contest in self.contests for bout in contest.bouts]

    @property
    def of_pairs(self) -> list[Judgement]:
        """The judgements that bouts need, each once."""
        return list(dict.fromkeys(judgements_of(self.bouts)))

    @property
    def judgements(self) -> list[Judgement]:
        """The judgements without a verdict, those of the controls too, each once."""
        judgements = dict.fromkeys(self.of_pairs + judgements_of(self.of_controls))
        return [judgement for judgement in judgements if judgement.verdict is None]

    def keep_edits(self) -> None:
        """Put the edits of all entrants into the store; one that is gone becomes an error where it
        is shown.
        """
        blobs = self.scorer.store.blobs
        for contest in self.contests:
            for bout in contest.bouts:
                for entrant, sha256 in ((contest.a, bout.now), (contest.b, bout.before)):
                    if sha256 is not None and not blobs.has(sha256):
                        data = entrant.edit_of(sha256)
                        if data is not None:
                            blobs.put(data, durable=False)

    @property
    def usual_reason(self) -> str:
        """The most frequent reason why a vote is missing; an empty text if none is."""
        reasons: Counter[str] = Counter()
        for contest in self.contests:
            for bout in contest.undecided:
                found = [vote.error.message for vote in bout.result.votes if vote.error]
                reasons[found[0] if found else _why_unasked(contest, bout)] += 1
        return max(reasons, key=reasons.__getitem__, default="")


def _why_unasked(contest: Contest, bout: Bout) -> str:
    """Say which edit is missing."""
    error = bout.work.edit_error
    return f"{contest.b.system} has no edit" if error is None else error.message


@dataclass(frozen=True)
class Drawing:
    """Makes the bouts of entrants; two that need the same answer share its judgement.

    `texts` has a work without an edit for each pair that a run tells the texts of.
    """

    texts: Mapping[str, Work]
    by_scores: bool
    _works: dict[str, dict[tuple[str, int], Work]] = field(default_factory=dict)
    _alone: dict[tuple[str, str], Judgement] = field(default_factory=dict)
    _asked: dict[tuple[str, str, str], DuelJudgement] = field(default_factory=dict)

    def contest(self, a: Entrant, b: Entrant) -> Contest:
        """Return the duels of the pairs and seeds that two entrants have; one that neither has an
        edit of is left out.
        """
        if a.baseline.run > b.baseline.run:
            a, b = b, a
        works = self.works(a)
        others = self.works(b)
        bouts = []
        for key, work in works.items():
            if key in others and (work.edit is not None or others[key].edit is not None):
                bouts.append(self._bout(work, others[key]))
        return Contest(a, b, bouts)

    def works(self, entrant: Entrant) -> dict[tuple[str, int], Work]:
        """Return a work with its edit, or why it has none, for each pair and each of its seeds; the
        same ones each time.
        """
        if entrant.system not in self._works:
            self._works[entrant.system] = self._works_of(entrant)
        return self._works[entrant.system]

    def _works_of(self, entrant: Entrant) -> dict[tuple[str, int], Work]:
        works = {}
        for item in entrant.baseline.items:
            text = self.texts.get(item.id)
            if text is None or item.status == "not_needed":
                continue
            for seed in item.seeds:
                work = replace(text, seed=seed.seed)
                if seed.edit is None:
                    work.fail("no_edit", f"{entrant.system} has no edit")
                elif work.source is not None:
                    width, height = work.source.size
                    work.edit = results.Edit(seed.edit, 0.0, "", width=width, height=height)
                works[item.id, seed.seed] = work
        return works

    def _bout(self, work: Work, other: Work) -> Bout:
        before = None if other.edit is None else other.edit.blob
        bout = Bout(work, before)
        if before is None or bout.now in (None, before):
            return bout
        if self.by_scores:
            bout.scored = (self._judged_alone(other), self._judged_alone(work))
        else:
            bout.votes = {
                "now": self._judged(work, before, comes_second=False),
                "before": self._judged(work, before, comes_second=True),
            }
        return bout

    def _judged_alone(self, work: Work) -> Judgement:
        assert work.edit is not None
        return self._alone.setdefault((work.pair.id, work.edit.blob), work.judgement)

    def _judged(self, work: Work, other: str, *, comes_second: bool) -> DuelJudgement:
        assert work.edit is not None
        first, second = (other, work.edit.blob) if comes_second else (work.edit.blob, other)
        judgement = DuelJudgement(work, other=other, comes_second=comes_second)
        return self._asked.setdefault((work.pair.id, first, second), judgement)


@dataclass(frozen=True)
class Judged:
    """The duels of several runs, as far as they were decided by the judge of `scorer`.

    `votes` are those of the judge, by which results are told, and `trials` what is known of the
    duels of its controls. `undecided` of all `duels` lack a vote, usually for `reason`.
    """

    scorer: Scorer
    by_scores: bool
    contests: Sequence[Contest]
    votes: Sequence[DuelVote]
    trials: Sequence[DuelTrial]
    duels: int
    undecided: int
    reason: str

    @property
    def file_name(self) -> str:
        """The name of the file of the judge's votes."""
        return f"{slug(rater_of(self.scorer))}.csv"


def rater_of(scorer: Scorer) -> str:
    """Return who votes: a judge, asked by a protocol, with the first characters of its digest, as
    its answers are others by another protocol or with other parameters.
    """
    facts = scorer.facts
    protocol = "scores"
    if facts["protocol"]:
        protocol = f"{facts['protocol']}@{facts['variant']}"
    return f"{facts['spec']} ({protocol} {scorer.identity.digest[:8]})"


def judge_contests(
    session: Session,
    entrants: Sequence[Entrant],
    *,
    has_measured: bool,
    decided: Collection[Decided],
    file: TextIO,
) -> Judged:
    """Have the judge of a session, whose suite has the texts of all pairs, decide between the edits
    of every two entrants; `file` takes the plan and the progress.

    The edits of the last entrant stand for right ones in the judge's trial, if there are no
    references. `has_measured` says that the judge is known to give scores, and what was `decided`
    elsewhere is not asked. Votes are kept in the store. Raises `UsageError` for wrong settings, for
    a judge that cannot be reached or fails alike each time, and for two entrants that share no pair
    and seed.
    """
    session.check_duels()

    def prepare(plan: RunPlan) -> Prepared[BoutRun[ManyDuels]]:
        assert plan.scorer is not None
        pairwise = None if has_measured else pairwise_scorer(session.settings, plan.scorer)
        works = make_works(plan.request.pairs, plan.request.pairs, plan.editor, plan.store)
        drawing = Drawing({work.pair.id: work for work in works}, by_scores=pairwise is None)
        contests = [drawing.contest(a, b) for a, b in combinations(entrants, 2)]
        for contest in contests:
            _require_bouts(contest)
        asked = [contest.without(decided) for contest in contests]
        elsewhere = sum(len(contest.bouts) for contest in contests)
        elsewhere -= sum(len(contest.bouts) for contest in asked)
        last = list(drawing.works(entrants[-1]).values())
        scorer = pairwise or plan.scorer

        def duels(*, makes_edits: bool) -> ManyDuels:
            found = ManyDuels(scorer=scorer, by_scores=pairwise is None, contests=asked)
            found.add_controls(_trials(plan, last, makes_edits=makes_edits), last)
            return found

        planned = duels(makes_edits=False)
        if not plan.settings.run.fresh:
            for judgement in planned.of_pairs:
                scorer.recall(judgement, plan.settings.run.reuse)
        lines = [_line(planned, plan, len(entrants))]
        if elsewhere:
            lines.append(f"{_counted(elsewhere, 'duel')} that other votes decided left out")
        plan, bill = _with_bill(plan, planned)
        lines += bill

        def make(plan: RunPlan, context: RunContext) -> BoutRun[ManyDuels]:
            of_run = duels(makes_edits=True)
            of_run.keep_edits()
            return BoutRun(plan, context, of_run)

        return Prepared(plan, lines, make)

    duels = ask_judge(session, file, prepare).bouts
    assert duels is not None
    return _judged(duels)


def _judged(duels: ManyDuels) -> Judged:
    rater = rater_of(duels.scorer)
    measures = list(duel_measures(None if duels.by_scores else duels.scorer.protocol))
    dimensions = measures[1:] or measures
    votes = [
        vote
        for contest in duels.contests
        for vote in contest.votes(rater, dimensions, duels.by_scores)
    ]
    return Judged(
        scorer=duels.scorer,
        by_scores=duels.by_scores,
        contests=duels.contests,
        votes=votes,
        trials=list(duels.trials),
        duels=len(duels.bouts),
        undecided=sum(len(contest.undecided) for contest in duels.contests),
        reason=duels.usual_reason,
    )


def _require_bouts(contest: Contest) -> None:
    if not contest.bouts:
        names = f"{contest.a.system} ({contest.a.baseline.run}) and {contest.b.system}"
        raise errors.UsageError(
            f"{names} ({contest.b.baseline.run}) share no pair and seed with an edit, expected "
            "edits of the same pairs and seeds, whose texts one of the runs has"
        )


def _trials(plan: RunPlan, works: Sequence[Work], *, makes_edits: bool) -> Trials:
    """Return the trials of the judge; edits that the store lacks are made, if `makes_edits`."""
    assert plan.scorer is not None
    return plan_trials(
        plan.scorer,
        plan.settings,
        plan.request.suite,
        pairs=plan.request.pairs,
        run_works=works,
        makes_edits=makes_edits,
    )


def _line(duels: ManyDuels, plan: RunPlan, runs: int) -> str:
    """Say how many duels there are, and how many questions about them the store answers."""
    judgements = duels.of_pairs
    waiting = [judgement for judgement in judgements if judgement.verdict is None]
    stored = len(judgements) - len(waiting)
    billing = Billing(plan.settings.run)
    asks = len(billing.questions(duels.scorer, waiting).asks)
    protocol = f"protocol {duels.scorer.protocol.label}, in both orders"
    of_store = _counted(stored, "vote")
    to_ask = f"{_counted(asks, 'question')} to ask"
    if duels.by_scores:
        protocol = "by the difference of the judge's scores"
        of_store = _counted(stored, "score")
        to_ask = f"{_counted(asks, 'edit')} to score"
    line = (
        f"plan: {runs} runs, {_counted(len(duels.contests), 'pair')} of them, {protocol}: "
        f"{_counted(len(duels.bouts), 'duel')}, {of_store} stored, {to_ask}"
    )
    if duels.controls:
        of_controls = Billing(plan.settings.run).questions(
            duels.scorer, judgements_of(duels.of_controls)
        )
        line += f", and {len(of_controls.asks):,} of the judge's trial"
    return line


def _counted(number: int, noun: str) -> str:
    """Return a number of four digits or more with commas, and its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _with_bill(plan: RunPlan, duels: ManyDuels) -> tuple[RunPlan, list[str]]:
    """Return a plan with what its judge will be asked, and the line that says so, if the judge has
    a price or is behind a server.
    """
    scorer = plan.scorer
    assert scorer is not None
    model = scorer.model
    if not model.is_served and model.requirements.prices is None:
        return plan, []
    tries = first_requests(plan, model)
    bill = Billing(plan.settings.run).bill(scorer, (), Trials(), tries, duels)
    verdicts = [judgement.verdict for judgement in duels.of_pairs]
    known = sum(len(verdict.keys) for verdict in verdicts if verdict is not None)
    bill = replace(bill, stored=bill.stored + known)
    line = bill.line(scorer.title, model.requirements.prices or (0.0, 0.0))
    return replace(plan, bills={FIRST: bill}), [line]
