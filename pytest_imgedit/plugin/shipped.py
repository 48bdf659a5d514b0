"""The shipped test: `pytest --imgedit` collects it in any folder."""

from collections.abc import Sequence
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent / "benchmark" / "test_image_edit.py"
#: What its items are called, wherever the package is installed.
NODE_ID = "pytest_imgedit/benchmark/test_image_edit.py"


def take_arguments(config: pytest.Config) -> None:
    """Decide what `--imgedit` collects: the shipped test, and the paths of the command line.

    Node ids of shipped items are not paths.
    """
    chosen = [argument for argument in config.args if argument.partition("::")[0] == NODE_ID]
    others = [argument for argument in config.args if argument not in chosen]
    is_alone = config.args_source is not pytest.Config.ArgsSource.ARGS or not others
    config.option.imgedit_chosen = chosen
    config.option.imgedit_alone = is_alone
    config.args[:] = [str(config.invocation_params.dir)] if is_alone else others


def collect(session: pytest.Session, report: pytest.CollectReport) -> None:
    """Add the shipped module to what a session has collected, or replace that with it if no path is
    to be collected; a report of a failure stays as it is.
    """
    if not report.passed:
        return
    module = pytest.Module.from_parent(session, path=PATH, nodeid=NODE_ID)
    if session.config.option.imgedit_alone:
        report.result = [module]
    else:
        report.result = list(report.result or ()) + [module]


def choose(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Keep only the shipped items that the command line names, if it names some, and all others.

    Returns a message with the first name that no item has, and keeps all items then; else `None`.
    """
    chosen: Sequence[str] = config.option.imgedit_chosen
    for name in chosen:
        if not any(_is_of(item.nodeid, name) for item in items):
            return f"not found: {name.replace('::', ' ')}"
    if not chosen:
        return None
    items[:] = [item for item in items if _is_kept(item.nodeid, chosen)]
    return None


def _is_kept(nodeid: str, chosen: Sequence[str]) -> bool:
    """Tell whether a node id is no shipped one, or one that was chosen."""
    if not nodeid.startswith(NODE_ID):
        return True
    return any(_is_of(nodeid, name) for name in chosen)


def _is_of(nodeid: str, name: str) -> bool:
    """Tell whether a node id is `name`, or lies below it."""
    return nodeid == name or nodeid.startswith((f"{name}[", f"{name}::"))
