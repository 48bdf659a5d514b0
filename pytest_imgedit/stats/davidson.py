"""Maximum likelihood of Davidson's model of votes with ties, with an order term a judge.

For a vote in dimension d by judge g on systems i, shown first, and j, the logarithms of the weights
of the outcomes are θ_i + δ_g/2 (i wins), θ_j − δ_g/2 (j wins) and log ν_d + (θ_i + θ_j)/2 (a tie):
Davidson (J. Am. Stat. Assoc. 65, 1970), and Davidson and Beaver (Biometrics 33, 1977). Where the
order is not known, δ_g is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import counted, first_of
from pytest_imgedit.stats.estimates import Estimate, Floats, estimate_of_errors
from pytest_imgedit.stats.vote_counts import LOST, TIED, WON, Flags, Tally

#: Largest gradient of the log-likelihood at which a fit is done, in votes a vote.
GRADIENT = 1e-13
#: Steps after which a fit is given up. A finite maximum takes about ten.
STEPS = 200
#: Votes of known order that give a judge an order term of its own. Judges of fewer share one: terms
#: of few votes each would drive all ratings apart (Neyman and Scott, Econometrica 16, 1948).
OWN_ORDER = 50
#: An eigenvalue or a slack under this is none but rounding.
NONE = 1e-8


@dataclass(frozen=True, kw_only=True)
class Davidson:
    """A fit. `parameters` are θ of all systems with mean 0, δ of `judges` and log ν of
    `dimensions`, those that have one. Judges in one tuple share δ.

    In `tally`, votes of judges that share δ are those of the first of them.
    `moves` are the steps of the parameters that one vote more of a cell and an outcome makes, in
    shape (cells, 3, parameters), and `shares` the chances of the outcomes, in shape (cells, 3).
    """

    tally: Tally
    judges: tuple[tuple[int, ...], ...]
    dimensions: tuple[int, ...]
    parameters: Floats
    moves: Floats
    shares: Floats

    def estimate(self, contrast: Floats) -> Estimate:
        """Return a weighted sum of the parameters with its error, clustered by source.

        The error of each cluster is its score times the inverse of the information. Its weight is
        its share of the information on the sum.
        """
        tally = self.tally
        moves = self.moves @ contrast
        cell_weights = (self.shares * moves**2).sum(axis=1)
        moved = tally.count * moves[tally.entry_cell, tally.outcome]
        weight = tally.count * cell_weights[tally.entry_cell]
        return estimate_of_errors(
            float(self.parameters @ contrast),
            np.bincount(tally.cluster, weights=moved).astype(np.float64),
            np.bincount(tally.cluster, weights=weight).astype(np.float64),
        )

    def parameter(self, place: int) -> Estimate:
        """Return a parameter with its error."""
        return self.estimate(np.eye(len(self.parameters))[place])

    def difference(self, system: int, other: int) -> Estimate:
        """Return θ of a system less that of another, with its error."""
        unit = np.eye(len(self.parameters))
        return self.estimate(unit[system] - unit[other])

    def order_term(self, judges: tuple[int, ...]) -> Estimate:
        """Return δ of judges that share it, a tuple in `judges`, with its error."""
        return self.parameter(len(self.tally.coded.systems) + self.judges.index(judges))

    def tie_term(self, dimension: int) -> Estimate | None:
        """Return log ν of a dimension, `None` if it has none."""
        if dimension not in self.dimensions:
            return None
        before = len(self.tally.coded.systems) + len(self.judges)
        return self.parameter(before + self.dimensions.index(dimension))


@dataclass(frozen=True)
class Design:
    """`rows` are what the logarithms of the outcomes' weights are made of, in shape (cells, 3,
    parameters). `has_ties` tells of each cell whether it can end in a tie.
    """

    rows: Floats
    has_ties: Flags

    @classmethod
    def of(
        cls, tally: Tally, judges: Sequence[Sequence[int]], dimensions: Sequence[int]
    ) -> "Design":
        """Return the design with an order term for these sets of judges and a tie term for these
        dimensions.
        """
        systems = len(tally.coded.systems)
        cells = np.arange(len(tally.i))
        rows = np.zeros((len(cells), 3, systems + len(judges) + len(dimensions)))
        rows[cells, WON, tally.i] = 0.5
        rows[cells, WON, tally.j] = -0.5
        for place, sharing in enumerate(judges, systems):
            rows[:, WON, place] = 0.5 * tally.order * np.isin(tally.judge, sharing)
        rows[:, LOST] = -rows[:, WON]
        for place, dimension in enumerate(dimensions, systems + len(judges)):
            rows[:, TIED, place] = tally.dimension == dimension
        return cls(rows, np.isin(tally.dimension, dimensions))

    def log_shares(self, parameters: Floats) -> Floats:
        """Return the logarithms of the chances of the outcomes, in shape (cells, 3)."""
        logs = self.rows @ parameters
        logs[~self.has_ties, TIED] = -np.inf
        return np.asarray(logs - logsumexp(logs, axis=1, keepdims=True), dtype=np.float64)


def fit(tally: Tally) -> tuple[Davidson, list[str]]:
    """Fit the model, and say what it has to do without.

    A dimension without ties has no ν, and one of ties alone says nothing of the systems. A judge
    has δ if its votes tell it: not if every vote of known order prefers the edit shown first, or
    the other. Judges of under `OWN_ORDER` such votes share one. Raises `UsageError` if no finite
    rating fits.
    """
    by_dimension = tally.by_dimension()
    only_ties = (by_dimension[:, TIED] > 0) & (by_dimension.sum(axis=1) == by_dimension[:, TIED])
    if only_ties.any():
        tally = _without_dimensions(tally, only_ties)
    check_connected(tally)
    dimensions = np.flatnonzero((by_dimension[:, TIED] > 0) & ~only_ties).tolist()
    sharing = sharing_order(tally)
    tally = _as_one_judge(tally, sharing)
    judges = _told(tally, sharing)
    design = Design.of(tally, judges, dimensions)
    notes = []
    if judges and _way_to_infinity(design, tally) is not None:
        notes.append("no order effect is fitted: with one, no finite rating fits so few votes")
        judges = []
        design = Design.of(tally, judges, dimensions)
    way = _way_to_infinity(design, tally)
    if way is not None:
        raise errors.UsageError(_why_infinite(tally.coded.systems, way))
    parameters = _maximum(design, tally)
    shares = np.exp(design.log_shares(parameters))
    centered = _centered(design.rows, shares)
    inverse = np.linalg.inv(_information(centered, shares, tally))
    fitted = Davidson(
        tally=tally,
        judges=tuple(judges),
        dimensions=tuple(dimensions),
        parameters=parameters,
        moves=centered @ inverse,
        shares=shares,
    )
    return fitted, notes


def _without_dimensions(tally: Tally, drop: Flags) -> Tally:
    """Leave out the votes of dimensions."""
    if drop[tally.dimension].all():
        raise errors.UsageError(
            "every vote is a tie, expected votes for either of two edits: nothing ranks the systems"
        )
    return Tally.of(tally.coded.only(~drop[tally.coded.dimension]))


def sharing_order(tally: Tally) -> list[tuple[int, ...]]:
    """Return sets of judges with votes of known order that can have an order term together."""
    votes = tally.by_order().sum(axis=1)
    sharing: list[tuple[int, ...]] = [(int(judge),) for judge in np.flatnonzero(votes >= OWN_ORDER)]
    few = np.flatnonzero((votes > 0) & (votes < OWN_ORDER)).tolist()
    return [*sharing, tuple(few)] if few else sharing


def is_one_way(by_order: Floats) -> bool:
    """Tell whether all votes of known order are for the edit shown first, or all for the other,
    from their counts by outcome.
    """
    votes = by_order.sum()
    return bool(votes > 0 and votes in (by_order[WON], by_order[LOST]))


def _as_one_judge(tally: Tally, sharing: Sequence[tuple[int, ...]]) -> Tally:
    """Count votes of judges that share an order term as those of the first of them, and all votes
    of unknown order as those of the first judge.
    """
    coded = tally.coded
    of_judge = np.arange(len(coded.judges))
    for judges in sharing:
        of_judge[list(judges)] = judges[0]
    judge = np.where(coded.order == 0, 0, of_judge[coded.judge])
    return Tally.of(replace(coded, judge=judge))


def _told(tally: Tally, sharing: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the sets of judges whose order term votes tell.

    Where the sums of θ and δ that votes are about leave a direction open, judges that it moves have
    none.
    """
    counts = tally.by_order()
    sharing = [judges for judges in sharing if not is_one_way(counts[judges[0]])]
    systems = len(tally.coded.systems)
    rows = Design.of(tally, sharing, []).rows[:, WON]
    values, vectors = np.linalg.eigh(rows.T @ rows)
    free = vectors[:, values < NONE * max(1.0, float(values.max()))]
    moved = (free[systems:] ** 2).sum(axis=1)
    return [judges for judges, move in zip(sharing, moved, strict=True) if move < NONE]


def _maximum(design: Design, tally: Tally) -> Floats:
    """Return the parameters of the largest likelihood, by Newton's method with step halving."""
    parameters = np.zeros(design.rows.shape[2])
    votes = float(tally.counts.sum())
    likelihood = _likelihood(design, tally, parameters)
    for _ in range(STEPS):
        shares = np.exp(design.log_shares(parameters))
        centered = _centered(design.rows, shares)
        gradient = np.einsum("co,cop->p", tally.counts, centered)
        if np.abs(gradient).max() <= GRADIENT * votes:
            return parameters
        step = np.linalg.solve(_information(centered, shares, tally), gradient)
        new = _likelihood(design, tally, parameters + step)
        # a last step may lose what rounding takes
        while new < likelihood - 1e-12 * abs(likelihood) and np.abs(step).max() > GRADIENT:
            step = step / 2
            new = _likelihood(design, tally, parameters + step)
        parameters = parameters + step
        if np.abs(step).max() <= GRADIENT:
            return parameters
        likelihood = new
    raise errors.UsageError(
        f"no rating fits after {STEPS} steps, expected about ten: add votes between the systems"
    )


def _likelihood(design: Design, tally: Tally, parameters: Floats) -> float:
    """Return the logarithm of the likelihood of all votes."""
    has_votes = tally.counts > 0
    logs = design.log_shares(parameters)
    return float((tally.counts[has_votes] * logs[has_votes]).sum())


def _centered(rows: Floats, shares: Floats) -> Floats:
    """Return the score of one vote of each cell and outcome: its row less the mean row."""
    return np.asarray(rows - np.einsum("co,cop->cp", shares, rows)[:, None], dtype=np.float64)


def _information(centered: Floats, shares: Floats, tally: Tally) -> Floats:
    """Return the information of all votes.

    θ may move by one number without an effect. Ones for all systems make the matrix invertible, and
    change no step, as no score moves the mean of θ.
    """
    weights = np.sqrt(tally.counts.sum(axis=1, keepdims=True) * shares)
    scaled = (centered * weights[:, :, None]).reshape(-1, centered.shape[2])
    information = scaled.T @ scaled
    systems = len(tally.coded.systems)
    information[:systems, :systems] += np.trace(information) / systems**2
    return np.asarray(information, dtype=np.float64)


def reach(beats: Flags) -> Flags:
    """Tell for every two systems whether a path of wins leads from the row to the column."""
    reached = beats | np.eye(len(beats), dtype=bool)
    while True:
        further = (reached.astype(np.float32) @ reached.astype(np.float32)) > 0
        if (further == reached).all():
            return reached
        reached = further


class OneSided(errors.UsageError):
    """Some `systems` `what`, won or lost, every vote against the rest."""

    def __init__(self, systems: Sequence[str], what: str) -> None:
        self.systems = systems
        self.what = what
        super().__init__(
            f"no finite rating fits: {first_of(systems)} {what} every vote against the rest: add "
            f"votes, or leave {'it' if len(systems) == 1 else 'them'} out"
        )


def check_connected(tally: Tally) -> None:
    """Raise `UsageError` if no finite θ fits: the systems fall into parts that no vote connects, or
    a part won or lost every vote against the rest (Ford, Am. Math. Monthly 64, 1957).
    """
    systems = tally.coded.systems
    beats = (tally.wins() > 0) | (tally.ties() > 0)
    parts = _classes(reach(beats | beats.T))
    if len(parts) > 1:
        named = " | ".join(first_of([systems[place] for place in part]) for part in parts[:5])
        others = f" | and {len(parts) - 5} more parts" if len(parts) > 5 else ""
        raise errors.UsageError(
            f"{len(parts)} parts that no vote connects: {named}{others}: add votes between them, "
            "or rate each part alone"
        )
    reached = reach(beats)
    ends = []
    for part in _classes(reached & reached.T):
        rest = np.ones(len(systems), dtype=bool)
        rest[part] = False
        if not reached[rest][:, part].any():
            ends.append((part, "won"))
        elif not reached[part][:, rest].any():
            ends.append((part, "lost"))
    if len(ends) > 1:
        part, what = min(ends, key=lambda end: len(end[0]))
        raise OneSided([systems[place] for place in part], what)


def _classes(alike: Flags) -> list[list[int]]:
    """Return the classes of systems that are alike, the largest first."""
    classes = []
    for row in np.unique(alike, axis=0):
        classes.append(np.flatnonzero(row).tolist())
    return sorted(classes, key=lambda members: (-len(members), members))


def _way_to_infinity(design: Design, tally: Tally) -> Floats | None:
    """Return a direction in which the likelihood never falls, `None` if the maximum is finite.

    In such a direction no vote's outcome loses weight against the others (Albert and Anderson,
    Biometrika 71, 1984). A cell that both systems won fixes its own sum of θ and δ, and with these
    sums all parameters may be fixed; only else a linear program tells.
    """
    if _is_fixed(design, tally):
        return None
    from scipy.optimize import linprog

    slopes = []
    for outcome in range(3):
        for other in range(3):
            if outcome != other:
                known = tally.counts[:, outcome] > 0
                if TIED in (outcome, other):
                    known = known & design.has_ties
                slopes.append(design.rows[known, outcome] - design.rows[known, other])
    rows = np.unique(np.concatenate(slopes), axis=0)
    found = linprog(
        -rows.sum(axis=0),
        A_ub=np.concatenate([-rows, rows]),
        b_ub=np.concatenate([np.zeros(len(rows)), np.ones(len(rows))]),
        bounds=(-1e6, 1e6),
    )
    if -found.fun < NONE:
        return None
    return np.asarray(found.x, dtype=np.float64)


def _is_fixed(design: Design, tally: Tally) -> bool:
    """Tell whether cells that both systems won fix all parameters."""
    both = (tally.counts[:, WON] > 0) & (tally.counts[:, LOST] > 0)
    with_ties = set(tally.dimension[design.has_ties].tolist())
    rows = design.rows[both, WON]
    used = np.abs(design.rows[:, WON]).sum(axis=0) > 0
    sums = rows[:, used]
    rank = np.linalg.matrix_rank(sums.T @ sums) if len(sums) else 0
    return rank == used.sum() - 1 and with_ties <= set(tally.dimension[both].tolist())


def _why_infinite(systems: Sequence[str], way: Floats) -> str:
    """Say which systems the likelihood drives from the others without end."""
    ratings = way[: len(systems)]
    middle = (ratings.max() + ratings.min()) / 2
    ahead = [name for name, rating in zip(systems, ratings, strict=True) if rating > middle]
    names = first_of(ahead)
    return (
        f"no finite rating fits: the votes and ties of {counted(len(ahead), 'system')} ({names}) "
        "against the rest leave no room for losses: add votes, or leave them out"
    )
