"""Gates and item properties in pytest's summary and JUnit report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_imgedit.core.text import printable

if TYPE_CHECKING:
    from pytest_imgedit.core.items import ItemResult
    from pytest_imgedit.core.results import Comparison, Duel, MeasuredGroups, Results


Outcome = Literal["passed", "failed", "skipped"]
#: Tags of a measure whose means are listed, at most.
MOST_TAGS = 200


def item_properties(
    result: ItemResult, comparison: Comparison | None, duel: Duel | None
) -> list[tuple[str, object]]:
    """Return an item's category, status, score, difference to the baseline, share of duels won (by
    the score, `duel`, and by each measure beside it, `duel.MEASURE`), aspects and error, as
    properties; numbers and an error that are not there are left out.
    """
    from pytest_imgedit.core.measures import SCORE

    numbers = {"score": result.score}
    compared = None if comparison is None else comparison.pairs.get(result.id)
    if compared is not None:
        numbers["before"] = compared.before
        numbers["difference"] = compared.difference
    dueled = None if duel is None else duel.pairs.get(result.id)
    if duel is not None and dueled is not None:
        for measure in duel.measures:
            name = "duel" if measure == SCORE else f"duel.{measure}"
            numbers[name] = dueled.value(measure)
    for name, value in result.aspects.items():
        numbers[f"aspect_{name}"] = value
    properties = [
        _property("imgedit_category", result.category),
        _property("imgedit_status", result.status),
    ]
    for name, number in numbers.items():
        if number is not None:
            properties.append(_property(f"imgedit_{name}", number))
    if result.error is not None:
        properties.append(_property("imgedit_error", str(result.error)))
    return properties


def run_properties(results: Results) -> list[tuple[str, object]]:
    """Return the mean of each measure over each group, its difference to the baseline, and the
    share of duels won over all pairs and each category, as properties; a group without any is left
    out.

    Of the tags of a measure, the `MOST_TAGS` with the worst means are listed, and the others
    counted: GitLab reads no report of over 250,000 elements.
    """
    compared = {} if results.comparison is None else results.comparison.measures
    properties: list[tuple[str, object]] = []
    for name, measured in results.measures.items():
        tags = _tags_worst_first(measured)
        left_out = set(tags[MOST_TAGS:])
        for group, row in measured.rows.items():
            mean = row.mean
            if mean is None or group in left_out:
                continue
            field = f"imgedit_mean[{name}@{group}]"
            properties.append(_property(field, mean))
            against = compared.get(name, {}).get(group)
            if against is not None and against.difference is not None:
                properties.append(_property(f"{field} difference", against.difference))
        if left_out:
            told = f"{len(left_out)} of {len(tags)} tags, with the best means: results.json"
            properties.append(_property(f"imgedit_left_out[{name}]", told))
    shares = {} if results.duel is None else results.duel.measures
    for name, rows in shares.items():
        for group, won in rows.items():
            if won.share is not None and "=" not in group:
                properties.append(_property(f"imgedit_duel[{name}@{group}]", won.share))
    return properties


def _tags_worst_first(measured: MeasuredGroups) -> list[str]:
    """Return the groups by tag that have a mean of a measure, the worst mean first."""
    from pytest_imgedit.report.tables import urgency

    urgencies: dict[str, float] = {}
    for group, row in measured.rows.items():
        if group.startswith("tag=") and row.mean is not None:
            urgencies[group] = urgency(row.mean, measured.lower_is_better)
    return sorted(urgencies, key=urgencies.__getitem__)


def _property(name: str, value: str | float) -> tuple[str, object]:
    """Return a property whose name and text are one line each, and whose number has four digits."""
    shown = printable(value) if isinstance(value, str) else round(value, 4)
    return printable(name), shown


def gate_reports(results: Results) -> list[pytest.TestReport]:
    """Return a report `imgedit.gates::KIND[FIELD]` for each gate.

    A gate that only warns, and one that is NOT SELECTED, are skipped.
    """
    reports = []
    for gate in results.gates:
        outcome: Outcome = "failed"
        if gate.state == "PASS":
            outcome = "passed"
        elif gate.state == "NOT SELECTED" or results.run.options.gates.only_warns(gate):
            outcome = "skipped"
        nodeid = f"imgedit.gates::{gate.kind}[{printable(gate.field)}]"
        reports.append(_report(nodeid, outcome, f"{gate.state}: {gate.why}"))
    return reports


def report_run(config: pytest.Config, results: Results, problems: Sequence[str]) -> None:
    """Add a test case for each gate to `--junitxml`, if that is asked for.

    One more, `imgedit.run::complete`, has the run's properties; it fails if the run is not complete
    or has `problems`.
    """
    from _pytest.junitxml import xml_key  # the only way that leaves pytest's counts alone

    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    if results.run.status != "complete":
        problems = [f"INCOMPLETE: {results.run.stopped}"] + list(problems)
    complete = _report(
        "imgedit.run::complete", "failed" if problems else "passed", "; ".join(problems)
    )
    complete.user_properties = run_properties(results)
    for report in gate_reports(results) + [complete]:
        xml.pytest_runtest_logreport(report)
        # the report of the teardown is the one with which pytest writes a case's properties
        teardown = pytest.TestReport(report.nodeid, report.location, {}, "passed", None, "teardown")
        teardown.user_properties = report.user_properties
        xml.pytest_runtest_logreport(teardown)


def name_failed_gates(reporter: pytest.TerminalReporter, results: Results) -> None:
    """Add failed gates to pytest's summary and counts, but not to its last-failed cache.

    Errors of the run are left out, since items count and name them.
    """
    failed = [
        report
        for report in gate_reports(results)
        if report.failed and "::max_errors[" not in report.nodeid
    ]
    if failed:
        reporter.stats.setdefault("failed", []).extend(failed)


def _report(nodeid: str, outcome: Outcome, text: str) -> pytest.TestReport:
    """Return the report of a test case, with a text that a passed one does not show."""
    path, _, name = nodeid.partition("::")
    shown = printable(text)
    longrepr: Any = {"passed": None, "skipped": (path, 0, shown), "failed": shown}[outcome]
    return pytest.TestReport(nodeid, (path, 0, name), {}, outcome, longrepr, "call")
