"""The tables and gates of a run, decided from its items alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.results import (
    Comparison,
    Controls,
    GateOptions,
    GateResult,
    Item,
    Overall,
    Summary,
)
from pytest_imgedit.stats import coverage
from pytest_imgedit.stats.collapse import max_collapsed, moves_between
from pytest_imgedit.stats.comparison import Computed, compare, differences, environment_differences
from pytest_imgedit.stats.controls import controls_gate
from pytest_imgedit.stats.estimates import macro, summarize
from pytest_imgedit.stats.gates import Observation, estimate_field, fail_under, max_drop
from pytest_imgedit.stats.sequential import at_the_end
from pytest_imgedit.store.baselines import Baseline, reduced


@dataclass(frozen=True)
class Evidence:
    """What the gates of a run are decided on.

    `items` are those of all selected pairs, `expects_scores` tells whether they were to be scored;
    `resting` gates are those that the selection left out, `decided` those that were decided before
    the end, by kind and field.
    """

    items: Sequence[Item]
    computed: Computed
    settings: GateOptions
    expects_scores: bool = True
    baseline: Baseline | None = None
    controls: Controls | None = None
    resting: Sequence[GateResult] = ()
    decided: Mapping[tuple[str, str], GateResult] = field(default_factory=dict)

    @property
    def needed(self) -> list[Item]:
        """The items that count: no gate needed the others any more."""
        return [item for item in self.items if item.status != "not_needed"]


def decide(evidence: Evidence) -> tuple[tuple[GateResult, ...], Comparison | None]:
    """Decide all gates of a run, and compare it with its baseline, if it has one."""
    settings, items = evidence.settings, evidence.needed
    scores = observe(items)
    gates = [coverage.coverage(settings, scores, count_errors(items), evidence.expects_scores)]
    if evidence.expects_scores:
        gates += _unless_decided(evidence, fail_under(at_the_end(settings), scores))
    comparison = None
    if evidence.baseline is not None:
        comparison, against_baseline = _compare(evidence, evidence.baseline)
        gates += against_baseline
    gates = [*coverage.against_near_copies(settings, gates, items), *evidence.resting]
    if evidence.controls is not None:
        gates.append(controls_gate(evidence.controls))
    return tuple(gates), comparison


def left_to_merge(
    gates: Sequence[GateResult], settings: GateOptions, pairs: int
) -> tuple[GateResult, ...]:
    """Leave the gates of a shard to `imgedit merge`; `pairs` of all shards decide how many errors
    are allowed.
    """
    allowed = coverage.allowed_pairs(settings.max_errors, pairs)
    left: list[GateResult] = []
    for gate in gates:
        if gate.kind == "max_errors":
            gate = replace(gate, limit=allowed)
        if gate.state != "NOT SELECTED":
            why = f"{gate.field}: imgedit merge decides it"
            gate = replace(gate, state="NOT SELECTED", why=why, p=None, mde=None)
        left.append(gate)
    return tuple(left)


def _unless_decided(evidence: Evidence, gates: Sequence[GateResult]) -> list[GateResult]:
    return [evidence.decided.get((gate.kind, gate.field), gate) for gate in gates]


def _compare(evidence: Evidence, baseline: Baseline) -> tuple[Comparison, list[GateResult]]:
    """Compare the items with a baseline, and decide the gates on that."""
    settings = evidence.settings
    now = [reduced(item) for item in evidence.needed]
    unneeded = len(evidence.items) - len(now)
    moved = differences(baseline.items, now)
    drops = _unless_decided(evidence, max_drop(at_the_end(settings), moved, baseline.name))
    tail, collapsed = max_collapsed(settings, moves_between(baseline.items, now), baseline.name)
    if unneeded:
        tail = replace(tail, why=f"{tail.why} ({unneeded} more were not looked at)")
    unlike = environment_differences(baseline, evidence.computed)
    *drops, tail = coverage.against_environment(settings, [*drops, tail], unlike)
    comparison = compare(baseline, now, settings.alpha, drops, unlike, collapsed)
    gates = [*drops, tail]
    if settings.min_coverage:
        gates.append(
            coverage.baseline_coverage(settings, moved, len(baseline.items), baseline.name)
        )
    return comparison, gates


def observe(items: Sequence[Item]) -> list[Observation]:
    """Return the score of every item as statistics and gates take it."""
    return [Observation(item.category, item.cluster, item.score) for item in items]


def summarize_items(items: Sequence[Item]) -> tuple[dict[str, Summary], Overall]:
    """Summarize by category, and overall."""
    order = in_order(item.category for item in items)
    categories = {
        name: _summary([item for item in items if item.category == name]) for name in order
    }
    micro, whole = _summary(items), estimate_field("overall", observe(items))
    counts = (micro.n, micro.scored, micro.errors)
    return categories, Overall(macro=macro(list(categories.values()), whole, counts), micro=micro)


def _summary(items: Sequence[Item]) -> Summary:
    scored = [item for item in items if item.score is not None]
    errors = count_errors(items)
    clusters = [item.cluster for item in scored]
    return summarize(
        [item.score or 0.0 for item in scored], clusters, errors, len(items) - len(scored) - errors
    )


def count_errors(items: Sequence[Item]) -> int:
    """Count the items that ended in an error."""
    return sum(item.status in ("edit_error", "judge_error") for item in items)
