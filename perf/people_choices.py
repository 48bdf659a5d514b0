"""How often the intervals of `imgedit qualify --people` hold the truth, and how wide they are:
simulated sets of choices through the package's own statistics.

nice python perf/people_choices.py              # 300 sets a cell, on all cores
nice python perf/people_choices.py --choices 200

A judge of a planted accuracy chooses between two edits that three raters voted on. A choice is
right where a normal number is under the quantile of the accuracy; half of its variance is that of
the source, which several choices may share. Some choices are ties, which count half. Each rater
votes for the better edit with a chance of `RATER`, whatever the source.

The exit code is 1 if less than `LEAST_COVERAGE` of the intervals of a cell hold the accuracy, or
the raters' ceiling.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from multiprocessing import Pool

import numpy as np
from scipy.special import ndtri
from simulation import SHARED

from pytest_imgedit.core.choices import Vote
from pytest_imgedit.core.results import Share
from pytest_imgedit.report.terminal import render_table
from pytest_imgedit.stats.choices import AskedBy, JudgedChoice, describe_judge, describe_people

#: The seed of all random numbers, with which each cell begins.
SEED = 1
SETS = 300
LEAST_COVERAGE = 0.925
#: Choices, choices of one source, the share of right ones among those that are no ties, and the
#: share of ties. The last one is of the size of MMRB2.
CELLS = (
    (200, 1, 0.5, 0.0),
    (200, 1, 0.62, 0.3),
    (200, 1, 0.95, 0.0),
    (200, 4, 0.62, 0.0),
    (200, 4, 0.95, 0.3),
    (1_000, 1, 0.62, 0.0),
)
RATERS = 3
RATER = 0.8


@dataclass(frozen=True)
class Design:
    """So many choices, with so many of each source, and the planted accuracy and ties."""

    choices: int
    of_source: int
    right: float
    ties: float

    @property
    def accuracy(self) -> float:
        """The planted accuracy, a tie counting half."""
        return self.ties / 2 + (1 - self.ties) * self.right

    def draw(self, generator: np.random.Generator) -> list[JudgedChoice]:
        """Draw a set of choices."""
        source = np.arange(self.choices) // self.of_source
        common = generator.normal(size=source.max() + 1)[source]
        number = np.sqrt(SHARED) * common
        number += np.sqrt(1 - SHARED) * generator.normal(size=self.choices)
        is_right = number < ndtri(self.right)
        is_tie = generator.random(self.choices) < self.ties
        voted_right = generator.random((self.choices, RATERS)) < RATER
        choices = []
        for place in range(self.choices):
            votes = tuple(
                Vote("a" if right else "b", str(rater))
                for rater, right in enumerate(voted_right[place].tolist())
            )
            majority_is_a = voted_right[place].sum() * 2 > RATERS
            share = 0.5 if is_tie[place] else float(is_right[place] == majority_is_a)
            choice = JudgedChoice(
                id=f"c{place}",
                cluster=f"s{source[place]}",
                category="all",
                votes=votes,
                share=share,
            )
            choices.append(choice)
        return choices


def ceiling() -> float:
    """The chance that a vote is what both others chose, where these chose alike."""
    wrong = 1 - RATER
    return float((RATER**3 + wrong**3) / (RATER**2 + wrong**2))


@dataclass(frozen=True)
class Coverage:
    """Shares of sets whose intervals hold the truth, and the mean width of those of the
    accuracy.
    """

    accuracy: float
    ceiling: float
    width: float


def coverage(cell: tuple[Design, int]) -> tuple[Design, Coverage]:
    """Draw so many sets of a design, and look at their intervals."""
    design, sets = cell
    generator = np.random.default_rng(SEED)
    held = []
    ceilings = []
    widths = []
    for _ in range(sets):
        choices = design.draw(generator)
        judged = describe_judge(choices, AskedBy(way="scores"), alpha=0.05)
        overall = judged.accuracy["overall"]
        held.append(holds(overall, design.accuracy))
        ceilings.append(holds(describe_people(choices).ceiling, ceiling()))
        assert overall.ci95 is not None
        widths.append(overall.ci95[1] - overall.ci95[0])
    return design, Coverage(float(np.mean(held)), float(np.mean(ceilings)), float(np.mean(widths)))


def holds(share: Share, truth: float) -> bool:
    """Tell whether the interval of a share holds the truth."""
    assert share.ci95 is not None
    low, high = share.ci95
    return low <= truth <= high


def main() -> int:
    """Print a row a cell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--choices", type=int, help="cells of so many choices alone")
    options = parser.parse_args()
    designs = [Design(*cell) for cell in CELLS]
    cells = [
        (design, options.sets) for design in designs if options.choices in (None, design.choices)
    ]
    rows = []
    is_wrong = False
    with Pool() as pool:
        for design, found in pool.imap(coverage, cells):
            is_wrong |= min(found.accuracy, found.ceiling) < LEAST_COVERAGE
            rows.append(
                (
                    f"{design.choices:,}",
                    str(design.of_source),
                    f"{design.accuracy:.3f}",
                    f"{design.ties:.1f}",
                    f"{found.accuracy:.1%}",
                    f"{found.width:.3f}",
                    f"{found.ceiling:.1%}",
                )
            )
    header = ("choices", "of a source", "accuracy", "ties", "coverage", "width", "of the ceiling")
    print(render_table(header, rows))
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
