"""The summary that a run prints at its end."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

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
    *("std", "median", "busy s", "load s", "min", "max", "device", "p of drop", "before", "MDE", "pending"),
    *("errors", "95% CI", "scored", "finding"),
)


def render(results: Results, reports: Mapping[str, str], width: int, color: bool) -> str:
    """Render the tables and lines of results as text for a terminal."""
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, force_terminal=color, color_system="standard" if color else None, highlight=False
    )
    editor, judge = results.editor.spec, rows.judge_name(results)
    console.print(Text(printable(f"suite {results.suite.name} · editor {editor} · judge {judge}")))
    _print_table(console, rows.CATEGORY_HEADER, rows.category_rows(results), rows.overall_rows(results))
    for line in rows.remarks(results):
        console.print(Text(line))
    _print_further(console, tables.further_tables(results))
    console.print(Text(rows.timing_line(results)))
    if results.workers:
        _print_table(console, rows.WORKER_HEADER, rows.worker_rows(results))
    for line in rows.error_lines(results):
        console.print(Text(printable(line), style="yellow"))
    for section in results.sections:
        console.print(Text(f"\n{printable(section.title)}", style="bold"))
        console.print(Text("\n".join(printable(line) for line in section.body.splitlines())))
    for name, path in reports.items():
        console.print(Text(f"{name}: {path}", overflow="fold", no_wrap=True), soft_wrap=True)
    return buffer.getvalue()


def render_tables(further: Sequence[tables.Table], width: int = 120) -> str:
    """Render tables with their titles and notes as text."""
    buffer = io.StringIO()
    _print_further(Console(file=buffer, width=width, highlight=False), further)
    return buffer.getvalue()


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 160) -> str:
    """Render one table as text."""
    buffer = io.StringIO()
    _print_table(Console(file=buffer, width=width, highlight=False), header, rows)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _print_further(console: Console, further: Sequence[tables.Table]) -> None:
    for table in further:
        console.print(Text(f"\n{printable(table.title)}", style="bold"))
        _print_table(console, table.header, table.rows)
        for line in table.notes:
            console.print(Text(printable(line)))


def _print_table(
    console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], totals: Sequence[Sequence[str]] = ()
) -> None:
    """Print a table that fits: where it would not, whole columns are left out and named below."""
    kept, dropped = _fitting(header, [*rows, *totals], console.width)

    def cut(lines: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[line[place] for place in kept] for line in lines]

    console.print(_table([header[place] for place in kept], cut(rows), cut(totals)))
    if dropped:
        console.print(Text(f"too narrow for: {', '.join(dropped)}"))


def _fitting(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[str]]:
    """Return the places of the columns that fit beside each other, and the names of those that do not."""
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    kept, dropped = list(range(len(header))), []
    for name in (name for name in DROPPED_FIRST if name in header):
        if sum(widths[place] + 1 for place in kept) - 1 <= width:
            break
        kept.remove(header.index(name))
        dropped.append(name)
    return kept, dropped


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], totals: Sequence[Sequence[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, justify="left" if name in WORDS else "right", no_wrap=name not in WORDS, overflow="fold")
    for index, row in enumerate(rows):
        table.add_row(*map(printable, row), end_section=bool(totals) and index == len(rows) - 1)
    for row in totals:
        table.add_row(*row, style="bold")
    return table
