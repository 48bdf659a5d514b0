"""Runs pytest in the test's own process."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
from worker_threads import ThreadExecutor

if TYPE_CHECKING:
    from pathlib import Path


class KeptImports:
    """Keeps the modules of libraries that a run in this process has imported: pytester forgets them after each run.

    What was imported from the test's `folder` is forgotten, as the next test has another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.modules: dict[str, Any] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self.modules = dict(sys.modules)

    def put_back(self) -> None:
        for name, module in self.modules.items():
            if not str(getattr(module, "__file__", None) or "").startswith(self.folder):
                sys.modules.setdefault(name, module)


def run_here(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest to its end, with worker processes."""
    kept = KeptImports(pytester.path)
    gc.freeze()  # pytest collects garbage five times at a session's end, which takes long where PyTorch is imported
    try:
        return pytester.runpytest_inprocess(*arguments, plugins=[kept])
    finally:
        kept.put_back()
        gc.unfreeze()


def run_with_threads(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest to its end, with threads for worker processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_imgedit.engine.launch.LocalExecutor", ThreadExecutor)
        return run_here(pytester, *arguments)
