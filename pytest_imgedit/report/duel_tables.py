"""Tables and lines on the duels of a run's edits with those of another run."""

from collections.abc import Iterator

from pytest_imgedit.core.measures import OVERALL, SCORE
from pytest_imgedit.core.results import Duel, DuelControl, DuelPair, DuelRow, Share
from pytest_imgedit.core.text import counted, first_of, interval, number, shorten
from pytest_imgedit.report.tables import LONGEST_NAME, Table, p_value, urgency
from pytest_imgedit.stats.duels import EVEN
from pytest_imgedit.stats.outcome import WORST_FIRST

#: Decimals of a share in [0, 1].
DECIMALS = 3
ROW_HEADER = (
    "n",
    "share won",
    "95% CI",
    "p of loss",
    "p of win",
    "finding",
    "MDE",
)
CONTROL_HEADER = (
    "control",
    "better edit",
    "n",
    "errors",
    "pending",
    "better wins",
    "95% CI",
    "p",
    "first wins",
    "state",
)
#: The most reasons why duels of pairs are not decided that have a line.
_MOST_REASONS = 3
_BETTER = {"oracle": "oracle", "own": "this run's"}


def tables_of_duel(duel: Duel, *, brief: bool) -> Iterator[Table]:
    """Yield a table of the duels by category, one of all measures if there are several, one of the
    other groups of each measure, and one of the duels of controls. If `brief`, only measures beside
    the score that a gate is on have their groups.
    """
    yield _categories_table(duel)
    if len(duel.measures) > 1:
        yield _measures_table(duel)
    for measure, rows in duel.measures.items():
        is_asked = measure != SCORE and any(row.finding in WORST_FIRST for row in rows.values())
        groups = _groups_table(duel, measure)
        if groups.rows and (is_asked or not brief):
            yield groups
    if duel.controls:
        yield _controls_table(duel)


def _categories_table(duel: Duel) -> Table:
    """Return a row for each category and `overall`, which comes last, of the score."""
    rows = {}
    for group, row in sorted(duel.measures.get(SCORE, {}).items(), key=_is_overall):
        if "=" not in group:
            rows[group] = row
    measure = f", by {SCORE}" if len(duel.measures) > 1 else ""
    return Table(
        f"duels against {duel.name}: editor {duel.editor}, run {duel.run}{measure}",
        ("category",) + ROW_HEADER,
        [_row(group, row) for group, row in rows.items()],
        list(_notes(duel)),
        urgency=[urgency(row.share) for row in rows.values()],
    )


def _is_overall(named: tuple[str, DuelRow]) -> bool:
    return named[0] == OVERALL


def _measures_table(duel: Duel) -> Table:
    """Return a row for each measure over all pairs."""
    rows = []
    for measure, groups in duel.measures.items():
        if OVERALL in groups:
            rows.append(_row(measure, groups[OVERALL]))
    title = f"duels by measure against {duel.name}, all pairs"
    return Table(title, ("measure",) + ROW_HEADER, rows, [])


def _groups_table(duel: Duel, measure: str) -> Table:
    """Return a row for each group of a measure but `overall`; of the score, only rows that the
    table of categories lacks. Measures beside the score have lines on the order too.
    """
    rows = {}
    for group, row in duel.measures[measure].items():
        if "=" in group or (measure != SCORE and group != OVERALL):
            rows[group] = row
    notes = [] if measure == SCORE else list(_order_notes(duel, measure))
    name = "group" if measure == SCORE else shorten(measure, LONGEST_NAME)
    return Table(
        f"duels by {name} against {duel.name}",
        ("group",) + ROW_HEADER,
        [_row(group, row) for group, row in rows.items()],
        notes,
        is_detail=True,
        urgency=[urgency(row.share) for row in rows.values()],
    )


def _row(name: str, row: DuelRow) -> tuple[str, ...]:
    """Return the cells of a group or measure: its name, and those of `ROW_HEADER`."""
    return (
        shorten(name, LONGEST_NAME),
        str(row.n),
        number(row.share, DECIMALS),
        interval(row.ci95, digits=DECIMALS),
        p_value(row.p),
        p_value(row.p_rise),
        row.finding,
        number(row.mde, DECIMALS),
    )


def _notes(duel: Duel) -> Iterator[str]:
    """Yield how the duels were decided, which of them need no vote or are not decided, and how
    the order of the edits weighs.
    """
    yield _p_values_note(duel)
    yield how_decided(duel)
    if duel.identical:
        are = "is identical and counts" if duel.identical == 1 else "are identical and count"
        yield f"{duel.identical} of {counted(len(duel.pairs), 'pair')} {are} half"
    yield from _missing(duel)
    yield from _order_notes(duel, SCORE)


def _p_values_note(duel: Duel) -> str:
    """Return what p-values and intervals are; with rows of gates, also what each p is against."""
    rows = [row for groups in duel.measures.values() for row in groups.values()]
    against = ""
    if any(row.finding in WORST_FIRST for row in rows):
        against = f", against {EVEN:g}, but p of loss of a gate's row against the gate's limit"
    return f"p-values: one-sided, Holm-corrected{against}; intervals: two-sided, uncorrected"


def how_decided(duel: Duel) -> str:
    """Return a line on what a vote is: an answer to a question, or a difference of scores."""
    if duel.by_scores:
        return "by the difference of the judge's two scores; no claim about position"
    if duel.protocol is None:
        return "asked in both orders"
    return f"asked in both orders: protocol {duel.protocol}@{duel.variant}"


def _missing(duel: Duel) -> Iterator[str]:
    """Yield a line for each of the first reasons why pairs are not decided, with these pairs, and
    one that counts the others.
    """
    ids_by_reason: dict[str, list[str]] = {}
    for pair_id, pair in duel.pairs.items():
        reason = why_not_decided(pair, duel.name)
        if reason:
            ids_by_reason.setdefault(reason, []).append(pair_id)
    left = duel.errors
    for reason, ids in list(ids_by_reason.items())[:_MOST_REASONS]:
        yield f"{_not_decided(len(ids), duel)}: {reason} ({first_of(ids)})"
        left -= len(ids)
    if left > 0:
        yield f"{_not_decided(left, duel)}{' for other reasons' if ids_by_reason else ''}"


def _not_decided(pairs: int, duel: Duel) -> str:
    return f"{counted(pairs, 'pair')} {'is' if pairs == 1 else 'are'} {not_decided(duel)}"


def not_decided(duel: Duel) -> str:
    """Name how duels end that lack a vote; a judge that measures is shown no two edits, and in no
    order.
    """
    return "not decided" if duel.by_scores else "not decided in both orders"


def why_not_decided(pair: DuelPair, other: str) -> str:
    """Return the first reason why a pair lacks a vote, given the name of the `other` run; an empty
    text if it has all.
    """
    for seed in pair.seeds:
        if seed.now is None:
            return "no edit of this run"
        if seed.before is None:
            return f"no edit of {other}"
        for vote in seed.votes:
            if vote.error is not None:
                return vote.error.message
        if not seed.votes and not seed.is_identical:
            return "not asked"
    return ""


def _order_notes(duel: Duel, measure: str) -> Iterator[str]:
    """Yield what share of votes changes with the order, and what share the edit that is shown first
    gets, of a measure; nothing of a judge that is shown no two edits.
    """
    if duel.by_scores:
        return
    changed = duel.disagreement.get(measure)
    if changed is not None and changed.share is not None:
        yield (
            f"order: the judge changes its vote with the order in {changed.share:.0%} of pairs"
            f"{_percents(changed, '95% CI ')}"
        )
    first = duel.first.get(measure)
    if first is not None and first.share is not None:
        yield f"the edit that is shown first gets {first.share:.0%} of votes{_percents(first)}"


def _percents(share: Share, label: str = "") -> str:
    """Return the interval of a share in percent, in parentheses; an empty text without any."""
    if share.ci95 is None:
        return ""
    low, high = share.ci95
    return f" ({label}{100 * low:.0f} to {100 * high:.0f})"


def _controls_table(duel: Duel) -> Table:
    """Return a row for each control."""
    return Table(
        "duels of controls: the judge on two edits of known quality",
        CONTROL_HEADER,
        [_control_row(row) for row in duel.controls],
        [],
    )


def _control_row(row: DuelControl) -> tuple[str, ...]:
    """Return the cells of a control in the columns of `CONTROL_HEADER`."""
    return (
        shorten(row.control, LONGEST_NAME),
        _BETTER[row.better],
        str(row.n),
        str(row.errors),
        str(row.pending),
        number(row.share, DECIMALS),
        interval(row.ci95, digits=DECIMALS),
        p_value(row.p),
        number(row.first, DECIMALS),
        row.state,
    )
