"""The judge's own noise: every edit is judged again in ways that should not matter, and the scores are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_imgedit.core.results import Noise, NoiseRow
from pytest_imgedit.engine.perturbations import PERTURBATIONS
from pytest_imgedit.engine.work import Work
from pytest_imgedit.stats.estimates import estimate

#: Points by which a score must move to show in two decimals.
VISIBLE = 0.005


def plan_repeats(plan: Sequence[Work], count: int, has_order: bool) -> list[Work]:
    """Return the edits of a plan to be judged `count` times more; without `has_order`, their order is left alone."""
    kinds = [name for name in PERTURBATIONS if has_order or name != "order"]
    return [
        replace(
            work, verdict=None, failures=0, reminders=[], perturbation=kinds[repeat % len(kinds)], repeat=repeat + 1
        )
        for repeat in range(count)
        for work in plan
        if work.error is None and work.edit is not None
    ]


def describe_noise(plan: Sequence[Work], repeats: Sequence[Work]) -> Noise:
    """Describe how far scores move when only the judging changes.

    Each row is one repeat, with `n` pairs that have a score in both judgings, `errors` and `pending` of the others,
    all in pairs: `shift` of the overall (macro) score, `sd` of the change of a pair's score (about 0), how many scores
    `changed` by `VISIBLE` points. `floor` is the root mean square of the shifts, `None` if there is none; that of
    `order` does not count, since runs that are compared show images in the same order.
    """
    first = _by_pair(plan)
    rows: list[NoiseRow] = []
    shifts: list[float] = []
    for number in dict.fromkeys(work.repeat for work in repeats):
        mine = [work for work in repeats if work.repeat == number]
        again = _by_pair(mine)
        known = [name for name, score in again.items() if score is not None and first.get(name) is not None]
        moves = [(again[name] or 0.0) - (first[name] or 0.0) for name in known]
        of = {work.pair.id: work for work in mine}
        waiting = {work.pair.id for work in mine if work.is_open} - set(known)
        whole = estimate(moves, known, [of[name].pair.category for name in known]) if known else None
        rows.append(
            NoiseRow(
                perturbation=mine[0].perturbation,
                n=len(known),
                errors=len(again) - len(known) - len(waiting),
                pending=len(waiting),
                changed=sum(abs(move) >= VISIBLE for move in moves),
                shift=None if whole is None else whole.mean,
                sd=float(np.sqrt(np.mean(np.square(moves)))) if moves else None,
            )
        )
        shifts += [whole.mean] if whole and mine[0].perturbation != "order" else []
    floor = math.sqrt(sum(shift**2 for shift in shifts) / len(shifts)) if shifts else None
    return Noise(rows=tuple(rows), floor=floor)


def _by_pair(works: Sequence[Work]) -> dict[str, float | None]:
    """Mean score of each pair over its seeds; `None` where one seed has no verdict."""
    scores: dict[str, list[float | None]] = {}
    for work in works:
        scores.setdefault(work.pair.id, []).append(None if work.verdict is None else work.verdict.score)
    return {
        name: None if any(score is None for score in own) else sum(score or 0.0 for score in own) / len(own)
        for name, own in scores.items()
    }
