"""What one pytest session knows of its evaluation, kept in the stash of its config."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_imgedit.core import errors, streams
from pytest_imgedit.plugin import command_line, junit
from pytest_imgedit.plugin.xdist import Exchange, Plan, Tally

if TYPE_CHECKING:
    from pytest_imgedit.config.settings import SuiteSettings
    from pytest_imgedit.kinds.base import Role
    from pytest_imgedit.plugin.call_server import CallServer, RemoteCalls
    from pytest_imgedit.run.finish import FinishedRun
    from pytest_imgedit.run.fixture_calls import SessionCalls
    from pytest_imgedit.run.run_outcome import RunOutcome
    from pytest_imgedit.run.session import Session
    from pytest_imgedit.suites.base import Suite

SESSION = pytest.StashKey["Session"]()
RUN = pytest.StashKey["FinishedRun"]()
OUTCOME: pytest.StashKey[RunOutcome] = pytest.StashKey()
TALLY = pytest.StashKey[Tally]()
#: The folder of the first item that needs the evaluation, whose config is used.
NEAR = pytest.StashKey[Path]()
#: Why the suite could not be read.
PROBLEM = pytest.StashKey[str]()
#: The role of the model that each fixture calls.
ROLE_OF_FIXTURE: dict[str, Role] = {"edit_workers": "editor", "reward_model": "judge"}
_SERVER: pytest.StashKey[CallServer] = pytest.StashKey()
_STREAMS = pytest.StashKey[list[Any]]()


def is_xdist_worker(config: pytest.Config) -> bool:
    """Tell whether this process runs items for a controller."""
    return hasattr(config, "workerinput")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn our usage errors, and what the system refuses, into pytest's, which exit 4 with one
    line.
    """
    try:
        yield
    except errors.UsageError as error:
        raise pytest.UsageError(in_one_line(error)) from None
    except (OSError, RuntimeError, MemoryError) as error:
        refused = errors.system_refusal(error)
        if refused is None:
            raise
        raise pytest.UsageError(in_one_line(errors.UsageError(refused))) from None


def in_one_line(error: errors.UsageError) -> str:
    """Return what an error says, fit for a terminal."""
    from pytest_imgedit.core.text import message

    return message(error)


def session_of(config: pytest.Config) -> Session:
    """Return what this session knows of its evaluation, read from the options and the config at the
    first call.

    Raises `UsageError` for an invalid setting, or a hook that fails; models and GPUs are checked
    later.
    """
    if SESSION not in config.stash:
        guard_streams(config)
        from pytest_imgedit.config.settings import make_settings
        from pytest_imgedit.kinds.user_code import find_user_modules
        from pytest_imgedit.run.session import Session

        near = config.stash.get(NEAR, config.invocation_params.dir)
        file = command_line.find_config(config, near)
        find_user_modules(file.path, config.rootpath, config.invocation_params.dir)
        raw = command_line.gather(config, file)
        for role in ROLE_OF_FIXTURE.values():
            spec = raw.get(role, {}).get("spec")
            if spec:
                raw[role]["spec"] = _class_of_hook(config, role, spec) or spec
        config.stash[SESSION] = Session(make_settings(raw), config.rootpath, partial(_load, config))
    return config.stash[SESSION]


def _call_hook(config: pytest.Config, name: str, /, **arguments: Any) -> Any:
    return getattr(config.hook, f"pytest_imgedit_{name}")(config=config, **arguments)


def _load(config: pytest.Config, settings: SuiteSettings) -> Suite:
    """Load the suite; under xdist, share the one that the first process has loaded."""
    from pytest_imgedit.suites.base import load_suite

    exchange = Exchange.of(config)
    return load_suite(settings) if exchange is None else exchange.share_suite(settings)


def _class_of_hook(config: pytest.Config, role: Role, spec: str) -> str | None:
    """Return the class that a hook of a conftest names for a spec, `None` if none does.

    Raises `UsageError`, which names the hook, if the hook fails or returns something else.
    """
    from pytest_imgedit.core.text import one_line

    hook = f"pytest_imgedit_{role}"
    try:
        target = _call_hook(config, role, spec=spec)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a hook raises, pytest.exit and SystemExit too
        raise errors.UsageError(f"{hook}: {type(error).__name__}: {one_line(error)}") from None
    if target is not None and not isinstance(target, str):
        raise errors.UsageError(
            f"{hook}: it returned {target!r:.80}, expected module:Class or None"
        )
    return target


def execute_plan(config: pytest.Config, plan: Plan) -> FinishedRun:
    """Check what the selected items need, and run all stages over their pairs.

    Raises pytest's `UsageError` if a check fails, and ends pytest if the run was interrupted.
    """
    config.stash.setdefault(NEAR, Path(plan.near))
    config.stash[TALLY] = Tally(plan.items)
    config.pluginmanager.register(config.stash[TALLY])
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    quiet = reporter is None or config.option.verbose < 0
    file = sys.stdout if reporter is None else reporter._tw._file
    current = session_of(config)
    if reporter is not None:
        reporter.ensure_newline()
    with usage_errors():
        current.check()
        from pytest_imgedit.run.execution import SelectedIds, execute

        outcome = execute(
            current,
            SelectedIds(plan.ids, plan.others, plan.skipped),
            hooks=partial(_call_hook, config),
            keeps=[ROLE_OF_FIXTURE[name] for name in plan.calls],
            file=file,
            quiet=quiet,
        )
    config.stash[OUTCOME] = outcome
    config.stash[RUN] = outcome.run
    if outcome.interrupted:
        pytest.exit("imgedit was stopped", returncode=pytest.ExitCode.INTERRUPTED)
    return outcome.run


def conclude(session: pytest.Session) -> None:
    """Decide the run's outcome from its gates and its items; set pytest's exit code and add gates
    to the JUnit report.
    """
    from pytest_imgedit.run.run_outcome import ItemCounts

    config = session.config
    run_outcome = config.stash[OUTCOME]
    items = ItemCounts()
    if not run_outcome.interrupted:  # it reports itself; its items were never meant to run
        stopped = bool(session.shouldstop or session.shouldfail)
        items = config.stash[TALLY].counts(stopped=stopped)
    verdict = run_outcome.conclude(items)
    problems = run_outcome.problems() + run_outcome.unwritten_copies
    junit.report_run(config, run_outcome.run.results, problems)
    if verdict.fails or run_outcome.unwritten_copies:
        session.testsfailed += 1


def finished_run(config: pytest.Config) -> FinishedRun | None:
    """Return the finished run; in an xdist worker, as read from what the controller wrote. `None`
    if there is none.
    """
    exchange = Exchange.of(config)
    if RUN not in config.stash and exchange is not None:
        from pytest_imgedit.run.finish import FinishedRun

        results = exchange.read_results()
        if results is not None:
            current = session_of(config)
            config.stash[RUN] = FinishedRun.of(
                results, current.settings.suite.min_score, current.store.folder
            )
    return config.stash.get(RUN, None)


def errors_tolerated(config: pytest.Config) -> bool:
    """Tell whether the run's errors stay within `--imgedit-max-errors`; not without a run or that
    gate.
    """
    run = finished_run(config)
    gates = run.results.gates if run else ()
    return any(
        gate.kind == "max_errors" and (gate.value or 0) <= (gate.limit or 0) for gate in gates
    )


def calls_of(config: pytest.Config, fixture: str) -> SessionCalls | RemoteCalls:
    """Return what answers calls of the fixture `edit_workers` or `reward_model`.

    In an xdist worker they go to the controller. The test fails if the session's settings do not
    allow these calls.
    """
    exchange = Exchange.of(config)
    try:
        if exchange is None:
            return session_of(config).calls(fixture, sys.stdout)
        session_of(config).check_calls(fixture)
    except errors.UsageError as error:
        pytest.fail(str(error), pytrace=False)
    from pytest_imgedit.plugin.call_server import RemoteCalls

    return RemoteCalls(exchange.folder, exchange.token.encode())


def serve_calls(config: pytest.Config, plan: Plan) -> None:
    """Answer calls of xdist's workers until the session ends; the config is that for `plan.near`,
    unless one is in use.
    """
    if _SERVER in config.stash:
        return
    from pytest_imgedit.plugin.call_server import CallServer

    if plan.near:
        config.stash.setdefault(NEAR, Path(plan.near))
    exchange = Exchange.of_controller(config)
    config.stash[_SERVER] = CallServer(
        exchange.folder,
        exchange.token.encode(),
        lambda fixture: session_of(config).calls(fixture, sys.stdout),
    )


def stop_serving(config: pytest.Config) -> None:
    """Take no more calls, if any were taken."""
    if _SERVER in config.stash:
        config.stash[_SERVER].close()


def guard_streams(config: pytest.Config) -> None:
    """Keep errors of stdout and stderr from failing the session; in an xdist worker, and at a
    second call, nothing is done.
    """
    if _STREAMS in config.stash or is_xdist_worker(config):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # it is about to take sys.stdout
        files = [sys.stdout, sys.stderr]
        sys.stdout, sys.stderr = map(streams.TolerantStream, files)
    else:
        terminal = reporter._tw._file
        files = [terminal, sys.stderr]
        reporter._tw._file = streams.TolerantStream(terminal)
    config.stash[_STREAMS] = files


def let_go_of_streams(config: pytest.Config) -> None:
    """Drop unprinted output, on which the interpreter would fail at exit."""
    for file in config.stash.get(_STREAMS, ()):
        streams.let_go(file)
