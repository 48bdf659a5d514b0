"""How often gates are wrong: simulated runs through the package's own statistics.

    python perf/gates.py                       # 2,000 runs a cell, on all cores
    python perf/gates.py --runs 200 --only strict

A score is a quantile function (`FAMILIES`) of a normal number that a pair's difficulty and the noise of one edit share
7 : 3. Pairs of one source also share their difficulty (correlation 0.5). The layouts name the pairs of each category.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing import Pool
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pytest_imgedit.config import GatesSettings
from pytest_imgedit.stats import gates
from pytest_imgedit.stats.collapse import Move, max_collapsed
from pytest_imgedit.stats.estimates import estimate
from pytest_imgedit.stats.gates import GateResult, Observation, fail_under, max_drop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Floats = NDArray[np.float64]
#: Share of a pair's difficulty in the variance of its score, and correlation of pairs of one source.
DIFFICULTY, SHARED = 0.7, 0.5
ALPHA = 0.05
GRID = (np.arange(100_000) + 0.5) / 100_000


def middle(u: Floats) -> Floats:
    """Most whole scores between 3 and 9."""
    return np.clip(np.round(6 + 2.16 * ndtri(u)), 0, 10)


def tens(u: Floats) -> Floats:
    """90% get a full 10, the others 0 to 9 alike."""
    return np.where(u >= 0.1, 10.0, np.floor(u * 100))


def zeros(u: Floats) -> Floats:
    """3% get 0, the others about 9."""
    return np.where(u < 0.03, 0.0, np.clip(9 + 0.3 * ndtri(np.clip((u - 0.03) / 0.97, 1e-9, 1 - 1e-9)), 0, 10))


def bimodal(u: Floats) -> Floats:
    """40% get 0 to 2, the others 8 to 10."""
    return np.where(u < 0.4, np.floor(u * 7.5), 8 + np.floor((u - 0.4) * 4.9999))


def root(u: Floats) -> Floats:
    """√(a·b) of two whole grades about 7, as the rubric with aspects gives them."""
    return _ROOTS[np.minimum((u * len(_ROOTS)).astype(int), len(_ROOTS) - 1)]


_PAIR = np.random.default_rng(7).multivariate_normal([7, 7], [[5, 2.5], [2.5, 5]], 100_000)
_ROOTS = np.sort(np.sqrt(np.clip(np.round(_PAIR), 0, 10).prod(axis=1)))
FAMILIES: dict[str, Callable[[Floats], Floats]] = {f.__name__: f for f in (middle, tens, zeros, bimodal, root)}


@dataclass(frozen=True)
class Layout:
    """Categories and sources of the pairs, in order."""

    categories: list[str]
    sources: list[str]

    @classmethod
    def alone(cls, *counts: int) -> Layout:
        """Categories of so many pairs, each with a source of its own."""
        pairs = [(f"c{place}", number) for place, count in enumerate(counts) for number in range(count)]
        return cls([name for name, _ in pairs], [f"{name}-{number}" for name, number in pairs])

    @classmethod
    def clustered(cls, *sizes: int) -> Layout:
        """One category, sources of so many pairs."""
        return cls(["c0"] * sum(sizes), [f"s{place}" for place, size in enumerate(sizes) for _ in range(size)])


LAYOUTS = {
    "5×10": Layout.alone(*[10] * 5),
    "11×20": Layout.alone(*[20] * 11),
    "50/50/70/50/50": Layout.alone(50, 50, 70, 50, 50),
    "5/8/120/85/30": Layout.alone(5, 8, 120, 85, 30),
    "5×30, 3 a source": Layout([f"c{k}" for k in range(5) for _ in range(30)], [f"{n // 3}" for n in range(150)]),
    "5×30, half on one": Layout(
        [f"c{k}" for k in range(5) for _ in range(30)], ["all" if n % 2 else f"{n}" for n in range(150)]
    ),
    "sources 20, 9×1": Layout.clustered(20, *[1] * 9),
    "sources 30, 19×2": Layout.clustered(30, *[2] * 19),
    "sources 4×10, 16×1": Layout.clustered(*[10] * 4, *[1] * 16),
}
SIZES = {f"{n} pairs": Layout.alone(n) for n in (10, 20, 50, 100)}
#: Columns of the table in docs/gates.md, each a range over its layouts and all families.
COLUMNS = {
    "one category of 10 to 100": [*SIZES],
    "5×10": ["5×10"],
    "11×20": ["11×20"],
    "270, even": ["50/50/70/50/50"],
    "248, uneven": ["5/8/120/85/30"],
    "3 pairs a source": ["5×30, 3 a source"],
    "one dominant source": ["5×30, half on one", "sources 20, 9×1", "sources 30, 19×2", "sources 4×10, 16×1"],
}
Table = dict[str, dict[str, float]]  # shares by layout and family


class Cell:
    """One layout with one family of scores."""

    def __init__(self, layout: Layout, family: str, seed: int = 1) -> None:
        self.layout, self.grade = layout, FAMILIES[family]
        self.generator = np.random.default_rng(seed)
        _, self.cluster = np.unique(layout.sources, return_inverse=True)
        self.is_shared = np.bincount(self.cluster)[self.cluster] > 1
        self.truth = float(self.grade(GRID).mean())

    def difficulties(self) -> Floats:
        size = len(self.cluster)
        common = self.generator.normal(size=size)[self.cluster]
        own = self.generator.normal(size=size)
        return np.where(self.is_shared, np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own, own)

    def scores(self, difficulties: Floats, shift: float = 0.0) -> Floats:
        noise = self.generator.normal(size=len(difficulties))
        latent = np.sqrt(DIFFICULTY) * difficulties + np.sqrt(1 - DIFFICULTY) * noise
        return np.clip(self.grade(ndtr(latent - shift)), 0, 10)

    def shift_for(self, drop: float) -> float:
        """Find what must be taken from the latent number so that the mean score falls by `drop`."""
        latent, grid = ndtri(GRID), np.linspace(0, 8, 161)
        falls = [self.truth - float(self.grade(np.clip(ndtr(latent - shift), 1e-12, 1)).mean()) for shift in grid]
        return float(np.interp(drop, falls, grid))

    def observe(self, values: Floats, lowest: float = 0.0) -> list[Observation]:
        rows = zip(self.layout.categories, self.layout.sources, values.tolist(), strict=True)
        return [Observation(category, source, value, lowest) for category, source, value in rows]

    def mean_gates(self, before: Floats, now: Floats, settings: GatesSettings) -> list[GateResult]:
        """The gates on the mean drop; the arrays are (seeds, pairs)."""
        return max_drop(settings, self.observe((now - before).mean(axis=0), -10.0), "main")

    def tail_gate(self, before: Floats, now: Floats) -> GateResult:
        """The gate on the tail with its defaults; the arrays are (seeds, pairs)."""
        means = zip(before.mean(axis=0).tolist(), now.mean(axis=0).tolist(), strict=True)
        rows = zip(self.layout.sources, means, (now - before).T.tolist(), strict=True)
        moves = [Move(str(n), source, *mean, tuple(moved), False) for n, (source, mean, moved) in enumerate(rows)]
        return max_collapsed(GatesSettings(), moves, "main")[0]


def settings(kind: str, cell: Cell, **keys: bool) -> GatesSettings:
    limit = {"fail_under": cell.truth, "max_drop": 0.0}[kind]
    return GatesSettings.model_validate({kind: {"overall": limit}, **keys})


def at_the_limit(cell: Cell) -> Iterator[tuple[str, bool]]:
    """One run of a gate whose limit is the true mean."""
    seen = cell.observe(cell.scores(cell.difficulties()))
    (usual,) = fail_under(settings("fail_under", cell), seen)
    (strict,) = fail_under(settings("fail_under", cell, strict=True), seen)
    yield "fail_under fails at the limit", usual.state == "FAIL"
    yield "fail_under passes at the limit with gates.strict", strict.state == "PASS"
    yield "gates.strict passes where the default does not", strict.state == "PASS" and usual.state != "PASS"
    whole = estimate([one.value or 0.0 for one in seen], cell.layout.sources, cell.layout.categories)
    low, high = whole.bounded_interval(0, 10) or (0.0, 0.0)
    yield "95% interval of the score holds the truth", low - 1e-9 <= cell.truth <= high + 1e-9


def against_a_baseline(cell: Cell, shift: float) -> Iterator[tuple[str, bool]]:
    """One comparison in which nothing changed, one with a shift of all pairs, one in which a tenth of them break."""
    every = dict.fromkeys(("overall", *dict.fromkeys(cell.layout.categories)), 0.0)
    overall, family = settings("max_drop", cell), GatesSettings(max_drop=every)
    difficulties = cell.difficulties()
    before, again = (np.stack([cell.scores(difficulties) for _ in range(2)]) for _ in range(2))
    one = slice(0, 1)
    (mean,) = cell.mean_gates(before[one], again[one], overall)
    yield "nothing changed, overall:0 fails", mean.state == "FAIL"
    means = cell.mean_gates(before[one], again[one], family)
    yield "nothing changed, overall:0 or a category fails", any(gate.state == "FAIL" for gate in means)
    yield "nothing changed, the tail gate fails", cell.tail_gate(before[one], again[one]).state == "FAIL"
    yield "nothing changed, two seeds: the tail gate fails", cell.tail_gate(before, again).state == "FAIL"
    found = estimate((again - before)[0].tolist(), cell.layout.sources, cell.layout.categories)
    low, high = found.interval() or (0.0, 0.0)
    yield "95% interval of the difference holds the truth", low - 1e-9 <= 0 <= high + 1e-9
    (mean,) = cell.mean_gates(before[one], cell.scores(difficulties, shift)[None], overall)
    yield "all fell, by twice the MDE on average: overall:0 fails", mean.state == "FAIL"
    size = before.shape[1]
    broken = cell.generator.choice(size, max(1, size // 10), replace=False)
    again[:, broken] = np.minimum(again[:, broken], cell.generator.integers(0, 3, len(broken)))
    for seeds, words in ((one, ""), (slice(0, 2), ", two seeds")):
        (mean,) = cell.mean_gates(before[seeds], again[seeds], overall)
        tail = cell.tail_gate(before[seeds], again[seeds])
        yield f"one pair in ten breaks{words}: overall:0 or the tail gate fails", "FAIL" in (mean.state, tail.state)


def printed_mde(cell: Cell) -> float:
    """Average the MDE that `overall:0` prints in comparisons of two runs."""
    found = []
    for _ in range(40):
        difficulties = cell.difficulties()
        moved = cell.scores(difficulties) - cell.scores(difficulties)
        found.append(max_drop(settings("max_drop", cell), cell.observe(moved, -10.0), "main")[0].mde or 0.0)
    return float(np.mean(found))


def simulate(task: tuple[str, str, str, int]) -> tuple[str, str, dict[str, float]]:
    """Simulate one cell; return shares of runs by what is counted."""
    what, name, family, runs = task
    gates.pairs_needed = lambda *_: None  # type: ignore[assignment]  # what open gates would need is not asked here
    cell = Cell({**LAYOUTS, **SIZES}[name], family)
    shift = cell.shift_for(2 * printed_mde(cell)) if what == "baseline" else 0.0
    counts: defaultdict[str, int] = defaultdict(int)
    for _ in range(runs):
        for measure, found in at_the_limit(cell) if what == "limit" else against_a_baseline(cell, shift):
            counts[measure] += found
    return name, family, {measure: count / runs for measure, count in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--only", choices=("limit", "baseline"))
    parser.add_argument("--layout", choices=[*LAYOUTS, *SIZES], action="append")
    given = parser.parse_args()
    tasks = [
        (what, name, family, given.runs)
        for what, layouts in (("limit", {**SIZES, **LAYOUTS}), ("baseline", LAYOUTS))
        for name in layouts
        for family in FAMILIES
        if given.only in (None, what) and (not given.layout or name in given.layout)
    ]
    tables: dict[str, Table] = {}
    with Pool() as pool:
        for name, family, shares in pool.imap(simulate, tasks):
            for measure, share in shares.items():
                tables.setdefault(measure, {}).setdefault(name, {})[family] = share
    for measure, rows in tables.items():
        print(f"\n{measure}, {given.runs} runs a cell\n")
        print(f"| layout | {' | '.join(FAMILIES)} |\n|---|{'---|' * len(FAMILIES)}")
        for name, cells in rows.items():
            print(f"| {name} | {' | '.join(f'{cells[family]:.1%}' for family in FAMILIES)} |")
    if not given.only and not given.layout:
        print("\n" + summary(tables))


def summary(tables: dict[str, Table]) -> str:
    """Write the table of docs/gates.md."""
    lines = [f"| share of runs | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for measure, rows in tables.items():
        texts = []
        for layouts in COLUMNS.values():
            shares = [share for layout in layouts for share in rows.get(layout, {}).values()]
            texts.append(f"{100 * min(shares):.1f}–{100 * max(shares):.1f}%" if shares else "")
        lines.append(f"| {measure} | {' | '.join(texts)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
