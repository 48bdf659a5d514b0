"""The charts of the HTML report, as numbers for its templates."""

import math
from collections import Counter
from typing import Any

from rich.cells import cell_len, set_cell_size

from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import escaped, first_of, number
from pytest_imgedit.report import tables

#: Width of the plots, and where their axis from 0 to 10 begins and ends, in SVG units.
WIDTH, LEFT, RIGHT = 720, 190, 660
ROW, BIN_HEIGHT, TOP = 28, 120, 20
BINS = 20
#: Columns of a chart's label; a wide character takes two.
LABEL = 20
#: Steps between round ticks, as multiples of a power of ten, and the most ticks.
STEPS, TICKS = (1, 2, 5), 6
#: Height of the scatter plot, and the distance of its axes from its ends.
SCATTER, EDGE = 420, 40


def x_of(score: float | None) -> float | None:
    """Place a score in [0, 10] on the axis; `None` stays `None`."""
    return None if score is None else round(LEFT + (RIGHT - LEFT) * score / 10, 1)


def category_chart(results: Results) -> dict[str, Any]:
    """One row a category and the overall score: mean, 95% interval and, if there is one, the
    baseline's mean.
    """
    compared = results.comparison.rows if results.comparison else {}
    before = {name: row.before for name, row in compared.items()}
    summaries = {**results.categories, "overall": results.overall.macro}
    rows = [
        {
            "name": name,
            "label": fit_label(name),
            "y": ROW * position + ROW / 2,
            "mean": x_of(row.mean),
            "text": "no score" if row.mean is None else f"{row.mean:.2f}",
            "low": row.ci95 and x_of(row.ci95[0]),
            "high": row.ci95 and x_of(row.ci95[1]),
            "before": x_of(before.get(name)),
        }
        for position, (name, row) in enumerate(summaries.items())
    ]
    return {"rows": rows, "height": ROW * len(rows), "ticks": _ticks(), "has_before": bool(before)}


def fit_label(name: str) -> str:
    """Escape a name, and cut it to the columns of a label."""
    name = escaped(name)
    return name if cell_len(name) <= LABEL else f"{set_cell_size(name, LABEL - 1).rstrip()}…"


def round_ticks(low: float, high: float) -> list[float]:
    """Return ticks at round numbers, from the last one under `low` to the first one over `high`."""
    power = math.floor(math.log10((high - low) or 1.0)) - 1
    sizes = [step * 10.0**exponent for exponent in (power, power + 1) for step in STEPS]
    size = next((size for size in sizes if (high - low) / size <= TICKS - 1), 10.0 ** (power + 2))
    first, last = math.floor(low / size), math.ceil(high / size)
    return [round(number * size, 9) for number in range(first, max(last, first + 1) + 1)]


def histogram(results: Results) -> dict[str, Any]:
    """Counts of pairs by score, in bins half a point wide; the last one includes 10."""
    scores = [item.score for item in results.items if item.score is not None]
    counts = Counter(min(BINS - 1, int(score * BINS / 10)) for score in scores)
    most = max(counts.values(), default=1)
    width = (RIGHT - LEFT) / BINS
    bars = [
        {
            "x": round(LEFT + width * position + 1, 1),
            "width": round(width - 2, 1),
            "y": round(BIN_HEIGHT * (1 - counts[position] / most) + TOP, 1),
            "height": round(BIN_HEIGHT * counts[position] / most, 1),
            "count": counts[position],
            "range": f"{position * 10 / BINS:g} to {(position + 1) * 10 / BINS:g}",
        }
        for position in range(BINS)
    ]
    return {"bars": bars, "height": BIN_HEIGHT + TOP, "ticks": _ticks()}


def _ticks() -> list[dict[str, float | None]]:
    return [{"x": x_of(score), "score": score} for score in range(0, 11, 2)]


def scatter(results: Results) -> dict[str, Any] | None:
    """Pairs by the first two main measures, such as following the instruction and preserving the
    rest: a circle for those with the same values, whose area is their number; `None` for a run
    without two such measures.
    """
    main = tables.main_measures(results)
    names = [name for name in main if not tables.is_further(name, results)][:2]
    if len(names) < 2 or not all(results.measures[name].is_bounded for name in names):
        return None
    pairs: dict[tuple[float, float], list[str]] = {}
    for item in results.items:
        x, y = (item.value(name) for name in names)
        if x is not None and y is not None:
            pairs.setdefault((x, y), []).append(item.id)
    axes = [(name, *results.measures[name].ends) for name in names]
    return {
        "axes": axes,
        "size": SCATTER,
        "edge": EDGE,
        "points": [
            {
                "first": ids[0],
                "text": f"{first_of(ids)}: {names[0]} {number(x)}, {names[1]} {number(y)}",
                "x": _along(x, *axes[0][1:]),
                "y": SCATTER - _along(y, *axes[1][1:]),
                "radius": round(4 * len(ids) ** 0.5, 1),
            }
            for (x, y), ids in pairs.items()
        ],
    }


def _along(value: float, low: float, high: float) -> float:
    """Place a value on an axis of the scatter plot."""
    return round(EDGE + (SCATTER - 2 * EDGE) * (value - low) / (high - low), 1)
