"""Finds every process that a test's benchmark has left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def left(bench, monkeypatch) -> Callable[[], list[psutil.Process]]:
    """Call it for all living processes that this test's benchmark started, directly or not.

    They are known by a variable in their environment.
    """
    monkeypatch.setenv("MARK", str(bench.path))

    def find() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get("MARK") == str(bench.path)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    return find
