"""Hooks of users, whose failures are told and stop nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Edit, ItemError, SeedResult
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.engine.plan import RunPlan
from pytest_imgedit.engine.run import HookStage, Run, RunHooks

#: Failures of one hook that are told; one that fails for one pair fails for many.
MOST = 3


class Guard:
    """Calls hooks, and tells in one line what one of them raises, pytest.exit and SystemExit too.

    `call` is what calls them, with a deadline once the run is to stop.
    """

    def __init__(self, tell: Callable[[str], None], call: Callable[..., Any]) -> None:
        self._tell, self._call = tell, call
        self._failures: dict[str, int] = {}

    def __call__(self, name: str, about: str, hook: Callable[..., None], *arguments: Any) -> None:
        """Call a hook; `about` says for what, such as a stage or a pair."""
        try:
            self._call(hook, *arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            count = self._failures[name] = self._failures.get(name, 0) + 1
            if count <= MOST:
                self._tell(f"{name}({about}): {type(error).__name__}: {one_line(error)}")


class GuardedHooks(RunHooks):
    """Hooks of a run that cannot stop it."""

    def __init__(self, hooks: RunHooks, guard: Guard) -> None:
        self._hooks, self._guard = hooks, guard

    def before_stage(self, stage: HookStage, plan: RunPlan) -> None:
        self._guard("pytest_imgedit_before_stage", repr(stage), self._hooks.before_stage, stage, plan)

    def after_stage(self, stage: HookStage, run: Run) -> None:
        self._guard("pytest_imgedit_after_stage", repr(stage), self._hooks.after_stage, stage, run)

    def item_edited(self, pair: EditPair, edit: Edit | None, error: ItemError | None) -> None:
        self._guard("pytest_imgedit_item_edited", pair.id, self._hooks.item_edited, pair, edit, error)

    def item_scored(self, pair: EditPair, result: SeedResult) -> None:
        self._guard("pytest_imgedit_item_scored", pair.id, self._hooks.item_scored, pair, result)
