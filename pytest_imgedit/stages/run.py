"""One run from the plan to results.json: edit, swap, score, with everything finished kept as it comes."""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from pytest_imgedit.checkpoints import MODEL_KINDS, check_checkpoint, model_folder
from pytest_imgedit.editors.base import resolve_editor
from pytest_imgedit.errors import StoreError
from pytest_imgedit.fingerprints import fingerprint
from pytest_imgedit.judges.base import resolve_judge
from pytest_imgedit.redaction import Redactor
from pytest_imgedit.rubrics.rubric import load_rubric
from pytest_imgedit.stages import results
from pytest_imgedit.stages.document import Subject, Timing, make_document
from pytest_imgedit.stages.edit import run_edits, stored_edit
from pytest_imgedit.stages.plan import Work, make_plan
from pytest_imgedit.stages.pools import make_pool, require_free_gpus
from pytest_imgedit.stages.score import Scorer
from pytest_imgedit.stages.trials import Trials, plan_trials
from pytest_imgedit.store.baselines import content_sha256, refuse, unlike_items, unlike_judges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pytest_imgedit.config import EditorSettings, JudgeSettings, Settings
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.registry import Target
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.suites.base import Suite
    from pytest_imgedit.workers.base import Slot, Worker
    from pytest_imgedit.workers.pool import Pool


class Progress(Protocol):
    """Shows a run to the user and writes its log; also the pools' `Watcher`."""

    stopping: bool

    def stage(self, name: str, total: int) -> AbstractContextManager[None]: ...

    def advance(self, work: Work) -> None: ...

    def note(self, text: str) -> None: ...

    def worker_changed(self, worker: Worker) -> None: ...

    def worker_said(self, slot: Slot, line: str) -> None: ...


class Engine:
    """Does one run of an open store in a run folder of its own."""

    def __init__(
        self,
        settings: Settings,
        suite: Suite,
        store: Store,
        folder: Path,
        progress: Progress,
        baseline: dict[str, Any] | None,
        before_stage: Callable[[str], None],
        after_stage: Callable[[str], None],
    ) -> None:
        self.settings, self.suite, self.store = settings, suite, store
        self.folder, self.progress, self.baseline = folder, progress, baseline
        self.before_stage, self.after_stage = before_stage, after_stage
        self.timing = Timing()
        self.trials: Trials | None = None
        self.workers: list[tuple[str, Worker]] = []
        self.started = datetime.now(UTC)
        self.working = False
        self.stopped_by = "the user"

    def run(self, pairs: Sequence[EditPair]) -> dict[str, Any]:
        """Edit and score the selected pairs; return the results document.

        Raises `UsageError` if an editor or judge refuses its settings, or the baseline is of other verdicts. The
        first Ctrl-C lets running jobs finish, the second does not; either way the run returns with what is done,
        and `progress.stopping` is set. Before the first job, Ctrl-C raises `KeyboardInterrupt`. A store that cannot
        be written any more, such as on a full disk, stops the run in the same way.
        """
        settings, stage = self.settings, self.settings.run.stage
        in_main_thread = threading.current_thread() is threading.main_thread()
        previous = signal.signal(signal.SIGINT, self._interrupt) if in_main_thread else None
        try:
            self.progress.note(f"plan: {len(pairs)} pairs")
            for journal in (self.store.edits, self.store.verdicts):
                if journal.torn:
                    self.progress.note(f"warning: {journal.path}: dropped a torn last line")
            editor = self._identify("editor", settings.editor, resolve_editor(settings.editor.spec))
            plan = make_plan(self.suite, pairs, settings.editor.seeds, editor, self.store)
            self._take_stored_edits(plan)
            redactor = Redactor.of(settings)
            rubric = load_rubric(settings.judge.rubric, settings.rubrics)
            judge: dict[str, Any] = {"kind": None, "fingerprint": None, "params": {}}
            if stage != "edit":
                judge = self._identify("judge", settings.judge, resolve_judge(settings.judge.spec))
            if self.baseline is not None:
                self._refuse_unlike(self.baseline, judge, plan)
            scorer = None if stage == "edit" else Scorer(settings.judge, judge, rubric, self.store, redactor)
            self.working = True
            try:
                self._work(plan, scorer, pairs)
            except KeyboardInterrupt:
                pass
            except StoreError as error:
                self.stopped_by = str(error)
                self.progress.note(f"stopped: {error}")
        finally:
            if in_main_thread:
                signal.signal(signal.SIGINT, previous)
        items = results.item_results(plan, stage != "edit", self.stopped_by)
        subject = Subject(self.suite, editor, judge, rubric.sha256)
        return make_document(
            self.folder.name,
            self.started,
            settings,
            subject,
            self.timing,
            self.workers,
            plan,
            self.trials,
            items,
            self.baseline,
            self.stopped_by,
        )

    def _interrupt(self, *_: object) -> None:
        """Handle SIGINT without raising in the middle of a write; before the first job there is nothing to save."""
        if self.progress.stopping or not self.working:
            raise KeyboardInterrupt
        self.progress.stopping = True
        self.progress.note("stopping: running jobs are finished and kept; Ctrl-C again to stop at once")

    def _identify(self, role: str, named: EditorSettings | JudgeSettings, target: Target) -> dict[str, Any]:
        if target.kind in MODEL_KINDS:
            check_checkpoint(model_folder(target.argument or "", target.kind), target.kind)
            self.progress.note(f"fingerprint: {role} {named.spec} (weights are read once, then remembered)")
        return identify(target, named.params, self.store)

    def _identify_control(self, target: Target) -> dict[str, Any]:
        return identify(target, {}, self.store)

    def _refuse_unlike(self, baseline: dict[str, Any], judge: dict[str, Any], plan: Sequence[Work]) -> None:
        """Raise `UsageError` if the verdicts of this run are of another kind than the baseline's."""
        asked: dict[str, tuple[str, list[int]]] = {}
        for work in plan:
            content = content_sha256(results.asked_document(work))
            asked.setdefault(work.pair.id, (content, []))[1].append(work.seed)
        reason = unlike_judges(baseline, {"fingerprint": judge["fingerprint"]}, self.settings.editor.seeds)
        refuse(baseline, reason or unlike_items(baseline, [(name, *content) for name, content in asked.items()]))

    def _take_stored_edits(self, plan: Sequence[Work]) -> None:
        reuse = not self.settings.run.fresh or self.settings.run.stage in ("score", "report")
        for work in plan:
            if work.error is None and reuse:
                work.edit = stored_edit(work, self.store)
                self.timing.edits_cached += work.edit is not None

    def _work(self, plan: Sequence[Work], scorer: Scorer | None, pairs: Sequence[EditPair]) -> None:
        stage = self.settings.run.stage
        missing = [work for work in plan if work.error is None and work.edit is None]
        if stage in ("score", "report"):
            for work in missing:
                work.fail(
                    "edit",
                    "not_edited",
                    f"the store has no edit of this pair, and stage {stage!r} makes none",
                )
            missing = []
        judging = None if scorer is None else self._pool("judge")
        ended = 0.0
        try:
            try:
                if missing:
                    ended = self._edit(missing, judging, len(plan))
            finally:  # a stopped run still shows the verdicts that it had before
                pending = [] if scorer is None else self._take_stored_verdicts(plan, scorer)
            if self.progress.stopping:
                return
            self.trials = Trials()
            if scorer is not None and judging is not None:
                self.trials = plan_trials(
                    self.settings, self.suite, pairs, plan, self.store, scorer.judge, self._identify_control
                )
                further = self._take_stored_verdicts(self.trials.works, scorer, count=False)
                if pending or further:
                    self._score(pending, further, scorer, judging, ended)
        finally:
            if judging is not None:
                judging.close()

    def _edit(self, missing: Sequence[Work], judging: Pool | None, verdicts: int) -> float:
        """Run the edit stage and give its memory back; return the time at which the last edit was done.

        The judge's processes start beside it, so that they have imported what they need when it ends.
        """

        def advance(work: Work) -> None:
            self.progress.advance(work)
            if judging is not None:
                judging.poll()  # a judge that cannot start is found now, not after the last edit

        self.before_stage("edit")
        started = time.perf_counter()
        pool = self._pool("edit")
        for role in ("edit",) if judging is None else ("edit", "judge"):
            require_free_gpus(self.settings, role)
        try:
            pool.start(len(missing))
            if judging is not None:
                judging.start(verdicts)
            with self.progress.stage("edit", len(missing)):
                run_edits(missing, pool, self.store, advance)
        finally:
            ended = time.perf_counter()
            self.timing.edits = sum(work.edit is not None for work in missing)
            self.timing.edit_s = ended - started
            pool.close()
            self._remember("edit", pool)
        self.after_stage("edit")
        return ended

    def _take_stored_verdicts(self, plan: Sequence[Work], scorer: Scorer, count: bool = True) -> list[Work]:
        """Give edits the verdicts that the store has; return those that are still to be scored."""
        run = self.settings.run
        edited = [work for work in plan if work.error is None and work.edit is not None]
        for work in edited:
            if not run.fresh or run.stage == "report":
                work.verdict = scorer.stored_verdict(work)
                self.timing.verdicts_cached += count and work.verdict is not None
        pending = [work for work in edited if work.verdict is None]
        if run.stage != "report":
            return pending
        for work in pending:
            work.fail("score", "not_scored", "the store has no verdict on this edit, and stage 'report' makes none")
        return []

    def _score(
        self, pending: Sequence[Work], further: Sequence[Work], scorer: Scorer, pool: Pool, ended: float
    ) -> None:
        """Score what is pending, then further trials of the judge, which share no batch with it.

        `ended` is the time at which the last edit was done, 0 if none was made.
        """
        self.before_stage("score")
        started = time.perf_counter()
        if not ended:
            require_free_gpus(self.settings, "judge")
        pool.start(max(len(pending), len(further)))
        trying = None
        try:
            if pending:
                with self.progress.stage("score", len(pending)):
                    scorer.run(pending, pool, self.progress.advance)
            if further and not self.progress.stopping:
                trying = time.perf_counter()
                with self.progress.stage("try the judge", len(further)):
                    scorer.run(further, pool, self.progress.advance)
        finally:
            ended_at = time.perf_counter()
            finished = ended_at if trying is None else trying
            self.timing.trials_s = ended_at - finished
            loads = [worker.loaded_at for worker in (*pool.workers, *pool.gone) if worker.loaded_at]
            first = min(loads, default=started)
            if ended:
                self.timing.swaps, self.timing.swap_s = 1, first - ended
            self.timing.score_s = finished - (first if ended else started)
            self.timing.verdicts = sum(work.verdict is not None for work in pending)
            self._remember("score", pool)
        self.after_stage("score")

    def _pool(self, role: str) -> Pool:
        return make_pool(self.settings, role, self.folder, self.progress)

    def _remember(self, stage: str, pool: Pool) -> None:
        self.workers.extend(
            (stage, worker) for worker in (*pool.gone, *pool.workers) if worker.jobs_done or worker.load_s
        )


def identify(target: Target, params: dict[str, Any], store: Store) -> dict[str, Any]:
    """Describe an editor or judge by what decides its outcomes: kind, fingerprint, parameters."""
    known = store.folder / "fingerprints.json"
    return {"kind": target.kind, "fingerprint": fingerprint(target, params, known), "params": params}
