"""Simulated runs through the package's own statistics and gates: false alarms, power, and coverage of intervals.

    python docs/gate_simulation.py            # 2,000 runs of each kind, about two minutes
    python docs/gate_simulation.py --runs 200

A pair has a difficulty of its own; an edit of it gets that plus noise, rounded to whole points and cut at 0 and 10. Two
kinds of scores: `middle` (most pairs between 3 and 9) and `ceiling` (six in ten pairs get a full 10, the rest less).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.config import GatesSettings
from pytest_imgedit.stats.comparison import compare
from pytest_imgedit.stats.estimates import summarize
from pytest_imgedit.stats.gates import Observation, fail_under, max_drop

CATEGORIES, PAIRS = 11, 20
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """How scores come about: mean and spread of the pairs' difficulties, and the noise of an edit, in points."""

    name: str
    center: float
    between: float
    within: float

    def pairs(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return generator.normal(self.center, self.between, shape)

    def score(self, generator: np.random.Generator, pairs: Floats, drop: float = 0.0) -> Floats:
        return grade(pairs - drop + generator.normal(0, self.within, pairs.shape))

    def true_mean(self, drop: float = 0.0) -> float:
        return float(grade(population(self) - drop).mean())

    def latent_drop(self, wanted: float) -> float:
        """Find what must be taken from the difficulty so that the mean score, rounded and cut, falls by `wanted`."""
        grid = np.linspace(0, 8, 81)
        falls = self.true_mean() - np.array([self.true_mean(drop) for drop in grid])
        return float(np.interp(wanted, falls, grid))


def grade(latent: Floats) -> Floats:
    """Round and cut to the scale."""
    return np.clip(np.round(latent), 0, 10)


@lru_cache(maxsize=1)
def population(kind: Scores) -> Floats:
    """A million edits before they are graded."""
    generator = np.random.default_rng(7)
    pairs = kind.pairs(generator, (1_000_000,))
    return pairs + generator.normal(0, kind.within, pairs.shape)


KINDS = (Scores("middle", 6.0, 1.8, 1.2), Scores("ceiling", 10.0, 1.6, 0.9))
SETTINGS = {
    "overall": GatesSettings(max_drop={"overall": 0.0}),
    "overall and each category": GatesSettings(
        max_drop={"overall": 0.0, **{f"c{number:02}": 0.0 for number in range(CATEGORIES)}}
    ),
}


def observe(before: Floats, now: Floats) -> list[Observation]:
    return [
        Observation(f"c{category:02}", f"{category}-{pair}", float(now[category, pair] - before[category, pair]))
        for category in range(CATEGORIES)
        for pair in range(PAIRS)
    ]


def fails(name: str, observations: list[Observation], field: str = "") -> bool:
    gates = max_drop(SETTINGS[name], observations, "main")
    return any(gate.state == "FAIL" for gate in gates if field in ("", gate.field))


def printed_mde(kind: Scores, generator: np.random.Generator) -> dict[str, float]:
    """Average the MDE that comparisons of two runs print, overall and of a category."""
    found: dict[str, list[float]] = {"overall": [], "c00": []}
    for _ in range(50):
        pairs = kind.pairs(generator, (CATEGORIES, PAIRS))
        documents = [
            [
                {"id": f"{c}-{p}", "category": f"c{c:02}", "source": None, "score": float(scores[c, p]), "seeds": []}
                for c in range(CATEGORIES)
                for p in range(PAIRS)
            ]
            for scores in (kind.score(generator, pairs), kind.score(generator, pairs))
        ]
        baseline = {"name": "main", "run": "", "editor": {"spec": ""}, "commit": None, "items": documents[0]}
        rows = compare(baseline, documents[1], 0.05)["rows"]
        for field, values in found.items():
            values.append(rows[field]["mde"] or 0.0)
    return {field: float(np.mean(values)) for field, values in found.items()}


def simulate(kind: Scores, runs: int) -> dict[str, float]:
    """Shares of runs in which gates fail: without a change, and after true drops of twice the printed MDE."""
    generator = np.random.default_rng(1)
    mde = printed_mde(kind, generator)
    everywhere = kind.latent_drop(2 * mde["overall"])
    one = kind.latent_drop(2 * mde["c00"])
    counts: dict[str, int] = {}

    def count(name: str, found: bool) -> None:
        counts[name] = counts.get(name, 0) + found

    for _ in range(runs):
        pairs = kind.pairs(generator, (CATEGORIES, PAIRS))
        before = kind.score(generator, pairs)
        again = kind.score(generator, pairs)
        same = observe(before, again)
        for name in SETTINGS:
            count(f"false alarm, gates on {name}", fails(name, same))
        count("false alarm, 'any mean fell'", bool(((again - before).mean(axis=1) < 0).any()))
        fallen = observe(before, kind.score(generator, pairs, everywhere))
        count(f"overall fell by {2 * mde['overall']:.2f} (2 MDE), caught", fails("overall and each category", fallen))
        now = kind.score(generator, pairs)
        now[0] = kind.score(generator, pairs[:1], one)[0]
        caught = fails("overall and each category", observe(before, now), "c00")
        count(f"one category fell by {2 * mde['c00']:.2f} (2 MDE), caught by its gate", caught)
    return {name: found / runs for name, found in counts.items()}


def coverage(kind: Scores, runs: int) -> dict[str, float]:
    """Shares of runs of one category: intervals that hold the true mean, and gates with their limit right there."""
    generator, truth = np.random.default_rng(2), kind.true_mean()
    loose = GatesSettings(fail_under={"c": truth})
    strict = GatesSettings(fail_under={"c": truth}, strict=True)
    shares = {}
    for n in (10, 20, 50):
        held = failed = passed = 0
        for _ in range(runs):
            scores = kind.score(generator, kind.pairs(generator, (n,))).tolist()
            names = [str(pair) for pair in range(n)]
            low, high = summarize(scores, names).ci95 or (0.0, 0.0)
            held += low <= truth <= high
            observations = [Observation("c", name, score) for name, score in zip(names, scores, strict=True)]
            failed += fail_under(loose, observations)[0].state == "FAIL"
            passed += fail_under(strict, observations)[0].state == "PASS"
        shares[f"95% interval holds the true mean, n = {n}"] = held / runs
        shares[f"true mean at the limit, fail_under fails, n = {n}"] = failed / runs
        shares[f"true mean at the limit, fail_under passes with gates.strict, n = {n}"] = passed / runs
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {kind.name: {**simulate(kind, given.runs), **coverage(kind, given.runs)} for kind in KINDS}
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for name, shares in found.items():
        print(f"\nscores: {name}; {CATEGORIES} categories, {PAIRS} pairs each, {given.runs} runs, alpha 0.05")
        for what, share in shares.items():
            print(f"  {share:6.1%}  {what}")


if __name__ == "__main__":
    main()
