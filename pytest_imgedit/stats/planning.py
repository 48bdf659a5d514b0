"""How many pairs would decide a gate, by simulation from the pairs that there are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

Pair = TypeVar("Pair")
#: Multiples of the pairs at hand that are tried, and simulated runs of each.
FACTORS = (1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16)
RUNS = 25
#: Share of runs that must be decided.
POWER = 0.8


def pairs_needed(
    pairs: Sequence[Pair],
    cluster: Callable[[Pair], Hashable],
    category: Callable[[Pair], Hashable],
    decides: Callable[[list[tuple[Pair, str]]], bool],
) -> int | None:
    """Smallest number of pairs like these with which `POWER` of simulated runs are decided, `None` beyond 16 times.

    A simulated run draws clusters with replacement, among those of the same categories. `decides` takes its pairs,
    each with the name of its cluster in that run.
    """
    members: defaultdict[Hashable, list[Pair]] = defaultdict(list)
    for pair in pairs:
        members[cluster(pair)].append(pair)
    strata: defaultdict[frozenset[Hashable], list[list[Pair]]] = defaultdict(list)
    for group in members.values():
        strata[frozenset(map(category, group))].append(group)

    def enough(factor: float) -> bool:
        generator, decided = np.random.default_rng(0), 0
        for _ in range(RUNS):
            drawn: list[tuple[Pair, str]] = []
            for number, groups in enumerate(strata.values()):
                places = generator.integers(0, len(groups), round(factor * len(groups)))
                drawn += [(pair, f"{number}-{n}") for n, place in enumerate(places) for pair in groups[place]]
            decided += decides(drawn)
        return decided >= POWER * RUNS

    low, high = 0, len(FACTORS)
    while low < high:
        middle = (low + high) // 2
        if enough(FACTORS[middle]):
            high = middle
        else:
            low = middle + 1
    return round(FACTORS[low] * len(pairs)) if low < len(FACTORS) else None
