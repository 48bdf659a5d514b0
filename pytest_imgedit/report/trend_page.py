"""The HTML page of `imgedit trend`: means of a series of runs, and the evidence that they have
fallen.
"""

import math
from collections.abc import Sequence

from pytest_imgedit.core.sanitize import interval, number, printable
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import html, tables

#: Size of a plot, and the left and top margins of its labels, in SVG units.
WIDTH, HEIGHT, LEFT, TOP = 660, 180, 60, 10
HEADER = ("run", "overall", "state", "evidence", "95% CI", "pairs", "finished", "commit")
#: Columns that a narrow screen omits.
WIDE_ONLY = ("evidence", "95% CI", "pairs", "finished", "commit")


def render(document: JsonObject) -> str:
    """Render the document of `imgedit trend --json` as one HTML page without any script."""
    runs, limit = document["runs"], document["limit"]
    ends = [end for run in runs if run["ci95"] for end in run["ci95"]]
    low, high = math.floor(min(ends, default=0.0)), math.ceil(max(ends, default=10.0))
    evidence = {
        field: [math.log10(max(1e-3, run["evidence"][field])) for run in runs]
        for field in document["fields"]
    }
    most = max(math.log10(limit) + 1, *(max(values) for values in evidence.values()))
    templates = html.environment()
    style = templates.get_template("report.css").render()
    return templates.get_template("trend.html").render(
        title=printable(document["title"]),
        outcome=printable(document["outcome"]),
        state="fail" if document["fell"] else "pass",
        notes=document["notes"],
        axis={"width": WIDTH, "height": HEIGHT, "left": LEFT, "top": TOP},
        means=_points([run["mean"] for run in runs], low, high, runs),
        mean_ticks=_ticks(low, high, range(low, high + 1)),
        lines=[(field, _points(values, -3, most, runs)) for field, values in evidence.items()],
        evidence_ticks=_ticks(-3, most, range(-3, math.floor(most) + 1), power=True),
        limit=_y(math.log10(limit), -3, most),
        header=HEADER,
        rows=rows(document),
        words=tables.WORDS,
        wide_only=WIDE_ONLY,
        style=style,
        style_hash=html.csp_hash(style),
    )


def rows(document: JsonObject) -> list[tuple[str, ...]]:
    """One row a run, in the columns of `HEADER`."""
    return [
        (
            printable(run["name"]),
            number(run["mean"]),
            "fell: " + ", ".join(run["fell"]) if run["fell"] else "",
            _evidence(run["evidence"]["overall"]),
            interval(run["ci95"]),
            str(run["pairs"]),
            tables.human_time(run["finished"]),
            printable(run["commit"] or "–"),
        )
        for run in document["runs"]
    ]


def _evidence(value: float) -> str:
    return f"{value:.2g}" if value < 1e4 else f"{value:.0e}"


def _y(value: float, low: float, high: float) -> float:
    return round(TOP + HEIGHT * (1 - (value - low) / ((high - low) or 1)), 1)


def _points(
    values: Sequence[float | None], low: float, high: float, runs: Sequence[JsonObject]
) -> list[JsonObject]:
    """Place the values of the runs from left to right, without those that are `None`."""
    step = (WIDTH - LEFT - 20) / max(1, len(values) - 1)
    return [
        {
            "x": round(LEFT + 10 + step * position, 1),
            "y": _y(value, low, high),
            "ends": None if run["ci95"] is None else [_y(end, low, high) for end in run["ci95"]],
            "name": printable(run["name"]),
            "text": f"{value:.2f}",
        }
        for position, (value, run) in enumerate(zip(values, runs, strict=True))
        if value is not None
    ]


def _ticks(low: float, high: float, values: range, power: bool = False) -> list[JsonObject]:
    every = max(1, len(values) // 6)
    return [
        {"y": _y(value, low, high), "text": f"{10.0**value:g}" if power else str(value)}
        for value in values
        if value % every == 0
    ]
