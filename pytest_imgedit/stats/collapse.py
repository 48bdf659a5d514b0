"""The gate on the tail: pairs that fell by far more than their own noise explains, which a mean hardly shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core.results import GateResult, State
from pytest_imgedit.core.sanitize import p_value
from pytest_imgedit.stats.coverage import allowed_pairs
from pytest_imgedit.stats.estimates import ENOUGH, signs
from pytest_imgedit.store.baselines import BaselineItem

#: How many collapsed pairs a gate's line names.
NAMED = 3


@dataclass(frozen=True)
class Move:
    """How one pair moved against its baseline; a score is `None` where there is none on that side.

    `moves` holds the difference of each of the `seeds` repetitions that has a score on both sides. `same_edits` says
    that all its edits are, byte for byte, those of the baseline.
    """

    pair: str
    source: str
    before: float | None
    now: float | None
    moves: tuple[float, ...]
    same_edits: bool
    seeds: int = 1

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.now is None else round(self.now - self.before, 6)


def moves_between(before: Iterable[BaselineItem], now: Iterable[BaselineItem]) -> list[Move]:
    """Pair the items of a run with those of a baseline by id."""
    old = {item.id: item for item in before}
    return [_move(old[item.id], item) for item in now]


def _move(old: BaselineItem, item: BaselineItem) -> Move:
    sides = list(zip(old.seeds, item.seeds, strict=False))
    moves = tuple(now.score - was.score for was, now in sides if was.score is not None and now.score is not None)
    return Move(item.id, item.cluster, old.score, item.score, moves, same_edits(old, item), len(sides))


def same_edits(old: BaselineItem, item: BaselineItem) -> bool:
    """Tell whether all edits of an item are, byte for byte, those of the baseline."""
    edits = list(zip(old.edits, item.edits, strict=False))
    return bool(edits) and all(before is not None and before == now for before, now in edits)


def unmoved_edits(moves: Sequence[Move]) -> int:
    """Count the edits that are those of the baseline, if they show that nothing moves by chance; 0 if they do not.

    They do if they are at least half of all and `ENOUGH`, and every one of them has the score that it had.
    """
    compared = [move for move in moves if move.difference is not None]
    same = [move.difference for move in compared if move.same_edits]
    return len(same) if len(same) >= max(ENOUGH, len(compared) / 2) and not any(same) else 0


def max_collapsed(settings: GatesSettings, moves: Sequence[Move], baseline: str) -> tuple[GateResult, list[str]]:
    """Evaluate `--imgedit-max-collapsed`; return the gate and the ids of the collapsed pairs, the furthest fall first.

    A pair collapsed if it has another edit than in the baseline and fell by `gates.collapse` points or more. More of
    them than allowed are a FAIL where nothing moves by chance (`unmoved_edits`), and where falls outweigh rises beyond
    chance, the allowed ones left out. Pairs without a score that could turn a gate leave it inconclusive.
    """
    compared = [move for move in moves if move.difference is not None]
    fallen = _collapsed(compared, settings.collapse)
    allowed = allowed_pairs(settings.max_collapsed, len(moves))
    unmoved = unmoved_edits(moves)
    state, why, p = _decide(settings, compared, allowed, unmoved)
    lost = [_at_worst(move) for move in moves if move.difference is None]
    if state != "FAIL" and compared and lost:
        worst, _, _ = _decide(settings, [*compared, *lost], allowed, unmoved)
        if worst == "FAIL":
            state, why = "INCONCLUSIVE", f"the pairs without a score ({len(lost)}) may have collapsed too"
    if not compared:
        state, why = "INVALID", "no pair has a score on both sides"
    named = ", ".join(f"{move.pair} {move.before:.2f} → {move.now:.2f}" for move in fallen[:NAMED])
    more = f" and {len(fallen) - NAMED} more" if len(fallen) > NAMED else ""
    line = f"{len(fallen)} of {len(moves)} pairs fell by {settings.collapse:g} points or more against {baseline}"
    line += f", {allowed} allowed" + (f" ({named}{more})" if named else "") + (f": {why}" if why else "")
    result = GateResult("overall", "max_collapsed", allowed, len(fallen), state, line, p)
    return result, [move.pair for move in fallen]


def _collapsed(moves: Sequence[Move], least: float) -> list[Move]:
    """List the pairs with another edit that fell by so much, the furthest fall first."""
    fallen = [move for move in moves if not move.same_edits and (move.difference or 0.0) <= -least]
    return sorted(fallen, key=lambda move: (move.difference, move.pair))


def _at_worst(move: Move) -> Move:
    """Give a pair without a score the furthest fall that it could have."""
    before, now = 10.0 if move.before is None else move.before, 0.0 if move.now is None else move.now
    return replace(move, before=before, now=now, moves=(now - before,) * max(1, move.seeds), same_edits=False)


def _decide(
    settings: GatesSettings, compared: Sequence[Move], allowed: int, unmoved: int
) -> tuple[State, str, float | None]:
    fallen = _collapsed(compared, settings.collapse)
    if len(fallen) <= allowed:
        return "PASS", "", None
    if unmoved:
        return "FAIL", f"{unmoved} edits are those of the baseline and have its scores", None
    p = p_falls_outweigh([move for move in compared if move not in fallen[:allowed]], settings.collapse)
    if p <= settings.alpha:
        return "FAIL", f"falls outweigh rises ({p_value(p)})", p
    state: State = "INCONCLUSIVE" if settings.strict else "PASS"
    return state, f"not shown to be more than chance ({p_value(p)}), which more seeds would tell", p


def p_falls_outweigh(moves: Sequence[Move], least: float) -> float:
    """One-sided p value that falls weigh no more than rises, each pair with the square of its mean difference.

    A sign-flip test: if nothing has changed, the difference of a repetition is as likely to be a rise as a fall. All
    pairs of a source are flipped together, each seed by itself, so that G sources and S seeds never give less than
    2^-GS. The squares let few large moves outweigh many small ones. A fall of the median pair of under `least` points
    is taken off all: what most pairs did is for gates on the mean.
    """
    shift = min(0.0, float(np.median([move.difference or 0.0 for move in moves]))) if moves else 0.0
    shift = shift if shift > -least else 0.0
    moves = [replace(move, moves=tuple(size - shift for size in move.moves)) for move in moves] if shift else moves
    moved = [move for move in moves if any(move.moves)]
    if not moved:
        return 1.0
    seeds = max(len(move.moves) for move in moved)
    sizes = np.array([[*move.moves, *[0.0] * (seeds - len(move.moves))] for move in moved]) / seeds
    _, source = np.unique([move.source for move in moved], return_inverse=True)
    flips = signs((int(source.max()) + 1) * seeds)
    units = source[:, None] * seeds + np.arange(seeds)
    observed = _weigh(sizes.sum(axis=1))
    limit = observed + 1e-9 * float((sizes.sum(axis=1) ** 2).sum())
    parts = np.array_split(flips, len(flips) // 500 + 1)
    count = sum(int((_weigh((part[:, units] * sizes).sum(axis=2)) <= limit).sum()) for part in parts)
    return max(count / len(flips), float(0.5 ** flips.shape[1]))


def _weigh(means: NDArray[np.float64]) -> Any:
    return (means * np.abs(means)).sum(axis=-1)
