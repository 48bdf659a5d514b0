"""Which stored record stands for an edit or a verdict that is wanted here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_imgedit.core.environments import Environment, Reuse, best
from pytest_imgedit.models.closure import is_unchanged
from pytest_imgedit.store.records import EditRecord, VerdictRecord

R = TypeVar("R", EditRecord, VerdictRecord)


def reusable(records: Sequence[R], here: Environment, policy: Reuse, usable: Callable[[R], bool]) -> R | None:
    """Return the record to reuse: of those that the policy allows and that are `usable`, the one made most alike.

    `records` are those of one recipe. A record whose class had imported further modules counts only while these are
    unchanged.
    """
    left = list(records)
    while left:
        place = best([record.environment for record in left], here, policy)
        if place is None:
            return None
        record = left.pop(place)
        if usable(record) and is_unchanged(record.code):
            return record
    return None
