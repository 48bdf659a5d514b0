"""Hooks that users of the plugin can implement in a conftest or a plugin of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_imgedit.core.pairs import EditPair
    from pytest_imgedit.core.results import Edit, ItemError, Results, SeedResult
    from pytest_imgedit.run.plan import RunPlan
    from pytest_imgedit.run.run import Run


@pytest.hookspec(firstresult=True)
def pytest_imgedit_editor(config: pytest.Config, spec: str) -> str | None:
    """Called once while options are checked: return `package.module:Class` for an editor spec of
    your own.
    """


@pytest.hookspec(firstresult=True)
def pytest_imgedit_judge(config: pytest.Config, spec: str) -> str | None:
    """Called once while options are checked: return `package.module:Class` for a judge spec of your
    own.
    """


def pytest_imgedit_before_stage(config: pytest.Config, stage: str, plan: RunPlan) -> None:
    """Called before workers get the first job of stage `edit` or `score`, and before the judge
    loads in stage `swap`.

    It is not called for a stage with nothing to do, and not for `swap` where both models stay
    loaded. `plan.works` are all repetitions of all pairs, each with its `pair` and, as far as they
    are there, `edit`, `verdict` and `error`. With `--imgedit-until=decided` this is called before
    every block, and `pytest_imgedit_after_stage` after it.
    """


def pytest_imgedit_after_stage(config: pytest.Config, stage: str, run: Run) -> None:
    """Called when all jobs of stage `edit` or `score` are done and stored, or a judge has loaded
    (`swap`).

    `run.plan` is what `pytest_imgedit_before_stage` is given, `run.timing` holds the times so far.
    """


def pytest_imgedit_item_edited(
    config: pytest.Config, pair: EditPair, edit: Edit | None, error: ItemError | None
) -> None:
    """Called when an edit was made and stored, or has failed: `edit` is `None` then, and `error`
    says why.

    It is not called for edits that an earlier run has made.
    """


def pytest_imgedit_item_scored(config: pytest.Config, pair: EditPair, result: SeedResult) -> None:
    """Called when an edit was scored, or its scoring has failed; `result` has its edit, and its
    verdict or error.

    It is not called for verdicts that an earlier run has reached. Where scoring runs beside
    editing, it is called from another thread than `pytest_imgedit_item_edited`.
    """


def pytest_imgedit_run_finished(config: pytest.Config, results: Results, store: Path) -> str | None:
    """Called once with the results, when they and the reports are written; `store` is the store's
    folder.

    A text that it returns is shown as a warning below the outcome, which stays as it is.
    """


def pytest_imgedit_report_section(
    config: pytest.Config, results: Results
) -> tuple[str, str] | None:
    """Called once with the results, before reports are written: return (title, plain text) to
    add.
    """
