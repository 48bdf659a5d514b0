"""How often the gate on duels is wrong, what it finds beside the gate on scores, and which judges
the trial by duels lets pass: simulated runs through the package's own statistics.

nice python perf/duel_gate.py                         # 1,000 runs a cell, on all cores
nice python perf/duel_gate.py --runs 200 --only power

One judge is simulated. An edit's quality is a normal number with a standard deviation of 1, of
which `DIFFICULTY` of the variance is that of its pair, which both editors share, and the rest is
the edit's own; half of that rest is common to the edits of one source. At every look the judge errs
by a normal number of variance `ERROR`. Asked for a grade, it rounds what it sees to 0 to 10; asked
which of two edits is better, it compares what it sees, leans toward the first, and calls near ones
equal.

The exit code is 1 if the gate on duels fails in more than `MOST_ALARMS` of the runs of a cell in
which both editors are equal.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import product
from multiprocessing import Pool
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from simulation import DIFFICULTY, SHARED, Floats, middle

from pytest_imgedit.core.results import DuelPair, DuelSeed, GateOptions, Vote
from pytest_imgedit.stats import estimates, planning
from pytest_imgedit.stats.duels import DuelTrial, controls_gate, describe_controls, observe_wins
from pytest_imgedit.stats.gate_rules import max_drop, min_win
from pytest_imgedit.stats.gate_values import Observation

#: The seed of all random numbers, with which each cell begins.
SEED = 1
#: Variance of what the judge errs by at a look.
ERROR = 0.3
#: Share of false alarms over which a cell fails, at an α of 5%: two standard errors of the share of
#: 1,000 runs more.
MOST_ALARMS = 0.064
SIZES = (100, 270)
LEANINGS = (0.5, 0.6, 0.7)
TIES = (0.0, 0.2)
EDITS = (1, 4)
#: By how much the quality of all edits falls, in standard deviations.
SHIFTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
#: By how much another stack moves what a judge sees in every edit when it grades.
DRIFT = 0.2
DUELS = GateOptions(duel=True, min_win={"overall": 0.5})
GRADES = GateOptions(max_drop={"overall": 0.0})
#: Share of votes that a judge gives to the right edit, and pairs of its trial.
RIGHT = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
TRIED = 20
#: Controls that right edits are to win against in a run.
CONTROLS = ("identity", "shuffled", "blend")


@dataclass(frozen=True)
class Item:
    """A pair of a run, with what `observe_wins` reads of it."""

    id: str
    cluster: str
    category: str = "all"
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    score: float | None = None
    missing: tuple[str, ...] = ()

    def value(self, measure: str) -> float | None:
        return self.score


@dataclass(frozen=True)
class Design:
    """So many pairs, with so many edits of each source, and the judge's habits: the share of votes
    for the first of two equal edits among those that are no ties, and the share of ties.
    """

    pairs: int
    edits: int = 1
    leaning: float = 0.5
    ties: float = 0.0

    @property
    def items(self) -> list[Item]:
        return [Item(f"p{place}", f"s{place // self.edits}") for place in range(self.pairs)]

    @property
    def habits(self) -> tuple[float, float]:
        """How much better the first edit seems, and the difference under which two are equal."""
        spread = np.sqrt(2 * (1 - DIFFICULTY + ERROR))
        first = ndtri(self.leaning * (1 - self.ties))
        second = ndtri((1 - self.leaning) * (1 - self.ties))
        return float(spread * (first - second) / 2), float(-spread * (first + second) / 2)


class Edits:
    """The edits of two editors of equal quality but for a shift, as a judge sees them."""

    def __init__(self, design: Design, generator: np.random.Generator, shift: float = 0.0) -> None:
        self.design = design
        self.generator = generator
        self.source = np.arange(design.pairs) // design.edits
        difficulty = np.sqrt(DIFFICULTY) * generator.normal(size=design.pairs)
        self.before = difficulty + self._own()
        self.now = difficulty + self._own() - shift

    def _own(self) -> Floats:
        common = self.generator.normal(size=self.source.max() + 1)[self.source]
        own = self.generator.normal(size=len(self.source))
        mixed: Floats = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own
        mixed *= np.sqrt(1 - DIFFICULTY)
        return mixed

    def seen(self, quality: Floats) -> Floats:
        """What the judge sees at one look."""
        seen: Floats = quality + np.sqrt(ERROR) * self.generator.normal(size=len(quality))
        return seen

    def votes(self, first: Literal["now", "before"]) -> Floats:
        """The share of this run's edit in each pair, in one order."""
        leaning, near = self.design.habits
        difference = self.seen(self.now) - self.seen(self.before)
        difference += leaning if first == "now" else -leaning
        return np.where(np.abs(difference) < near, 0.5, np.where(difference > 0, 1.0, 0.0))

    def duels(self) -> dict[str, DuelPair]:
        duels = {}
        orders = zip(self.votes("now").tolist(), self.votes("before").tolist(), strict=True)
        for place, (now_first, before_first) in enumerate(orders):
            votes = (
                Vote(first="now", values={"score": now_first}),
                Vote(first="before", values={"score": before_first}),
            )
            seed = DuelSeed(seed=0, before="0" * 64, now="1" * 64, votes=votes)
            duels[f"p{place}"] = DuelPair(seeds=(seed,))
        return duels

    def grades(self, drift: float = 0.0) -> list[Observation]:
        """The difference of both grades of each pair; `drift` moves what is seen of this run's."""
        spread = np.sqrt(1 + ERROR)
        before = middle(ndtr(self.seen(self.before) / spread))
        now = middle(ndtr((self.seen(self.now) + drift) / spread))
        return [
            Observation(item.category, item.cluster, difference, -10.0, 10.0)
            for item, difference in zip(self.design.items, (now - before).tolist(), strict=True)
        ]


class States(NamedTuple):
    """Shares of runs in which a gate is in a state."""

    failed: float
    passed: float
    open: float

    @classmethod
    def of(cls, states: list[str]) -> States:
        kinds = ("FAIL", "PASS", "INCONCLUSIVE")
        return cls(*(states.count(kind) / len(states) for kind in kinds))


def generator_of(*cell: float) -> np.random.Generator:
    """The random numbers of a cell, which do not depend on the others."""
    return np.random.default_rng([SEED, *(round(1000 * number) for number in cell)])


def by_duels(edits: Edits) -> str:
    wins = observe_wins(edits.duels(), edits.design.items, "score")
    (gate,) = min_win(DUELS, {"score": wins}, "main")
    return gate.state


def by_grades(edits: Edits, drift: float) -> str:
    (gate,) = max_drop(GRADES, {"score": edits.grades(drift)}, "main")
    return gate.state


def alarms(task: tuple[Design, int]) -> tuple[Design, States]:
    """Runs of two equal editors by `min_win overall:0.5`."""
    design, runs = task
    generator = generator_of(design.pairs, design.edits, design.leaning, design.ties)
    return design, States.of([by_duels(Edits(design, generator)) for _ in range(runs)])


def power(task: tuple[tuple[int, float], int]) -> tuple[tuple[int, float], list[float]]:
    """Shares of runs that fail if quality fell by a shift: by duels, by grades, and by grades of
    another stack, which is milder or harsher.
    """
    (pairs, shift), runs = task
    generator = generator_of(pairs, shift)
    design = Design(pairs, leaning=0.6)
    failed = np.zeros(4)
    for _ in range(runs):
        edits = Edits(design, generator, shift)
        states = [by_duels(edits)] + [by_grades(edits, drift) for drift in (0.0, DRIFT, -DRIFT)]
        failed += [state == "FAIL" for state in states]
    return (pairs, shift), (failed / runs).tolist()


def trials(task: tuple[float, int]) -> tuple[float, dict[str, float]]:
    """Shares of trials of 20 pairs that a judge passes who is right in a share of votes, by control
    and in all.
    """
    right, runs = task
    generator = generator_of(right)
    counts = dict.fromkeys(("identity", "blend", "all"), 0.0)
    for _ in range(runs):
        tried = []
        for control in CONTROLS:
            votes = generator.random((TRIED, 2)) < right
            tried += [
                DuelTrial(control=control, better="oracle", pair=f"p{n}", cluster=f"s{n}", win=win)
                for n, win in enumerate(votes.mean(axis=1).tolist())
            ]
        rows = describe_controls(tried, 0.05)
        for row in rows:
            if row.control in counts:
                counts[row.control] += row.state == "PASS"
        counts["all"] += controls_gate(rows).state == "PASS"
    return right, {name: count / runs for name, count in counts.items()}


def print_alarms(cells: dict[Design, States], runs: int) -> bool:
    """Print the table of false alarms; return whether a cell has too many."""
    print(f"\nmin_win overall:0.5, equal editors, {runs} runs a cell, seed {SEED}\n")
    print(f"| pairs | edits a source | {_heads()} |\n|---|---|{'---|' * 6}")
    for pairs, edits in product(SIZES, EDITS):
        cells_of_row = [
            cells[Design(pairs, edits, leaning, ties)] for leaning, ties in product(LEANINGS, TIES)
        ]
        texts = [f"{cell.failed:.1%}" for cell in cells_of_row]
        print(f"| {pairs} | {edits} | {' | '.join(texts)} |")
    for pairs in SIZES:
        of_size = [cell for design, cell in cells.items() if design.pairs == pairs]
        print(
            f"{pairs} pairs: {_range([cell.passed for cell in of_size])} pass, "
            f"{_range([cell.open for cell in of_size])} are inconclusive"
        )
    most = max(cells.values(), key=lambda cell: cell.failed)
    print(f"at most {most.failed:.1%} false alarms, {MOST_ALARMS:.1%} allowed")
    return most.failed > MOST_ALARMS


def _heads() -> str:
    return " | ".join(
        f"first {leaning:g}, ties {ties:g}" for leaning, ties in product(LEANINGS, TIES)
    )


def _range(shares: list[float]) -> str:
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f}%"


def print_power(cells: dict[tuple[int, float], list[float]], runs: int) -> None:
    print(f"\nshare of runs that fail, one judge, {runs} runs a cell, seed {SEED}\n")
    heads = [
        f"{pairs} pairs: {name}"
        for pairs in SIZES
        for name in ("duels", "grades", f"grades +{DRIFT:g}", f"grades -{DRIFT:g}")
    ]
    print(f"| shift | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for shift in SHIFTS:
        shares = [share for pairs in SIZES for share in cells[pairs, shift]]
        print(f"| {shift:g} | {' | '.join(f'{share:.1%}' for share in shares)} |")


def print_trials(cells: dict[float, dict[str, float]], runs: int) -> None:
    print(f"\ntrials of {TRIED} pairs that pass, {runs} trials a cell, seed {SEED}\n")
    names = list(next(iter(cells.values())))
    print(f"| right votes | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for right, shares in cells.items():
        print(f"| {right:g} | {' | '.join(f'{share:.1%}' for share in shares.values())} |")


def _start() -> None:
    """Begin a process: what open gates need is not asked here, and the sign flips of all pairs are
    drawn once.
    """
    vars(planning)["pairs_needed"] = lambda *_: None
    vars(estimates)["KEPT_SIGNS"] = max(SIZES)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--only", choices=("alarms", "power", "controls"), action="append")
    given = parser.parse_args()
    runs: int = given.runs
    designs = [Design(*cell) for cell in product(SIZES, EDITS, LEANINGS, TIES)]
    shifts = list(product(SIZES, SHIFTS))
    only = given.only or ("alarms", "power", "controls")
    is_over = False
    with Pool(initializer=_start) as pool:
        if "alarms" in only:
            tasks = [(design, runs) for design in designs]
            is_over = print_alarms(dict(pool.imap(alarms, tasks, chunksize=1)), runs)
        if "power" in only:
            cells = [(cell, runs) for cell in shifts]
            print_power(dict(pool.imap(power, cells, chunksize=1)), runs)
        if "controls" in only:
            judges = [(right, runs) for right in RIGHT]
            print_trials(dict(pool.imap(trials, judges, chunksize=1)), runs)
    sys.exit(int(is_over))


if __name__ == "__main__":
    main()
