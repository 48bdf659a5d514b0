"""Duels: the judge is asked which of two edits of a pair is better, this run's or another's."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal
from typing import Protocol as Interface

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import results
from pytest_imgedit.core.measures import SCORE, WIN
from pytest_imgedit.protocols.loading import load_duel_protocol
from pytest_imgedit.protocols.protocol import Protocol
from pytest_imgedit.run.judge_trials import Trials, first_works
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import DuelJudgement, Judgement, Work
from pytest_imgedit.stats.duels import DuelFacts, DuelTrial
from pytest_imgedit.store.baselines import Baseline

#: Controls that a right edit is to win against, and without references this run's own edits.
BELOW_ORACLE = ("identity", "shuffled", "blend")
BELOW_OWN = ("noise", "blank")
#: The edit that is shown first.
First = Literal["now", "before"]


@dataclass(frozen=True)
class Opponent:
    """The run or baseline that a run's edits are put against; `edit_of` reads an edit by its
    SHA-256, and returns `None` for one that is gone.
    """

    baseline: Baseline
    edit_of: Callable[[str], bytes | None]

    @property
    def edits(self) -> dict[tuple[str, int], str]:
        """The SHA-256 of each edit by pair and seed."""
        return {
            (item.id, seed.seed): seed.edit
            for item in self.baseline.items
            for seed in item.seeds
            if seed.edit is not None
        }


@dataclass(eq=False)
class Bout:
    """Two edits of one pair and seed: that of a `work`, and one `before` by its SHA-256; one of
    them may be missing.

    `votes` are the judgements by the edit that is shown first. Of a judge that measures, `scored`
    are those of both edits alone, before and now.
    """

    work: Work
    before: str | None
    votes: Mapping[First, DuelJudgement] = field(default_factory=dict)
    scored: tuple[Judgement, Judgement] | None = None

    @property
    def judgements(self) -> list[Judgement]:
        """The judgements that it needs."""
        return list(self.scored or self.votes.values())

    @property
    def now(self) -> str | None:
        """The SHA-256 of the edit of the work."""
        return None if self.work.edit is None else self.work.edit.blob

    @property
    def is_open(self) -> bool:
        """Whether a judgement is still to be made."""
        return any(judgement.is_open for judgement in self.judgements)

    @property
    def share_of_first(self) -> float | None:
        """The share of the votes for the edit that is shown first; `None` unless there are two."""
        verdicts = [judgement.verdict for judgement in self.votes.values()]
        shares = [verdict.aspects.get(SCORE) for verdict in verdicts if verdict is not None]
        known = [share for share in shares if share is not None]
        return fmean(known) if len(known) == 2 else None

    @property
    def result(self) -> results.DuelSeed:
        """The duel as results have it."""
        votes = [_vote(first, judgement) for first, judgement in self.votes.items()]
        if self.scored is not None:
            votes = [_vote_of_scores(*self.scored)]
        return results.DuelSeed(
            seed=self.work.seed, before=self.before, now=self.now, votes=tuple(votes)
        )


def _vote(first: First, judgement: Judgement) -> results.Vote:
    """Return the vote of a judgement, whose numbers are those of the edit that is shown first."""
    verdict = judgement.verdict
    if verdict is None:
        return results.Vote(first=first, error=judgement.error or _not_asked())
    if verdict.measured:
        problem = f"the judge gave a score, {verdict.score:g}, expected which edit is better"
        return results.Vote(first=first, error=results.ItemError("score", "bad_score", problem))
    values = {
        name: value if first == "now" else 1 - value for name, value in verdict.aspects.items()
    }
    return results.Vote(first=first, values=values, replies=verdict.replies, keys=verdict.keys)


def _vote_of_scores(before: Judgement, now: Judgement) -> results.Vote:
    """Return the vote of a judge that measures: for the edit of the higher score."""
    if before.verdict is None or now.verdict is None:
        return results.Vote(first="", error=now.error or before.error or _not_asked())
    scores = (before.verdict.score, now.verdict.score)
    win = 0.5 if scores[0] == scores[1] else float(scores[1] > scores[0])
    return results.Vote(first="", values={SCORE: win}, scores=scores)


def _not_asked() -> results.ItemError:
    return results.ItemError("score", "interrupted", "the run ended before the judge was asked")


@dataclass(frozen=True)
class Duelling:
    """How a judge decides the duels of the edits of `works` against an opponent's: by a `pairwise`
    scorer, whose protocol asks about two edits; or if it measures, or knows no such question, by
    the difference of the scores that the scorer `alone` gives them.
    """

    works: Sequence[Work]
    opponent: Opponent
    alone: Scorer
    pairwise: Scorer | None


def make_duelling(
    settings: Settings, works: Sequence[Work], opponent: Opponent, alone: Scorer
) -> Duelling:
    """Return how the judge whose scorer scores edits `alone` decides duels."""
    return Duelling(works, opponent, alone, pairwise_scorer(settings, alone))


def pairwise_scorer(settings: Settings, alone: Scorer) -> Scorer | None:
    """Return the scorer that asks the judge of the scorer `alone` about two edits; `None` if it
    measures, or knows no such question.
    """
    if alone.model.measures or not alone.model.compares:
        return None
    protocol = load_duel_protocol(settings)
    pairwise = Scorer(settings, alone.identity, alone.store, protocol=protocol)
    pairwise.tally = alone.tally  # the tokens of one judge
    return pairwise


def in_both_orders(work: Work, before: str) -> dict[First, DuelJudgement]:
    """Return the judgements of the edit of a work against another one, by the one shown first."""
    return {
        "now": DuelJudgement(work, other=before),
        "before": DuelJudgement(work, other=before, comes_second=True),
    }


def _alone(work: Work, edit: str) -> Judgement:
    """Return the judgement of another edit of a pair."""
    other = Work(
        pair=work.pair,
        seed=work.seed,
        source=work.source,
        reference=work.reference,
        further=work.further,
        edit=results.Edit(blob=edit, seconds=0.0, worker=""),
    )
    return other.judgement


def judgements_of(bouts: Iterable[Bout]) -> list[Judgement]:
    """Return the judgements that bouts need."""
    return [judgement for bout in bouts for judgement in bout.judgements]


class AskedDuels(Interface):
    """Duels as far as a judge is asked about them."""

    @property
    def scorer(self) -> Scorer: ...

    @property
    def judgements(self) -> list[Judgement]: ...


@dataclass(kw_only=True)
class ControlDuels:
    """The duels of a judge's controls by the worse one.

    If the judge measures, `by_scores`, their judgements are of each edit alone.
    """

    scorer: Scorer
    by_scores: bool
    controls: dict[str, list[Bout]] = field(default_factory=dict)

    @property
    def of_controls(self) -> list[Bout]:
        """The duels of all controls."""
        return [bout for of_control in self.controls.values() for bout in of_control]

    def add_controls(self, trials: Trials, works: Iterable[Work]) -> None:
        """Put edits of known quality against others that are worth less: right ones, or without
        references the own ones of `works`.
        """
        better = {judged.pair.id: judged for judged in trials.controls.get("oracle", ())}
        controls: Sequence[str] = BELOW_ORACLE
        if not better:
            controls = BELOW_OWN
            better = {work.pair.id: work.judgement for work in first_works(works)}
        for control in controls:
            for worse in trials.controls.get(control, ()):
                if worse.pair.id in better:
                    bout = self._control_bout(better[worse.pair.id], worse)
                    self.controls.setdefault(control, []).append(bout)

    def _control_bout(self, better: Judgement, worse: Judgement) -> Bout:
        """Return the bout of a better edit against a worse one, which is known by its recipe while
        it is not made.
        """
        other = worse.work.content if worse.edit is None else worse.edit.blob
        if better.work.edit_error or worse.work.edit_error or _is_edit(better.work, other):
            return Bout(better.work, other)
        return self._bout(better, worse, other)

    def _bout(self, now: Judgement, before: Judgement, other: str) -> Bout:
        if self.by_scores:
            return Bout(now.work, other, scored=(before, now))
        return Bout(now.work, other, votes=in_both_orders(now.work, other))

    @property
    def trials(self) -> Iterator[DuelTrial]:
        """What came of each duel of the controls."""
        for control, bouts in self.controls.items():
            for bout in bouts:
                source = bout.work.source
                yield DuelTrial(
                    control=control,
                    better="oracle" if control in BELOW_ORACLE else "own",
                    pair=bout.work.pair.id,
                    cluster=source.sha256 if source else bout.work.pair.id,
                    win=results.DuelPair(seeds=(bout.result,)).value(SCORE),
                    first=bout.share_of_first,
                    is_pending=bout.is_open,
                )


@dataclass(kw_only=True)
class Duels(ControlDuels):
    """The duels of a run against an `opponent`, and those of the judge's controls."""

    opponent: Opponent
    bouts: list[Bout] = field(default_factory=list)

    @property
    def judgements(self) -> list[Judgement]:
        """All judgements that they need."""
        return judgements_of(self.bouts + self.of_controls)

    def add_bouts(self, works: Iterable[Work]) -> None:
        """Put the edits of works against the opponent's; a pair that neither side has an edit of
        has no bout.

        An edit that is still to be made counts as one that differs.
        """
        edits = self.opponent.edits
        for work in works:
            before = edits.get((work.pair.id, work.seed))
            if before is None and work.edit_error is not None:
                continue
            if before is None or work.edit_error is not None or _is_edit(work, before):
                self.bouts.append(Bout(work, before))
            else:
                self.bouts.append(self._bout(work.judgement, _alone(work, before), before))

    def keep_edits(self) -> None:
        """Put the opponent's edits into the store, for the judge and the reports; one that is gone
        becomes an error where it is shown.
        """
        blobs = self.scorer.store.blobs
        for bout in self.bouts:
            if bout.before is not None and not blobs.has(bout.before):
                data = self.opponent.edit_of(bout.before)
                if data is not None:
                    blobs.put(data, durable=False)

    @property
    def remaining(self) -> int:
        """The number of duels that were cut off when the run was stopped."""
        return sum(
            judgement.verdict is None and judgement.error is None for judgement in self.judgements
        )

    @property
    def facts(self) -> DuelFacts:
        """What is known of them, for the statistics."""
        protocol = None if self.by_scores else self.scorer.protocol
        baseline = self.opponent.baseline
        return DuelFacts(
            name=baseline.name,
            run=baseline.run,
            editor=baseline.editor.spec,
            by_scores=self.by_scores,
            protocol=None if protocol is None else protocol.name,
            variant=None if protocol is None else protocol.variant,
            protocol_sha256=None if protocol is None else protocol.sha256,
            measures=duel_measures(protocol),
            pairs=duel_pairs(self.bouts),
            trials=list(self.trials),
        )


def duel_measures(protocol: Protocol | None) -> dict[str, results.Measure]:
    """Return what edits are put against each other by: the score, and the dimensions of a protocol
    of several.
    """
    names = [SCORE]
    if protocol is not None and len(protocol.measures) > 1:
        names += protocol.measures
    return dict.fromkeys(names, WIN)


def duel_pairs(bouts: Iterable[Bout]) -> dict[str, results.DuelPair]:
    """Return the duels of each pair, by its id."""
    seeds: dict[str, list[results.DuelSeed]] = {}
    for bout in bouts:
        seeds.setdefault(bout.work.pair.id, []).append(bout.result)
    return {pair: results.DuelPair(seeds=tuple(of_pair)) for pair, of_pair in seeds.items()}


def plan_duels(how: Duelling, trials: Trials) -> Duels:
    """Return the duels of the edits of a run, and those of the judge's controls.

    A judge of the user's own is known to measure once it has scored an edit.
    """
    scorer = how.pairwise
    if scorer is None or any(work.verdict and work.verdict.measured for work in how.works):
        scorer = how.alone
    duels = Duels(scorer=scorer, opponent=how.opponent, by_scores=scorer is how.alone)
    duels.add_bouts(how.works)
    duels.add_controls(trials, how.works)
    return duels


def _is_edit(work: Work, sha256: str) -> bool:
    """Tell whether the edit of a work is the image of this SHA-256."""
    return work.edit is not None and work.edit.blob == sha256
