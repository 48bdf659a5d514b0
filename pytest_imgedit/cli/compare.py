"""`imgedit compare`, `plan` and `trend`: whether scores fell, between two runs or in a series of
checkpoints, and how many pairs would show it.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from pytest_imgedit.cli.runs import find_run, no_runs
from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.config.toml_file import configs_of
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import SCORE_ONLY, groups_in
from pytest_imgedit.core.pairs import category_slug, in_order
from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import counted, number
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import measure_tables, tables, terminal, trend_page, write
from pytest_imgedit.stats import collapse, estimates, gates, planning
from pytest_imgedit.stats.comparison import compare, differences, environment_differences
from pytest_imgedit.stats.trend import evidence_by_field
from pytest_imgedit.store.baselines import (
    FOLDER,
    Baseline,
    BaselineItem,
    as_baseline,
    read_baseline,
    read_results,
    reduced,
    unlike_items,
    unlike_judges,
    unlike_losses,
    unlike_rewrites,
)
from pytest_imgedit.store.store import finished_runs

#: The id of a pair, and the hashes of its edits.
_Draw = tuple[str, tuple[str | None, ...]]
#: Characters of the chart in the terminal.
CHART = 24
#: Edits a pair for which is planned.
SEEDS = (1, 2, 4)
HEADER = ("gate", "seeds", "pairs now", "MDE now", "pairs needed", "edits")


def compare_runs(
    before: str,
    now: str,
    max_drop: Sequence[str],
    max_collapsed: str | None,
    alpha: float,
    margin: float,
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Compare two runs or baselines pair by pair, and apply gates on drops and on collapsed
    pairs.
    """
    try:
        settings = GatesSettings.model_validate(
            {
                "max_drop": list(max_drop),
                "max_collapsed": max_collapsed or 0,
                "alpha": alpha,
                "margin": margin,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise errors.UsageError(
            f"--{str(first['loc'][0]).replace('_', '-')}: "
            f"{first['msg'].removeprefix('Value error, ')}"
        ) from None
    a, b = read_either(before, out), read_either(now, out)
    refuse_to_compare(
        a, b, f"{before} and {now}", gated=bool(max_drop or max_collapsed is not None)
    )
    measures = {**SCORE_ONLY, **b.measures}
    gates.check_fields("--max-drop", settings.max_drop, groups_in(b.items), measures)
    samples = {
        name: differences(a.items, b.items, name, measure) for name, measure in measures.items()
    }
    results = gates.max_drop(settings, samples, a.name, measures)
    tail, fallen = collapse.max_collapsed(
        settings, collapse.moves_between(a.items, b.items), a.name
    )
    comparison = compare(
        a, b.items, measures, alpha, results, environment_differences(a, b), fallen
    )
    if max_collapsed is not None:
        results.append(tail)
    lines = [
        f"{b.name}: editor {b.editor.spec}, run {b.run}",
        terminal.render_tables(
            [
                tables.comparison_table(comparison, len(b.items)),
                *measure_tables.compared_tables(comparison, measures, brief=False),
            ]
        ).rstrip(),
        *(f"{gate.state}: {gate.why}" for gate in results),
    ]
    document = {
        "comparison": comparison.model_dump(mode="json"),
        "gates": [asdict(gate) for gate in results],
    }
    return document, "\n".join(lines), int(any(gate.state != "PASS" for gate in results))


def refuse_to_compare(a: Baseline, b: Baseline, names: str, gated: bool = False) -> None:
    """Raise `UsageError` if two baselines are of other pairs or verdicts, or, where `gated`, of
    unlike losses.
    """
    items = [(item.id, item.sha256, [seed.seed for seed in item.seeds]) for item in b.items]
    losses = unlike_losses(a, b.editor.lossy) if gated else None
    reason = (
        unlike_judges(a, dict(b.judge), b.seeds)
        or unlike_rewrites(a, b.editor.rewrites is not None)
        or unlike_items(a, items)
        or losses
    )
    if reason:
        raise errors.UsageError(f"{names} cannot be compared, {reason}")


def baselines_folder() -> Path:
    """Return the folder of the baselines that the config of this repository names, or the usual
    one.
    """
    files = configs_of(Path.cwd(), Path.cwd()).values()
    named = (file.tables.get("gates", {}).get("baselines") for file in files)
    return next((Path(folder) for folder in named if isinstance(folder, str)), FOLDER)


def read_either(reference: str, out: Path) -> Baseline:
    """Read a run, or else a baseline."""
    try:
        path = find_run(reference, out)
    except errors.UsageError as error:
        if reference == "latest":
            raise
        try:
            return read_baseline(reference, baselines_folder(), Path.cwd())
        except errors.UsageError as baseline_error:
            raise errors.UsageError(f"{error}; and {baseline_error}") from None
    return as_baseline(path)


def trend(
    references: Sequence[str], last: int | None, alpha: float, out: Path, html: Path | None
) -> tuple[JsonObject, str, int]:
    """Say of a series of runs or baselines, oldest first, whether scores have fallen at any look.

    `last` takes the newest runs of the store in place of `references`: those of the newest one's
    pairs and judge.
    """
    if not 0 < alpha < 0.5:
        raise errors.UsageError(f"--alpha={alpha:g}: expected a number over 0 and under 0.5")
    if html is not None:
        write.check_writable(html)
    if bool(references) == (last is not None):
        raise errors.UsageError("expected two or more runs or baselines, oldest first, or --last=N")
    baselines = (read_either(reference, out) for reference in references)
    series = list(baselines) if last is None else _newest(last, out)
    if len(series) < 2:
        raise errors.UsageError(
            f"a trend takes two or more runs, found {len(series)} that can be compared"
        )
    for run in series:
        _refuse_partial(run)
        refuse_to_compare(series[0], run, f"{series[0].run} and {run.run}")
    document = _document(series, alpha)
    rows = zip(trend_page.rows(document), _marks(document), strict=True)
    lines = [
        document["title"],
        terminal.render_table((*trend_page.HEADER, "chart"), [(*row, mark) for row, mark in rows]),
        *document["notes"],
        document["outcome"],
    ]
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(trend_page.render(document), encoding="utf-8")
        lines.append(f"html: {os.path.relpath(html)}")
    return document, "\n".join(lines), int(bool(document["fell"]))


def _newest(count: int, out: Path) -> list[Baseline]:
    """Return the newest runs of a store that have the pairs and the judge of the newest one, oldest
    first.
    """
    if count < 2:
        raise errors.UsageError(f"--last={count}: expected 2 or more")
    runs: dict[frozenset[_Draw], Baseline] = {}
    for path in reversed(finished_runs(out)):
        with suppress(errors.UsageError):
            run = as_baseline(path)
            _refuse_partial(run)
            newest = next(iter(runs.values()), run)
            if {item.id for item in run.items} == {item.id for item in newest.items}:
                refuse_to_compare(newest, run, "")
                runs.setdefault(frozenset(_scores_by_draw(run)), run)
        if len(runs) == count:
            break
    if not runs:
        raise errors.UsageError(f"--last={count}: {no_runs(out)}")
    return list(runs.values())[::-1]


def _scores_by_draw(run: Baseline) -> dict[_Draw, float | None]:
    return {(item.id, item.edits): item.score for item in run.items}


def _refuse_partial(run: Baseline) -> None:
    """Raise `UsageError` for a run that left out pairs by what others scored."""
    if run.not_needed:
        raise errors.UsageError(
            f"{run.run}: ended early (--imgedit-until=decided), expected runs with all their pairs"
        )


def _document(series: Sequence[Baseline], alpha: float) -> JsonObject:
    clusters = {item.id: item.cluster for item in series[0].items}
    categories = {item.id: item.category for item in series[0].items}
    scores, copies = _scores(series)
    evidence, limit = evidence_by_field(scores, clusters, categories, alpha)
    runs = [_look(run, clusters, categories) for run in series]
    alarms: dict[str, int] = {}
    falls: list[str] = []
    for index, run in enumerate(runs):
        run["evidence"] = {field: values[index] for field, values in evidence.items()}
        run["fell"] = [field for field, value in run["evidence"].items() if value >= limit]
        if first_falls := [field for field in run["fell"] if field not in alarms]:
            alarms |= dict.fromkeys(first_falls, index)
            falls.append(f"{', '.join(first_falls)} fell at {run['name']}")
    notes = [
        "Evidence: e-values against the hypothesis that no run scores lower than those before it. "
        f"The alarm is at {limit:g}: at most {alpha:.0%} of series reach it by chance, over all "
        f"{len(evidence)} means and all looks."
    ]
    if copies:
        notes.append(f"{copies} edits are those of an earlier run, and no further evidence")
    return {
        "title": f"Trend of {len(series)} runs, {len(clusters)} pairs, judge "
        f"{series[0].judge.spec}",
        "alpha": alpha,
        "limit": limit,
        "fields": list(evidence),
        "runs": runs,
        "fell": {field: alarms[field] for field in evidence if field in alarms},
        "notes": notes,
        "outcome": f"FAIL: {'; '.join(falls)}"
        if falls
        else f"PASS: no fall is shown in {counted(len(series) - 1, 'look')}",
    }


def _scores(series: Sequence[Baseline]) -> tuple[list[dict[str, float]], int]:
    """Return the scores of each run by pair, and the number of edits that an earlier run has.

    Such an edit is no further draw, and its score is left out.
    """
    known: set[_Draw] = set()
    scores: list[dict[str, float]] = []
    copies = 0
    for run in series:
        draws = _scores_by_draw(run)
        scores.append(
            {
                pair_id: score
                for (pair_id, edits), score in draws.items()
                if score is not None and (pair_id, edits) not in known
            }
        )
        copies += len(known & draws.keys())
        known |= draws.keys()
    return scores, copies


def _look(run: Baseline, clusters: dict[str, str], categories: dict[str, str]) -> JsonObject:
    scores = {item.id: item.score for item in run.items if item.score is not None}
    look: JsonObject = {
        "name": run.run if run.name == run.run.lower() else run.name,
        "run": run.run,
        "commit": None if run.commit is None else run.commit.sha[:10],
        "finished": run.finished,
        "editor": run.editor.spec,
        "pairs": len(scores),
        "mean": None,
        "ci95": None,
    }
    if scores and {categories[pair_id] for pair_id in scores} == set(categories.values()):
        mean = estimates.estimate(
            list(scores.values()),
            [clusters[pair_id] for pair_id in scores],
            [categories[pair_id] for pair_id in scores],
        )
        look |= {"mean": mean.mean, "ci95": mean.bounded_interval(0.0, 10.0)}
    return look


def _marks(document: JsonObject) -> Iterator[str]:
    """Yield a strip for each run with a mark where its mean lies, from the lowest mean to the
    highest.
    """
    means = [run["mean"] for run in document["runs"]]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    for mean in means:
        if mean is None:
            yield ""
        else:
            position = round((mean - low) / ((high - low) or 1.0) * (CHART - 1))
            yield f"{'·' * position}●{'·' * (CHART - 1 - position)}"


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
    power: float | None,
    alpha: float,
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Say with how many pairs gates would find `power` points, by a stored run or by a stated
    `spread` of a pair; without `power`, what the pairs of the run can decide.
    """
    fields = list(dict.fromkeys(map(category_slug, gate)))
    if power is not None and not 0 < power <= 10:
        raise errors.UsageError(f"--power={power:g}: expected points on the 0..10 scale")
    if not 0 < alpha < 0.5:
        raise errors.UsageError(f"--alpha={alpha:g}: expected a number over 0 and under 0.5")
    if (reference is None) == (spread is None):
        raise errors.UsageError(
            "expected a RUN to go by, or --spread=SD, the standard deviation of a pair's number"
        )
    cost, hours, share = None, "hours", alpha
    if reference is None:
        if before is not None or spread is None or not 0 < spread <= 10:
            raise errors.UsageError(
                f"--spread={spread}: expected points over 0, up to 10, and no --before"
            )
        if power is None:
            raise errors.UsageError(
                f"--spread={spread:g}: says nothing of pairs at hand, expected --power=MDE too"
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
    if power is None:
        return _decidable(
            spreads, share / gates, f"alpha {alpha:g} over {counted(gates, 'gate')}, by {origin}"
        )
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


def _decidable(spreads: Sequence[Spread], alpha: float, told: str) -> tuple[JsonObject, str, int]:
    """Say what the pairs at hand can decide, each gate at `alpha`."""
    rows, lines = [], [f"in 80% of runs at {told}:"]
    for spread in spreads:
        mde = planning.mde(spread.error, spread.freedom, alpha)
        rows.append({"gate": spread.gate, "pairs_now": spread.pairs, "mde": mde})
        decided = f"means more than {mde:.2f} under the limit"
        if spread.gate.startswith("max_drop"):
            decided = f"drops more than {mde:.2f} over the limit"
        lines.append(f"{spread.gate}: {spread.pairs} pairs can decide {decided}")
    return {"rows": rows}, "\n".join(lines), 0


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
            "mde": planning.mde(error, spread.freedom, alpha),
            "pairs": None,
            "edits": None,
            "hours": None,
        }
        factor = planning.size_for(power, error, spread.freedom, alpha)
        if factor is not None:
            row["pairs"] = max(estimates.ENOUGH, math.ceil(factor * spread.pairs))
            row["edits"] = row["pairs"] * seeds
            row["hours"] = None if cost is None else row["edits"] * cost / 3600
        yield row


def _spreads(
    run: Results, earlier: Mapping[str, BaselineItem] | None, fields: Sequence[str]
) -> Iterator[Spread]:
    """Yield the spread of a run's scores, or of their differences to the scored `earlier` items by
    id.
    """
    scored = (item for item in map(reduced, run.items) if item.score is not None)
    items = [item for item in scored if earlier is None or item.id in earlier]
    if not items:
        raise errors.UsageError(
            f"run {run.run.id}: no pair has a score{'' if earlier is None else ' on both sides'}"
        )
    known = ["overall", *in_order(item.category for item in items)]
    scores_before = {pair_id: item.score or 0.0 for pair_id, item in (earlier or {}).items()}
    for field in fields or ["overall"]:
        if field not in known:
            raise errors.UsageError(f"--gate={field}: expected one of: {', '.join(known)}")
        members = [item for item in items if field in ("overall", item.category)]
        sides = [members] if earlier is None else [members, [earlier[item.id] for item in members]]
        mean = estimates.estimate(
            [round((item.score or 0.0) - scores_before.get(item.id, 0.0), 6) for item in members],
            [item.cluster for item in members],
            [item.category for item in members],
        )
        if not mean.se:
            raise errors.UsageError(
                f"--gate={field}: no spread seen in {len(members)} pairs, which tells nothing of "
                "others"
            )
        seeds, noise = len(members[0].seeds), None
        if seeds > 1:
            within = sum(float(np.mean(list(map(_variance, side)))) for side in sides) / seeds
            noise = min(1.0, within / max(within, mean.se**2 * len(members)))
        gate = f"{'fail_under' if earlier is None else 'max_drop'} {field}"
        spread = Spread(gate, len(members), mean.se, mean.freedom, seeds, noise)
        yield spread
        if noise and earlier is None:
            yield replace(
                spread,
                gate=f"max_drop {field}, if seeds alone differ",
                error=mean.se * math.sqrt(2 * noise),
                noise=1.0,
            )


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
    edit = options.workers["gpus_per_worker"] * float(np.mean(edit_seconds))
    judging = [worker for worker in run.workers if worker.stage == "score" and worker.jobs]
    jobs = max(1, sum(worker.jobs for worker in judging))
    verdict_seconds = sum(worker.busy_s for worker in judging) / jobs
    return float(edit + options.judge["gpus_per_replica"] * verdict_seconds)
