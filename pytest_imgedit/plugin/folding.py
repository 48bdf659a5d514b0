"""Failing pairs in pytest's output: no traceback, and equal reasons folded into one failure."""

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_imgedit.core.text import printable

#: Names of folded failures that a line holds.
_NAMES_SHOWN = 5
#: All failures, and those of each reason.
_FOLDED = pytest.StashKey[tuple[list[Any], dict[str, list[Any]]]]()


def without_traceback(call: pytest.CallInfo[None]) -> str | None:
    """Have pytest show the text of an `ItemFailed` alone; return its reason, or `None` for other
    outcomes.
    """
    if call.excinfo is None or call.excinfo.typename != "ItemFailed":
        return None
    error: Any = call.excinfo.value
    failure = pytest.fail.Exception(str(error), pytrace=False).with_traceback(error.__traceback__)
    call.excinfo = pytest.ExceptionInfo.from_exception(failure)
    return str(error.reason)


def give_reason(report: Any, reason: str) -> None:
    """Have pytest's short summary begin with a reason, not with the type of an exception: a narrow
    terminal shows no more than its first words.
    """
    report.imgedit_reason = reason
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = printable(reason)


def fold(config: pytest.Config) -> None:
    """Leave only the first of failures with equal reasons for pytest to print; nothing changes if
    all reasons differ, or without a terminal.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    reports = reporter.stats.get("failed", [])
    groups: dict[str, list[Any]] = {}
    for report in reports:
        reason = getattr(report, "imgedit_reason", None)
        if reason is not None:
            groups.setdefault(reason, []).append(report)
    later = {id(report) for group in groups.values() for report in group[1:]}
    if later:
        config.stash[_FOLDED] = reports, groups
        reporter.stats["failed"] = [report for report in reports if id(report) not in later]


def unfold(config: pytest.Config) -> Iterator[str]:
    """Give pytest all failures back, for its counts; yield a line for each reason that was
    folded.
    """
    if _FOLDED not in config.stash:
        return
    reports, groups = config.stash[_FOLDED]
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    reporter.stats["failed"] = reports
    for reason, group in groups.items():
        if len(group) > 1:
            first, *others = [report.nodeid.rpartition("[")[2].rstrip("]") for report in group]
            shown = ", ".join(others[:_NAMES_SHOWN])
            if len(others) > _NAMES_SHOWN:
                shown += ", …"
            yield f"{len(others)} more as {first}: {reason} ({shown})"
