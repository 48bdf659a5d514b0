"""The HTML page of `imgedit leaderboard`."""

from collections.abc import Sequence
from typing import NamedTuple

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import first_of, number
from pytest_imgedit.report import charts, html, leaderboard_tables, tables
from pytest_imgedit.stats.boards import RatedSystem
from pytest_imgedit.stats.leaderboard import RankedMeasure, RankedRuns
from pytest_imgedit.stats.ranking import RankedSystem


def render(ranked: RankedRuns, pairs_url: str = "") -> str:
    """Render a leaderboard as one HTML page, with a link to the pairs of its runs if there is
    one.
    """
    parts: list[JsonObject] = []
    for name, part in ranked.measures.items():
        board = leaderboard_tables.measure_table(name, part, ranked.reference)
        intervals = leaderboard_tables.interval_table(name, part)
        parts.append({"board": board, "intervals": intervals, "chart": chart(part)})
    return render_parts(
        parts,
        title=leaderboard_tables.title(ranked),
        judge=leaderboard_tables.judge(ranked),
        pairs_url=pairs_url,
        headline=_headline(ranked),
        notes=leaderboard_tables.notes(ranked),
        quantity="Mean",
    )


def render_parts(parts: Sequence[JsonObject], **texts: object) -> str:
    """Render the page of a leaderboard from its parts: the table `board`, the chart above it, if
    there is one, and a table of `intervals` that is folded, if there is one.
    """
    template = html.environment().get_template("leaderboard.html")
    return template.render(
        axis={"WIDTH": charts.WIDTH, "LEFT": charts.LEFT},
        parts=parts,
        words=tables.WORDS,
        wide_only=(),
        **texts,
        **html.one_file(),
    )


def _headline(ranked: RankedRuns) -> str:
    """Return a line that names the best system by the first measure, its mean, and the systems that
    may be as good.
    """
    name, part = next(iter(ranked.measures.items()))
    best = part.board.rows[0]
    mean = number(best.overall.mean, part.measure.decimals)
    return f"{best.system}: {name} {mean}, {told_apart(part.board.rows)}"


def told_apart(rows: Sequence[RankedSystem] | Sequence[RatedSystem]) -> str:
    """Return what tells the best system, the first, from others: which may be as good."""
    best, *others = rows
    rivals = [row.system for row in others if set(row.groups) & set(best.groups)]
    return f"not told apart from {first_of(rivals)}" if rivals else "better than all others"


def chart(ranked: RankedMeasure) -> JsonObject:
    """Place the mean and the interval of each system on an axis that holds them all.

    Without intervals it spans the scale, if the measure has one, so that systems that may be equal
    do not look far apart.
    """
    systems = ranked.board.rows
    marks = []
    for system in systems:
        mean = system.overall.mean
        text = number(mean, ranked.measure.decimals)
        marks.append(Mark(system.system, mean, system.overall.ci95, text))
    has_intervals = any(system.overall.ci95 for system in systems)
    is_whole = ranked.measure.is_bounded and not has_intervals
    return chart_of(marks, ranked.measure.ends if is_whole else ())


class Mark(NamedTuple):
    """A row of a chart: a system, its value with the interval, if it has one, and as text."""

    system: str
    value: float
    ci95: tuple[float, float] | None
    text: str


def chart_of(marks: Sequence[Mark], further: Sequence[float] = ()) -> JsonObject:
    """Place values and intervals, one a row, on an axis that holds them all and `further` values,
    in SVG units.
    """
    values = list(further)
    for mark in marks:
        values += mark.ci95 or (mark.value,)
    ticks = charts.round_ticks(min(values), max(values))
    low = ticks[0]
    high = ticks[-1]

    def place(value: float) -> float:
        share = (value - low) / (high - low)
        return round(charts.LEFT + (charts.RIGHT - charts.LEFT) * share, 1)

    rows: list[JsonObject] = []
    for position, mark in enumerate(marks):
        rows.append(
            {
                "name": mark.system,
                "label": charts.fit_label(mark.system),
                "y": charts.ROW * position + charts.ROW / 2,
                "mean": place(mark.value),
                "text": mark.text,
                "ends": mark.ci95 and [place(end) for end in mark.ci95],
            }
        )
    return {
        "height": charts.ROW * len(rows),
        "ticks": [{"x": place(tick), "score": f"{tick:g}"} for tick in ticks],
        "rows": rows,
    }
