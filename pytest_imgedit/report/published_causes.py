"""What differs between a run and a published row, by what the row states."""

import re
from collections.abc import Iterator, Sequence

from pytest_imgedit.core.results import PublishedRow, Results
from pytest_imgedit.core.text import counted, shorten
from pytest_imgedit.report.causes import Cause

NOT_STATED = "not stated"
#: What no published row states.
NEVER_STATED = (
    "weights",
    "parameters",
    "seeds",
    "environment",
    "edits",
    "prompts",
    "images sent to the judge",
    "judge parameters",
    "pairs without a score",
)
#: The most characters of a text of a row.
_LONGEST = 200


def published_causes(run: Results, protocol: str, row: PublishedRow) -> list[Cause]:
    """Return what differs between a run and a row that is published for a protocol. Names of models
    count as equal if one holds the other, letter case and punctuation aside.
    """
    return [Cause(line) for line in _lines(run, protocol, row)]


def choose_row(run: Results, rows: Sequence[PublishedRow]) -> PublishedRow:
    """Return the row of a model that a run's tables have too, the first in their order; without
    one, the row of the most pairs. Of several such rows it is the first.
    """
    named = [] if run.protocol is None else [row.name for row in run.protocol.rows]
    for name in named:
        for row in rows:
            if row.row == name:
                return row
    return max(rows, key=lambda row: row.pairs)


def unstated(row: PublishedRow) -> tuple[str, ...]:
    """Return what a row does not state."""
    fields = ("judge", "provider", "order", "sampling", "rewriting")
    return (*[name for name in fields if getattr(row, name) == NOT_STATED], *NEVER_STATED)


def value_of(run: Results, protocol: str, row: PublishedRow) -> float | None:
    """Return a run's value of a row that is published for a protocol; `None` if it was judged by
    another protocol, or its tables have no row of this name.
    """
    if run.protocol is None or run.judge.protocol != protocol:
        return None
    rows = run.protocol.rows
    return next((each.value for each in rows if each.name == row.row), None)


def others_line(row: PublishedRow, rows: Sequence[PublishedRow]) -> str:
    """Return a line on the other numbers that are published for a row; empty without any."""
    others = [f"{each.value:g} ({each.source})" for each in rows if each.row == row.row]
    others.remove(f"{row.value:g} ({row.source})")
    return f"also published: {', '.join(others)}" if others else ""


def _lines(run: Results, protocol: str, row: PublishedRow) -> Iterator[str]:
    judge = run.judge
    judged = sum(item.is_judged for item in run.items)
    if judged != row.pairs:
        yield f"pairs: {judged} → {row.pairs}"
    if not _is_named(row.model, run.editor.spec):
        yield f"editor: {run.editor.spec} → {row.model}"
    rewriting = f"by {run.editor.rewrites[:12]}" if run.editor.rewrites else "none"
    yield from _stated("rewritten instructions", rewriting, row.rewriting)
    answered = ", ".join(judge.returned)
    if not _is_named(row.judge, f"{judge.spec} {answered}"):
        shown = f"{judge.spec}, answered by {answered}" if answered else judge.spec
        yield from _stated("judge", shown, row.judge)
    yield from _stated("provider of the judge", judge.spec, row.provider)
    if judge.protocol != protocol:
        yield f"protocol: {judge.protocol or 'none, the judge measures'} → {protocol}"
    calls = () if run.protocol is None else run.protocol.calls
    orders = "; ".join(dict.fromkeys(", ".join(call.order) for call in calls))
    yield from _stated("order of texts and images", orders or "unknown", row.order)
    params = ", ".join(f"{name} {value}" for name, value in run.editor.params.items())
    yield from _stated("sampling", params or "nothing is set", row.sampling)


def _stated(name: str, here: str, stated: str) -> Iterator[str]:
    """Yield a line where a row states something else than what is so here."""
    if stated not in (NOT_STATED, here):
        yield f"{name}: {here} → {shorten(stated, _LONGEST)}"


def _is_named(name: str, text: str) -> bool:
    """Tell whether a text holds a name, letter case and punctuation aside."""
    bare = [re.sub(r"[^a-z0-9]", "", part.lower()) for part in (name, text)]
    return bare[0] in bare[1]


def title_of(protocol: str, row: PublishedRow) -> str:
    """Return a row in words: what it is of, and its source."""
    pairs = counted(row.pairs, "pair")
    return f"{protocol}/{row.model}, {row.row} of {pairs}, {row.date}: {row.source}"
