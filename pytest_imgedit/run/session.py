"""One session's evaluation: settings, suite, store, run; knows nothing of pytest."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pytest_imgedit.config.settings import Settings, SuiteSettings, make_settings, read_tables
from pytest_imgedit.core.errors import StoreError, UsageError
from pytest_imgedit.core.results import Results, Section
from pytest_imgedit.core.sanitize import one_line, shorten
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.report import terminal
from pytest_imgedit.report.github import gate_commands
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.report.write import add_to_github_summary, write_reports, write_results
from pytest_imgedit.run import preflight
from pytest_imgedit.run.calls import EditWorkers, RewardModel, SessionCalls
from pytest_imgedit.run.finish import EndedRun, FinishedRun, make_results
from pytest_imgedit.run.hooks import Guard, GuardedHooks, Interrupts, Progress, RunHooks
from pytest_imgedit.run.placement import groups_of
from pytest_imgedit.run.plan import Models, Request, ask_servers, make_plan
from pytest_imgedit.run.pools import SessionWorkers, Silence, is_remote
from pytest_imgedit.run.preflight import Baselines
from pytest_imgedit.run.run import BlockRun, Run, Surroundings
from pytest_imgedit.run.work import SelectedShard
from pytest_imgedit.stats.gates import Selection, narrow
from pytest_imgedit.stats.outcome import Outcome, outcome
from pytest_imgedit.store.baselines import check_name
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite, load_suite
from pytest_imgedit.workers.hardware import Hardware

#: Characters of a section that users add to the report.
MAX_SECTION = 1_000_000


@dataclass(frozen=True)
class Hooks:
    """What the session calls of its users: `of_run` while it runs, the others with its results.

    `run_finished` is given the folder of the store too.
    """

    of_run: RunHooks
    run_finished: Callable[[Results, Path], None]
    report_sections: Callable[[Results], Iterable[Any]]


@dataclass(frozen=True)
class ItemCounts:
    """What became of the items that want results: how many were `expected` and `failed`, and which
    have no outcome.

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
        hooks: Hooks,
        load: Callable[[SuiteSettings], Suite] = load_suite,
    ) -> None:
        self.settings, self.root, self.hooks = settings, root, hooks
        self.baselines = Baselines(settings, root)
        if self.baselines.makes_first:
            self.settings = self.baselines.without_comparison()
        self.store = Store(root / settings.run.out)
        self.run: FinishedRun | None = None
        self.interrupted = False
        self._load, self._opened, self._checked = load, False, False
        self._workers: SessionWorkers | None = None
        self._calls: SessionCalls | None = None
        self._calls_log: RunProgress | None = None
        self._reports: dict[str, str] = {}
        self._unwritten = ""
        self.failed_hooks: list[str] = []
        self.items = ItemCounts()

    @cached_property
    def suite(self) -> Suite:
        """The suite, read once; images stay unread."""
        try:
            return self._load(self.settings.suite)
        except UsageError as error:
            place = self.settings.place("suite", "spec")
            is_spec = str(error).startswith(("unknown suite", "suite ")) or "no such file" in str(
                error
            )
            raise UsageError(f"{place}{error}" if is_spec else str(error)) from None

    @property
    def _counts(self) -> Mapping[str, int]:
        """Pairs of each category: a limit of the command line leaves some out, one of a config
        makes the suite.
        """
        if "suite.limit" in self.settings.run.asked:
            return self.suite.counts
        return Counter(pair.category for pair in self.suite.pairs)

    @cached_property
    def hardware(self) -> Hardware:
        """What this machine has for the run, looked at once; raises `UsageError` for GPUs that are
        not there.
        """
        workers = self.settings.workers
        with preflight.naming_gpus(self.settings):
            if is_remote(self.settings):
                return Hardware.here("none")
            return Hardware.here(workers.gpus, workers.judge_gpus)

    @cached_property
    def models(self) -> Models:
        """The editor and the judge, resolved once; raises `UsageError` for a spec that names
        nothing.
        """
        return Models.of(self.settings)

    def check(self) -> None:
        """Find everything that is wrong before anything is started, once; raise `UsageError` with
        one line.
        """
        if self._checked:
            return
        self._checked = True
        preflight.check_executor(self.settings)
        preflight.check_judge_gpus(self.settings, self.models.judge)
        preflight.check_models(self.settings, self.models, self.hardware)
        if not is_remote(self.settings):
            with preflight.naming_gpus(self.settings):
                for model in self.models:
                    groups_of(model, self.hardware)
        preflight.check_gates(self.settings, self.suite, self._counts)
        preflight.check_until(self.settings)
        preflight.check_shard(self.settings)
        preflight.check_rubric(self.settings, self.suite)
        if self.settings.run.save is not None:
            check_name(self.settings.run.save)
        if self.settings.run.stage == "edit":
            preflight.check_edits_only(self.settings)
        elif self.baselines.reference is not None and self.models.judge is not None:
            preflight.check_baseline(self.settings, self.models.judge, self.baselines.reference)
        preflight.check_copies(self.settings.run.copies, self.store.folder)

    def describe(self) -> str:
        """Say in one line what is evaluated, and on what."""
        names = self.hardware.hosts[0].gpus
        gpus = f"GPUs {','.join(names)}" if names else "CPU"
        if apart := self.hardware.hosts[0].judge_gpus:
            gpus += f" (the judge on {','.join(apart)})"
        if is_remote(self.settings):
            gpus = "a Ray cluster"
        elif not names and self.settings.workers.gpus == "auto":
            gpus = "CPU (no GPU visible)"
        return (
            f"suite {self.settings.suite.spec}, editor {self.settings.editor.spec}, "
            f"judge {self.settings.judge.spec}, on {gpus}"
        )

    def execute(
        self,
        ids: Sequence[str],
        others: Sequence[str] = (),
        skipped: Sequence[str] = (),
        keeps: Collection[Role] = (),
        file: TextIO = sys.stdout,
        quiet: bool = False,
    ) -> FinishedRun:
        """Run all stages over the selected pairs and write the reports; `skipped` pairs do not
        count.

        `others` are selected pairs that belong to other shards.
        Workers of the roles that the run `keeps` go on for calls, as far as the models fit.
        """
        in_shard, selected, left_out = set(ids), {*ids, *others}, set(skipped)
        pairs = tuple(pair for pair in self.suite.pairs if pair.id in selected)
        without = (pair.category for pair in self.suite.pairs if pair.id in left_out)
        selection = Selection.of((pair.category for pair in pairs), self._counts, without)
        gates, resting = narrow(self.settings.gates, selection, self.settings.run.asked)
        settings = self.settings.model_copy(update={"gates": gates})
        preflight.check_counts(settings, Counter(pair.category for pair in pairs))
        self.baselines.check_save(pairs)
        shard = None if settings.run.shard is None else SelectedShard(settings.run.shard, pairs)
        pairs = tuple(pair for pair in pairs if pair.id in in_shard)
        self.open_store()
        folder = self.store.new_run()
        progress = RunProgress(folder / "run.log", file, quiet)
        progress.note(self.describe())
        if self.baselines.makes_first:
            progress.note(
                f"baseline {settings.run.save} is not there yet: this run makes it, and is "
                "compared with nothing"
            )
        request = Request(
            settings,
            self.models,
            self.suite,
            pairs,
            selection,
            resting,
            self.baselines.reference,
            shard,
        )
        workers = self._session_workers()
        workers.audience.progress, workers.keeps = progress, keeps
        try:
            with Interrupts(progress) as interrupts:
                results = self._run(request, folder, interrupts, workers)
                self._tell(results, folder, interrupts)
        except BaseException:
            workers.close()
            raise
        finally:
            workers.audience.progress = Silence()
            self.interrupted = progress.stopping
            progress.close()
        assert self.run is not None
        return self.run

    def _tell(self, results: Results, folder: Path, interrupts: Interrupts) -> None:
        """Write results and reports, and call the hooks that come with them: results first."""
        try:
            write_results(results, folder)
            results = results.model_copy(
                update={"sections": self._ask_for_sections(results, interrupts)}
            )
            if results.sections:
                write_results(results, folder)
            self._reports = write_reports(
                results, folder, self.store.blobs.folder, self.settings.run
            )
            add_to_github_summary(results)
        except StoreError as error:
            self._unwritten = str(error)
        self.run = FinishedRun.of(results, self.settings.suite.min_score, self.store.folder)
        guard = Guard(self.failed_hooks.append, interrupts.call)
        guard(
            "pytest_imgedit_run_finished", "", self.hooks.run_finished, results, self.store.folder
        )

    def _run(
        self, request: Request, folder: Path, interrupts: Interrupts, workers: SessionWorkers
    ) -> Results:
        """Plan the run and execute it; raises `UsageError` if an editor or judge refuses its
        settings.

        The first Ctrl-C lets running jobs finish, the second does not; either way the run returns
        with what is done, and `progress.stopping` is set. Before the first job, Ctrl-C raises
        `KeyboardInterrupt`. A store that cannot be written any more, such as on a full disk, stops
        the run in the same way.
        """
        started, stopped_by, progress = datetime.now(UTC), "the user", interrupts.progress
        plan = make_plan(request, self.store, workers.launcher, progress.note)
        ask_servers(plan)
        workers.adopt(plan.models, plan.peaks, plan.identities)
        around = self._surroundings(workers, interrupts)
        run = Run(plan, around) if plan.blocks is None else BlockRun(plan, plan.blocks, around)
        interrupts.working = True
        try:
            run.execute()
        except KeyboardInterrupt:
            pass
        except StoreError as error:
            stopped_by = str(error)
            progress.note(f"stopped: {error}")
        origins = [] if workers.hosts is None else [host.origin for host in workers.hosts.all]
        if progress.stopping or not workers.has_any:
            workers.close()
        ended = EndedRun(
            plan, run.timing, run.workers, run.trials, folder.name, started, stopped_by, origins
        )
        return make_results(ended)

    def _session_workers(self) -> SessionWorkers:
        """Return the workers of this session."""
        if self._workers is None:
            models: dict[Role, Model] = {model.role: model for model in self.models}
            self._workers = SessionWorkers(self.settings, models, self.hardware, self.open_store())
        return self._workers

    def _surroundings(self, workers: SessionWorkers, interrupts: Interrupts) -> Surroundings:
        progress = interrupts.progress
        hooks = GuardedHooks(
            self.hooks.of_run, Guard(partial(self._hook_failed, progress), interrupts.call)
        )
        return Surroundings(
            workers.launch, progress, hooks, give_back=workers.give_back, keeps=workers.keeps
        )

    def _hook_failed(self, progress: Progress, failure: str) -> None:
        """Have a hook that failed fail the run at its end, named, and not before: nothing finished
        is lost.
        """
        self.failed_hooks.append(failure)
        progress.note(failure)

    def conclude(self, items: ItemCounts) -> Outcome:
        """Take what became of pytest's items, save the run as a baseline if asked and it passed;
        return the outcome.
        """
        self.items = items
        name = self.settings.run.save
        if name is not None and self.run is not None and not self.outcome().fails:
            try:
                self._reports["baseline"] = os.path.relpath(
                    self.baselines.save(name, self.run.results)
                )
            except StoreError as error:
                self._unwritten = str(error)
        return self.outcome()

    def _ask_for_sections(self, results: Results, interrupts: Interrupts) -> tuple[Section, ...]:
        """Collect what users add to the report; a hook that fails costs its own section only."""
        try:
            found = [
                tuple(part) for part in interrupts.call(self.hooks.report_sections, results) if part
            ]
            if not all(
                len(part) == 2 and all(isinstance(text, str) for text in part) for part in found
            ):
                raise TypeError(f"it returned {found!r:.200}, expected (title, body)")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            found = [
                (
                    "pytest_imgedit_report_section",
                    f"failed: {type(error).__name__}: {one_line(error)}",
                )
            ]
        return tuple(
            Section(title=shorten(title), body=shorten(body, MAX_SECTION)) for title, body in found
        )

    def calls(self, name: str, file: TextIO) -> SessionCalls:
        """Return what answers calls of the fixture `edit_workers` or `reward_model`; raise
        `UsageError` if none can.
        """
        self.check_calls(name)
        self.check()
        if self._calls is None:
            self.open_store()
            self._calls_log = RunProgress(self.store.folder / "fixtures.log", file, quiet=True)
            workers = self._session_workers()
            workers.audience.progress = self._calls_log
            self._calls = SessionCalls(workers)
        return self._calls

    def check_calls(self, name: str) -> None:
        """Raise `UsageError` if the settings leave a fixture nothing to call."""
        stage = self.settings.run.stage
        if stage == "report" or (stage == "score" and name == "edit_workers"):
            raise UsageError(f"{name}: --imgedit-stage={stage} starts no such workers")
        if name == "reward_model" and stage == "edit" and self.settings.judge.scores:
            raise UsageError("reward_model: --imgedit-stage=edit starts no judge")
        if name == "reward_model" and not self.settings.judge.scores:
            raise UsageError(
                f"reward_model: judge {self.settings.judge.spec!r} scores nothing, name another one"
            )

    def open_store(self) -> Store:
        """Take the store for this session; raise `UsageError` if another process holds it."""
        if not self._opened:
            self.store.__enter__()
            self._opened = True
        return self.store

    def close(self) -> None:
        """End the session's workers, and let go of the store."""
        with ExitStack() as last_to_first:
            if self._opened:
                last_to_first.callback(self.store.__exit__)
                self._opened = False
            if self._calls_log is not None:
                last_to_first.callback(self._calls_log.close)
            if self._workers is not None:
                last_to_first.callback(self._workers.close)
            if self._calls is not None:
                last_to_first.callback(self._calls.close)

    def summary(self, width: int, color: bool, verbose: bool) -> str:
        """Render the tables that the terminal shows at the end."""
        assert self.run is not None
        return terminal.render(self.run.results, width, color, verbose)

    def written(self) -> dict[str, str]:
        """Say where the reports are, and the baseline that was to be saved, by name."""
        reports, name = self._reports, self.settings.run.save
        if name is None or "baseline" in reports:
            return reports
        found = self.outcome()
        why = f"the run is {found.state}" if found.fails else "pytest was stopped"
        return {**reports, "baseline": f"{name} was not saved: {why}"}

    def annotations(self) -> list[str]:
        """Return what marks the gates that did not pass on GitHub; nothing elsewhere."""
        assert self.run is not None
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return []
        return gate_commands(self.run.results, self.outcome())

    def outcome(self) -> Outcome:
        """Return what the run came to; without all its reports written and all its items reported
        it never passes.
        """
        assert self.run is not None
        found = outcome(self.run.results)
        problems = self.problems()
        if not problems:
            return found
        return Outcome(
            "FAIL",
            "; ".join(["FAIL: " + "; ".join(problems), found.line.removeprefix("PASS: ")]),
            fails=True,
        )

    def problems(self) -> list[str]:
        """Say what beside gates keeps the run from passing: items, reports, hooks."""
        problems = [self._unwritten] if self._unwritten else []
        problems += self.failed_hooks
        if self.items.failed:
            problems.append(f"{self.items.failed} of {self.items.expected} items failed")
        if self.items.missing:
            count, first = len(self.items.missing), self.items.missing[0]
            why = "not run" if self.items.stopped else "never reported"
            problems.append(f"{count} selected items were {why}, such as {first}")
        return problems


class OpenModels(NamedTuple):
    """What `open_models` hands out, as the fixtures of the same names do."""

    edit_workers: EditWorkers
    reward_model: RewardModel


@contextmanager
def open_models(config: Path | None = None, **tables: Mapping[str, Any]) -> Iterator[OpenModels]:
    """Hand out an editor and a judge as a config file names them, or `tables` such as
    `judge={"spec": …}`.

    Workers start at the first call and end with the block. Edits and verdicts are kept in the
    store, `.imgedit` in the working directory or `run={"out": DIR}`, which this process alone may
    hold. Raises `UsageError` for settings that are wrong.
    """
    raw = read_tables(config)
    for section, table in tables.items():
        raw[section] = {**raw.get(section, {}), **table}
    evaluation = Evaluation(
        make_settings(raw), Path.cwd(), Hooks(RunHooks(), _ignore, _no_sections)
    )
    try:
        yield OpenModels(EditWorkers(_Calls(evaluation)), RewardModel(_Calls(evaluation)))
    finally:
        evaluation.close()


class _Calls:
    """Answers calls by what the evaluation makes at the first of them."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation

    def edit(self, calls: Any) -> list[bytes]:
        return self._of("edit_workers").edit(calls)

    def score(self, calls: Any) -> list[dict[str, Any]]:
        return self._of("reward_model").score(calls)

    def _of(self, name: str) -> SessionCalls:
        return self._evaluation.calls(name, sys.stderr)


def _ignore(results: Results, store: Path) -> None: ...


def _no_sections(results: Results) -> list[Any]:
    return []
