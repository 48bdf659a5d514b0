"""Hooks that users of the plugin can implement in a conftest or a plugin of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_imgedit.core.results import Results


@pytest.hookspec(firstresult=True)
def pytest_imgedit_editor(config: pytest.Config, spec: str) -> str | None:
    """Called once while options are checked: return `package.module:Class` for an editor spec of your own."""


@pytest.hookspec(firstresult=True)
def pytest_imgedit_judge(config: pytest.Config, spec: str) -> str | None:
    """Called once while options are checked: return `package.module:Class` for a judge spec of your own."""


def pytest_imgedit_before_stage(config: pytest.Config, stage: str) -> None:
    """Called before workers get the first job of stage `edit` or `score`; not for a stage with nothing to do.

    With `--imgedit-until=decided` that is before every block, and `pytest_imgedit_after_stage` after it.
    """


def pytest_imgedit_after_stage(config: pytest.Config, stage: str) -> None:
    """Called when all jobs of stage `edit` or `score` are done and stored."""


def pytest_imgedit_report_section(config: pytest.Config, results: Results) -> tuple[str, str] | None:
    """Called once with the results, before reports are written: return (title, plain text) to add."""
