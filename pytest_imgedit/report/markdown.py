"""The Markdown report: the same tables, for pull requests and CI summaries."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.results import GateResult, Results, Section
from pytest_imgedit.core.text import counted, printable, shorten
from pytest_imgedit.report import measure_tables, tables
from pytest_imgedit.stats.outcome import outcome

#: Where GitHub would make a link of a bare address: the slash after a scheme's colon, and the dot
#: after `www`.
_LINK = re.compile(r"(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
#: The most characters of a line above the tables, where the page is cut.
_LONGEST = 2000
#: Number of lines of the page above what follows the outcome.
_BELOW_OUTCOME = 4
#: Number of lines of a table above its rows.
_HEADER_LINES = 2
#: The most reasons why pairs have no score.
_MOST_ERRORS = 50
#: Columns of tables that put two runs side by side.
_OF_TWO_RUNS = {"before", "share won"}
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


#: The order in which parts of a page that is cut stay: what failed, what fell, then what the run is
#: made of, and at last the groups by tag and difficulty.
_TITLE, _SCORES, _GATES, _ERRORS, _COMPARED, _MEASURES, _OTHERS, _COMPARED_TAGS, _TAGS = range(9)


def render(results: Results) -> str:
    """Render results as Markdown."""
    return _joined(_parts(results))


def render_within(results: Results, most: int, why: str) -> str:
    """Render results as Markdown of at most `most` bytes of UTF-8, with a line end behind it.

    What is left out is counted in one line below the outcome, which ends with `why`. Returns an
    empty text where not even the first lines fit.
    """
    parts = _parts(results)
    whole = _joined(parts)
    if _size([whole]) <= most:
        return whole
    title, *others = parts
    head = [shorten(line, _LONGEST) for line in title.head]
    longest_note = _left_out(sum(len(part.rows) for part in others), len(others), why)
    shortened = _shortened(others, most - _size(head) - _size([longest_note, ""]))
    rows_cut = 0
    parts_cut = 0
    for part, short in zip(others, shortened, strict=True):
        if len(short.rows) < len(part.rows):
            rows_cut += len(part.rows) - len(short.rows)
            parts_cut += 1
    note = _left_out(rows_cut, parts_cut, why)
    head[_BELOW_OUTCOME:_BELOW_OUTCOME] = [note, ""]
    text = _joined([title._replace(head=head)] + shortened)
    return text if _size([text]) <= most else ""


def _shortened(parts: Sequence[PagePart], most: int) -> list[PagePart]:
    """Return the parts with as many rows as fit into `most` bytes, those of the lowest ranks first;
    a part without rows becomes empty.
    """
    order: list[tuple[tuple[float, ...], int, int]] = []
    for position, part in enumerate(parts):
        for number, rank in enumerate(part.ranks):
            order.append((rank, position, number))
    left = most
    staying: list[set[int]] = [set() for _ in parts]
    for _, position, number in sorted(order):
        part = parts[position]
        size = _size([part.rows[number]])
        if not staying[position]:
            size += _size(part.head) + _size(part.tail)
        if size <= left:
            left -= size
            staying[position].add(number)
    return [_with_rows(part, numbers) for part, numbers in zip(parts, staying, strict=True)]


def _with_rows(part: PagePart, numbers: Collection[int]) -> PagePart:
    """Return a part with the rows of these numbers; nothing of it without any."""
    if not numbers:
        return PagePart([], [], [], [])
    return part._replace(rows=[part.rows[number] for number in sorted(numbers)])


def _left_out(rows: int, parts: int, why: str) -> str:
    return escape(f"{counted(rows, 'line')} of {counted(parts, 'table or list')} left out: {why}")


def _joined(parts: Iterable[PagePart]) -> str:
    """Return the text of a page."""
    lines: list[str] = []
    for part in parts:
        lines += part.head
        lines += part.rows
        lines += part.tail
    return "\n".join(lines)


def _size(lines: Iterable[str]) -> int:
    """Return the bytes of lines with their ends."""
    return sum(len(line.encode()) + 1 for line in lines)


def _list(rank: int, lines: Iterable[str], title: str = "") -> PagePart:
    """Make a part of lines: a list below its title, or the lines alone without one."""
    rows = [f"- {escape(line)}" if title else escape(line) for line in lines]
    head = [f"## {escape(title)}", ""] if title else []
    return PagePart(head, rows, [""], [(rank, number) for number in range(len(rows))])


def _table(table: tables.Table, rank: int, tag_rank: int) -> PagePart:
    """Make a part of a table; its rows have `rank`, those of groups by tag or difficulty
    `tag_rank`. Of one rank, the row of all pairs comes first, then the most urgent.
    """
    most_urgent_first = list(range(len(table.rows)))
    if table.urgency:
        most_urgent_first.sort(key=table.urgency.__getitem__)
    ranks: list[tuple[float, ...]] = [()] * len(table.rows)
    for index, number in enumerate(most_urgent_first):
        group = table.rows[number][0]
        ranks[number] = (tag_rank if "=" in group else rank, group != OVERALL, index)
    head: list[str] = []
    tail: list[str] = []
    if table.title:
        head += [f"## {escape(table.title)}", ""]
    lines = table_lines(table.header, table.rows)
    if table.rows:
        head += lines[:_HEADER_LINES]
        tail.append("")
    for note in table.notes:
        tail += [escape(note), ""]
    return PagePart(head, lines[_HEADER_LINES:], tail, ranks)


def _parts(results: Results) -> list[PagePart]:
    """Make the parts of the page, the first of which is never cut."""
    parts = [_title(results)]
    failing = [gate for gate in results.gates if gate.state not in ("PASS", "NOT SELECTED")]
    if failing:
        parts.append(_gates(failing))
    errors = tables.error_lines(results, most=_MOST_ERRORS)
    if errors:
        parts.append(_list(_ERRORS, errors, "Pairs without a score"))
    parts.append(_table(_scores(results), _SCORES, _SCORES))
    parts += [_list(_OTHERS, [line]) for line in tables.remarks(results)]
    for table in measure_tables.tables_of_measures(results, brief=False):
        if _OF_TWO_RUNS & set(table.header):
            parts.append(_table(table, _COMPARED, _COMPARED_TAGS))
        else:
            parts.append(_table(table, _MEASURES, _TAGS))
    parts += [_table(table, _OTHERS, _OTHERS) for table in tables.further_tables(results)]
    parts.append(_list(_OTHERS, [tables.timing_line(results)]))
    if results.workers:
        workers = tables.Table("", tables.WORKER_HEADER, tables.worker_rows(results), [])
        parts.append(_table(workers, _OTHERS, _OTHERS))
    parts += [_section(section) for section in results.sections]
    return parts


def _title(results: Results) -> PagePart:
    """Make the part with the outcome, and with what the run is made of."""
    run = results.run
    verdict = outcome(results)
    lines = [f"# Image editing run {escape(run.id)}", "", f"**{escape(verdict.line)}**", ""]
    lines += [f"- {escape(note)}" for note in verdict.notes]
    lines += [
        f"- suite: {escape(results.suite.name)} ({counted(results.suite.pairs, 'pair')})",
        f"- started {escape(run.started)}, finished {escape(run.finished)}",
    ]
    lines += [f"- {escape(line)}" for line in tables.provenance_lines(results)]
    lines.append("")
    return PagePart(lines, [], [], [])


def _gates(failing: Sequence[GateResult]) -> PagePart:
    """Make the list of gates that did not pass; where the page is cut, those that failed stay."""
    whys = [f"{gate.state}: {gate.why}" for gate in failing]
    ranks = [(_GATES, gate.state != "FAIL", number) for number, gate in enumerate(failing)]
    return _list(_GATES, whys, "Gates that did not pass")._replace(ranks=ranks)


def _scores(results: Results) -> tables.Table:
    """Return the table of scores, whose overall rows are the most urgent."""
    rows = tables.category_rows(results)
    urgency = [tables.urgency(row.mean) for row in results.categories.values()]
    for overall in tables.overall_rows(results):
        rows.append(overall)
        urgency.append(float("-inf"))
    return tables.Table("", tables.category_header(results), rows, [], urgency=urgency)


def _section(section: Section) -> PagePart:
    """Make a part of a user's section, between fences that are longer than any in it."""
    fences = re.findall("`+", section.body)
    longest = max(map(len, fences), default=0)
    fence = "`" * max(3, longest + 1)
    body = [printable(line) for line in section.body.strip().splitlines()]
    ranks = [(_OTHERS, number) for number in range(len(body))]
    return PagePart([f"## {escape(section.title)}", "", fence], body, [fence, ""], ranks)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with its texts escaped."""
    marks = ["---" if name in tables.WORDS else "---:" for name in header]
    lines = [_table_line(map(escape, header)), _table_line(marks)]
    for row in rows:
        lines.append(_table_line(map(escape, row)))
    return lines


def _table_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
