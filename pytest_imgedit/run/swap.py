"""Who has the GPUs when: the judge after the editors, or scoring that overlaps editing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_imgedit.core.results import Timing
from pytest_imgedit.run.score import Feed
from pytest_imgedit.run.work import Work
from pytest_imgedit.workers.pool import Pool


@dataclass
class Swap:
    """Hands the GPUs from editors to the judge, and keeps the time that this takes.

    The judge's processes start and import while edits are made, and read their weights into the
    page cache; they load when the editors are gone. `edits_ended` is when the last edit was done,
    `None` if none was made. With `stays` both models stay loaded, so that nothing is handed over;
    with `keeps_editors` the editors stay for later calls, where they take nothing from the judge.
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
        timing.first_verdict_s = timing.first_verdict_s or max(
            0.0, first_verdict - self.edits_ended
        )


def first_loaded(pool: Pool) -> float:
    """Return when the first worker of a pool was loaded, 0 if none was."""
    return min(
        (worker.loaded_at for worker in (*pool.gone, *pool.workers) if worker.loaded_at),
        default=0.0,
    )


class Overlap:
    """A score stage in a thread, which judges edits while others are made.

    `score` runs it over what comes through a feed, and `before` is called before. Unless it was
    begun, the judge loads once all editors have loaded, so that two models never load on a GPU at
    once.
    """

    def __init__(
        self, score: Callable[[Feed], None], before: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self._score, self._before, self._clock = score, before, clock
        self.feed = Feed()
        self.began_at = 0.0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def edited(self, works: Iterable[Work], editors: Pool) -> None:
        """Take edits that are to be judged; raises what the score stage ended with."""
        if self.error is not None:
            raise self.error
        for work in works:
            self.feed.put(work)
        loading = any(
            worker.state in ("starting", "waiting", "loading") for worker in editors.workers
        )
        if not self.has_begun and not loading:
            self.begin()

    def begin(self) -> None:
        """Have the judge load, and judge what comes."""
        self._before()
        self.began_at = self._clock()
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        """Tell whether the stage has begun."""
        return self._thread.ident is not None

    def finish(self) -> None:
        """Say that no more edits come, and wait until all are judged; raises what the score stage
        ended with.
        """
        self.feed.close()
        if not self.has_begun:
            return  # what there is to judge is judged after editing
        self._thread.join()
        if self.error is not None:
            raise self.error

    def abort(self) -> None:
        """Have the stage end after the batch that it is at; wait a moment for that."""
        self.feed.abort()
        if self.has_begun:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            self._score(self.feed)
        except BaseException as error:
            self.error = error
