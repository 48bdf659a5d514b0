"""What a gate says of good work: simulated comparisons of an editor whose edits are resampled.

python perf/good_work.py --json before.json                       # 400 comparisons a cell
PYTHONPATH=OTHER python perf/good_work.py --against before.json   # the same by another tree
python perf/good_work.py --advice                                 # do so many pairs decide?

A pair has an ability, of one of three families. An edit adds noise with a standard deviation of 1
point, and 6% of edits fail, whatever the ability. A judge adds noise of 0.5 points and rounds to
half points. Cells begin with equal seeds, so that two versions of the package see the same scores.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from simulation import Floats, Layout

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.stats import planning
from pytest_imgedit.stats.collapsed_pairs import Move, max_collapsed
from pytest_imgedit.stats.gate_rules import fail_under, max_drop
from pytest_imgedit.stats.gate_values import Observation
from pytest_imgedit.stats.outcome import fails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pytest_imgedit.core.results import GateResult

#: Standard deviations, in points, that an edit, a judge and a noisy judge add; share of edits that
#: fail.
EDIT, JUDGE, NOISY, FAILED = 1.0, 0.5, 1.8, 0.06
#: Points by which the true mean is over the limit of `fail_under` when advice is asked for.
OVER = 0.25
LAYOUTS = {
    "5×20": Layout.alone(*[20] * 5),
    "5×10": Layout.alone(*[10] * 5),
    "4×20 and 3": Layout.alone(20, 20, 20, 20, 3),
    "4×20": Layout.alone(*[20] * 4),
    "one of 20": Layout.alone(20),
    "5×3": Layout.alone(*[3] * 5),
    "3×3": Layout.alone(*[3] * 3),
}
ADVISED = {name: LAYOUTS[name] for name in ("5×20", "5×10", "4×20 and 3")}
ADVISED["one of 40"] = Layout.alone(40)
#: Abilities in points, by family.
ABILITIES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "skewed": lambda generator, size: 10 * generator.beta(5, 1.8, size),
    "middle": lambda generator, size: generator.normal(6, 1.5, size),
    "bimodal": lambda generator, size: generator.normal(
        np.where(generator.random(size) < 0.4, 2.5, 8.0), 0.8
    ),
}
GATES = GatesSettings(max_drop={"overall": 0.0})
STATES = ("FAIL", "INCONCLUSIVE", "PASS")


@dataclass(frozen=True)
class World:
    """Pairs of one layout with abilities of one family; arrays of scores are (seeds, pairs)."""

    layout: Layout
    abilities: Floats
    generator: np.random.Generator

    @classmethod
    def of(cls, layout: Layout, family: str, seed: int) -> World:
        generator = np.random.default_rng(seed)
        return cls(layout, ABILITIES[family](generator, len(layout.sources)), generator)

    def edits(self, fall: float = 0.0, seeds: int = 1) -> Floats:
        """Draw the quality of edits, in points."""
        size = (seeds, len(self.abilities))
        quality = self.abilities - fall + self.generator.normal(0, EDIT, size)
        failed = self.generator.random(size) < FAILED
        return np.where(failed, self.generator.normal(0, JUDGE, size), quality)

    def judged(self, edits: Floats, noise: float = JUDGE) -> Floats:
        noisy = edits + self.generator.normal(0, noise, edits.shape)
        scores: Floats = np.clip(np.round(2 * noisy) / 2, 0, 10)
        return scores

    def observed(self, values: Floats, lowest: float) -> list[Observation]:
        rows = zip(self.layout.categories, self.layout.sources, values.tolist(), strict=True)
        return [Observation(*row, lowest=lowest) for row in rows]

    def drop_gate(self, before: Floats, now: Floats) -> GateResult:
        moves = self.observed((now - before).mean(axis=0), -10.0)
        return max_drop(GATES, {"score": moves}, "main")[0]

    def tail_gate(self, before: Floats, now: Floats, looks: NDArray[np.bool_]) -> GateResult:
        moves = [
            Move(str(place), source, was.mean(), new.mean(), tuple(new - was), bool(alike))
            for place, (source, was, new, alike) in enumerate(
                zip(self.layout.sources, before.T, now.T, looks, strict=True)
            )
        ]
        return max_collapsed(GATES, moves, "main")[0]


def scenarios(world: World) -> Iterator[tuple[str, Floats, Floats, NDArray[np.bool_]]]:
    """Yield names, scores before and now, and which edits look as they did."""
    edits = world.edits()
    before, size = world.judged(edits), edits.shape[1]
    none, broken = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    broken[world.generator.choice(size, max(1, size // 10), replace=False)] = True
    yield "nothing changed, edits anew", before, world.judged(world.edits()), none
    yield "same edits, noisy judge", world.judged(edits, NOISY), world.judged(edits, NOISY), ~none
    ruined = np.where(broken, world.generator.normal(0, JUDGE, size), world.edits())
    yield "one in ten broken, edits anew", before, world.judged(ruined), none
    equal = np.where(broken, world.judged(ruined), before)
    yield "one in ten broken, rest equal", before, equal, ~broken
    for fall in (0.3, 1.0):
        yield f"all fell by {fall:g}, edits anew", before, world.judged(world.edits(fall)), none


def shares(layout: Layout, family: str, runs: int) -> dict[str, float]:
    """Share of runs by scenario, gates and state; `either` is the worse of both gates. `exit 0` is
    the share in which neither fails the run.
    """
    counts: Counter[str] = Counter()
    for seed in range(runs):
        world = World.of(layout, family, seed)
        for name, before, now, looks in scenarios(world):
            gates = {
                "drop": world.drop_gate(before, now),
                "tail": world.tail_gate(before, now, looks),
            }
            states = {kind: gate.state for kind, gate in gates.items()}
            states["either"] = min(states.values(), key=STATES.index)
            counts.update(f"{name}: {kind} {state}" for kind, state in states.items())
            counts[f"{name}: exit 0"] += not any(fails(gate, GATES) for gate in gates.values())
    return {name: count / runs for name, count in sorted(counts.items())}


def is_decided(world: World, kind: str, limit: float, seeds: int = 1) -> bool:
    """Tell whether a gate on fresh edits says FAIL or PASS."""
    now = world.judged(world.edits(seeds=seeds))
    if kind == "max_drop":
        gate = world.drop_gate(world.judged(world.edits(seeds=seeds)), now)
    else:
        settings = GatesSettings(fail_under={"overall": limit})
        (gate,) = fail_under(settings, {"score": world.observed(now.mean(axis=0), 0.0)})
    return gate.state in ("FAIL", "PASS")


def share_decided(layout: Layout, family: str, kind: str, limit: float, runs: int) -> float:
    """Share of fresh runs of other pairs that decide."""
    worlds = (World.of(layout, family, 10_000 + seed) for seed in range(runs))
    return sum(is_decided(world, kind, limit) for world in worlds) / runs


def times(layout: Layout, count: int) -> Layout:
    """Layout with so many pairs, in the same categories."""
    sizes = Counter(layout.categories).values()
    return Layout.alone(*(round(size * count / len(layout.sources)) for size in sizes))


def advice(layout: Layout, family: str, kind: str, runs: int) -> str:
    """A row: what numbers of pairs are advised, and what share of fresh runs they decide."""
    whole = World.of(Layout.alone(200_000), family, 0)
    limit = float(whole.judged(whole.edits()).mean()) - OVER
    asked: list[int | None] = []
    ask, start = planning.pairs_needed, perf_counter()
    with patch.object(planning, "pairs_needed", lambda *given: asked.append(ask(*given))):
        for seed in range(runs):
            is_decided(World.of(layout, family, seed), kind, limit)
    seconds = perf_counter() - start
    counts = Counter(count for count in asked if count)
    if not counts:
        return "no advice"
    size, total = len(layout.sources), counts.total()
    with patch.object(planning, "pairs_needed", lambda *_: None):
        pairs = {n: share_decided(times(layout, n), family, kind, limit, runs) for n in counts}
        seeds = {
            n: sum(
                is_decided(World.of(layout, family, seed), kind, limit, -(-n // size))
                for seed in range(runs)
            )
            / runs
            for n in counts
        }
    shown = " ".join(f"{n}:{count}" for n, count in sorted(counts.items()))
    means = [sum(found[n] * counts[n] for n in counts) / total for found in (pairs, seeds)]
    enough = sum(counts[n] for n in counts if pairs[n] >= planning.POWER)
    return (
        f"{means[0]:.0%} of fresh runs decided, {enough} of {total} advices decide 80%; by seeds "
        f"{means[1]:.0%}; {seconds / runs:.2f} s; pairs:advices {shown}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--layout", choices=[*{**LAYOUTS, **ADVISED}], action="append")
    parser.add_argument("--family", choices=[*ABILITIES], action="append")
    parser.add_argument("--advice", action="store_true", help="check the advised numbers of pairs")
    parser.add_argument("--json", type=Path, help="write the shares to this file")
    parser.add_argument("--against", type=Path, help="print what differs from this file")
    given = parser.parse_args()
    layouts, table = (ADVISED if given.advice else LAYOUTS), {}
    earlier = json.loads(given.against.read_text()) if given.against else {}
    for name, layout in layouts.items():
        for family in ABILITIES:
            if name not in (given.layout or layouts) or family not in (given.family or ABILITIES):
                continue
            if given.advice:
                for kind in ("max_drop", "fail_under"):
                    said = advice(layout, family, kind, given.runs)
                    print(f"{name}, {family}, {kind}: {said}", flush=True)
                continue
            with patch.object(planning, "pairs_needed", lambda *_: None):
                cell = table[f"{name}, {family}"] = shares(layout, family, given.runs)
            before = earlier.get(f"{name}, {family}", {})
            print(f"\n{name}, {family}, {given.runs} runs")
            for key in sorted({*cell, *before}):
                now, was = cell.get(key, 0.0), before.get(key, 0.0)
                if not before or now != was:
                    print(f"  {key} {now:.1%}" + (f", was {was:.1%}" if before else ""), flush=True)
            if given.json:
                text = json.dumps(table, ensure_ascii=False, indent=1)
                given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
