"""The Markdown report: the same tables, for pull requests and CI summaries."""

import re
from collections.abc import Sequence

from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import printable
from pytest_imgedit.report import measure_tables, tables
from pytest_imgedit.stats.outcome import outcome

#: Where GitHub would make a link of a bare address: the slash after a scheme's colon, and the dot
#: after `www`.
_LINK = re.compile(r"(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@])")


def escape(text: str) -> str:
    """Escape a text from data or a judge, so that Markdown shows it as plain text."""
    return _LINK.sub(r"\\\g<0>", _SPECIAL.sub(r"\\\1", printable(text)))


def render(results: Results) -> str:
    """Render results as Markdown."""
    run = results.run
    lines = [
        f"# Image editing run {escape(run.id)}",
        "",
        f"**{escape(outcome(results).line)}**",
        "",
        f"- suite: {escape(results.suite.name)} ({results.suite.pairs} pairs)",
        f"- started {escape(run.started)}, finished {escape(run.finished)}",
        *(f"- {escape(line)}" for line in tables.provenance_lines(results)),
        "",
        *table_lines(
            tables.category_header(results),
            [*tables.category_rows(results), *tables.overall_rows(results)],
        ),
        "",
    ]
    for line in tables.remarks(results):
        lines += [escape(line), ""]
    measures = measure_tables.tables_of_measures(results, brief=False)
    for table in (*measures, *tables.further_tables(results)):
        lines += [f"## {escape(table.title)}", "", *table_lines(table.header, table.rows), ""]
        for line in table.notes:
            lines += [escape(line), ""]
    lines += [escape(tables.timing_line(results)), ""]
    if results.workers:
        lines += [*table_lines(tables.WORKER_HEADER, tables.worker_rows(results)), ""]
    if failing := [gate for gate in results.gates if gate.state not in ("PASS", "NOT SELECTED")]:
        whys = (f"- {escape(gate.state)}: {escape(gate.why)}" for gate in failing)
        lines += ["## Gates that did not pass", "", *whys, ""]
    if errors := tables.error_lines(results, most=50):
        lines += ["## Pairs without a score", "", *(f"- {escape(line)}" for line in errors), ""]
    for section in results.sections:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", section.body)), default=0))
        body = map(printable, section.body.strip().splitlines())
        lines += [f"## {escape(section.title)}", "", fence, *body, fence, ""]
    return "\n".join(lines)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with its texts escaped."""
    marks = ["---" if name in tables.WORDS else "---:" for name in header]
    return [
        f"| {' | '.join(row)} |"
        for row in (map(escape, header), marks, *(map(escape, row) for row in rows))
    ]
