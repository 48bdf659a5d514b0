"""One run: the stages of a plan, whose finished work is stored as it comes."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pytest_imgedit.core import errors
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Stage, Timing
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run import edit, probes
from pytest_imgedit.run.blocks import Blocks
from pytest_imgedit.run.category_progress import Categories
from pytest_imgedit.run.duels import AskedDuels, Duels, plan_duels
from pytest_imgedit.run.interrupts import CallHook
from pytest_imgedit.run.items import seed_result
from pytest_imgedit.run.judge_trials import Trials, plan_trials
from pytest_imgedit.run.model_swap import Overlap, Swap, first_loaded
from pytest_imgedit.run.placement import Placement, place
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.score import Feed, ScoreStage
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import Judgement, Work, missing_edits
from pytest_imgedit.workers import base, gpus
from pytest_imgedit.workers.pool import Pool

TRYING = "try the judge"
DUEL = "duel"


@dataclass(frozen=True)
class RunContext:
    """What a run works with: pools by role, those of additional judges and metrics by their
    identity, progress, the users' hooks, and a clock in seconds.

    `give_back` takes a pool that the run no longer needs. The pool may live on if the run `keeps`
    workers of its role.
    """

    launch: Callable[[Role], Pool]
    launch_additional: Callable[[Identity], Pool]
    progress: RunProgress
    hooks: CallHook
    clock: Callable[[], float] = time.perf_counter
    give_back: Callable[[Role, Pool], None] = lambda role, pool: pool.close()
    keeps: Collection[Role] = ()


class Run:
    """Takes the works of a plan through the stages, and records times and workers.

    Every work ends with a verdict or an error, unless the run is stopped. `trials` is `None` until
    edits and verdicts are done, and `duels` in a run without any.
    """

    def __init__(self, plan: RunPlan, context: RunContext) -> None:
        self.plan = plan
        self.context = context
        self.progress = context.progress
        self.clock = context.clock
        self.hooks = context.hooks
        self.timing = Timing(edits_cached=sum(work.edit is not None for work in plan.works))
        self.categories = Categories(plan.works, plan.request.suite.labels, context.progress)
        self.trials: Trials | None = None
        self.duels: Duels | None = None
        self.workers: list[tuple[Stage, base.Worker]] = []
        #: Workers of additional judges and metrics, by the names of these.
        self.additional_workers: list[tuple[str, base.Worker]] = []
        #: Why additional judges and metrics could not score: the run fails, and its scores stay.
        self.failed_scorers: list[str] = []

    @property
    def scorer(self) -> Scorer:
        """The first judge of a run that does not only edit."""
        assert self.plan.scorer is not None
        return self.plan.scorer

    @property
    def asked_duels(self) -> AskedDuels | None:
        """The duels that the judge is asked about, as far as they are planned."""
        return self.duels

    def execute(self) -> None:
        """Make missing edits, swap, score, try the judge, and have the additional judges and
        metrics score the edits.
        """
        missing = missing_edits(self.plan.works)
        if self.plan.scorer is not None:
            self.edit_and_judge(missing)
        else:
            if missing:
                self.place("editor")
                self.edit_missing(self.plan.works)
            self.trials = None if self.progress.stopping else Trials()
        for scorer in self.plan.additional_scorers:
            self.score_by(scorer)

    def score_by(self, scorer: Scorer) -> None:
        """Give every edit the stored verdict of an additional judge or metric, and have it score
        the others. Its workers are the only ones on the GPUs.

        One that cannot load, that no worker is left for, or that fails alike on every edit fails
        the run at its end, and takes no score of the first judge with it.
        """
        works = scorer.scorable(self.plan.works)
        edited = [work for work in works if work.edit is not None and work.edit_error is None]
        pending = self.recall(scorer, scorer.judgements(edited))
        if not pending or self.progress.stopping:
            return
        started = self.clock()
        hardware = self.plan.hardware
        for line in place([scorer.model], hardware, self.plan.settings.workers.placement).lines:
            self.progress.note(line)
        pool = self.context.launch_additional(scorer.identity)
        failure = ""
        try:
            self._score_with(scorer, pool, pending)
            failure = _message_without_workers(pending)
        except errors.StoreError:
            raise
        except (errors.UsageError, errors.FailsAlike) as error:
            failure = str(error)
            for judgement in pending:
                if judgement.is_open:
                    judgement.fail("no_worker", failure)
        finally:
            if failure:
                self.failed_scorers.append(f"{scorer.title} could not score: {failure}")
                self.progress.note(self.failed_scorers[-1])
            for worker in worked(pool, started):
                self.additional_workers.append((scorer.name, worker))
            pool.close()
            self.timing.further_s += self.clock() - started

    def _score_with(self, scorer: Scorer, pool: Pool, pending: Sequence[Judgement]) -> None:
        """Have an additional judge or metric score edits with the workers of a pool."""
        pool.start(len(pending))
        with self._stage(scorer.title, len(pending), pool):
            ScoreStage(
                scorer,
                pool,
                self._progress_of(scorer.title),
                self.clock,
                canary=scorer.start_canary(pending),
            ).run(pending)

    def _progress_of(self, stage: str) -> Callable[[Judgement], None]:
        """Return a function that shows in the progress of a stage that a judgement has ended."""

        def show(judgement: Judgement) -> None:
            self.progress.advance(stage, judgement.pair.id, judgement.work.seed, judgement.error)

        return show

    def edit_and_judge(self, missing: Sequence[Work]) -> None:
        """Make the missing edits and give every edit a verdict, then try the judge.

        A run that is stopped only takes verdicts of the store for the edits that it has.
        """
        overlap = None
        swap = Swap(self._launch("judge"), self.clock)
        try:
            try:
                mode = self.place("editor", "judge").mode if missing else None
                if mode in ("resident", "apart"):
                    overlap = self._edit_and_overlap(swap, len(missing))
                elif missing:
                    swap.keeps_editors = mode == "cpu" and "editor" in self.context.keeps
                    self.edit_missing(self.plan.works, swap, len(self.plan.works))
            finally:  # a stopped run still shows the stored verdicts
                pending = self.recall_verdicts(self.plan.works)
            if not self.progress.stopping:
                self.finish(pending, self.plan.request.pairs, swap, overlap)
        finally:
            if overlap is not None and overlap.has_begun:
                self.remember("score", swap.judge, overlap.began_at)
            self.context.give_back("judge", swap.judge)

    def _launch(self, role: Role) -> Pool:
        pool = self.context.launch(role)
        pool.check = partial(probes.refuse_other_probe, self.plan, role)
        return pool

    def _to_make_again(self, works: Sequence[Work], role: Role, pool: Pool) -> list[Work]:
        """Once a model has loaded, note how many stored edits or verdicts have another probe.

        With `--imgedit-reuse=exact`, take these from their works and return the works; else none.
        """
        if not probes.probed(self.plan, works, role):
            return []
        pool.load()
        here = [worker.environment for worker in pool.workers if worker.environment is not None]
        unlike = probes.unlike(self.plan, works, role, here)
        reuse = self.plan.settings.run.reuse
        if unlike:
            self.progress.note(probes.reuse_line(role, len(unlike), reuse))
        if reuse != "exact":
            return []
        for work in unlike:
            work.judgement.answers = {}
            work.judgement.verdict = None
            if role == "editor":
                work.edit = None
        return unlike

    def place(self, *roles: Role) -> Placement:
        """Decide where models go, and note it; raises `UsageError` if one does not fit."""
        placement = place(
            [self.plan.models[role] for role in roles],
            self.plan.hardware,
            self.plan.settings.workers.placement,
            self.plan.peaks,
        )
        for line in placement.lines:
            self.progress.note(line)
        return placement

    def edit_missing(
        self,
        works: Sequence[Work],
        swap: Swap | None = None,
        verdicts: int = 0,
        staying: Pool | None = None,
        overlap: Overlap | None = None,
    ) -> None:
        """Make edits with new workers and free their memory, or with workers that are `staying`.

        With a `swap`, the judge's processes start beside them, so that they have imported what they
        need for this number of verdicts when the edit stage ends. With an `overlap`, edits are
        judged as they come.
        """

        def done(work: Work) -> None:
            self.progress.advance("edit", work.pair.id, work.seed, work.error)
            self.categories.computed(work)
            self.hooks("item_edited", pair=work.pair, edit=work.edit, error=work.error)
            if overlap is not None:
                overlap.edited(self.recall_verdicts([work]), editors)
            elif swap is not None:
                swap.judge.poll()  # raises `UsageError` for a judge that cannot start

        self.hooks("before_stage", stage="edit", plan=self.plan)
        missing = missing_edits(works)
        started = self.clock()
        editors = staying or self._launch("editor")
        try:
            editors.start(len(missing))
            if swap is not None:
                swap.judge.start(verdicts)
            unlike = self._to_make_again(works, "editor", editors)
            if unlike:
                self.timing.edits_cached -= len(unlike)
                missing += unlike
                editors.extend(len(missing))
            if overlap is not None and self.plan.hardware.is_split:
                overlap.begin()
            self._edit(missing, editors, done, started)
        except BaseException:
            if overlap is not None:
                overlap.abort()
            raise
        finally:
            if swap is not None:
                swap.release(editors)
            if staying is None:
                self.remember("edit", editors, started)
                self.context.give_back("editor", editors)
        self.hooks("after_stage", stage="edit", run=self)

    def _edit_and_overlap(self, swap: Swap, edits: int) -> Overlap:
        """Make edits, and judge them meanwhile; return the overlap, which is over.

        A judge with GPUs of its own loads at once, one that shares those of the editors when these
        have loaded.
        """
        waiting = self.recall_verdicts(self.plan.works)

        def judge(feed: Feed) -> None:
            # Edits that are made again come through the feed.
            stored = [judgement for judgement in waiting if judgement.edit is not None]
            with self._stage("score", len(waiting) + edits, swap.judge):
                canary = self.scorer.start_canary(self.scorer.judgements(self.plan.works))
                ScoreStage(
                    self.scorer, swap.judge, self._scored, self.clock, feed=feed, canary=canary
                ).run(stored)

        overlap = Overlap(
            judge,
            lambda: self.hooks("before_stage", stage="score", plan=self.plan),
            self.clock,
        )
        swap.keeps_editors = "editor" in self.context.keeps
        self.edit_missing(self.plan.works, swap, len(self.plan.works), overlap=overlap)
        overlap.finish()
        if overlap.has_begun and swap.edits_ended is not None:
            self.timing.score_s = max(0.0, self.clock() - swap.edits_ended)
            self.timing.verdicts = (
                sum(work.verdict is not None for work in self.plan.works)
                - self.timing.verdicts_cached
            )
            swap.edits_ended = None  # the judge was there before
            self.hooks("after_stage", stage="score", run=self)
        return overlap

    def _scored(self, judgement: Judgement) -> None:
        work = judgement.work
        self.progress.advance("score", work.pair.id, work.seed, judgement.error)
        self.categories.scored(work)
        self.hooks("item_scored", pair=work.pair, result=seed_result(work))

    def _edit(
        self, missing: Sequence[Work], editors: Pool, done: Callable[[Work], None], started: float
    ) -> None:
        """Make edits with editors that were started at a time; record their number and times."""
        meter = self._meter(editors)
        try:
            with self._stage("edit", len(missing), editors), meter:
                edit.EditStage(self.plan.editor, editors, self.plan.store, done).run(missing)
        finally:
            self.timing.edits += sum(work.edit is not None for work in missing)
            self.timing.edit_s += self.clock() - started
            self.timing.load_s += max(0.0, first_loaded(editors) - started)
            self.timing.edit_gpu_busy = meter.share

    def recall_verdicts(self, works: Sequence[Work]) -> list[Judgement]:
        """Give edits the judge's stored verdicts; return the judgements that are still to be made.

        Those of the store are counted.
        """
        judgements = [
            judgement for judgement in self.scorer.judgements(works) if _may_get_verdict(judgement)
        ]
        pending = self.recall(self.scorer, judgements)
        open_judgements = sum(judgement.is_open for judgement in judgements)
        self.timing.verdicts_cached += len(judgements) - open_judgements
        return pending

    def recall(self, scorer: Scorer, judgements: Iterable[Judgement]) -> list[Judgement]:
        """Give judgements the stored verdicts of a scorer; return those that are still to be made.

        Stage `report` makes none, and ends them in errors.
        """
        run = self.plan.settings.run
        edited = [judgement for judgement in judgements if _may_get_verdict(judgement)]
        if not run.fresh or run.stage == "report":
            for judgement in edited:
                scorer.recall(judgement, run.reuse)
        pending = [judgement for judgement in edited if judgement.is_open]
        if run.stage != "report":
            return pending
        for judgement in pending:
            judgement.fail(
                "not_scored",
                "the store has no verdict on this edit, and stage 'report' makes none",
            )
        return []

    def finish(
        self,
        pending: Sequence[Judgement],
        pairs: Sequence[EditPair],
        swap: Swap,
        overlap: Overlap | None = None,
    ) -> None:
        """Score pending edits, try the judge on a sample of `pairs` and by repeats, and have it
        decide the duels.
        """
        self.categories.look()
        plan = self.plan
        self.trials = plan_trials(
            self.scorer,
            plan.settings,
            plan.request.suite,
            pairs=pairs,
            run_works=plan.works,
            shard=plan.request.shard,
        )
        trials = self.recall(self.scorer, self.trials.judgements)
        if not (pending or trials or self._plan_duels()):
            return
        if overlap is not None and overlap.has_begun:
            self._score(pending, swap, self.clock())
            self._try_judge(trials, swap)
            self._duel(swap)
        else:
            self.score(pending, trials, swap)

    def _plan_duels(self) -> list[Judgement]:
        """Give the duels of the run the stored votes; return the judgements that are still to be
        made.
        """
        if self.plan.duelling is None:
            return []
        self.duels = plan_duels(self.plan.duelling, self.trials or Trials())
        self.duels.keep_edits()
        judgements = self.duels.judgements
        pending = self.recall(self.duels.scorer, judgements)
        self.timing.votes_cached = sum(judgement.verdict is not None for judgement in judgements)
        return pending

    def score(self, pending: Sequence[Judgement], trials: Sequence[Judgement], swap: Swap) -> None:
        """Score pending edits after the edit stage, then the `trials`, and then the duels, in
        batches of their own.
        """
        requested_at = self.clock()
        jobs = max(1, len(pending), len(trials))
        if self.asked_duels is not None:
            jobs = max(jobs, len(self.asked_duels.judgements))
        if swap.edits_ended is None and not swap.stays:
            self.place("judge")
        try:
            if swap.hands_over:
                self.hooks("before_stage", stage="swap", plan=self.plan)
                swap.judge.start(jobs)
                swap.judge.load()
                self.hooks("after_stage", stage="swap", run=self)
            if self.progress.stopping:
                return
            self.hooks("before_stage", stage="score", plan=self.plan)
            swap.judge.start(len(swap.judge.slots) if swap.stays else jobs)
            self._score(pending, swap, requested_at)
            self._try_judge(trials, swap)
            self._duel(swap)
        finally:
            if not swap.stays:
                self.remember("score", swap.judge, swap.edits_ended or requested_at)
            swap.account(self.timing, requested_at, self.scorer.first_at)
        self.hooks("after_stage", stage="score", run=self)

    def _score(self, pending: Sequence[Judgement], swap: Swap, requested_at: float) -> None:
        """Score pending edits, and those whose stored verdicts are made again; record the number
        of verdicts and their times. Without pending edits, nothing is done.
        """
        if not pending:
            return
        unlike = self._to_make_again(self.plan.works, "judge", swap.judge)
        self.timing.verdicts_cached -= len(unlike)
        pending = list(pending) + self.scorer.judgements(unlike)
        meter = self._meter(swap.judge)
        try:
            with self._stage("score", len(pending), swap.judge), meter:
                canary = self.scorer.start_canary(self.scorer.judgements(self.plan.works))
                ScoreStage(self.scorer, swap.judge, self._scored, self.clock, canary=canary).run(
                    pending
                )
        finally:
            self.timing.score_s += max(0.0, self.clock() - swap.judging_since(requested_at))
            self.timing.score_gpu_busy = meter.share
            self.timing.verdicts += sum(judgement.verdict is not None for judgement in pending)

    def _try_judge(self, trials: Sequence[Judgement], swap: Swap) -> None:
        """Score the trials that the store has no verdicts on, unless the run is to stop."""
        trials = self.recall(self.scorer, trials)  # an own edit may equal a control's
        if not trials or self.progress.stopping:
            return
        began = self.clock()
        try:
            with self._stage(TRYING, len(trials), swap.judge):
                show = self._progress_of(TRYING)
                ScoreStage(self.scorer, swap.judge, show, self.clock).run(trials)
        finally:
            self.timing.trials_s = max(0.0, self.clock() - swap.judging_since(began))

    def _duel(self, swap: Swap) -> None:
        """Have the judge decide the duels that the store has no votes on, unless the run is to
        stop.
        """
        pending = self._plan_duels()
        duels = self.asked_duels
        if duels is None or not pending or self.progress.stopping:
            return
        began = self.clock()
        try:
            with self._stage(DUEL, len(pending), swap.judge):
                show = self._progress_of(DUEL)
                ScoreStage(duels.scorer, swap.judge, show, self.clock).run(pending)
        finally:
            self.timing.duel_s = max(0.0, self.clock() - swap.judging_since(began))
            self.timing.votes = sum(judgement.verdict is not None for judgement in pending)

    def _meter(self, pool: Pool) -> gpus.BusyMeter:
        def has_loaded() -> bool:
            return any(worker.loaded_at for worker in pool.workers)

        local = [gpu for slot in pool.slots for gpu in slot.gpus if not slot.host]
        return gpus.BusyMeter(local, has_loaded)

    @contextmanager
    def _stage(self, name: str, total: int, pool: Pool) -> Iterator[None]:
        """Show a stage, and log the share of its time in which each worker was busy."""
        before = {id(worker): worker.busy_s for worker in pool.gone + pool.workers}
        began = self.clock()
        try:
            with self.progress.stage(name, total):
                yield
        finally:
            lasted = self.clock() - began
            for worker in pool.gone + pool.workers:
                busy = worker.busy_s - before.get(id(worker), 0.0)
                if lasted > 0 and busy > 0:
                    share = min(1.0, busy / lasted)
                    self.progress.log(
                        f"{name}: {worker.slot.name} ({worker.slot.label}) was busy for "
                        f"{share:.0%} of {lasted:.1f} s"
                    )

    def remember(self, stage: Stage, pool: Pool, started: float) -> None:
        """Record the workers of a stage that started at a time."""
        self.workers += [(stage, worker) for worker in worked(pool, started)]


def _may_get_verdict(judgement: Judgement) -> bool:
    """Tell whether there is an edit without a verdict or an error."""
    return judgement.edit is not None and judgement.verdict is None and judgement.error is None


def _message_without_workers(judgements: Iterable[Judgement]) -> str:
    """Return why no worker was left, by the first judgement that says so; else an empty string."""
    for judgement in judgements:
        if judgement.error is not None and judgement.error.kind == "no_worker":
            return judgement.error.message
    return ""


def worked(pool: Pool, started: float) -> list[base.Worker]:
    """Return the workers of a pool that did something in a stage that started at a time, with the
    seconds until they were ready.
    """
    workers = [worker for worker in pool.gone + pool.workers if worker.jobs_done or worker.load_s]
    for worker in workers:
        worker.ready_s = max(0.0, worker.loaded_at - started)
    return workers


class BlockRun(Run):
    """Edits and scores block by block until the gates are decided.

    Models stay loaded if both fit. If nothing is to be edited, the judge has the GPUs for itself.
    """

    def __init__(self, plan: RunPlan, blocks: Blocks, context: RunContext) -> None:
        super().__init__(plan, context)
        self.blocks = blocks

    def edit_and_judge(self, missing: Sequence[Work]) -> None:
        """Make edits and verdicts block by block, then try the judge on the pairs of the blocks."""
        self.timing.edits_cached = 0
        mode = self.place("editor", "judge").mode if missing else None
        launched = self.clock()
        swap = Swap(self._launch("judge"), self.clock, stays=mode != "swap")
        try:
            if swap.stays:
                self._stay_loaded(swap, len(missing))
            else:
                self._swap_each_time()
            # The busy shares are known of the last block only.
            self.timing.edit_gpu_busy = self.timing.score_gpu_busy = None
            if not self.progress.stopping:
                self.finish([], self.blocks.leave_out(self.plan.request.pairs), swap)
        finally:
            if swap.stays:
                self.remember("score", swap.judge, launched)
            self.context.give_back("judge", swap.judge)

    def _swap_each_time(self) -> None:
        """Edit and score blocks, with new workers of both models for each."""
        while not (self.blocks.is_over or self.progress.stopping):
            works = self.blocks.take(None, self.timing)
            swap = Swap(self._launch("judge"), self.clock)
            try:
                if missing_edits(works):
                    self.edit_missing(works, swap, len(works))
                self._score_and_look(works, swap)
            finally:
                swap.judge.close()

    def _stay_loaded(self, swap: Swap, edits: int) -> None:
        """Edit and score blocks with the same workers; without edits to make, no editor starts."""
        launched = self.clock()
        editors = self._launch("editor") if edits else None
        try:
            if editors is not None:
                editors.start(edits)
            while not (self.blocks.is_over or self.progress.stopping):
                works = self.blocks.take(1 if editors is None else len(editors.slots), self.timing)
                swap.edits_ended = None
                if missing_edits(works):
                    self.edit_missing(works, swap, len(swap.judge.slots), editors)
                self._score_and_look(works, swap)
        finally:
            if editors is not None:
                self.remember("edit", editors, launched)
                self.context.give_back("editor", editors)

    def _score_and_look(self, works: Sequence[Work], swap: Swap) -> None:
        """Score a block and look at the gates, unless the run is to stop."""
        pending = self.recall_verdicts(works)
        if pending and not self.progress.stopping:
            self.score(pending, [], swap)
        if not self.progress.stopping:
            self.progress.note(self.blocks.look())
