"""How often leaderboards are wrong: simulated systems through the package's own statistics.

nice python perf/leaderboards.py                      # 1,000 leaderboards a cell, on all cores
nice python perf/leaderboards.py --runs 200 --only tens
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri
from simulation import GRID, Floats, Layout, tens

from pytest_imgedit.stats.ranking import Leaderboard, RankedMean, SystemScores, rank

#: What is taken from the latent numbers of each system, in standard deviations: some are alike,
#: others near or far.
SHIFTS = np.array([0.0, 0.0, 0.0, 0.1, 0.1, 0.2, 0.4, 0.8])
#: Shares of the variance of a score that all systems share by source, that each has by source, and
#: that remains.
SOURCE, SYSTEM_SOURCE, RESIDUAL = 0.4, 0.15, 0.45
#: What is taken from the latent numbers of each of five categories.
CATEGORIES = np.array([-0.5, -0.2, 0.0, 0.2, 0.5])


def normal(u: Floats) -> Floats:
    """Scores about 6 with a standard deviation of 2, without ends."""
    scores: Floats = 6 + 2 * ndtri(u)
    return scores


@dataclass(frozen=True)
class Design:
    """A number of sources with 4 pairs each, and what their scores are like.

    `crosses` gives the pairs of a source different categories; otherwise each source has one.
    `spread` scales the true differences between systems: 0 makes all alike.
    """

    sources: int
    categories: int = 1
    is_bounded: bool = False
    crosses: bool = False
    spread: float = 1.0

    @property
    def layout(self) -> Layout:
        pairs = [(source, edit) for source in range(self.sources) for edit in range(4)]
        categories = [(source + edit * self.crosses) % self.categories for source, edit in pairs]
        return Layout([f"c{k}" for k in categories], [f"s{source}" for source, _ in pairs])

    def grade(self, latent: Floats) -> Floats:
        u = np.clip(ndtr(latent), 1e-15, 1 - 1e-15)
        return tens(u) if self.is_bounded else normal(u)

    @property
    def shifts(self) -> Floats:
        """What is taken from the latent numbers, (systems, categories)."""
        of_categories = CATEGORIES if self.categories > 1 else np.zeros(1)
        return self.spread * SHIFTS[:, None] + of_categories

    def truths(self) -> Floats:
        """True means, (systems, categories)."""
        return np.asarray(self.grade(ndtri(GRID) - self.shifts[:, :, None]).mean(axis=2))

    def draw(self, generator: np.random.Generator) -> SystemScores:
        layout, systems = self.layout, len(SHIFTS)
        source = np.repeat(np.arange(self.sources), 4)
        category = np.array([int(name[1:]) for name in layout.categories])
        latent = (
            np.sqrt(SOURCE) * generator.normal(size=self.sources)[source]
            + np.sqrt(SYSTEM_SOURCE) * generator.normal(size=(systems, self.sources))[:, source]
            + np.sqrt(RESIDUAL) * generator.normal(size=(systems, len(source)))
        )
        return SystemScores(
            [str(system) for system in range(systems)],
            self.grade(latent - self.shifts[:, category]),
            layout.categories,
            layout.sources,
        )


DESIGNS = {
    "normal, 50 sources": Design(50),
    "normal, 20 sources": Design(20),
    "all alike, 50 sources": Design(50, spread=0.0),
    "all alike, 20 sources": Design(20, spread=0.0),
    "all alike, tens, 50 sources": Design(50, is_bounded=True, spread=0.0),
    "tens, 50 sources": Design(50, is_bounded=True),
    "tens, 20 sources": Design(20, is_bounded=True),
    "5 categories, 50 sources": Design(50, categories=5),
    "5 categories, 20 sources": Design(20, categories=5),
    "5 categories, tens, 50 sources": Design(50, categories=5, is_bounded=True),
    "5 categories, crossed by 50 sources": Design(50, categories=5, crosses=True),
}


def holds(means: dict[str, RankedMean], truths: dict[str, float]) -> bool:
    """Tell whether all intervals hold the true means."""
    intervals = ((mean.ci95, truths[system]) for system, mean in means.items())
    return all(ci is not None and ci[0] <= truth <= ci[1] for ci, truth in intervals)


def width(means: dict[str, RankedMean]) -> float:
    return float(np.mean([ci[1] - ci[0] for ci in (mean.ci95 for mean in means.values()) if ci]))


def measure(board: Leaderboard, truths: Floats) -> dict[str, float]:
    """What is right and wrong in one leaderboard; the reference is system 0.

    A rank interval is right if it holds all ranks of the system that true ties leave open.
    """
    macro = truths.mean(axis=1)
    overall = {row.system: row.overall for row in board.rows}
    ranks_held, widths, claims, wrong_claims = True, [], 0, 0
    for row in board.rows:
        truth = macro[int(row.system)]
        first, last = 1 + int((macro > truth).sum()), len(macro) - int((macro < truth).sum())
        low, high = row.rank_interval
        ranks_held = ranks_held and low <= first and last <= high
        widths.append(high - low)
        if row.difference is not None and row.difference.p <= 0.05:
            claims += 1
            wrong_claims += row.difference.mean * (truth - macro[0]) <= 0
    figures: dict[str, float] = {
        "all overall means are held": holds(overall, by_system(macro)),
        "width of an overall interval": width(overall),
        "all ranks are held": ranks_held,
        "width of a rank interval": float(np.mean(widths)),
        "any Holm claim is wrong": wrong_claims > 0,
        "Holm claims": claims,
    }
    categories = range(truths.shape[1])
    if len(categories) > 1:
        figures["all means of a category are held"] = float(
            np.mean([category_holds(board, category, truths) for category in categories])
        )
    return figures


def category_holds(board: Leaderboard, category: int, truths: Floats) -> bool:
    means = {row.system: row.categories[f"c{category}"] for row in board.rows}
    return holds(means, by_system(truths[:, category]))


def by_system(values: Floats) -> dict[str, float]:
    return {str(system): value for system, value in enumerate(values.tolist())}


def simulate(job: tuple[str, int, int]) -> tuple[str, list[dict[str, float]]]:
    """Rank so many leaderboards of a design, from a seed."""
    name, runs, seed = job
    design, generator = DESIGNS[name], np.random.default_rng(seed)
    truths = design.truths()
    scale = (0.0, 10.0) if design.is_bounded else None
    boards = (rank(design.draw(generator), scale=scale, reference="0") for _ in range(runs))
    return name, [measure(board, truths) for board in boards]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000, help="leaderboards of each design")
    parser.add_argument("--only", default="", help="part of the name of the designs")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    blocks = range(0, options.runs, 100)
    jobs = [
        (name, min(100, options.runs - start), 1 + start)
        for name in DESIGNS
        if options.only in name
        for start in blocks
    ]
    figures: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    with Pool() as pool:
        for name, measured in pool.imap(simulate, jobs):
            figures[name] += measured
            if len(figures[name]) == options.runs:
                print(f"{name}: {options.runs} leaderboards", flush=True)
                for measure_name, mean in averaged(figures[name]).items():
                    print(f"  {mean:8.3f}  {measure_name}", flush=True)
    if options.json:
        means = {name: averaged(rows) for name, rows in figures.items()}
        options.json.write_text(json.dumps(means, indent=1))


def averaged(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


if __name__ == "__main__":
    main()
