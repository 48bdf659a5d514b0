"""What one session knows of its evaluation: settings, suite, models, store, workers; knows nothing
of pytest.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pytest_imgedit.config.settings import Settings, SuiteSettings, make_settings, read_tables
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import count_groups, groups_in
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.user_code import find_user_modules
from pytest_imgedit.report import outputs, write
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run import placement, pools, settings_checks
from pytest_imgedit.run.baselines import Baselines, ComparedWith
from pytest_imgedit.run.duels import Opponent
from pytest_imgedit.run.fixture_calls import EditWorkers, RewardModel, SessionCalls
from pytest_imgedit.run.request import resolve_additional, resolve_models
from pytest_imgedit.stats import gate_values
from pytest_imgedit.store import baselines, store
from pytest_imgedit.suites.base import Suite, load_suite, with_rewrites
from pytest_imgedit.workers.hardware import Hardware


class Session:
    """Looks up each thing once, checks it before anything starts, and keeps what is open."""

    def __init__(
        self,
        settings: Settings,
        root: Path,
        load: Callable[[SuiteSettings], Suite] = load_suite,
    ) -> None:
        self.baselines = Baselines(settings, root)
        self.settings = settings
        if self.baselines.makes_first:
            self.settings = self.baselines.without_comparison()
        self.store = store.Store(root / settings.run.out)
        self._load = load
        self._open = ExitStack()
        self._is_checked = False
        self._calls: SessionCalls | None = None

    @cached_property
    def suite(self) -> Suite:
        """The suite with the rewritten instructions of the settings, read once; images stay unread.

        Raises `UsageError` if the suite or the instructions cannot be read.
        """
        try:
            suite = self._load(self.settings.suite)
            rewrites = self.settings.editor.rewrites
            return suite if rewrites is None else with_rewrites(suite, rewrites)
        except errors.SpecError as error:
            place = self.settings.place("suite", "spec")
            raise errors.UsageError(f"{place}{error}") from None

    @property
    def counts(self) -> Mapping[str, int]:
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
        with settings_checks.naming_gpus(self.settings):
            if pools.is_remote(self.settings):
                return Hardware.here("none")
            return Hardware.here(workers.gpus, workers.judge_gpus)

    @cached_property
    def models(self) -> dict[Role, Model]:
        """The editor and the judge; raises `UsageError` for a spec that names nothing."""
        return resolve_models(self.settings)

    @cached_property
    def additional(self) -> dict[str, Model]:
        """The additional judges and metrics by name; raises `UsageError` if one does not score."""
        return resolve_additional(self.settings)

    @cached_property
    def compared(self) -> ComparedWith:
        """The baseline to compare with, and what `latest` passed over."""
        return self.baselines.read(self.suite)

    def opponent(self, ids: Collection[str]) -> Opponent | None:
        """Return the baseline whose edits those of pairs are put against, if the settings ask for
        that; raises `UsageError` if it lacks edits of them.
        """
        baseline = self.compared.baseline
        if not self.settings.gates.duel or baseline is None:
            return None
        edits = self.baselines.other_edits(self.compared, self.store)
        edits.require_edits(baseline, ids)
        return Opponent(baseline, edits.edit_of)

    @cached_property
    def inputs(self) -> list[Path]:
        """What no copy of a report replaces: the store, the suite, and files of the settings."""
        settings = self.settings
        paths = [self.store.folder]
        paths += outputs.inputs(self.store.folder, settings.suite.spec)
        for path in (settings.run.config_file.path, settings.editor.rewrites):
            if path is not None:
                paths.append(path)
        return paths

    @cached_property
    def opened_store(self) -> store.Store:
        """The store, held until `close`; raises `UsageError` if another process holds it."""
        return self._open.enter_context(self.store)

    @cached_property
    def workers(self) -> pools.SessionWorkers:
        """Workers of the editor and the judge, which `close` ends; none is started yet."""
        workers = pools.SessionWorkers(self.settings, self.models, self.hardware, self.opened_store)
        self._open.callback(workers.close)
        return workers

    def describe(self) -> str:
        """Say in one line what is evaluated, and on what."""
        settings = self.settings
        return (
            f"suite {settings.suite.spec}, editor {settings.editor.spec}, "
            f"judge {settings.judge.spec}, on {self._describe_devices()}"
        )

    def _describe_devices(self) -> str:
        """Name what models compute on: the cluster, the CPU or the GPUs."""
        host = self.hardware.hosts[0]
        if pools.is_remote(self.settings):
            return "a Ray cluster"
        if not host.gpus:
            is_expected = self.settings.workers.gpus != "auto"
            return "CPU" if is_expected else "CPU (no GPU visible)"
        devices = f"GPUs {','.join(host.gpus)}"
        if host.judge_gpus:
            devices += f" (the judge on {','.join(host.judge_gpus)})"
        return devices

    def check(self) -> None:
        """Check everything once before anything starts; raises `UsageError` with one line."""
        if self._is_checked:
            return
        self._is_checked = True
        settings = self.settings
        settings_checks.check_executor(settings)
        settings_checks.check_judge_gpus(settings, self.models.get("judge"))
        self._check_models()
        scorers = settings.additional_scorers
        for name, model in self.additional.items():
            settings_checks.check_additional(scorers[name], self.suite, model, self.hardware)
        judge = self.models.get("judge")
        duel_measures = settings_checks.measures_of_duels(settings, self.suite, judge)
        settings_checks.check_gates(settings, self.counts, judge, self.additional, duel_measures)
        settings_checks.check_partial(settings)
        settings_checks.check_saving(settings)
        if "judge" in self.models:
            settings_checks.check_protocol(settings, self.suite, self.models["judge"])
        if settings.run.save is not None:
            baselines.check_name("--imgedit-save", settings.run.save)
        if settings.run.name is not None:
            baselines.check_name("--imgedit-name", settings.run.name)
        self._check_comparison()
        write.check_copies(settings.run, self.inputs)

    def check_judge(self) -> None:
        """Check what `imgedit qualify` needs; raises `UsageError`."""
        settings_checks.check_executor(self.settings)
        self._check_models()
        settings_checks.check_protocol(self.settings, self.suite, self.models["judge"])

    def check_duels(self) -> None:
        """Check what `imgedit compare --duel` needs; raises `UsageError`."""
        settings_checks.check_executor(self.settings)
        self._check_models()
        judge = self.models["judge"]
        duel_measures = settings_checks.measures_of_duels(self.settings, self.suite, judge)
        min_win = self.settings.gates.min_win
        groups = groups_in(self.suite.pairs)
        gate_values.check_fields("--min-win", min_win, groups, duel_measures)

    def _check_models(self) -> None:
        """Check the editor and the judge, and that GPUs of this machine can be grouped for them."""
        settings = self.settings
        settings_checks.check_models(settings, self.models.values(), self.hardware)
        if not pools.is_remote(settings):
            with settings_checks.naming_gpus(settings):
                for model in self.models.values():
                    placement.groups_of(model, self.hardware)

    def _check_comparison(self) -> None:
        """Check that the baseline is of the run's judge; of a run that only edits, that the
        settings ask for nothing that needs scores.
        """
        if self.settings.run.stage == "edit":
            settings_checks.check_edits_only(self.settings)
            return
        baseline = self.compared.baseline
        if baseline is not None:
            settings_checks.check_baseline(self.settings, self.models["judge"], baseline)

    def calls(self, name: str, file: TextIO) -> SessionCalls:
        """Return what answers calls of the fixture `edit_workers` or `reward_model`; raises
        `UsageError` if none can.
        """
        self.check_calls(name)
        self.check()
        if self._calls is None:
            log = RunProgress(self.opened_store.folder / "fixtures.log", file, quiet=True)
            self._open.callback(log.close)
            self._open.callback(self.workers.close)  # before the log that they report to
            self.workers.reporter.watcher = log
            self._calls = SessionCalls(self.workers)
            self._open.callback(self._calls.close)
        return self._calls

    def check_calls(self, name: str) -> None:
        """Raise `UsageError` if the settings leave a fixture nothing to call."""
        stage = self.settings.run.stage
        judge = self.settings.judge
        if stage == "report" or (stage == "score" and name == "edit_workers"):
            raise errors.UsageError(f"{name}: --imgedit-stage={stage} starts no such workers")
        if name != "reward_model":
            return
        if not judge.scores:
            raise errors.UsageError(
                f"reward_model: judge {judge.spec!r} does not score edits; choose another judge"
            )
        if stage == "edit":
            raise errors.UsageError("reward_model: --imgedit-stage=edit starts no judge")

    def close(self) -> None:
        """End the session's workers, and release the store."""
        self._open.close()


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
    session = Session(make_settings(raw), Path.cwd())
    try:
        yield OpenModels(
            EditWorkers(lambda calls: session.calls("edit_workers", sys.stderr).edit(calls)),
            RewardModel(lambda calls: session.calls("reward_model", sys.stderr).score(calls)),
        )
    finally:
        session.close()
