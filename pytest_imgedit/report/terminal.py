"""The summary that a run prints at its end."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_imgedit.report import model, tables
from pytest_imgedit.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    console.print(_table(model.CATEGORY_HEADER, rows, model.overall_rows(document)))
    for line in model.remarks(document):
        console.print(Text(line))
    _print_further(console, document)
    console.print(Text(model.timing_line(document)))
    if document["workers"]:
        console.print(_table(model.WORKER_HEADER, model.worker_rows(document), []))
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
    Console(file=buffer, width=width, highlight=False).print(_table(header, rows, []))
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _print_further(console: Console, document: model.Document) -> None:
    for title, header, rows, notes in tables.further_tables(document):
        console.print(Text(f"\n{printable(title)}", style="bold"))
        console.print(_table(header, rows, []))
        for line in notes:
            console.print(Text(printable(line)))


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
