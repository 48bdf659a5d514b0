"""Plans and executes the run of a session, and writes its reports."""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from pytest_imgedit.core import errors, redaction
from pytest_imgedit.core.measures import count_groups
from pytest_imgedit.core.results import Results, Section
from pytest_imgedit.core.text import one_line, shorten
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.report import write
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run import (
    finish,
    first_requests,
    forecast,
    judge_gpus,
    plan_checks,
    pools,
    settings_checks,
)
from pytest_imgedit.run.interrupts import CallHook, GuardedHooks, Interrupts, no_hooks
from pytest_imgedit.run.plan import RunPlan, make_plan
from pytest_imgedit.run.request import Request
from pytest_imgedit.run.run import BlockRun, Run, RunContext
from pytest_imgedit.run.run_outcome import RunOutcome
from pytest_imgedit.run.session import Session
from pytest_imgedit.run.work import SelectedShard, missing_edits
from pytest_imgedit.stats.gate_values import Selection, narrow
from pytest_imgedit.store import unfinished_runs
from pytest_imgedit.store.store import Store

#: Characters of a section that users add to the report.
MAX_SECTION = 1_000_000


@dataclass(frozen=True)
class SelectedIds:
    """The ids of the pairs that a session has selected: those of its own shard, those of `others`,
    and those that are `skipped`, which do not count.
    """

    own: Sequence[str]
    others: Sequence[str] = ()
    skipped: Sequence[str] = ()


def execute(
    session: Session,
    ids: SelectedIds,
    *,
    hooks: CallHook = no_hooks,
    keeps: Collection[Role] = (),
    file: TextIO = sys.stdout,
    quiet: bool = False,
) -> RunOutcome:
    """Run all stages over the selected pairs and write the reports.

    Workers of the roles in `keeps` stay alive for fixture calls if they fit in memory. Raises
    `UsageError` if the run could only fail, or if an editor or judge refuses its settings.
    """
    request = make_request(session, ids)
    folder = session.opened_store.new_run()
    progress = RunProgress(folder / "run.log", file, quiet)
    for line in _opening_lines(session, folder):
        progress.note(line)
    workers = session.workers
    workers.reporter.watcher = progress
    workers.keeps = keeps
    try:
        with Interrupts(progress) as interrupts:
            execution = _Execution(session, request, folder, interrupts, hooks)
            outcome = execution.report(execution.run())
            outcome.interrupted = progress.stopping
            return outcome
    except BaseException:
        workers.close()
        raise
    finally:
        workers.reporter.watcher = None
        progress.close()


def make_request(session: Session, ids: SelectedIds) -> Request:
    """Return what a run of the selected pairs is to do; raises `UsageError` for too few pairs of a
    gated group, and if saving would lose pairs of a baseline.
    """
    suite_pairs = session.suite.pairs
    own_ids = set(ids.own)
    skipped_ids = set(ids.skipped)
    selected_ids = own_ids.union(ids.others)
    pairs = tuple(pair for pair in suite_pairs if pair.id in selected_ids)
    selection = Selection.of(
        count_groups(pairs),
        session.counts,
        count_groups(pair for pair in suite_pairs if pair.id in skipped_ids),
    )
    gates, resting = narrow(session.settings.gates, selection, session.settings.run.asked)
    settings = session.settings.model_copy(update={"gates": gates})
    settings_checks.check_counts(settings, selection.selected)
    session.baselines.check_save(pairs)
    shard = None
    if settings.run.shard is not None:
        shard = SelectedShard(settings.run.shard, pairs)
    return Request(
        settings=settings,
        models=session.models,
        suite=session.suite,
        pairs=tuple(pair for pair in pairs if pair.id in own_ids),
        selection=selection,
        resting=resting,
        baseline=session.compared.baseline,
        opponent=session.opponent(own_ids),
        shard=shard,
        additional=session.additional,
    )


def _opening_lines(session: Session, folder: Path) -> list[str]:
    """Return the first lines of a run: what it evaluates, where its log is, and what is to be known
    of its baseline.
    """
    lines = [session.describe(), f"log: {os.path.relpath(folder / 'run.log')}"]
    passed_over = session.compared.passed_over
    if passed_over:
        lines.append(passed_over)
    if session.baselines.makes_first:
        lines.append(
            f"baseline {session.settings.run.save} is not there yet: this run makes it, and is "
            "compared with nothing"
        )
    if session.baselines.lacks_edits:
        lines.append(
            f"warning: --imgedit-save={session.settings.run.save} keeps no edits, and duels "
            "(gates.duel) need them: add --imgedit-save-edits"
        )
    return lines


def prepare(
    request: Request,
    store: Store,
    launcher: pools.Launcher,
    note: Callable[[str], None],
    start_ahead: Callable[[int], None] = lambda jobs: None,
) -> RunPlan:
    """Plan a run, check the plan and say what it will do; `note` takes the lines, `start_ahead` is
    as `make_plan` takes it.

    Raises `UsageError` if the run could only fail.
    """
    for line in forecast.request_lines(request, store):
        note(line)
    for line in plan_checks.store_warnings(store):
        note(line)
    plan = make_plan(request, store, launcher, note, start_ahead)
    plan = _without_unlike_scores(plan, note)
    lacks = list(plan_checks.lacks_of(plan))
    plan_checks.check_plan(plan, lacks)
    for line in plan_checks.plan_warnings(plan, lacks):
        note(line)
    plan = forecast.with_bills(plan)
    for line in forecast.plan_lines(plan):
        note(line)
    if not plan.hardware.has_gpus:
        return plan
    peaks = forecast.known_peaks(plan.settings, plan.identities, request.suite, store)
    plan = replace(plan, peaks=peaks)
    for line in judge_gpus.lines(plan):
        note(line)
    return plan


def _without_unlike_scores(plan: RunPlan, note: Callable[[str], None]) -> RunPlan:
    """Return a plan that compares no scores with a baseline of another judge, if duels alone rest
    on it.
    """
    baseline = plan.request.baseline
    if baseline is None or not settings_checks.duels_alone(plan.settings):
        return plan
    reason = plan_checks.unlike_scores(plan, baseline)
    if reason is None:
        return plan
    note(f"plan: scores are not compared with {baseline.name}: {reason}")
    return replace(plan, request=replace(plan.request, baseline=None))


@dataclass
class _Execution:
    """One run of a session, whose hooks cannot stop it: they fail it at its end."""

    session: Session
    request: Request
    folder: Path
    interrupts: Interrupts
    user_hooks: CallHook

    def __post_init__(self) -> None:
        self.progress = self.interrupts.progress
        #: What, besides gates and items, keeps the run from passing.
        self.failures: list[str] = []
        self.hooks = GuardedHooks(self.user_hooks, self.interrupts.call, self._fail)

    def _fail(self, failure: str) -> None:
        """Note a failed hook, which fails the run at its end: nothing finished is lost."""
        self.failures.append(failure)
        self.progress.note(failure)

    def run(self) -> Results:
        """Plan the run and execute it; a run that is stopped returns with what is done.

        The first Ctrl-C lets running jobs finish, the second does not; either way
        `progress.stopping` is set. Before the first job, Ctrl-C raises `KeyboardInterrupt`. A store
        that cannot be written any more, such as on a full disk, a system that refuses a file, a
        process or a thread, and an editor or judge that fails alike on everything stop the run in
        the same way.
        """
        started = datetime.now(UTC)
        workers = self.session.workers
        store = self.session.store
        plan = prepare(
            self.request, store, workers.launcher, self.progress.note, workers.start_ahead
        )
        for line in self.session.baselines.size_lines(plan.works, store):
            self.progress.note(line)
        first_requests.ask_servers(plan, self.progress.note)
        workers.settle(plan.models, plan.identities, plan.peaks)
        context = RunContext(
            workers.launch,
            workers.launch_additional,
            self.progress,
            self.hooks,
            give_back=workers.give_back,
            keeps=workers.keeps,
        )
        run = Run(plan, context) if plan.blocks is None else BlockRun(plan, plan.blocks, context)
        self.interrupts.working = True
        stopped_by = self._execute(run)
        self.failures += self.hooks.further_failures()
        self.failures += run.failed_scorers
        hosts = workers.launcher.hosts
        origins = [host.origin for host in hosts.all] if hosts else []
        if self.progress.stopping or stopped_by or not workers.pools:
            workers.close()
        return finish.make_results(
            finish.EndedRun(
                plan=plan,
                timing=run.timing,
                workers=run.workers,
                additional_workers=run.additional_workers,
                trials=run.trials,
                duels=run.duels,
                run_id=self.folder.name,
                started=started,
                stopped_by=stopped_by,
                hosts=origins,
            )
        )

    def _execute(self, run: Run) -> str:
        """Execute the run; return what stopped it, an empty text if nothing or the user did."""
        editor = redaction.mask_shapes(self.request.settings.editor.spec)
        missing = len(missing_edits(run.plan.works))
        try:
            unfinished_runs.write_plan(
                self.session.store, self.folder, edits=missing, editor=editor
            )
            run.execute()
        except KeyboardInterrupt:
            return ""
        except (errors.StoreError, errors.FailsAlike) as error:
            stopped_by = str(error)
        except (OSError, RuntimeError, MemoryError) as error:
            refused = errors.system_refusal(error)
            if refused is None:
                raise
            stopped_by = refused
        else:
            return ""
        self.progress.note(f"stopped: {stopped_by}")
        return stopped_by

    def report(self, results: Results) -> RunOutcome:
        """Write results and reports, results first, and call the hooks that come with them.

        A file that cannot be written fails the run, and those after it are not written.
        """
        session = self.session
        settings = session.settings
        images = session.store.blobs.folder
        reports: dict[str, str] = {}
        unwritten_copies: list[str] = []
        warnings: list[str] = []
        try:
            write.write_results(results, self.folder)
            sections = self._sections(results)
            if sections:
                results = results.model_copy(update={"sections": sections})
                write.write_results(results, self.folder)
            reports = write.write_reports(results, self.folder, images, settings.run)
            unwritten_copies = write.write_copies(
                results, self.folder, images, settings.run, session.inputs
            )
            warnings.append(write.add_to_github_summary(results))
        except errors.StoreError as error:
            self.failures.insert(0, str(error))
        run = finish.FinishedRun.of(results, settings.suite.min_score, session.store.folder)
        warnings += self._texts_of_hooks(results)
        return RunOutcome(
            session=session,
            run=run,
            reports=reports,
            failures=self.failures,
            unwritten_copies=unwritten_copies,
            warnings=[shorten(text) for text in warnings if text],
        )

    def _texts_of_hooks(self, results: Results) -> list[str]:
        """Call the hooks that come with finished results; return the texts that they return. Those
        that fail are shown with the outcome.
        """
        closing_hooks = GuardedHooks(self.user_hooks, self.interrupts.call, self.failures.append)
        returned = closing_hooks("run_finished", results=results, store=self.session.store.folder)
        return [text for text in returned if isinstance(text, str)]

    def _sections(self, results: Results) -> tuple[Section, ...]:
        """Return the sections that users' hooks add to the report; a failure is one of them."""
        call = partial(self.user_hooks, "report_section", results=results)
        try:
            sections = _checked_sections(self.interrupts.call(call))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = f"failed: {type(error).__name__}: {one_line(error)}"
            sections = [("pytest_imgedit_report_section", text)]
        return tuple(
            Section(title=shorten(title), body=shorten(body, MAX_SECTION))
            for title, body in sections
        )


def _checked_sections(returned: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the sections that hooks have returned; raises `TypeError` unless each is a title and a
    body.
    """
    sections = [tuple(section) for section in returned if section]
    for section in sections:
        if len(section) != 2 or not all(isinstance(text, str) for text in section):
            raise TypeError(f"it returned {sections!r:.200}, expected (title, body)")
    return sections
