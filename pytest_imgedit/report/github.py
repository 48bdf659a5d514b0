"""Workflow commands by which GitHub Actions marks a run whose gates did not pass."""

from __future__ import annotations

from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import printable
from pytest_imgedit.stats.outcome import Outcome


def gate_commands(results: Results, outcome: Outcome) -> list[str]:
    """One `::error` line a gate that did not pass (`::warning` where that is allowed), or one for
    the whole run.
    """
    open_gates = [gate for gate in results.gates if gate.state not in ("PASS", "NOT SELECTED")]
    if results.run.status != "complete" or (outcome.fails and not open_gates):
        return [_command("error", "imgedit", outcome.line)]
    level = "error" if outcome.fails else "warning"
    return [
        _command(level, f"imgedit {gate.kind} {gate.field}", f"{gate.state}: {gate.why}")
        for gate in open_gates
    ]


def _command(level: str, title: str, message: str) -> str:
    """Write a workflow command; what would end a part of it is escaped."""
    title, message = (printable(text).replace("%", "%25") for text in (title, message))
    return f"::{level} title={title.replace(':', '%3A').replace(',', '%2C')}::{message}"
