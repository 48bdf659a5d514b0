"""The swap: the editors give their GPUs back, and the judge takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_imgedit.core.results import Timing
from pytest_imgedit.workers.pool import Pool


@dataclass
class Swap:
    """Hands the GPUs from editors to the judge, and keeps the time that this takes.

    The judge's processes start and import while edits are made, and read their weights into the page cache; they load
    when the editors are gone. `edits_ended` is when the last edit was done, `None` if none was made. With `stays` both
    models stay loaded, so that nothing is handed over; with `keeps_editors` the editors stay for later calls, where
    they take nothing from the judge.
    """

    judge: Pool
    clock: Callable[[], float]
    stays: bool = False
    keeps_editors: bool = False
    edits_ended: float | None = None

    @property
    def hands_over(self) -> bool:
        """Whether editors were there that have given their GPUs to the judge."""
        return self.edits_ended is not None and not (self.stays or self.keeps_editors)

    def prefetch(self, verdicts: int) -> None:
        """Start the judge's processes beside the editors', for so many verdicts."""
        self.judge.start(verdicts)

    def watch(self) -> None:
        """Find a judge that cannot start now, not after the last edit; raises `UsageError`."""
        self.judge.poll()

    def release(self, editors: Pool) -> None:
        """End the editors after their last edit; their memory is free when this returns."""
        self.edits_ended = self.clock()
        if not (self.stays or self.keeps_editors):
            editors.close()

    def judging_since(self, asked_at: float) -> float:
        """Return when the judge was loaded, which was asked at a time: not before the last edit."""
        return max(first_loaded(self.judge), self.edits_ended or asked_at)

    def account(self, timing: Timing, asked_at: float, first_verdict: float) -> None:
        """Add the swap to the times of a run, if there was one."""
        if self.edits_ended is None:
            return
        timing.swaps += self.hands_over
        timing.swap_s += self.judging_since(asked_at) - self.edits_ended
        timing.first_verdict_s = timing.first_verdict_s or max(0.0, first_verdict - self.edits_ended)


def first_loaded(pool: Pool) -> float:
    """Return when the first worker of a pool was loaded, 0 if none was."""
    return min((worker.loaded_at for worker in (*pool.gone, *pool.workers) if worker.loaded_at), default=0.0)
