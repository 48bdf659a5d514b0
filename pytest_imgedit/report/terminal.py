"""The summary that a run prints at its end."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import printable
from pytest_imgedit.report import rows, tables
from pytest_imgedit.report.rows import WORDS

#: Columns that a narrow terminal goes without, the first one first.
DROPPED_FIRST = (
    *(
        "std",
        "median",
        "busy s",
        "load s",
        "min",
        "max",
        "device",
        "before",
        "pending",
        "errors",
        "scored",
        "finding",
    ),
    *("MDE", "p of drop", "95% CI"),
)
#: Columns that only `-v` and the reports show.
ONLY_VERBOSE = ("scored", "std", "median", "AUC")
#: Columns that are left out where every row has a zero.
ONLY_COUNTS = ("errors", "pending")
#: Pairs of a category from which on its interval is shown without `-v`.
ENOUGH_FOR_AN_INTERVAL = 20


def render(results: Results, width: int, color: bool, verbose: bool = False) -> str:
    """Render the tables and lines of results as text for a terminal; `verbose` adds statistics and
    workers.
    """
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    editor, judge = results.editor.spec, rows.judge_name(results)
    console.print(Text(printable(f"suite {results.suite.name} · editor {editor} · judge {judge}")))
    has_scores = bool(results.overall.micro.scored)
    if has_scores and verbose:
        _print_table(
            console, rows.CATEGORY_HEADER, rows.category_rows(results), rows.overall_rows(results)
        )
    elif has_scores:
        _print_scores(console, results)
    for line in rows.remarks(results, verbose):
        console.print(Text(line))
    _print_further(console, tables.further_tables(results), verbose)
    console.print(Text(rows.timing_line(results)))
    if verbose and results.workers:
        _print_table(console, rows.WORKER_HEADER, rows.worker_rows(results))
    for line in rows.error_lines(results):
        console.print(Text(printable(line), style="yellow"))
    for section in results.sections:
        console.print(Text(f"\n{printable(section.title)}", style="bold"))
        console.print(Text("\n".join(printable(line) for line in section.body.splitlines())))
    return buffer.getvalue()


def _print_scores(console: Console, results: Results) -> None:
    """Print the scores of categories and of the whole: intervals only where there are pairs
    enough.
    """
    place = rows.CATEGORY_HEADER.index("95% CI")
    categories, has_few = [], False
    for row, summary in zip(rows.category_rows(results), results.categories.values(), strict=True):
        is_few = summary.n < ENOUGH_FOR_AN_INTERVAL
        has_few |= is_few
        categories.append((*row[:place], "", *row[place + 1 :]) if is_few else row)
    macro, micro = rows.overall_rows(results)
    extremes = rows.CATEGORY_HEADER.index("min")  # of pairs, not of means of categories
    overall = ("overall", *macro[1:extremes], *micro[extremes:])
    _print_table(console, *_brief(rows.CATEGORY_HEADER, categories, [overall]))
    if has_few:
        console.print(
            Text(f"no interval for fewer than {ENOUGH_FOR_AN_INTERVAL} pairs (-v shows it)")
        )


Rows = Sequence[Sequence[str]]


def _brief(
    header: Sequence[str], rows: Rows, totals: Rows = ()
) -> tuple[Sequence[str], Rows, Rows]:
    """Leave out columns of statistics, and those that hold nothing."""
    shown = []
    for place, name in enumerate(header):
        cells = {row[place] for row in (*rows, *totals)}
        is_empty = cells == {"–"} or (name in ONLY_COUNTS and cells == {"0"})
        if name not in ONLY_VERBOSE and not is_empty:
            shown.append(place)
    return _columns([header], shown)[0], _columns(rows, shown), _columns(totals, shown)


def _columns(rows: Rows, places: Sequence[int]) -> Rows:
    return [[row[place] for place in places] for row in rows]


def render_tables(further: Sequence[tables.Table], width: int = 120) -> str:
    """Render tables with their titles and notes as text."""
    buffer = io.StringIO()
    _print_further(Console(file=buffer, width=width, highlight=False), further, verbose=True)
    return buffer.getvalue()


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 160) -> str:
    """Render one table as text."""
    buffer = io.StringIO()
    _print_table(Console(file=buffer, width=width, highlight=False), header, rows)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _print_further(console: Console, further: Sequence[tables.Table], verbose: bool) -> None:
    for table in further:
        console.print(Text(f"\n{printable(table.title)}", style="bold"))
        header, lines = table.header, table.rows
        _print_table(console, *((header, lines) if verbose else _brief(header, lines)))
        for note in table.notes:
            if verbose or not note.startswith(tables.DETAILS):
                console.print(Text(printable(note)))


def _print_table(
    console: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    totals: Sequence[Sequence[str]] = (),
) -> None:
    """Print a table that fits: where it would not, whole columns are left out and named below."""
    kept, dropped = _fitting(header, [*rows, *totals], console.width)
    console.print(_table(_columns([header], kept)[0], _columns(rows, kept), _columns(totals, kept)))
    if dropped:
        console.print(Text(f"too narrow for: {', '.join(dropped)}"))


def _fitting(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[str]]:
    """Return the places of the columns that fit beside each other, and the names of those that do
    not.
    """
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    kept, dropped = list(range(len(header))), []
    for name in (name for name in DROPPED_FIRST if name in header):
        if sum(widths[place] + 1 for place in kept) - 1 <= width:
            break
        kept.remove(header.index(name))
        dropped.append(name)
    return kept, dropped


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], totals: Sequence[Sequence[str]]
) -> Table:
    table = Table(
        box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    for name in header:
        table.add_column(
            name,
            justify="left" if name in WORDS else "right",
            no_wrap=name not in WORDS,
            overflow="fold",
        )
    for index, row in enumerate(rows):
        table.add_row(*map(printable, row), end_section=bool(totals) and index == len(rows) - 1)
    for row in totals:
        table.add_row(*row, style="bold")
    return table
