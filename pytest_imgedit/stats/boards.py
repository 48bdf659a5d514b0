"""Systems rated by votes between their edits: Davidson's model with an order term a judge and a tie
term a dimension.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from pytest_imgedit.core import errors
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.measures import SCORE
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.text import counted, first_of
from pytest_imgedit.stats import ranking
from pytest_imgedit.stats.davidson import OWN_ORDER, Davidson, fit, is_one_way, sharing_order
from pytest_imgedit.stats.estimates import Estimate
from pytest_imgedit.stats.simultaneous_intervals import (
    ClusterBootstrap,
    alpha_of_differences,
    alpha_of_means,
)
from pytest_imgedit.stats.vote_counts import TIED, WON, Coded, Flags, Indices, Tally

#: Elo points of a natural logarithm of strength.
ELO = 400 / 2.302585092994046
#: Decimals of Elo points and of logarithms of strength that rounding leaves alone.
DECIMALS = 9


@dataclass(frozen=True)
class Elo:
    """A rating in Elo points: 400 are odds of 10 to 1, and 0 is the mean of all systems.

    `ci95` is simultaneous: with a chance of 95% the intervals of all systems of a column hold their
    true ratings. It is `None` where votes of one cluster alone say something, and where all
    clusters say the same.
    """

    elo: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class EloDifference:
    """A system's rating minus the reference's, with its own interval, and the two-sided p after
    Holm's correction over all systems but the reference.
    """

    elo: float
    ci95: tuple[float, float] | None
    p: float


@dataclass(frozen=True, kw_only=True)
class RatedSystem:
    """A row of a board; `rank`, `rank_interval`, `groups` and `difference` as in
    `ranking.RankedSystem`.

    `dimensions` and `categories` hold its ratings by those alone, where they can be fitted. `wins`,
    `ties` and `losses` count its votes. `against` has the share of these that it won over each
    system that it met, a tie counting half.
    """

    system: str
    rank: int
    rank_interval: tuple[int, int]
    groups: tuple[int, ...]
    overall: Elo
    dimensions: Mapping[str, Elo]
    categories: Mapping[str, Elo]
    wins: int
    ties: int
    losses: int
    against: Mapping[str, float]
    difference: EloDifference | None


@dataclass(frozen=True)
class Chance:
    """A chance that votes tell, with its interval; `None` where it cannot be told."""

    share: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Board:
    """Systems by their ratings, the best first.

    `first` has for each judge the chance that it prefers the edit shown first of two equal systems,
    without ties; `ties` for each dimension the chance that equal systems tie. `clusters` counts the
    source images. `notes` say what could not be fitted.
    """

    rows: tuple[RatedSystem, ...]
    first: Mapping[str, Chance]
    ties: Mapping[str, Chance]
    votes: int
    pairs: int
    clusters: int
    notes: tuple[str, ...]


def rate(votes: Sequence[DuelVote], reference: str | None = None) -> Board:
    """Rate the systems that votes name.

    Votes on `score` are left out where there are others, as a score is the sum of those. The
    intervals are to first order: a cluster's part in the error of a rating is its score times the
    inverse of the information, and `Estimate` corrects the variance for few clusters.

    Raises `UsageError` for a reference that is not among them, and if the systems fall into parts
    that no vote connects, or a part that won or lost every vote against the rest: no finite rating
    fits that. The message names the parts.
    """
    _check(votes)
    coded = Coded.of(votes)
    ranking.check_reference(coded.systems, reference)
    used, notes = _without_scores(coded)
    overall, without = fit(Tally.of(used))
    used = _in_order_of_influence(used, overall)
    overall, _ = fit(Tally.of(used))
    counts = Tally.of(used)
    notes += without or _notes_on_orders(counts, overall)
    columns = _Columns(_bootstrap(counts), notes)
    dimensions = {}
    for place in _several(used.dimension):
        dimensions[used.dimensions[place]] = used.only(used.dimension == place)
    categories = {}
    for name in in_order(used.categories[place] for place in _several(used.category)):
        categories[name] = used.only(used.category == used.categories.index(name))
    rows = _rows(
        _Column(overall, columns.bootstrap),
        counts,
        reference=reference,
        dimensions=columns.of("dimension", dimensions),
        categories=columns.of("category", categories),
    )
    return Board(
        rows=rows,
        first=_first(counts, overall),
        ties=_ties(counts, overall),
        votes=len(used.i),
        pairs=len(np.unique(used.pair)),
        clusters=len(counts.clusters),
        notes=tuple(columns.notes),
    )


def _bootstrap(counts: Tally) -> ClusterBootstrap:
    """Draw all clusters with replacement."""
    return ClusterBootstrap.of(counts.clusters.tolist(), [""] * len(counts.clusters))


def _check(votes: Sequence[DuelVote]) -> None:
    """Raise `UsageError` if there is no vote, or one between a system and itself."""
    if not votes:
        raise errors.UsageError("no vote to rate systems by, expected at least one")
    for vote in votes:
        if vote.a == vote.b:
            raise errors.UsageError(
                f"{vote.row or vote.pair}: a vote between {vote.a} and itself, expected two "
                "systems: leave it out"
            )


def _without_scores(coded: Coded) -> tuple[Coded, list[str]]:
    """Leave out the votes on `score` if there are others, and say so."""
    if SCORE not in coded.dimensions or len(coded.dimensions) == 1:
        return coded, []
    is_score = coded.dimension == coded.dimensions.index(SCORE)
    left_out = counted(int(is_score.sum()), "vote")
    note = f"{left_out} on {SCORE} left out: it sums up the other dimensions"
    return coded.only(~is_score), [note]


def _in_order_of_influence(coded: Coded, overall: Davidson) -> Coded:
    """Number clusters by what they do to the ratings, so that names of clusters and systems do not
    decide which random numbers they get.
    """
    systems = range(len(coded.systems))
    by_rating = sorted(systems, key=lambda system: -overall.parameters[system])
    moves = np.stack([overall.parameter(system).deviations for system in by_rating])
    numbers = overall.tally.clusters[np.lexsort(np.round(moves, DECIMALS))]
    others = np.setdiff1d(coded.cluster, numbers)
    places = np.zeros(coded.cluster.max() + 1, dtype=np.intp)
    places[np.concatenate([numbers, others])] = np.arange(len(numbers) + len(others))
    return replace(coded, cluster=places[coded.cluster])


def _several(numbers: Indices) -> list[int]:
    """Return the distinct numbers, none if there is but one."""
    distinct: list[int] = np.unique(numbers).tolist()
    return distinct if len(distinct) > 1 else []


def _with_width(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return an interval; `None` for one without a width, as all clusters that agree tell no
    spread.
    """
    if interval is None or interval[1] - interval[0] < 10**-DECIMALS:
        return None
    return interval


class _Column:
    """Ratings by one fit, in Elo points."""

    def __init__(self, fitted: Davidson, bootstrap: ClusterBootstrap) -> None:
        self.fitted = fitted
        self.systems = fitted.tally.coded.systems
        unit = np.eye(len(fitted.parameters))
        self.estimates = [
            fitted.estimate(ELO * unit[system]) for system in range(len(self.systems))
        ]
        self.errors = bootstrap.errors(fitted.tally.clusters.tolist(), self.estimates)
        self.even_clusters = min(mean.even_clusters for mean in self.estimates)

    def difference(self, system: int, other: int) -> Estimate:
        """Estimate the difference of two systems, by their positions."""
        unit = np.eye(len(self.fitted.parameters))
        return self.fitted.estimate(ELO * (unit[system] - unit[other]))

    def ratings(self) -> list[Elo]:
        """Return the rating of each system with simultaneous intervals."""
        alpha = alpha_of_means(self.errors, self.even_clusters)
        return [Elo(mean.mean, _with_width(mean.interval(alpha))) for mean in self.estimates]

    def clear_wins(self) -> Flags:
        """Tell for every two systems whether the first (row) is shown to be better."""
        alpha = alpha_of_differences(self.errors, self.even_clusters)
        return ranking.clear_wins(self, alpha)


@dataclass(frozen=True)
class _Columns:
    """Ratings by a part of the votes each; `notes` say of which there are none."""

    bootstrap: ClusterBootstrap
    notes: list[str]

    def of(self, kind: str, parts: Mapping[str, Coded]) -> dict[str, list[Elo]]:
        """Return the ratings of all systems by the votes of each part, where they can be fitted."""
        columns = {}
        for name, coded in parts.items():
            try:
                fitted, without = fit(Tally.of(coded))
            except errors.UsageError as error:
                self.notes.append(f"{kind} {name} has no ratings of its own: {error}")
                continue
            self.notes.extend(f"{kind} {name}: {note}" for note in without)
            columns[name] = _Column(fitted, self.bootstrap).ratings()
        return columns


def _rows(
    rated: _Column,
    counts: Tally,
    *,
    reference: str | None,
    dimensions: Mapping[str, Sequence[Elo]],
    categories: Mapping[str, Sequence[Elo]],
) -> tuple[RatedSystem, ...]:
    """Return the rows of a board, the best first; equal ratings in the order of names."""
    overall = rated.ratings()
    worth = np.array([rating.elo for rating in overall])
    order = np.argsort(-np.round(worth, DECIMALS), kind="stable").tolist()
    is_better = rated.clear_wins()
    groups = ranking.groups_of(order, is_better)
    differences = {
        system: EloDifference(difference.mean, _with_width(difference.ci95), difference.p)
        for system, difference in ranking.reference_differences(rated, reference).items()
    }
    wins = counts.wins()
    ties = counts.ties()
    met = wins + wins.T + ties
    points = wins + ties / 2
    rows = []
    for system in order:
        row = RatedSystem(
            system=rated.systems[system],
            rank=1 + int((worth > worth[system] + 10**-DECIMALS).sum()),
            rank_interval=ranking.rank_interval_of(is_better, system),
            groups=tuple(n for n, group in enumerate(groups, 1) if system in group),
            overall=overall[system],
            dimensions={name: column[system] for name, column in dimensions.items()},
            categories={name: column[system] for name, column in categories.items()},
            wins=int(wins[system].sum()),
            ties=int(ties[system].sum()),
            losses=int(wins[:, system].sum()),
            against={
                rated.systems[other]: float(points[system, other] / met[system, other])
                for other in order
                if met[system, other]
            },
            difference=differences.get(system),
        )
        rows.append(row)
    return tuple(rows)


def _first(counts: Tally, overall: Davidson) -> dict[str, Chance]:
    """Return the chance of each judge to prefer the edit shown first of two equal systems: by its
    order term, or 1 or 0 if it always prefers the one or the other. Judges that share a term have
    none of their own.
    """
    chances = {}
    by_order = counts.by_order()
    for judges in sharing_order(counts):
        if len(judges) > 1:
            continue
        name = counts.coded.judges[judges[0]]
        if judges in overall.judges:
            chances[name] = _chance(overall.order_term(judges))
        elif is_one_way(by_order[judges[0]]):
            chances[name] = Chance(float(by_order[judges[0], WON] > 0), None)
    return chances


def _notes_on_orders(counts: Tally, overall: Davidson) -> list[str]:
    """Name the judges that share an order term, and those whose votes tell none."""
    notes = []
    by_order = counts.by_order()
    for judges in sharing_order(counts):
        names = [counts.coded.judges[judge] or "of no name" for judge in judges]
        named = f"{counted(len(names), 'judge')} ({first_of(names)})"
        if judges in overall.judges and len(judges) > 1:
            share = _chance(overall.order_term(judges)).share
            notes.append(
                f"{named} of fewer than {OWN_ORDER} votes share one order effect: the first of two "
                f"equal systems is preferred with a chance of {share:.2f}"
            )
        elif judges in overall.judges:
            continue
        elif is_one_way(by_order[list(judges)].sum(axis=0)):
            notes.append(
                f"{named} preferred the edit shown first, or the other, in every vote: no order "
                "effect is fitted"
            )
        else:
            notes.append(
                f"votes of {named} do not tell an order effect from the systems: show each pair in "
                "both orders"
            )
    return notes


def _ties(counts: Tally, overall: Davidson) -> dict[str, Chance]:
    """Return the chance of a tie of equal systems, ν/(2 + ν), in each dimension: 0 without any tie,
    1 with ties alone.
    """
    chances = {}
    by_dimension = counts.by_dimension()
    for dimension in np.unique(counts.dimension).tolist():
        term = overall.tie_term(dimension)
        if term is None:
            chance = Chance(float(by_dimension[dimension, TIED] > 0), None)
        else:
            chance = _chance(term, np.log(2))
        chances[counts.coded.dimensions[dimension]] = chance
    return chances


def _chance(term: Estimate, less: float = 0.0) -> Chance:
    """Return the chance of which a term, less a number, is the logarithm of the odds."""
    share = float(expit(term.mean - less))
    interval = term.interval()
    if interval is None:
        return Chance(share, None)
    low, high = expit(np.array(interval) - less).tolist()
    return Chance(share, (low, high))
