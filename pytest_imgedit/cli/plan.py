"""`imgedit plan`: pairs, seeds and GPU hours for a target MDE, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from pytest_imgedit.cli.compare import read_either, refuse_to_compare
from pytest_imgedit.cli.runs import find_run
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import category_slug, in_order
from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import counted, number
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import terminal
from pytest_imgedit.stats.estimates import ENOUGH, estimate
from pytest_imgedit.stats.planning import mde, size_for
from pytest_imgedit.store.baselines import BaselineItem, read_results, reduced

#: Edits a pair for which is planned.
SEEDS = (1, 2, 4)
HEADER = ("gate", "seeds", "pairs now", "MDE now", "pairs needed", "edits")


@dataclass(frozen=True)
class Spread:
    """What is known of a gate's number: its standard error with `pairs` pairs, and how much of it
    comes from the seeds.

    `noise` is the share of the variance that comes from `seeds` seeds, or `None` if it is unknown.
    """

    gate: str
    pairs: int
    error: float
    freedom: float
    seeds: int
    noise: float | None

    def error_with(self, seeds: int) -> float | None:
        """Return the standard error with so many seeds a pair, or `None` if it is unknown."""
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
) -> tuple[JsonObject, str, int]:
    """Say with how many pairs gates would find `power` points, by a stored run or by a stated
    `spread` of a pair.
    """
    fields = list(dict.fromkeys(map(category_slug, gate)))
    if not 0 < power <= 10:
        raise UsageError(f"--power={power:g}: expected points on the 0..10 scale")
    if not 0 < alpha < 0.5:
        raise UsageError(f"--alpha={alpha:g}: expected a number over 0 and under 0.5")
    if (reference is None) == (spread is None):
        raise UsageError(
            "expected a RUN to go by, or --spread=SD, the standard deviation of a pair's number"
        )
    cost, hours, share = None, "hours", alpha
    if reference is None:
        if before is not None or spread is None or not 0 < spread <= 10:
            raise UsageError(
                f"--spread={spread}: expected points over 0, up to 10, and no --before"
            )
        spreads = [Spread(f"of spread {spread:g}", 100, spread / 10, 99.0, 1, None)]
        origin = f"pairs whose number has a standard deviation of {spread:g}"
    else:
        run = read_results(find_run(reference, out))
        origin, earlier = f"run {run.run.id}", None
        if before is not None:
            baseline = read_either(before, out)
            refuse_to_compare(baseline, read_either(reference, out), f"{before} and {run.run.id}")
            earlier = {item.id: item for item in baseline.items if item.score is not None}
            origin += f" against {before}"
            share = alpha / 2  # gates on drops share α with the gate on the tail
        spreads = list(_spreads(run, earlier, fields))
        cost = _cost(run)
        hours = "GPU hours" if run.run.machine.gpus else "worker hours"
        if unneeded := sum(item.status == "not_needed" for item in run.items):
            origin += f", which ended early and left out {unneeded} of its {len(run.items)} pairs"
    gates = max(1, len(fields))
    rows = list(_rows(spreads, power, share / gates, cost))
    table = [
        (
            row["gate"],
            str(row["seeds"]),
            "–" if spread else str(row["pairs_now"]),
            "–" if spread else number(row["mde"]),
            f"{row['pairs']:,}" if row["pairs"] else "over a million",
            f"{row['edits']:,}" if row["edits"] else "–",
            number(row["hours"]),
        )
        for row in rows
    ]
    lines = [
        f"for an MDE of {power:g} points in 80% of runs at alpha {alpha:g} over "
        f"{counted(gates, 'gate')}, by {origin}",
        terminal.render_table((*HEADER, hours), table).rstrip(),
    ]
    if any(known.noise is None for known in spreads):
        lines.append(
            "what further seeds would do is known only from a run with two or more of them"
        )
    return {"mde": power, "alpha": alpha, "by": origin, "rows": rows}, "\n".join(lines), 0


def _rows(
    spreads: Sequence[Spread], power: float, alpha: float, cost: float | None
) -> Iterator[JsonObject]:
    """Yield a row for each spread and each number of seeds for which its error is known."""
    for spread, seeds in product(spreads, SEEDS):
        error = spread.error_with(seeds)
        if error is None:
            continue
        row: JsonObject = {
            "gate": spread.gate,
            "seeds": seeds,
            "pairs_now": spread.pairs,
            "mde": mde(error, spread.freedom, alpha),
            "pairs": None,
            "edits": None,
            "hours": None,
        }
        factor = size_for(power, error, spread.freedom, alpha)
        if factor is not None:
            row["pairs"] = max(ENOUGH, math.ceil(factor * spread.pairs))
            row["edits"] = row["pairs"] * seeds
            if cost is not None:
                row["hours"] = row["edits"] * cost / 3600
        yield row


def _spreads(
    run: Results, earlier: Mapping[str, BaselineItem] | None, fields: Sequence[str]
) -> Iterator[Spread]:
    """Yield the spread of a run's scores, or of their differences to the scored `earlier` items by
    id.
    """
    items = [item for item in map(reduced, run.items) if item.score is not None]
    if earlier is not None:
        items = [item for item in items if item.id in earlier]
    if not items:
        where = "" if earlier is None else " on both sides"
        raise UsageError(f"run {run.run.id}: no pair has a score{where}")
    known = ["overall", *in_order(item.category for item in items)]
    for field in fields or ["overall"]:
        if field not in known:
            raise UsageError(f"--gate={field}: expected one of: {', '.join(known)}")
        members = [item for item in items if field in ("overall", item.category)]
        sides, kind = [members], "fail_under"
        if earlier is not None:
            sides.append([earlier[item.id] for item in members])
            kind = "max_drop"
        mean = estimate(
            [round((item.score or 0.0) - _score(earlier, item.id), 6) for item in members],
            [item.cluster for item in members],
            [item.category for item in members],
        )
        if not mean.se:
            raise UsageError(
                f"--gate={field}: no spread seen in {len(members)} pairs, which tells nothing of "
                "others"
            )
        seeds, noise = len(members[0].seeds), None
        if seeds > 1:
            within = sum(float(np.mean(list(map(_variance, side)))) for side in sides) / seeds
            noise = min(1.0, within / max(within, mean.se**2 * len(members)))
        spread = Spread(f"{kind} {field}", len(members), mean.se, mean.freedom, seeds, noise)
        yield spread
        if noise and earlier is None:
            yield replace(
                spread,
                gate=f"max_drop {field}, if seeds alone differ",
                error=mean.se * math.sqrt(2 * noise),
                noise=1.0,
            )


def _score(items: Mapping[str, BaselineItem] | None, pair_id: str) -> float:
    """Return the score of a pair in an earlier run, 0 without one."""
    if items is None:
        return 0.0
    return items[pair_id].score or 0.0


def _variance(item: BaselineItem) -> float:
    """Return the sample variance of the scores of an item's seeds."""
    return float(np.var([seed.score for seed in item.seeds if seed.score is not None], ddof=1))


def _cost(run: Results) -> float | None:
    """Return the seconds, times GPUs, that an edit and its verdict took; `None` without any edit.

    Verdicts of a run that took them all from its store count as free.
    """
    options = run.run.options
    edit_seconds = [edit.seconds for item in run.items for edit in item.edits]
    if not edit_seconds:
        return None
    judging = [worker for worker in run.workers if worker.stage == "score" and worker.jobs]
    verdicts = max(1, sum(worker.jobs for worker in judging))
    verdict_seconds = sum(worker.busy_s for worker in judging) / verdicts
    edit_cost = options.workers["gpus_per_worker"] * float(np.mean(edit_seconds))
    return float(edit_cost + options.judge["gpus_per_replica"] * verdict_seconds)
