"""The charts of the HTML report, as numbers for its templates."""

import math
from collections import Counter
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from pytest_imgedit.core.results import Results, Summary
from pytest_imgedit.core.text import escaped, first_of, number
from pytest_imgedit.report import tables

#: Width of the plots, and where their axis from 0 to 10 begins and ends, in SVG units.
WIDTH = 720
LEFT = 190
RIGHT = 660
#: Height of a chart's row.
ROW = 28
#: Height of the histogram's highest bar, the room above it, and the number of its bars.
BIN_HEIGHT = 120
TOP = 20
BINS = 20
#: Columns of a chart's label; a wide character takes two.
LABEL = 20
#: Steps between round ticks, as multiples of a power of ten.
STEPS = (1, 2, 5)
#: The most ticks of an axis.
TICKS = 6
#: Height of the scatter plot, and the distance of its axes from its ends.
SCATTER = 420
EDGE = 40
#: Radius of the circle of one pair in the scatter plot.
RADIUS = 4


def x_of(score: float | None) -> float | None:
    """Place a score in [0, 10] on the axis; `None` stays `None`."""
    return None if score is None else round(LEFT + (RIGHT - LEFT) * score / 10, 1)


def category_chart(results: Results) -> dict[str, Any]:
    """Return a row for each category and for the overall score: mean, 95% interval and, if there is
    one, the baseline's mean; with the height of all rows and the ticks of the axis.
    """
    before: dict[str, float | None] = {}
    if results.comparison:
        before = {name: row.before for name, row in results.comparison.rows.items()}
    summaries = results.categories | {"overall": results.overall.macro}
    rows: list[dict[str, Any]] = []
    for name, summary in summaries.items():
        row = _category_row(name, summary, y=ROW * len(rows) + ROW / 2)
        row["before"] = x_of(before.get(name))
        rows.append(row)
    return {"rows": rows, "height": ROW * len(rows), "ticks": _ticks(), "has_before": bool(before)}


def _category_row(name: str, summary: Summary, y: float) -> dict[str, Any]:
    """Place the mean and the interval of a group in the row at the height `y`; what it lacks is
    `None`.
    """
    low, high = summary.ci95 or (None, None)
    return {
        "name": name,
        "label": fit_label(name),
        "y": y,
        "mean": x_of(summary.mean),
        "text": "no score" if summary.mean is None else f"{summary.mean:.2f}",
        "low": x_of(low),
        "high": x_of(high),
    }


def fit_label(name: str) -> str:
    """Escape a name, and cut it to the columns of a label."""
    name = escaped(name)
    return name if cell_len(name) <= LABEL else f"{set_cell_size(name, LABEL - 1).rstrip()}…"


def round_ticks(low: float, high: float) -> list[float]:
    """Return ticks at round numbers, the first not above `low`, the last not below `high`; at least
    two.
    """
    distance = _tick_distance(high - low)
    first = math.floor(low / distance)
    last = max(math.ceil(high / distance), first + 1)
    return [round(multiple * distance, 9) for multiple in range(first, last + 1)]


def _tick_distance(span: float) -> float:
    """Return the smallest round distance at which `TICKS` ticks reach over a span."""
    power = math.floor(math.log10(span or 1.0)) - 1
    for exponent in (power, power + 1):
        for step in STEPS:
            distance = step * 10.0**exponent
            if span / distance <= TICKS - 1:
                return distance
    return 10.0 ** (power + 2)


def histogram(results: Results) -> dict[str, Any]:
    """Count pairs by score, in bins half a point wide; the last one includes 10."""
    scores = [item.score for item in results.items if item.score is not None]
    counts = Counter(min(BINS - 1, int(score * BINS / 10)) for score in scores)
    most = max(counts.values(), default=1)
    bars = [_bar(position, counts[position], most) for position in range(BINS)]
    return {"bars": bars, "height": BIN_HEIGHT + TOP, "ticks": _ticks()}


def _bar(position: int, count: int, most: int) -> dict[str, Any]:
    """Place the bar of a bin; that of the bin with the `most` pairs is the highest."""
    width = (RIGHT - LEFT) / BINS
    gap = 1
    return {
        "x": round(LEFT + width * position + gap, 1),
        "width": round(width - 2 * gap, 1),
        "y": round(BIN_HEIGHT * (1 - count / most) + TOP, 1),
        "height": round(BIN_HEIGHT * count / most, 1),
        "count": count,
        "range": f"{position * 10 / BINS:g} to {(position + 1) * 10 / BINS:g}",
    }


def _ticks() -> list[dict[str, float | None]]:
    return [{"x": x_of(score), "score": score} for score in range(0, 11, 2)]


def scatter(results: Results) -> dict[str, Any] | None:
    """Place pairs by the first two main measures, such as following the instruction and preserving
    the rest. Pairs with the same values are one circle, whose area grows with their number.

    Returns `None` for a run that lacks two such measures, or in which one of them has no scale.
    Pairs without one of the values are left out.
    """
    main = tables.main_measures(results)
    names = [name for name in main if not tables.is_further(name, results)][:2]
    if len(names) < 2 or not all(results.measures[name].is_bounded for name in names):
        return None
    x_axis, y_axis = (_Axis(name, *results.measures[name].ends) for name in names)
    pairs: dict[tuple[float, float], list[str]] = {}
    for item in results.items:
        x = item.value(x_axis.name)
        y = item.value(y_axis.name)
        if x is not None and y is not None:
            pairs.setdefault((x, y), []).append(item.id)
    points = []
    for (x, y), ids in pairs.items():
        first = ids[0]
        points.append(
            {
                "first": first,
                "text": f"{first_of(ids)}: {x_axis.name} {number(x)}, {y_axis.name} {number(y)}",
                "x": x_axis.place(x),
                "y": SCATTER - y_axis.place(y),
                "radius": round(RADIUS * len(ids) ** 0.5, 1),
            }
        )
    return {"axes": [x_axis, y_axis], "size": SCATTER, "edge": EDGE, "points": points}


class _Axis(NamedTuple):
    """An axis of the scatter plot: its measure, and the ends of its scale."""

    name: str
    low: float
    high: float

    def place(self, value: float) -> float:
        """Return the distance of a value from the beginning of the plot, in SVG units."""
        length = SCATTER - 2 * EDGE
        return round(EDGE + length * (value - self.low) / (self.high - self.low), 1)
