"""Makes the results of a run from its items and what is known of it, whole or merged of shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_imgedit.core import results
from pytest_imgedit.core.measures import further_score
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.folder import has_finished_edits
from pytest_imgedit.protocols.protocol import Protocol, Row
from pytest_imgedit.stats import estimates
from pytest_imgedit.stats.agreement import describe_agreement
from pytest_imgedit.stats.comparison import Computed
from pytest_imgedit.stats.decision import (
    Evidence,
    decide,
    left_to_merge,
    measures_of,
    summarize_items,
)
from pytest_imgedit.stats.duels import DuelFacts
from pytest_imgedit.stats.judge_qualification import describe_controls
from pytest_imgedit.store.baselines import Baseline


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a run besides its items.

    `measures` are those that its judges and metrics have declared. `expects_scores` is false for a
    run that only edits. `protocol` is `None` if the judge follows none, or if it is not known here;
    `calls` are those to a pair of the suite, and `sees_change` tells whether one shows the change.
    `trials` are those of the judge on edits of known quality, `untried` says what it was not asked
    about. `duel` tells how edits did against those of another run. Without a judge that scores,
    `has_agreement` is false.
    `resting` gates concern pairs that were not selected; `decided` ones were decided early.
    """

    run: results.RunInfo
    suite: results.SuiteInfo
    selection: results.SelectionInfo
    computed: Computed
    further: Mapping[str, results.FurtherInfo]
    measures: Mapping[str, results.Measure]
    gates: results.GateOptions
    expects_scores: bool
    has_agreement: bool
    reuse: results.ReuseInfo
    timing: results.Timing
    workers: Sequence[results.WorkerInfo]
    baseline: Baseline | None = None
    trials: Sequence[results.ControlTrial] = ()
    untried: str = ""
    duel: DuelFacts | None = None
    noise: results.Noise | None = None
    resting: Sequence[results.GateResult] = ()
    decided: Mapping[tuple[str, str], results.GateResult] = field(default_factory=dict)
    protocol: Protocol | None = None
    calls: Sequence[results.ProtocolCall] = ()
    sees_change: bool = True
    sections: Sequence[results.Section] = ()


def assemble(items: Sequence[results.Item], facts: RunFacts) -> results.Results:
    """Decide the gates of a run, and make its tables; pairs that were not needed count in none."""
    evidence = Evidence(
        items=items,
        computed=facts.computed,
        settings=facts.gates,
        measures=measures_of(items, facts.measures),
        expects_scores=facts.expects_scores,
        baseline=facts.baseline,
        controls=_controls(items, facts),
        duel=facts.duel,
        resting=facts.resting,
        decided=facts.decided,
        are_finished=has_finished_edits(facts.computed.editor.spec),
    )
    gates, comparison, duel = decide(evidence)
    shard = facts.selection.shard
    if shard is not None:
        gates = left_to_merge(gates, facts.gates, len(shard.ids))
    categories, overall, measured = summarize_items(evidence.needed, evidence.measures)
    protocol = None
    if facts.protocol is not None:
        protocol = protocol_table(facts.protocol, evidence.needed, facts.calls, facts.sees_change)
    estimates.forget_shares()  # the means above have shared random numbers
    return results.Results(
        run=facts.run,
        suite=facts.suite,
        selection=facts.selection,
        editor=facts.computed.editor,
        judge=facts.computed.judge,
        further={
            name: _with_agreement(name, further, evidence.needed, facts)
            for name, further in facts.further.items()
        },
        environments=dict(facts.computed.environments),
        reuse=facts.reuse,
        timing=facts.timing,
        workers=tuple(facts.workers),
        categories=categories,
        overall=overall,
        measures=measured,
        gates=gates,
        comparison=comparison,
        duel=duel,
        controls=evidence.controls,
        noise=facts.noise,
        protocol=protocol,
        items=tuple(items),
        sections=tuple(facts.sections),
    )


def _controls(items: Sequence[results.Item], facts: RunFacts) -> results.Controls | None:
    if not facts.trials:
        return None
    own_scores = {item.id: item.score for item in items if item.score is not None}
    return describe_controls(facts.trials, own_scores, facts.gates.alpha, facts.untried)


def _with_agreement(
    name: str, scorer: results.FurtherInfo, items: Sequence[results.Item], facts: RunFacts
) -> results.FurtherInfo:
    """Return what is known of an additional judge or a metric, with its agreement with the judge,
    if the run has one that scores.
    """
    agreement = None
    if facts.has_agreement:
        is_judge = scorer.role == "judge"
        measure = further_score(name) if is_judge else name
        agreement = describe_agreement(items, measure, is_judge)
    return scorer.model_copy(update={"agreement": agreement})


def protocol_table(
    protocol: Protocol,
    items: Iterable[results.Item],
    calls: Sequence[results.ProtocolCall],
    sees_change: bool,
) -> results.ProtocolTable:
    """Make the protocol's own tables of a run; if they fail, there are no rows, and `problem` says
    why.
    """
    items = list(items)
    counted = [item for item in items if item.is_judged]
    touched = sum(len(verdict.touched) for item in counted for verdict in item.verdicts)
    dropped = sum(item.status == "dropped" for item in counted)
    rows: tuple[results.ProtocolRow, ...] = ()
    problem = ""
    try:
        rows = tuple(_protocol_row(row) for row in protocol.all_tables(items) if row.values)
    except Exception as error:  # a class of a user can raise anything
        problem = f"its tables failed: {type(error).__name__}: {one_line(error)}"
    return results.ProtocolTable(
        name=protocol.label,
        calls=tuple(calls),
        rows=rows,
        totals=protocol.totals,
        problem=problem,
        published=protocol.published,
        touched=touched + dropped,
        sees_change=sees_change,
    )


def _protocol_row(row: Row) -> results.ProtocolRow:
    """Return a row of the protocol's tables with the mean of its values and their interval."""
    estimate = estimates.estimate(row.values, row.sources, row.groups or None)
    return results.ProtocolRow(
        name=row.name,
        n=len(row.values),
        value=estimate.mean,
        ci95=estimate.bounded_interval(*row.scale),
        scale=row.scale,
        decimals=row.decimals,
        is_detail=row.is_detail,
    )
