"""Which items were selected, and whether each was reported: pytest-xdist can lose some when a worker crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Modes in which pytest-xdist 3.8 does not survive a crashed worker: it waits for ever, or loses its own count.
UNSAFE_MODES = ("loadgroup", "each")


class Tally:
    """A plugin that compares the items that were selected with those that pytest reports."""

    def __init__(self, expected: Sequence[str]) -> None:
        self._expected, self._seen = expected, set[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seen.add(report.nodeid)

    def missing(self) -> list[str]:
        """Node ids of selected items that were not reported."""
        return [name for name in self._expected if name not in self._seen]


def check_modes(option: Any) -> None:
    """Raise `UsageError` for ways to distribute items (`--dist`, `--tx`) in which some could get lost."""
    mode = getattr(option, "dist", "no")
    if mode in UNSAFE_MODES:
        raise UsageError(
            f"--dist={mode}: pytest-xdist hangs or fails in this mode when a worker crashes, "
            "expected load, worksteal, loadscope or loadfile"
        )
    for spec in getattr(option, "tx", None) or ():
        way = spec.rpartition("*")[2]
        if not way.startswith("popen") or "//via=" in way or "//socket" in way:
            raise UsageError(f"--tx={spec}: items read their results on this machine, expected popen")
