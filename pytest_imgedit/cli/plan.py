"""`imgedit plan`: pairs, seeds and GPU hours for a wanted MDE, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.cli.runs import find_run, read_either, refuse_to_compare
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import category_slug, in_order
from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import number
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import terminal
from pytest_imgedit.stats.estimates import ENOUGH, estimate
from pytest_imgedit.stats.planning import mde, size_for
from pytest_imgedit.store.baselines import BaselineItem, read_results, reduced

#: Edits a pair for which is planned.
SEEDS = (1, 2, 4)
HEADER = ("gate", "seeds", "pairs now", "MDE now", "pairs needed", "edits", "hours")


@dataclass(frozen=True)
class Spread:
    """What is known of a gate's number: its standard error with `pairs` pairs, and how much of it
    is the seeds'.

    `noise` is the share of the variance that seeds make with `seeds` of them, `None` where that is
    not known.
    """

    gate: str
    pairs: int
    error: float
    freedom: float
    seeds: int
    noise: float | None

    def error_with(self, seeds: int) -> float | None:
        """Standard error with so many seeds a pair; `None` where that is not known."""
        if seeds == self.seeds:
            return self.error
        if self.noise is None:
            return None
        return self.error * math.sqrt(1 - self.noise + self.noise * self.seeds / seeds)


def plan(
    reference: str | None,
    before: str | None,
    gate: Sequence[str],
    spread: float | None,
    power: float,
    alpha: float,
    out: Path,
) -> Printed:
    """Say with how many pairs gates would find `power` points, by a stored run or by a stated
    `spread` of a pair.
    """
    fields, effect = [*dict.fromkeys(map(category_slug, gate))], power
    if not 0 < effect <= 10:
        raise UsageError(f"--power={effect:g}: expected points on the 0..10 scale")
    if not 0 < alpha < 0.5:
        raise UsageError(f"--alpha={alpha:g}: expected a number over 0 and under 0.5")
    if (reference is None) == (spread is None):
        raise UsageError(
            "expected a RUN to go by, or --spread=SD, the standard deviation of a pair's number"
        )
    cost = None
    if reference is None:
        if before is not None or spread is None or not 0 < spread <= 10:
            raise UsageError(
                f"--spread={spread}: expected points over 0, up to 10, and no --before"
            )
        found = [Spread(f"of spread {spread:g}", 100, spread / 10, 99.0, 1, None)]
        origin, hours = f"pairs whose number has a standard deviation of {spread:g}", "hours"
    else:
        run = read_results(find_run(reference, out))
        found = _spreads(
            run, None if before is None else _earlier(before, reference, run, out), fields
        )
        cost = _cost(run)
        origin = f"run {run.run.id}" + ("" if before is None else f" against {before}")
        hours = "GPU hours" if run.run.machine.gpus else "worker hours"
        if unneeded := sum(item.status == "not_needed" for item in run.items):
            origin += f", which ended early and left out {unneeded} of its {len(run.items)} pairs"
    gates = max(1, len(fields))
    share = alpha if before is None else alpha / 2  # gates on drops share α with that on the tail
    rows = [_row(one, seeds, effect, share / gates, cost) for one in found for seeds in SEEDS]
    rows = [row for row in rows if row["mde"] is not None]
    table = [
        (
            row["gate"],
            str(row["seeds"]),
            "–" if spread else str(row["pairs_now"]),
            "–" if spread else f"{row['mde']:.2f}",
            f"{row['pairs']:,}" if row["pairs"] else "over a million",
            f"{row['edits']:,}" if row["edits"] else "–",
            number(row["hours"]),
        )
        for row in rows
    ]
    family = f"{gates} gate{'s' * (gates > 1)}"
    odds = f"80% of runs at alpha {alpha:g} over {family}"
    note = f"for an MDE of {effect:g} points in {odds}, by {origin}"
    lines = [note, terminal.render_table((*HEADER[:-1], hours), table).rstrip()]
    if any(one.noise is None for one in found):
        lines.append(
            "what further seeds would do is known only from a run with two or more of them"
        )
    return Printed({"mde": effect, "alpha": alpha, "by": origin, "rows": rows}, "\n".join(lines), 0)


def _earlier(before: str, reference: str, run: Results, out: Path) -> dict[str, BaselineItem]:
    earlier, now = read_either(before, out), read_either(reference, out)
    refuse_to_compare(earlier, now, f"{before} and {run.run.id}")
    return {item.id: item for item in earlier.items}


def _row(spread: Spread, seeds: int, effect: float, alpha: float, cost: float | None) -> JsonObject:
    error = spread.error_with(seeds)
    factor = None if error is None else size_for(effect, error, spread.freedom, alpha)
    pairs = None if factor is None else max(ENOUGH, math.ceil(factor * spread.pairs))
    edits = None if pairs is None else pairs * seeds
    return {
        "gate": spread.gate,
        "seeds": seeds,
        "pairs_now": spread.pairs,
        "mde": None if error is None else mde(error, spread.freedom, alpha),
        "pairs": pairs,
        "edits": edits,
        "hours": None if edits is None or cost is None else edits * cost / 3600,
    }


def _spreads(
    run: Results, earlier: dict[str, BaselineItem] | None, fields: Sequence[str]
) -> list[Spread]:
    """Take the spread of scores, or of differences to `earlier` items by id, from a run's items."""
    items = [item for item in map(reduced, run.items) if item.score is not None]
    if earlier is not None:
        items = [
            item for item in items if item.id in earlier and earlier[item.id].score is not None
        ]
    if not items:
        raise UsageError(
            f"run {run.run.id}: no pair has a score{' on both sides' if earlier else ''}"
        )
    known, found = ["overall", *in_order(item.category for item in items)], []
    for field in fields or ["overall"]:
        if field not in known:
            raise UsageError(f"--gate={field}: expected one of: {', '.join(known)}")
        mine = [item for item in items if field in ("overall", item.category)]
        values = [round((item.score or 0.0) - _score(earlier, item.id), 6) for item in mine]
        whole = estimate(values, [item.cluster for item in mine], [item.category for item in mine])
        if not whole.se:
            raise UsageError(
                f"--gate={field}: no spread seen in {len(mine)} pairs, which tells nothing of "
                "others"
            )
        sides = [mine] if earlier is None else [mine, [earlier[item.id] for item in mine]]
        seeds = len(mine[0].seeds)
        noise = None
        if seeds > 1:
            within = (
                sum(
                    float(np.mean([np.var(_scores(item), ddof=1) for item in side]))
                    for side in sides
                )
                / seeds
            )
            noise = min(1.0, within / max(within, whole.se**2 * len(mine)))
        gate = f"{'fail_under' if earlier is None else 'max_drop'} {field}"
        found.append(Spread(gate, len(mine), whole.se, whole.freedom, seeds, noise))
        if noise and earlier is None:
            error = whole.se * math.sqrt(2 * noise)
            found.append(
                Spread(
                    f"max_drop {field}, if seeds alone differ",
                    len(mine),
                    error,
                    whole.freedom,
                    seeds,
                    1.0,
                )
            )
    return found


def _score(items: dict[str, BaselineItem] | None, name: str) -> float:
    """Score of a pair in an earlier run, 0 without one."""
    if items is None:
        return 0.0
    return items[name].score or 0.0


def _scores(item: BaselineItem) -> list[float]:
    """Scores of an item's repetitions."""
    return [seed.score for seed in item.seeds if seed.score is not None]


def _cost(run: Results) -> float | None:
    """Seconds, times GPUs, that an edit and its verdict took workers; `None` where that is not
    known.

    Verdicts of a run that took them all from its store count as free.
    """
    options = run.run.options
    made = [edit.seconds for item in run.items for edit in item.edits]
    judging = [worker for worker in run.workers if worker.stage == "score" and worker.jobs]
    verdict = sum(worker.busy_s for worker in judging) / max(
        1, sum(worker.jobs for worker in judging)
    )
    if not made:
        return None
    edit = options.workers["gpus_per_worker"] * float(np.mean(made))
    return float(edit + options.judge["gpus_per_replica"] * verdict)
