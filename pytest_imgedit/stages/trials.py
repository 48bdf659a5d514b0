"""Further verdicts that a run was asked for, to try its judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_imgedit.stages.controls import plan_controls
from pytest_imgedit.stages.repeats import plan_repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.models.identity import Identity
    from pytest_imgedit.models.kinds import Model
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.suites.base import Suite


@dataclass(frozen=True)
class Trials:
    """Edits of known worth by control, and the run's own edits to be judged again."""

    controls: dict[str, list[Work]] = field(default_factory=dict)
    repeats: list[Work] = field(default_factory=list)

    @property
    def works(self) -> list[Work]:
        return [*(work for works in self.controls.values() for work in works), *self.repeats]

    @property
    def left(self) -> int:
        """How many were cut off when the run was stopped."""
        return sum(work.verdict is None and work.error is None for work in self.works)


def plan_trials(
    settings: Settings,
    suite: Suite,
    pairs: Sequence[EditPair],
    plan: Sequence[Work],
    store: Store,
    judge: Identity,
    identify: Callable[[Model], Identity],
) -> Trials:
    """Plan the controls and repeats that the settings ask for; stage `report` makes no edits for them."""
    make = settings.run.stage != "report"
    return Trials(
        plan_controls(suite, pairs, store, identify, settings.run.reuse, make) if settings.tries_judge else {},
        plan_repeats(plan, settings.judge.repeats, has_order=not judge.model.measures),
    )
