"""`imgedit plan`: what the pairs of a run can detect, and how many pairs would detect more."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from pytest_imgedit.cli.comparable import names_of, read_either, read_run, refuse_to_compare
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import (
    OVERALL,
    SCORE,
    SCORE_ONLY,
    WIN,
    Field,
    groups_in,
    groups_of,
)
from pytest_imgedit.core.results import Measure, Results
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, number, printable
from pytest_imgedit.report import terminal
from pytest_imgedit.stats import duels, estimates, gate_values, planning
from pytest_imgedit.stats.comparison import PairedItems
from pytest_imgedit.stats.estimates import Estimate
from pytest_imgedit.stats.gate_limits import MeanGate
from pytest_imgedit.store.baselines import Baseline, BaselineItem, make_baseline, reduced
from pytest_imgedit.store.run_references import LATEST

#: Numbers of edits per pair that a plan is made for.
SEEDS = (1, 2, 4)
#: Pairs that a stated spread is assumed to be estimated from; gives its degrees of freedom.
_STATED_PAIRS = 100
#: By how much a share of duels cannot fall, from a half.
MOST_LOST = 0.5
HEADER = ("gate", "seeds", "pairs now", "MDE now", "pairs needed", "edits")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """What is known of a gate's number: its standard error with `pairs` pairs, and how much of it
    comes from the seeds.

    `gate` begins with its `kind`, unless the spread is stated. `error` is on the scale of the
    measure. `noise` is the share of the variance that comes from `seeds` seeds, or `None` if it is
    unknown.
    """

    gate: str
    kind: MeanGate = "fail_under"
    measure: Measure
    pairs: int
    error: float
    freedom: float
    seeds: int
    noise: float | None

    def error_with(self, seeds: int) -> float | None:
        """Return the standard error with `seeds` seeds a pair, or `None` if it is unknown."""
        if seeds == self.seeds:
            return self.error
        if self.noise is None:
            return None
        return self.error * math.sqrt(1 - self.noise + self.noise * self.seeds / seeds)


@dataclass(frozen=True, kw_only=True)
class _Basis:
    """What a plan is estimated from: the spreads of the gates' numbers, and where they come from.

    `alpha` is shared by all gates on means. `cost` is the time of an edit and its verdict in
    seconds, or `None` if it is unknown; `time_unit` says whose time that is.
    """

    spreads: Sequence[Spread]
    origin: str
    alpha: float
    cost: float | None = None
    time_unit: str = "hours"


def plan(
    reference: str | None,
    before: str | None,
    *,
    gate: Sequence[str],
    spread: float | None,
    power: float | None,
    alpha: float,
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Say with how many pairs gates would find a difference of `power`, by a stored run or by a
    stated `spread` of a pair; without `power`, what the pairs of the run can detect.

    `before` names an earlier run, from whose differences gates on drops are planned. `gate` names
    fields, by default the overall score; `power` and `spread` are on the scales of their measures.
    Raises `UsageError` unless there is either a run or a spread.
    """
    fields = list(dict.fromkeys(map(Field.parse, gate))) or [Field(SCORE, OVERALL)]
    _check_numbers(power, alpha)
    if (reference is None) == (spread is None):
        raise errors.UsageError(
            "expected a RUN to go by, or --spread=SD, the standard deviation of a pair's number"
        )
    if spread is not None:
        _check_spread(spread, before, power)
        basis = _stated_basis(spread, alpha)
    else:
        assert reference is not None
        run, baseline = _read(reference, before, out)
        basis = _basis_of_run(run, baseline, before, fields, alpha)
    alpha_of_gate = basis.alpha / len(fields)
    gates_at_alpha = f"alpha {alpha:g} over {counted(len(fields), 'gate')}, by {basis.origin}"
    if power is None:
        return _decidable(basis.spreads, alpha_of_gate, gates_at_alpha)
    rows = list(_rows(basis, power, alpha_of_gate))
    header = (*HEADER, basis.time_unit)
    table = [_cells(row, has_run=reference is not None) for row in rows]
    lines = [
        f"for an MDE of {power:g} in 80% of runs at {printable(gates_at_alpha)}",
        terminal.render_table(header, table).rstrip(),
    ]
    if any(known.noise is None for known in basis.spreads):
        lines.append(
            "what further seeds would do is known for the score alone, from a run with two or more "
            "of them"
        )
    document = {"mde": power, "alpha": alpha, "by": basis.origin, "rows": rows}
    return document, "\n".join(lines), 0


def _check_numbers(power: float | None, alpha: float) -> None:
    """Raise `UsageError` for numbers out of their range."""
    if power is not None and not 0 < power < math.inf:
        raise errors.UsageError(f"--power={power:g}: expected a number over 0")
    if not 0 < alpha < 0.5:
        raise errors.UsageError(f"--alpha={alpha:g}: expected a number over 0 and under 0.5")


def _check_spread(spread: float, before: str | None, power: float | None) -> None:
    """Raise `UsageError` for a stated spread that no plan can be made from."""
    if before is not None or not 0 < spread < math.inf:
        raise errors.UsageError(f"--spread={spread}: expected a number over 0, and no --before")
    if power is None:
        raise errors.UsageError(
            f"--spread={spread:g}: says nothing of pairs at hand, expected --power=MDE too"
        )


def _stated_basis(spread: float, alpha: float) -> _Basis:
    """Return a basis that knows the standard deviation of a pair's number alone."""
    stated = Spread(
        gate=f"of spread {spread:g}",
        measure=Measure(),
        pairs=_STATED_PAIRS,
        error=spread / math.sqrt(_STATED_PAIRS),
        freedom=_STATED_PAIRS - 1.0,
        seeds=1,
        noise=None,
    )
    origin = f"pairs whose number has a standard deviation of {spread:g}"
    return _Basis(spreads=[stated], origin=origin, alpha=alpha)


def _basis_of_run(
    run: Results,
    baseline: Baseline | None,
    before: str | None,
    fields: Sequence[Field],
    alpha: float,
) -> _Basis:
    """Return a basis of the values of a run, or of their differences from the baseline, which the
    user calls `before`; raise `UsageError` if these cannot be compared.
    """
    origin = f"run {run.run.id}"
    if baseline is not None:
        refuse_to_compare(baseline, make_baseline(run, "now"), f"{before} and {run.run.id}")
        origin += f" against {before}"
        alpha /= 2  # gates on drops share α with the gate on the tail
    unneeded = sum(item.status == "not_needed" for item in run.items)
    if unneeded:
        origin += f", which ended early and left out {unneeded} of its {len(run.items)} pairs"
    return _Basis(
        spreads=list(_spreads(run, baseline, fields)),
        origin=origin,
        alpha=alpha,
        cost=_cost(run),
        time_unit="GPU hours" if run.run.machine.gpus else "worker hours",
    )


def _cells(row: JsonObject, has_run: bool) -> tuple[str, ...]:
    """Return the cells of a row; without a run there are no pairs now, and pairs that are not known
    are over a million.
    """
    pairs_now = "–"
    mde_now = "–"
    if has_run:
        pairs_now = str(row["pairs_now"])
        mde_now = number(row["mde"])
    pairs = "over a million"
    edits = "–"
    if row["pairs"]:
        pairs = f"{row['pairs']:,}"
        edits = f"{row['edits']:,}"
    return (row["gate"], str(row["seeds"]), pairs_now, mde_now, pairs, edits, number(row["hours"]))


def _read(reference: str, before: str | None, out: Path) -> tuple[Results, Baseline | None]:
    """Return the run to go by, and the baseline `before` that it is compared with, if any.

    If one of them is `latest`, it has the suite of the other.
    """
    if before is None or before == LATEST:
        run = read_run(reference, out)
        if before is None:
            return run, None
        return run, read_either(before, out, names_of(run.suite))
    baseline = read_either(before, out)
    return read_run(reference, out, names_of(baseline.suite)), baseline


def _decidable(
    spreads: Sequence[Spread], alpha: float, gates_at_alpha: str
) -> tuple[JsonObject, str, int]:
    """Say what the pairs at hand can detect, each gate at `alpha`."""
    rows = []
    lines = [f"in 80% of runs at {printable(gates_at_alpha)}:"]
    for spread in spreads:
        mde = planning.mde(spread.error, spread.freedom, alpha)
        rows.append({"gate": spread.gate, "pairs_now": spread.pairs, "mde": mde})
        change = planning.detectable(spread.kind, mde, spread.measure)
        pairs = counted(spread.pairs, "pair")
        lines.append(f"{printable(spread.gate)}: {pairs} can detect {change}")
    return {"rows": rows}, "\n".join(lines), 0


def _rows(basis: _Basis, power: float, alpha: float) -> Iterator[JsonObject]:
    """Yield a row for each spread and each number of seeds for which its error is known; each gate
    is at `alpha`. A share of duels falls by less than a half, so that more is meant for scores.
    """
    for spread, seeds in product(basis.spreads, SEEDS):
        error = spread.error_with(seeds)
        if error is None or (spread.kind == "min_win" and power >= MOST_LOST):
            continue
        row: JsonObject = {
            "gate": spread.gate,
            "seeds": seeds,
            "pairs_now": spread.pairs,
            "mde": planning.mde(error, spread.freedom, alpha),
            "pairs": None,
            "edits": None,
            "hours": None,
        }
        factor = planning.size_for(power, error, spread.freedom, alpha)
        if factor is not None:
            row["pairs"] = max(estimates.ENOUGH, math.ceil(factor * spread.pairs))
            row["edits"] = row["pairs"] * seeds
            if basis.cost is not None:
                row["hours"] = row["edits"] * basis.cost / 3600
        yield row


def _spreads(run: Results, baseline: Baseline | None, fields: Sequence[Field]) -> Iterator[Spread]:
    """Yield the spread of a run's values by field, or of their differences from a baseline.

    A field whose noise is known, and is not 0, also gets the spread that drops would have if only
    the seeds differed, unless there is a baseline. So does the share of duels that a run wins in a
    field, if it has duels, and shares differ. Raises `UsageError` for a field that the run
    does not have.
    """
    items = list(map(reduced, run.items))
    measures = {**SCORE_ONLY, **run.measures}
    for field in fields:
        gate_values.check_field("--gate", str(field), groups_in(items), measures)
        spread = _spread(run, items, baseline, field, measures[field.measure])
        yield spread
        wins = None if baseline is not None else _spread_of_duels(run, items, field)
        if wins is not None:
            yield wins
        if spread.noise and baseline is None:
            yield replace(
                spread,
                gate=f"max_drop {field}, if seeds alone differ",
                kind="max_drop",
                error=spread.error * math.sqrt(2 * spread.noise),  # the seeds of both runs vary
                noise=1.0,
            )


def _spread(
    run: Results,
    items: Sequence[BaselineItem],
    baseline: Baseline | None,
    field: Field,
    measure: Measure,
) -> Spread:
    """Return the spread of a field over the items of a run that have it, on both sides if there is
    a baseline; raise `UsageError` if there is none, or if all are alike.
    """
    kind: MeanGate
    if baseline is None:
        kind = "fail_under"
        observations = gate_values.observe(items, field.measure, measure)
    else:
        kind = "max_drop"
        paired = PairedItems(baseline, items, {field.measure: measure})
        observations = paired.differences[field.measure]
    known = [pair for pair in observations if pair.value is not None]
    mean = gate_values.estimate_group(field.group, known)
    if mean is None:
        sides = "" if baseline is None else " on both sides"
        raise errors.UsageError(f"--gate={field}: no pair of run {run.run.id} has it{sides}")
    if not mean.se:
        raise errors.UsageError(
            f"--gate={field}: no spread seen in {mean.n} pairs, which tells nothing of others"
        )
    noise = None
    if field.measure == SCORE:
        noise = _noise(field.group, items, baseline, mean)
    return Spread(
        gate=f"{kind} {field}",
        kind=kind,
        measure=measure,
        pairs=mean.n,
        error=mean.se,
        freedom=mean.freedom,
        seeds=run.run.options.editor.seeds,
        noise=noise,
    )


def _spread_of_duels(run: Results, items: Sequence[BaselineItem], field: Field) -> Spread | None:
    """Return the spread of the share of duels that a field wins; `None` if the run has no such
    duels, or all are alike.
    """
    if run.duel is None or field.measure not in run.duel.measures:
        return None
    wins = duels.observe_wins(run.duel.pairs, items, field.measure)
    share = gate_values.estimate_group(field.group, wins)
    if share is None or not share.se:
        return None
    return Spread(
        gate=f"min_win {field}",
        kind="min_win",
        measure=WIN,
        pairs=share.n,
        error=share.se,
        freedom=share.freedom,
        seeds=run.run.options.editor.seeds,
        noise=None,
    )


def _noise(
    group: str, items: Sequence[BaselineItem], baseline: Baseline | None, mean: Estimate
) -> float | None:
    """Return the share of the variance of the `mean` score of a group, or of its difference from
    the baseline, that comes from the seeds, at most 1; `None` with a single seed.
    """
    members = [item for item in items if group in groups_of(item) and item.score is not None]
    sides = [members]
    if baseline is not None:
        earlier = {item.id: item for item in baseline.items}
        members = [item for item in members if earlier[item.id].score is not None]
        sides = [members, [earlier[item.id] for item in members]]
    seeds = len(members[0].seeds)
    if seeds == 1:
        return None
    within = sum(map(_mean_variance, sides)) / seeds
    total = (mean.se or 0.0) ** 2 * len(members)  # of a pair, from the error of the mean
    return min(1.0, within / max(within, total))


def _mean_variance(items: Sequence[BaselineItem]) -> float:
    """Return the mean of the variances within items."""
    return float(np.mean([_variance(item) for item in items]))


def _variance(item: BaselineItem) -> float:
    """Return the sample variance of the scores of an item's seeds, at least two."""
    scores = [seed.score for seed in item.seeds if seed.score is not None]
    return float(np.var(scores, ddof=1))


def _cost(run: Results) -> float | None:
    """Return the seconds, times GPUs, that an edit and its verdict took; `None` without any edit.

    If a run took all its verdicts from its store, they count as free.
    """
    options = run.run.options
    edit_seconds = [edit.seconds for item in run.items for edit in item.edits]
    if not edit_seconds:
        return None
    edit = options.workers["gpus_per_worker"] * float(np.mean(edit_seconds))
    judging = [worker for worker in run.workers if worker.stage == "score" and worker.jobs]
    jobs = max(1, sum(worker.jobs for worker in judging))
    verdict_seconds = sum(worker.busy_s for worker in judging) / jobs
    return float(edit + options.judge["gpus_per_replica"] * verdict_seconds)
