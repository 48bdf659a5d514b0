"""The tiers of this repository's tests, and what each test costs of the processor.

Tests marked `full` run with `--tier=full` (they alone) or `--tier=all`, and where a test is named.
`full_for(id, …)` marks a test with those parameters alone, `everyday_for(id, …)` with all others.
`IMGEDIT_PART` keeps a sixteenth of them, `0` to `15`, or `all`; with any other value none of them
runs. `--tier=quick` runs what needs no run of pytest, no process, no model and no browser: tests
that ask for none of these fixtures and are not marked `everyday`. `--cpu-budget` fails the session
where a test that is not marked `full` costs more.
"""

from __future__ import annotations

import os
import resource
import subprocess
import zlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

PARTS = 16
#: Fixtures by which a run of pytest, a model or a browser starts.
SLOW_FIXTURES = {"browser", "pytester", "pytorch", "tiny"}
COSTLIEST = 10
COST = "cpu_seconds"
#: Marks that name parameters of a test by their ids, and whether these are `full`, or the others.
NAMED_ARE_FULL = {"full_for": True, "everyday_for": False}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers of tests")
    group.addoption(
        "--tier",
        choices=("quick", "everyday", "full", "all"),
        default="everyday",
        help="tests to run",
    )
    group.addoption(
        "--cpu-budget", type=float, metavar="SECONDS", help="fail if an everyday test costs more"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: runs in the tier `full` only")
    config.addinivalue_line(
        "markers", "full_for(id, …): with these parameters, the test runs in the tier `full` only"
    )
    config.addinivalue_line(
        "markers",
        "everyday_for(id, …): with any other parameters, the test runs in the tier `full` only",
    )
    config.addinivalue_line("markers", "everyday: does not run in the tier `quick`")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs(config.getoption("--cpu-budget")), "costs")


def tier_of(item: pytest.Item) -> str:
    """Return the lowest tier that runs a test."""
    if item.get_closest_marker("full"):
        return "full"
    is_slow = SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    return "everyday" if is_slow or item.get_closest_marker("everyday") else "quick"


def is_selected(nodeid: str, lowest: str, tier: str, part: str) -> bool:
    """Tell whether a test whose lowest tier is known belongs to a tier and, if it is `full`, to a
    part, which is `0` to `15`, `all`, or the name of one without such tests.
    """
    if lowest != "full":
        return tier in (lowest, "everyday", "all")
    is_of_part = part in ("all", str(zlib.crc32(nodeid.encode()) % PARTS))
    return tier in ("full", "all") and is_of_part


def mark_full(items: Iterable[pytest.Item]) -> None:
    """Mark items `full` whose parameters are so by the mark `full_for` or `everyday_for`.

    Raises `UsageError` for an id in such a mark that no item of the test has.
    """
    unused: dict[tuple[str, str], set[str]] = {}
    for item in items:
        test, _, end = item.nodeid.partition("[")
        parameters = end.removesuffix("]")
        for name, named_are_full in NAMED_ARE_FULL.items():
            mark = item.get_closest_marker(name)
            if mark is None:
                continue
            unused.setdefault((name, test), set(mark.args)).discard(parameters)
            if (parameters in mark.args) == named_are_full:
                item.add_marker("full")
    stale = [
        f"{name} names no parameters of {test}: {sorted(ids)}"
        for (name, test), ids in unused.items()
        if ids
    ]
    if stale:
        raise pytest.UsageError("; ".join(stale))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if any("::" in argument for argument in config.args):
        return
    mark_full(items)
    tier, part = config.getoption("--tier"), os.environ.get("IMGEDIT_PART", "all")
    chosen = [item for item in items if is_selected(item.nodeid, tier_of(item), tier, part)]
    left_out = set(items).difference(chosen)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = chosen


def cpu_seconds() -> float:
    """User and system time of this process and of the children that it has reaped."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


STARTED = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note what the processor had done when the test began; what earlier tests have left running is
    not its own.
    """
    subprocess._cleanup()  # reaps processes that nobody waits for, which the next `Popen` would
    item.stash[STARTED] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note what the test cost, with the fixtures that it was the first to use.

    What ends with it is left out: the servers of a module's tests end with the last of them.
    """
    try:
        return (yield)
    finally:
        item.user_properties.append((COST, round(cpu_seconds() - item.stash[STARTED], 2)))


class Costs:
    """Lists the costliest tests at the end, and fails the session if one costs more than `most` CPU
    seconds.
    """

    def __init__(self, most: float | None) -> None:
        self.most = most
        self.seconds: dict[str, float] = {}
        self.full: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for cost in (float(str(value)) for name, value in report.user_properties if name == COST):
            self.seconds[report.nodeid] = cost
            if "full" in report.keywords:
                self.full.add(report.nodeid)

    @property
    def over_budget(self) -> dict[str, float]:
        if self.most is None:
            return {}
        budgeted = {name: self.seconds[name] for name in self.seconds.keys() - self.full}
        return {name: cost for name, cost in budgeted.items() if cost > self.most}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.over_budget and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.seconds) > COSTLIEST:
            terminalreporter.section(f"costliest tests, of {sum(self.seconds.values()):.0f} CPU s")
            for name, cost in sorted(self.seconds.items(), key=lambda pair: -pair[1])[:COSTLIEST]:
                terminalreporter.write_line(f"{cost:6.1f} s  {name}")
        for name, cost in self.over_budget.items():
            terminalreporter.write_line(
                f"ERROR: {name} took {cost:.1f} CPU s, {self.most:g} allowed", red=True
            )
