"""What changed between a baseline and a run: paired differences of the same pairs, from two
documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_imgedit.core.environments import Environment
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.results import (
    ComparedPair,
    Comparison,
    ComparisonRow,
    ComputedIn,
    EditorInfo,
    GateResult,
    JudgeInfo,
    MovedPair,
)
from pytest_imgedit.stats.collapse import are_alike
from pytest_imgedit.stats.estimates import Estimate
from pytest_imgedit.stats.gates import Observation, estimate_field
from pytest_imgedit.stats.holm import holm
from pytest_imgedit.store.baselines import Baseline, BaselineItem

#: How many of the pairs that fell or rose most a comparison names.
MOST = 5


def differences(before: Iterable[BaselineItem], now: Iterable[BaselineItem]) -> list[Observation]:
    """Pair the items of a run with those of a baseline by id; `value` is now − before, within [-10,
    10].

    A pair that has no score on one side has no value, and bounds from the end of the scale.
    """
    old = {item.id: item for item in before}
    found = []
    for item in now:
        score, was = item.score, old[item.id].score
        value = None if score is None or was is None else round(score - was, 6)
        lowest = (0.0 if score is None else score) - (10.0 if was is None else was)
        highest = (10.0 if score is None else score) - (0.0 if was is None else was)
        alike = are_alike(old[item.id], item)
        found.append(Observation(item.category, item.cluster, value, lowest, highest, alike, was))
    return found


def compare(
    baseline: Baseline,
    items: Sequence[BaselineItem],
    alpha: float,
    gates: Sequence[GateResult] = (),
    environment: Sequence[str] = (),
    collapsed: Sequence[str] = (),
) -> Comparison:
    """Compare a run's items with a baseline.

    A row that one of the `max_drop` gates is on has that gate's p, state and MDE. `environment` is
    what `environment_differences` says of the two, `collapsed` are the ids that `max_collapsed`
    finds.
    """
    observations = differences(baseline.items, items)
    old = {item.id: item for item in baseline.items}
    moved = [
        MovedPair(id=item.id, before=was, now=item.score, difference=one.value)
        for item, one in zip(items, observations, strict=True)
        if (was := old[item.id].score) is not None and item.score is not None and one.value
    ]
    moved.sort(key=lambda pair: (pair.difference, pair.id))
    return Comparison(
        name=baseline.name,
        run=baseline.run,
        editor=baseline.editor.spec,
        commit=baseline.commit,
        environment=tuple(environment),
        size=len(baseline.items),
        rows=_rows(old, items, observations, alpha, gates),
        pairs={
            item.id: ComparedPair(
                before=old[item.id].score,
                difference=one.value,
                edits=old[item.id].edits,
                alike=one.alike,
            )
            for item, one in zip(items, observations, strict=True)
        },
        fell=tuple(pair for pair in moved if pair.difference < 0)[:MOST],
        rose=tuple(pair for pair in reversed(moved) if pair.difference > 0)[:MOST],
        collapsed=tuple(collapsed),
    )


def _rows(
    old: Mapping[str, BaselineItem],
    items: Sequence[BaselineItem],
    observations: Sequence[Observation],
    alpha: float,
    gates: Sequence[GateResult],
) -> dict[str, ComparisonRow]:
    """One row for `overall` and each category; p values are adjusted over all of them."""
    fields = ["overall", *in_order(pair.category for pair in observations)]
    estimates = {field: estimate_field(field, observations) for field in fields}
    drops = holm([1.0 if one is None else one.p_below(0) for one in estimates.values()])
    rises = holm([1.0 if one is None else one.p_above(0) for one in estimates.values()])
    gate_of = {gate.field: gate for gate in gates}
    compared = [
        item for item, moved in zip(items, observations, strict=True) if moved.value is not None
    ]
    rows = {}
    for (field, one), drop, rise in zip(estimates.items(), drops, rises, strict=True):
        both = [item for item in compared if field in ("overall", item.category)]
        before = estimate_field(
            field, [Observation(item.category, item.id, old[item.id].score) for item in both]
        )
        now = estimate_field(
            field, [Observation(item.category, item.id, item.score) for item in both]
        )
        is_known, gate = one is not None and one.se is not None, gate_of.get(field)
        p, finding = (drop, _finding(one, drop, rise, alpha)) if is_known else (None, "unknown")
        mde = one.mde(alpha / len(fields)) if one is not None and is_known else None
        rows[field] = ComparisonRow(
            n=len(both),
            before=_mean(before),
            now=_mean(now),
            difference=_mean(one),
            ci95=None if one is None else one.interval(),
            p=p if gate is None else gate.p,
            p_rise=rise if is_known else None,
            finding=finding if gate is None else gate.state,
            mde=mde if gate is None else gate.mde,
        )
    return rows


def _mean(found: Estimate | None) -> float | None:
    if found is None:
        return None
    return found.mean


@dataclass(frozen=True)
class Computed:
    """Where a run was computed, or would be."""

    editor: EditorInfo
    judge: JudgeInfo
    environments: Mapping[str, ComputedIn]


def environment_differences(before: Baseline, now: Baseline | Computed) -> list[str]:
    """Say in what two runs or baselines were computed otherwise, edits and verdicts apart; nothing
    where they agree.

    That is where they were (`environments`), in which `dtype`, in calls for how many edits, and by
    which decoder a judge's batches.
    """
    sides = (before.environments.values(), now.environments.values())
    found = _unlike("edits", *([one.bare for one in side if one.edits] for side in sides))
    found += _otherwise("edits: dtype", before.editor.dtype, now.editor.dtype)
    found += _otherwise(
        "edits: batch size", *(_listed(side.editor.batch_sizes) for side in (before, now))
    )
    found += _unlike("verdicts", *([one.bare for one in side if one.verdicts] for side in sides))
    found += _otherwise("verdicts: dtype", before.judge.dtype, now.judge.dtype)
    return found + _otherwise("verdicts: decoder", before.judge.decoder, now.judge.decoder)


def _unlike(what: str, theirs: Sequence[Environment], ours: Sequence[Environment]) -> list[str]:
    if (
        not theirs
        or not ours
        or (all(old in ours for old in theirs) and all(new in theirs for new in ours))
    ):
        return []
    texts = dict.fromkeys(text for old in theirs for new in ours for text in old.differences(new))
    return [f"{what}: {text}" for text in texts]


def _listed(sizes: Sequence[int]) -> str | None:
    return " and ".join(map(str, sizes)) or None


def _otherwise(name: str, was: str | None, now: str | None) -> list[str]:
    if was == now or None in (was, now):
        return []
    return [f"{name} {was} there, {now} here"]


def _finding(found: Estimate | None, drop: float, rise: float, alpha: float) -> str:
    """Say whether a mean difference fell or rose; `drop` and `rise` are p values after Holm."""
    if found is not None and found.se == 0 and found.mean == 0:
        return "same"
    if drop <= alpha:
        return "fell"
    if rise <= alpha:
        return "rose"
    return "no change shown"
