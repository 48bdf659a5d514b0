"""The Markdown report: the same tables, for pull requests and CI summaries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_imgedit.report import model, tables
from pytest_imgedit.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Where GitHub would make a link of a bare address: the slash after a scheme's colon, and the dot after `www`.
_LINK = re.compile(r"(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@])")


def escape(text: str) -> str:
    """Escape a text from data or a judge so that it stays plain text in Markdown, in a table too."""
    return _LINK.sub(r"\\\g<0>", _SPECIAL.sub(r"\\\1", printable(text)))


def render(document: model.Document) -> str:
    """Render a results document as Markdown."""
    run = document["run"]
    failing = [gate for gate in document["gates"] if gate["state"] not in ("PASS", model.NOT_SELECTED)]
    lines = [
        f"# Image editing run {escape(run['id'])}",
        "",
        f"**{escape(model.verdict(document).line)}**",
        "",
        f"- suite: {escape(document['suite']['name'])} ({document['suite']['pairs']} pairs)",
        f"- started {escape(run['started'])}, finished {escape(run['finished'])}",
        *(f"- {escape(line)}" for line in model.provenance_lines(document)),
        "",
        *_table(model.CATEGORY_HEADER, [*model.category_rows(document), *model.overall_rows(document)]),
        "",
    ]
    for line in model.remarks(document):
        lines += [escape(line), ""]
    for title, header, rows, notes in tables.further_tables(document):
        lines += [f"## {escape(title)}", "", *_table(header, rows), ""]
        for line in notes:
            lines += [escape(line), ""]
    lines += [escape(model.timing_line(document)), ""]
    if document["workers"]:
        lines += [*_table(model.WORKER_HEADER, model.worker_rows(document)), ""]
    if failing:
        lines += [
            "## Gates that did not pass",
            "",
            *(f"- {escape(gate['state'])}: {escape(gate['why'])}" for gate in failing),
            "",
        ]
    if errors := model.error_lines(document, most=50):
        lines += ["## Pairs without a score", "", *(f"- {escape(line)}" for line in errors), ""]
    for title, body in ((section["title"], section["body"]) for section in document["sections"]):
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
        lines += [f"## {escape(title)}", "", fence, *map(printable, body.strip().splitlines()), fence, ""]
    return "\n".join(lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---" if name in model.WORDS else "---:" for name in header]
    return [f"| {' | '.join(row)} |" for row in (header, marks, *([escape(cell) for cell in row] for row in rows))]
