"""One run: the stages that a plan asks for, with everything finished kept as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import SeedResult, Stage, Timing
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.run.blocks import Blocks
from pytest_imgedit.run.controls import Trials, plan_controls, plan_repeats
from pytest_imgedit.run.edit import EditStage
from pytest_imgedit.run.hooks import Progress, RunHooks
from pytest_imgedit.run.placement import Placement, place
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.score import Feed, Scorer, ScoreStage
from pytest_imgedit.run.swap import Overlap, Swap, first_loaded
from pytest_imgedit.run.work import Work, missing_edits
from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.gpus import BusyMeter
from pytest_imgedit.workers.pool import Pool

TRYING = "try the judge"


@dataclass(frozen=True)
class Surroundings:
    """What a run works with: pools of workers by role, whom it tells, hooks of its users, and its
    clock in seconds.

    `give_back` takes a pool that the run does not need any more; it may go on if its role is one
    that it `keeps`.
    """

    launch: Callable[[Role], Pool]
    progress: Progress
    hooks: RunHooks
    clock: Callable[[], float] = time.perf_counter
    give_back: Callable[[Role, Pool], None] = lambda role, pool: pool.close()
    keeps: Collection[Role] = ()


class Run:
    """Takes the works of a plan through the stages; keeps times, and which workers did what.

    Every work ends with a verdict or an error, unless the run is stopped. `trials` are `None` until
    edits and verdicts are done.
    """

    def __init__(self, plan: RunPlan, surroundings: Surroundings) -> None:
        self.plan, self.around = plan, surroundings
        self.progress, self.clock = surroundings.progress, surroundings.clock
        self.timing = Timing(edits_cached=sum(work.edit is not None for work in plan.works))
        self.trials: Trials | None = None
        self.workers: list[tuple[Stage, Worker]] = []

    def execute(self) -> None:
        """Edit what is missing, swap, score, and try the judge."""
        plan, missing = self.plan, missing_edits(self.plan.works)
        if plan.scorer is not None:
            self.edit_and_judge(missing, plan.scorer)
            return
        if missing:
            self.place("editor")
            self.edit_missing(missing, None)
        self.trials = None if self.progress.stopping else Trials()

    def edit_and_judge(self, missing: Sequence[Work], scorer: Scorer) -> None:
        """Make the missing edits and give every edit a verdict, then try the judge."""
        plan, overlap = self.plan, None
        swap = Swap(self.around.launch("judge"), self.clock)
        pending: list[Work] = []
        try:
            try:
                mode = self.place("editor", "judge").mode if missing else None
                if mode in ("resident", "apart"):
                    overlap = self._edit_and_overlap(missing, scorer, swap)
                elif missing:
                    swap.keeps_editors = mode == "cpu" and "editor" in self.around.keeps
                    self.edit_missing(missing, swap, len(plan.works))
            finally:  # a stopped run still shows the verdicts that it had before
                pending = self.take_stored_verdicts(plan.works, scorer)
            if not self.progress.stopping:
                self.finish(pending, plan.request.pairs, scorer, swap, overlap)
        finally:
            if overlap is not None and overlap.has_begun:
                self.remember("score", swap.judge, overlap.began_at)
            self.around.give_back("judge", swap.judge)

    def place(self, *roles: Role) -> Placement:
        """Decide whether models fit, and tell; raises `UsageError`."""
        settings = self.plan.settings.workers
        placement = place(
            [self.plan.models[role] for role in roles],
            self.plan.hardware,
            settings.placement,
            self.plan.peaks,
        )
        for line in placement.lines:
            self.progress.note(line)
        return placement

    def edit_missing(
        self,
        missing: Sequence[Work],
        swap: Swap | None,
        verdicts: int = 0,
        staying: Pool | None = None,
    ) -> None:
        """Make edits with new workers and give their memory back, or with workers that are
        `staying`.

        With a `swap`, the judge's processes start beside them, so that they have imported what they
        need for so many verdicts when the edit stage ends.
        """

        def done(work: Work) -> None:
            self._edited(work)
            if swap is not None:
                swap.watch()

        self.around.hooks.before_stage("edit", self.plan)
        started, editors = self.clock(), staying or self.around.launch("editor")
        try:
            editors.start(len(missing))
            if swap is not None:
                swap.prefetch(verdicts)
            self.edit(missing, editors, done, started)
        finally:
            if swap is not None:
                swap.release(editors)
            if staying is None:
                self.remember("edit", editors, started)
                self.around.give_back("editor", editors)
        self.around.hooks.after_stage("edit", self)

    def _edited(self, work: Work) -> None:
        self.progress.advance("edit", work)
        self.around.hooks.item_edited(work.pair, work.edit, work.error)

    def _scored(self, work: Work) -> None:
        self.progress.advance("score", work)
        self.around.hooks.item_scored(
            work.pair, SeedResult(work.seed, work.edit, work.verdict, work.error)
        )

    def _edit_and_overlap(self, missing: Sequence[Work], scorer: Scorer, swap: Swap) -> Overlap:
        """Make edits, and judge them beside that; return the overlap, which is over.

        A judge that has its own GPUs loads at once, one that shares those of the editors when they
        have loaded.
        """
        waiting = self.take_stored_verdicts(
            [work for work in self.plan.works if work.edit is not None], scorer
        )
        judged, total = list(waiting), len(waiting) + len(missing)

        def score(feed: Feed) -> None:
            with self.progress.stage("score", total):
                ScoreStage(scorer, swap.judge, self._scored, self.clock, feed).run(waiting)

        def done(work: Work) -> None:
            self._edited(work)
            fresh = [] if work.edit is None else self.take_stored_verdicts([work], scorer)
            judged.extend(fresh)
            overlap.edited(fresh, editors)

        overlap = Overlap(
            score, lambda: self.around.hooks.before_stage("score", self.plan), self.clock
        )
        self.around.hooks.before_stage("edit", self.plan)
        started, editors = self.clock(), self.around.launch("editor")
        try:
            editors.start(len(missing))
            swap.prefetch(len(self.plan.works))
            if self.plan.hardware.is_split:
                overlap.begin()
            self.edit(missing, editors, done, started)
        except BaseException:
            overlap.abort()
            raise
        finally:
            swap.keeps_editors = "editor" in self.around.keeps
            swap.release(editors)
            self.remember("edit", editors, started)
            self.around.give_back("editor", editors)
        self.around.hooks.after_stage("edit", self)
        overlap.finish()
        if overlap.has_begun and swap.edits_ended is not None:
            self.timing.score_s = max(0.0, self.clock() - swap.edits_ended)
            self.timing.verdicts = sum(work.verdict is not None for work in judged)
            swap.edits_ended = None  # the judge was there before
            self.around.hooks.after_stage("score", self)
        return overlap

    def edit(
        self, missing: Sequence[Work], editors: Pool, done: Callable[[Work], None], started: float
    ) -> None:
        """Make edits with workers that were started at a time."""
        meter = self._meter(editors)
        try:
            with self.progress.stage("edit", len(missing)), meter:
                EditStage(self.plan.editor, editors, self.plan.store, done).run(missing)
        finally:
            self.timing.edits += sum(work.edit is not None for work in missing)
            self.timing.edit_s += self.clock() - started
            self.timing.load_s += max(0.0, first_loaded(editors) - started)
            self.timing.edit_gpu_busy = meter.share

    def take_stored_verdicts(
        self, works: Sequence[Work], scorer: Scorer, count: bool = True
    ) -> list[Work]:
        """Give edits the verdicts that the store has; return those that are still to be scored."""
        run = self.plan.settings.run
        edited = [
            work
            for work in works
            if work.error is None and work.edit is not None and work.verdict is None
        ]
        if not run.fresh or run.stage == "report":
            for work in edited:
                work.verdict = scorer.stored_verdict(work, run.reuse)
        pending = [work for work in edited if work.verdict is None]
        if count:
            self.timing.verdicts_cached += len(edited) - len(pending)
        if run.stage != "report":
            return pending
        for work in pending:
            work.fail(
                "score",
                "not_scored",
                "the store has no verdict on this edit, and stage 'report' makes none",
            )
        return []

    def finish(
        self,
        pending: Sequence[Work],
        pairs: Sequence[EditPair],
        scorer: Scorer,
        swap: Swap,
        overlap: Overlap | None = None,
    ) -> None:
        """Score what is left, and try the judge on `pairs`."""
        self.trials = self._plan_trials(pairs)
        further = self.take_stored_verdicts(self.trials.works, scorer, count=False)
        if not pending and not further:
            return
        if overlap is not None and overlap.has_begun:
            self._score(pending, scorer, swap, self.clock())
            self._try_judge(further, scorer, swap)
        else:
            self.score(pending, further, scorer, swap)

    def _plan_trials(self, pairs: Sequence[EditPair]) -> Trials:
        """Plan the controls, for a sample of pairs, and the repeats that the run asks for."""
        plan, settings = self.plan, self.plan.settings
        assert plan.judge is not None
        controls = {}
        if settings.tries_judge:
            controls = plan_controls(
                plan.suite, pairs, plan.store, settings.run, plan.request.shard
            )
        has_order = not plan.judge.model.measures
        return Trials(controls, plan_repeats(plan.works, settings.judge.repeats, has_order))

    def score(
        self, pending: Sequence[Work], further: Sequence[Work], scorer: Scorer, swap: Swap
    ) -> None:
        """Score what is pending after the edit stage, then `further` trials of the judge, in
        batches of their own.
        """
        asked_at, jobs = self.clock(), max(len(pending), len(further))
        if swap.edits_ended is None and not swap.stays:
            self.place("judge")
        try:
            if swap.hands_over:
                self.around.hooks.before_stage("swap", self.plan)
                swap.judge.start(jobs)
                swap.judge.load()
                self.around.hooks.after_stage("swap", self)
            if self.progress.stopping:
                return
            self.around.hooks.before_stage("score", self.plan)
            swap.judge.start(len(swap.judge.slots) if swap.stays else jobs)
            self._score(pending, scorer, swap, asked_at)
            self._try_judge(further, scorer, swap)
        finally:
            if not swap.stays:
                self.remember("score", swap.judge, swap.edits_ended or asked_at)
            swap.account(self.timing, asked_at, scorer.first_at)
        self.around.hooks.after_stage("score", self)

    def _score(self, pending: Sequence[Work], scorer: Scorer, swap: Swap, asked_at: float) -> None:
        if not pending:
            return
        meter = self._meter(swap.judge)
        try:
            with self.progress.stage("score", len(pending)), meter:
                ScoreStage(scorer, swap.judge, self._scored, self.clock).run(pending)
        finally:
            self.timing.score_s += max(0.0, self.clock() - swap.judging_since(asked_at))
            self.timing.score_gpu_busy = meter.share
            self.timing.verdicts += sum(work.verdict is not None for work in pending)

    def _try_judge(self, further: Sequence[Work], scorer: Scorer, swap: Swap) -> None:
        if not further or self.progress.stopping:
            return
        began = self.clock()
        try:
            with self.progress.stage(TRYING, len(further)):
                done = partial(self.progress.advance, TRYING)
                ScoreStage(scorer, swap.judge, done, self.clock).run(further)
        finally:
            self.timing.trials_s = max(0.0, self.clock() - swap.judging_since(began))

    def _meter(self, pool: Pool) -> BusyMeter:
        gpus = [gpu for slot in pool.slots for gpu in slot.gpus if not slot.host]
        return BusyMeter(gpus, lambda: any(worker.loaded_at for worker in pool.workers))

    def remember(self, stage: Stage, pool: Pool, started: float) -> None:
        """Keep what workers did in a stage that started at a time."""
        seen = [
            worker for worker in (*pool.gone, *pool.workers) if worker.jobs_done or worker.load_s
        ]
        for worker in seen:
            worker.ready_s = max(0.0, worker.loaded_at - started)
        self.workers.extend((stage, worker) for worker in seen)


class BlockRun(Run):
    """Edits and scores block by block until the gates are decided; models stay loaded where both
    fit.

    Where nothing is to be edited, the judge has the GPUs for itself.
    """

    def __init__(self, plan: RunPlan, blocks: Blocks, surroundings: Surroundings) -> None:
        super().__init__(plan, surroundings)
        self.blocks = blocks

    def edit_and_judge(self, missing: Sequence[Work], scorer: Scorer) -> None:
        self.timing.edits_cached = 0
        mode = self.place("editor", "judge").mode if missing else None
        swap = Swap(self.around.launch("judge"), self.clock, stays=mode != "swap")
        try:
            if swap.stays:
                self._stay_loaded(scorer, swap, bool(missing))
            else:
                self._swap_each_time(scorer)
            self.timing.edit_gpu_busy = self.timing.score_gpu_busy = (
                None  # known of the last block only
            )
            if not self.progress.stopping:
                self.finish([], self.blocks.leave_out(self.plan.request.pairs), scorer, swap)
        finally:
            if swap.stays:
                self.remember("score", swap.judge, 0.0)
            self.around.give_back("judge", swap.judge)

    def _swap_each_time(self, scorer: Scorer) -> None:
        while not self.blocks.is_over and not self.progress.stopping:
            works = self.blocks.take(None, self.timing)
            swap = Swap(self.around.launch("judge"), self.clock)
            try:
                if missing := missing_edits(works):
                    self.edit_missing(missing, swap, len(works))
                self._score_and_look(works, scorer, swap)
            finally:
                swap.judge.close()

    def _stay_loaded(self, scorer: Scorer, swap: Swap, edits_any: bool) -> None:
        editors = self.around.launch("editor") if edits_any else None
        try:
            if editors is not None:
                editors.start(len(missing_edits(self.plan.works)))
            while not self.blocks.is_over and not self.progress.stopping:
                works = self.blocks.take(1 if editors is None else len(editors.slots), self.timing)
                swap.edits_ended = None
                if missing := missing_edits(works):
                    self.edit_missing(missing, swap, len(swap.judge.slots), editors)
                self._score_and_look(works, scorer, swap)
        finally:
            if editors is not None:
                self.remember("edit", editors, 0.0)
                self.around.give_back("editor", editors)

    def _score_and_look(self, works: Sequence[Work], scorer: Scorer, swap: Swap) -> None:
        pending = self.take_stored_verdicts(works, scorer)
        if pending and not self.progress.stopping:
            self.score(pending, [], scorer, swap)
        if not self.progress.stopping:
            self.progress.note(self.blocks.look())
