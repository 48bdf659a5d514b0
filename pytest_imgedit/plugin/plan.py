"""What the selected items want of a run, in words that pytest-xdist's workers can pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: The fixtures that call workers.
CALLS = ("edit_workers", "reward_model")


@dataclass(frozen=True)
class Plan:
    """What the selected items want: node ids of `items`, the `ids` of their pairs, and pairs that
    marks have `skipped`.

    `others` are the ids of selected pairs of other shards. `calls` are those of `CALLS` that items
    request. `near` is the folder for which the config was looked up; `problem` says why items could
    not be made.
    """

    items: Sequence[str] = ()
    ids: Sequence[str] = ()
    others: Sequence[str] = ()
    skipped: Sequence[str] = ()
    calls: Sequence[str] = ()
    near: str = ""
    problem: str | None = None
