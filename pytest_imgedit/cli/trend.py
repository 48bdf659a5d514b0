"""`imgedit trend`: whether a series of checkpoints got worse, by each of its measures."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_imgedit.cli.comparable import (
    read_all,
    refuse_partial,
    refuse_to_compare,
    suites_of,
)
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import OVERALL, SCORE, SCORE_ONLY, Field
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, did_you_mean, printable
from pytest_imgedit.report import outputs, terminal, trend_page
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.report.view_page import pairs_url
from pytest_imgedit.stats.gate_values import estimate_group, measured_by, observe
from pytest_imgedit.stats.trend import evidence_by_group
from pytest_imgedit.store.baselines import Baseline
from pytest_imgedit.store.run_references import no_runs
from pytest_imgedit.store.store import finished_runs

#: The id of a pair, and the hashes of its edits.
_Draw = tuple[str, tuple[str | None, ...]]
#: Characters of the chart in the terminal.
CHART = 24


def trend(
    references: Sequence[str],
    last: int | None,
    *,
    measure: Sequence[str],
    alpha: float,
    out: Path,
    html: Path | None,
) -> tuple[JsonObject, str, int]:
    """Say whether a measure got worse in a series of runs or baselines, oldest first.

    `last` takes, in place of `references`, the newest runs of the store that have the pairs and the
    judge of the newest one. `measure` names measures, by default the score and the main measures.
    The exit code is 1 if one got worse. Raises `UsageError` for fewer than two runs, for runs that
    cannot be compared, and if `references` and `last` are both there, or neither.
    """
    if not 0 < alpha < 0.5:
        raise errors.UsageError(f"--alpha={alpha:g}: expected a number over 0 and under 0.5")
    paths = {} if html is None else {"html": html}
    outputs.check(paths, outputs.inputs(out))
    if bool(references) == (last is not None):
        raise errors.UsageError("expected two or more runs or baselines, oldest first, or --last=N")
    series = read_all(references, out) if last is None else _newest(last, out)
    kept = outputs.inputs(out, *suites_of(series))
    outputs.check(paths, kept)
    if len(series) < 2:
        raise errors.UsageError(
            f"a trend takes two or more runs, found {len(series)} that can be compared"
        )
    for run in series:
        refuse_partial(run)
        refuse_to_compare(series[0], run, f"{series[0].run} and {run.run}")
    document = _document(series, _measures(series[-1], measure), alpha)
    lines = [printable(document["title"])]
    for table in trend_page.tables_of(document):
        lines += ["", printable(table.label), _with_chart(table, document["runs"])]
    lines.append("")
    lines += document["notes"]
    lines.append(printable(document["outcome"]))
    if html is not None:
        url = pairs_url(html, out, [run.run for run in series], is_series=True)
        outputs.write(html, trend_page.render(document, url), kept)
        lines.append(f"html: {os.path.relpath(html)}")
    return document, "\n".join(lines), int(bool(document["worse"]))


def _with_chart(table: trend_page.MeasureTable, runs: Sequence[JsonObject]) -> str:
    """Render a table of a measure with a column that shows where the mean of each run lies."""
    means = [run["measures"][table.measure]["mean"] for run in runs]
    header = list(table.header)
    header.append("chart")
    rows = []
    for row, mark in zip(table.rows, _marks(means), strict=True):
        cells = list(row)
        cells.append(mark)
        rows.append(cells)
    return terminal.render_table(header, rows)


def _measures(newest: Baseline, names: Sequence[str]) -> dict[str, Measure]:
    """Return the named measures of the newest run, or the score and the main ones; raise
    `UsageError` for a measure that it does not have.
    """
    known = {**SCORE_ONLY, **newest.measures}
    for name in names:
        if name not in known:
            raise errors.UsageError(
                f"--measure={name}: {newest.run} has no such measure, expected one of: "
                f"{', '.join(known)}{did_you_mean(name, known)}"
            )
    main = [name for name, measure in known.items() if name == SCORE or measure.is_main]
    return {name: known[name] for name in names or main}


def _newest(count: int, out: Path) -> list[Baseline]:
    """Return the newest runs of a store that have the pairs and the judge of the newest one, oldest
    first, at most `count`.

    Runs that cannot be read or ended early are left out, and so is one whose edits are all those of
    a newer run. Raises `UsageError` for a count under 2, and for a store without runs.
    """
    if count < 2:
        raise errors.UsageError(f"--last={count}: expected 2 or more")
    runs: dict[frozenset[_Draw], Baseline] = {}
    for path in reversed(finished_runs(out)):
        with suppress(errors.UsageError):
            run = as_baseline(path)
            refuse_partial(run)
            newest = next(iter(runs.values()), run)
            if {item.id for item in run.items} == {item.id for item in newest.items}:
                refuse_to_compare(newest, run, "")  # a run that differs is left out
                runs.setdefault(frozenset(_draws(run)), run)
        if len(runs) == count:
            break
    if not runs:
        raise errors.UsageError(f"--last={count}: {no_runs(out)}")
    return list(runs.values())[::-1]


def _draws(run: Baseline) -> set[_Draw]:
    return {(item.id, item.edits) for item in run.items}


def _document(series: Sequence[Baseline], measures: dict[str, Measure], alpha: float) -> JsonObject:
    """Return what `--json` prints: the runs with their evidence, and in which run each field that
    got worse did.
    """
    draws, copies = _new_draws(series)
    evidence: dict[str, list[float]] = {}
    for name, measure in measures.items():
        evidence |= _evidence(series, draws, name, measure)
    limit = len(evidence) / alpha  # all fields share α
    runs = [_look(run, measures) for run in series]
    for index, run in enumerate(runs):
        run["evidence"] = {field: values[index] for field, values in evidence.items()}
        run["worse"] = [field for field, value in run["evidence"].items() if value >= limit]
    alarms, outcomes = _alarms(runs, measures)
    worse = {field: alarms[field] for field in evidence if field in alarms}
    pairs = len(series[0].items)
    return {
        "title": f"Trend of {len(series)} runs, {pairs} pairs, judge {series[0].judge.spec}",
        "alpha": alpha,
        "limit": limit,
        "measures": {name: measure.model_dump() for name, measure in measures.items()},
        "fields": list(evidence),
        "runs": runs,
        "worse": worse,
        "notes": list(_notes(len(evidence), alpha, copies)),
        "outcome": _outcome(outcomes, len(series) - 1),
    }


def _alarms(
    runs: Sequence[JsonObject], measures: Mapping[str, Measure]
) -> tuple[dict[str, int], list[str]]:
    """Return the index of the first run in which each field is worse, without the others, and a
    text for each run and measure that says which fields moved.
    """
    alarms: dict[str, int] = {}
    outcomes: list[str] = []
    for index, run in enumerate(runs):
        new_fields = [field for field in run["worse"] if field not in alarms]
        for name, measure in measures.items():
            fields = [field for field in new_fields if Field.parse(field).measure == name]
            if fields:
                alarms |= dict.fromkeys(fields, index)
                outcomes.append(f"{', '.join(fields)} {trend_page.moved(measure)} at {run['name']}")
    return alarms, outcomes


def _outcome(outcomes: Sequence[str], looks: int) -> str:
    if outcomes:
        return f"FAIL: {'; '.join(outcomes)}"
    return f"PASS: no measure is shown to have got worse in {counted(looks, 'look')}"


def _notes(field_count: int, alpha: float, copies: int) -> Iterator[str]:
    """Explain the evidence over all fields; with `copies`, also how many items are no evidence."""
    yield (
        "Evidence: e-values against the hypothesis that no run is worse than those before it. "
        f"The alarm is at {field_count / alpha:g}: at most {alpha * 100:g}% of series reach it by "
        f"chance, over all {counted(field_count, 'mean')} and all looks."
    )
    if copies:
        yield (
            f"The edits of {counted(copies, 'item')} are those of an earlier run, and no further "
            "evidence"
        )


def _new_draws(series: Sequence[Baseline]) -> tuple[list[set[str]], int]:
    """Return the pairs of each run whose edits no earlier run has, and the number of the others.

    An edit of an earlier run is no further draw, and its values are no evidence.
    """
    known: set[_Draw] = set()
    pairs: list[set[str]] = []
    copies = 0
    for run in series:
        draws = _draws(run)
        pairs.append({pair_id for pair_id, _ in draws - known})
        copies += len(known & draws)
        known |= draws
    return pairs, copies


def _evidence(
    series: Sequence[Baseline], draws: Sequence[set[str]], name: str, measure: Measure
) -> dict[str, list[float]]:
    """Return the evidence of each run that a measure got worse, by field, over the pairs that it
    applies to in the newest run.
    """
    sign = -1 if measure.lower_is_better else 1
    items = list(measured_by(series[-1].items, name))
    values: list[dict[str, float]] = []
    for run, pairs in zip(series, draws, strict=True):
        values_of_run = {}
        for item in run.items:
            if item.id not in pairs:
                continue
            value = item.value(name)
            if value is not None:
                values_of_run[item.id] = sign * value
        values.append(values_of_run)
    clusters = {item.id: item.cluster for item in items}
    categories = {item.id: item.category for item in items}
    by_group = evidence_by_group(values, clusters, categories)
    return {str(Field(name, group)): evidence for group, evidence in by_group.items()}


def _look(run: Baseline, measures: dict[str, Measure]) -> JsonObject:
    """Return what the document says of a run, without its evidence."""
    commit = None if run.commit is None else run.commit.sha[:10]
    name = run.name if run.is_named else run.run
    return {
        "name": name,
        "run": run.run,
        "commit": commit,
        "finished": run.finished,
        "editor": run.editor.spec,
        "measures": {key: _mean(run, key, measure) for key, measure in measures.items()},
    }


def _mean(run: Baseline, name: str, measure: Measure) -> JsonObject:
    """Return the macro mean of a measure with its 95% interval, Student's if the scale has no ends,
    and the number of pairs that have a value; without any, both are `None`.
    """
    observations = observe(run.items, name, measure)
    mean = estimate_group(OVERALL, observations)
    pairs = sum(pair.value is not None for pair in observations)
    if mean is None:
        return {"pairs": pairs, "mean": None, "ci95": None}
    ci95 = mean.interval()
    if measure.is_bounded:
        low, high = measure.ends
        ci95 = mean.bounded_interval(low, high)
    return {"pairs": pairs, "mean": mean.mean, "ci95": ci95}


def _marks(means: Sequence[float | None]) -> Iterator[str]:
    """Yield a strip for each run with a mark where its mean lies, from the lowest mean to the
    highest; an empty one for a run without a mean.
    """
    known = [mean for mean in means if mean is not None]
    low = min(known, default=0.0)
    high = max(known, default=0.0)
    span = (high - low) or 1.0  # equal means are all on the left
    for mean in means:
        if mean is None:
            yield ""
            continue
        before = round((mean - low) / span * (CHART - 1))
        after = CHART - 1 - before
        yield f"{'·' * before}●{'·' * after}"
