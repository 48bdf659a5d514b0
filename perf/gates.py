"""How often gates are wrong: simulated runs through the package's own statistics.

python perf/gates.py                       # 2,000 runs a cell, on all cores
python perf/gates.py --runs 200 --only limit
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from simulation import ALLOWED, FAMILIES, LAYOUTS, SIZES, Cell, Floats, Layout

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.stats import planning
from pytest_imgedit.stats.estimates import estimate
from pytest_imgedit.stats.gate_rules import fail_under, max_drop
from pytest_imgedit.stats.sequential import Looks, PlannedPair, at_the_end, in_parts
from pytest_imgedit.stats.trend import evidence_by_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Columns of the table in docs/gates.md, each a range over its layouts and all families.
COLUMNS = {
    "one category of 10 to 100": [*SIZES],
    "5×10": ["5×10"],
    "11×20": ["11×20"],
    "270, even": ["50/50/70/50/50"],
    "248, uneven": ["5/8/120/85/30"],
    "83, one of 3": ["4×20 and 3"],
    "3 pairs a source": ["5×30, 3 a source"],
    "one dominant source": [
        "5×30, half on one",
        "sources 20, 9×1",
        "sources 30, 19×2",
        "sources 4×10, 16×1",
    ],
}
#: Share of pairs that are repaired, where all others fall so that the mean stays.
REPAIRED = 0.03
Table = dict[str, dict[str, float]]  # shares by layout and family


def at_the_limit(cell: Cell) -> Iterator[tuple[str, bool]]:
    """One run of a gate whose limit is the true mean."""
    seen = cell.observe(cell.scores(cell.difficulties()))
    (usual,) = fail_under(cell.limits("fail_under"), {"score": seen})
    (strict,) = fail_under(cell.limits("fail_under", strict=True), {"score": seen})
    yield "fail_under fails at the limit", usual.state == "FAIL"
    yield "fail_under passes at the limit with gates.strict", strict.state == "PASS"
    yield (
        "gates.strict passes where the default does not",
        strict.state == "PASS" and usual.state != "PASS",
    )
    whole = estimate(
        [one.value or 0.0 for one in seen], cell.layout.sources, cell.layout.categories
    )
    low, high = whole.bounded_interval(0, 10) or (0.0, 0.0)
    yield "95% interval of the score holds the truth", low - 1e-9 <= cell.truth <= high + 1e-9


def against_a_baseline(cell: Cell, shift: float) -> Iterator[tuple[str, float]]:
    """Comparisons in which nothing changed, and in which all scores fell by a shift."""
    every = dict.fromkeys(("overall", *dict.fromkeys(cell.layout.categories)), 0.0)
    overall, family = cell.limits("max_drop"), GatesSettings(max_drop=every)
    difficulties = cell.difficulties()
    before, again, worse = (cell.scores(difficulties, by)[None] for by in (0.0, 0.0, shift))
    (mean,) = cell.mean_gates(before, again, overall)
    yield "nothing changed, overall:0 fails", mean.state == "FAIL"
    means = cell.mean_gates(before, again, family)
    yield (
        "nothing changed, overall:0 or a category fails",
        any(gate.state == "FAIL" for gate in means),
    )
    found = estimate((again - before)[0].tolist(), cell.layout.sources, cell.layout.categories)
    low, high = found.interval() or (0.0, 0.0)
    yield "95% interval of the difference holds the truth", low - 1e-9 <= 0 <= high + 1e-9
    (mean,) = cell.mean_gates(before, worse, overall)
    if shift:
        yield "all fell, by twice the MDE on average: overall:0 fails", mean.state == "FAIL"


def as_allowed(cell: Cell) -> Iterator[tuple[str, float]]:
    """A comparison in which all scores fell, on average by as much as is allowed."""
    difficulties = cell.difficulties()
    before, lower = (cell.scores(difficulties, by)[None] for by in (0.0, cell.allowed))
    (mean,) = cell.mean_gates(before, lower, GatesSettings(max_drop={"overall": ALLOWED}))
    yield "all fell by 0.5 points on average: overall:0.5 fails", mean.state == "FAIL"


def on_the_tail(cell: Cell) -> Iterator[tuple[str, float]]:
    """Comparisons by `overall:0` and the tail gate: nothing changed, or a tenth of the pairs
    break.
    """
    difficulties, default = cell.difficulties(), cell.limits("max_drop")
    before, again = (np.stack([cell.scores(difficulties) for _ in range(2)]) for _ in range(2))

    def fails(was: Floats, now: Floats) -> bool:
        (mean,) = cell.mean_gates(was, now, default)
        return "FAIL" in (mean.state, cell.tail_gate(was, now, default).state)

    one = slice(0, 1)
    yield "nothing changed: overall:0 or the tail gate fails", fails(before[one], again[one])
    yield "nothing changed, two seeds: overall:0 or the tail gate fails", fails(before, again)
    noisy = (cell.judge_noise(before[one]) for _ in range(2))
    yield "nothing changed, the judge is noisy: either fails", fails(*noisy)
    tail = cell.tail_gate(before[one], again[one], GatesSettings())
    yield "nothing changed, the tail gate alone fails", tail.state == "FAIL"
    broken = cell.generator.choice(before.shape[1], max(1, before.shape[1] // 10), replace=False)
    again[:, broken] = np.minimum(again[:, broken], cell.generator.integers(0, 3, len(broken)))
    for seeds, words in ((one, ""), (slice(0, 2), ", two seeds")):
        yield (
            f"one pair in ten breaks{words}: overall:0 or the tail gate fails",
            fails(before[seeds], again[seeds]),
        )


def on_alike_edits(cell: Cell) -> Iterator[tuple[str, float]]:
    """Comparisons by `overall:0` and the tail gate in which most edits look as in the baseline,
    with a noisy judge.
    """
    default, size = cell.limits("max_drop"), len(cell.cluster)
    before = cell.judge_noise(cell.scores(cell.difficulties())[None])
    moved = np.where(cell.generator.random(size) < 0.1, cell.scores(cell.difficulties()), before)
    looks = cell.generator.permutation(np.arange(size) % 3 > 0)
    gate = cell.tail_gate(before, moved, default, looks)
    yield (
        "two thirds look alike, one pair in ten moves anyhow: the tail gate fails",
        gate.state == "FAIL",
    )
    for count, pairs in ((1, "pair is"), (4, "pairs are")):
        ruined = cell.judge_noise(before)
        broken = cell.generator.permutation(np.flatnonzero(before[0] >= 5))[:count]
        ruined[:, broken] = 0.0
        gate = cell.tail_gate(before, ruined, default, ~np.isin(np.arange(size), broken))
        yield (
            f"all others look alike, {count} {pairs} ruined: the tail gate fails",
            gate.state == "FAIL",
        )


def in_a_series(cell: Cell, shift: float) -> Iterator[tuple[str, float]]:
    """A run and 30 looks at further ones in which nothing changes; one of 15 of which the last
    three are worse.
    """
    names = [str(n) for n in range(len(cell.cluster))]
    clusters, kinds = (
        dict(zip(names, own, strict=True)) for own in (cell.layout.sources, cell.layout.categories)
    )

    def alarm(shifts: list[float]) -> bool:
        difficulties = cell.difficulties()
        scores = [cell.scores(difficulties, shift).tolist() for shift in shifts]
        series = [dict(zip(names, row, strict=True)) for row in scores]
        evidence = evidence_by_group(series, clusters, kinds)
        return any(max(values) >= len(evidence) / 0.05 for values in evidence.values())

    yield "nothing changes in 30 looks: imgedit trend fails", alarm([0.0] * 31)
    if shift:
        yield (
            "all fell, by twice the MDE, at look 13 of 15: imgedit trend fails",
            alarm([0.0] * 13 + [shift] * 3),
        )


def until_decided(cell: Cell, shift: float) -> Iterator[tuple[str, float]]:
    """Gates that are decided as scores come in: at their limit, where nothing changed, and where
    all fell.
    """
    parts = in_parts(
        [
            PlannedPair(str(n), *pair)
            for n, pair in enumerate(zip(cell.layout.sources, cell.layout.categories, strict=True))
        ]
    )
    difficulties = cell.difficulties()
    one, other, worse = (cell.scores(difficulties, by) for by in (0.0, 0.0, shift))

    def end(
        kind: Literal["fail_under", "max_drop"], values: Floats, **keys: object
    ) -> tuple[str, float]:
        gate = cell.limits(kind, until="decided", **keys)
        seen = cell.observe(values, 0.0 if kind == "fail_under" else -10.0)
        known, looks = {str(n): one for n, one in enumerate(seen)}, Looks(kind, gate, parts)
        for count in range(len(parts)):
            looks.see(count, known)
            if looks.decided:
                return looks.decided["overall"].state, sum(map(len, parts[: count + 1])) / len(seen)
        rest = at_the_end(gate)
        samples = {"score": seen}
        if kind == "fail_under":
            (last,) = fail_under(rest, samples)
        else:
            (last,) = max_drop(rest, samples, "main")
        return last.state, 1.0

    yield "until decided: fail_under fails at the limit", end("fail_under", one)[0] == "FAIL"
    strict, _ = end("fail_under", one, strict=True)
    yield "until decided: fail_under passes at the limit with gates.strict", strict == "PASS"
    state, needed = end("max_drop", other - one)
    yield "until decided, nothing changed: overall:0 fails", state == "FAIL"
    yield "until decided, nothing changed: pairs needed", needed
    repaired = cell.generator.random(len(one)) < REPAIRED
    moves = np.where(repaired, 9.0, -9.0 * REPAIRED / (1 - REPAIRED))
    yield (
        "until decided, 3% repaired by 9 points, others fell to the same mean: overall:0 fails",
        (end("max_drop", moves)[0] == "FAIL"),
    )
    (usual,) = max_drop(cell.limits("max_drop"), {"score": cell.observe(moves, -10.0)}, "main")
    yield (
        "3% repaired by 9 points, others fell to the same mean: overall:0 fails",
        usual.state == "FAIL",
    )
    if not shift:
        return
    state, needed = end("max_drop", worse - one)
    yield "until decided, all fell by twice the MDE: overall:0 fails", state == "FAIL"
    yield "until decided, all fell by twice the MDE: pairs needed", needed


#: What is simulated: how, on which layouts, and whether it takes the shift that is twice the
#: printed MDE.
SIMULATIONS: dict[
    str, tuple[Callable[..., Iterator[tuple[str, float]]], dict[str, Layout], bool]
] = {
    "limit": (at_the_limit, {**SIZES, **LAYOUTS}, False),
    "baseline": (against_a_baseline, LAYOUTS, True),
    "allowed": (as_allowed, LAYOUTS, False),
    "tail": (on_the_tail, LAYOUTS, False),
    "alike": (on_alike_edits, LAYOUTS, False),
    "series": (in_a_series, LAYOUTS, True),
    "until": (until_decided, LAYOUTS, True),
}


def simulate(task: tuple[str, str, str, int]) -> tuple[str, str, dict[str, float]]:
    """Simulate one cell; return shares of runs by what is counted."""
    what, name, family, runs = task
    vars(planning)["pairs_needed"] = lambda *_: None  # what open gates need is not asked here
    simulated, _, shifts = SIMULATIONS[what]
    cell = Cell({**LAYOUTS, **SIZES}[name], family)
    given = (cell, cell.shift_for(2 * cell.printed_mde())) if shifts else (cell,)
    counts: defaultdict[str, float] = defaultdict(float)
    for _ in range(runs):
        for measure, found in simulated(*given):
            counts[measure] += found
    return name, family, {measure: count / runs for measure, count in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--only", choices=tuple(SIMULATIONS), action="append")
    parser.add_argument("--layout", choices=[*LAYOUTS, *SIZES], action="append")
    parser.add_argument(
        "--json",
        type=Path,
        help="keep the shares in this file, and add those of earlier calls to the table",
    )
    given = parser.parse_args()
    tasks = [
        (what, name, family, given.runs)
        for what, (_, layouts, _) in SIMULATIONS.items()
        for name in layouts
        for family in FAMILIES
        if what in (given.only or SIMULATIONS) and (not given.layout or name in given.layout)
    ]
    tables: dict[str, Table] = (
        json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    )
    with Pool() as pool:
        for name, family, shares in pool.imap(simulate, tasks, chunksize=1):
            for measure, share in shares.items():
                tables.setdefault(measure, {}).setdefault(name, {})[family] = share
            if given.json:
                given.json.write_text(json.dumps(tables, ensure_ascii=False, indent=1))
    for measure, rows in tables.items():
        print(f"\n{measure}, {given.runs} runs a cell\n")
        print(f"| layout | {' | '.join(FAMILIES)} |\n|---|{'---|' * len(FAMILIES)}")
        for name, cells in rows.items():
            print(
                f"| {name} | {' | '.join(f'{cells.get(family, 0):.1%}' for family in FAMILIES)} |"
            )
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
