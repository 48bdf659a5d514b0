"""The editor and the judge of a config outside of pytest, such as a reward in training."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pytest_imgedit.config.settings import make_settings, read_tables
from pytest_imgedit.core.results import Results
from pytest_imgedit.engine.callable_models import EditWorkers, RewardModel
from pytest_imgedit.engine.calls import SessionCalls
from pytest_imgedit.engine.run import RunHooks
from pytest_imgedit.engine.session import Evaluation, Hooks


class Models(NamedTuple):
    """What `open_models` hands out, as the fixtures of the same names do."""

    edit_workers: EditWorkers
    reward_model: RewardModel


@contextmanager
def open_models(config: Path | None = None, **tables: Mapping[str, Any]) -> Iterator[Models]:
    """Hand out an editor and a judge as a config file names them, or `tables` such as `judge={"spec": …}`.

    Workers start at the first call and end with the block. Edits and verdicts are kept in the store, `.imgedit` in the
    working directory or `run={"out": DIR}`, which this process alone may hold. Raises `UsageError` for settings that
    are wrong.
    """
    raw = read_tables(config)
    for section, table in tables.items():
        raw[section] = {**raw.get(section, {}), **table}
    evaluation = Evaluation(make_settings(raw), Path.cwd(), Hooks(RunHooks(), _ignore, _no_sections))
    try:
        yield Models(EditWorkers(_Calls(evaluation)), RewardModel(_Calls(evaluation)))
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
