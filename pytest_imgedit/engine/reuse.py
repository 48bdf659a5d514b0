"""Which stored record stands for an edit or a verdict that is wanted here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_imgedit.core.environments import Environment, Reuse
from pytest_imgedit.kinds.closure import is_unchanged
from pytest_imgedit.store.records import EditRecord, VerdictRecord

R = TypeVar("R", EditRecord, VerdictRecord)


def reusable(records: Sequence[R], here: Environment, policy: Reuse, usable: Callable[[R], bool]) -> R | None:
    """Return the record to reuse: of those that the policy allows and that are `usable`, the one made most alike.

    `records` are those of one recipe, the oldest first; of equals the newest counts. A record whose class had imported
    further modules counts only while these are unchanged.
    """
    allowed = [record for record in reversed(records) if record.environment.serves(here, policy)]
    allowed.sort(key=lambda record: len(record.environment.differences(here)))
    return next((record for record in allowed if usable(record) and is_unchanged(record.code)), None)
