"""Signals that stop a run: what is being done has a moment to finish and is kept, unless they come twice."""

from __future__ import annotations

import signal
import threading
from typing import Any

from pytest_imgedit.engine.run import Progress

#: Ctrl-C, and what Slurm, Kubernetes, `timeout` and a terminal that goes away send.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Handles signals while a run is on, in the main thread; `nohup` goes on being obeyed.

    Before the run is `working` there is nothing to save, so that the first one raises `KeyboardInterrupt`; later, the
    first one sets `progress.stopping` and the second one raises.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress, self.working = progress, False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            taken = [number for number in STOPS if number != signal.SIGHUP or not ignored]
            self._previous = {number: signal.signal(number, self._stop) for number in taken}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        """Handle a signal without raising in the middle of a write."""
        if self.progress.stopping or not self.working:
            raise KeyboardInterrupt
        self.progress.stopping = True
        self.progress.note("stopping: running jobs have 10 s to finish; Ctrl-C again to stop at once")
