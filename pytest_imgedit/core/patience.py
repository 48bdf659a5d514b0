"""Waiting no longer than one is willing to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise what it raises; raises `TimeoutError` if that takes
    longer.

    It is made in a thread that does not keep the process alive.
    """
    outcome: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()

    def attempt() -> None:
        try:
            outcome.put((call(), None))
        except Exception as error:
            outcome.put((None, error))

    threading.Thread(target=attempt, daemon=True).start()
    try:
        value, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return value
