"""Duels of the edits of two runs: the share that one wins, what the order of the two edits does to
votes, and whether the judge prefers right edits.

A pair's share is the mean over its seeds and both orders, 1 where this run's edit is better and 0.5
for a tie. Pairs that share a source image are one cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, Protocol

from pytest_imgedit.core.measures import (
    OVERALL,
    SCORE,
    WINS_ONLY,
    Field,
    Measured,
    by_group,
    groups_in,
    groups_of,
)
from pytest_imgedit.core.results import (
    Duel,
    DuelControl,
    DuelPair,
    DuelRow,
    DuelSeed,
    GateOptions,
    GateResult,
    Measure,
    ProtocolCall,
    Share,
    State,
    Summary,
    Variant,
    Vote,
)
from pytest_imgedit.core.text import counted, number
from pytest_imgedit.stats import holm
from pytest_imgedit.stats.estimates import (
    ENOUGH,
    ROUNDING,
    Draft,
    Estimate,
    complete,
    estimate,
    share_of,
)
from pytest_imgedit.stats.gate_values import Observation, estimate_group
from pytest_imgedit.stats.judge_qualification import CONTROLS

#: The ends of shares, and the share of equal editors.
ENDS = (0.0, 1.0)
EVEN = 0.5
#: Least share of duels that right edits win over worthless ones with which a judge tells them
#: apart: one that is right in 6 of 10 votes rarely reaches it, one that is right in 9 of 10 nearly
#: always (`perf/duel_gate.py --only controls`).
ENOUGH_WON = 0.75
#: Controls that are half right: a right edit needs only be shown to win over them.
HALF_RIGHT = ("blend",)
#: Share of votes for the edit shown first from which on a judge is said to prefer it.
MOST_FOR_ONE = 0.9


class MeasuredItem(Measured, Protocol):
    """An item of a run or a baseline, with the id of its pair."""

    @property
    def id(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class DuelTrial:
    """A duel of edits of known quality in one pair, in both orders.

    `win` is the share of votes for the `better` edit, `None` on an error or while it is pending,
    and `first` that for the edit shown first, `None` too where a judge measures. `cluster` names
    the source.
    """

    control: str
    better: Literal["oracle", "own"]
    pair: str
    cluster: str
    win: float | None
    is_pending: bool = False
    first: float | None = None


@dataclass(frozen=True, kw_only=True)
class DuelFacts:
    """What is known of the duels of a run, before any statistics.

    `name`, `run` and `editor` are those of the other run; the keys from `by_scores` to `calls` are
    as in `results.Duel`. `measures` are those of the duels, from 0 to 1, the score first; `pairs`
    holds the duels by pair.
    """

    name: str
    run: str
    editor: str
    by_scores: bool
    protocol: str | None = None
    variant: Variant | None = None
    protocol_sha256: str | None = None
    calls: Sequence[ProtocolCall] = ()
    measures: Mapping[str, Measure] = field(default_factory=lambda: WINS_ONLY)
    pairs: Mapping[str, DuelPair]
    trials: Sequence[DuelTrial] = ()


def observe_wins(
    pairs: Mapping[str, DuelPair], items: Iterable[MeasuredItem], measure: str
) -> list[Observation]:
    """Return an observation of each item that has duels: the share that it wins by a measure.

    Without one of its votes it has no value, and its bounds are what the others leave open. Items
    without duels, such as pairs that failed on both sides, are left out.
    """
    observations = []
    for item in items:
        if item.id not in pairs:
            continue
        pair = pairs[item.id]
        lowest, highest = pair.bounds(measure)
        observation = Observation(
            item.category,
            item.cluster,
            pair.value(measure),
            lowest=lowest,
            highest=highest,
            alike=_is_identical(pair),
            groups=groups_of(item),
            seeds=len(pair.seeds),
        )
        observations.append(observation)
    return observations


def samples(facts: DuelFacts, items: Sequence[MeasuredItem]) -> dict[str, list[Observation]]:
    """Return the observations of `observe_wins` by measure, as `gate_rules.min_win` takes them."""
    return {name: observe_wins(facts.pairs, items, name) for name in facts.measures}


def usual_error(pairs: Mapping[str, DuelPair]) -> str:
    """Return the most frequent reason why votes are missing; an empty text if none is."""
    votes = [vote for pair in pairs.values() for seed in pair.seeds for vote in seed.votes]
    reasons = Counter(vote.error.message for vote in votes if vote.error is not None)
    return max(reasons, key=reasons.__getitem__, default="")


def _is_identical(pair: DuelPair) -> bool:
    """Tell whether the edits of all seeds are equal, byte by byte."""
    return all(seed.is_identical for seed in pair.seeds)


def describe(
    facts: DuelFacts,
    items: Sequence[MeasuredItem],
    settings: GateOptions,
    gates: Sequence[GateResult] = (),
    controls: Sequence[DuelControl] = (),
) -> Duel:
    """Describe the duels of `items`: shares by measure and group, and what the order of edits did.

    The row of a field with a `min_win` gate in `gates` has that gate's p, state and MDE. `controls`
    are those of `describe_controls`.
    """
    seen = [item for item in items if item.id in facts.pairs]
    alpha = settings.alpha_of("min_win")
    gate_of = {gate.field: gate for gate in gates if gate.kind == "min_win"}
    measures = {}
    for name, observations in samples(facts, seen).items():
        measures[name] = _rows(name, groups_in(seen), observations, alpha, gate_of)
    duels = {item.id: facts.pairs[item.id] for item in seen}
    clusters = {item.id: item.cluster for item in seen}
    disagreement: dict[str, Share] = {}
    first: dict[str, Share] = {}
    if not facts.by_scores:
        disagreement = {name: disagreement_of(name, duels, clusters) for name in facts.measures}
        first = {name: _share_of(_for_first, name, duels, clusters) for name in facts.measures}
    return Duel(
        name=facts.name,
        run=facts.run,
        editor=facts.editor,
        by_scores=facts.by_scores,
        protocol=facts.protocol,
        variant=facts.variant,
        protocol_sha256=facts.protocol_sha256,
        calls=tuple(facts.calls),
        measures=measures,
        disagreement=disagreement,
        first=first,
        identical=sum(map(_is_identical, duels.values())),
        errors=sum(pair.value(SCORE) is None for pair in duels.values()),
        pairs=duels,
        controls=tuple(controls),
    )


def _rows(
    name: str,
    groups: Sequence[str],
    observations: Sequence[Observation],
    alpha: float,
    gate_of: Mapping[str, GateResult],
) -> dict[str, DuelRow]:
    """Return the row of each group; p values are adjusted over `overall` and the categories, and
    over the other groups.
    """
    members = by_group(observations, Observation.all_groups)
    estimates = {group: estimate_group(group, members.get(group, [])) for group in groups}
    intervals = dict(zip(groups, _intervals(list(estimates.values())), strict=True))
    rows = {}
    for family in (_categories(groups), [group for group in groups if "=" in group]):
        known = [estimates[group] for group in family]
        losses = holm.holm([1.0 if one is None else one.p_below(EVEN) for one in known])
        wins = holm.holm([1.0 if one is None else one.p_above(EVEN) for one in known])
        for group, share, loss, win in zip(family, known, losses, wins, strict=True):
            of_group = members.get(group, [])
            has_p = share is not None and share.se is not None
            row = DuelRow(
                n=sum(pair.value is not None for pair in of_group),
                share=None if share is None else share.mean,
                ci95=intervals[group],
                p=loss if has_p else None,
                p_rise=win if has_p else None,
                finding=_finding(of_group, share, loss, win, alpha),
                mde=None if share is None else share.mde(alpha / len(family)),
            )
            gate = gate_of.get(str(Field(name, group)))
            if gate is not None:
                update = {"p": gate.p, "finding": gate.state, "mde": gate.mde}
                row = row.model_copy(update=update)
            rows[group] = row
    return rows


def _categories(groups: Sequence[str]) -> list[str]:
    """Return `overall` and the categories."""
    return [group for group in groups if "=" not in group]


def _finding(
    pairs: Sequence[Observation], share: Estimate | None, loss: float, win: float, alpha: float
) -> str:
    """Say whether a group won or lost; `loss` and `win` are the p values of that after Holm's
    correction. It is the `same` if all edits are equal, and `unknown` without a standard error.
    """
    if pairs and all(pair.alike for pair in pairs):
        return "same"
    if share is None or share.se is None:
        return "unknown"
    if loss <= alpha:
        return "lost"
    return "won" if win <= alpha else "no difference shown"


def _intervals(shares: Sequence[Estimate | None]) -> list[tuple[float, float] | None]:
    """Return the 95% intervals of shares, which allow for rare values that were not seen."""
    drafts = [Draft(Summary(0, 0, 0), share, ENDS) for share in shares]
    return [summary.ci95 for summary in complete(drafts)]


def _share_of(
    of_seed: Callable[[DuelSeed, str], float | None],
    measure: str,
    duels: Mapping[str, DuelPair],
    clusters: Mapping[str, str],
) -> Share:
    """Return the mean over pairs of their mean over seeds of a number of each, where it is known;
    `clusters` has the source of each pair.
    """
    values = []
    sources = []
    for name, pair in duels.items():
        known = [value for seed in pair.seeds if (value := of_seed(seed, measure)) is not None]
        if known:
            values.append(fmean(known))
            sources.append(clusters[name])
    return share_of(values, sources)


def disagreement_of(
    measure: str, duels: Mapping[str, DuelPair], clusters: Mapping[str, str]
) -> Share:
    """Return the share of pairs whose vote changes with the order of the edits, of those that were
    asked about in both; `clusters` has the source of each pair.
    """
    return _share_of(_disagreement, measure, duels, clusters)


def _mean_of(values: Sequence[float], sources: Sequence[str]) -> Estimate | None:
    return estimate(values, sources) if values else None


def _votes(seed: DuelSeed, measure: str) -> tuple[Vote, Vote] | None:
    """Return the votes of a seed in both orders; `None` for equal edits, or if one is missing."""
    votes = {vote.first: vote for vote in seed.votes if measure in vote.values}
    if seed.is_identical or not {"now", "before"} <= votes.keys():
        return None
    return votes["now"], votes["before"]


def _disagreement(seed: DuelSeed, measure: str) -> float | None:
    """Return 1 if the vote changes with the order, else 0."""
    votes = _votes(seed, measure)
    if votes is None:
        return None
    now_first, before_first = votes
    return float(abs(now_first.values[measure] - before_first.values[measure]) > ROUNDING)


def _for_first(seed: DuelSeed, measure: str) -> float | None:
    """Return the share of both votes that the edit shown first is given."""
    votes = _votes(seed, measure)
    if votes is None:
        return None
    now_first, before_first = votes
    return (now_first.values[measure] + 1 - before_first.values[measure]) / 2


def describe_controls(trials: Sequence[DuelTrial], alpha: float) -> tuple[DuelControl, ...]:
    """Describe how often the judge prefers right edits to those of each control.

    A control passes if the better edits' share is shown to be over a half at `alpha`, and is
    `ENOUGH_WON` unless the control is half right. It is INCONCLUSIVE while trials are pending, with
    too few sources to show anything, and instead of passing with more errors than votes; where the
    better edits are the run's own, which may be worthless too, also if the share falls short.
    Otherwise it is INVALID, as all are if the judge's choice is a matter of order alone.
    """
    names = sorted({trial.control for trial in trials}, key=_place)
    controls = [
        _describe_control([trial for trial in trials if trial.control == name], alpha)
        for name in names
    ]
    is_pending = any(control.pending for control in controls)
    if controls and not is_pending and _blind(controls):
        controls = [control.model_copy(update={"state": "INVALID"}) for control in controls]
    return tuple(controls)


def _place(control: str) -> tuple[int, str]:
    """Order controls as trials by scores do, others behind them."""
    return CONTROLS.index(control) if control in CONTROLS else len(CONTROLS), control


def _describe_control(trials: Sequence[DuelTrial], alpha: float) -> DuelControl:
    """Describe the trials of one control."""
    wins = []
    sources = []
    for trial in sorted(trials, key=lambda trial: trial.pair):
        if trial.win is not None:
            wins.append(trial.win)
            sources.append(trial.cluster)
    share = _mean_of(wins, sources)
    (interval,) = _intervals([share])
    pending = sum(trial.is_pending for trial in trials)
    errors = len(trials) - len(wins) - pending
    control = trials[0].control
    better = trials[0].better
    state: State = "INVALID"
    if pending or (share is not None and not share.can_show(alpha)):
        state = "INCONCLUSIVE"
    elif share is None or _is_enough(control, share, alpha):
        state = "INCONCLUSIVE" if errors > len(wins) else "PASS"
    elif better == "own":
        state = "INCONCLUSIVE"
    firsts = [trial.first for trial in trials if trial.first is not None]
    return DuelControl(
        n=len(wins),
        share=None if share is None else share.mean,
        ci95=interval,
        control=control,
        better=better,
        sources=len(set(sources)),
        errors=errors,
        pending=pending,
        first=fmean(firsts) if firsts else None,
        p=None if share is None or share.se is None else share.p_above(EVEN),
        state=state,
    )


def _is_enough(control: str, share: Estimate, alpha: float) -> bool:
    """Tell whether the better edits' share is large enough, and not by luck."""
    least = EVEN if control in HALF_RIGHT else ENOUGH_WON
    return share.mean >= least and share.p_above(EVEN) <= alpha


def controls_gate(controls: Sequence[DuelControl]) -> GateResult:
    """Decide whether votes of the judge can be believed: INVALID if it does not prefer right edits
    to every control, or its choice is a matter of order alone.

    INCONCLUSIVE for want of sources, or while trials are pending, is a warning, but not for want of
    answers. Without right edits a judge that does not prefer the run's own is INCONCLUSIVE and
    fails the run, as a good judge of a useless editor may do so too.
    """
    state, why = _verdict(controls)
    is_short = all(
        control.pending or (control.sources < ENOUGH and not _lacks_answers(control))
        for control in controls
        if control.state == "INCONCLUSIVE"
    )
    if controls:
        why += f": {_shares(controls)}"
    missing = _errors(controls)
    if missing:
        duels = counted(missing + sum(control.n for control in controls), "duel")
        said = f"{missing} of {duels} of controls {'is' if missing == 1 else 'are'} not decided"
        # the line of a gate that passed is cut behind its first statement
        why = f"{said}; {why}" if state == "PASS" else f"{why}; {said}"
    return GateResult(
        OVERALL,
        "duel_controls",
        limit=None,
        value=None,
        state=state,
        why=why,
        warns=state == "INCONCLUSIVE" and is_short,
    )


def _verdict(controls: Sequence[DuelControl]) -> tuple[State, str]:
    """Decide the gate by the states of the controls, and say why."""
    if not controls or any(control.pending for control in controls):
        return "INCONCLUSIVE", "the judge was not asked about all duels of controls"
    blind = _blind(controls)
    if blind:
        return "INVALID", blind
    better = "a right edit" if controls[0].better == "oracle" else "this editor's edits"
    invalid = [control for control in controls if control.state == "INVALID"]
    inconclusive = [control for control in controls if control.state == "INCONCLUSIVE"]
    worse = [control for control in invalid if _is_worse(control)]
    if worse:
        return "INVALID", f"the judge prefers {_names(worse)} to {better}"
    if invalid:
        return "INVALID", f"the judge does not prefer {better} to {_names(invalid)}"
    lacking = [control for control in inconclusive if _lacks_answers(control)]
    if lacking:
        return "INCONCLUSIVE", f"{_missing(lacking)} without a vote"
    if inconclusive:
        pairs = counted(max(control.n for control in inconclusive), "pair")
        sources = counted(max(control.sources for control in inconclusive), "source image")
        return (
            "INCONCLUSIVE",
            f"duels of {pairs} of {sources} do not show that the judge prefers {better} to "
            f"{_names(inconclusive)}",
        )
    return "PASS", f"the judge prefers {better} to every control"


def _blind(controls: Sequence[DuelControl]) -> str:
    """Say what the judge does that cannot look at the edits: it names the one in the same place, or
    answers nothing. An empty text if it may look.
    """
    duels = sum(control.n for control in controls)
    if not duels:
        return f"the judge answered none of {counted(_errors(controls), 'duel')} of controls"
    firsts = [control.first for control in controls if control.first is not None]
    if not firsts or duels < ENOUGH:
        return ""
    first = fmean(firsts)
    if first >= MOST_FOR_ONE:
        return "the judge prefers the first of any two edits"
    if first <= 1 - MOST_FOR_ONE:
        return "the judge prefers the second of any two edits"
    return ""


def _lacks_answers(control: DuelControl) -> bool:
    """Tell whether more duels of a control ended in an error than in votes."""
    return control.errors > control.n


def _missing(controls: Sequence[DuelControl]) -> str:
    """Write `11 of 20 duels of noise, 12 of 20 duels of blank`."""
    parts = []
    for control in controls:
        duels = counted(control.n + control.errors, "duel")
        parts.append(f"{control.errors} of {duels} of {control.control}")
    return ", ".join(parts)


def _errors(controls: Sequence[DuelControl]) -> int:
    return sum(control.errors for control in controls)


def _is_worse(control: DuelControl) -> bool:
    """Tell whether the judge prefers the worse edits: the interval of the better ones' share ends
    under a half.
    """
    return control.ci95 is not None and control.ci95[1] < EVEN


def _names(controls: Sequence[DuelControl]) -> str:
    return ", ".join(control.control for control in controls)


def _shares(controls: Sequence[DuelControl]) -> str:
    """Write `wins 0.98 over identity, 0.50 over noise, blank without votes`."""
    known = [control for control in controls if control.share is not None]
    parts = [f"{number(control.share)} over {control.control}" for control in known]
    if parts:
        parts[0] = f"wins {parts[0]}"
    parts += [f"{control.control} without votes" for control in controls if control.share is None]
    return ", ".join(parts)
