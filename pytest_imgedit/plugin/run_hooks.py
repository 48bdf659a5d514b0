"""The hooks of a run, as plugins and conftest files implement them."""

from __future__ import annotations

import pytest

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Edit, ItemError, SeedResult
from pytest_imgedit.run.hooks import HookStage, RunHooks
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.run import Run


class PluginHooks(RunHooks):
    """Passes what a run does on to pytest's hooks."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._hook = config, config.hook

    def before_stage(self, stage: HookStage, plan: RunPlan) -> None:
        self._hook.pytest_imgedit_before_stage(config=self._config, stage=stage, plan=plan)

    def after_stage(self, stage: HookStage, run: Run) -> None:
        self._hook.pytest_imgedit_after_stage(config=self._config, stage=stage, run=run)

    def item_edited(self, pair: EditPair, edit: Edit | None, error: ItemError | None) -> None:
        self._hook.pytest_imgedit_item_edited(
            config=self._config, pair=pair, edit=edit, error=error
        )

    def item_scored(self, pair: EditPair, result: SeedResult) -> None:
        self._hook.pytest_imgedit_item_scored(config=self._config, pair=pair, result=result)
