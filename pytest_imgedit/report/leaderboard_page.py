"""The HTML page of `imgedit leaderboard`."""

from pytest_imgedit.core.sanitize import first_of, number
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import charts, html, leaderboard_tables, tables
from pytest_imgedit.stats.leaderboard import RankedMeasure, RankedRuns


def render(ranked: RankedRuns, pairs_url: str = "") -> str:
    """Render a leaderboard as one HTML page, with a link to the pairs of its runs if there is
    one.
    """
    templates = html.environment()
    return templates.get_template("leaderboard.html").render(
        title=leaderboard_tables.title(ranked),
        judge=leaderboard_tables.judge(ranked),
        pairs_url=pairs_url,
        headline=_headline(ranked),
        notes=leaderboard_tables.notes(ranked),
        axis={"WIDTH": charts.WIDTH, "LEFT": charts.LEFT},
        parts=[
            {
                "board": leaderboard_tables.measure_table(name, part, ranked.reference),
                "intervals": leaderboard_tables.interval_table(name, part),
                "chart": chart(part),
            }
            for name, part in ranked.measures.items()
        ],
        words=tables.WORDS,
        wide_only=(),
        **html.one_file(),
    )


def _headline(ranked: RankedRuns) -> str:
    """Name the best system by the first measure, and those that may be as good."""
    name, part = next(iter(ranked.measures.items()))
    best, *others = part.board.rows
    mean = number(best.overall.mean, part.measure.decimals)
    rivals = [row.system for row in others if set(row.groups) & set(best.groups)]
    told_apart = f"not told apart from {first_of(rivals)}" if rivals else "better than all others"
    return f"{best.system}: {name} {mean}, {told_apart}"


def chart(ranked: RankedMeasure) -> JsonObject:
    """Place the mean and the interval of each system on an axis that holds them all.

    Without intervals it spans the scale, so that systems that may be equal do not look far apart.
    """
    rows = ranked.board.rows
    means = [row.overall for row in rows]
    ends = [end for mean in means for end in (mean.ci95 or (mean.mean, mean.mean))]
    if ranked.measure.is_bounded and not any(mean.ci95 for mean in means):
        ends += ranked.measure.ends
    ticks = charts.round_ticks(min(ends), max(ends))

    def place(value: float) -> float:
        share = (value - ticks[0]) / (ticks[-1] - ticks[0])
        return round(charts.LEFT + (charts.RIGHT - charts.LEFT) * share, 1)

    return {
        "height": charts.ROW * len(rows),
        "ticks": [{"x": place(tick), "score": f"{tick:g}"} for tick in ticks],
        "rows": [
            {
                "name": row.system,
                "label": charts.fit_label(row.system),
                "y": charts.ROW * position + charts.ROW / 2,
                "mean": place(row.overall.mean),
                "text": number(row.overall.mean, ranked.measure.decimals),
                "ends": row.overall.ci95 and [place(end) for end in row.overall.ci95],
            }
            for position, row in enumerate(rows)
        ],
    }
