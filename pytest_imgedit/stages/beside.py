"""Scoring beside editing, where both models fit on the GPUs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from pytest_imgedit.stages.score import Feed

if TYPE_CHECKING:
    from pytest_imgedit.stages.flow import Flow
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.stages.score import Scorer
    from pytest_imgedit.workers.pool import Pool


class Beside:
    """A score stage in a thread, which judges edits while others are made.

    Its judge loads once all editors have loaded, so that two models never load on a GPU at once.
    """

    def __init__(self, flow: Flow, scorer: Scorer, pool: Pool, waiting: list[Work], edits: int) -> None:
        self.flow, self.scorer, self.pool, self.waiting = flow, scorer, pool, waiting
        self.total = len(waiting) + edits
        self.feed = Feed()
        self.error: BaseException | None = None
        self.works = list(waiting)
        self.started = time.perf_counter()
        self.editors: Pool | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def edited(self, work: Work) -> None:
        """Hear of an edit that is done or has failed; raises what the score stage ended with."""
        if self.error is not None:
            raise self.error
        if work.edit is not None and self.flow.take_stored_verdicts([work], self.scorer):
            self.works.append(work)
            self.feed.put(work)
        loading = self.editors is not None and any(
            worker.state in ("starting", "waiting", "loading") for worker in self.editors.workers
        )
        if not self.ran and not loading:
            self.flow.before_stage("score")
            self.started = time.perf_counter()
            self.thread.start()

    @property
    def ran(self) -> bool:
        """Tell whether the stage has begun."""
        return self.thread.ident is not None

    def abort(self) -> None:
        """Have the stage end after the batch that it is at; wait a moment for that."""
        if self.ran:
            self.feed.abort()
            self.thread.join(timeout=5)

    def close(self) -> None:
        """Say that no more edits come."""
        self.feed.close()

    def finish(self, ended: float) -> None:
        """Wait until all is judged; `ended` is when the last edit was done. Raises what the score stage ended with."""
        if not self.ran:
            return  # what there is to judge is judged after editing
        self.thread.join()
        if self.error is not None:
            raise self.error
        timing = self.flow.timing
        timing.score_s = max(0.0, time.perf_counter() - ended)
        timing.verdicts = sum(work.verdict is not None for work in self.works)
        self.flow.after_stage("score")

    def _run(self) -> None:
        progress = self.flow.progress
        try:
            with progress.stage("score", self.total):
                self.scorer.run(self.waiting, self.pool, lambda work: progress.advance("score", work), self.feed)
        except BaseException as error:
            self.error = error
