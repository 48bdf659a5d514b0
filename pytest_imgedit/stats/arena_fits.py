"""Ratings as published arenas compute them, to compare with their boards.

They differ from `boards.rate`: GenArena stops after a number of rounds and centres on the mean of
strengths, GEdit v2 draws ratings to that of the last name, and neither knows the order of edits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.stats.boards import ELO
from pytest_imgedit.stats.estimates import Floats
from pytest_imgedit.stats.vote_counts import LOST, TIED, WON

#: The rating of an average system.
MIDDLE = 1000.0
#: Rounds of GenArena's fit, and the change of a share of strength at which it stops before.
ROUNDS = 100
TOLERANCE = 1e-6
#: Weight of ½θ² in GEdit v2's fit, and the limits of its log ν.
RIDGE = 1.0
LOG_TIES = (-12.0, 8.0)


def genarena(votes: Sequence[DuelVote]) -> dict[str, float]:
    """Return the ratings of GenArena (`genarena/bt_elo.py`), by system.

    Minorization-maximization of the Bradley-Terry model (Hunter, Ann. Stat. 32, 2004) in which a
    win counts 2 and a tie 1 for each system; the rating is 1000 + 400·log10(p / mean p) for
    strengths p, and 1000 for a system that wins nothing. Orders, dimensions and judges do not
    count.
    """
    systems = _systems(votes)
    if len(systems) == 1:
        return {systems[0]: MIDDLE}
    points = np.zeros((len(systems), len(systems)))
    number = {name: place for place, name in enumerate(systems)}
    for vote in votes:
        points[number[vote.a], number[vote.b]] += {"a": 2, "tie": 1, "b": 0}[vote.winner]
        points[number[vote.b], number[vote.a]] += {"a": 0, "tie": 1, "b": 2}[vote.winner]
    strengths = np.full(len(systems), 1 / len(systems))
    votes_of_two = points + points.T
    for _ in range(ROUNDS):
        sums = np.where(votes_of_two > 0, strengths[:, None] + strengths, 1.0)
        new = points.sum(axis=1) / (votes_of_two / sums).sum(axis=1)
        new = new / new.sum()
        change = float(np.abs(new - strengths).max())
        strengths = new
        if change <= TOLERANCE:
            break
    ratings = np.full(len(systems), MIDDLE)
    has_won = strengths > 0
    ratings[has_won] += 400 * np.log10(strengths[has_won] / strengths.mean())
    return dict(zip(systems, ratings.tolist(), strict=True))


@dataclass(frozen=True)
class _Counts:
    """Votes of one dimension on systems a and b, in this order, by outcome: (cells, 3)."""

    a: NDArray[np.intp]
    b: NDArray[np.intp]
    counts: Floats

    @classmethod
    def of(cls, votes: Sequence[DuelVote], systems: Sequence[str]) -> "_Counts":
        number = {name: place for place, name in enumerate(systems)}
        found: dict[tuple[int, int], list[int]] = {}
        for vote in votes:
            counts = found.setdefault((number[vote.a], number[vote.b]), [0, 0, 0])
            counts[{"a": WON, "tie": TIED, "b": LOST}[vote.winner]] += 1
        a, b = np.array(list(found)).T
        return cls(a, b, np.array(list(found.values()), dtype=np.float64))


def gedit_v2(votes: Sequence[DuelVote]) -> dict[str, float]:
    """Return the ratings of GEdit-Bench v2 (`src/common_utils/elo_score.py`), by system.

    Davidson's model with one θ for all dimensions and a ν for each, whose votes weigh alike in sum:
    mean count / own count. Half the sum of θ² is added to the loss, and the last name in order has
    θ = 0, so that ratings are drawn to its. L-BFGS-B stops where scipy's defaults let it. The
    rating is 1000 + 400/ln 10·(θ − mean θ). Orders and judges do not count.
    """
    from scipy.optimize import minimize

    systems = _systems(votes)
    dimensions = []
    for name in dict.fromkeys(vote.dimension for vote in votes):
        of_dimension = [vote for vote in votes if vote.dimension == name]
        dimensions.append(_Counts.of(of_dimension, systems))
    totals = np.array([dimension.counts.sum() for dimension in dimensions])
    weights = totals.mean() / totals
    free = len(systems) - 1

    def loss(parameters: Floats) -> tuple[float, Floats]:
        theta = np.append(parameters[:free], 0.0)
        value = RIDGE / 2 * float(theta @ theta)
        slopes = RIDGE * theta
        tie_slopes = np.zeros(len(dimensions))
        for place, dimension in enumerate(dimensions):
            of_votes, slope = _loss(dimension, theta, log_tie=parameters[free + place])
            value += weights[place] * of_votes
            slope = weights[place] * slope
            np.add.at(slopes, dimension.a, slope[:, WON] + slope[:, TIED] / 2)
            np.add.at(slopes, dimension.b, slope[:, LOST] + slope[:, TIED] / 2)
            tie_slopes[place] = slope[:, TIED].sum()
        return value, np.append(slopes[:free], tie_slopes)

    shares = [dimension.counts[:, TIED].sum() / dimension.counts.sum() for dimension in dimensions]
    clipped = np.clip(shares, 1e-6, 1 - 1e-6)
    starts = np.clip(np.log(clipped / (1 - clipped)), LOG_TIES[0], LOG_TIES[1])
    found = minimize(
        loss,
        np.append(np.zeros(free), starts),
        method="L-BFGS-B",
        jac=True,
        bounds=[(None, None)] * free + [LOG_TIES] * len(dimensions),
    )
    theta = np.append(found.x[:free], 0.0)
    ratings = MIDDLE + ELO * (theta - theta.mean())
    return dict(zip(systems, ratings.tolist(), strict=True))


def _loss(dimension: _Counts, theta: Floats, log_tie: float) -> tuple[float, Floats]:
    """Return minus the log-likelihood of a dimension's votes, and its slopes by the logarithms of
    the outcomes' weights, in shape (cells, 3). A tie weighs 2ν·exp((θ_a + θ_b)/2).
    """
    of_a = theta[dimension.a]
    of_b = theta[dimension.b]
    of_tie = log_tie + (of_a + of_b) / 2 + np.log(2)
    logs = np.stack([of_a, of_tie, of_b], axis=1)
    logs = logs - logsumexp(logs, axis=1, keepdims=True)
    expected = dimension.counts.sum(axis=1, keepdims=True) * np.exp(logs)
    return -float((dimension.counts * logs).sum()), expected - dimension.counts


def _systems(votes: Sequence[DuelVote]) -> list[str]:
    return sorted({vote.a for vote in votes} | {vote.b for vote in votes})
