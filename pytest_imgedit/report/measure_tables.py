"""Tables of the measures of a run: each by group, and against a baseline."""

from collections.abc import Iterator, Mapping

from pytest_imgedit.core.measures import OVERALL, SCORE
from pytest_imgedit.core.results import Comparison, ComparisonRow, Measure, Results
from pytest_imgedit.core.sanitize import interval, number, shorten, signed
from pytest_imgedit.report.tables import (
    MICRO,
    Table,
    comparison_table,
    p_value,
    urgency,
    with_numbers,
)

GROUP_HEADER = (*("group", "n", "scored", "mean", "95% CI", "std", "median", "min", "max", "MDE"),)
COMPARED_HEADER = (
    *("before", "now", "diff", "95% CI", "p of drop", "p of rise", "finding", "MDE"),
)


def tables_of_measures(results: Results, brief: bool) -> Iterator[Table]:
    """Yield the tables of a run against its baseline, and one for each measure by group; if
    `brief`, these only for a run without scores, whose other tables show no measure.
    """
    return with_numbers(_tables_of_measures(results, brief))


def _tables_of_measures(results: Results, brief: bool) -> Iterator[Table]:
    if results.comparison is not None:
        yield comparison_table(results.comparison, len(results.items))
        yield from compared_tables(results.comparison, results.measures, brief)
    if brief and results.overall.micro.scored:
        return
    for name in results.measures:
        groups = _groups_table(results, name)
        if groups.rows:
            yield groups


def _groups_table(results: Results, name: str) -> Table:
    """One row a group of a measure, with the mean over pairs below `overall` where categories are
    uneven; the score's rows are those that the table of scores lacks.
    """
    measured = results.measures[name]
    groups = {OVERALL: measured.rows[OVERALL]}
    if measured.is_uneven:
        groups[MICRO] = measured.micro
    groups |= measured.rows
    groups = {group: row for group, row in groups.items() if name != SCORE or "=" in group}
    rows = [
        (
            shorten(group, 60),
            str(row.n),
            str(row.scored),
            number(row.mean, measured.decimals),
            interval(row.ci95, digits=measured.decimals),
            *(
                number(value, measured.decimals)
                for value in (row.std, row.median, row.min, row.max, row.mde)
            ),
        )
        for group, row in groups.items()
    ]
    return Table(
        f"measure {label(name, measured)}",
        GROUP_HEADER,
        rows,
        [],
        is_detail=True,
        urgency=[urgency(row.mean, measured.lower_is_better) for row in groups.values()],
    )


def label(name: str, measure: Measure) -> str:
    """Name a measure with its scale, and its direction if lower is better."""
    direction = ", lower is better" if measure.lower_is_better else ""
    return f"{shorten(name, 60)} ({measure.range}{direction})"


def compared_tables(
    comparison: Comparison, measures: Mapping[str, Measure], brief: bool
) -> Iterator[Table]:
    """Yield a table of the measures beside the score against a baseline, and unless `brief` one for
    the groups of each.
    """
    others = {
        name: (measures[name], rows)
        for name, rows in comparison.measures.items()
        if name != SCORE and OVERALL in rows
    }
    if others:
        yield Table(
            f"measures against baseline {comparison.name}, all pairs",
            ("measure", "n", *COMPARED_HEADER),
            [
                (label(name, measure), str(rows[OVERALL].n), *_compared(rows[OVERALL], measure))
                for name, (measure, rows) in others.items()
            ],
            [],
        )
    if brief:
        return
    for name, rows in comparison.measures.items():
        groups = {
            group: row
            for group, row in rows.items()
            if group != OVERALL and (name != SCORE or "=" in group)
        }
        if groups:
            yield Table(
                f"{label(name, measures[name])} against baseline {comparison.name}",
                ("group", "n", *COMPARED_HEADER),
                [
                    (
                        shorten(group, 60),
                        str(row.n),
                        *_compared(row, measures[name]),
                    )
                    for group, row in groups.items()
                ],
                [],
                is_detail=True,
                urgency=[
                    urgency(row.difference, measures[name].lower_is_better)
                    for row in groups.values()
                ],
            )


def _compared(row: ComparisonRow, measure: Measure) -> tuple[str, ...]:
    decimals = measure.decimals
    return (
        number(row.before, decimals),
        number(row.now, decimals),
        signed(row.difference, decimals),
        interval(row.ci95, signs=True, digits=decimals),
        p_value(row.p),
        p_value(row.p_rise),
        row.finding,
        number(row.mde, decimals),
    )
