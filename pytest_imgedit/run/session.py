"""One session's evaluation: settings, suite, store, run; knows nothing of pytest."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pytest_imgedit.config.settings import Settings, SuiteSettings, make_settings, read_tables
from pytest_imgedit.core import errors, redaction, sanitize
from pytest_imgedit.core.measures import count_groups
from pytest_imgedit.core.results import Results, Section
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.source import find_user_modules
from pytest_imgedit.report import outputs, terminal, write
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run import finish, placement, pools, preflight, work
from pytest_imgedit.run.baselines import Baselines
from pytest_imgedit.run.calls import EditWorkers, RewardModel, SessionCalls
from pytest_imgedit.run.execution import prepare
from pytest_imgedit.run.plan_checks import ask_servers
from pytest_imgedit.run.request import Request, resolve_further, resolve_models
from pytest_imgedit.run.run import BlockRun, Run, RunContext
from pytest_imgedit.run.user_hooks import CallHook, GuardedHooks, Interrupts, no_hooks
from pytest_imgedit.stats.gates import Selection, narrow
from pytest_imgedit.stats.outcome import Outcome, outcome
from pytest_imgedit.store import baselines, going_on, store
from pytest_imgedit.suites.base import Suite, load_suite, with_rewrites
from pytest_imgedit.workers.hardware import Hardware

#: Characters of a section that users add to the report.
MAX_SECTION = 1_000_000


@dataclass(frozen=True)
class ItemCounts:
    """The outcomes of the items that use results: how many were `expected` and `failed`, and which
    have none.

    `stopped` says that pytest ended before all of them, as with `-x`.
    """

    expected: int = 0
    failed: int = 0
    missing: Sequence[str] = ()
    stopped: bool = False


class Evaluation:
    """Everything between checked settings and finished results."""

    def __init__(
        self,
        settings: Settings,
        root: Path,
        hooks: CallHook = no_hooks,
        load: Callable[[SuiteSettings], Suite] = load_suite,
    ) -> None:
        self.settings, self.hooks = settings, hooks
        self.baselines = Baselines(settings, root)
        if self.baselines.makes_first:
            self.settings = self.baselines.without_comparison()
        self.store = store.Store(root / settings.run.out)
        self.run: finish.FinishedRun | None = None
        self.interrupted = self._checked = False
        self._load = load
        self._open = ExitStack()
        self._calls: SessionCalls | None = None
        self._reports: dict[str, str] = {}
        #: What, besides gates and items, keeps the run from passing: reports or a baseline that
        #: could not be written, hooks, further judges and metrics that failed.
        self._failures: list[str] = []
        #: Why copies of the reports could not be written: the exit code is 1, the verdict stays.
        self.unwritten_copies: list[str] = []
        #: Texts of the user's hooks, which fail nothing.
        self.warnings: list[str] = []
        self.items = ItemCounts()

    @cached_property
    def suite(self) -> Suite:
        """The suite, read once; images stay unread."""
        try:
            suite = self._load(self.settings.suite)
            rewrites = self.settings.editor.rewrites
            return suite if rewrites is None else with_rewrites(suite, rewrites)
        except errors.UsageError as error:
            text = str(error)
            if text.startswith(("unknown suite", "suite ")) or "no such file" in text:
                text = self.settings.place("suite", "spec") + text
            raise errors.UsageError(text) from None

    @property
    def _counts(self) -> Mapping[str, int]:
        """The number of pairs by group; a limit of a config, unlike one of the command line,
        makes the suite smaller.
        """
        if "suite.limit" in self.settings.run.asked:
            return self.suite.counts
        return count_groups(self.suite.pairs)

    @cached_property
    def hardware(self) -> Hardware:
        """What this machine has for the run; raises `UsageError` for GPUs that are not there."""
        workers = self.settings.workers
        with preflight.naming_gpus(self.settings):
            if pools.is_remote(self.settings):
                return Hardware.here("none")
            return Hardware.here(workers.gpus, workers.judge_gpus)

    @cached_property
    def models(self) -> dict[Role, Model]:
        """The editor and the judge; raises `UsageError` for a spec that names nothing."""
        return resolve_models(self.settings)

    @cached_property
    def further(self) -> dict[str, Model]:
        """The further judges and the metrics by name; raises `UsageError` likewise."""
        return resolve_further(self.settings)

    def check(self) -> None:
        """Check everything once before anything starts; raises `UsageError` with one line."""
        if self._checked:
            return
        self._checked = True
        preflight.check_executor(self.settings)
        preflight.check_judge_gpus(self.settings, self.models.get("judge"))
        preflight.check_models(self.settings, self.models.values(), self.hardware)
        if not pools.is_remote(self.settings):
            with preflight.naming_gpus(self.settings):
                for model in self.models.values():
                    placement.groups_of(model, self.hardware)
        further = self.settings.further
        for called, model in self.further.items():
            preflight.check_further(further[called], self.suite, model, self.hardware)
        preflight.check_gates(self.settings, self._counts, self.models.get("judge"), self.further)
        preflight.check_partial(self.settings)
        if "judge" in self.models:
            preflight.check_protocol(self.settings, self.suite, self.models["judge"])
        run = self.settings.run
        for option, name in (("--imgedit-save", run.save), ("--imgedit-name", run.name)):
            if name is not None:
                baselines.check_name(option, name)
        if self.settings.run.stage == "edit":
            preflight.check_edits_only(self.settings)
        elif self._compared[0] is not None:
            preflight.check_baseline(self.settings, self.models["judge"], self._compared[0])
        write.check_copies(self.settings.run, self._inputs)

    @cached_property
    def _compared(self) -> tuple[baselines.Baseline | None, str]:
        """The baseline to compare with, and what `latest` passed over."""
        return self.baselines.read(self.suite)

    @cached_property
    def _inputs(self) -> list[Path]:
        """What no copy of a report replaces: the store, the suite, and files of the settings."""
        settings = self.settings
        named = (settings.run.config_file.path, settings.editor.rewrites)
        return [
            self.store.folder,
            *outputs.inputs(self.store.folder, settings.suite.spec),
            *(path for path in named if path is not None),
        ]

    def describe(self) -> str:
        """Say in one line what is evaluated, and on what."""
        settings, host = self.settings, self.hardware.hosts[0]
        devices = f"GPUs {','.join(host.gpus)}" if host.gpus else "CPU"
        if host.judge_gpus:
            devices += f" (the judge on {','.join(host.judge_gpus)})"
        if pools.is_remote(settings):
            devices = "a Ray cluster"
        elif not host.gpus and settings.workers.gpus == "auto":
            devices = "CPU (no GPU visible)"
        return (
            f"suite {settings.suite.spec}, editor {settings.editor.spec}, "
            f"judge {settings.judge.spec}, on {devices}"
        )

    def execute(
        self,
        ids: Sequence[str],
        others: Sequence[str] = (),
        skipped: Sequence[str] = (),
        keeps: Collection[Role] = (),
        file: TextIO = sys.stdout,
        quiet: bool = False,
    ) -> finish.FinishedRun:
        """Run all stages over the selected pairs (`ids`) and write the reports.

        `others` are selected pairs that belong to other shards; `skipped` pairs do not count.
        Workers of the roles that the run `keeps` live on for calls, as far as the models fit.
        """
        in_shard, selected, left_out = set(ids), {*ids, *others}, set(skipped)
        pairs = tuple(pair for pair in self.suite.pairs if pair.id in selected)
        selection = Selection.of(
            count_groups(pairs),
            self._counts,
            count_groups(pair for pair in self.suite.pairs if pair.id in left_out),
        )
        gates, resting = narrow(self.settings.gates, selection, self.settings.run.asked)
        settings = self.settings.model_copy(update={"gates": gates})
        preflight.check_counts(settings, selection.selected)
        self.baselines.check_save(pairs)
        shard = (
            None if settings.run.shard is None else work.SelectedShard(settings.run.shard, pairs)
        )
        pairs = tuple(pair for pair in pairs if pair.id in in_shard)
        folder = self._opened_store.new_run()
        progress = RunProgress(folder / "run.log", file, quiet)
        progress.note(self.describe())
        progress.note(f"log: {os.path.relpath(folder / 'run.log')}")
        compared, passed_over = self._compared
        if passed_over:
            progress.note(passed_over)
        if self.baselines.makes_first:
            progress.note(
                f"baseline {settings.run.save} is not there yet: this run makes it, and is "
                "compared with nothing"
            )
        request = Request(
            settings=settings,
            models=self.models,
            suite=self.suite,
            pairs=pairs,
            selection=selection,
            resting=resting,
            baseline=compared,
            shard=shard,
            further=self.further,
        )
        workers = self._workers
        workers.reporter.watcher, workers.keeps = progress, keeps
        try:
            with Interrupts(progress) as interrupts:
                results = self._run(request, folder, interrupts)
                return self._report(results, folder, interrupts)
        except BaseException:
            workers.close()
            raise
        finally:
            workers.reporter.watcher = None
            self.interrupted = progress.stopping
            progress.close()

    def _report(self, results: Results, folder: Path, interrupts: Interrupts) -> finish.FinishedRun:
        """Write results and reports, results first, and call the hooks that come with them."""
        full = ""
        try:
            write.write_results(results, folder)
            sections = self._sections(results, interrupts)
            results = results.model_copy(update={"sections": sections})
            if sections:
                write.write_results(results, folder)
            self._reports = write.write_reports(
                results, folder, self.store.blobs.folder, self.settings.run
            )
            self.unwritten_copies = write.write_copies(
                results, folder, self.store.blobs.folder, self.settings.run, self._inputs
            )
            full = write.add_to_github_summary(results)
        except errors.StoreError as error:
            self._failures.insert(0, str(error))
        self.run = finish.FinishedRun.of(results, self.settings.suite.min_score, self.store.folder)
        hooks = GuardedHooks(self.hooks, interrupts.call, self._failures.append)
        texts = hooks("run_finished", results=results, store=self.store.folder)
        texts = [full, *(text for text in texts if isinstance(text, str))]
        self.warnings = [sanitize.shorten(text) for text in texts if text]
        return self.run

    def _run(self, request: Request, folder: Path, interrupts: Interrupts) -> Results:
        """Plan the run and execute it; raises `UsageError` if an editor or judge refuses its
        settings.

        The first Ctrl-C lets running jobs finish, the second does not; either way the run returns
        with what is done, and `progress.stopping` is set. Before the first job, Ctrl-C raises
        `KeyboardInterrupt`. A store that cannot be written any more, such as on a full disk, a
        system that refuses a file, a process or a thread, and an editor or judge that fails alike
        on everything stop the run in the same way.
        """
        started, stopped_by = datetime.now(UTC), ""
        workers, progress = self._workers, interrupts.progress

        def fail(failure: str) -> None:
            """Note a failed hook, which fails the run at its end: nothing finished is lost."""
            self._failures.append(failure)
            progress.note(failure)

        plan = prepare(request, self.store, workers.launcher, progress.note)
        ask_servers(plan)
        workers.models |= plan.models
        workers.identities |= plan.identities
        workers.peaks = plan.peaks
        hooks = GuardedHooks(self.hooks, interrupts.call, fail)
        context = RunContext(
            workers.launch,
            workers.launch_further,
            progress,
            hooks,
            give_back=workers.give_back,
            keeps=workers.keeps,
        )
        run = Run(plan, context) if plan.blocks is None else BlockRun(plan, plan.blocks, context)
        interrupts.working = True
        try:
            missing = len(work.missing_edits(plan.works))
            editor = redaction.mask_shapes(self.settings.editor.spec)
            going_on.write_plan(self.store, folder, edits=missing, editor=editor)
            run.execute()
        except KeyboardInterrupt:
            pass
        except (
            errors.StoreError,
            errors.FailsAlike,
            OSError,
            RuntimeError,
            MemoryError,
        ) as error:
            if isinstance(error, errors.StoreError | errors.FailsAlike):
                stopped_by = str(error)
            elif (refused := errors.of_system(error)) is not None:
                stopped_by = refused
            else:
                raise
            progress.note(f"stopped: {stopped_by}")
        self._failures += [*hooks.further_failures(), *run.failed_further]
        hosts = workers.launcher.hosts
        origins = [host.origin for host in hosts.all] if hosts else []
        if progress.stopping or stopped_by or not workers.pools:
            workers.close()
        return finish.make_results(
            finish.EndedRun(
                plan=plan,
                timing=run.timing,
                workers=run.workers,
                further_workers=run.further_workers,
                trials=run.trials,
                run_id=folder.name,
                started=started,
                stopped_by=stopped_by or "the user",
                hosts=origins,
            )
        )

    @cached_property
    def _workers(self) -> pools.SessionWorkers:
        workers = pools.SessionWorkers(
            self.settings, self.models, self.hardware, self._opened_store
        )
        self._open.callback(workers.close)
        return workers

    def conclude(self, items: ItemCounts) -> Outcome:
        """Take the counts of pytest's items, save the run as a baseline if requested, and return
        the outcome.

        A run that passed is saved, and one that only warns if there is no baseline of that name.
        """
        self.items = items
        name = self.settings.run.save
        outcome = self.outcome()
        replaces = self.baselines.saved is not None
        may_be_saved = outcome.state == "PASS" or not (outcome.fails or replaces)
        if name is not None and may_be_saved:
            try:
                self._reports["baseline"] = os.path.relpath(
                    self.baselines.save(name, self._results)
                )
            except errors.StoreError as error:
                self._failures.insert(0, str(error))
        return self.outcome()

    def _sections(self, results: Results, interrupts: Interrupts) -> tuple[Section, ...]:
        try:
            parts = interrupts.call(partial(self.hooks, "report_section", results=results))
            sections = [tuple(part) for part in parts if part]
            if not all(
                len(part) == 2 and all(isinstance(text, str) for text in part) for part in sections
            ):
                raise TypeError(f"it returned {sections!r:.200}, expected (title, body)")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = f"failed: {type(error).__name__}: {sanitize.one_line(error)}"
            sections = [("pytest_imgedit_report_section", text)]
        return tuple(
            Section(title=sanitize.shorten(title), body=sanitize.shorten(body, MAX_SECTION))
            for title, body in sections
        )

    def calls(self, name: str, file: TextIO) -> SessionCalls:
        """Return what answers calls of the fixture `edit_workers` or `reward_model`; raises
        `UsageError` if none can.
        """
        self.check_calls(name)
        self.check()
        if self._calls is None:
            log = RunProgress(self._opened_store.folder / "fixtures.log", file, quiet=True)
            self._open.callback(log.close)
            self._open.callback(self._workers.close)  # before the log that they report to
            self._workers.reporter.watcher = log
            self._calls = SessionCalls(self._workers)
            self._open.callback(self._calls.close)
        return self._calls

    def check_calls(self, name: str) -> None:
        """Raise `UsageError` if the settings leave a fixture nothing to call."""
        stage = self.settings.run.stage
        if stage == "report" or (stage == "score" and name == "edit_workers"):
            raise errors.UsageError(f"{name}: --imgedit-stage={stage} starts no such workers")
        if name == "reward_model" and stage == "edit" and self.settings.judge.scores:
            raise errors.UsageError("reward_model: --imgedit-stage=edit starts no judge")
        if name == "reward_model" and not self.settings.judge.scores:
            raise errors.UsageError(
                f"reward_model: judge {self.settings.judge.spec!r} scores nothing, name another one"
            )

    @cached_property
    def _opened_store(self) -> store.Store:
        """The store, held until `close`; raises `UsageError` if another process holds it."""
        return self._open.enter_context(self.store)

    def close(self) -> None:
        """End the session's workers, and release the store."""
        self._open.close()

    @property
    def _results(self) -> Results:
        assert self.run is not None
        return self.run.results

    def summary(self, width: int, color: bool, verbose: bool) -> str:
        """Render what the terminal shows at the end: the verdict, then all else."""
        return terminal.render(
            self._results, width, color, verbose, verdict=self.outcome(), warnings=self.warnings
        )

    def written(self) -> dict[str, str]:
        """Return where each report is, and the baseline, or why it was not saved."""
        name = self.settings.run.save
        if name is None or "baseline" in self._reports:
            return self._reports
        outcome = self.outcome()
        reason = "pytest was stopped"
        if outcome.fails:
            reason = f"the run is {outcome.state}"
        elif outcome.state != "PASS" and (old := self.baselines.saved) is not None:
            reason = (
                f"the run is {outcome.state}, and only a PASS replaces a baseline: save it under "
                f"another name, or remove {os.path.relpath(old)}"
            )
        return {**self._reports, "baseline": f"{name} was not saved: {reason}"}

    def annotations(self) -> list[str]:
        """Return what marks on GitHub the gates that did not pass, and copies that are missing;
        nothing elsewhere.
        """
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return []
        return write.shown(
            [
                *(write.command("error", "imgedit", problem) for problem in self.unwritten_copies),
                *write.gate_commands(self._results, self.outcome()),
            ]
        )

    def outcome(self) -> Outcome:
        """Return the outcome of the run, which fails on missing reports, hooks and items too."""
        of_gates = outcome(self._results)
        problems = self.problems()
        if not problems:
            return of_gates
        if of_gates.fails:
            return replace(of_gates, notes=(*map(sanitize.printable, problems), *of_gates.notes))
        of_run = of_gates.line.removeprefix("PASS: ")
        return Outcome.of("FAIL", problems[:1], [*problems, of_run, *of_gates.notes], fails=True)

    def problems(self) -> list[str]:
        """Return what, besides gates, keeps the run from passing: items, reports, hooks, further
        judges and metrics.
        """
        problems = [*self._failures]
        if self.items.failed:
            problems.append(f"{self.items.failed} of {self.items.expected} items failed")
        if self.items.missing:
            reason = "not run" if self.items.stopped else "never reported"
            problems.append(
                f"{len(self.items.missing)} selected items were {reason}, such as "
                f"{self.items.missing[0]}"
            )
        return problems


class OpenModels(NamedTuple):
    """What `open_models` yields; each is like the fixture of its name."""

    edit_workers: EditWorkers
    reward_model: RewardModel


@contextmanager
def open_models(config: Path | None = None, **tables: Mapping[str, Any]) -> Iterator[OpenModels]:
    """Yield an editor and a judge as a config file names them, or `tables` such as
    `judge={"spec": …}`.

    Workers start at the first call and end with the block. Edits and verdicts are kept in the
    store, `.imgedit` in the working directory or `run={"out": DIR}`, which this process alone may
    hold. Raises `UsageError` for settings that are wrong.
    """
    find_user_modules(config)
    raw = read_tables(config)
    for section, table in tables.items():
        raw[section] = {**raw.get(section, {}), **table}
    evaluation = Evaluation(make_settings(raw), Path.cwd())
    try:
        yield OpenModels(
            EditWorkers(lambda calls: evaluation.calls("edit_workers", sys.stderr).edit(calls)),
            RewardModel(lambda calls: evaluation.calls("reward_model", sys.stderr).score(calls)),
        )
    finally:
        evaluation.close()
