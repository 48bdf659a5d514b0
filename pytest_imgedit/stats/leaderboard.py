"""A leaderboard of runs: each measure that all of them have, ranked over the pairs of all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import SCORE, SCORE_ONLY
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.text import did_you_mean
from pytest_imgedit.stats.gate_values import measured_by
from pytest_imgedit.stats.ranking import Direction, Leaderboard, SystemScores, rank
from pytest_imgedit.store.baselines import Baseline, BaselineItem


@dataclass(frozen=True)
class RankedMeasure:
    """A measure, and the leaderboard of its systems."""

    measure: Measure
    board: Leaderboard


@dataclass(frozen=True)
class RankedRuns:
    """Runs by the names of their systems, with a leaderboard for each measure; the score is the
    first, unless measures were named.

    `reference` is the system that the others are compared with, or `None`. `notes` say which
    systems trade quality for speed, and which measures are not ranked.
    """

    runs: Mapping[str, Baseline]
    measures: Mapping[str, RankedMeasure]
    reference: str | None
    notes: Sequence[str]


def rank_runs(
    runs: Sequence[Baseline], reference: Baseline | None, names: Sequence[str]
) -> RankedRuns:
    """Rank runs that can be compared by the measures of these names, or by all that they share if
    there are no names. `reference` is one of the runs, or `None`.

    Raise `UsageError` for a measure that a run lacks or has on another scale, and where `rank`
    does for the score or a measure that was named. Another measure is left out with a note.
    """
    systems = dict(zip(system_names(runs), runs, strict=True))
    reference_system = None
    measures = {}
    notes = []
    for system, run in systems.items():
        if run is reference:
            reference_system = system
        if run.editor.lossy:
            notes.append(f"{system} trades quality for speed: {', '.join(run.editor.lossy)}")
    for name, measure in shared_measures(systems, names).items():
        scale = measure.ends if measure.is_bounded else None
        direction: Direction = "lower" if measure.lower_is_better else "higher"
        try:
            board = rank(scores_of(systems, name), direction, scale, reference_system)
        except errors.UsageError as error:
            if names or name == SCORE:
                raise errors.UsageError(f"measure {name}: {error}") from None
            notes.append(f"measure {name} is not ranked: {error}")
            continue
        measures[name] = RankedMeasure(measure, board)
    return RankedRuns(systems, measures, reference_system, notes)


def system_names(runs: Sequence[Baseline]) -> list[str]:
    """Return a name for the system of each run: that of the run, or else its editor's spec; the id
    of the run is added to a name that several have.
    """
    names = [_name_of(run) for run in runs]
    counts = Counter(names)
    unique = []
    for name, run in zip(names, runs, strict=True):
        is_unique = counts[name] == 1
        unique.append(name if is_unique else f"{name} ({run.run})")
    return unique


def _name_of(run: Baseline) -> str:
    return run.name if run.is_named else run.editor.spec


def shared_measures(systems: Mapping[str, Baseline], names: Sequence[str]) -> dict[str, Measure]:
    """Return the measures of these names, or without names the score and all others that every run
    has values of; raise `UsageError` for a name that is not among these, and for a scale or
    direction that differs.
    """
    first_system, first_run = next(iter(systems.items()))
    shared = []
    for name in {**SCORE_ONLY, **first_run.measures}:
        if name == SCORE or all(_has_values(run, name) for run in systems.values()):
            shared.append(name)
    for name in names:
        if name not in shared:
            raise errors.UsageError(
                f"--measure={name}: not a measure of all runs, expected one of: "
                f"{', '.join(shared)}{did_you_mean(name, shared)}"
            )
    measures = {}
    for name in names or shared:
        measures[name] = _declared(first_run, name)
        for system, run in systems.items():
            if _declared(run, name) != measures[name]:
                raise errors.UsageError(
                    f"measure {name}: {system} has another scale or direction than "
                    f"{first_system}, expected one for all: name others with --measure"
                )
    return measures


def _declared(run: Baseline, name: str) -> Measure:
    return {**SCORE_ONLY, **run.measures}[name]


def _has_values(run: Baseline, name: str) -> bool:
    return name in run.measures and any(item.value(name) is not None for item in run.items)


def scores_of(systems: Mapping[str, Baseline], name: str) -> SystemScores:
    """Return the values of a measure by each system, over the pairs of any run that it applies
    to.
    """
    pairs: dict[str, BaselineItem] = {}
    for run in systems.values():
        pairs |= {item.id: item for item in measured_by(run.items, name)}
    scores = np.full((len(systems), len(pairs)), np.nan)
    for row, run in zip(scores, systems.values(), strict=True):
        values = {item.id: item.value(name) for item in run.items}
        row[:] = [values.get(pair_id) for pair_id in pairs]
    categories = [pair.category for pair in pairs.values()]
    clusters = [pair.cluster for pair in pairs.values()]
    return SystemScores(list(systems), scores, categories, clusters)
