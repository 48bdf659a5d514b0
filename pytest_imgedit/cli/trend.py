"""`imgedit trend`: a series of checkpoints, looked at after each, with one chance of a false alarm
for all looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.cli.runs import no_runs, read_either, refuse_to_compare
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import terminal, trend_page
from pytest_imgedit.report.write import check_writable
from pytest_imgedit.stats.estimates import estimate
from pytest_imgedit.stats.trend import evidence_by_field
from pytest_imgedit.store.baselines import Baseline, BaselineItem, as_baseline
from pytest_imgedit.store.store import finished_runs

#: Characters of the chart in the terminal.
CHART = 24


def trend(
    references: Sequence[str], last: int | None, alpha: float, out: Path, html: Path | None
) -> Printed:
    """Say of a series of runs or baselines, oldest first, whether scores have fallen at any look.

    `last` takes the newest runs of the store in place of `references`: those of the newest one's
    pairs and judge.
    """
    if not 0 < alpha < 0.5:
        raise UsageError(f"--alpha={alpha:g}: expected a number over 0 and under 0.5")
    if html is not None:
        check_writable(html)
    if bool(references) == (last is not None):
        raise UsageError("expected two or more runs or baselines, oldest first, or --last=N")
    series = [read_either(name, out) for name in references] if last is None else _last(last, out)
    if last is not None and not series:
        raise UsageError(f"--last={last}: {no_runs(out)}")
    if len(series) < 2:
        raise UsageError(
            f"a trend takes two or more runs, found {len(series)} that can be compared"
        )
    for one in series:
        _refuse_partial(one)
        refuse_to_compare(series[0], one, f"{series[0].run} and {one.run}")
    document = _document(series, alpha)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(trend_page.render(document), encoding="utf-8")
    table = terminal.render_table(
        (*trend_page.HEADER, "chart"),
        [
            (*row, mark)
            for row, mark in zip(trend_page.rows(document), _marks(document), strict=True)
        ],
    )
    lines = [document["title"], table, *document["notes"], document["outcome"]]
    shown = "\n".join(lines + ([f"html: {os.path.relpath(html)}"] if html else []))
    return Printed(document, shown, int(bool(document["fell"])))


def _scores(series: Sequence[Baseline]) -> tuple[list[dict[str, float]], int]:
    """Scores of each run, by pair; one of an edit that an earlier run has is no further draw, and
    counted apart.
    """
    known: set[tuple[str | None, ...]] = set()
    found, copies = [], 0
    for one in series:
        scores = {}
        for item in one.items:
            drawn = _drawn(item)
            if item.score is not None and drawn not in known:
                scores[item.id] = item.score
            copies += drawn in known
            known.add(drawn)
        found.append(scores)
    return found, copies


def _last(count: int, out: Path) -> list[Baseline]:
    """Take the newest runs of a store that hold the pairs of the newest one, judged alike, oldest
    first.
    """
    if count < 2:
        raise UsageError(f"--last={count}: expected 2 or more")
    found: list[Baseline] = []
    known: set[frozenset[tuple[str | None, ...]]] = set()
    for path in reversed(finished_runs(out)):
        try:
            one = as_baseline(path)
            newest = found[0] if found else one
            _refuse_partial(one)
            if {item.id for item in one.items} != {item.id for item in newest.items}:
                continue
            refuse_to_compare(newest, one, "")
        except UsageError:
            continue
        drawn = frozenset(map(_drawn, one.items))
        if drawn not in known:
            known.add(drawn)
            found.append(one)
        if len(found) == count:
            break
    return found[::-1]


def _drawn(item: BaselineItem) -> tuple[str | None, ...]:
    """The id of a pair, and the hashes of its edits."""
    return (item.id, *item.edits)


def _refuse_partial(one: Baseline) -> None:
    """Raise `UsageError` for a run that left out pairs by what others scored."""
    if one.not_needed:
        raise UsageError(
            f"{one.run}: ended early (--imgedit-until=decided), expected runs with all their pairs"
        )


def _document(series: Sequence[Baseline], alpha: float) -> JsonObject:
    first = series[0].items
    clusters = {item.id: item.cluster for item in first}
    kinds = {item.id: item.category for item in first}
    scores, copies = _scores(series)
    evidence, limit = evidence_by_field(scores, clusters, kinds, alpha)
    fields = [*evidence]
    runs = [_look(one, clusters, kinds) for one in series]
    fell = {
        field: next((n for n, e in enumerate(evidence[field]) if e >= limit), None)
        for field in fields
    }
    alarms = {field: place for field, place in fell.items() if place is not None}
    for place, run in enumerate(runs):
        run["evidence"] = {field: evidence[field][place] for field in fields}
        run["fell"] = [field for field in fields if evidence[field][place] >= limit]
    looks = f"{len(series) - 1} look{'s' * (len(series) > 2)}"
    at: dict[int, list[str]] = {}
    for field, place in alarms.items():
        at.setdefault(place, []).append(field)
    found = "; ".join(
        f"{', '.join(at[place])} fell at {runs[place]['name']}" for place in sorted(at)
    )
    copied = (
        [f"{copies} edits are those of an earlier run, and no further evidence"] if copies else []
    )
    return {
        "title": f"Trend of {len(series)} runs, {len(clusters)} pairs, judge "
        f"{series[0].judge.spec}",
        "alpha": alpha,
        "limit": limit,
        "fields": fields,
        "runs": runs,
        "fell": alarms,
        "notes": [
            "Evidence: e-values against the hypothesis that no run scores lower than those "
            "before it. The alarm is at "
            f"{limit:g}: at most {alpha:.0%} of series reach it by chance, over all {len(fields)} "
            "means and all looks.",
            *copied,
        ],
        "outcome": f"FAIL: {found}" if alarms else f"PASS: no fall is shown in {looks}",
    }


def _look(one: Baseline, clusters: dict[str, str], kinds: dict[str, str]) -> JsonObject:
    scores, whole = {item.id: item.score for item in one.items if item.score is not None}, None
    if set(scores) and {kinds[name] for name in scores} == set(kinds.values()):
        whole = estimate(
            [*scores.values()],
            [clusters[name] for name in scores],
            [kinds[name] for name in scores],
        )
    return {
        "name": one.name if one.name != one.run.lower() else one.run,
        "run": one.run,
        "commit": None if one.commit is None else one.commit.sha[:10],
        "finished": one.finished,
        "editor": one.editor.spec,
        "pairs": len(scores),
        "mean": None if whole is None else whole.mean,
        "ci95": None if whole is None else whole.bounded_interval(0.0, 10.0),
    }


def _marks(document: JsonObject) -> Iterable[str]:
    """A strip a run with a mark where its mean lies, from the lowest mean to the highest."""
    means = [run["mean"] for run in document["runs"] if run["mean"] is not None]
    low, high = min(means, default=0.0), max(means, default=0.0)
    for run in document["runs"]:
        if run["mean"] is None or high == low:
            place = 0
        else:
            place = round((run["mean"] - low) / (high - low) * (CHART - 1))
        yield "" if run["mean"] is None else f"{'·' * place}●{'·' * (CHART - 1 - place)}"
