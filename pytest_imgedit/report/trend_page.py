"""The HTML page of `imgedit trend`: means of a series of runs by measure, and the evidence that
they got worse.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_imgedit.core.measures import OVERALL, Field
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import interval, number
from pytest_imgedit.report import charts, html, tables
from pytest_imgedit.report.measure_tables import label

#: Size of a plot, and the left and top margins of its labels, in SVG units.
WIDTH = 660
HEIGHT = 180
LEFT = 60
TOP = 10
#: Distance of the first and the last run from the ends of a plot.
_EDGE = 10
#: The power of ten at which the axis of the evidence begins.
_LEAST_POWER = -3
HEADER = ("run", "overall", "state", "evidence", "95% CI", "pairs", "finished", "commit")
#: Columns that a narrow screen omits.
WIDE_ONLY = ("evidence", "95% CI", "pairs", "finished", "commit")


class MeasureTable(NamedTuple):
    """The runs by one measure, in the columns of `HEADER`."""

    measure: str
    label: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def moved(measure: Measure) -> str:
    """Return the verb for what a measure did that got worse."""
    return "rose" if measure.lower_is_better else "fell"


def render(document: JsonObject, pairs_url: str = "") -> str:
    """Render the document of `imgedit trend --json` as one HTML page, with a link to the pairs of
    its newest runs if there is one.
    """
    parts = []
    for table in tables_of(document):
        means = _means(document, table.measure)
        evidence = _evidence_chart(document, table.measure)
        parts.append({"table": table, "means": means, "evidence": evidence})
    template = html.environment().get_template("trend.html")
    return template.render(
        title=document["title"],
        pairs_url=pairs_url,
        outcome=document["outcome"],
        state="fail" if document["worse"] else "pass",
        notes=document["notes"],
        axis={"width": WIDTH, "height": HEIGHT, "left": LEFT, "top": TOP},
        parts=parts,
        words=tables.WORDS,
        wide_only=WIDE_ONLY,
        **html.one_file(),
    )


def tables_of(document: JsonObject) -> Iterator[MeasureTable]:
    """Yield a table of the runs for each measure."""
    for name, fields in document["measures"].items():
        measure = Measure(**fields)
        rows = [_row(run, name, measure) for run in document["runs"]]
        yield MeasureTable(name, label(name, measure), HEADER, rows)


def _row(run: JsonObject, name: str, measure: Measure) -> tuple[str, ...]:
    """Return the row of a run in the table of a measure."""
    summary = run["measures"][name]
    fields = [Field.parse(text) for text in run["worse"]]
    worse = [field.group for field in fields if field.measure == name]
    state = f"{moved(measure)}: {', '.join(worse)}" if worse else ""
    return (
        run["name"],
        number(summary["mean"], measure.decimals),
        state,
        _evidence(run["evidence"][str(Field(name, OVERALL))]),
        interval(summary["ci95"], digits=measure.decimals),
        str(summary["pairs"]),
        tables.human_time(run["finished"]),
        run["commit"] or "–",
    )


def _means(document: JsonObject, name: str) -> JsonObject:
    """Place the means of a measure and the ends of their intervals, on an axis that holds them; a
    run without a mean has no point.
    """
    means = [run["measures"][name] for run in document["runs"]]
    ends: list[float] = []
    for mean in means:
        if mean["ci95"]:
            ends += mean["ci95"]
        elif mean["mean"] is not None:
            ends.append(mean["mean"])
    ticks = charts.round_ticks(min(ends, default=0.0), max(ends, default=10.0))
    low = ticks[0]
    high = ticks[-1]
    points = _points([mean["mean"] for mean in means], low, high, document)
    for point in points:
        ci95 = means[point["run"]]["ci95"]
        point["ends"] = None if ci95 is None else [_y(end, low, high) for end in ci95]
    return {"points": points, "ticks": _ticks(ticks, low, high)}


def _evidence_chart(document: JsonObject, name: str) -> JsonObject:
    """Place the evidence of a measure on a logarithmic axis that begins at `_LEAST_POWER`: a line
    for each group, ticks at powers of ten, and the limit.
    """
    low = _LEAST_POWER
    powers_by_group: dict[str, list[float]] = {}
    for field in map(Field.parse, document["fields"]):
        if field.measure == name:
            powers: list[float] = []
            for run in document["runs"]:
                evidence = max(10.0**low, run["evidence"][str(field)])
                powers.append(math.log10(evidence))
            powers_by_group[field.group] = powers
    limit = math.log10(document["limit"])
    high = limit + 1
    for powers in powers_by_group.values():
        high = max(high, max(powers))
    lines = []
    for group, powers in powers_by_group.items():
        lines.append((group, _points(powers, low, high, document)))
    whole_powers = range(low, math.floor(high) + 1)
    tick_distance = max(1, len(whole_powers) // charts.TICKS)
    ticks = []
    for power in whole_powers:
        if power % tick_distance == 0:
            ticks.append({"y": _y(power, low, high), "text": f"{10.0**power:g}"})
    return {"lines": lines, "ticks": ticks, "limit": _y(limit, low, high)}


def _ticks(ticks: Sequence[float], low: float, high: float) -> list[JsonObject]:
    return [{"y": _y(tick, low, high), "text": f"{tick:g}"} for tick in ticks]


def _evidence(value: float) -> str:
    return f"{value:.2g}" if value < 1e4 else f"{value:.0e}"


def _y(value: float, low: float, high: float) -> float:
    """Place a value on an axis that has `low` at the bottom and `high` at the top of a plot."""
    span = (high - low) or 1
    return round(TOP + HEIGHT * (1 - (value - low) / span), 1)


def _points(
    values: Sequence[float | None], low: float, high: float, document: JsonObject
) -> list[JsonObject]:
    """Place the values of the runs from left to right, without those that are `None`; each has the
    position and the name of its run.
    """
    step = (WIDTH - LEFT - 2 * _EDGE) / max(1, len(values) - 1)
    points = []
    for position, value in enumerate(values):
        if value is None:
            continue
        points.append(
            {
                "run": position,
                "x": round(LEFT + _EDGE + step * position, 1),
                "y": _y(value, low, high),
                "name": document["runs"][position]["name"],
                "text": f"{value:.4g}",
            }
        )
    return points
