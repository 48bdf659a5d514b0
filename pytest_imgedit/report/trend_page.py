"""The HTML page of `imgedit trend`: means of a series of runs by measure, and the evidence that
they got worse.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_imgedit.core.measures import OVERALL, Field
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.sanitize import interval, number
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import charts, html, tables
from pytest_imgedit.report.measure_tables import label

#: Size of a plot, and the left and top margins of its labels, in SVG units.
WIDTH, HEIGHT, LEFT, TOP = 660, 180, 60, 10
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
    """Say what a measure did that got worse."""
    return "rose" if measure.lower_is_better else "fell"


def render(document: JsonObject, pairs_url: str = "") -> str:
    """Render the document of `imgedit trend --json` as one HTML page, with a link to the pairs of
    its newest runs if there is one.
    """
    templates = html.environment()
    return templates.get_template("trend.html").render(
        title=document["title"],
        pairs_url=pairs_url,
        outcome=document["outcome"],
        state="fail" if document["worse"] else "pass",
        notes=document["notes"],
        axis={"width": WIDTH, "height": HEIGHT, "left": LEFT, "top": TOP},
        parts=[
            {
                "table": table,
                "means": _means(document, table.measure),
                "evidence": _evidence_chart(document, table.measure),
            }
            for table in tables_of(document)
        ],
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
    mean = run["measures"][name]
    worse = [field.group for field in map(Field.parse, run["worse"]) if field.measure == name]
    return (
        run["name"],
        number(mean["mean"], measure.decimals),
        f"{moved(measure)}: {', '.join(worse)}" if worse else "",
        _evidence(run["evidence"][str(Field(name, OVERALL))]),
        interval(mean["ci95"], digits=measure.decimals),
        str(mean["pairs"]),
        tables.human_time(run["finished"]),
        run["commit"] or "–",
    )


def _means(document: JsonObject, name: str) -> JsonObject:
    """Place the means of a measure and the ends of their intervals, on an axis that holds them."""
    means = [run["measures"][name] for run in document["runs"]]
    ends = [value for mean in means for value in (mean["ci95"] or [mean["mean"]])]
    known = [value for value in ends if value is not None]
    ticks = charts.round_ticks(min(known, default=0.0), max(known, default=10.0))
    low, high = ticks[0], ticks[-1]
    points = _points([mean["mean"] for mean in means], low, high, document)
    for point in points:
        ci95 = means[point["run"]]["ci95"]
        point["ends"] = None if ci95 is None else [_y(end, low, high) for end in ci95]
    return {
        "points": points,
        "ticks": [{"y": _y(tick, low, high), "text": f"{tick:g}"} for tick in ticks],
    }


def _evidence_chart(document: JsonObject, name: str) -> JsonObject:
    """Place the evidence of a measure on a logarithmic axis."""
    lines = {
        field.group: [
            math.log10(max(1e-3, run["evidence"][str(field)])) for run in document["runs"]
        ]
        for field in map(Field.parse, document["fields"])
        if field.measure == name
    }
    limit = math.log10(document["limit"])
    low, high = -3, max(limit + 1, *(max(values) for values in lines.values()))
    powers = range(low, math.floor(high) + 1)
    every = max(1, len(powers) // charts.TICKS)
    return {
        "lines": [(group, _points(line, low, high, document)) for group, line in lines.items()],
        "ticks": [
            {"y": _y(power, low, high), "text": f"{10.0**power:g}"}
            for power in powers
            if power % every == 0
        ],
        "limit": _y(limit, low, high),
    }


def _evidence(value: float) -> str:
    return f"{value:.2g}" if value < 1e4 else f"{value:.0e}"


def _y(value: float, low: float, high: float) -> float:
    return round(TOP + HEIGHT * (1 - (value - low) / ((high - low) or 1)), 1)


def _points(
    values: Sequence[float | None], low: float, high: float, document: JsonObject
) -> list[JsonObject]:
    """Place the values of the runs from left to right, without those that are `None`."""
    step = (WIDTH - LEFT - 20) / max(1, len(values) - 1)
    return [
        {
            "run": position,
            "x": round(LEFT + 10 + step * position, 1),
            "y": _y(value, low, high),
            "name": document["runs"][position]["name"],
            "text": f"{value:.4g}",
        }
        for position, value in enumerate(values)
        if value is not None
    ]
