"""Simulated scores of runs: families of distributions, layouts of pairs, and cells of one with the
other.

A score is a quantile function (`FAMILIES`) of a normal number that a pair's difficulty and the
noise of one edit share 7 : 3. Pairs of one source also share their difficulty (correlation 0.5).
The layouts name the pairs of each category.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.stats.collapsed_pairs import Move, max_collapsed
from pytest_imgedit.stats.gate_rules import max_drop
from pytest_imgedit.stats.gate_values import Observation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_imgedit.core.results import GateResult

Floats = NDArray[np.float64]
#: Share of a pair's difficulty in the variance of its score, and correlation of pairs of one
#: source.
DIFFICULTY, SHARED = 0.7, 0.5
#: Points by which all scores fall where that is allowed.
ALLOWED = 0.5
GRID = (np.arange(100_000) + 0.5) / 100_000


def middle(u: Floats) -> Floats:
    """Most whole scores between 3 and 9."""
    scores: Floats = np.clip(np.round(6 + 2.16 * ndtri(u)), 0, 10)
    return scores


def tens(u: Floats) -> Floats:
    """90% get a full 10, the others 0 to 9 alike."""
    return np.where(u >= 0.1, 10.0, np.floor(u * 100))


def zeros(u: Floats) -> Floats:
    """3% get 0, the others about 9."""
    return np.where(
        u < 0.03, 0.0, np.clip(9 + 0.3 * ndtri(np.clip((u - 0.03) / 0.97, 1e-9, 1 - 1e-9)), 0, 10)
    )


def bimodal(u: Floats) -> Floats:
    """40% get 0 to 2, the others 8 to 10."""
    return np.where(u < 0.4, np.floor(u * 7.5), 8 + np.floor((u - 0.4) * 4.9999))


def root(u: Floats) -> Floats:
    """√(a·b) of two whole grades about 7, as the protocol with aspects gives them."""
    scores: Floats = _ROOTS[np.minimum((u * len(_ROOTS)).astype(int), len(_ROOTS) - 1)]
    return scores


_PAIR = np.random.default_rng(7).multivariate_normal([7, 7], [[5, 2.5], [2.5, 5]], 100_000)
_ROOTS = np.sort(np.sqrt(np.clip(np.round(_PAIR), 0, 10).prod(axis=1)))
FAMILIES: dict[str, Callable[[Floats], Floats]] = {
    f.__name__: f for f in (middle, tens, zeros, bimodal, root)
}


@dataclass(frozen=True)
class Layout:
    """Categories and sources of the pairs, in order."""

    categories: list[str]
    sources: list[str]

    @classmethod
    def alone(cls, *counts: int) -> Layout:
        """Categories of so many pairs, each with a source of its own."""
        pairs = [
            (f"c{place}", number) for place, count in enumerate(counts) for number in range(count)
        ]
        return cls([name for name, _ in pairs], [f"{name}-{number}" for name, number in pairs])

    @classmethod
    def clustered(cls, *sizes: int) -> Layout:
        """One category, sources of so many pairs."""
        return cls(
            ["c0"] * sum(sizes),
            [f"s{place}" for place, size in enumerate(sizes) for _ in range(size)],
        )


LAYOUTS = {
    "5×10": Layout.alone(*[10] * 5),
    "11×20": Layout.alone(*[20] * 11),
    "50/50/70/50/50": Layout.alone(50, 50, 70, 50, 50),
    "5/8/120/85/30": Layout.alone(5, 8, 120, 85, 30),
    "4×20 and 3": Layout.alone(20, 20, 20, 20, 3),
    "5×30, 3 a source": Layout(
        [f"c{k}" for k in range(5) for _ in range(30)], [f"{n // 3}" for n in range(150)]
    ),
    "5×30, half on one": Layout(
        [f"c{k}" for k in range(5) for _ in range(30)],
        ["all" if n % 2 else f"{n}" for n in range(150)],
    ),
    "sources 20, 9×1": Layout.clustered(20, *[1] * 9),
    "sources 30, 19×2": Layout.clustered(30, *[2] * 19),
    "sources 4×10, 16×1": Layout.clustered(*[10] * 4, *[1] * 16),
}
SIZES = {f"{n} pairs": Layout.alone(n) for n in (10, 20, 50, 100)}


class Cell:
    """One layout with one family of scores."""

    def __init__(self, layout: Layout, family: str, seed: int = 1) -> None:
        self.layout, self.grade = layout, FAMILIES[family]
        self.generator = np.random.default_rng(seed)
        _, self.cluster = np.unique(layout.sources, return_inverse=True)
        self.is_shared = np.bincount(self.cluster)[self.cluster] > 1
        self.truth = float(self.grade(GRID).mean())
        self.allowed = self.shift_for(ALLOWED)

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
        falls = [
            self.truth - float(self.grade(np.clip(ndtr(latent - shift), 1e-12, 1)).mean())
            for shift in grid
        ]
        return float(np.interp(drop, falls, grid))

    def observe(self, values: Floats, lowest: float = 0.0) -> list[Observation]:
        rows = zip(self.layout.categories, self.layout.sources, values.tolist(), strict=True)
        return [Observation(category, source, value, lowest) for category, source, value in rows]

    def mean_gates(self, before: Floats, now: Floats, settings: GatesSettings) -> list[GateResult]:
        """The gates on the mean drop; the arrays are (seeds, pairs)."""
        moved = self.observe((now - before).mean(axis=0), -10.0)
        return max_drop(settings, {"score": moved}, "main")

    def tail_gate(
        self,
        before: Floats,
        now: Floats,
        settings: GatesSettings,
        alike: NDArray[np.bool_] | None = None,
    ) -> GateResult:
        """The gate on the tail; arrays are (seeds, pairs), and `alike` (pairs,) says whose edits
        look as they did.
        """
        looks = np.zeros(before.shape[1], dtype=bool) if alike is None else alike
        means = zip(before.mean(axis=0).tolist(), now.mean(axis=0).tolist(), strict=True)
        rows = zip(
            self.layout.sources, means, (now - before).T.tolist(), looks.tolist(), strict=True
        )
        moves = [
            Move(str(n), source, *mean, tuple(moved), look)
            for n, (source, mean, moved, look) in enumerate(rows)
        ]
        return max_collapsed(settings, moves, "main")[0]

    def judge_noise(self, scores: Floats) -> Floats:
        """Scores of the same edits by a judge that answers a fifth of them anew, with a standard
        deviation of 1.
        """
        noise = np.where(
            self.generator.random(scores.shape) < 0.2, self.generator.normal(size=scores.shape), 0.0
        )
        noisy: Floats = np.clip(scores + noise, 0, 10)
        return noisy

    def limits(self, kind: str, **keys: object) -> GatesSettings:
        """Settings of one gate on `overall`: at the true mean, or against any drop."""
        limit = {"fail_under": self.truth, "max_drop": 0.0}[kind]
        return GatesSettings.model_validate({kind: {"overall": limit}, **keys})

    def printed_mde(self) -> float:
        """Average the MDE that `overall:0` prints in comparisons of two runs."""
        found = []
        for _ in range(40):
            difficulties = self.difficulties()
            moved = self.scores(difficulties) - self.scores(difficulties)
            samples = {"score": self.observe(moved, -10.0)}
            found.append(max_drop(self.limits("max_drop"), samples, "main")[0].mde or 0.0)
        return float(np.mean(found))
