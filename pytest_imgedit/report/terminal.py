"""The summary that a run prints at its end."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_imgedit.report import model, tables
from pytest_imgedit.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: Columns that a narrow terminal goes without, the first one first.
DROPPED_FIRST = (
    *("std", "median", "busy s", "load s", "min", "max", "device", "p of drop", "before", "MDE", "pending"),
    *("errors", "95% CI", "scored", "verdict"),
)


def render(
    document: model.Document,
    reports: Mapping[str, str],
    width: int,
    color: bool,
) -> str:
    """Render the tables and lines of a results document as text for a terminal."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    editor, judge = document["editor"]["spec"], model.judge_name(document)
    console.print(Text(printable(f"suite {document['suite']['name']} · editor {editor} · judge {judge}")))
    rows = model.category_rows(document)
    _print_table(console, model.CATEGORY_HEADER, rows, model.overall_rows(document))
    for line in model.remarks(document):
        console.print(Text(line))
    _print_further(console, document)
    console.print(Text(model.timing_line(document)))
    if document["workers"]:
        _print_table(console, model.WORKER_HEADER, model.worker_rows(document))
    for line in model.error_lines(document):
        console.print(Text(printable(line), style="yellow"))
    for section in document["sections"]:
        console.print(Text(f"\n{printable(section['title'])}", style="bold"))
        console.print(Text("\n".join(printable(line) for line in section["body"].splitlines())))
    for name, path in reports.items():
        console.print(Text(f"{name}: {path}", overflow="fold", no_wrap=True), soft_wrap=True)
    return buffer.getvalue()


def render_further(document: model.Document, width: int = 120) -> str:
    """Render the tables that a document may have beside its scores: comparison, controls, the judge's noise."""
    buffer = io.StringIO()
    _print_further(Console(file=buffer, width=width, highlight=False), document)
    return buffer.getvalue()


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 160) -> str:
    """Render one table as text."""
    buffer = io.StringIO()
    _print_table(Console(file=buffer, width=width, highlight=False), header, rows)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _print_further(console: Console, document: model.Document) -> None:
    for title, header, rows, notes in tables.further_tables(document):
        console.print(Text(f"\n{printable(title)}", style="bold"))
        _print_table(console, header, rows)
        for line in notes:
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
        table.add_column(
            name,
            justify="left" if name in model.WORDS else "right",
            no_wrap=name not in model.WORDS,
            overflow="fold",
        )
    for index, row in enumerate(rows):
        table.add_row(*map(printable, row), end_section=bool(totals) and index == len(rows) - 1)
    for row in totals:
        table.add_row(*row, style="bold")
    return table
