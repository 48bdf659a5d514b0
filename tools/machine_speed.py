"""How fast this machine computes, beside the one that budgets of CPU time are meant for.

A processor that is shared with other machines may take more than twice the CPU seconds for the same
tests, and its speed changes by the minute. A fixed piece of work, timed every few seconds while the
tests run, tells what a CPU second is worth.
"""

from __future__ import annotations

import json
import statistics
import threading
import time

REFERENCE_SECONDS = 0.1
SECONDS_BETWEEN = 5.0


class MachineSpeed:
    """Times the work in a thread of its own, from `start` to `stop`."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def slowness(self) -> float:
        """CPU time that work takes here over what it takes on the reference; above 1 is slower."""
        return statistics.mean(self._seconds) / REFERENCE_SECONDS

    def _measure(self) -> None:
        while not self._seconds or not self._ended.wait(SECONDS_BETWEEN):
            started = time.thread_time()
            _work()
            self._seconds.append(time.thread_time() - started)


def _work() -> None:
    """Make objects and text, as most tests do; sums in a loop would stay within the first cache."""
    rows = [{"name": f"pair-{number}", "scores": [number] * 3} for number in range(20_000)]
    json.loads(json.dumps(rows))
