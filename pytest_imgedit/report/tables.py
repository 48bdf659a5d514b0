"""Tables beside that of the scores: the comparison with a baseline, controls, and the judge's
noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_imgedit.core.results import Comparison, Controls, Noise, Results
from pytest_imgedit.core.sanitize import counted, interval, number, signed

COMPARISON_HEADER = (
    "category",
    "n",
    "before",
    "now",
    "diff",
    "95% CI",
    "p of drop",
    "finding",
    "MDE",
)
#: How notes begin that are for reports and `-v`: what statistics mean, and what the outcome says
#: too.
DETAILS = ("p-values: ", "collapsed: ")
CONTROLS_HEADER = ("control", "n", "errors", "pending", "mean", "95% CI", "AUC", "judge")
NOISE_HEADER = ("judged again", "n", "errors", "pending", "changed", "SD", "shift")
_TOLD = {"PASS": "told apart", "INVALID": "not told apart", "INCONCLUSIVE": "not shown"}


class Table(NamedTuple):
    """A table of texts, with lines that follow it."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str]


def further_tables(results: Results) -> list[Table]:
    """The tables that a run has beside its scores."""
    tables = []
    if results.comparison is not None:
        tables.append(comparison_table(results.comparison, len(results.items)))
    if results.controls is not None:
        tables.append(controls_table(results.controls))
    if results.noise is not None:
        tables.append(noise_table(results.noise))
    return [table for table in tables if table.rows]


def comparison_table(comparison: Comparison, pairs: int) -> Table:
    """One row a category and `overall` against the baseline, of a run with so many pairs."""
    rows = [
        (
            field,
            str(row.n),
            number(row.before),
            number(row.now),
            signed(row.difference),
            interval(row.ci95, signs=True),
            _p_value(row.p),
            f"rose, p {_p_value(row.p_rise)}" if row.finding == "rose" else row.finding,
            number(row.mde),
        )
        for field, row in sorted(comparison.rows.items(), key=lambda row: row[0] == "overall")
    ]
    commit = f", commit {comparison.commit.sha[:10]}" if comparison.commit else ""
    part = "" if comparison.size == pairs else f" ({pairs} of its {comparison.size} pairs)"
    baseline = f"{comparison.name}: editor {comparison.editor}, run {comparison.run}{commit}{part}"
    return Table(
        f"against baseline {baseline}", COMPARISON_HEADER, rows, _comparison_notes(comparison)
    )


def _comparison_notes(comparison: Comparison) -> list[str]:
    """Say what the p-values are, and which pairs fell and rose most."""
    notes = ["p-values: one-sided, Holm-corrected; intervals: two-sided, uncorrected"]
    alike = sum(pair.alike for pair in comparison.pairs.values())
    notes.append(f"edits of {alike} of {counted(len(comparison.pairs), 'pair')} look as they did")
    if comparison.environment:
        notes.append(f"computed in other environments: {'; '.join(comparison.environment)}")
    if comparison.collapsed:
        notes.append(f"collapsed: {_first(comparison.collapsed)}")
    for verb, moved in (("fell", comparison.fell), ("rose", comparison.rose)):
        if moved:
            pairs = (f"{pair.id} {pair.before:.2f} → {pair.now:.2f}" for pair in moved)
            notes.append(f"{verb} most: {', '.join(pairs)}")
    return notes


def _first(names: Sequence[str], most: int = 5) -> str:
    """List the first names, and count the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def controls_table(controls: Controls) -> Table:
    """One row a control, best first."""
    rows = [
        (
            row.control,
            str(row.n),
            str(row.errors),
            str(row.pending),
            number(row.mean),
            interval(row.ci95),
            "–" if row.auc is None else f"{row.auc:.2f} ({interval(row.auc_ci95)})",
            "not all asked" if row.pending else _TOLD.get(row.state or "", "–"),
        )
        for row in controls.rows
    ]
    return Table(
        f"controls: the judge on edits of known quality, {controls.pairs} pairs",
        CONTROLS_HEADER,
        rows,
        [],
    )


def noise_table(noise: Noise) -> Table:
    """One row a repeat of the judging."""
    rows = [
        (
            row.perturbation,
            str(row.n),
            str(row.errors),
            str(row.pending),
            str(row.changed),
            number(row.sd),
            signed(row.shift),
        )
        for row in noise.rows
    ]
    floor = "the noise floor is that of all rows but order, in which no two runs differ"
    return Table("judge's noise: the same edits judged again", NOISE_HEADER, rows, [floor])


def _p_value(p: float | None) -> str:
    if p is None:
        return "–"
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}"
