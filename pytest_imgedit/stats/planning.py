"""The minimum detectable effect (MDE) of a run, and how many pairs would decide a gate."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from scipy.special import ndtri, stdtrit

from pytest_imgedit.core.measures import Field, groups_of
from pytest_imgedit.core.results import Item, Measure, Results
from pytest_imgedit.stats.gate_limits import KINDS, MeanGate

Pair = TypeVar("Pair")
#: Multiples of the pairs at hand that are tried, and simulated runs of each.
FACTORS = (1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16)
RUNS = 25
#: Share of runs that must be decided.
POWER = 0.8
#: The chance of a false alarm of the tests that MDEs in tables of means are for.
TABLE_ALPHA = 0.05
#: The same where a small standard error decides: few pairs miss what is rare among others, which
#: resampling them does not make up for. `perf/good_work.py --advice` shows that `POWER` of fresh
#: runs are decided then.
POWER_OF_SPREAD = 1.0


def detectable(
    kind: MeanGate,
    mde: float,
    measure: Measure,
    limit: float | None = None,
) -> str:
    """Say in words what a gate with an MDE detects; without its `limit`, how far beyond it that
    is.
    """
    return KINDS[kind].detectable(mde, measure, limit)


def strata_of(
    pairs: Iterable[Pair],
    cluster: Callable[[Pair], Hashable],
    category: Callable[[Pair], Hashable],
) -> list[list[list[Pair]]]:
    """Group pairs by cluster, and clusters by the set of their pairs' categories.

    Return the strata, a list of clusters each, which are lists of pairs; all in the order in which
    they first occur.
    """
    members: defaultdict[Hashable, list[Pair]] = defaultdict(list)
    for pair in pairs:
        members[cluster(pair)].append(pair)
    strata: defaultdict[frozenset[Hashable], list[list[Pair]]] = defaultdict(list)
    for group in members.values():
        strata[frozenset(map(category, group))].append(group)
    return list(strata.values())


def pairs_needed(
    pairs: Sequence[Pair],
    cluster: Callable[[Pair], Hashable],
    category: Callable[[Pair], Hashable],
    decides: Callable[[list[tuple[Pair, str]]], bool],
    share: float = POWER,
) -> int | None:
    """Return the smallest number of pairs like these, a multiple in `FACTORS`, with which a `share`
    of simulated runs are decided; `None` if no multiple is enough.

    A simulated run allows for what the pairs at hand do not tell of others: it first draws how
    often each cluster occurs among all that there could be, with exponential weights among those of
    the same categories (Bayesian bootstrap: Rubin 1981), and then its clusters. Of n clusters that
    leaves (n − 1)/(n + 1) of the variance, so that a run has that share of them. `decides` takes
    its pairs, each with the name of its cluster in that run.
    """
    strata = strata_of(pairs, cluster, category)
    clusters = sum(map(len, strata))
    share_left = (clusters - len(strata)) / (clusters + len(strata))

    def simulate(factor: float, generator: np.random.Generator) -> list[tuple[Pair, str]]:
        """Return the pairs of a run of a multiple of the clusters, with the names of these."""
        drawn: list[tuple[Pair, str]] = []
        for number, groups in enumerate(strata):
            weights = generator.standard_exponential(len(groups))
            size = max(1, round(share_left * factor * len(groups)))
            picks = generator.choice(len(groups), size, p=weights / weights.sum())
            for position, pick in enumerate(picks):
                drawn += [(pair, f"{number}-{position}") for pair in groups[pick]]
        return drawn

    def is_enough(factor: float) -> bool:
        generator = np.random.default_rng(0)
        undecided = 0
        for _ in range(RUNS):
            undecided += not decides(simulate(factor, generator))
            if undecided > (1 - share) * RUNS + 1e-9:  # `1 - share` is rounded
                return False
        return True

    index = bisect_left(FACTORS, True, key=is_enough)
    return round(FACTORS[index] * len(pairs)) if index < len(FACTORS) else None


def mde(error: float, freedom: float, alpha: float) -> float:
    """Return the smallest distance from a limit that a one-sided test at `alpha` finds in `POWER`
    of runs: (t₁₋α + t_power)·SE (Bloom 1995), with quantiles t of Student's t.

    `error` is the standard error SE, `freedom` its degrees of freedom.
    """
    return float(stdtrit(freedom, 1 - alpha) + stdtrit(freedom, POWER)) * error


def size_for(effect: float, error: float, freedom: float, alpha: float) -> float | None:
    """Return the smallest factor on the pairs at hand, to 0.01%, with which a test at
    `alpha` finds `effect`; `None` if there was no spread, or beyond a million.

    `error` is the standard error with the pairs at hand, `freedom` its degrees of freedom: with k
    times the pairs, laid out alike, they are error/√k and k·freedom. Factors under 1 leave at least
    one degree of freedom.
    """
    if error == 0:
        return None

    def is_enough(factor: float) -> bool:
        return mde(error / factor**0.5, factor * freedom, alpha) <= effect

    low = 1 / freedom
    high = 1e6
    if not is_enough(high):
        return None
    while high > 1.0001 * low:
        middle = (low * high) ** 0.5
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


def expected_mde(
    kind: MeanGate,
    field: str,
    alpha: float,
    count: int,
    runs: Iterable[Results],
) -> tuple[float, str] | None:
    """Predict the MDE of a gate at `alpha` over `count` pairs from the first of `runs` with one.

    Return the MDE on the scale of the measure and the name of the run; `None` if no run has one.
    An MDE is in proportion to 1/√pairs, and to `_deviations_found` at its α.
    """
    measure, group = Field.parse(field)
    for run in runs:
        of_group = [item for item in run.items if group in groups_of(item)]
        pairs = sum(_has_value(run, item, kind, measure) for item in of_group)
        for known, alpha_then in _known_mdes(run, kind, field):
            if known and pairs:
                scale = _deviations_found(alpha) / _deviations_found(alpha_then)
                return float(known * scale * (pairs / count) ** 0.5), f"run {run.run.id}"
    return None


def _has_value(run: Results, item: Item, kind: MeanGate, measure: str) -> bool:
    """Tell whether an item has a value of a measure, or of duels for a gate on these."""
    if kind != "min_win":
        return item.value(measure) is not None
    duels = {} if run.duel is None else run.duel.pairs
    return item.id in duels and duels[item.id].value(measure) is not None


def _known_mdes(run: Results, kind: MeanGate, field: str) -> list[tuple[float | None, float]]:
    """Return the MDEs of a field in a run, each with the α of its test: those of the run's gates of
    this kind, and for `fail_under` that of the table of its means.
    """
    options = run.run.options.gates
    share = options.alpha_of(kind) / max(1, len(getattr(options, kind)))
    known = [(gate.mde, share) for gate in run.gates if (gate.kind, gate.field) == (kind, field)]
    if kind == "fail_under":
        measure, group = Field.parse(field)
        measured = run.measures.get(measure)
        row = None if measured is None else measured.rows.get(group)
        if row is not None:
            known.append((row.mde, TABLE_ALPHA))
    return known


def _deviations_found(alpha: float) -> float:
    """Return the MDE of a one-sided test at `alpha` of a normal mean, in standard errors."""
    return float(ndtri(1 - alpha) + ndtri(POWER))
