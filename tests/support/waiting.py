"""Waits until something happens, where a test has nothing better to wait for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which a test gives up an event that an idle machine shows in a few, so that no busy
#: one fails it.
PATIENCE = 120


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
