"""How often the intervals of boards hold the true ratings, and how wide they are: simulated votes
through the package's own statistics.

    nice python perf/boards.py                  # 300 boards a cell, two processes
    nice python perf/boards.py --prompts 30

Eight systems edit each of the prompts, and a judge votes on all pairs in both orders and in three
dimensions. The strength of a system in a prompt and a dimension is its θ and a normal effect of
standard deviation `SPREAD`, which all votes on it there share; effects of two dimensions have a
planted correlation. Outcomes follow Davidson's model given the effects.

The true ratings and preferences are those that the model fits to the expected shares of all cells:
effects make them smaller than planted. These shares are integrals over the difference of two
effects, by Gauss-Hermite quadrature, so no truth is simulated. Beside the mean width of the
intervals stands the width of the narrowest ones of one number of standard deviations that hold
together in 95% of the boards drawn.

Beside the share of boards that hold all true ratings stands the chance of so few or fewer if
`LEAST_COVERAGE` is the truth; the exit code is 1 if that is under `ALPHA` in a cell. The last line
is a chain of 16 systems, each of which wins 3 of 4 votes against the next: its ratings are known in
closed form.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from itertools import combinations
from multiprocessing import Pool

import numpy as np
from harness import finish, parser, table
from scipy.special import expit, softmax
from scipy.stats import binom

from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.stats.boards import ELO, Board, rate
from pytest_imgedit.stats.davidson import fit
from pytest_imgedit.stats.estimates import Floats
from pytest_imgedit.stats.vote_counts import Coded, Tally

#: The seed of all random numbers, with which each board begins, beside its cell and number.
SEED = 1
BOARDS = 300
PROMPTS = 200
LEAST_COVERAGE = 0.925
ALPHA = 0.05
THETAS = (0.9, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.9)
#: Correlation of the effects of two dimensions, and the chance to prefer the first of equals.
CELLS = ((0.0, 0.5), (0.0, 0.6), (0.9, 0.5), (0.9, 0.6))
SPREAD = 0.7
LOG_TIES = {"instruction": -1.0, "quality": 0.0, "consistency": -0.5}
WINNERS = ("a", "tie", "b")
CHAIN = 16


@dataclass(frozen=True)
class Design:
    """Boards of so many prompts, with the correlation of dimensions and the preference for the
    edit shown first.
    """

    prompts: int
    correlation: float
    first: float

    @property
    def delta(self) -> float:
        return math.log(self.first / (1 - self.first))

    def shares(self, gaps: Floats, sign: int, log_tie: float) -> Floats:
        """Chances of a win, a tie and a loss for gaps of strength, in a further last axis."""
        half = (gaps + sign * self.delta) / 2
        return np.asarray(softmax(np.stack([half, np.full_like(half, log_tie), -half], -1), -1))

    def truth(self) -> dict[str, Floats]:
        """The ratings that fit the expected shares, of all votes and of each dimension, and the
        chance to prefer the first of equals.
        """
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum()
        votes = []
        counts = []
        for i, j in combinations(range(len(THETAS)), 2):
            for first, sign in (("a", 1), ("b", -1)):
                for dimension, log_tie in LOG_TIES.items():
                    gaps = THETAS[i] - THETAS[j] + math.sqrt(2) * SPREAD * nodes
                    shares = weights @ self.shares(gaps, sign, log_tie)
                    for winner, share in zip(WINNERS, shares.tolist(), strict=True):
                        votes.append(
                            vote(i, j, first, dimension=dimension, winner=winner, pair="p")
                        )
                        counts.append(share)
        names = [vote.dimension for vote in votes]
        truth = {}
        for name in ("overall", *LOG_TIES):
            keep = [place for place, other in enumerate(names) if name in ("overall", other)]
            coded = Coded.of([votes[place] for place in keep])
            weighted = replace(coded, weight=np.array(counts)[keep])
            fitted, _ = fit(Tally.of(weighted))
            truth[name] = ELO * fitted.parameters[: len(THETAS)]
            if name == "overall":
                truth["first"] = expit(fitted.parameters[len(THETAS) : len(THETAS) + 1])
        return truth

    def draw(self, generator: np.random.Generator) -> list[DuelVote]:
        """Draw the votes of a board."""
        size = (self.prompts, len(THETAS))
        common = generator.normal(size=size)
        votes = []
        for dimension, log_tie in LOG_TIES.items():
            own = generator.normal(size=size)
            effects = math.sqrt(self.correlation) * common + math.sqrt(1 - self.correlation) * own
            strengths = np.array(THETAS) + SPREAD * effects
            for i, j in combinations(range(len(THETAS)), 2):
                for first, sign in (("a", 1), ("b", -1)):
                    shares = self.shares(strengths[:, i] - strengths[:, j], sign, log_tie)
                    number = generator.random((self.prompts, 1))
                    outcomes = (number > shares.cumsum(axis=1)[:, :2]).sum(axis=1)
                    for prompt, outcome in enumerate(outcomes.tolist()):
                        drawn = vote(
                            i,
                            j,
                            first,
                            dimension=dimension,
                            winner=WINNERS[outcome],
                            pair=f"p{prompt}",
                        )
                        votes.append(drawn)
        return votes


def vote(i: int, j: int, first: str, *, dimension: str, winner: str, pair: str) -> DuelVote:
    """A vote of the only judge on the systems `s` i and j."""
    return DuelVote(
        pair=pair,
        a=f"s{i}",
        b=f"s{j}",
        winner=winner,  # type: ignore[arg-type]
        first=first,  # type: ignore[arg-type]
        judge="judge",
        dimension=dimension,
    )


def intervals(task: tuple[Design, int, int]) -> dict[str, Floats]:
    """Ratings and their intervals of one board by column, in shape (systems, 3)."""
    design, cell, number = task
    board = rate(design.draw(np.random.default_rng([SEED, cell, number])))
    rows = sorted(board.rows, key=lambda row: row.system)
    columns = {"overall": [row.overall for row in rows]}
    for name in LOG_TIES:
        columns[name] = [row.dimensions[name] for row in rows]
    found = {}
    for name, column in columns.items():
        found[name] = np.array([(rating.elo, *(rating.ci95 or (np.nan,) * 2)) for rating in column])
    (chance,) = board.first.values()
    assert chance.ci95 is not None
    found["first"] = np.array([[chance.share, *chance.ci95]])
    return found


@dataclass(frozen=True)
class Coverage:
    """The share of boards that hold all truths, the mean bias, mean width, and the width needed."""

    held: float
    bias: float
    width: float
    needed: float


def coverage(found: Floats, truth: Floats) -> Coverage:
    """Compare intervals in shape (boards, systems, 3) with the true ratings."""
    ratings, low, high = np.moveaxis(found, -1, 0)
    held = ((low <= truth) & (truth <= high)).all(axis=1)
    spread = ratings.std(axis=0, ddof=1)
    largest = (np.abs(ratings - truth) / spread).max(axis=1)
    return Coverage(
        held=float(held.mean()),
        bias=float(np.abs(ratings.mean(axis=0) - truth).max()),
        width=float((high - low).mean()),
        needed=float(2 * np.quantile(largest, 0.95) * spread.mean()),
    )


def chance_of_less(held: float, boards: int) -> float:
    """Return the chance that so small a share of boards holds the truth, or less, if
    `LEAST_COVERAGE` do.
    """
    return float(binom.cdf(round(held * boards), boards, LEAST_COVERAGE))


def chain() -> float:
    """Largest error of the ratings of a chain, in Elo."""
    votes = []
    for place in range(CHAIN - 1):
        for number, winner in enumerate("aaab"):
            pair = f"p{number}"
            votes.append(vote(place, place + 1, "", dimension="score", winner=winner, pair=pair))
    board: Board = rate(votes)
    errors = []
    for row in board.rows:
        expected = ((CHAIN - 1) / 2 - int(row.system[1:])) * math.log(3) * ELO
        errors.append(abs(row.overall.elo - expected))
    return max(errors)


def main() -> int:
    """Print a row a cell and column."""
    described = parser(__doc__)
    described.add_argument("--boards", type=int, default=BOARDS)
    described.add_argument("--prompts", type=int, default=PROMPTS)
    described.add_argument("--processes", type=int, default=2)
    options = described.parse_args()
    boards = 3 if options.tiny else options.boards
    prompts = 10 if options.tiny else options.prompts
    designs = [Design(prompts, *cell) for cell in CELLS]
    rows = []
    figures: dict[str, object] = {}
    is_wrong = False
    with Pool(options.processes) as pool:
        for cell, design in enumerate(designs):
            tasks = [(design, cell, number) for number in range(boards)]
            found = pool.map(intervals, tasks, chunksize=1)
            for name, truth in design.truth().items():
                measured = coverage(np.stack([board[name] for board in found]), truth)
                p = chance_of_less(measured.held, boards)
                is_wrong |= name != "first" and p < ALPHA
                rows.append(
                    (
                        design.correlation,
                        design.first,
                        name,
                        f"{measured.held:.1%}",
                        f"{p:.2f}",
                        f"{measured.bias:.3f}",
                        f"{measured.width:.3f}",
                        f"{measured.needed:.3f}",
                    )
                )
                place = f"ρ {design.correlation}, first {design.first}, {name}"
                figures[place] = vars(measured)
    table(("ρ", "first", "column", "coverage", "p of less", "bias", "width", "needed"), rows)
    error = chain()
    print(f"chain of {CHAIN}: largest error {error:.1e} Elo")
    finish(options, {**figures, "chain": error, "boards": boards, "prompts": prompts})
    return int(is_wrong and not options.tiny)


if __name__ == "__main__":
    sys.exit(main())
