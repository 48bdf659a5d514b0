"""The pytest plugin: hooks only, each a few lines; everything else is imported when a run needs it."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_imgedit import options, streams
from pytest_imgedit.distribution import Tally, check_modes
from pytest_imgedit.errors import UsageError
from pytest_imgedit.fixtures import edit_pair, edit_result, edit_workers, imgedit_run, reward_model

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from pytest_imgedit.session import Evaluation
    from pytest_imgedit.stages.results import Run

__all__ = ["edit_pair", "edit_result", "edit_workers", "imgedit_run", "reward_model"]

_EVALUATION = pytest.StashKey["Evaluation"]()
_RUN = pytest.StashKey["Run"]()
_EXCHANGE = pytest.StashKey[Path]()
_TALLY = pytest.StashKey[Tally]()
_STREAMS = pytest.StashKey[list[Any]]()

streams.open_missing()  # before pytest's capture and terminal take hold of them


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_imgedit import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "imgedit(category, difficulty): set on every item of a pair; select with -m \"imgedit(category='physics')\"",
    )
    if not _is_xdist_worker(config) and not config.option.help:
        with _usage_errors():
            options.refuse_unknown_keys(config)
            if options.is_configured(config):
                _guard_streams(config)
                check_modes(config.option)
                evaluation(config).check()


def pytest_report_header(config: pytest.Config) -> str | None:
    if _EVALUATION not in config.stash:
        return None
    config.stash[_EVALUATION].announced = True
    return f"imgedit: {config.stash[_EVALUATION].describe()}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item a pair of every test that requests `edit_pair` or `edit_result`."""
    if "edit_pair" not in metafunc.fixturenames or _parametrizes_pairs_itself(metafunc):
        return
    with _usage_errors():
        pairs = evaluation(metafunc.config).suite.pairs
    parameters = [
        pytest.param(pair, id=pair.id, marks=pytest.mark.imgedit(category=pair.category, difficulty=pair.difficulty))
        for pair in pairs
    ]
    metafunc.parametrize("edit_pair", parameters, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k` find an item by its category and that category's aliases."""
    pair = _pair(item)
    if pair is not None:
        item.extra_keyword_matches.update(pair.keywords)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Under xdist: leave the selected pairs where the controller finds them, before it hears of the end."""
    exchange = _worker_exchange(session.config)
    if exchange is not None:
        worker: str = session.config.workerinput["workerid"]  # type: ignore[attr-defined]
        plan = _plan(session.config, session.items)
        if plan["ids"]:
            exchange.mkdir(mode=0o700, exist_ok=True)
            (exchange / f"plan-{worker}.json").write_text(json.dumps(plan))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Under xdist: tell each worker where plans and results are exchanged."""
    if _EXCHANGE not in node.config.stash:
        import secrets

        node.config.stash[_EXCHANGE] = Path(tempfile.gettempdir(), f"imgedit-{secrets.token_hex(8)}")
    node.workerinput["imgedit_exchange"] = str(node.config.stash[_EXCHANGE])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Under xdist: run the stages once, in the controller, after the first collection and before any item."""
    config, exchange = node.config, node.config.stash[_EXCHANGE]
    if _RUN in config.stash or _only_plans(config):
        return  # this is not the first worker, or one in the place of a crashed one
    session = config.pluginmanager.get_plugin("session")
    if _collection_failed(session):
        raise session.Interrupted("errors during collection")
    path = exchange / f"plan-{node.workerinput['workerid']}.json"
    if path.exists():
        with _usage_errors():
            check_modes(config.option)
        document = _execute(config, json.loads(path.read_text())).document
        (exchange / "results.json").write_text(json.dumps(document))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Run the stages before the first item, and decide the gates after the last."""
    config = session.config
    if not (_is_xdist_worker(config) or _only_plans(config) or _collection_failed(session)):
        plan = _plan(config, session.items)
        if plan["ids"]:
            _execute(config, plan)
    result = yield
    if not _is_xdist_worker(config) and _RUN in config.stash:
        evaluation(config).unreported = config.stash[_TALLY].missing()
        evaluation(config).save(session.testsfailed)
        if evaluation(config).verdict().fails:
            session.testsfailed += 1
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _is_xdist_worker(config) or _RUN not in config.stash:
        return
    verdict, writer = evaluation(config).verdict(), terminalreporter._tw
    terminalreporter.section("image editing")
    terminalreporter.write(evaluation(config).summary(writer.fullwidth, writer.hasmarkup))
    for line in evaluation(config).annotations():
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"imgedit: {verdict.line}", green=verdict.state == "PASS", red=verdict.fails)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _EVALUATION in config.stash:
        config.stash[_EVALUATION].close()
    for file in config.stash.get(_STREAMS, ()):
        streams.let_go(file)
    if _EXCHANGE in config.stash:
        shutil.rmtree(config.stash[_EXCHANGE], ignore_errors=True)


def _guard_streams(config: pytest.Config) -> None:
    """Have nothing that is printed fail the session: results count, wherever they are shown."""
    if _STREAMS in config.stash or _is_xdist_worker(config):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # it is about to take sys.stdout
        files = [sys.stdout, sys.stderr]
        sys.stdout, sys.stderr = map(streams.Tolerant, files)
    else:
        files = [reporter._tw._file, sys.stderr]
        reporter._tw._file = streams.Tolerant(files[0])
    config.stash[_STREAMS] = files


def evaluation(config: pytest.Config) -> Evaluation:
    """Return this session's evaluation, made from the options at the first call."""
    if _EVALUATION not in config.stash:
        _guard_streams(config)
        from pytest_imgedit.config import make_settings
        from pytest_imgedit.session import Evaluation, Hooks

        hook = config.hook

        hooks = Hooks(
            before_stage=lambda stage: hook.pytest_imgedit_before_stage(config=config, stage=stage),
            after_stage=lambda stage: hook.pytest_imgedit_after_stage(config=config, stage=stage),
            report_sections=lambda document: hook.pytest_imgedit_report_section(config=config, results=document),
        )
        for folder in (config.invocation_params.dir, config.rootpath):
            if str(folder) not in sys.path:  # where editors, judges and suites of the user's own may stand
                sys.path.append(str(folder))
        raw = options.gather(config)
        for role, ask in (("editor", hook.pytest_imgedit_editor), ("judge", hook.pytest_imgedit_judge)):
            spec = raw.get(role, {}).get("spec")
            target = _asked(f"pytest_imgedit_{role}", partial(ask, config=config, spec=spec)) if spec else None
            if target:
                raw[role]["spec"] = target
        config.stash[_EVALUATION] = Evaluation(make_settings(raw), config.rootpath, hooks)
    return config.stash[_EVALUATION]


def _asked(hook: str, ask: Callable[[], Any]) -> str | None:
    """Return the class that a user's hook names; raise `UsageError`, naming the hook, if it fails or names none."""
    from pytest_imgedit.text import one_line

    try:
        target = ask()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a hook raises, pytest.exit and SystemExit too
        raise UsageError(f"{hook}: {type(error).__name__}: {one_line(error)}") from None
    if target is not None and not isinstance(target, str):
        raise UsageError(f"{hook}: it returned {target!r:.80}, expected module:Class or None")
    return target


def finished_run(config: pytest.Config) -> Run | None:
    """Return the finished run; in an xdist worker, as read from what the controller wrote."""
    exchange = _worker_exchange(config)
    if _RUN not in config.stash and exchange is not None and (exchange / "results.json").exists():
        from pytest_imgedit.stages.results import read_run

        document = json.loads((exchange / "results.json").read_text())
        config.stash[_RUN] = read_run(document, evaluation(config).settings.suite.min_score)
    return config.stash.get(_RUN, None)


def errors_tolerated(config: pytest.Config) -> bool:
    """Tell whether the run's errors stay within `--imgedit-max-errors`."""
    run = finished_run(config)
    gates = run.document["gates"] if run else []
    return any(gate["kind"] == "max_errors" and gate["state"] != "FAIL" for gate in gates)


def make_service(config: pytest.Config, fixture: str) -> Any:
    """Make what the fixture `edit_workers` or `reward_model` hands out."""
    if _is_xdist_worker(config):
        pytest.fail(
            f"{fixture} needs the GPUs, which the xdist controller owns: run this test without -n", pytrace=False
        )
    try:
        return evaluation(config).make_service(fixture, sys.stdout)
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)


def _execute(config: pytest.Config, plan: dict[str, list[str]]) -> Run:
    config.stash[_TALLY] = Tally(plan["items"])
    config.pluginmanager.register(config.stash[_TALLY])
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    quiet = reporter is None or config.option.verbose < 0
    file = sys.stdout if reporter is None else reporter._tw._file
    current = evaluation(config)
    if reporter is not None:
        reporter.ensure_newline()
    with _usage_errors():
        config.stash[_RUN] = current.execute(plan["ids"], file, quiet)
    if current.interrupted:
        raise KeyboardInterrupt
    return config.stash[_RUN]


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Turn our usage errors into pytest's, which exit 4 with one line."""
    try:
        yield
    except UsageError as error:
        from pytest_imgedit.text import printable

        raise pytest.UsageError(printable(str(error))) from None


def _pair(item: pytest.Item) -> Any:
    callspec = getattr(item, "callspec", None)
    pair = callspec.params.get("edit_pair") if callspec is not None else None
    return pair if hasattr(pair, "keywords") else None


def _plan(config: pytest.Config, items: Sequence[pytest.Item]) -> dict[str, list[str]]:
    """Return the `items` that want results, and the `ids` of their pairs; of all pairs, if none is an item of a pair.

    A test that only reads `edit_pair` needs no run.
    """
    wanting = [item for item in items if "imgedit_run" in getattr(item, "fixturenames", ())]
    pairs = [pair for pair in map(_pair, wanting) if pair is not None]
    if wanting and not pairs:
        with _usage_errors():
            pairs = list(evaluation(config).suite.pairs)
    return {"items": [item.nodeid for item in wanting], "ids": list(dict.fromkeys(pair.id for pair in pairs))}


def _parametrizes_pairs_itself(metafunc: pytest.Metafunc) -> bool:
    names = (mark.args[0] if mark.args else () for mark in metafunc.definition.iter_markers("parametrize"))
    return any("edit_pair" in (n.replace(" ", "").split(",") if isinstance(n, str) else n) for n in names)


def _only_plans(config: pytest.Config) -> bool:
    return bool(config.option.collectonly or config.option.setupplan)


def _collection_failed(session: pytest.Session) -> bool:
    return bool(session.testsfailed and not session.config.option.continue_on_collection_errors)


def _is_xdist_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _worker_exchange(config: pytest.Config) -> Path | None:
    folder = getattr(config, "workerinput", {}).get("imgedit_exchange")
    return Path(folder) if folder else None
