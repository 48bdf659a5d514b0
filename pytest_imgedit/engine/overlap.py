"""Scoring that overlaps editing, where both models fit on the GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pytest_imgedit.engine.score_stage import Feed
from pytest_imgedit.engine.work import Work
from pytest_imgedit.workers.pool import Pool


class Overlap:
    """A score stage in a thread, which judges edits while others are made.

    `score` runs it over what comes through a feed, and `before` is called before. Unless it was begun, the judge loads
    once all editors have loaded, so that two models never load on a GPU at once.
    """

    def __init__(self, score: Callable[[Feed], None], before: Callable[[], None], clock: Callable[[], float]) -> None:
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
        loading = any(worker.state in ("starting", "waiting", "loading") for worker in editors.workers)
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
        """Say that no more edits come, and wait until all are judged; raises what the score stage ended with."""
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
