"""The pytest plugin: hooks only, each a few lines; everything else is imported when a run needs
it.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_imgedit.core import streams
from pytest_imgedit.core.text import printable
from pytest_imgedit.plugin import command_line, folding, junit, selection, shipped, state, xdist
from pytest_imgedit.plugin.fixtures import (
    edit_pair,
    edit_result,
    edit_workers,
    imgedit_run,
    reward_model,
)
from pytest_imgedit.plugin.state import OUTCOME, PROBLEM, RUN, SESSION, usage_errors

if TYPE_CHECKING:
    from pytest_imgedit.stats.outcome import Outcome

__all__ = ["edit_pair", "edit_result", "edit_workers", "imgedit_run", "reward_model"]

streams.open_missing()  # before pytest's capture and terminal take hold of them


def pytest_addoption(parser: pytest.Parser) -> None:
    command_line.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> None:
    with usage_errors():
        command_line.refuse_unknown_options(args)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_imgedit.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark; where an evaluation is asked for, also guard the streams and check the
    command line, before anything is collected.
    """
    config.addinivalue_line(
        "markers",
        "imgedit(category, tag, difficulty): on a test, the pairs that it is for; on every item, "
        "what its pair is, to select with -m \"imgedit(category='physics')\"",
    )
    if config.option.imgedit:
        shipped.take_arguments(config)
    if _is_asked_for(config) and not state.is_xdist_worker(config):
        state.guard_streams(config)
        with usage_errors():  # pytest-xdist starts workers before anything is collected
            command_line.check_texts(config)
            command_line.check_values(config)
            xdist.check_modes(config.option)


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None, object, object]:
    with xdist.survived(session, _is_ours):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """With `--imgedit`: collect the shipped item."""
    report = yield
    if isinstance(collector, pytest.Session) and collector.config.option.imgedit:
        shipped.collect(collector, report)
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item a pair of every test that requests `edit_pair` or `edit_result`."""
    if "edit_pair" in metafunc.fixturenames and not selection.parametrizes_pairs_itself(metafunc):
        metafunc.parametrize("edit_pair", selection.parameters(metafunc), indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k` find an item by the category, aliases, tags, difficulty and id of its pair."""
    pair = selection.pair_of(item)
    if pair is not None:
        item.extra_keyword_matches.update(pair.keywords)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Keep only the shipped items that the command line names, then those of the shard; none, with
    the reason in the stash, if one that is named is missing.
    """
    if config.option.imgedit and PROBLEM not in config.stash:
        problem = shipped.choose(config, items)
        if problem is not None:
            config.stash[PROBLEM] = problem
            items.clear()
    result = yield
    selection.take_shard(config, items)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Raise pytest's `UsageError` if the suite of selected items cannot be read.

    With xdist it is the controller that stops: a worker writes its plan for it here, before it
    reports that it has finished collecting.
    """
    config = session.config
    exchange = xdist.Exchange.of(config)
    if exchange is not None:
        plan = selection.make_plan(config, session.items)
        if plan.items or plan.others or plan.calls or plan.problem:
            exchange.leave_plan(config, plan)
        return
    if config.option.showfixtures or config.option.show_fixtures_per_test:
        return  # they need no pairs
    problem = selection.problem_of(config, session.items)
    if problem is not None:
        raise pytest.UsageError(problem)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Under xdist: tell each worker where plans and results are exchanged."""
    exchange = xdist.Exchange.of_controller(node.config)
    node.workerinput["imgedit_exchange"] = str(exchange.folder)
    node.workerinput["imgedit_token"] = exchange.token
    xdist.tolerate_death(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Under xdist: run the stages once, in the controller, after the first collection and before
    any item; then answer the calls of workers.

    Raises `Interrupted` if the collection failed, and pytest's `UsageError` for the plan's problem.
    """
    config = node.config
    if RUN in config.stash or _only_plans(config):
        return  # a later worker, or the replacement of a crashed one
    session = config.pluginmanager.get_plugin("session")
    if _collection_failed(session):
        raise session.Interrupted("errors during collection")
    exchange = xdist.Exchange.of_controller(config)
    plan = exchange.read_plan(node)
    if plan is None:
        selection.refuse_gates_without_items(config)
        plan = xdist.Plan()
    if plan.problem:
        raise pytest.UsageError(plan.problem)
    with usage_errors():
        xdist.check_modes(config.option)
    if plan.ids or plan.others:
        exchange.leave_results(state.execute_plan(config, plan).results)
    state.serve_calls(config, plan)  # also for tests that ask for a fixture as they run


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Run the stages before the first item, and decide the gates after the last.

    An xdist worker does neither. Nothing is run where items are only listed, or the collection
    failed. Under xdist, `pytest_xdist_node_collection_finished` runs the stages.
    """
    config = session.config
    try:
        if not (
            state.is_xdist_worker(config) or _only_plans(config) or _collection_failed(session)
        ):
            plan = selection.make_plan(config, session.items)
            if plan.ids or plan.others:
                state.execute_plan(config, plan)
            elif session.items and xdist.Exchange.of(config) is None:
                selection.refuse_gates_without_items(config)
        with xdist.survived(session, _is_ours):
            return (yield)
    finally:  # also where Ctrl-C, -x or --maxfail ends the loop
        if not state.is_xdist_worker(config) and RUN in config.stash:
            state.conclude(session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the reason of a failing pair instead of a traceback."""
    reason = folding.without_traceback(call)
    report = yield
    if reason is not None:
        folding.give_reason(report, reason)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fold failures with equal reasons before pytest prints them; pass a shard without pairs."""
    folding.fold(session.config)
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and RUN in session.config.stash:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    """Print the verdict, the tables, and the verdict once more, between pytest's failures and its
    short summary; hints if nothing was run.

    With `-qq` these are the verdict and the warnings alone. Copies of reports that could not be
    written are always named.
    """
    for line in folding.unfold(config):
        terminalreporter.write_line(line)
    if RUN not in config.stash:
        if exitstatus != pytest.ExitCode.USAGE_ERROR:
            for line in selection.hints(config):
                terminalreporter.write_line(f"imgedit: {line}")
        return
    run_outcome = config.stash[OUTCOME]
    is_brief = config.option.verbose < -1  # -qq leaves the outcome alone
    if not is_brief:
        terminalreporter.section("image editing")
        writer = terminalreporter._tw
        verbose = config.option.verbose > 0
        terminalreporter.write(run_outcome.summary(writer.fullwidth, writer.hasmarkup, verbose))
    for line in run_outcome.annotations():
        terminalreporter.write_line(line)
    junit.name_failed_gates(terminalreporter, run_outcome.run.results)
    _print_outcome(terminalreporter, run_outcome.outcome())
    if is_brief:
        for warning in run_outcome.warnings:
            terminalreporter.write_line(f"warning: {warning}", yellow=True)
    else:
        for name, path in run_outcome.written().items():
            terminalreporter.write_line(f"{name}: {path}")
    for problem in run_outcome.unwritten_copies:
        terminalreporter.write_line(f"imgedit: FAIL: {printable(problem)}", red=True)


def _print_outcome(reporter: pytest.TerminalReporter, outcome: "Outcome") -> None:
    from pytest_imgedit.report.terminal import color_of

    reporter.write_line(f"imgedit: {outcome.line}", **{color_of(outcome): True})


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what the session holds: its workers, unprinted output, and the folder of the exchange."""
    try:
        state.stop_serving(config)
        if SESSION in config.stash:
            config.stash[SESSION].close()
    finally:
        state.let_go_of_streams(config)
        xdist.Exchange.remove(config)


def _is_asked_for(config: pytest.Config) -> bool:
    return bool(config.option.imgedit or command_line.explicit_options(config))


def _is_ours(config: pytest.Config) -> bool:
    return RUN in config.stash or _is_asked_for(config) or bool(config.getini("imgedit_config"))


def _only_plans(config: pytest.Config) -> bool:
    return bool(config.option.collectonly or config.option.setupplan)


def _collection_failed(session: pytest.Session) -> bool:
    return bool(session.testsfailed and not session.config.option.continue_on_collection_errors)
