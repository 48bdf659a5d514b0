"""Runs pytest in the test's own process.

A conftest that changes modules of the package would change them for good, so such a test needs a
subprocess.
"""

from __future__ import annotations

import gc
import io
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Self

import pytest
from _pytest.pytester import SysModulesSnapshot, SysPathsSnapshot
from worker_threads import ThreadExecutor

if TYPE_CHECKING:
    from pathlib import Path


#: Options for pytest in a test: other packages' plugins cost half a second of each run, for nothing.
WITHOUT_OTHERS = ("-p", "no:hypothesispytest", "-p", "no:anyio")


class KeptImports:
    """Keeps the modules of libraries that a run in this process has imported: pytester forgets them
    after each run.

    What was imported from the test's `folder` is forgotten, as the next test has another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder.resolve())
        self.modules: dict[str, Any] = {}

    def __enter__(self) -> Self:
        gc.freeze()  # pytest collects garbage five times at a session's end, which takes long where PyTorch is imported
        return self

    def __exit__(self, *exc_info: object) -> None:
        gc.unfreeze()
        for name, module in self.modules.items():
            if not str(getattr(module, "__file__", None) or "").startswith(self.folder):
                sys.modules.setdefault(name, module)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self.modules = dict(sys.modules)


def run_here(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest to its end, with worker processes."""
    with KeptImports(pytester.path) as kept:
        result = pytester.runpytest_inprocess(*arguments, plugins=[kept])
    # pytester's own end restores this; PyTorch cannot be imported twice
    pytester._sys_modules_snapshot = SysModulesSnapshot()
    return result


def run_with_threads(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest to its end, with threads for worker processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
        return run_here(pytester, *arguments)


def run_in(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest in the folder of a fixture that outlives a test, with threads for workers.

    Return the exit code and what was printed.
    """
    modules, paths = SysModulesSnapshot(), SysPathsSnapshot()
    with (
        KeptImports(folder) as kept,
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as printed,
    ):
        patch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
        patch.chdir(folder)
        try:
            code = pytest.main([*WITHOUT_OTHERS, *arguments], plugins=[kept])
        finally:
            paths.restore()
            modules.restore()
    return int(code), printed.getvalue()
