"""What JUnit reports hold: properties of each item, and gates as test cases, so that they fail where the run does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_imgedit.core.sanitize import printable

if TYPE_CHECKING:
    from pytest_imgedit.core.items import ItemResult
    from pytest_imgedit.core.results import Comparison, Results


def item_properties(result: ItemResult, comparison: Comparison | None) -> list[tuple[str, object]]:
    """List an item's category, status, score, difference to the baseline, aspects and error, as properties."""
    compared = None if comparison is None else comparison.pairs.get(result.id)
    numbers = {
        "score": result.score,
        "before": None if compared is None else compared.before,
        "difference": None if compared is None else compared.difference,
        **{f"aspect_{name}": value for name, value in result.aspects.items()},
    }
    properties: list[tuple[str, object]] = [("imgedit_category", result.category), ("imgedit_status", result.status)]
    properties += [(f"imgedit_{name}", round(value, 4)) for name, value in numbers.items() if value is not None]
    return properties if result.error is None else [*properties, ("imgedit_error", str(result.error))]


def report_gates(config: pytest.Config, results: Results, problems: Sequence[str]) -> None:
    """Add a test case `imgedit.gates::KIND[FIELD]` for each gate, and `imgedit.run::complete` for what else can fail.

    INCONCLUSIVE that is allowed, and a gate that is NOT SELECTED, are skipped cases. Nothing is added without
    `--junitxml`.
    """
    from _pytest.junitxml import xml_key  # the one way to pytest's report that leaves its own counts alone

    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    allowed = results.run.options.gates.allow_inconclusive
    for gate in results.gates:
        text = f"{gate.state}: {gate.why}"
        skips = gate.state == "NOT SELECTED" or (gate.state == "INCONCLUSIVE" and allowed)
        outcome = "passed" if gate.state == "PASS" else "skipped" if skips else "failed"
        _add(xml, f"imgedit.gates::{gate.kind}[{gate.field}]", outcome, text)
    if results.run.status != "complete":
        problems = [f"INCOMPLETE: stopped by {results.run.stopped_by}", *problems]
    _add(xml, "imgedit.run::complete", "failed" if problems else "passed", "; ".join(problems))


def _add(xml: Any, nodeid: str, outcome: str, text: str) -> None:
    """Have the report open and close a test case."""
    path, _, name = nodeid.partition("::")
    shown = printable(text)
    longrepr: Any = {"passed": None, "skipped": (path, 0, shown), "failed": shown}[outcome]
    phases: Any = (("call", outcome, longrepr), ("teardown", "passed", None))
    for when, state, told in phases:
        xml.pytest_runtest_logreport(pytest.TestReport(nodeid, (path, 0, name), {}, state, told, when))
