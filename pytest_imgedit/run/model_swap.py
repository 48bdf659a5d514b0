"""Who has the GPUs when: the judge after the editors, or scoring that overlaps editing."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_imgedit.core import errors
from pytest_imgedit.core.results import Timing
from pytest_imgedit.run.score import Feed
from pytest_imgedit.run.work import Judgement
from pytest_imgedit.workers.pool import Pool

#: Seconds that a stage that is aborted has for its current batch.
PATIENCE = 5.0


@dataclass
class Swap:
    """Hands the GPUs from the editors to the judge, and measures the time that this takes.

    The judge's processes start and import while edits are made, and read their weights into the
    page cache; they load when the editors are gone. `edits_ended` is when the last edit was done,
    `None` if none was made. With `stays`, both models stay loaded and nothing is handed over. With
    `keeps_editors`, the editors stay for later calls, where they take nothing from the judge.
    """

    judge: Pool
    clock: Callable[[], float]
    stays: bool = False
    keeps_editors: bool = False
    edits_ended: float | None = None

    @property
    def hands_over(self) -> bool:
        """Whether there were editors that have given their GPUs to the judge."""
        return self.edits_ended is not None and not (self.stays or self.keeps_editors)

    def release(self, editors: Pool) -> None:
        """End the editors after their last edit; their memory is free when this returns."""
        self.edits_ended = self.clock()
        if self.hands_over:
            editors.close()

    def judging_since(self, requested_at: float) -> float:
        """Return when judging began: the judge had loaded, and the last edit was done.

        Without an edit, the judge was requested at `requested_at`.
        """
        return max(first_loaded(self.judge), self.edits_ended or requested_at)

    def account(self, timing: Timing, requested_at: float, first_verdict: float) -> None:
        """Add the swap to the times of a run, and the time from the last edit to the first verdict,
        unless it has one; nothing if no edit was made.
        """
        if self.edits_ended is None:
            return
        timing.swaps += self.hands_over
        timing.swap_s += self.judging_since(requested_at) - self.edits_ended
        timing.first_verdict_s = timing.first_verdict_s or max(
            0.0, first_verdict - self.edits_ended
        )


def first_loaded(pool: Pool) -> float:
    """Return when the first worker of a pool had loaded, 0 if none has."""
    workers = pool.gone + pool.workers
    return min((worker.loaded_at for worker in workers if worker.loaded_at), default=0.0)


class Overlap:
    """A score stage in a thread, which judges edits while others are made.

    `score` runs the stage over the edits of a feed, and `before` is called before it. Unless the
    stage has begun by then, it begins once all editors have loaded, so that two models never load
    on a GPU at once.
    """

    def __init__(
        self, score: Callable[[Feed], None], before: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self._score = score
        self._before = before
        self._clock = clock
        self.feed = Feed()
        self.began_at = 0.0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def edited(self, judgements: Iterable[Judgement], editors: Pool) -> None:
        """Take judgements to make, and begin the stage if it has not begun and all editors have
        loaded; raises the error of the score stage, if it has failed. That of a judge that fails
        alike on everything waits for `finish`, so that planned edits are made.
        """
        if self.error is not None and not isinstance(self.error, errors.FailsAlike):
            raise self.error
        self.feed.judgements.extend(judgements)
        if not self.has_begun and all(
            worker.state not in ("starting", "waiting", "loading") for worker in editors.workers
        ):
            self.begin()

    def begin(self) -> None:
        """Load the judge, and judge the edits as they come."""
        self._before()
        self.began_at = self._clock()
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        """Whether the stage has begun."""
        return self._thread.ident is not None

    def finish(self) -> None:
        """Close the feed and wait until all edits are judged; raises the error of the score stage.

        A stage that has not begun leaves its edits to be judged after editing.
        """
        self.feed.is_open = False
        if self.has_begun:
            self._thread.join()
        if self.error is not None:
            raise self.error

    def abort(self) -> None:
        """End the stage after its current batch; wait up to `PATIENCE` for that."""
        self.feed.is_open = False
        self.feed.aborted = True
        if self.has_begun:
            self._thread.join(timeout=PATIENCE)

    def _run(self) -> None:
        try:
            self._score(self.feed)
        except BaseException as error:
            self.error = error
