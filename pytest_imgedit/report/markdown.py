"""The Markdown report: the same tables, for pull requests and CI summaries."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import counted, printable, shorten
from pytest_imgedit.report import measure_tables, tables
from pytest_imgedit.stats.outcome import outcome

#: Where GitHub would make a link of a bare address: the slash after a scheme's colon, and the dot
#: after `www`.
_LINK = re.compile(r"(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
#: The most characters of a line above the tables, where the page is cut.
_LONGEST = 2000
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@])")


def escape(text: str) -> str:
    """Escape a text from data or a judge, so that Markdown shows it as plain text."""
    return _LINK.sub(r"\\\g<0>", _SPECIAL.sub(r"\\\1", printable(text)))


class PagePart(NamedTuple):
    """A part of the page: `rows` between the lines of a `head` and a `tail`.

    `ranks` orders the rows of all parts, one a row: the lowest stay where the page is cut.
    """

    head: list[str]
    rows: list[str]
    tail: list[str]
    ranks: Sequence[tuple[float, ...]]


#: What of a page that is cut stays, the first longest: what failed, what fell, then what the run is
#: made of, and the groups by tag and difficulty at last.
_TITLE, _SCORES, _GATES, _ERRORS, _COMPARED, _MEASURES, _OTHERS, _COMPARED_TAGS, _TAGS = range(9)


def render(results: Results) -> str:
    """Render results as Markdown."""
    return _joined(_parts(results))


def render_within(results: Results, most: int, why: str) -> str:
    """Render results as Markdown of at most `most` bytes of UTF-8.

    What is left out is counted in one line below the outcome, which ends with `why`; an empty text
    where not even the first lines fit.
    """
    parts = _parts(results)
    if _size([_joined(parts)]) <= most:
        return _joined(parts)
    title, *others = parts
    title = title._replace(head=[shorten(line, _LONGEST) for line in title.head])
    rows = sorted(
        (rank, place, number)
        for place, part in enumerate(others)
        for number, rank in enumerate(part.ranks)
    )
    left = most - _size(title.head) - _size([_left_out(len(rows), len(others), why), ""])
    kept: dict[int, set[int]] = {}
    for _, place, number in rows:
        part = others[place]
        size = _size([part.rows[number]])
        if place not in kept:
            size += _size([*part.head, *part.tail])
        if size <= left:
            left -= size
            kept.setdefault(place, set()).add(number)
    shortened = [
        part._replace(rows=[row for number, row in enumerate(part.rows) if number in kept[place]])
        for place, part in enumerate(others)
        if place in kept
    ]
    cut = [len(part.rows) - len(kept.get(place, ())) for place, part in enumerate(others)]
    told = _left_out(sum(cut), sum(number > 0 for number in cut), why)
    title = title._replace(head=[*title.head[:4], told, "", *title.head[4:]])
    text = _joined([title, *shortened])
    return text if _size([text]) <= most else ""


def _left_out(rows: int, parts: int, why: str) -> str:
    return escape(f"{counted(rows, 'line')} of {counted(parts, 'table or list')} left out: {why}")


def _joined(parts: Iterable[PagePart]) -> str:
    lines = [line for part in parts for line in (*part.head, *part.rows, *part.tail)]
    return "\n".join(lines)


def _size(lines: Iterable[str]) -> int:
    """Return the bytes of lines with their ends."""
    return sum(len(line.encode()) + 1 for line in lines)


def _list(rank: int, lines: Iterable[str], title: str = "") -> PagePart:
    """Make a part of lines, which is a list below its title."""
    rows = [f"- {escape(line)}" if title else escape(line) for line in lines]
    head = [f"## {escape(title)}", ""] if title else []
    return PagePart(head, rows, [""], [(rank, number) for number in range(len(rows))])


def _table(table: tables.Table, rank: int, of_tags: int) -> PagePart:
    """Make a part of a table; rows of groups by tag or difficulty have the rank `of_tags`."""
    order: Sequence[int] = range(len(table.rows))
    if table.urgency:
        order = sorted(order, key=lambda number: table.urgency[number])
    place = {number: index for index, number in enumerate(order)}
    ranks = [
        (of_tags if "=" in row[0] else rank, row[0] != OVERALL, place[number])
        for number, row in enumerate(table.rows)
    ]
    header, marks, *rows = table_lines(table.header, table.rows)
    notes = [line for note in table.notes for line in (escape(note), "")]
    heading = [f"## {escape(table.title)}", ""] if table.title else []
    head = [*heading, header, marks] if rows else heading
    return PagePart(head, rows, ["", *notes] if rows else notes, ranks)


def _parts(results: Results) -> list[PagePart]:
    """Make the parts of the page, the first of which is never cut."""
    run, verdict = results.run, outcome(results)
    means = [row.mean for row in results.categories.values()]
    overall = tables.overall_rows(results)
    title = [
        f"# Image editing run {escape(run.id)}",
        "",
        f"**{escape(verdict.line)}**",
        "",
        *(f"- {escape(note)}" for note in verdict.notes),
        f"- suite: {escape(results.suite.name)} ({counted(results.suite.pairs, 'pair')})",
        f"- started {escape(run.started)}, finished {escape(run.finished)}",
        *(f"- {escape(line)}" for line in tables.provenance_lines(results)),
        "",
    ]
    scores = tables.Table(
        "",
        tables.category_header(results),
        [*tables.category_rows(results), *overall],
        [],
        urgency=[*map(tables.urgency, means), *(float("-inf") for _ in overall)],
    )
    parts = [PagePart(title, [], [], [])]
    if failing := [gate for gate in results.gates if gate.state not in ("PASS", "NOT SELECTED")]:
        whys = (f"{gate.state}: {gate.why}" for gate in failing)
        part = _list(_GATES, whys, "Gates that did not pass")
        is_fail = [gate.state == "FAIL" for gate in failing]
        worst_first = [(_GATES, not fails, number) for number, fails in enumerate(is_fail)]
        parts.append(part._replace(ranks=worst_first))
    if errors := tables.error_lines(results, most=50):
        parts.append(_list(_ERRORS, errors, "Pairs without a score"))
    parts.append(_table(scores, _SCORES, _SCORES))
    parts += (_list(_OTHERS, [line]) for line in tables.remarks(results))
    for table in measure_tables.tables_of_measures(results, brief=False):
        is_compared = "before" in table.header
        rank, of_tags = (_COMPARED, _COMPARED_TAGS) if is_compared else (_MEASURES, _TAGS)
        parts.append(_table(table, rank, of_tags))
    parts += (_table(table, _OTHERS, _OTHERS) for table in tables.further_tables(results))
    parts.append(_list(_OTHERS, [tables.timing_line(results)]))
    if results.workers:
        workers = tables.Table("", tables.WORKER_HEADER, tables.worker_rows(results), [])
        parts.append(_table(workers, _OTHERS, _OTHERS))
    for section in results.sections:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", section.body)), default=0))
        body = [printable(line) for line in section.body.strip().splitlines()]
        ranks = [(_OTHERS, number) for number in range(len(body))]
        parts.append(PagePart([f"## {escape(section.title)}", "", fence], body, [fence, ""], ranks))
    return parts


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with its texts escaped."""
    marks = ["---" if name in tables.WORDS else "---:" for name in header]
    return [
        f"| {' | '.join(row)} |"
        for row in (map(escape, header), marks, *(map(escape, row) for row in rows))
    ]
