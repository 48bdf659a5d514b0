"""Further verdicts that a run was asked for, to try its judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.engine.judge_checks.controls import plan_controls
from pytest_imgedit.engine.judge_checks.retest import plan_repeats
from pytest_imgedit.engine.plan import RunPlan
from pytest_imgedit.engine.work import Work


@dataclass(frozen=True)
class Trials:
    """Edits of known quality by control, and the run's own edits to be judged again."""

    controls: dict[str, list[Work]] = field(default_factory=dict)
    repeats: list[Work] = field(default_factory=list)

    @property
    def works(self) -> list[Work]:
        return [*(work for works in self.controls.values() for work in works), *self.repeats]

    @property
    def left(self) -> int:
        """How many were cut off when the run was stopped."""
        return sum(work.verdict is None and work.error is None for work in self.works)


def plan_trials(plan: RunPlan, pairs: Sequence[EditPair]) -> Trials:
    """Plan the controls, for a sample of pairs, and the repeats that a run asks for; stage `report` makes no edits."""
    settings, judge = plan.settings, plan.judge
    if judge is None:
        return Trials()
    repeats = plan_repeats(plan.works, settings.judge.repeats, has_order=not judge.model.measures)
    return Trials(plan_controls(plan, pairs) if settings.tries_judge else {}, repeats)
