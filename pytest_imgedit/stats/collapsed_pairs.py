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

from pytest_imgedit.core import results
from pytest_imgedit.core.measures import OVERALL, SCORE, SCORE_ONLY
from pytest_imgedit.core.text import counted, first_of, p_value
from pytest_imgedit.stats import estimates, gate_values
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
    """Return the move of each item of a run from the baseline's item of its id, which there is."""
    old = {item.id: item for item in before}
    return [_move(old[item.id], item) for item in now]


def _move(old: BaselineItem, item: BaselineItem) -> Move:
    """Return the move of an item from the `old` one, over the seeds that both have."""
    moves = []
    seeds = list(zip(old.seeds, item.seeds, strict=False))
    for was, now in seeds:
        if was.score is not None and now.score is not None:
            moves.append(now.score - was.score)
    return Move(
        pair=item.id,
        source=item.cluster,
        before=old.score,
        now=item.score,
        moves=tuple(moves),
        alike=are_alike(old, item),
        seeds=len(seeds),
    )


def are_alike(old: BaselineItem, item: BaselineItem) -> bool:
    """Tell whether the edits of all seeds of an item, at least one, look as in the baseline."""
    seeds = list(zip(old.seeds, item.seeds, strict=False))
    return bool(seeds) and all(before.is_alike(now) for before, now in seeds)


def max_collapsed(
    settings: results.GateOptions, moves: Sequence[Move], baseline: str
) -> tuple[results.GateResult, list[str]]:
    """Evaluate `--imgedit-max-collapsed`; return the gate and the ids of the collapsed pairs, the
    furthest fall first.

    A pair collapsed if its edits do not all look as in the baseline, and it fell by
    `gates.collapse` points or more. The gate fails if more pairs collapsed than are allowed, and
    falls are beyond chance even without the furthest ones, as many as are allowed (`p_collapsed`).
    It is invalid if no pair has a score on both sides. Pairs without a score that could turn the
    gate leave it inconclusive, and so does a mean that fell so far without proof.
    """
    compared = [move for move in moves if move.difference is not None]
    fallen = _collapsed(compared, settings.collapse)
    allowed = gate_values.allowed_pairs(settings.max_collapsed, len(moves))
    decision = _decide(settings, moves, allowed)
    line = (
        f"{len(fallen)} of {counted(len(moves), 'pair')} fell by "
        f"{settings.collapse:g} points or more against {baseline}, {allowed} allowed"
    )
    if fallen:
        named = [f"{move.pair} {move.before:.2f} → {move.now:.2f}" for move in fallen]
        line += f" ({first_of(named)})"
    if decision.why:
        line += f": {decision.why}"
    gate = results.GateResult(
        OVERALL,
        "max_collapsed",
        allowed,
        value=len(fallen),
        state=decision.state,
        why=line,
        p=decision.p,
        warns=decision.warns,
    )
    return gate, [move.pair for move in fallen]


@dataclass(frozen=True)
class _Decision:
    """What the moves of pairs say of the gate, and why; `warns` is that of `GateResult`."""

    state: results.State
    why: str = ""
    p: float | None = None
    warns: bool = False


def _collapsed(moves: Sequence[Move], least: float) -> list[Move]:
    """Return the pairs that fell by `least` points or more, and whose edits are not alike; the
    furthest fall first.
    """
    fallen = [move for move in moves if not move.alike and (move.difference or 0.0) <= -least]
    return sorted(fallen, key=lambda move: (move.difference, move.pair))


def _without(left_out: Sequence[Move], moves: Sequence[Move]) -> list[Move]:
    return [move for move in moves if move not in left_out]


def _at_worst(move: Move) -> Move:
    """Return a pair without a score with the furthest fall that it could have, of all its seeds."""
    lowest, highest = SCORE_ONLY[SCORE].ends
    before = highest if move.before is None else move.before
    now = lowest if move.now is None else move.now
    moves = (now - before,) * max(1, move.seeds)
    return replace(move, before=before, now=now, moves=moves, alike=False)


def _decide(settings: results.GateOptions, moves: Sequence[Move], allowed: int) -> _Decision:
    """Decide the gate by the pairs with a score on both sides, and by whether the others and the
    mean leave that standing.
    """
    compared = [move for move in moves if move.difference is not None]
    if not compared:
        return _Decision("INVALID", "no pair has a score on both sides")
    decision = _decide_compared(settings, compared, allowed)
    if decision.state == "FAIL":
        return decision
    lost = [_at_worst(move) for move in moves if move.difference is None]
    if lost and _decide_compared(settings, compared + lost, allowed).state == "FAIL":
        why = f"the pairs without a score ({len(lost)}) may have collapsed too"
        return replace(decision, state="INCONCLUSIVE", why=why, warns=False)
    fallen = _collapsed(compared, settings.collapse)
    return _against_mean(decision, _without(fallen[:allowed], compared), settings)


def _decide_compared(
    settings: results.GateOptions, compared: Sequence[Move], allowed: int
) -> _Decision:
    """Decide the gate by pairs with a score on both sides: PASS without a p if no more than
    `allowed` collapsed. What is not beyond chance is a PASS, under `gates.strict` a warning.
    """
    fallen = _collapsed(compared, settings.collapse)
    if len(fallen) <= allowed:
        return _Decision("PASS")
    p, evidence = p_collapsed(_without(fallen[:allowed], compared), settings.collapse)
    if p <= settings.alpha_of("max_collapsed"):
        return _Decision("FAIL", f"{evidence} ({p_value(p)})", p)
    why = f"not shown to be more than chance ({p_value(p)}), which more pairs or seeds would tell"
    if settings.strict:
        return _Decision("INCONCLUSIVE", why, p, warns=True)
    return _Decision("PASS", why, p)


def _against_mean(
    decision: _Decision, moves: Sequence[Move], settings: results.GateOptions
) -> _Decision:
    """Leave the gate inconclusive if more pairs than allowed collapsed without proof, and the
    others, `moves`, fell by `gates.collapse` on average.
    """
    if decision.p is None:
        return decision
    mean = fmean(move.difference or 0.0 for move in moves)
    if mean > -settings.collapse:
        return decision
    why = f"{decision.why}; but all fell by {-mean:.2f} on average"
    return replace(decision, state="INCONCLUSIVE", why=why, warns=False)


def p_collapsed(moves: Sequence[Move], least: float) -> tuple[float, str]:
    """Return the one-sided p value of "changed edits fall by `least` points by chance alone", and
    words for what speaks against it.

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
    # hypergeometric: the chance that as many of the falls, or more, are among the changed edits
    tables = sum(
        comb(changed, count) * comb(alike, falls - count)
        for count in range(fallen, min(falls, changed) + 1)
    )
    unchanged = counted(alike, "pair")
    evidence = f"{falls - fallen} of the {unchanged} with unchanged edits fell so far"
    return tables / comb(len(moves), falls), evidence


def p_falls_outweigh(moves: Sequence[Move], least: float) -> float:
    """Return the one-sided p value of "falls weigh no more than rises", where each pair weighs the
    square of its mean difference; 1 if nothing moved.

    A sign-flip test: if nothing has changed, the difference of a repetition is as likely to be a
    rise as a fall. All pairs of a source are flipped together, each seed separately, so that G
    sources and S seeds never give less than 2^-GS. The squares let few large moves outweigh many
    small ones. If the median pair fell by under `least` points, that is taken off all pairs: what
    most pairs did is for gates on the mean.
    """
    shift = min(0.0, float(np.median([move.difference or 0.0 for move in moves])))
    if -least < shift < 0:
        moves = [_shifted(move, shift) for move in moves]
    moved = [move for move in moves if any(move.moves)]
    if not moved:
        return 1.0
    seeds = max(len(move.moves) for move in moved)
    sizes = np.zeros((len(moved), seeds))
    for row, move in zip(sizes, moved, strict=True):
        row[: len(move.moves)] = move.moves
    sizes /= seeds  # so that the sum over the seeds of a pair is its mean
    _, source = np.unique([move.source for move in moved], return_inverse=True)
    units = source[:, None] * seeds + np.arange(seeds)  # what is flipped together, by pair and seed
    means = sizes.sum(axis=1)
    # sums that differ by rounding alone are equal
    limit = _rises_less_falls(means) + estimates.ROUNDING * float((means**2).sum())
    count = (int(source.max()) + 1) * seeds

    def is_extreme(signs: NDArray[np.int8]) -> NDArray[np.bool_]:
        flipped = (signs[:, units] * sizes).sum(axis=2)
        return np.asarray(_rises_less_falls(flipped) <= limit)

    return estimates.share_of_flips(is_extreme, count)


def _shifted(move: Move, shift: float) -> Move:
    """Take a shift off all repetitions of a pair."""
    return replace(move, moves=tuple(size - shift for size in move.moves))


def _rises_less_falls(means: NDArray[np.float64]) -> Any:
    """Return the sum of the squares of rises minus that of falls, over the last axis: Σ m·|m|."""
    return (means * np.abs(means)).sum(axis=-1)
