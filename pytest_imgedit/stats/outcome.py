"""The outcome of a run: its state, its verdict in one short line, and whether it fails pytest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rich.cells import cell_len, set_cell_size

from pytest_imgedit.core.measures import OVERALL, SCORE
from pytest_imgedit.core.results import (
    Comparison,
    ComparisonRow,
    Duel,
    GateOptions,
    GateResult,
    Item,
    Results,
    State,
)
from pytest_imgedit.core.text import counted, first_of, number, p_value, printable, signed

#: States in the order in which they decide a run; a gate that is NOT SELECTED decides nothing.
WORST_FIRST: tuple[State, ...] = ("INVALID", "FAIL", "INCONCLUSIVE", "PASS")
#: The statuses of items that ended in an error, or were refused.
FAILED = ("edit_error", "judge_error", "refused")
#: The columns of a verdict, which fits into 80 behind `imgedit: `.
COLUMNS = 80 - len("imgedit: ")
#: Where a text may be cut: behind a statement, before what explains it.
_ENDS = (": ", "; ", " (")
_ROLES = {"edit": "editor", "score": "judge"}


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the state of its worst gate, or `INCOMPLETE`; whether pytest fails; a
    verdict of at most `COLUMNS` columns; and what else is to be said beside the gates, a line each.
    """

    state: State | Literal["INCOMPLETE"]
    line: str
    fails: bool
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        state: State | Literal["INCOMPLETE"],
        parts: Sequence[str],
        notes: Sequence[str] = (),
        *,
        fails: bool = False,
        warns: bool = False,
    ) -> Outcome:
        """Make a verdict of the parts and notes that fit, the first cut to fit; notes that do not
        fit stay notes.
        """
        line = f"{state} (warning): " if warns else f"{state}: "
        parts = [printable(part) for part in parts]
        notes = [printable(note) for note in notes]
        texts = list(dict.fromkeys(parts + notes)) or ["no gate was decided"]
        line += cut(texts[0], COLUMNS - cell_len(line))
        for text in texts[1:]:
            if cell_len(f"{line}; {text}") <= COLUMNS:
                line += f"; {text}"
        further = tuple(note for note in notes if note not in line)
        return cls(state, line, fails, further)


def cut(text: str, columns: int, least: float = 1 / 4) -> str:
    """Return a text if it fits into the columns; or its statements that fit, without what explains
    them; or its words that fit, if the statements fill less than a share `least` of the columns.
    """
    if cell_len(text) <= columns:
        return text
    for end in reversed(range(len(text))):
        statements = text[:end]
        is_end = text.startswith(_ENDS, end) and statements.count("(") == statements.count(")")
        if is_end and columns * least <= cell_len(statements) <= columns:
            return statements
    return clip(text, columns)


def clip(text: str, columns: int) -> str:
    """Return a text if it fits into the columns; or its words that fit and an ellipsis. A word is
    cut where the whole ones would fill no more than half of the columns.
    """
    if cell_len(text) <= columns:
        return text
    shown = set_cell_size(text, columns - 1)
    words, _, _ = shown.rpartition(" ")
    is_long = cell_len(words) > columns / 2
    return (words if is_long else shown).rstrip(" ,") + "…"


def outcome(results: Results) -> Outcome:
    """Return the outcome of a run: the state of its worst gate, and INVALID without gates.

    A run does not fail if all gates pass or only warn. One that was stopped is INCOMPLETE and
    fails; a shard is NOT SELECTED, as `imgedit merge` decides its gates.
    """
    items = results.items
    scored = sum(item.status == "scored" for item in items)
    if results.run.status != "complete":
        return _incomplete(results, scored)
    shard = results.selection.shard
    if shard is not None:
        done = f"shard {shard}: {len(items)} of {counted(len(shard.ids), 'pair')}, {scored} scored"
        return Outcome.of("NOT SELECTED", (), [done, "imgedit merge decides the gates"])
    gates = [gate for gate in results.gates if gate.state != "NOT SELECTED"]
    options = results.run.options.gates
    gates.sort(key=partial(_severity, options))
    state: State = gates[0].state if gates else "INVALID"
    copies = mostly_copies(results)
    notes = copies + _replaced(results) + left_out(results)
    if state == "PASS":
        return Outcome.of("PASS", _passed(results, gates, copies), notes)
    only_warns = bool(gates) and not any(fails(gate, options) for gate in gates)
    parts = copies + _not_passed(results, gates, only_warns=only_warns, scored=scored)
    return Outcome.of(state, parts, notes, fails=not only_warns, warns=only_warns)


def _severity(options: GateOptions, gate: GateResult) -> tuple[int, bool, bool]:
    """Order gates by state, the worst first; of equals, those that fail the run precede, and then
    those on the overall drop or the overall share of duels.
    """
    is_overall = gate.kind in ("max_drop", "min_win") and gate.field == OVERALL
    return WORST_FIRST.index(gate.state), not fails(gate, options), not is_overall


def _incomplete(results: Results, scored: int) -> Outcome:
    """Return the outcome of a run that was stopped: why it was, how far it has come, and what to
    do.
    """
    run = results.run
    edited = sum(bool(item.edits) for item in results.items)
    done = f"{edited} of {counted(len(results.items), 'pair')} edited, {scored} scored"
    notes = [run.stopped, done]
    if run.trials_left:
        notes.append(f"{counted(run.trials_left, 'trial')} of the judge to do")
    then = "run again" if run.stopped_by == "the user" else "fix that and run again"
    notes.append(f"{then} to do the rest")
    cause = cut(run.stopped, COLUMNS - len("INCOMPLETE: "), least=1 / 2)
    return Outcome.of("INCOMPLETE", [cause], notes, fails=True)


def _passed(results: Results, gates: Sequence[GateResult], copies: Sequence[str]) -> list[str]:
    """Report what passed: the edits of a run without scores, the overall mean, or else the gates;
    and near-copies.
    """
    head = _overall(results)
    if results.run.options.run.stage == "edit":
        head = [f"{counted(len(results.items), 'pair')} edited, no scores asked for"]
    if head:
        return head + list(copies)
    return list(copies) + [gate.why for gate in gates]


def _not_passed(
    results: Results, gates: Sequence[GateResult], *, only_warns: bool, scored: int
) -> list[str]:
    """Report why a run did not pass: why its pairs failed, if there are no scores or too many
    errors, or else its worst gate; how many more gates did not pass; and the overall mean, unless
    the worst gate tells it. `gates` are the worst first.
    """
    items = results.items
    bad = [gate for gate in gates if gate.state != "PASS"]
    worst = bad[0] if bad else None
    parts = [] if worst is None else [worst.why]
    has_many_errors = any(gate.kind == "max_errors" and gate.state == "FAIL" for gate in bad)
    failure = ""
    if not scored or has_many_errors:
        state = "INVALID" if worst is None else worst.state
        failure = failed_for(items, COLUMNS - len(f"{state}: "))
    if failure:
        parts = [failure]
    elif only_warns:
        parts = _open_trials(gates) + parts
    if len(bad) > 1 and scored:
        parts.append(f"{counted(len(bad) - 1, 'more gate')} did not pass")
    if worst is None or worst.field != OVERALL:
        parts += _overall(results)
    return parts


def failed_for(items: Sequence[Item], columns: int) -> str:
    """Name the most frequent reason why pairs have no score, and their number, in at most `columns`
    columns: `judge: 404: model not found (4 of 4 pairs)`; an empty text if none failed.
    """
    errors = [item.error for item in items if item.status in FAILED and item.error is not None]
    reasons = Counter((error.stage, error.message) for error in errors)
    if not reasons:
        return ""
    stage, message = max(reasons, key=reasons.__getitem__)
    several = f", {len(reasons)} reasons" if len(reasons) > 1 else ""
    number = f" ({reasons.total()} of {counted(len(items), 'pair')}{several})"
    head = f"{_ROLES[stage]}: "
    return head + clip(printable(message), columns - cell_len(head + number)) + number


def fails(gate: GateResult, options: GateOptions) -> bool:
    """Tell whether a gate fails a run: it was decided, did not pass, and does not only warn."""
    return gate.state not in ("PASS", "NOT SELECTED") and not options.only_warns(gate)


def _open_trials(gates: Sequence[GateResult]) -> list[str]:
    """Say which trial of the judge is open, the one by scores first."""
    kinds = {gate.kind for gate in gates if gate.state == "INCONCLUSIVE"}
    if "controls" in kinds:
        return ["judge not tried"]
    return ["judge not tried by duels"] if "duel_controls" in kinds else []


def _overall(results: Results) -> list[str]:
    """Report the share of duels that a run wins, if it has duels, and whether no gate on it was
    decided; and the overall mean, with that of the baseline if there is one. Nothing without a
    mean.
    """
    share = "" if results.duel is None else wins(results.duel)
    if share and not is_by_duels(results):
        share += ", not decided"
    return ([share] if share else []) + _mean(results)


def is_by_duels(results: Results) -> bool:
    """Tell whether the verdict of a run is about its duels: it has some, and not all gates on the
    share that it wins are NOT SELECTED.
    """
    states = {gate.state for gate in results.gates if gate.kind == "min_win"}
    return results.duel is not None and states != {"NOT SELECTED"}


def wins(duel: Duel) -> str:
    """Report the share of duels that a run wins, or that all its edits are those of the other run;
    an empty text if no duel has a vote.
    """
    if duel.pairs and duel.identical == len(duel.pairs):
        return f"every edit equals that of {duel.name}"
    row = duel.measures.get(SCORE, {}).get(OVERALL)
    if row is None or row.share is None:
        return ""
    return f"wins {row.share:.2f} of {counted(row.n, 'duel')} against {duel.name}"


def _mean(results: Results) -> list[str]:
    comparison = results.comparison
    if comparison is not None and comparison.rows[OVERALL].difference is not None:
        return [_compared(comparison.rows[OVERALL], comparison.name)]
    mean = results.overall.macro.mean
    return [] if mean is None else [f"overall {mean:.2f}"]


def _compared(row: ComparisonRow, baseline: str) -> str:
    """Report the overall mean, that of the baseline, and the finding, unless that is the state of a
    gate, which is reported anyway.
    """
    finding = row.finding
    p = row.p_rise if finding == "rose" else row.p
    if p is not None and finding in ("rose", "fell"):
        finding += f", {p_value(p)}"
    shown = "" if finding in WORST_FIRST else f" ({finding})"
    before = f"{number(row.before)} in {baseline}"
    return f"overall {number(row.now)}, was {before}: {signed(row.difference)}{shown}"


def copies_line(items: Sequence[Item]) -> str:
    """Say how many edits of pairs are near-copies: of their source, or of one of them if such an
    edit has several.
    """
    edits = [edit for item in items for edit in item.edits]
    copies = sum(edit.near_copy for edit in edits)
    has_several = any(has_near_copy(item) and item.further for item in items)
    if copies == 1:
        source = "one of its sources" if has_several else "its source"
        return f"1 of {counted(len(edits), 'edit')} is a near-copy of {source}"
    source = "one of their sources" if has_several else "their source"
    return f"{copies} of {len(edits)} edits are near-copies of {source}"


def has_near_copy(item: Item) -> bool:
    """Tell whether some edit of a pair is a near-copy."""
    return any(edit.near_copy for edit in item.edits)


def is_said(text: str, results: Results) -> bool:
    """Tell whether the outcome or a gate of a run says a text."""
    verdict = outcome(results)
    if text in verdict.line or any(text in note for note in verdict.notes):
        return True
    return any(text in gate.why for gate in results.gates)


def mostly_copies(results: Results) -> list[str]:
    """Report that more edits than `gates.max_near_copies` are near-copies, unless a gate does."""
    edits = [edit for item in results.items for edit in item.edits]
    copies = sum(edit.near_copy for edit in edits)
    line = copies_line(results.items)
    is_reported = any(line in gate.why for gate in results.gates)
    if copies <= results.run.options.gates.max_near_copies * len(edits) or is_reported:
        return []
    return [line]


def count_replaced(items: Sequence[Item]) -> tuple[int, int]:
    """Return the number of pairs with a reply that `compat` replaced or dropped, and that of all
    judged pairs.
    """
    touched = 0
    judged = 0
    for item in items:
        touched += item.status == "dropped" or any(verdict.touched for verdict in item.verdicts)
        judged += item.is_judged
    return touched, judged


def replaced_line(touched: int, judged: int) -> str:
    """Say how many of the judged pairs have a reply that `compat` replaced or dropped."""
    return (
        f"compat replaced or dropped unreadable replies of {touched} of {counted(judged, 'pair')}"
    )


def _replaced(results: Results) -> list[str]:
    """Report replies that `compat` replaced or dropped, unless a gate does."""
    touched, judged = count_replaced(results.items)
    line = replaced_line(touched, judged)
    if not touched or any(line in gate.why for gate in results.gates):
        return []
    return [line]


def failed_alike(comparison: Comparison) -> list[str]:
    """Report the pairs that a comparison leaves out, as they failed in the same way before."""
    failed = comparison.failed_alike
    if not failed:
        return []
    named = first_of([f"{pair} ({status})" for pair, status in failed.items()])
    return [f"{counted(len(failed), 'pair')} without a score there and here: {named}"]


def left_out(results: Results) -> list[str]:
    """Report what a run leaves out, a line each: pairs that were not needed, not selected, skipped,
    or failed as in the baseline, and gates that were not selected.
    """
    items = results.items
    compared = results.comparison
    selection = results.selection
    parts = []
    unneeded = sum(item.status == "not_needed" for item in items)
    if unneeded:
        parts.append(f"{unneeded} of {counted(len(items), 'pair')} not needed")
    if selection.selected < selection.whole:
        parts.append(f"a part: {selection.selected} of {counted(selection.whole, 'pair')}")
    elif compared is not None and compared.size > len(items):
        parts.append(
            f"{compared.size - len(items)} of the {counted(compared.size, 'pair')} of "
            f"{compared.name} not selected"
        )
    if compared is not None:
        parts += failed_alike(compared)
    if selection.skipped:
        parts.append(f"{counted(selection.skipped, 'pair')} skipped by marks")
    gates = [gate for gate in results.gates if gate.state == "NOT SELECTED"]
    if gates:
        names = [f"{gate.kind} {gate.field}" for gate in gates]
        parts.append(f"not selected: {', '.join(names)}")
    return parts
