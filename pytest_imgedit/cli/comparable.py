"""Runs and baselines that commands read, and refuse if they cannot be compared."""

from collections.abc import Iterable
from pathlib import Path

from pytest_imgedit.config.toml_file import configs_of
from pytest_imgedit.core import errors
from pytest_imgedit.report import read
from pytest_imgedit.store.baselines import (
    FOLDER,
    Baseline,
    unlike_further,
    unlike_items,
    unlike_judges,
    unlike_losses,
    unlike_rewrites,
)


def refuse_to_compare(
    a: Baseline, b: Baseline, names: str, gated: bool = False, only_common: bool = False
) -> None:
    """Raise `UsageError` if two baselines are of other verdicts or pairs, or, where `gated`, of
    unlike losses. `only_common` looks at the pairs of both alone.
    """
    items = [
        (name, *content)
        for name, content in b.contents.items()
        if name in a.contents or not only_common
    ]
    losses = unlike_losses(a, b.editor.lossy) if gated else None
    reason = (
        unlike_judges(a, dict(b.judge), b.seeds)
        or unlike_further(a, {name: dict(judge) for name, judge in b.further.items()})
        or unlike_rewrites(a, b.editor.rewrites is not None)
        or unlike_items(a, items)
        or losses
    )
    if reason:
        raise errors.UsageError(f"{names} cannot be compared, {reason}")


def baselines_folder() -> Path:
    """Return the folder of the baselines that the config of this repository names, or the usual
    one.
    """
    files = configs_of(Path.cwd(), Path.cwd()).values()
    named = (file.tables.get("gates", {}).get("baselines") for file in files)
    return next((Path(folder) for folder in named if isinstance(folder, str)), FOLDER)


def read_either(reference: str, out: Path) -> Baseline:
    """Read a run or a baseline."""
    return read.read_either(reference, out, baselines_folder())


def suites_of(runs: Iterable[Baseline]) -> list[str]:
    """Return the specs of the suites of runs, as far as they are known."""
    return [run.suite.name for run in runs if run.suite is not None]


def refuse_partial(run: Baseline) -> None:
    """Raise `UsageError` for a run that left out pairs by what others scored."""
    if run.not_needed:
        raise errors.UsageError(
            f"{run.run}: ended early (--imgedit-until=decided), expected runs with all their pairs"
        )
