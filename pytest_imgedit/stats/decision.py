"""The tables and gates of a run, decided from its items alone; the gates on pairs without a score,
pairs of the baseline, near-copies, and environments.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pytest_imgedit.core.measures import (
    OVERALL,
    SCORE,
    SCORE_ONLY,
    Field,
    by_group,
    groups_in,
    groups_of,
)
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.results import (
    Comparison,
    Controls,
    Duel,
    GateOptions,
    GateResult,
    Item,
    Measure,
    MeasuredGroups,
    Overall,
    State,
    Summary,
)
from pytest_imgedit.core.text import counted
from pytest_imgedit.stats import (
    collapsed_pairs,
    duels,
    estimates,
    judge_qualification,
    outcome,
    sequential,
)
from pytest_imgedit.stats.comparison import Computed, PairedItems, compare, environment_differences
from pytest_imgedit.stats.gate_limits import KINDS
from pytest_imgedit.stats.gate_rules import fail_under, max_drop, min_win
from pytest_imgedit.stats.gate_values import (
    Observation,
    allowed_pairs,
    estimate_group,
    filled,
    measured_by,
    observe,
)
from pytest_imgedit.stats.identical_edits import alike_edits
from pytest_imgedit.stats.outcome import FAILED
from pytest_imgedit.store.baselines import Baseline, reduced

#: Under `compat`, the share of scores with an unreadable reply that a run may have.
MOST_REPLACED = 0.05


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the gates of a run are decided on.

    `items` are those of all selected pairs, `measures` what they are measured by. `expects_scores`
    says whether they were to be scored. `resting` gates are not selected. `decided` holds gates
    that were decided before the end, by kind and field. `are_finished` says that the edits are
    finished images, which nothing here made.
    """

    items: Sequence[Item]
    computed: Computed
    settings: GateOptions
    measures: Mapping[str, Measure] = field(default_factory=lambda: SCORE_ONLY)
    expects_scores: bool = True
    baseline: Baseline | None = None
    controls: Controls | None = None
    duel: duels.DuelFacts | None = None
    resting: Sequence[GateResult] = ()
    decided: Mapping[tuple[str, str], GateResult] = field(default_factory=dict)
    are_finished: bool = False

    @property
    def needed(self) -> list[Item]:
        """The items without those that no gate needed any more."""
        return [item for item in self.items if item.status != "not_needed"]


class Decision(NamedTuple):
    """The gates of a run, and how it stands to its baseline: by scores, and by duels."""

    gates: tuple[GateResult, ...]
    comparison: Comparison | None
    duel: Duel | None


def decide(evidence: Evidence) -> Decision:
    """Decide all gates of a run, and compare it with its baseline, if it has one."""
    settings = evidence.settings
    items = evidence.needed
    measures = evidence.measures
    samples = {name: observe(items, name, measure) for name, measure in measures.items()}
    errors = coverage(settings, samples[SCORE], _count_errors(items), evidence.expects_scores)
    failure = outcome.failed_for(items, columns=200)
    if failure:
        errors = replace(errors, why=f"{errors.why}: {failure}")
    errors = _invalidated_if_replaced(errors, items)
    if evidence.are_finished:
        errors = _invalidated_if_alike(errors, items)
    gates = [errors]
    if evidence.expects_scores:
        at_the_end = sequential.at_the_end(settings)
        is_judge_tried = judge_qualification.passed(evidence.controls)
        on_scores = fail_under(at_the_end, samples, measures, is_judge_tried)
        gates += _unless_decided(evidence, on_scores)
    comparison = None
    if evidence.baseline is not None:
        comparison, against_baseline = _compare(evidence, evidence.baseline)
        gates += against_baseline
    duel = None
    if evidence.duel is not None:
        duel, on_wins = _duel(settings, items, evidence.duel)
        gates += on_wins
    gates = [_invalidated_if_near_copies(settings, gate, items) for gate in gates]
    gates += evidence.resting
    if evidence.controls is not None:
        gates.append(judge_qualification.controls_gate(evidence.controls))
    if duel is not None and duel.controls:
        gates.append(duels.controls_gate(duel.controls))
    return Decision(tuple(gates), comparison, duel)


def decide_duel(
    settings: GateOptions, items: Sequence[Item], facts: duels.DuelFacts
) -> tuple[Duel, list[GateResult]]:
    """Describe duels of the edits of a run, and decide all gates on them as `decide` does."""
    needed = [item for item in items if item.status != "not_needed"]
    duel, gates = _duel(settings, needed, facts)
    gates = [_invalidated_if_near_copies(settings, gate, needed) for gate in gates]
    if duel.controls:
        gates.append(duels.controls_gate(duel.controls))
    return duel, gates


def _duel(
    settings: GateOptions, items: Sequence[Item], facts: duels.DuelFacts
) -> tuple[Duel, list[GateResult]]:
    """Describe the duels of a run, and decide the gates on the share that it wins."""
    wins = duels.samples(facts, items)
    controls = duels.describe_controls(facts.trials, settings.alpha)
    is_judge_tried = bool(controls) and duels.controls_gate(controls).state == "PASS"
    gates = min_win(settings, wins, facts.name, facts.measures, is_judge_tried)
    reason = duels.usual_error(facts.pairs)
    if reason:
        gates = [
            replace(gate, why=f"{gate.why}: {reason}") if gate.value is None else gate
            for gate in gates
        ]
    duel = duels.describe(facts, items, settings, gates, controls)
    return duel, [_told_of_order(gate, duel) for gate in gates]


def _told_of_order(gate: GateResult, duel: Duel) -> GateResult:
    """Return a gate on a share of duels, which unless it fails says if most votes are a matter of
    order: the share of pairs in which they change with it is shown to be over a half.
    """
    changed = duel.disagreement.get(Field.parse(gate.field).measure)
    if gate.state == "FAIL" or changed is None or changed.share is None or changed.ci95 is None:
        return gate
    if changed.ci95[0] <= duels.EVEN:
        return gate
    of_pairs = f"the judge changes its vote with the order in {changed.share:.0%} of pairs"
    return replace(gate, why=f"{gate.why}; {of_pairs}")


def left_to_merge(
    gates: Sequence[GateResult], settings: GateOptions, pairs: int
) -> tuple[GateResult, ...]:
    """Return the gates of a shard, all NOT SELECTED: `imgedit merge` decides them.

    The allowed errors are those of the `pairs` of all shards. A gate that was not selected before
    keeps its words.
    """
    open_gates = []
    for gate in gates:
        if gate.kind == "max_errors":
            gate = replace(gate, limit=allowed_pairs(settings.max_errors, pairs))
        if gate.state != "NOT SELECTED":
            gate = replace(
                gate,
                state="NOT SELECTED",
                why=f"{gate.field}: imgedit merge decides it",
                p=None,
                mde=None,
            )
        open_gates.append(gate)
    return tuple(open_gates)


def _unless_decided(evidence: Evidence, gates: Sequence[GateResult]) -> list[GateResult]:
    return [evidence.decided.get((gate.kind, gate.field), gate) for gate in gates]


def _compare(evidence: Evidence, baseline: Baseline) -> tuple[Comparison, list[GateResult]]:
    """Compare a run with its baseline, and decide the gates against it: those on drops, the one on
    collapsed pairs, and the one on coverage if `gates.min_coverage` is set.

    A gate that was decided before the end of the run stays as it was. Another environment than the
    baseline's may invalidate gates on drops and on collapsed pairs, but not the one on coverage.
    """
    settings = evidence.settings
    measures = evidence.measures
    now = [reduced(item) for item in evidence.needed]
    paired = PairedItems(baseline, now, measures)
    differences = paired.differences
    is_judge_tried = judge_qualification.passed(evidence.controls)
    at_the_end = sequential.at_the_end(settings)
    drops = max_drop(at_the_end, differences, baseline.name, measures, is_judge_tried)
    drops = _unless_decided(evidence, drops)
    collapse_gate, collapsed = collapsed_pairs.max_collapsed(settings, paired.moves, baseline.name)
    unneeded = len(evidence.items) - len(now)
    if unneeded:
        why = f"{collapse_gate.why} ({unneeded} more were not looked at)"
        collapse_gate = replace(collapse_gate, why=why)
    unlike = environment_differences(baseline, evidence.computed)
    gates = against_environment(settings, [*drops, collapse_gate], unlike)
    comparison = compare(paired, settings.alpha, gates[:-1], unlike, collapsed)
    if settings.min_coverage:
        size = len(baseline.items)
        gates.append(baseline_coverage(settings, differences[SCORE], size, baseline.name))
    return comparison, gates


def coverage(
    settings: GateOptions, scores: Sequence[Observation], errors: int, scores_expected: bool = True
) -> GateResult:
    """Gate the pairs that ended in an error; if there are some, report the range of the overall
    score with theirs.

    Where scores are expected and no pair has one, the gate is INVALID unless it fails.
    """
    n = len(scores)
    allowed = allowed_pairs(settings.max_errors, n)
    state: State = "PASS" if errors <= allowed else "FAIL"
    lacking = "a score" if scores_expected else "an edit"
    why = f"{errors} of {counted(n, 'pair')} without {lacking}, {allowed} allowed"
    has_scores = any(pair.value is not None for pair in scores)
    if scores_expected and not has_scores and state == "PASS":
        state = "INVALID"  # missing data never passes
        why = "no pair has a score"
    elif scores_expected and has_scores and errors:
        worst = estimate_group(OVERALL, filled(scores, 0))
        best = estimate_group(OVERALL, filled(scores, 1))
        if worst is not None and best is not None:
            why += f" (with theirs, overall would be between {worst.mean:.2f} and {best.mean:.2f})"
    return GateResult(OVERALL, "max_errors", allowed, value=errors, state=state, why=why)


def baseline_coverage(
    settings: GateOptions, differences: Sequence[Observation], size: int, baseline: str
) -> GateResult:
    """Gate the share of the baseline's `size` pairs that are compared: that have a difference."""
    compared = sum(pair.value is not None for pair in differences)
    least = settings.min_coverage
    is_enough = compared >= least * size - 1e-9  # the product is rounded
    state: State = "PASS" if is_enough else "FAIL"
    share = compared / size if size else 0.0
    why = f"{compared} of the {counted(size, 'pair')} of {baseline} compared, {least:.0%} asked for"
    return GateResult(OVERALL, "min_coverage", least, value=share, state=state, why=why)


def against_environment(
    settings: GateOptions, gates: Sequence[GateResult], differences: Sequence[str]
) -> list[GateResult]:
    """Invalidate gates against a baseline that was computed in another environment, if
    `gates.environment` is `same`.
    """
    if settings.environment == "any" or not differences:
        return list(gates)
    why = f"computed in other environments (gates.environment): {'; '.join(differences)}"
    return [replace(gate, state="INVALID", why=f"{why}; {gate.why}") for gate in gates]


def _invalidated_if_near_copies(
    settings: GateOptions, gate: GateResult, items: Sequence[Item]
) -> GateResult:
    """Invalidate a gate on scores if more than `gates.max_near_copies` of its edits are near-copies
    of their source.

    A judge that gives such edits a passing score does not look at them. A FAIL stays.
    """
    if gate.kind not in KINDS or gate.state not in ("PASS", "INCONCLUSIVE"):
        return gate
    group = Field.parse(gate.field).group
    of_group = [item for item in items if group in groups_of(item)]
    edits = [edit for item in of_group for edit in item.edits]
    copies = sum(edit.near_copy for edit in edits)
    if copies <= settings.max_near_copies * len(edits):
        return gate
    allowed = f"gates.max_near_copies allows {settings.max_near_copies:.0%}"
    why = f"{outcome.copies_line(of_group)} ({allowed}); {gate.why}"
    return replace(gate, state="INVALID", why=why)


def _invalidated_if_replaced(gate: GateResult, items: Sequence[Item]) -> GateResult:
    """Return the gate on errors, INVALID instead of PASS if more than `MOST_REPLACED` of the judged
    pairs have an unreadable reply that `compat` replaced or dropped.
    """
    replaced, judged = outcome.count_replaced(items)
    if gate.state != "PASS" or replaced <= MOST_REPLACED * judged:
        return gate
    why = f"{outcome.replaced_line(replaced, judged)}, more than {MOST_REPLACED:.0%}; {gate.why}"
    return replace(gate, state="INVALID", why=why)


def _invalidated_if_alike(gate: GateResult, items: Sequence[Item]) -> GateResult:
    """Return the gate on errors, INVALID instead of PASS if the finished edits of most sources are
    one image.
    """
    alike = alike_edits(items)
    if gate.state != "PASS" or alike is None or not alike.are_most:
        return gate
    return replace(gate, state="INVALID", why=f"{alike}; {gate.why}")


def measures_of(items: Iterable[Item], declared: Mapping[str, Measure]) -> dict[str, Measure]:
    """Return the score, the `declared` measures, and those that items have without a declaration,
    whose scale is not known.
    """
    names = dict.fromkeys(name for item in items for name in item.aspects)
    undeclared = dict.fromkeys(names, Measure())
    return {**SCORE_ONLY, **undeclared, **declared}


#: The row of a measure's mean over all pairs, beside those of groups: no group has this name.
MICRO = ""


def summarize_items(
    items: Sequence[Item], measures: Mapping[str, Measure]
) -> tuple[dict[str, Summary], Overall, dict[str, MeasuredGroups]]:
    """Return the summaries of the score by category and overall, and those of the score and every
    measure that applies to an item, by group.
    """
    drafts = draft_groups(items, measures)
    all_drafts = [draft for draft_of in drafts.values() for draft in draft_of.values()]
    summaries = iter(estimates.complete(all_drafts))  # at once, as they share random numbers
    measured = {}
    for name, draft_of in drafts.items():
        rows = {group: next(summaries) for group in draft_of}
        micro = rows.pop(MICRO)
        measured[name] = MeasuredGroups(**dict(measures[name]), rows=rows, micro=micro)
    score = measured[SCORE]
    names = in_order(item.category for item in items)
    categories = {name: score.rows[name] for name in names}
    return categories, Overall(macro=score.rows[OVERALL], micro=score.micro), measured


def draft_groups(
    items: Sequence[Item], measures: Mapping[str, Measure]
) -> dict[str, dict[str, estimates.Draft]]:
    """Draft the rows of the score, and of each measure that applies to an item, by group, with that
    of the mean over all pairs, `MICRO`.
    """
    return {
        name: _drafts(items, name, measure)
        for name, measure in measures.items()
        if name == SCORE or any(measured_by(items, name))
    }


def _drafts(items: Sequence[Item], name: str, measure: Measure) -> dict[str, estimates.Draft]:
    """Draft the rows of a measure by group, with that of the mean over all pairs, `MICRO`.

    The row of `overall` is the same but for its mean, which is that of the category means.
    """
    items = list(measured_by(items, name))
    members = by_group(items, groups_of)
    micro = _draft(items, name, measure)
    macro_mean = estimate_group(OVERALL, observe(items, name, measure))
    drafts = {OVERALL: replace(micro, mean=macro_mean)}
    for group in groups_in(items):
        if group != OVERALL:
            drafts[group] = _draft(members[group], name, measure)
    drafts[MICRO] = micro
    return drafts


def _draft(items: Sequence[Item], name: str, measure: Measure) -> estimates.Draft:
    """Draft the row of a measure over items. Of those without a value, those that failed are errors
    or refused, and the others pending.
    """
    values = []
    clusters = []
    without = []
    for item in items:
        value = item.value(name)
        if value is None:
            without.append(item)
        else:
            values.append(value)
            clusters.append(item.cluster)
    refused = sum(item.status == "refused" for item in without)
    failed = sum(item.status in FAILED or name in item.missing for item in without)
    errors = failed - refused
    return estimates.draft(
        values,
        clusters,
        errors=errors,
        pending=len(without) - failed,
        refused=refused,
        ends=measure.ends,
    )


def _count_errors(items: Sequence[Item]) -> int:
    return sum(item.status in FAILED for item in items)
