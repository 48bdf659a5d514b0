"""The circuit breaker of a stage: calls that fail alike, one after the other, end it."""

import re

from pytest_imgedit.core import errors
from pytest_imgedit.core.requests import Answer
from pytest_imgedit.core.text import shorten

#: This many results in a row, of any worker, end a stage if they are failures and alike.
MOST_ALIKE = 16
#: Kinds of failures that speak against an editor or judge, and not against a pair or a machine.
COUNTED = {"exception", "degenerate_output", "worker_died", "no_worker", "final"}
#: What differs between failures of one cause: quoted texts, and words with digits or slashes.
_QUOTED = re.compile("'[^']*'" + '|"[^"]*"')
_PARTICULAR = re.compile(r"[\d/\\]")


class Breaker:
    """Counts failures of the `calls` of a stage, such as "edits", without another result between
    them.

    They are alike if their kinds are, and their messages but for quoted texts, numbers, ids with
    digits and paths. A refusal, a timeout, an image that cannot be read and memory that ran out
    are other results. So is a process that SIGKILL has ended, as the system does when memory runs
    out.
    """

    def __init__(self, calls: str) -> None:
        self.calls = calls
        self.count = 0
        #: How many rows of failures have begun.
        self.rows = 0
        self.message = ""
        self._last: list[str] = []

    @property
    def may_trip(self) -> bool:
        """Whether half of the failures that end the stage have come."""
        return self.count >= MOST_ALIKE // 2

    def worked(self, rows: int | None = None) -> None:
        """Take a result that is no failure, of a call that began after so many `rows`, by default
        after all: one that began before a row says nothing about what fails since.
        """
        if rows is None or rows == self.rows:
            self.count = 0

    def failed(self, kind: str, message: str) -> None:
        """Take the failure of a call that has not failed before.

        Retries do not count: they come last, when no success can come between them.
        """
        failure = _essence(kind, message)
        if failure != self._last:
            self.count = 0
        if kind in COUNTED and not (kind == "worker_died" and "SIGKILL" in message):
            self.rows += self.count == 0
            self.count += 1
        self._last = failure
        self.message = message

    def answered(self, answer: Answer, rows: int | None = None) -> None:
        """Take an answer: it is a failure if every further question would fail as it did; `rows`
        are those of `worked`.
        """
        if answer.final:
            self.failed("final", answer.error or "")
        else:
            self.worked(rows)

    @property
    def has_tripped(self) -> bool:
        """Whether the row is long enough to end the stage."""
        return self.count >= MOST_ALIKE

    def check(self) -> None:
        """Raise `FailsAlike` if the row is long enough to end the stage."""
        if self.has_tripped:
            raise errors.FailsAlike(
                f"{shorten(self.message, 300)} ({MOST_ALIKE} {self.calls} in a row failed alike)"
            )


def _essence(kind: str, message: str) -> list[str]:
    """Return what failures of one cause have in common: the kind, and words that are not particular
    to one of them.
    """
    words = _QUOTED.sub("", message).split()
    return [kind] + [word for word in words if not _PARTICULAR.search(word)]
