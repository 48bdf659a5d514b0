"""The stages of one run: edit, swap, score; scoring beside editing where both models fit on the GPUs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_imgedit.core.results import Timing
from pytest_imgedit.environments import key
from pytest_imgedit.stages.beside import Beside
from pytest_imgedit.stages.blocks import work_in_blocks
from pytest_imgedit.stages.edit import run_edits, stored_edit
from pytest_imgedit.stages.placement import Placement, is_remote, model_of, place, settle_editor
from pytest_imgedit.stages.plan import hand_over, missing_edits
from pytest_imgedit.stages.pools import ask_servers, connect, identify_role, make_pool
from pytest_imgedit.stages.trials import Trials, plan_trials
from pytest_imgedit.workers.gpus import BusyMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_imgedit.config import Settings
    from pytest_imgedit.core.results import HostOrigin, Stage
    from pytest_imgedit.models.identity import Identity
    from pytest_imgedit.models.kinds import Model, Role
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.stages.blocks import Blocks
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.stages.run import Progress
    from pytest_imgedit.stages.score import Scorer
    from pytest_imgedit.store.journal import Journal
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.suites.base import Suite
    from pytest_imgedit.workers.base import Worker
    from pytest_imgedit.workers.hosts import Hosts
    from pytest_imgedit.workers.pool import Pool


class Flow:
    """Takes planned work through the stages that a run asks for; keeps times, and which workers did what."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        folder: Path,
        progress: Progress,
        before_stage: Callable[[str], None],
        after_stage: Callable[[str], None],
    ) -> None:
        self.settings, self.store, self.folder, self.progress = settings, store, folder, progress
        self.before_stage, self.after_stage = before_stage, after_stage
        self.editor: Identity
        self.timing = Timing()
        self.trials: Trials | None = None
        self.workers: list[tuple[Stage, Worker]] = []
        self.hosts: Hosts | None = None
        self.origins: list[HostOrigin] = []
        self.stays = False  # both models, from block to block

    def take_stored_edits(self, plan: Sequence[Work], editor: Identity) -> None:
        """Have an editor do the works, and give them those of its edits that the store has."""
        self.editor = editor
        reuse = not self.settings.run.fresh or self.settings.run.stage in ("score", "report")
        for work in plan:
            if work.error is None and reuse:
                work.edit = stored_edit(work, editor, self.store, self.settings.run.reuse)
        self.timing.edits_cached = sum(work.edit is not None for work in plan)

    def work(
        self,
        plan: Sequence[Work],
        scorer: Scorer | None,
        suite: Suite,
        pairs: Sequence[EditPair],
        identify_control: Callable[[Model], Identity],
        blocks: Blocks | None = None,
    ) -> None:
        """Do what is left of a plan; every work ends with a verdict or an error, unless the run is stopped.

        With `blocks`, it is done block by block, until these say that no more is needed.
        """
        stage = self.settings.run.stage
        if is_remote(self.settings) and stage != "report":  # what counts as computed there depends on what hosts have
            self.hosts = connect(self.settings, self.folder)
            self.origins = [] if self.hosts is None else [host.origin for host in self.hosts.all]
        ended = 0.0
        beside: Beside | None = None
        judging: Pool | None = None
        try:
            if self.hosts is not None:
                self._identify_again(plan, scorer)
            elif stage == "report" and is_remote(self.settings):
                self._identify_by_store(plan, scorer)
            missing = missing_edits(plan)
            if stage in ("score", "report"):
                for work in missing:
                    reason = f"the store has no edit of this pair, and stage {stage!r} makes none"
                    work.fail("edit", "not_edited", reason)
                missing = []
            self.settings = settle_editor(self.settings, len(plan), self.hosts)
            if scorer is not None:
                judging = make_pool(self.settings, "judge", scorer.judge, self.folder, self.progress, self.hosts)
            if stage != "report":
                judged = scorer is not None and (missing or self._is_asked(plan, scorer))
                ask_servers(self.settings, (("editor", missing), ("judge", judged)))
            if blocks is not None and scorer is not None:
                work_in_blocks(self, blocks, scorer, bool(missing))
                missing = []
            try:
                if missing:
                    placement = self.place(["editor"] if scorer is None else ["editor", "judge"])
                    if placement.mode == "resident" and scorer is not None and judging is not None:
                        waiting = self.take_stored_verdicts([w for w in plan if w.edit is not None], scorer)
                        beside = Beside(self, scorer, judging, waiting, len(missing))
                    ended = self.edit(missing, judging, len(plan), beside)
            finally:  # a stopped run still shows the verdicts that it had before
                pending = [] if scorer is None or blocks is not None else self.take_stored_verdicts(plan, scorer)
            if self.progress.stopping:
                return
            if blocks is not None:
                blocks.leave_out()
                pairs = [pair for pair in pairs if blocks.works[pair.id][0].is_needed]
            self.trials = Trials()
            if scorer is not None and judging is not None:
                self.trials = plan_trials(self.settings, suite, pairs, plan, self.store, scorer.judge, identify_control)
                further = self.take_stored_verdicts(self.trials.works, scorer, count=False)
                if pending or further:
                    self.score(pending, further, scorer, judging, ended, beside is not None and beside.ran)
        finally:
            if beside is not None:
                beside.abort()
            if judging is not None:
                judging.close()
                if beside is not None:
                    self.remember("score", judging, beside.started)
            if self.hosts is not None:
                self.hosts.close()

    def _identify_again(self, plan: Sequence[Work], scorer: Scorer | None) -> None:
        """Identify editor and judge by what the hosts have, which was a guess so far, and look in the store again."""
        cache = self.store.fingerprints
        editor = identify_role(self.settings, "editor", cache, self.hosts)
        hand_over(plan, editor)
        self.take_stored_edits(plan, editor)
        if scorer is not None:
            scorer.judge = identify_role(self.settings, "judge", cache, self.hosts)

    def _identify_by_store(self, plan: Sequence[Work], scorer: Scorer | None) -> None:
        """Identify editor and judge by the newest record of theirs: a report connects to no host."""
        cache = self.store.fingerprints
        workers = self.settings.workers.model_copy(update={"gpus": "none"})
        on_cpus = self.settings.model_copy(update={"workers": workers})
        made_by: dict[str, Identity] = {}
        for editor in (identify_role(on_cpus, "editor", cache), self.editor):
            hand_over(plan, editor)
            made_by |= {work.content: editor for work in plan}
        editor = _newest(self.store.edits, made_by) or self.editor
        hand_over(plan, editor)
        self.take_stored_edits(plan, editor)
        if scorer is not None:
            reached_by: dict[str, Identity] = {}
            edited = [work for work in plan if work.edit is not None]
            for judge in (identify_role(on_cpus, "judge", cache), scorer.judge):
                scorer.judge = judge
                reached_by |= {key(scorer.recipe(work)): judge for work in edited}
            scorer.judge = _newest(self.store.verdicts, reached_by) or scorer.judge

    def _is_asked(self, plan: Sequence[Work], scorer: Scorer | None) -> bool:
        """Tell whether a judge will be asked for anything that the store does not have."""
        if scorer is None:
            return False
        tried = self.settings.tries_judge or self.settings.judge.repeats
        edited = [work for work in plan if work.error is None and work.edit is not None]
        run = self.settings.run
        return bool(tried or run.fresh or any(scorer.stored_verdict(work, run.reuse) is None for work in edited))

    def place(self, roles: Sequence[Role]) -> Placement:
        placement = place(self.settings, [model_of(self.settings, role) for role in roles], self.hosts)
        for line in placement.lines:
            self.progress.note(line)
        return placement

    def edit(
        self,
        missing: Sequence[Work],
        judging: Pool | None,
        verdicts: int,
        beside: Beside | None,
        staying: Pool | None = None,
    ) -> float:
        """Run the edit stage and give its memory back; return the time at which the last edit was done.

        The judge's processes start beside it, so that they have imported what they need when it ends. Workers that are
        `staying` keep theirs.
        """

        def advance(work: Work) -> None:
            self.progress.advance("edit", work)
            if beside is not None:
                beside.edited(work)
            elif judging is not None:
                judging.poll()  # a judge that cannot start is found now, not after the last edit

        self.before_stage("edit")
        started = time.perf_counter()
        pool = staying or make_pool(self.settings, "editor", self.editor, self.folder, self.progress, self.hosts)
        meter = self._meter(pool)
        if beside is not None:
            beside.editors = pool
        try:
            pool.start(len(missing) if staying is None else len(pool.slots))
            if judging is not None:
                judging.start(verdicts)
            with self.progress.stage("edit", len(missing)), meter:
                run_edits(missing, self.editor, pool, self.store, advance)
        finally:
            ended = time.perf_counter()
            self.timing.edits += sum(work.edit is not None for work in missing)
            self.timing.edit_s += ended - started
            self.timing.edit_gpu_busy = meter.share
            if staying is None:
                pool.close()
                self.remember("edit", pool, started)
            self.timing.load_s += max(0.0, first_loaded(pool) - started)
            if beside is not None:
                beside.close()
        if beside is not None:
            beside.finish(ended)
        self.after_stage("edit")
        return ended

    def take_stored_verdicts(self, plan: Sequence[Work], scorer: Scorer, count: bool = True) -> list[Work]:
        """Give edits the verdicts that the store has; return those that are still to be scored."""
        run = self.settings.run
        edited = [work for work in plan if work.error is None and work.edit is not None and work.verdict is None]
        for work in edited:
            if not run.fresh or run.stage == "report":
                work.verdict = scorer.stored_verdict(work, run.reuse)
                self.timing.verdicts_cached += count and work.verdict is not None
        pending = [work for work in edited if work.verdict is None]
        if run.stage != "report":
            return pending
        for work in pending:
            work.fail("score", "not_scored", "the store has no verdict on this edit, and stage 'report' makes none")
        return []

    def score(
        self,
        pending: Sequence[Work],
        further: Sequence[Work],
        scorer: Scorer,
        pool: Pool,
        ended: float,
        again: bool,
    ) -> None:
        """Score what is pending, then further trials of the judge, which share no batch with it.

        `ended` is the time at which the last edit was done, 0 if none was made; `again` says that the judge has been
        at work beside the editor.
        """
        if not again:
            self.before_stage("score")
        started = time.perf_counter()
        if not ended and not self.stays:
            self.place(["judge"])
        pool.start(len(pool.slots) if self.stays else max(len(pending), len(further)))
        trying = None
        meter = self._meter(pool)
        try:
            if pending:
                with self.progress.stage("score", len(pending)), meter:
                    scorer.run(pending, pool, lambda work: self.progress.advance("score", work))
            if further and not self.progress.stopping:
                trying = time.perf_counter()
                with self.progress.stage("try the judge", len(further)):
                    scorer.run(further, pool, lambda work: self.progress.advance("try the judge", work))
        finally:
            ended_at = time.perf_counter()
            finished = ended_at if trying is None else trying
            scored = sum(work.verdict is not None for work in pending)
            if again:
                self.timing.trials_s = ended_at - finished
                self.timing.score_s += finished - started
                self.timing.verdicts += scored
            else:
                if not self.stays:
                    self.remember("score", pool, ended or started)
                first = max(first_loaded(pool), ended or started)
                self.timing.trials_s = max(0.0, ended_at - max(finished, first))
                if ended:
                    self.timing.swaps += not self.stays
                    self.timing.swap_s += first - ended
                    self.timing.first_verdict_s = self.timing.first_verdict_s or max(0.0, scorer.first_at - ended)
                self.timing.score_s += max(0.0, finished - first)
                self.timing.score_gpu_busy = meter.share
                self.timing.verdicts += scored
        if not again:
            self.after_stage("score")

    def _meter(self, pool: Pool) -> BusyMeter:
        gpus = [gpu for slot in pool.slots for gpu in slot.gpus if not slot.host]
        return BusyMeter(gpus, lambda: any(worker.loaded_at for worker in pool.workers))

    def remember(self, stage: Stage, pool: Pool, started: float) -> None:
        """Keep what workers did in a stage."""
        seen = [worker for worker in (*pool.gone, *pool.workers) if worker.jobs_done or worker.load_s]
        for worker in seen:
            worker.ready_s = max(0.0, worker.loaded_at - started)
        self.workers.extend((stage, worker) for worker in seen)


def _newest(journal: Journal[Any], made_by: Mapping[str, Identity]) -> Identity | None:
    """Of these editors or judges, by content, return the one of the newest record, in the environment of that."""
    for record in reversed(journal.records.values()):
        if record.content in made_by:
            return replace(made_by[record.content], here=record.environment)
    return None


def first_loaded(pool: Pool) -> float:
    """Return when the first worker of a pool was loaded, 0 if none was."""
    return min((worker.loaded_at for worker in (*pool.gone, *pool.workers) if worker.loaded_at), default=0.0)
