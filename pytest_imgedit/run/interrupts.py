"""User hooks and signal handling; neither may lose finished work."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from pytest_imgedit.core.text import one_line
from pytest_imgedit.report.progress import RunProgress

#: Calls the users' hooks `pytest_imgedit_NAME`, given their name and keyword arguments, and returns
#: the list of what they return. Scoring that overlaps editing calls it from a separate thread.
CallHook = Callable[..., Any]


def no_hooks(name: str, /, **arguments: Any) -> list[Any]:
    """Call nothing: there are no users' hooks."""
    return []


#: How many failures of one hook are named; one that fails for one pair fails for many.
MOST_NAMED = 3


class GuardedHooks:
    """Calls hooks, which cannot stop the run: it reports in one line what one of them raises, also
    pytest.exit and SystemExit.

    `call` gives each hook a deadline once the run is to stop.
    """

    def __init__(
        self, hooks: CallHook, call: Callable[..., Any], report: Callable[[str], None]
    ) -> None:
        self._hooks = hooks
        self._call = call
        self._report = report
        self._failures: Counter[str] = Counter()

    def __call__(self, name: str, /, **arguments: Any) -> list[Any]:
        """Call a hook and return what its implementations return, nothing if one fails.

        The first `MOST_NAMED` failures of a hook are reported with their stage or the id of their
        pair. `KeyboardInterrupt` is raised.
        """
        try:
            return list(self._call(lambda: self._hooks(name, **arguments)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failures[name] += 1
            if self._failures[name] > MOST_NAMED:
                return []
            about = ""
            if "stage" in arguments:
                about = repr(arguments["stage"])
            elif "pair" in arguments:
                about = arguments["pair"].id
            self._report(
                f"pytest_imgedit_{name}({about}): {type(error).__name__}: {one_line(error)}"
            )
            return []

    def further_failures(self) -> list[str]:
        """Return a line per hook with failures that were not reported: their number."""
        return [
            f"pytest_imgedit_{name}: failed {count - MOST_NAMED} more times"
            for name, count in self._failures.items()
            if count > MOST_NAMED
        ]


#: Ctrl-C, and what Slurm, Kubernetes, `timeout` and a terminal that goes away send.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds that all hooks together have after a stop is requested: results are to be written before
#: SIGKILL comes.
HOOK_GRACE = 5.0


class TimedOut(BaseException):
    """Ends a hook that takes too long after a stop; no hook catches it by mistake."""


class Interrupts:
    """Handles signals during a run, in the main thread; SIGHUP stays ignored under `nohup`.

    Before the run is `working` there is nothing to save, and the first signal raises
    `KeyboardInterrupt`. Later, the first one sets `progress.stopping`, and the second one raises.
    """

    def __init__(self, progress: RunProgress) -> None:
        self.progress = progress
        self.working = False
        self._previous: dict[signal.Signals, Any] = {}
        self._hook_is_on = False
        self._remaining = HOOK_GRACE
        self._alarm_since: float | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        """Handle a signal: the first one while the run is working only asks it to stop, so that
        nothing is raised in the middle of a write; any other raises `KeyboardInterrupt`.
        """
        if self.progress.stopping or not self.working:
            raise KeyboardInterrupt
        self.progress.stopping = True
        self.progress.note(
            "stopping: running jobs have 10 s to finish; Ctrl-C again to stop at once"
        )
        if self._hook_is_on:
            self._set_alarm()

    def call(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a user's hook and return its result.

        After a stop is requested, hooks have `HOOK_GRACE` seconds in all. At their end, `TimedOut`
        is raised in the running hook, and instead of each later call. In the main thread that ends
        a hook that waits or runs Python; a hook that another thread calls is abandoned.
        """
        if self.progress.stopping and self._remaining <= 0:
            raise TimedOut("not called, as the run was stopped and hooks before it took too long")
        if threading.current_thread() is not threading.main_thread():
            return self._call_in_thread(hook, *arguments)
        previous = signal.getsignal(signal.SIGALRM)
        self._hook_is_on = True
        try:
            if self.progress.stopping:
                self._set_alarm()
            return hook(*arguments)
        finally:
            self._hook_is_on = False
            if self._alarm_since is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, previous)
                self._remaining -= time.monotonic() - self._alarm_since
                self._alarm_since = None

    def _set_alarm(self) -> None:
        self._alarm_since = time.monotonic()
        signal.signal(signal.SIGALRM, self._end_hook)
        again_after = 1.0  # for a hook that catches the first `TimedOut`
        signal.setitimer(signal.ITIMER_REAL, self._remaining, again_after)

    def _end_hook(self, *_: object) -> None:
        if self._hook_is_on:
            raise TimedOut(f"still running {HOOK_GRACE:g} s after the stop")

    def _call_in_thread(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a hook in another thread, as no signal reaches the one that calls.

        Raises what the hook raises, or `TimedOut` once the time after a stop is used up.
        """
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(hook(*arguments))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        while not future.done():
            since = time.monotonic()
            is_stopping = self.progress.stopping
            wait([future], timeout=0.1)
            if is_stopping:
                self._remaining -= time.monotonic() - since
            if self._remaining <= 0 and not future.done():
                raise TimedOut(f"still running {HOOK_GRACE:g} s after the stop")
        return future.result()
