"""The gate on the tail: pairs that fell by far more than their own noise explains, which a mean
hardly shows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.core import results, sanitize
from pytest_imgedit.stats import estimates, gates
from pytest_imgedit.store.baselines import BaselineItem


@dataclass(frozen=True)
class Move:
    """How one pair moved against its baseline; a score is `None` if that side has none.

    `moves` holds the difference of each of the `seeds` repetitions that has a score on both sides.
    `alike` says that all its edits look as in the baseline.
    """

    pair: str
    source: str
    before: float | None
    now: float | None
    moves: tuple[float, ...]
    alike: bool
    seeds: int = 1

    @property
    def difference(self) -> float | None:
        if self.before is None or self.now is None:
            return None
        return round(self.now - self.before, 6)


def moves_between(before: Iterable[BaselineItem], now: Iterable[BaselineItem]) -> list[Move]:
    """Pair the items of a run with those of a baseline by id."""
    old = {item.id: item for item in before}
    return [_move(old[item.id], item) for item in now]


def _move(old: BaselineItem, item: BaselineItem) -> Move:
    sides = [(was.score, now.score) for was, now in zip(old.seeds, item.seeds, strict=False)]
    return Move(
        item.id,
        item.cluster,
        old.score,
        item.score,
        moves=tuple(now - was for was, now in sides if was is not None and now is not None),
        alike=are_alike(old, item),
        seeds=len(sides),
    )


def are_alike(old: BaselineItem, item: BaselineItem) -> bool:
    """Tell whether all edits of an item look as in the baseline."""
    seeds = list(zip(old.seeds, item.seeds, strict=False))
    return bool(seeds) and all(before.is_alike(now) for before, now in seeds)


def max_collapsed(
    settings: results.GateOptions, moves: Sequence[Move], baseline: str
) -> tuple[results.GateResult, list[str]]:
    """Evaluate `--imgedit-max-collapsed`; return the gate and the ids of the collapsed pairs, the
    furthest fall first.

    A pair collapsed if its edit looks otherwise than in the baseline and it fell by
    `gates.collapse` points or more. The gate fails if there are more of them than allowed, and the
    others are beyond chance (`p_collapsed`). Pairs without a score that could turn the gate leave
    it inconclusive, and so does a mean that fell so far without proof.
    """
    compared = [move for move in moves if move.difference is not None]
    fallen = _collapsed(compared, settings.collapse)
    allowed = gates.allowed_pairs(settings.max_collapsed, len(moves))
    state, why, p = _decide(settings, compared, allowed)
    warns = state == "INCONCLUSIVE"
    lost = [_at_worst(move) for move in moves if move.difference is None]
    if not compared:
        state, why = "INVALID", "no pair has a score on both sides"
    elif lost and state != "FAIL" and _decide(settings, [*compared, *lost], allowed)[0] == "FAIL":
        state, warns = "INCONCLUSIVE", False
        why = f"the pairs without a score ({len(lost)}) may have collapsed too"
    elif p is not None and state != "FAIL":
        mean = fmean(move.difference or 0.0 for move in _without(fallen[:allowed], compared))
        if mean <= -settings.collapse:
            state, warns = "INCONCLUSIVE", False
            why += f"; but all fell by {-mean:.2f} on average"
    line = (
        f"{len(fallen)} of {sanitize.counted(len(moves), 'pair')} fell by "
        f"{settings.collapse:g} points or more against {baseline}, {allowed} allowed"
    )
    if fallen:
        named = [f"{move.pair} {move.before:.2f} → {move.now:.2f}" for move in fallen]
        line += f" ({sanitize.first_of(named)})"
    if why:
        line += f": {why}"
    gate = results.GateResult(
        "overall",
        "max_collapsed",
        allowed,
        len(fallen),
        state,
        line,
        p,
        warns=warns,
    )
    return gate, [move.pair for move in fallen]


def _collapsed(moves: Sequence[Move], least: float) -> list[Move]:
    return sorted(
        (move for move in moves if not move.alike and (move.difference or 0.0) <= -least),
        key=lambda move: (move.difference, move.pair),
    )


def _without(left_out: Sequence[Move], moves: Sequence[Move]) -> list[Move]:
    return [move for move in moves if move not in left_out]


def _at_worst(move: Move) -> Move:
    """Give a pair without a score the furthest fall that it could have."""
    before = 10.0 if move.before is None else move.before
    now = 0.0 if move.now is None else move.now
    return replace(
        move, before=before, now=now, moves=(now - before,) * max(1, move.seeds), alike=False
    )


def _decide(
    settings: results.GateOptions, compared: Sequence[Move], allowed: int
) -> tuple[results.State, str, float | None]:
    fallen = _collapsed(compared, settings.collapse)
    if len(fallen) <= allowed:
        return "PASS", "", None
    p, what = p_collapsed(_without(fallen[:allowed], compared), settings.collapse)
    if p <= settings.alpha_of("max_collapsed"):
        return "FAIL", f"{what} ({sanitize.p_value(p)})", p
    why = (
        f"not shown to be more than chance ({sanitize.p_value(p)}), which more pairs or seeds "
        "would tell"
    )
    return "INCONCLUSIVE" if settings.strict else "PASS", why, p


def p_collapsed(moves: Sequence[Move], least: float) -> tuple[float, str]:
    """One-sided p value that changed edits fall by `least` points by chance alone, and what speaks
    against it.

    If at least half of the edits look as in the baseline, their scores show the noise of the judge:
    p is that of Fisher's exact test that changed edits fall so far no more often than those. It
    holds for every noise that is independent between pairs. Otherwise it is `p_falls_outweigh`. The
    choice between the two depends on how edits look, and never on scores.
    """
    alike = sum(move.alike for move in moves)
    if 2 * alike < len(moves):
        return p_falls_outweigh(moves, least), "falls outweigh rises"
    falls = sum((move.difference or 0.0) <= -least for move in moves)
    fallen = len(_collapsed(moves, least))
    changed = len(moves) - alike
    tables = sum(
        comb(changed, count) * comb(alike, falls - count)
        for count in range(fallen, min(falls, changed) + 1)
    )
    unchanged = sanitize.counted(alike, "pair")
    return (
        tables / comb(len(moves), falls),
        f"{falls - fallen} of the {unchanged} with unchanged edits fell so far",
    )


def p_falls_outweigh(moves: Sequence[Move], least: float) -> float:
    """One-sided p value that falls weigh no more than rises, each pair with the square of its mean
    difference.

    A sign-flip test: if nothing has changed, the difference of a repetition is as likely to be a
    rise as a fall. All pairs of a source are flipped together, each seed separately, so that G
    sources and S seeds never give less than 2^-GS. The squares let few large moves outweigh many
    small ones. If the median pair fell by under `least` points, that is taken off all pairs: what
    most pairs did is for gates on the mean.
    """
    shift = min(0.0, float(np.median([move.difference or 0.0 for move in moves])))
    if -least < shift < 0:
        moves = [replace(move, moves=tuple(size - shift for size in move.moves)) for move in moves]
    moved = [move for move in moves if any(move.moves)]
    if not moved:
        return 1.0
    seeds = max(len(move.moves) for move in moved)
    sizes = np.array([[*move.moves, *[0.0] * (seeds - len(move.moves))] for move in moved]) / seeds
    _, source = np.unique([move.source for move in moved], return_inverse=True)
    units = source[:, None] * seeds + np.arange(seeds)
    means = sizes.sum(axis=1)
    limit = _weigh(means) + 1e-9 * float((means**2).sum())
    return estimates.share_of_flips(
        lambda signs: _weigh((signs[:, units] * sizes).sum(axis=2)) <= limit,
        (int(source.max()) + 1) * seeds,
    )


def _weigh(means: NDArray[np.float64]) -> Any:
    return (means * np.abs(means)).sum(axis=-1)
