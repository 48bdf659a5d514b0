"""The summary that a run prints at its end."""

import io
from collections.abc import Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_imgedit.core.results import GateResult, Results
from pytest_imgedit.core.text import printable
from pytest_imgedit.report import measure_tables, tables
from pytest_imgedit.report.parameters import set_parameters
from pytest_imgedit.stats.gate_limits import KINDS
from pytest_imgedit.stats.outcome import WORST_FIRST, Outcome, cut, outcome

Rows = Sequence[Sequence[str]]
#: Columns that a narrow terminal omits, the first one first; then columns of measures, the last one
#: first; then those that it omits last.
DROPPED_FIRST = (
    "MDE",
    "p of rise",
    "p of drop",
    "p of win",
    "p of loss",
    "95% CI",
    "std",
    "median",
    "busy s",
    "load s",
    "min",
    "max",
    "device",
    "AUC",
    "pending",
    "first wins",
    "rewriting",
    "sampling",
    "order",
    "provider",
    "source",
)
DROPPED_LAST = ("errors", "refused", "scored", "before")
#: Columns that only `-v` and the reports show.
ONLY_VERBOSE = (
    "scored",
    "std",
    "median",
    "AUC",
    "provider",
    "order",
    "sampling",
    "rewriting",
)
#: Columns that are omitted if every row has a zero.
ONLY_COUNTS = ("errors", "refused", "pending")
#: Smallest number of pairs of a category whose interval is shown without `-v`.
ENOUGH_FOR_AN_INTERVAL = 20
#: Gates whose lines are whole where they pass too: they name pairs, or what the judge was shown.
WHOLE = ("max_collapsed", "duel_controls")


def render(
    results: Results,
    width: int,
    color: bool,
    verbose: bool = False,
    *,
    verdict: Outcome | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """Render the verdict of results, their gates, remarks, warnings and tables as text for a
    terminal of `width` columns; `verbose` adds statistics and workers.

    The verdict is that of the gates, unless another one is given. `warnings` are shown with those
    of the results.
    """
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    remarks = list(tables.remarks(results, verbose))
    verdict = verdict or outcome(results)
    _print_verdict(console, verdict)
    _print_gates(console, results.gates, verbose)
    for note in verdict.notes:
        _print_line(console, note)
    urgent = _urgent_lines(results, remarks, warnings)
    for line in urgent:
        _print_line(console, line, style="yellow")
    console.print()
    judge = tables.judge_name(results)
    editor = results.editor.spec
    if what_is_set := set_parameters(results.editor):
        editor += f" ({what_is_set})"
    _print_line(console, f"suite {results.suite.name} · editor {editor} · judge {judge}")
    if results.overall.micro.scored:
        _print_scores(console, results, verbose)
    for line in remarks:
        if line not in urgent:
            _print_line(console, line)
    further = list(measure_tables.tables_of_measures(results, brief=not verbose))
    further += tables.further_tables(results, brief=not verbose)
    _print_further(console, further, verbose)
    _print_line(console, tables.timing_line(results))
    if verbose and results.workers:
        _print_table(console, tables.WORKER_HEADER, tables.worker_rows(results))
    for section in results.sections:
        _print_title(console, section.title)
        for line in section.body.splitlines() or [""]:
            _print_line(console, line)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _urgent_lines(results: Results, remarks: Sequence[str], warnings: Sequence[str]) -> list[str]:
    """Return what is shown above the scores: all warnings, and why pairs have no score."""
    urgent = [line for line in remarks if line.startswith("warning: ")]
    urgent += [f"warning: {line}" for line in warnings]
    urgent += tables.error_lines(results)
    return urgent


def _print_verdict(console: Console, verdict: Outcome) -> None:
    _print_line(console, f"imgedit: {verdict.line}", style=f"bold {color_of(verdict)}")


def color_of(verdict: Outcome) -> str:
    """Return the color of a verdict: red if it fails, green if it passes, else yellow."""
    if verdict.fails:
        return "red"
    return "green" if verdict.state == "PASS" else "yellow"


def _print_gates(console: Console, gates: Sequence[GateResult], verbose: bool) -> None:
    """Print a line a gate, the worst first, with further lines where it is too long; unless
    `verbose`, a gate that passed has no more than one, but for those of `WHOLE`.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    states = WORST_FIRST + ("NOT SELECTED",)
    widest = max((cell_len(f"  {gate.state}  ") for gate in gates), default=0)
    room = console.width - widest
    for gate in sorted(gates, key=lambda gate: states.index(gate.state)):
        line = printable(gate_line(gate))
        if gate.state == "PASS" and not verbose and gate.kind not in WHOLE:
            line = cut(line, room)
        table.add_row(f"  {gate.state}", Text(line))
    console.print(table)


def gate_line(gate: GateResult) -> str:
    """Return the name of a gate and why it is in its state: `fail_under physics:9: 8.12 < 9 (p
    0.01)`. The field with which the reason begins is in the name already.
    """
    if gate.kind not in KINDS:
        return f"{gate.kind}: {gate.why}"
    return f"{gate.kind} {gate.field}:{gate.limit:g}: {gate.why.removeprefix(f'{gate.field} ')}"


def _print_line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style=style))


def _print_title(console: Console, title: str) -> None:
    console.print()
    _print_line(console, title, style="bold")


def _print_scores(console: Console, results: Results, verbose: bool) -> None:
    """Print the scores of categories and of the whole; unless `verbose`, without the intervals of
    categories of fewer than `ENOUGH_FOR_AN_INTERVAL` pairs, which a line below says.
    """
    header = tables.category_header(results)
    measures = header[len(tables.CATEGORY_HEADER) :]
    categories = [list(row) for row in tables.category_rows(results)]
    totals = tables.overall_rows(results)
    if verbose:
        _print_table(console, header, categories, totals, measures=measures)
        return
    few = [
        row
        for row, summary in zip(categories, results.categories.values(), strict=True)
        if summary.n < ENOUGH_FOR_AN_INTERVAL
    ]
    for row in few:
        row[header.index("95% CI")] = ""
    _print_table(console, header, categories, totals, brief=True, measures=measures)
    if few:
        _print_line(
            console, f"no interval for fewer than {ENOUGH_FOR_AN_INTERVAL} pairs (-v shows it)"
        )


def render_tables(further: Sequence[tables.Table]) -> str:
    """Render tables with their titles and notes as text."""
    buffer = io.StringIO()
    _print_further(Console(file=buffer, width=120, highlight=False), further, verbose=True)
    return buffer.getvalue()


def render_table(
    header: Sequence[str], rows: Rows, width: int = 160, further: Sequence[str] = ()
) -> str:
    """Render one table as text; if it is too wide, `further` columns are omitted, last first."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, highlight=False)
    _print_table(console, header, rows, measures=further)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _print_further(console: Console, further: Sequence[tables.Table], verbose: bool) -> None:
    """Print tables with their titles and notes; unless `verbose`, without notes of details."""
    for table in further:
        _print_title(console, table.title)
        if table.rows:
            _print_table(console, table.header, table.rows, brief=not verbose)
        for note in table.notes:
            if verbose or not note.startswith(tables.DETAILS):
                _print_line(console, note)


def _print_table(
    console: Console,
    header: Sequence[str],
    rows: Rows,
    totals: Rows = (),
    *,
    brief: bool = False,
    measures: Sequence[str] = (),
) -> None:
    """Print a table without the columns that do not fit, which are named below it. `measures` are
    the columns of measures.

    If `brief`, columns of statistics and those that hold nothing are omitted too.
    """
    columns = _columns(header, rows, totals)
    if brief:
        columns = [column for column in columns if _is_brief(column)]
    hidden = _hide_columns(columns, console.width, measures)
    table = Table(
        box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    for column in columns:
        is_text = column.name in tables.WORDS
        table.add_column(
            column.name,
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
        )
    for position in range(len(rows)):
        table.add_row(*[column.cells[position] for column in columns])
    if totals:
        table.add_section()
    for position in range(len(rows), len(rows) + len(totals)):
        table.add_row(*[column.cells[position] for column in columns], style="bold")
    console.print(table)
    if hidden:
        _print_line(console, f"hidden at this width: {', '.join(hidden)}")


class _Column(NamedTuple):
    """A column of a table: the cells of its rows and totals, and the width of the widest."""

    name: str
    cells: Sequence[str]
    width: int


def _columns(header: Sequence[str], rows: Rows, totals: Rows) -> list[_Column]:
    """Return the columns of a table, in which no text steers the terminal."""
    columns = []
    for position, name in enumerate(map(printable, header)):
        cells = [printable(row[position]) for row in rows]
        cells += [printable(row[position]) for row in totals]
        width = max(map(cell_len, [name] + cells))
        columns.append(_Column(name, cells, width))
    return columns


def _is_brief(column: _Column) -> bool:
    """Tell whether a brief table keeps a column: not one of statistics, nor one without values."""
    cells = set(column.cells)
    if column.name in ONLY_VERBOSE or cells == {"–"}:
        return False
    return column.name not in ONLY_COUNTS or cells != {"0"}


def _hide_columns(columns: list[_Column], width: int, measures: Sequence[str]) -> list[str]:
    """Remove columns until the others fit into the width; return the names of those removed."""
    order = list(DROPPED_FIRST)
    order += [printable(name) for name in reversed(measures)]
    order += DROPPED_LAST
    hidden: list[str] = []
    for name in order:
        separators = len(columns) - 1
        if sum(column.width for column in columns) + separators <= width:
            break
        for column in columns:
            if column.name == name:
                columns.remove(column)
                hidden.append(name)
                break
    return hidden
