"""What a run came to: its state, its last line, and whether it fails (exit code 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_imgedit.core.results import (
    Comparison,
    GateOptions,
    GateResult,
    Item,
    Results,
    State,
)
from pytest_imgedit.core.sanitize import counted, first_of, number, p_value, printable, signed

#: States in the order in which they decide a run; a gate that is NOT SELECTED decides nothing.
WORST_FIRST: tuple[State, ...] = ("INVALID", "FAIL", "INCONCLUSIVE", "PASS")


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the state of its worst gate, or `INCOMPLETE`; one line; and whether
    pytest fails.
    """

    state: State | Literal["INCOMPLETE"]
    line: str
    fails: bool


def outcome(results: Results) -> Outcome:
    """Say in one line whether the run's gates passed and whether it was complete.

    The state is that of the worst gate. A run in which all other gates pass or only warn does not
    fail.
    """
    run, items = results.run, results.items
    scored = sum(item.status == "scored" for item in items)
    if run.status != "complete":
        edited = sum(bool(item.edits) for item in items)
        done = f"{edited} of {len(items)} pairs edited, {scored} scored"
        if run.trials_left:
            done += f", {run.trials_left} trials of the judge to do"
        then = "run again" if run.stopped_by == "the user" else "fix that and run again"
        line = f"INCOMPLETE: stopped by {run.stopped_by} with {done}; {then} to do the rest"
        return Outcome("INCOMPLETE", printable(line), fails=True)
    if (shard := results.selection.shard) is not None:
        done = f"{len(items)} of {len(shard.ids)} pairs, {scored} scored"
        line = f"NOT SELECTED: shard {shard}: {done}; imgedit merge decides the gates"
        return Outcome("NOT SELECTED", line, fails=False)
    gates = sorted(
        (gate for gate in results.gates if gate.state != "NOT SELECTED"),
        key=lambda gate: (WORST_FIRST.index(gate.state), not _is_overall_drop(gate)),
    )
    state: State = gates[0].state if gates else "INVALID"
    if state != "PASS":
        only_warns = bool(gates) and not any(fails(gate, run.options.gates) for gate in gates)
        reasons = [
            *mostly_copies(results),
            *(gate.why for gate in gates if gate.state == state),
            *(f"{gate.state}, {gate.why}" for gate in gates if gate.state not in (state, "PASS")),
            *_compared(results),
            *_replaced(results),
            *left_out(results),
        ]
        line = f"{state}{' (warning)' if only_warns else ''}: {'; '.join(reasons)}"
        if only_warns and any(_is_open_trial(gate) for gate in gates):
            line = f"judge not tried: {line}"
        return Outcome(state, printable(line), fails=not only_warns)
    mean = results.overall.macro.mean
    head = _compared(results)
    if run.options.run.stage == "edit":
        head = [f"{counted(len(items), 'pair')} edited, no scores asked for"]
    elif mean is not None and not head and not _is_overall_drop(gates[0]):
        head = [f"overall {mean:.2f}"]
    gated = (gate.why for gate in gates)
    parts = [
        *head,
        *mostly_copies(results),
        *gated,
        *_replaced(results),
        *left_out(results),
    ]
    return Outcome("PASS", printable(f"PASS: {'; '.join(parts)}"), fails=False)


def fails(gate: GateResult, options: GateOptions) -> bool:
    """Tell whether a gate fails a run: it neither passed nor only warns."""
    return gate.state not in ("PASS", "NOT SELECTED") and not options.only_warns(gate)


def _is_open_trial(gate: GateResult) -> bool:
    return gate.kind == "controls" and gate.state == "INCONCLUSIVE"


def _is_overall_drop(gate: GateResult) -> bool:
    return (gate.kind, gate.field) == ("max_drop", "overall")


def _compared(results: Results) -> list[str]:
    """Report the comparison with a baseline, unless a gate reports it."""
    comparison = results.comparison
    if comparison is None or any(gate.kind == "max_drop" for gate in results.gates):
        return []
    row = comparison.rows["overall"]
    if row.difference is None:
        return []
    p = row.p_rise if row.finding == "rose" else row.p
    finding = row.finding if p is None or row.finding == "same" else f"{row.finding}, {p_value(p)}"
    return [
        f"overall {number(row.now)}, was {number(row.before)} in {comparison.name}: "
        f"{signed(row.difference)} ({finding})"
    ]


def copies_line(copies: int, edits: int) -> str:
    """Say how many edits hardly differ from their source."""
    return f"{copies} of {edits} edits hardly differ from their source"


def mostly_copies(results: Results) -> list[str]:
    """Report that more edits than `gates.max_near_copies` hardly differ from their source, unless a
    gate does.
    """
    edits = [edit for item in results.items for edit in item.edits]
    copies = sum(edit.near_copy for edit in edits)
    line = copies_line(copies, len(edits))
    is_reported = any(line in gate.why for gate in results.gates)
    if copies <= results.run.options.gates.max_near_copies * len(edits) or is_reported:
        return []
    return [line]


def count_replaced(items: Sequence[Item]) -> tuple[int, int]:
    """Count the pairs with a reply that `compat` replaced or dropped, and all judged pairs."""
    touched = sum(
        item.status == "dropped" or any(verdict.touched for verdict in item.verdicts)
        for item in items
    )
    return touched, sum(item.is_judged for item in items)


def replaced_line(touched: int, judged: int) -> str:
    """Say how many of the judged pairs have a reply that `compat` replaced or dropped."""
    return f"compat replaced or dropped unreadable replies of {touched} of {judged} pairs"


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
    """Report the pairs that a run leaves out: not needed, not selected, skipped, or missing from
    the baseline.
    """
    items, compared, selection, parts = results.items, results.comparison, results.selection, []
    if unneeded := sum(item.status == "not_needed" for item in items):
        parts.append(f"{unneeded} of {len(items)} pairs were not needed")
    if selection.selected < selection.whole:
        parts.append(f"a part: {selection.selected} of {selection.whole} pairs")
    elif compared is not None and compared.size > len(items):
        parts.append(
            f"{compared.size - len(items)} of the {compared.size} pairs of {compared.name} were "
            "not selected"
        )
    if compared is not None:
        parts += failed_alike(compared)
    if selection.skipped:
        parts.append(f"{counted(selection.skipped, 'pair')} skipped by marks")
    if gates := [gate for gate in results.gates if gate.state == "NOT SELECTED"]:
        parts.append(f"not selected: {', '.join(f'{gate.kind} {gate.field}' for gate in gates)}")
    return parts
