"""The HTML page of `imgedit leaderboard`."""

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import first_of, number
from pytest_imgedit.report import charts, html, leaderboard_tables, tables
from pytest_imgedit.stats.leaderboard import RankedMeasure, RankedRuns


def render(ranked: RankedRuns, pairs_url: str = "") -> str:
    """Render a leaderboard as one HTML page, with a link to the pairs of its runs if there is
    one.
    """
    parts = []
    for name, part in ranked.measures.items():
        board = leaderboard_tables.measure_table(name, part, ranked.reference)
        intervals = leaderboard_tables.interval_table(name, part)
        parts.append({"board": board, "intervals": intervals, "chart": chart(part)})
    template = html.environment().get_template("leaderboard.html")
    return template.render(
        title=leaderboard_tables.title(ranked),
        judge=leaderboard_tables.judge(ranked),
        pairs_url=pairs_url,
        headline=_headline(ranked),
        notes=leaderboard_tables.notes(ranked),
        axis={"WIDTH": charts.WIDTH, "LEFT": charts.LEFT},
        parts=parts,
        words=tables.WORDS,
        wide_only=(),
        **html.one_file(),
    )


def _headline(ranked: RankedRuns) -> str:
    """Return a line that names the best system by the first measure, its mean, and the systems that
    may be as good.
    """
    name, part = next(iter(ranked.measures.items()))
    best, *others = part.board.rows
    mean = number(best.overall.mean, part.measure.decimals)
    rivals = [row.system for row in others if set(row.groups) & set(best.groups)]
    told_apart = f"not told apart from {first_of(rivals)}" if rivals else "better than all others"
    return f"{best.system}: {name} {mean}, {told_apart}"


def chart(ranked: RankedMeasure) -> JsonObject:
    """Place the mean and the interval of each system on an axis that holds them all.

    Without intervals it spans the scale, if the measure has one, so that systems that may be equal
    do not look far apart.
    """
    systems = ranked.board.rows
    values: list[float] = []
    for system in systems:
        values += system.overall.ci95 or (system.overall.mean,)
    has_intervals = any(system.overall.ci95 for system in systems)
    if ranked.measure.is_bounded and not has_intervals:
        values += ranked.measure.ends
    ticks = charts.round_ticks(min(values), max(values))
    low = ticks[0]
    high = ticks[-1]

    def place(value: float) -> float:
        share = (value - low) / (high - low)
        return round(charts.LEFT + (charts.RIGHT - charts.LEFT) * share, 1)

    rows: list[JsonObject] = []
    for position, system in enumerate(systems):
        overall = system.overall
        rows.append(
            {
                "name": system.system,
                "label": charts.fit_label(system.system),
                "y": charts.ROW * position + charts.ROW / 2,
                "mean": place(overall.mean),
                "text": number(overall.mean, ranked.measure.decimals),
                "ends": overall.ci95 and [place(end) for end in overall.ci95],
            }
        )
    return {
        "height": charts.ROW * len(rows),
        "ticks": [{"x": place(tick), "score": f"{tick:g}"} for tick in ticks],
        "rows": rows,
    }
