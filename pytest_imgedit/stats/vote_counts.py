"""Votes between systems as numbers, and their counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.stats.estimates import Floats

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
#: The outcomes of a vote on systems i and j, in the order of the last axis of counts.
WON, TIED, LOST = range(3)


@dataclass(frozen=True, kw_only=True)
class Coded:
    """Votes as numbers, in shape (votes,) each.

    System `i` comes before `j` in `systems`. `order` is 1 if i was shown first, -1 if j was, and 0
    if that is not known. `outcome` is `WON` if i won. The others number sorted names.
    `weight` says how often a vote counts.
    """

    systems: tuple[str, ...]
    judges: tuple[str, ...]
    dimensions: tuple[str, ...]
    categories: tuple[str, ...]
    i: Indices
    j: Indices
    order: Indices
    outcome: Indices
    judge: Indices
    dimension: Indices
    category: Indices
    pair: Indices
    cluster: Indices
    weight: Floats

    @classmethod
    def of(cls, votes: Sequence[DuelVote]) -> "Coded":
        """Number what votes name. A vote counts once. Without a cluster it has its pair for one."""
        systems = sorted({vote.a for vote in votes} | {vote.b for vote in votes})
        number = {name: place for place, name in enumerate(systems)}
        a = np.array([number[vote.a] for vote in votes])
        b = np.array([number[vote.b] for vote in votes])
        sign = np.where(a < b, 1, -1)
        shown = {"a": 1, "b": -1, "": 0}
        won = {"a": -1, "b": 1, "tie": 0}
        judges, judge = _numbered([vote.judge for vote in votes])
        dimensions, dimension = _numbered([vote.dimension for vote in votes])
        categories, category = _numbered([vote.category for vote in votes])
        return cls(
            systems=tuple(systems),
            judges=judges,
            dimensions=dimensions,
            categories=categories,
            i=np.minimum(a, b),
            j=np.maximum(a, b),
            order=sign * np.array([shown[vote.first] for vote in votes]),
            outcome=TIED + sign * np.array([won[vote.winner] for vote in votes]),
            judge=judge,
            dimension=dimension,
            category=category,
            pair=_numbered([vote.pair_id for vote in votes])[1],
            cluster=_numbered([vote.cluster or vote.pair_id for vote in votes])[1],
            weight=np.ones(len(votes)),
        )

    def only(self, keep: Flags) -> "Coded":
        """Keep some votes."""
        return replace(
            self,
            i=self.i[keep],
            j=self.j[keep],
            order=self.order[keep],
            outcome=self.outcome[keep],
            judge=self.judge[keep],
            dimension=self.dimension[keep],
            category=self.category[keep],
            pair=self.pair[keep],
            cluster=self.cluster[keep],
            weight=self.weight[keep],
        )


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], Indices]:
    """Return distinct names in order, and the number of each name among them."""
    distinct = sorted(set(names))
    numbers = {name: place for place, name in enumerate(distinct)}
    return tuple(distinct), np.array([numbers[name] for name in names], dtype=np.intp)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Sufficient statistics of votes: a cell are those on the same two systems, of one order, judge
    and dimension.

    `i` to `dimension` describe the cells, as in `Coded`. Entries are votes of one cluster in one
    cell with one outcome: `count` is their number, `entry_cell`, `outcome` and `cluster` say which.
    `clusters` are the numbers of the clusters that occur.
    """

    coded: Coded
    i: Indices
    j: Indices
    order: Indices
    judge: Indices
    dimension: Indices
    entry_cell: Indices
    outcome: Indices
    cluster: Indices
    count: Floats
    clusters: Indices

    @classmethod
    def of(cls, coded: Coded) -> "Tally":
        """Count one or more votes."""
        systems = len(coded.systems)
        sides = (systems, systems, 3, len(coded.judges), len(coded.dimensions))
        keys = (coded.i, coded.j, coded.order + 1, coded.judge, coded.dimension)
        cells, cell = np.unique(np.ravel_multi_index(keys, sides), return_inverse=True)
        clusters, cluster = np.unique(coded.cluster, return_inverse=True)
        shape = (len(clusters), len(cells), 3)
        places = np.ravel_multi_index((cluster, cell, coded.outcome), shape)
        entries, entry = np.unique(places, return_inverse=True)
        entry_cluster, entry_cell, outcome = np.unravel_index(entries, shape)
        i, j, order, judge, dimension = np.unravel_index(cells, sides)
        return cls(
            coded=coded,
            i=i,
            j=j,
            order=order - 1,
            judge=judge,
            dimension=dimension,
            entry_cell=entry_cell,
            outcome=outcome,
            cluster=entry_cluster,
            count=np.bincount(entry, weights=coded.weight).astype(np.float64),
            clusters=clusters,
        )

    @cached_property
    def counts(self) -> Floats:
        """Votes of each cell by outcome, in shape (cells, 3)."""
        places = 3 * self.entry_cell + self.outcome
        counts = np.bincount(places, weights=self.count, minlength=3 * len(self.i))
        return np.asarray(counts.reshape(-1, 3), dtype=np.float64)

    def by_dimension(self) -> Floats:
        """Votes of each dimension by outcome, in shape (dimensions, 3)."""
        counts = np.zeros((len(self.coded.dimensions), 3))
        np.add.at(counts, self.dimension, self.counts)
        return counts

    def by_order(self) -> Floats:
        """Votes of each judge for the edit shown first, for neither, and for the other, where the
        order is known, in shape (judges, 3).
        """
        counts = np.zeros((len(self.coded.judges), 3))
        is_first = self.order > 0
        np.add.at(counts, self.judge[is_first], self.counts[is_first])
        is_second = self.order < 0
        np.add.at(counts, self.judge[is_second], self.counts[is_second][:, ::-1])
        return counts

    def wins(self) -> Floats:
        """Votes that the system of the row won against that of the column, in shape (systems,
        systems).
        """
        return self._against(WON, LOST)

    def ties(self) -> Floats:
        """Ties of every two systems, in shape (systems, systems)."""
        return self._against(TIED, TIED)

    def _against(self, outcome: int, reverse: int) -> Floats:
        systems = len(self.coded.systems)
        counts = np.zeros((systems, systems))
        np.add.at(counts, (self.i, self.j), self.counts[:, outcome])
        np.add.at(counts, (self.j, self.i), self.counts[:, reverse])
        return counts
