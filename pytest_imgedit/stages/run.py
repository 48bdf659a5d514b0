"""One run from the plan to results.json: edit, swap, score, with everything finished kept as it comes."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from pytest_imgedit.core.results import ComputedIn, EditorInfo, JudgeInfo
from pytest_imgedit.errors import StoreError, UsageError
from pytest_imgedit.models.identity import Identity, identify
from pytest_imgedit.redaction import Redactor
from pytest_imgedit.rubrics.rubric import load_rubric
from pytest_imgedit.stages.blocks import Blocks
from pytest_imgedit.stages.document import Computed, Finished, make_results
from pytest_imgedit.stages.flow import Flow
from pytest_imgedit.stages.foresight import expected_lines
from pytest_imgedit.stages.missing import missing_lines
from pytest_imgedit.stages.placement import all_gpus, is_remote, model_of
from pytest_imgedit.stages.plan import Work, make_plan, missing_edits
from pytest_imgedit.stages.pools import identify_role
from pytest_imgedit.stages.score import Scorer
from pytest_imgedit.stats.comparison import environment_differences
from pytest_imgedit.store.baselines import content_sha256, refuse, unlike_items, unlike_judges, unlike_losses
from pytest_imgedit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pytest_imgedit.config import Settings
    from pytest_imgedit.core.results import GateResult, Results
    from pytest_imgedit.models.kinds import Model, Role
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.stats.selection import Selection
    from pytest_imgedit.store.baselines import Baseline
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.suites.base import Suite
    from pytest_imgedit.workers.base import Slot, Worker


#: Signals that stop a run: Ctrl-C, and what Slurm, Kubernetes, `timeout` and a terminal that goes away send.
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Progress(Protocol):
    """Shows a run to the user and writes its log; also the pools' `Watcher`."""

    stopping: bool

    def stage(self, name: str, total: int) -> AbstractContextManager[None]: ...

    def advance(self, stage: str, work: Work) -> None: ...

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
        baseline: Baseline | None,
        before_stage: Callable[[str], None],
        after_stage: Callable[[str], None],
        selection: Selection,
        resting: Sequence[GateResult],
    ) -> None:
        self.settings, self.suite, self.store = settings, suite, store
        self.selection, self.resting = selection, resting
        self.folder, self.progress, self.baseline = folder, progress, baseline
        self.before_stage, self.after_stage = before_stage, after_stage
        self.started = datetime.now(UTC)
        self.working = False
        self.stopped_by = "the user"

    def run(self, pairs: Sequence[EditPair]) -> Results:
        """Edit and score the selected pairs; return the results.

        Raises `UsageError` if an editor or judge refuses its settings, or the baseline is of other verdicts. The
        first Ctrl-C lets running jobs finish, the second does not; either way the run returns with what is done,
        and `progress.stopping` is set. Before the first job, Ctrl-C raises `KeyboardInterrupt`. A store that cannot
        be written any more, such as on a full disk, stops the run in the same way.
        """
        settings, stage = self.settings, self.settings.run.stage
        flow = Flow(settings, self.store, self.folder, self.progress, self.before_stage, self.after_stage)
        in_main_thread = threading.current_thread() is threading.main_thread()
        previous = self._take_signals() if in_main_thread else {}
        try:
            for line in (
                f"plan: {counted(len(pairs), 'pair')}",
                *expected_lines(settings, self.suite, pairs, self.store),
            ):
                self.progress.note(line)
            for journal in (self.store.edits, self.store.verdicts):
                if journal.torn:
                    self.progress.note(f"warning: {journal.path}: dropped a torn last line")
            editor = self._identify("editor")
            plan = make_plan(self.suite, pairs, settings.editor.seeds, editor, self.store)
            asked = None if stage == "edit" else model_of(settings, "judge")
            for line in (*self.suite.remarks, *missing_lines(editor.model, asked, plan)):
                self.progress.note(line)
            flow.take_stored_edits(plan, editor)
            if stage in ("score", "report") and not is_remote(settings) and not any(work.edit for work in plan):
                raise UsageError(
                    f"--imgedit-stage={stage}: {self.store.folder} has no edit of these pairs by this editor, "
                    "make them with --imgedit-stage=edit"
                )
            redactor = Redactor.of(settings)
            rubric = load_rubric(settings.judge.rubric, settings.rubrics)
            judge = None if stage == "edit" else self._identify("judge")
            scorer = None
            if judge is not None:
                if self.baseline is not None:
                    self._refuse_unlike(self.baseline, editor, judge, plan)
                    if stage == "all" and missing_edits(plan):
                        self._refuse_elsewhere(self.baseline, editor, judge)
                scorer = Scorer(settings.judge, judge, rubric, self.store, redactor)
            blocks = Blocks(settings.gates, plan, self.baseline) if settings.gates.until == "decided" else None
            self.working = True
            try:
                flow.work(plan, scorer, self.suite, pairs, self._identify_control, blocks)
            except KeyboardInterrupt:
                pass
            except StoreError as error:
                self.stopped_by = str(error)
                self.progress.note(f"stopped: {error}")
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        usage = None
        if scorer is not None and (prices := scorer.judge.model.prices) is not None:
            usage = scorer.usage(*prices)
        return make_results(
            Finished(
                run_id=self.folder.name,
                started=self.started,
                settings=settings,
                suite=self.suite,
                selection=self.selection,
                plan=plan,
                editor=flow.editor,
                judge=None if scorer is None else scorer.judge,
                rubric_sha256=rubric.sha256,
                usage=usage,
                trials=flow.trials,
                timing=flow.timing,
                workers=flow.workers,
                gpus=[gpu["product"] for gpu in all_gpus(settings)],
                hosts=flow.origins,
                environments=self.store.environments,
                baseline=self.baseline,
                stopped_by=self.stopped_by,
                decided=blocks.decided if blocks is not None else {},
                resting=self.resting,
            )
        )

    def _take_signals(self) -> dict[signal.Signals, Any]:
        """Handle Ctrl-C and what schedulers send; return the handlers until now. `nohup` goes on being obeyed."""
        taken = [number for number in _STOPS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
        return {number: signal.signal(number, self._interrupt) for number in taken}

    def _interrupt(self, *_: object) -> None:
        """Handle a signal without raising in the middle of a write; before the first job there is nothing to save."""
        if self.progress.stopping or not self.working:
            raise KeyboardInterrupt
        self.progress.stopping = True
        self.progress.note("stopping: running jobs are finished and kept; Ctrl-C again to stop at once")

    def _identify(self, role: Role) -> Identity:
        model = model_of(self.settings, role)
        if model.checkpoint is not None:
            model.check_folder()
            self.progress.note(f"fingerprint: {role} {model.spec} (weights are read once, then remembered)")
        return identify_role(self.settings, role, self.store.fingerprints)

    def _identify_control(self, model: Model) -> Identity:
        return identify(model, self.store.fingerprints)

    def _refuse_elsewhere(self, baseline: Baseline, editor: Identity, judge: Identity) -> None:
        """Raise `UsageError` if what is to be computed would be so in another environment, where that was ruled out."""
        if self.settings.gates.environment == "any" or is_remote(self.settings):
            return  # hosts are not asked yet: their gates are INVALID
        here = Computed(
            EditorInfo(spec="", dtype=editor.recipe.get("dtype")),
            JudgeInfo(spec="", dtype=judge.recipe.get("dtype"), decoder=judge.recipe.get("decoder")),
            {
                "editor": ComputedIn(**editor.here.model_dump(), edits=1, verdicts=0),
                "judge": ComputedIn(**judge.here.model_dump(), edits=0, verdicts=1),
            },
        )
        if found := environment_differences(baseline, here):
            refuse(baseline, f'computed in another environment (gates.environment="same"): {"; ".join(found)}')

    def _refuse_unlike(self, baseline: Baseline, editor: Identity, judge: Identity, plan: Sequence[Work]) -> None:
        """Raise `UsageError` if the verdicts of this run are of another kind than the baseline's."""
        asked: dict[str, tuple[str, list[int]]] = {}
        for work in plan:
            content = content_sha256(work.asked)
            asked.setdefault(work.pair.id, (content, []))[1].append(work.seed)
        told = {"fingerprint": judge.fingerprint, "spec": self.settings.judge.spec}
        reason = unlike_judges(baseline, told, self.settings.editor.seeds)
        if self.settings.gates.max_drop:
            reason = reason or unlike_losses(baseline, editor.model.lossy)
        refuse(baseline, reason or unlike_items(baseline, [(name, *content) for name, content in asked.items()]))
