"""Tables of the measures of a run: each by group, and against a baseline."""

from collections.abc import Iterator, Mapping

from pytest_imgedit.core.measures import OVERALL, SCORE
from pytest_imgedit.core.results import Comparison, ComparisonRow, Measure, Results, Summary
from pytest_imgedit.core.text import interval, number, shorten, signed
from pytest_imgedit.report.duel_tables import tables_of_duel
from pytest_imgedit.report.tables import (
    LONGEST_NAME,
    MICRO,
    Table,
    comparison_table,
    p_value,
    urgency,
    with_numbers,
)

GROUP_HEADER = (
    "group",
    "n",
    "scored",
    "mean",
    "95% CI",
    "std",
    "median",
    "min",
    "max",
    "MDE",
)
COMPARED_HEADER = (
    "before",
    "now",
    "diff",
    "95% CI",
    "p of drop",
    "p of rise",
    "finding",
    "MDE",
)


def tables_of_measures(results: Results, *, brief: bool) -> Iterator[Table]:
    """Yield the tables of a run against its baseline, those of its duels, and one for each measure
    by group, without rows in which nothing was measured.

    If `brief`, the latter only for a run without scores, whose other tables show no measure.
    """
    return with_numbers(_tables_of_measures(results, brief))


def _tables_of_measures(results: Results, brief: bool) -> Iterator[Table]:
    """Yield what `tables_of_measures` does, with tables in which nothing was measured."""
    if results.comparison is not None:
        yield comparison_table(results.comparison, len(results.items))
        yield from compared_tables(results.comparison, results.measures, brief)
    if results.duel is not None:
        yield from tables_of_duel(results.duel, brief=brief)
    if brief and results.overall.micro.scored:
        return
    for name in results.measures:
        groups = _groups_table(results, name)
        if groups.rows:
            yield groups


def _groups_table(results: Results, name: str) -> Table:
    """Return a row for each group of a measure, with the mean over pairs below `overall` where
    categories are uneven; of the score, only rows that the table of scores lacks.
    """
    measured = results.measures[name]
    groups = {OVERALL: measured.rows[OVERALL]}
    if measured.is_uneven:
        groups[MICRO] = measured.micro
    groups |= measured.rows
    if name == SCORE:
        groups = {group: row for group, row in groups.items() if _is_of_tags(group)}
    return Table(
        f"measure {label(name, measured)}",
        GROUP_HEADER,
        [_group_row(group, row, measured.decimals) for group, row in groups.items()],
        [],
        is_detail=True,
        urgency=[urgency(row.mean, measured.lower_is_better) for row in groups.values()],
    )


def _is_of_tags(group: str) -> bool:
    """Tell whether a group is that of a tag or a difficulty."""
    return "=" in group


def _group_row(group: str, row: Summary, decimals: int) -> tuple[str, ...]:
    """Return the cells of a group in the columns of `GROUP_HEADER`."""
    return (
        shorten(group, LONGEST_NAME),
        str(row.n),
        str(row.scored),
        number(row.mean, decimals),
        interval(row.ci95, digits=decimals),
        number(row.std, decimals),
        number(row.median, decimals),
        number(row.min, decimals),
        number(row.max, decimals),
        number(row.mde, decimals),
    )


def label(name: str, measure: Measure) -> str:
    """Name a measure with its scale, and its direction if lower is better."""
    direction = ", lower is better" if measure.lower_is_better else ""
    return f"{shorten(name, LONGEST_NAME)} ({measure.range}{direction})"


def compared_tables(
    comparison: Comparison, measures: Mapping[str, Measure], brief: bool
) -> Iterator[Table]:
    """Yield a table of the measures beside the score against a baseline, and unless `brief` one for
    the groups of each.
    """
    rows = []
    for name, groups in comparison.measures.items():
        if name != SCORE and OVERALL in groups:
            measure = measures[name]
            rows.append(_compared_row(label(name, measure), groups[OVERALL], measure.decimals))
    if rows:
        title = f"measures against baseline {comparison.name}, all pairs"
        yield Table(title, ("measure", "n") + COMPARED_HEADER, rows, [])
    if brief:
        return
    for name in comparison.measures:
        groups_table = _compared_groups(comparison, name, measures[name])
        if groups_table.rows:
            yield groups_table


def _compared_groups(comparison: Comparison, name: str, measure: Measure) -> Table:
    """Return a row for each group but `overall` of a measure against the baseline; of the score,
    only rows that the table of the comparison lacks.
    """
    rows = []
    urgencies = []
    for group, row in comparison.measures[name].items():
        if group == OVERALL or (name == SCORE and not _is_of_tags(group)):
            continue
        rows.append(_compared_row(shorten(group, LONGEST_NAME), row, measure.decimals))
        urgencies.append(urgency(row.difference, measure.lower_is_better))
    return Table(
        f"{label(name, measure)} against baseline {comparison.name}",
        ("group", "n") + COMPARED_HEADER,
        rows,
        [],
        is_detail=True,
        urgency=urgencies,
    )


def _compared_row(name: str, row: ComparisonRow, decimals: int) -> tuple[str, ...]:
    """Return the cells of a measure or group: its name, `n`, and those of `COMPARED_HEADER`."""
    return (
        name,
        str(row.n),
        number(row.before, decimals),
        number(row.now, decimals),
        signed(row.difference, decimals),
        interval(row.ci95, signs=True, digits=decimals),
        p_value(row.p),
        p_value(row.p_rise),
        row.finding,
        number(row.mde, decimals),
    )
