"""What a run came to: its state, its last line, and whether it fails (exit code 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_imgedit.core.results import GateResult, Results, State
from pytest_imgedit.core.sanitize import counted, number, p_value, printable, signed

#: States in the order in which they decide a run; a gate that is NOT SELECTED decides nothing.
WORST_FIRST: tuple[State, ...] = ("INVALID", "FAIL", "INCONCLUSIVE", "PASS")


@dataclass(frozen=True)
class Outcome:
    """What a run came to: the state of its worst gate, or `INCOMPLETE`; one line; and whether
    pytest is to fail.
    """

    state: State | Literal["INCOMPLETE"]
    line: str
    fails: bool


def outcome(results: Results) -> Outcome:
    """Say in one line whether the run's gates passed and whether it was complete.

    The state is that of the worst gate. INCONCLUSIVE fails unless `gates.allow_inconclusive` is
    set.
    """
    if results.run.status != "complete":
        items, by = results.items, results.run.stopped_by
        edited, scored = (
            sum(bool(item.edits) for item in items),
            sum(item.status == "scored" for item in items),
        )
        if results.run.trials_left:
            trials = f", {results.run.trials_left} trials of the judge to do"
        else:
            trials = ""
        done = f"{edited} of {len(items)} pairs edited, {scored} scored{trials}"
        line = f"INCOMPLETE: stopped by {by} with {done}; run again to do the rest"
        return Outcome("INCOMPLETE", printable(line), fails=True)
    if (shard := results.selection.shard) is not None:
        scored = sum(item.status == "scored" for item in results.items)
        what = f"shard {shard}: {len(results.items)} of {len(shard.ids)} pairs, {scored} scored"
        return Outcome(
            "NOT SELECTED", f"NOT SELECTED: {what}; imgedit merge decides the gates", fails=False
        )
    gates = _in_order(results.gates)
    state: State = gates[0].state if gates else "INVALID"
    part = left_out(results)
    if state != "PASS":
        allowed = state == "INCONCLUSIVE" and results.run.options.gates.allow_inconclusive
        open_or_failed = [gate for gate in gates if gate.state != "PASS"]
        whys = [gate.why for gate in open_or_failed if gate.state == state]
        whys += [f"{gate.state}, {gate.why}" for gate in open_or_failed if gate.state != state]
        reasons = [*mostly_copies(results), *whys, *_compared(results), *part]
        return Outcome(
            state,
            printable(f"{state}{' (allowed)' if allowed else ''}: {'; '.join(reasons)}"),
            fails=not allowed,
        )
    mean = results.overall.macro.mean
    head = _compared(results)
    if results.run.options.run.stage == "edit":
        head = [f"{counted(len(results.items), 'pair')} edited, no scores asked for"]
    elif mean is not None and not head and not _is_overall_drop(gates[0]):
        head = [f"overall {mean:.2f}"]
    line = "PASS: " + "; ".join(
        [*head, *mostly_copies(results), *(gate.why for gate in gates), *part]
    )
    return Outcome("PASS", printable(line), fails=False)


def _in_order(gates: Iterable[GateResult]) -> list[GateResult]:
    """List the gates that decide something, the worst first; of one state, the drop of the overall
    score first.
    """
    deciding = [gate for gate in gates if gate.state != "NOT SELECTED"]
    return sorted(
        deciding, key=lambda gate: (WORST_FIRST.index(gate.state), not _is_overall_drop(gate))
    )


def _is_overall_drop(gate: GateResult) -> bool:
    return (gate.kind, gate.field) == ("max_drop", "overall")


def _compared(results: Results) -> list[str]:
    """Say what the comparison with a baseline found, where no gate says so."""
    found = results.comparison
    if found is None or any(gate.kind == "max_drop" for gate in results.gates):
        return []
    row = found.rows["overall"]
    if row.difference is None:
        return []
    p = row.p_rise if row.finding == "rose" else row.p
    shown = row.finding if p is None or row.finding == "same" else f"{row.finding}, {p_value(p)}"
    return [
        f"overall {number(row.now)}, was {number(row.before)} in {found.name}: "
        f"{signed(row.difference)} ({shown})"
    ]


def copies_line(copies: int, edits: int) -> str:
    """Say how many edits hardly differ from their source."""
    return f"{copies} of {edits} edits hardly differ from their source"


def mostly_copies(results: Results) -> list[str]:
    """Say so if more edits than `gates.max_near_copies` hardly differ from their source, and no
    gate says it.
    """
    edits = [edit for item in results.items for edit in item.edits]
    copies = sum(edit.near_copy for edit in edits)
    line = copies_line(copies, len(edits))
    is_told = any(line in gate.why for gate in results.gates)
    if copies > results.run.options.gates.max_near_copies * len(edits) and not is_told:
        return [line]
    return []


def left_out(results: Results) -> list[str]:
    """Say of which pairs a run is not: those not needed, not selected, skipped, or missing from the
    baseline.
    """
    items, compared, selection, parts = results.items, results.comparison, results.selection, []
    if unneeded := sum(item.status == "not_needed" for item in items):
        parts.append(f"{unneeded} of {len(items)} pairs were not needed")
    if selection.selected < selection.whole:
        parts.append(f"a part: {selection.selected} of {selection.whole} pairs")
    elif compared is not None and compared.size > len(items):
        missing = compared.size - len(items)
        parts.append(f"{missing} of the {compared.size} pairs of {compared.name} were not selected")
    if selection.skipped:
        parts.append(f"{counted(selection.skipped, 'pair')} skipped by marks")
    resting = [
        f"{gate.kind} {gate.field}" for gate in results.gates if gate.state == "NOT SELECTED"
    ]
    return [*parts, *([f"not selected: {', '.join(resting)}"] if resting else [])]
