"""Runs and baselines that commands read, and refuse if they cannot be compared."""

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from pytest_imgedit.config.ini_file import configs_here
from pytest_imgedit.core import errors
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.results import Results, SuiteInfo
from pytest_imgedit.core.text import first_of, printable, shorten
from pytest_imgedit.report import read
from pytest_imgedit.stats.leaderboard import system_names
from pytest_imgedit.store.baselines import (
    Baseline,
    unlike_further,
    unlike_items,
    unlike_judges,
    unlike_losses,
    unlike_rewrites,
    usual_folder,
)
from pytest_imgedit.store.run_references import LATEST, find_either, find_whole


def refuse_to_compare(
    earlier: Baseline,
    later: Baseline,
    names: str,
    *,
    gated: bool = False,
    only_common: bool = False,
) -> None:
    """Raise `UsageError` if two baselines differ in judges, further judges, rewrites or pairs, or,
    if `gated`, in the losses by which their editors were made faster.

    `names` are what the message calls the two. Pairs of the earlier one alone are ignored; with
    `only_common`, those of the later one alone too.
    """
    reason = difference(earlier, later, only_common)
    if gated and not reason:
        reason = unlike_losses(earlier, later.editor.lossy)
    if reason:
        raise errors.UsageError(f"{names} cannot be compared, {reason}")


def difference(earlier: Baseline, later: Baseline, only_common: bool = False) -> str | None:
    """Say how the judges, further judges, rewrites or pairs of two baselines differ, if they do."""
    contents = later.contents
    if only_common:
        contents = {
            pair_id: content for pair_id, content in contents.items() if pair_id in earlier.contents
        }
    further = {name: dict(judge) for name, judge in later.further.items()}
    return (
        unlike_judges(earlier, dict(later.judge), later.seeds)
        or unlike_further(earlier, further)
        or unlike_rewrites(earlier, later.editor.rewrites is not None)
        or unlike_items(earlier, contents)
    )


def baselines_folder() -> Path:
    """Return the folder of baselines that the config of this folder names, or else the one where
    pytest saves them if this folder is its root folder.
    """
    config = None
    for file in configs_here():
        folder = file.tables.get("gates", {}).get("baselines")
        if isinstance(folder, str):
            return Path(folder)
        config = file.path
    return Path(os.path.relpath(usual_folder(config, Path())))


def baseline_store() -> Path | None:
    """Return the folder of the edits of baselines that the config of this folder names, if any."""
    for file in configs_here():
        folder = file.tables.get("gates", {}).get("baseline_store")
        if isinstance(folder, str):
            return Path(folder)
    return None


def read_all(references: Sequence[str], out: Path) -> list[Baseline]:
    """Return runs and baselines by their references; `latest` is as in `read_with_paths`."""
    return [run for run, _ in read_with_paths(references, out)]


def read_with_paths(references: Sequence[str], out: Path) -> list[tuple[Baseline, Path]]:
    """Return runs and baselines by their references, with the files that hold them.

    `latest` is the newest run of all pairs of a suite: that of the first other reference whose
    suite is known, or any.
    """
    runs = {name: _read(name, out) for name in references if name != LATEST}
    if LATEST in references:
        suites = [run.suite for run, _ in runs.values() if run.suite is not None]
        suite = suites[0] if suites else None
        runs[LATEST] = _read(LATEST, out, names_of(suite))
    return [runs[name] for name in references]


def read_either(reference: str, out: Path, suite: Collection[str] = ()) -> Baseline:
    """Return a run or a baseline.

    `latest` is the newest run of all pairs of a suite, known by its names, or of any suite without
    them. Newer runs that were passed over are named on stderr.
    """
    baseline, _ = _read(reference, out, suite)
    return baseline


def read_document(reference: str, out: Path, suite: Collection[str] = ()) -> Results | Baseline:
    """Return the whole results of a run, or a baseline; `latest` is as in `read_either`."""
    found = find_either(reference, out, baselines_folder(), suite)
    _tell(found.note)
    return read.read_whole(found.path)


def _read(reference: str, out: Path, suite: Collection[str] = ()) -> tuple[Baseline, Path]:
    """Return a run or a baseline as `read_either`, with the file that holds it."""
    baseline, found = read.read_either(reference, out, baselines_folder(), suite)
    _tell(found.note)
    return baseline, found.path


def store_of(path: Path) -> Path:
    """Return the folder of the store that a results.json is in, as `STORE/runs/ID/results.json`."""
    return path.absolute().parent.parent.parent


def read_run(reference: str, out: Path, suite: Collection[str] = ()) -> Results:
    """Return a run; `latest` is as in `read_either`."""
    run = find_whole(reference, out, suite)
    _tell(run.note)
    return read.read_results(run.path)


def _tell(note: str) -> None:
    if note:
        print(f"imgedit: {printable(note)}", file=sys.stderr)


def names_of(suite: SuiteInfo | None) -> tuple[str, ...]:
    """Return the names by which a suite is known; none for `None`."""
    return () if suite is None else (suite.name, suite.sha256)


def suites_of(runs: Iterable[Baseline]) -> list[str]:
    """Return the specs of the suites of runs; runs without a known suite have none."""
    return [run.suite.name for run in runs if run.suite is not None]


def refuse_twice(references: Iterable[str], runs: Iterable[Baseline]) -> None:
    """Raise `UsageError` if two references name one run."""
    seen: dict[str, str] = {}
    for reference, run in zip(references, runs, strict=True):
        if run.run in seen:
            raise errors.UsageError(
                f"{seen[run.run]} and {reference} are one run, {run.run}: name it once"
            )
        seen[run.run] = reference


def voted_systems(runs: Sequence[Baseline]) -> dict[str, str]:
    """Return the systems of runs by all names that votes may call them: the system's name, the id
    of the run, and the name with the id.
    """
    systems = system_names(runs)
    names = {system: system for system in systems}
    for system, run in zip(systems, runs, strict=True):
        (name,) = system_names([run])
        names.setdefault(run.run, system)
        names.setdefault(f"{name} ({run.run})", system)
    return names


def refuse_others(votes: Iterable[DuelVote], systems: Mapping[str, str]) -> None:
    """Raise `UsageError` for a vote on something that is not among the names of systems."""
    for vote in votes:
        for name in (vote.a, vote.b):
            if name not in systems:
                known = first_of(list(dict.fromkeys(systems.values())), most=20)
                raise errors.UsageError(
                    f"{vote.row}: {shorten(repr(name), 80)} is none of the runs, expected one of "
                    f"{known}"
                )


def refuse_partial(run: Baseline) -> None:
    """Raise `UsageError` for a run that ended before all its pairs were scored."""
    if run.not_needed:
        raise errors.UsageError(
            f"{run.run}: ended early (--imgedit-until=decided), expected runs with all their pairs"
        )
