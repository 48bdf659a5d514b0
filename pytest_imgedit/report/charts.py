"""Geometry of the HTML report's charts; the template draws it as SVG."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len, set_cell_size

from pytest_imgedit.core.results import Results

#: Width of the plots, and where their axis from 0 to 10 begins and ends, in SVG units.
WIDTH, LEFT, RIGHT = 720, 190, 660
ROW, BIN_HEIGHT, TOP = 28, 120, 20
BINS = 20
#: Columns of a label; a wide character takes two.
LABEL = 20


def x_of(score: float | None) -> float | None:
    """Place a score in [0, 10] on the axis; `None` stays `None`."""
    return None if score is None else round(LEFT + (RIGHT - LEFT) * score / 10, 1)


def category_chart(results: Results) -> dict[str, Any]:
    """One row a category and the overall score: mean, 95% interval and, if there is one, the
    baseline's mean.
    """
    before = {}
    if results.comparison:
        before = {name: row.before for name, row in results.comparison.rows.items()}
    summaries = {**results.categories, "overall": results.overall.macro}
    rows = [
        {
            "name": name,
            "label": name
            if cell_len(name) <= LABEL
            else f"{set_cell_size(name, LABEL - 1).rstrip()}…",
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


def histogram(results: Results) -> dict[str, Any]:
    """Counts of pairs by score, in bins half a point wide; the last one includes 10."""
    counts = [0] * BINS
    for item in results.items:
        if item.score is not None:
            counts[min(BINS - 1, int(item.score * BINS / 10))] += 1
    most = max(1, *counts)
    width = (RIGHT - LEFT) / BINS
    bars = [
        {
            "x": round(LEFT + width * position + 1, 1),
            "width": round(width - 2, 1),
            "y": round(BIN_HEIGHT * (1 - count / most) + TOP, 1),
            "height": round(BIN_HEIGHT * count / most, 1),
            "count": count,
            "range": f"{position * 10 / BINS:g} to {(position + 1) * 10 / BINS:g}",
        }
        for position, count in enumerate(counts)
    ]
    return {"bars": bars, "height": BIN_HEIGHT + TOP, "ticks": _ticks()}


def _ticks() -> list[dict[str, float | None]]:
    return [{"x": x_of(score), "score": score} for score in range(0, 11, 2)]
