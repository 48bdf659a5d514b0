"""The gate on the tail: pairs that fell by far more than their own noise explains, which a mean hardly shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from pytest_imgedit.stats.coverage import allowed_pairs
from pytest_imgedit.stats.estimates import ENOUGH, signs
from pytest_imgedit.stats.gates import GateResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_imgedit.config import GatesSettings
    from pytest_imgedit.stats.gates import State

    Document = Mapping[str, Any]

#: How many collapsed pairs a gate's line names.
NAMED = 5


@dataclass(frozen=True)
class Move:
    """How one pair moved against its baseline; a score is `None` where there is none on that side.

    `moves` holds the difference of each repetition with a score on both sides. `same_edits` says that all its edits
    are, byte for byte, those of the baseline.
    """

    pair: str
    source: str
    before: float | None
    now: float | None
    moves: tuple[float, ...]
    same_edits: bool

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.now is None else round(self.now - self.before, 6)


@dataclass(frozen=True)
class Noise:
    """Standard deviation, in points, of a pair's difference when nothing has changed, from so many equal edits."""

    points: float
    edits: int


def moves_between(before: Iterable[Document], now: Iterable[Document]) -> list[Move]:
    """Pair the items of a run with those of a baseline by id."""
    old = {item["id"]: item for item in before}
    return [_move(old[item["id"]], item) for item in now]


def _move(old: Document, item: Document) -> Move:
    sides = list(zip(old["seeds"], item["seeds"], strict=False))
    scores = [(_score(was), _score(seed)) for was, seed in sides]
    return Move(
        item["id"],
        item["source"] or item["id"],
        old["score"],
        item["score"],
        tuple(now - before for before, now in scores if before is not None and now is not None),
        same_edits(old, item),
    )


def same_edits(old: Document, item: Document) -> bool:
    """Tell whether all edits of an item are, byte for byte, those of the baseline."""
    edits = [(_edit(was), _edit(seed)) for was, seed in zip(old["seeds"], item["seeds"], strict=False)]
    return bool(edits) and all(before is not None and before == now for before, now in edits)


def _score(seed: Document) -> float | None:
    """Score of a repetition, as a baseline or a results document holds it."""
    verdict = seed.get("verdict")
    score = seed.get("score") if verdict is None else verdict["score"]
    return None if score is None else float(score)


def _edit(seed: Document) -> str | None:
    """Blob of a repetition's edit, as a baseline or a results document holds it."""
    edit = seed.get("edit")
    return edit["blob"] if isinstance(edit, dict) else edit


def measure_noise(moves: Sequence[Move]) -> Noise | None:
    """Find how far a pair's difference moves when nothing has changed; `None` where nothing in the two runs tells.

    Edits that are byte for byte the baseline's tell it, if they are at least half of all and `ENOUGH`: only what was
    changed has moved then, and their root mean square difference is the judge's noise.
    """
    compared = [move for move in moves if move.difference is not None]
    same = [move.difference or 0.0 for move in compared if move.same_edits]
    if len(same) < max(ENOUGH, len(compared) / 2):
        return None
    return Noise(float(np.sqrt(np.mean(np.square(same)))), len(same))


def max_collapsed(settings: GatesSettings, moves: Sequence[Move], baseline: str) -> tuple[GateResult, list[str]]:
    """Evaluate `--imgedit-max-collapsed`; return the gate and the ids of the collapsed pairs, the furthest fall first.

    A pair collapsed if it fell by `gates.collapse` points or more, and by more than the largest of so many pairs falls
    by chance, where the noise is known (normal noise, `gates.alpha` for all pairs together). More of them than allowed
    are a FAIL where the noise is known, and where falls outweigh rises beyond what the noise of the seeds explains.
    """
    noise, compared = measure_noise(moves), [move for move in moves if move.difference is not None]
    allowed = allowed_pairs(settings.max_collapsed, len(moves))
    least = settings.collapse
    if noise is not None:
        least = max(least, noise.points * -float(ndtri(settings.alpha / len(compared))))
    fallen = sorted((move for move in compared if _fell(move, least)), key=lambda move: (move.difference, move.pair))
    count = len(fallen)
    p = None if noise is not None or count <= allowed else p_falls_outweigh(compared)
    state, why = _decide(settings, count, allowed, p, noise)
    unknown = sum(move.difference is None and (move.before is None or move.before >= least) for move in moves)
    if noise is not None and state == "PASS" and unknown and count + unknown > allowed:
        state = "INCONCLUSIVE"
        why = f"the pairs without a score ({unknown}) may have collapsed too"
    if not compared:
        state, why = "INVALID", "no pair has a score on both sides"
    named = ", ".join(f"{move.pair} {move.before:.2f} → {move.now:.2f}" for move in fallen[:NAMED])
    more = f" and {count - NAMED} more" if count > NAMED else ""
    line = f"{count} of {len(moves)} pairs fell by {least:.3g} points or more against {baseline}, {allowed} allowed"
    line += f" ({named}{more})" if named else ""
    result = GateResult("overall", "max_collapsed", allowed, count, state, f"{line}: {why}" if why else line, p)
    return result, [move.pair for move in fallen]


def _fell(move: Move, least: float) -> bool:
    return move.difference is not None and move.difference <= -least


def _decide(
    settings: GatesSettings, count: int, allowed: int, p: float | None, noise: Noise | None
) -> tuple[State, str]:
    if count <= allowed:
        return "PASS", ""
    if noise is not None:
        return "FAIL", f"{noise.edits} edits are those of the baseline, and moved by {noise.points:.2g}"
    if p is not None and p <= settings.alpha:
        return "FAIL", f"falls outweigh rises (p {p:.2g})"
    state: State = "INCONCLUSIVE" if settings.strict else "PASS"
    return state, f"not shown to be more than chance (p {p or 0.0:.2g}), which more seeds would tell"


def p_falls_outweigh(moves: Sequence[Move]) -> float:
    """One-sided p value that falls weigh no more than rises, each pair with the square of its mean difference.

    A sign-flip test: if nothing has changed, the difference of a repetition is as likely to be a rise as a fall. All
    pairs of a source are flipped together, each seed by itself, so that G sources and S seeds never give less than
    2^-GS. The squares let few large moves outweigh many small ones.
    """
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
