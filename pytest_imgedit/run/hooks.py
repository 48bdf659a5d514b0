"""Hooks of users and signals: neither loses what is finished."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, Protocol, TypeVar

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Edit, ItemError, SeedResult
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.run.work import Work
from pytest_imgedit.workers.pool import Watcher

HookStage = Literal["edit", "swap", "score"]


class Progress(Watcher, Protocol):
    """Shows a run to the user and writes its log; also watches the pools."""

    stopping: bool

    def stage(self, name: str, total: int) -> AbstractContextManager[None]: ...

    def advance(self, stage: str, work: Work) -> None: ...


class RunHooks:
    """What a run calls of its users, which here does nothing. Scoring beside editing calls from a
    thread of its own.

    `plan` is a `RunPlan`, and `run` a `Run`.
    """

    def before_stage(self, stage: HookStage, plan: Any) -> None: ...

    def after_stage(self, stage: HookStage, run: Any) -> None: ...

    def item_edited(self, pair: EditPair, edit: Edit | None, error: ItemError | None) -> None: ...

    def item_scored(self, pair: EditPair, result: SeedResult) -> None: ...


#: Failures of one hook that are told; one that fails for one pair fails for many.
MOST = 3


class Guard:
    """Calls hooks, and tells in one line what one of them raises, pytest.exit and SystemExit too.

    `call` is what calls them, with a deadline once the run is to stop.
    """

    def __init__(self, tell: Callable[[str], None], call: Callable[..., Any]) -> None:
        self._tell, self._call = tell, call
        self._failures: dict[str, int] = {}

    def __call__(self, name: str, about: str, hook: Callable[..., None], *arguments: Any) -> None:
        """Call a hook; `about` says for what, such as a stage or a pair."""
        try:
            self._call(hook, *arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            count = self._failures[name] = self._failures.get(name, 0) + 1
            if count <= MOST:
                self._tell(f"{name}({about}): {type(error).__name__}: {one_line(error)}")


class GuardedHooks(RunHooks):
    """Hooks of a run that cannot stop it."""

    def __init__(self, hooks: RunHooks, guard: Guard) -> None:
        self._hooks, self._guard = hooks, guard

    def before_stage(self, stage: HookStage, plan: Any) -> None:
        self._guard(
            "pytest_imgedit_before_stage", repr(stage), self._hooks.before_stage, stage, plan
        )

    def after_stage(self, stage: HookStage, run: Any) -> None:
        self._guard("pytest_imgedit_after_stage", repr(stage), self._hooks.after_stage, stage, run)

    def item_edited(self, pair: EditPair, edit: Edit | None, error: ItemError | None) -> None:
        self._guard(
            "pytest_imgedit_item_edited", pair.id, self._hooks.item_edited, pair, edit, error
        )

    def item_scored(self, pair: EditPair, result: SeedResult) -> None:
        self._guard("pytest_imgedit_item_scored", pair.id, self._hooks.item_scored, pair, result)


T = TypeVar("T")
#: Ctrl-C, and what Slurm, Kubernetes, `timeout` and a terminal that goes away send.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds that hooks have, all together, once a stop is asked for: results are to be written before
#: SIGKILL comes.
HOOK_GRACE = 5.0


class TimedOut(BaseException):
    """Ends a hook that goes on for too long after a stop; no hook catches it by mistake."""


class Interrupts:
    """Handles signals while a run is on, in the main thread; `nohup` goes on being obeyed.

    Before the run is `working` there is nothing to save, so that the first one raises
    `KeyboardInterrupt`; later, the first one sets `progress.stopping` and the second one raises.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress, self.working = progress, False
        self._previous: dict[signal.Signals, Any] = {}
        self._hook_is_on, self._left = False, HOOK_GRACE
        self._alarm_since: float | None = None

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
        self.progress.note(
            "stopping: running jobs have 10 s to finish; Ctrl-C again to stop at once"
        )
        if self._hook_is_on:
            self._set_alarm()

    def call(self, hook: Callable[..., T], *arguments: Any) -> T:
        """Call a hook of the user's and return what it returns.

        Once a stop is asked for, hooks have `HOOK_GRACE` seconds in all; raises `TimedOut` in a
        hook at their end, and in place of each later one. In the main thread that ends what waits
        or runs Python; a hook that another thread calls is left to itself.
        """
        if self.progress.stopping and self._left <= 0:
            raise TimedOut("not called, as the run was stopped and hooks before it took too long")
        if threading.current_thread() is threading.main_thread():
            with self._alarm():
                return hook(*arguments)
        return self._call_beside(hook, *arguments)

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        previous = signal.getsignal(signal.SIGALRM)
        self._hook_is_on = True
        try:
            if self.progress.stopping:
                self._set_alarm()
            yield
        finally:
            self._hook_is_on = False
            if self._alarm_since is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, previous)
                self._left -= time.monotonic() - self._alarm_since
                self._alarm_since = None

    def _set_alarm(self) -> None:
        self._alarm_since = time.monotonic()
        signal.signal(signal.SIGALRM, self._end_hook)
        signal.setitimer(signal.ITIMER_REAL, self._left, 1.0)

    def _end_hook(self, *_: object) -> None:
        if self._hook_is_on:
            raise TimedOut(f"still running {HOOK_GRACE:g} s after the stop")

    def _call_beside(self, hook: Callable[..., T], *arguments: Any) -> T:
        """Call a hook in a thread of its own, as no signal reaches the one that calls."""
        returned: list[T] = []
        raised: list[BaseException] = []

        def run() -> None:
            try:
                returned.append(hook(*arguments))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive():
            since, counts = time.monotonic(), self.progress.stopping
            thread.join(0.1)
            if counts:
                self._left -= time.monotonic() - since
            if self._left <= 0 and thread.is_alive():
                raise TimedOut(f"still running {HOOK_GRACE:g} s after the stop")
        if raised:
            raise raised[0]
        return returned[0]
