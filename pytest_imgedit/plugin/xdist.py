"""What the controller of pytest-xdist and its workers share: the plan, the suite, the results."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import pytest

from pytest_imgedit.core import errors, files, locks

if TYPE_CHECKING:
    from pytest_imgedit.config.settings import SuiteSettings
    from pytest_imgedit.core.results import Results
    from pytest_imgedit.core.strict_json import JsonObject
    from pytest_imgedit.run.run_outcome import ItemCounts
    from pytest_imgedit.suites.base import Suite

#: Modes in which pytest-xdist 3.8 does not survive a crashed worker: it waits for ever, or loses
#: its own count.
UNSAFE_MODES = ("loadgroup", "each")
_EXCHANGE = pytest.StashKey["Exchange"]()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the selected items want: node ids of `items`, the `ids` of their pairs, and pairs that
    marks have `skipped`.

    `others` are the ids of selected pairs of other shards. `calls` are the fixtures of
    `state.ROLE_OF_FIXTURE` that items request. `near` is the folder for which the config was looked
    up; `problem` says why items could not be made.
    """

    items: Sequence[str] = ()
    ids: Sequence[str] = ()
    others: Sequence[str] = ()
    skipped: Sequence[str] = ()
    calls: Sequence[str] = ()
    near: str = ""
    problem: str | None = None


class Tally:
    """A plugin that compares the items that were selected with those that pytest reports."""

    def __init__(self, expected: Sequence[str]) -> None:
        self._expected = list(dict.fromkeys(expected))
        self._begun: set[str] = set()
        self._seen: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begun.add(nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Report an item that a worker had not started as not run, rather than as the crash's
        cause.
        """
        if crashitem not in self._begun:
            report.longrepr = f"worker {report.node.gateway.id!r} died before it ran {crashitem!r}"

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seen.add(report.nodeid)
        if report.failed:
            self._failed.add(report.nodeid)

    def counts(self, *, stopped: bool) -> ItemCounts:
        """Return the number of expected items and of those that failed, and the names of those that
        were not reported; `stopped` says that pytest ended early.
        """
        from pytest_imgedit.run.run_outcome import ItemCounts

        missing = [name for name in self._expected if name not in self._seen]
        return ItemCounts(
            len(self._expected), len(self._failed & set(self._expected)), missing, stopped
        )


@dataclass(frozen=True)
class Exchange:
    """A private folder through which a controller and its workers exchange JSON.

    Only they know the `token`.
    """

    folder: Path
    token: str

    @classmethod
    def of_controller(cls, config: pytest.Config) -> Exchange:
        """Return the exchange of a controller, made at the first call."""
        if _EXCHANGE not in config.stash:
            folder = Path(tempfile.gettempdir(), f"imgedit-{secrets.token_hex(8)}")
            config.stash[_EXCHANGE] = cls(folder, secrets.token_hex(32))
        return config.stash[_EXCHANGE]

    @classmethod
    def of(cls, config: pytest.Config) -> Exchange | None:
        """Return the exchange of a controller or worker; `None` without pytest-xdist."""
        workerinput = getattr(config, "workerinput", {})
        if "imgedit_exchange" in workerinput:
            return cls(Path(workerinput["imgedit_exchange"]), workerinput["imgedit_token"])
        return config.stash.get(_EXCHANGE, None)

    @classmethod
    def remove(cls, config: pytest.Config) -> None:
        """Remove the controller's folder at the session's end."""
        if _EXCHANGE in config.stash:
            shutil.rmtree(config.stash[_EXCHANGE].folder, ignore_errors=True)

    def leave_plan(self, config: pytest.Config, plan: Plan) -> None:
        """Leave a worker's plan for the controller."""
        worker: str = config.workerinput["workerid"]  # type: ignore[attr-defined]
        self._write(f"plan-{worker}.json", asdict(plan))

    def read_plan(self, node: Any) -> Plan | None:
        """Read the plan of a worker; `None` if its items want nothing."""
        document = self._read(f"plan-{node.workerinput['workerid']}.json")
        return None if document is None else Plan(**document)

    def leave_results(self, results: Results) -> None:
        """Leave the results of the finished run for the workers."""
        self._write("results.json", results.model_dump(mode="json"))

    def read_results(self) -> Results | None:
        """Read the results of the finished run; `None` before they are there."""
        from pytest_imgedit.core.results import Results

        document = self._read("results.json")
        return None if document is None else Results.model_validate(document)

    def share_suite(self, settings: SuiteSettings) -> Suite:
        """Return the suite as the first process has read it, or be that process; raise
        `UsageError` as `load_suite` does.

        A suite whose images are not in files, such as one of a user's own loader, is loaded by each
        process.
        """
        from pytest_imgedit.suites.base import load_suite
        from pytest_imgedit.suites.handover import from_index, to_index

        self.folder.mkdir(mode=0o700, exist_ok=True)
        with locks.held(self.folder / "suite.lock"):
            index = self._read("suite.json")
            if index is not None and "problem" in index:
                kind = errors.SpecError if index["is_of_spec"] else errors.UsageError
                raise kind(index["problem"])
            if index:
                return from_index(index)
            try:
                suite = load_suite(settings)
            except errors.UsageError as error:
                is_of_spec = isinstance(error, errors.SpecError)
                self._write("suite.json", {"problem": str(error), "is_of_spec": is_of_spec})
                raise
            if index is None:
                self._write("suite.json", to_index(suite) or {})  # {}: each process loads it
            return suite

    def _write(self, name: str, document: JsonObject) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        files.write_text(self.folder / name, json.dumps(document))

    def _read(self, name: str) -> JsonObject | None:
        path = self.folder / name
        document: JsonObject | None = json.loads(path.read_text()) if path.exists() else None
        return document


def tolerate_death(node: Any) -> None:
    """Have the controller go on when a worker has died: sending to it is no error.

    pytest-xdist processes no events while the stages run, and then hands out items to workers that
    have died meanwhile. The event of their death follows.
    """
    send = node.sendcommand

    def sendcommand(name: str, **arguments: Any) -> None:
        with suppress(OSError):
            send(name, **arguments)

    node.sendcommand = sendcommand


@contextmanager
def survived(session: pytest.Session, is_ours: Callable[[pytest.Config], bool]) -> Iterator[None]:
    """Fail a session that `is_ours` with one line if pytest-xdist itself fails.

    pytest-xdist 3.8 fails if a worker dies as it starts, and in the modes loadscope and loadfile if
    a worker dies while the stages run.
    """
    try:
        yield
    except Exception as error:
        config = session.config
        if not _is_of_xdist(error) or not is_ours(config):
            raise
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(
                f"imgedit: pytest-xdist lost a worker: {type(error).__name__}: {error}", red=True
            )
        raise session.Failed from None


def _is_of_xdist(error: Exception) -> bool:
    """Tell whether pytest-xdist, or execnet below it, raised an error."""
    frame, _ = list(walk_tb(error.__traceback__))[-1]
    module: str = frame.f_globals.get("__name__", "")
    package, _, _ = module.partition(".")
    return package in ("xdist", "execnet")


def check_modes(option: Any) -> None:
    """Raise `UsageError` for ways to distribute items (`--dist`, `--tx`) in which some could get
    lost.
    """
    mode = getattr(option, "dist", "no")
    if mode in UNSAFE_MODES:
        raise errors.UsageError(
            f"--dist={mode}: pytest-xdist hangs or fails in this mode when a worker crashes, "
            "expected load, worksteal, loadscope or loadfile"
        )
    for spec in getattr(option, "tx", None) or ():
        way = spec.rpartition("*")[2]
        if not way.startswith("popen") or "//via=" in way or "//socket" in way:
            raise errors.UsageError(
                f"--tx={spec}: items read their results on this machine, expected popen"
            )
