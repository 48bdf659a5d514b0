"""What changed between a baseline and a run: paired differences of the same pairs, from two
documents.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from pytest_imgedit.core import environments, errors
from pytest_imgedit.core.measures import SCORE, Field, by_group, groups_in, groups_of
from pytest_imgedit.core.results import (
    ComparedPair,
    Comparison,
    ComparisonRow,
    ComputedIn,
    EditorInfo,
    GateResult,
    JudgeInfo,
    Measure,
    ModelInfo,
    MovedPair,
)
from pytest_imgedit.kinds import registry
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.stats import collapsed_pairs, holm
from pytest_imgedit.stats.estimates import Estimate
from pytest_imgedit.stats.gate_values import Observation, estimate_group, means_before, measured_by
from pytest_imgedit.store.baselines import Baseline, BaselineItem

#: Number of pairs that fell or rose most which a comparison names.
MOST = 5


@dataclass(frozen=True)
class PairedItems:
    """The items of a run, each with the item of a baseline that has its id, and the measures of the
    run.

    A pair that ended without a score in the same way on both sides has not moved: it is no part of
    moves and differences.
    """

    baseline: Baseline
    items: Sequence[BaselineItem]
    measures: Mapping[str, Measure]

    @cached_property
    def failed_alike(self) -> list[BaselineItem]:
        """The pairs that have no score on either side, and the same status; none with the status
        `edited`, as these were to have no score.
        """
        failed = {
            item.id: item.status
            for item in self.baseline.items
            if item.score is None and item.status != "edited"
        }
        return [
            item for item in self.items if item.score is None and item.status == failed.get(item.id)
        ]

    @cached_property
    def compared(self) -> list[BaselineItem]:
        """All other pairs."""
        failed = {item.id for item in self.failed_alike}
        return [item for item in self.items if item.id not in failed]

    @cached_property
    def moves(self) -> list[collapsed_pairs.Move]:
        """The change of the score of each of the `compared` pairs."""
        return collapsed_pairs.moves_between(self.baseline.items, self.compared)

    @cached_property
    def differences(self) -> dict[str, list[Observation]]:
        """The difference of each of the `compared` pairs that a measure applies to, by measure, as
        `_difference` returns it.
        """
        old = {item.id: item for item in self.baseline.items}
        alike = {move.pair: move.alike for move in self.moves}
        differences = {}
        for name, measure in self.measures.items():
            differences[name] = [
                _difference(old[item.id], item, name, measure, alike[item.id])
                for item in measured_by(self.compared, name)
            ]
        return differences


def _difference(
    old: BaselineItem, item: BaselineItem, name: str, measure: Measure, alike: bool
) -> Observation:
    """Return the difference of an item in a measure from the `old` one, now − before.

    Without a value on one side it has no value; its bounds are the differences with the ends of the
    scale for what is missing. `alike` says that the edits look alike.
    """
    before = old.value(name)
    now = item.value(name)
    difference = None
    if before is not None and now is not None:
        difference = round(now - before, 6)
    lowest, highest = measure.ends
    lowest_now = lowest if now is None else now
    highest_now = highest if now is None else now
    lowest_before = lowest if before is None else before
    highest_before = highest if before is None else before
    return Observation(
        item.category,
        item.cluster,
        value=difference,
        lowest=lowest_now - highest_before,
        highest=highest_now - lowest_before,
        alike=alike,
        before=before,
        groups=groups_of(item),
        seeds=max(1, len(item.seeds)),
    )


def compare(
    paired: PairedItems,
    alpha: float,
    gates: Sequence[GateResult] = (),
    environment: Sequence[str] = (),
    collapsed: Sequence[str] = (),
) -> Comparison:
    """Compare a run's items with those of a baseline, by measure and group; measures that the
    baseline lacks are left out.

    `alpha` decides the findings of rows. The row of a field with a gate in `gates` has that gate's
    p, state and MDE. `environment` is the list of `environment_differences`, `collapsed` the ids
    from `max_collapsed`.
    """
    baseline = paired.baseline
    rows = {}
    for name in paired.measures:
        if name == SCORE or name in baseline.measures:
            rows[name] = _rows_of_measure(paired, name, alpha, gates)
    moved = _moved(paired)
    overall_and_categories = {group: row for group, row in rows[SCORE].items() if "=" not in group}
    fell = [pair for pair in moved if pair.difference < 0]
    rose = [pair for pair in reversed(moved) if pair.difference > 0]
    return Comparison(
        name=baseline.name,
        run=baseline.run,
        editor=baseline.editor.spec,
        commit=baseline.commit,
        environment=tuple(environment),
        size=len(baseline.items),
        rows=overall_and_categories,
        measures=rows,
        pairs=_compared_pairs(paired),
        fell=tuple(fell[:MOST]),
        rose=tuple(rose[:MOST]),
        collapsed=tuple(collapsed),
        failed_alike={item.id: item.status for item in paired.failed_alike},
    )


def _moved(paired: PairedItems) -> list[MovedPair]:
    """Return the pairs with a score on both sides that moved, the furthest fall first."""
    moved = []
    for item, pair in zip(paired.compared, paired.differences[SCORE], strict=True):
        if pair.before is not None and item.score is not None and pair.value:
            moved.append(
                MovedPair(id=item.id, before=pair.before, now=item.score, difference=pair.value)
            )
    return sorted(moved, key=lambda pair: (pair.difference, pair.id))


def _compared_pairs(paired: PairedItems) -> dict[str, ComparedPair]:
    """Return what is known of each compared pair, by its id."""
    old = {item.id: item for item in paired.baseline.items}
    pairs = {}
    for item, pair in zip(paired.compared, paired.differences[SCORE], strict=True):
        pairs[item.id] = ComparedPair(
            before=pair.before,
            difference=pair.value,
            edits=old[item.id].edits,
            alike=pair.alike,
        )
    return pairs


def _rows_of_measure(
    paired: PairedItems, name: str, alpha: float, gates: Sequence[GateResult]
) -> dict[str, ComparisonRow]:
    """Return the row of each group; p values are adjusted over `overall` and the categories, and
    over the other groups.

    In the row of a gate its p is that of the change for the worse.
    """
    items = list(measured_by(paired.compared, name))
    pairs = list(zip(items, paired.differences[name], strict=True))
    gate_of = {gate.field: gate for gate in gates}
    groups = groups_in(items)
    categories = [group for group in groups if "=" not in group]
    others = [group for group in groups if "=" in group]
    rows = {}
    for family in (categories, others):
        for group, row in _rows_of_family(family, pairs, name, alpha).items():
            gate = gate_of.get(str(Field(name, group)))
            if gate is not None:
                worse = "p_rise" if paired.measures[name].lower_is_better else "p"
                update = {worse: gate.p, "finding": gate.state, "mde": gate.mde}
                row = row.model_copy(update=update)
            rows[group] = row
    return rows


def _rows_of_family(
    groups: Sequence[str],
    pairs: Sequence[tuple[BaselineItem, Observation]],
    name: str,
    alpha: float,
) -> dict[str, ComparisonRow]:
    """Return the row of each group, with p values after Holm's correction over these groups.

    `pairs` are items of the run with their differences. A group whose mean difference is not known
    counts in the correction with a p of 1. Its row has no difference. A row without a standard
    error has no p values.
    """
    differences = [difference for _, difference in pairs]
    members = by_group(differences, Observation.all_groups)
    estimates = {group: estimate_group(group, members.get(group, [])) for group in groups}
    drops = []
    rises = []
    for estimate in estimates.values():
        drops.append(1.0 if estimate is None else estimate.p_below(0))
        rises.append(1.0 if estimate is None else estimate.p_above(0))
    before = means_before(groups, differences)
    values = _values_now(pairs, name)
    rows = {}
    for group, drop, rise in zip(groups, holm.holm(drops), holm.holm(rises), strict=True):
        values_of_group = values.get(group, [])
        now = estimate_group(group, values_of_group)
        estimate = estimates[group]
        has_p = estimate is not None and estimate.se is not None
        rows[group] = ComparisonRow(
            n=len(values_of_group),
            before=before.get(group),
            now=None if now is None else now.mean,
            difference=None if estimate is None else estimate.mean,
            ci95=None if estimate is None else estimate.interval(),
            p=drop if has_p else None,
            p_rise=rise if has_p else None,
            finding=_finding(estimate, drop, rise, alpha),
            mde=None if estimate is None else estimate.mde(alpha / len(groups)),
        )
    return rows


def _values_now(
    pairs: Sequence[tuple[BaselineItem, Observation]], name: str
) -> dict[str, list[Observation]]:
    """Return the values in the run of the pairs that have a difference, by group."""
    values = []
    for item, difference in pairs:
        if difference.value is not None:
            groups = groups_of(item)
            values.append(Observation(item.category, item.id, item.value(name), groups=groups))
    return by_group(values, Observation.all_groups)


def _finding(estimate: Estimate | None, drop: float, rise: float, alpha: float) -> str:
    """Say whether a mean fell or rose; `drop` and `rise` are the p values of that after Holm's
    correction. It is the `same` at a mean difference of 0 without any spread, and `unknown`
    without a standard error.
    """
    if estimate is None or estimate.se is None:
        return "unknown"
    if estimate.se == 0 and estimate.mean == 0:
        return "same"
    if drop <= alpha:
        return "fell"
    if rise <= alpha:
        return "rose"
    return "no change shown"


@dataclass(frozen=True)
class Computed:
    """Where a run was computed, or would be."""

    editor: EditorInfo
    judge: JudgeInfo
    environments: Mapping[str, ComputedIn]


def environment_differences(before: Baseline, now: Baseline | Computed) -> list[str]:
    """List the differences between where two runs or baselines were computed, for edits and
    verdicts separately.

    Compared are their `environments`, dtypes and batch sizes, the decoders of a judge's batches,
    and the probes of a model that is the same in both. A package that one side lacks is a
    difference only if the models of both sides import it.
    """
    old_editor = before.editor
    new_editor = now.editor
    old_judge = before.judge
    new_judge = now.judge
    differences = _unlike_places("edits", "editor", before, now)
    differences += _unlike_facts("edits: dtype", old_editor.dtype, new_editor.dtype)
    differences += _unlike_facts(
        "edits: batch size", _batch_sizes(old_editor), _batch_sizes(new_editor)
    )
    differences += _unlike_places("verdicts", "judge", before, now)
    differences += _unlike_facts("verdicts: dtype", old_judge.dtype, new_judge.dtype)
    differences += _unlike_facts("verdicts: decoder", old_judge.decoder, new_judge.decoder)
    return differences


def _batch_sizes(editor: EditorInfo) -> str | None:
    return " and ".join(map(str, editor.batch_sizes)) or None


def _unlike_places(stage: str, role: Role, before: Baseline, now: Baseline | Computed) -> list[str]:
    """Describe the differences between the environments of a stage, and between the probes of its
    model if that is the same in both.
    """
    old_model: ModelInfo = getattr(before, role)
    new_model: ModelInfo = getattr(now, role)
    old = places_of(stage, before.environments)
    new = places_of(stage, now.environments)
    if old_model.recipe == new_model.recipe is not None:
        return _unlike_environments(stage, old, new, shared=None) + other_probes(stage, old, new)
    shared = _declared(role, old_model, new_model)
    return _unlike_environments(stage, old, new, shared=shared)


def places_of(stage: str, computed: Mapping[str, ComputedIn]) -> list[environments.Environment]:
    """Return the environments in which the `"edits"` or the `"verdicts"` of a run were computed."""
    return [place.bare for place in computed.values() if getattr(place, stage)]


def other_probes(
    stage: str, before: Sequence[environments.Environment], now: Sequence[environments.Environment]
) -> list[str]:
    """Describe probes of one model, that of a stage, which differ between environments of one type
    of GPU; none if both sides hold the same environments.
    """
    if _are_same(before, now):
        return []
    texts = [
        f"{stage}: probe {old.probe} there, {new.probe} here ({new.gpu or 'CPU'})"
        for old in before
        for new in now
        if old.has_other_probe(new)
    ]
    return list(dict.fromkeys(texts))


def _declared(role: Role, *models: ModelInfo) -> set[str]:
    """Return the packages that the kinds of all models declare; a custom class declares none, nor
    does a kind that cannot be imported here.
    """
    declared = []
    for model in models:
        kind = None
        with suppress(errors.UsageError):  # a kind of a package that is broken here
            kind = registry.kind_of(role, model.spec)
        declared.append(set() if kind is None else set(kind.libraries))
    return set.intersection(*declared)


def _unlike_environments(
    stage: str,
    before: Sequence[environments.Environment],
    now: Sequence[environments.Environment],
    *,
    shared: Collection[str] | None,
) -> list[str]:
    """Describe the differences of each environment before from each one now, a text once; none if
    both sides hold the same, probes aside. `shared` is as in `Environment.differences`.
    """
    if _are_same(_without_probes(before), _without_probes(now)):
        return []
    texts = dict.fromkeys(
        text for old in before for new in now for text in old.differences(new, shared)
    )
    return [f"{stage}: {text}" for text in texts]


def _without_probes(
    places: Sequence[environments.Environment],
) -> list[environments.Environment]:
    return [place.model_copy(update={"probe": None}) for place in places]


def _are_same(
    before: Sequence[environments.Environment], now: Sequence[environments.Environment]
) -> bool:
    """Tell whether both sides hold the same environments."""
    is_gone = any(old not in now for old in before)
    is_new = any(new not in before for new in now)
    return not is_gone and not is_new


def _unlike_facts(name: str, before: str | None, now: str | None) -> list[str]:
    """Describe a difference between two facts; none if one of them is not known."""
    if before is None or now is None or before == now:
        return []
    return [f"{name} {before} there, {now} here"]
