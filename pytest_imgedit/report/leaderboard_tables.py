"""The tables of a leaderboard, and their Markdown, CSV and JSON."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from string import ascii_letters

from pytest_imgedit.core.measures import OVERALL, SCORE
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import (
    counted,
    escaped,
    first_of,
    interval,
    number,
    shorten,
    signed,
)
from pytest_imgedit.report.markdown import escape, table_lines
from pytest_imgedit.report.measure_tables import label
from pytest_imgedit.report.tables import LONGEST_NAME, Table, p_value
from pytest_imgedit.stats.boards import RatedSystem
from pytest_imgedit.stats.leaderboard import RankedMeasure, RankedRuns
from pytest_imgedit.stats.ranking import RankedMean, RankedSystem
from pytest_imgedit.store.baselines import Baseline

HEADER = ("system", "rank", "ranks", "groups", "mean", "95% CI")
DIFFERENCE_HEADER = ("diff", "95% CI of diff", "p")
CSV_HEADER = (
    "measure",
    "group",
    "system",
    "run",
    "n",
    "rank",
    "rank_low",
    "rank_high",
    "groups",
    "mean",
    "low",
    "high",
    "missing",
    "difference",
    "difference_low",
    "difference_high",
    "p",
)
#: The most characters of a measure's name above a column.
_LONGEST_COLUMN = 30
#: What the columns mean.
NOTES = (
    "ranks: simultaneous 95% confidence intervals",
    "groups: systems without a letter in common can be told apart",
    "95% CI: simultaneous for all systems of a column",
)


def title(ranked: RankedRuns) -> str:
    """Return the title of a leaderboard, which counts its systems."""
    return f"Leaderboard of {counted(len(ranked.runs), 'system')}"


def judge(ranked: RankedRuns) -> str:
    """Name the judge by which systems are ranked, with its protocol, if it has one."""
    run = next(iter(ranked.runs.values()))
    protocol = f", protocol {run.judge.protocol}@{run.judge.variant}" if run.judge.protocol else ""
    return f"judge {run.judge.spec}{protocol}"


def notes(ranked: RankedRuns) -> list[str]:
    """Return lines on the meaning of the columns, and on what a reader must know of the systems and
    measures.
    """
    return list(NOTES) + list(ranked.notes)


def letters(groups: Sequence[int]) -> str:
    """Name groups by letters, the first one `a`; beyond all letters by numbers in parentheses."""
    return "".join(_letter(group) for group in groups)


def _letter(group: int) -> str:
    return ascii_letters[group - 1] if group <= len(ascii_letters) else f"({group})"


def ranks(row: RankedSystem | RatedSystem) -> str:
    """Format the interval of a rank: `1–3`, or `2` for one rank."""
    low, high = row.rank_interval
    return str(low) if low == high else f"{low}–{high}"


def measure_table(name: str, ranked: RankedMeasure, reference: str | None) -> Table:
    """Return a row for each system, the best first, with a column for each category.

    With a `reference`, columns of the difference from that system are added.
    """
    decimals = ranked.measure.decimals
    header: tuple[str, ...] = HEADER
    if reference is not None:
        header += DIFFERENCE_HEADER
    header += categories(ranked) + ("missing",)
    rows = []
    for system in ranked.board.rows:
        row = _overall(system, ranked.measure)
        if reference is not None:
            row += _difference(system, decimals)
        row += tuple(number(mean.mean, decimals) for mean in system.categories.values())
        row += (str(system.missing),)
        rows.append(row)
    notes = [pairs_line(ranked)]
    notes += _interval_lines(ranked)
    return Table(label(name, ranked.measure), header, rows, notes)


def categories(ranked: RankedMeasure) -> tuple[str, ...]:
    """Return the categories of a leaderboard."""
    return tuple(ranked.board.rows[0].categories)


def _overall(row: RankedSystem, measure: Measure) -> tuple[str, ...]:
    """Return the cells of a system in the columns of `HEADER`."""
    return (
        shorten(row.system, LONGEST_NAME),
        str(row.rank),
        ranks(row),
        letters(row.groups),
        number(row.overall.mean, measure.decimals),
        interval(row.overall.ci95, digits=measure.decimals),
    )


def _difference(row: RankedSystem, decimals: int) -> tuple[str, ...]:
    """Return the cells of a system in the columns of `DIFFERENCE_HEADER`."""
    if row.difference is None:
        return ("reference", "", "")
    difference = row.difference
    return (
        signed(difference.mean, decimals),
        interval(difference.ci95, signs=True, digits=decimals),
        p_value(difference.p),
    )


def pairs_line(ranked: RankedMeasure) -> str:
    """Return a line on the pairs over which systems are ranked, and on how many are left out."""
    board = ranked.board
    left_out = "no pair is left out"
    if board.left_out:
        left_out = f"{counted(board.left_out, 'pair')} left out, of which a system has no value"
    return (
        f"over the {counted(board.n, 'pair')} of {counted(board.clusters, 'source image')} that "
        f"all systems have a value of; {left_out}"
    )


def _interval_lines(ranked: RankedMeasure) -> Iterator[str]:
    """Yield a line if means have no interval, or one that is pooled, because categories have a
    single source image.
    """
    row = ranked.board.rows[0]  # intervals are missing in all rows alike
    single = [category for category, mean in row.categories.items() if mean.ci95 is None]
    if single and row.overall.ci95 is None:
        yield "no intervals, and no system better than another: each category has one source image"
    elif single:
        has = "has one source image" if len(single) == 1 else "have one source image each"
        yield (
            f"{first_of(single)} {has}: overall intervals take its variance from the other "
            "categories"
        )


def interval_table(name: str, ranked: RankedMeasure) -> Table:
    """Return a row for each system, with its interval in each category."""
    decimals = ranked.measure.decimals
    rows = []
    for system in ranked.board.rows:
        row = [shorten(system.system, LONGEST_NAME)]
        row += [interval(mean.ci95, digits=decimals) for mean in system.categories.values()]
        rows.append(tuple(row))
    heading = f"{shorten(name, LONGEST_NAME)}: 95% intervals by category"
    return Table(heading, ("system",) + categories(ranked), rows, [], is_detail=True)


def summary_table(ranked: RankedRuns) -> Table | None:
    """Return a row for each system, with its mean and its ranks by each main measure beside the
    score; `None` if there is no such measure.
    """
    header = ["system"]
    cells: dict[str, list[str]] = {}
    for name, part in ranked.measures.items():
        if not part.measure.is_main or name == SCORE:
            continue
        header.append(shorten(name, _LONGEST_COLUMN))
        for row in part.board.rows:
            mean = number(row.overall.mean, part.measure.decimals)
            cells.setdefault(row.system, []).append(f"{mean} ({ranks(row)})")
    if not cells:
        return None
    best_first = [row.system for row in next(iter(ranked.measures.values())).board.rows]
    rows = [tuple([shorten(system, LONGEST_NAME)] + cells[system]) for system in best_first]
    return Table("main measures: mean (ranks)", tuple(header), rows, [])


def markdown(ranked: RankedRuns) -> str:
    """Render all tables as Markdown."""
    lines = [f"# {escape(title(ranked))}", "", escape(judge(ranked)), ""]
    for name, part in ranked.measures.items():
        board = measure_table(name, part, ranked.reference)
        lines += [f"## {escape(board.title)}", ""]
        lines += table_lines(board.header, board.rows)
        lines.append("")
        lines += [escape(note) for note in board.notes]
        details = interval_table(name, part)
        lines += ["", f"### {escape(details.title)}", ""]
        lines += table_lines(details.header, details.rows)
        lines.append("")
    lines += [f"- {escape(note)}" for note in notes(ranked)]
    lines.append("")
    return "\n".join(lines)


def csv_of(ranked: RankedRuns) -> str:
    """Render a row of CSV for each measure, system and group; only rows of the group `overall` have
    ranks, differences and the counts `n` and `missing`.
    """
    return csv_text(CSV_HEADER, _csv_rows(ranked))


def csv_text(header: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Render rows, which are cells by column, as CSV; a column that a row lacks is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        cells = []
        for name in header:
            cell = row.get(name, "")
            cells.append(escaped(cell) if isinstance(cell, str) else cell)
        writer.writerow(cells)
    return file.getvalue()


def _csv_rows(ranked: RankedRuns) -> Iterator[dict[str, object]]:
    """Yield rows by column; a column that a row lacks is empty."""
    for name, part in ranked.measures.items():
        for row in part.board.rows:
            run = ranked.runs[row.system].run
            system: dict[str, object] = {"measure": name, "system": row.system, "run": run}
            yield system | {"group": OVERALL, "n": part.board.n} | _csv_overall(row)
            for category, mean in row.categories.items():
                yield system | {"group": category} | _csv_mean(mean)


def _csv_mean(mean: RankedMean) -> dict[str, object]:
    cells: dict[str, object] = {"mean": mean.mean}
    if mean.ci95:
        cells["low"], cells["high"] = mean.ci95
    return cells


def _csv_overall(row: RankedSystem) -> dict[str, object]:
    """Return the cells of a system over all pairs, by column; without a difference for the
    reference.
    """
    cells = _csv_mean(row.overall)
    cells["rank"] = row.rank
    cells["rank_low"], cells["rank_high"] = row.rank_interval
    cells["groups"] = letters(row.groups)
    cells["missing"] = row.missing
    if row.difference is not None:
        cells["difference"] = row.difference.mean
        if row.difference.ci95:
            cells["difference_low"], cells["difference_high"] = row.difference.ci95
        cells["p"] = row.difference.p
    return cells


def as_json(ranked: RankedRuns) -> JsonObject:
    """Return all that a leaderboard says, as `--json` prints it."""
    return {
        "title": f"{title(ranked)}, {judge(ranked)}",
        "reference": ranked.reference,
        "systems": {system: _run_json(run) for system, run in ranked.runs.items()},
        "measures": {name: _measure_json(part) for name, part in ranked.measures.items()},
        "notes": list(ranked.notes),
    }


def _run_json(run: Baseline) -> JsonObject:
    """Return which run a system stands for, with its number of pairs."""
    return {
        "run": run.run,
        "editor": run.editor.spec,
        "finished": run.finished,
        "commit": None if run.commit is None else run.commit.sha,
        "pairs": len(run.items),
    }


def _measure_json(part: RankedMeasure) -> JsonObject:
    """Return a measure with its leaderboard; groups are letters, as in the tables."""
    document: JsonObject = part.measure.model_dump(mode="json")
    document |= asdict(part.board)
    for row in document["rows"]:
        row["groups"] = letters(row["groups"])
    return document
