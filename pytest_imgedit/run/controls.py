"""Trials of the judge: edits of known quality, and the run's own edits to be judged again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.results import ControlTrial, Noise, NoiseRow
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.run.edit import edit_request, store_edit, stored_edit
from pytest_imgedit.run.score import PERTURBATIONS
from pytest_imgedit.run.work import Seeds, SelectedShard, Work, make_works
from pytest_imgedit.stats.controls import CONTROLS
from pytest_imgedit.stats.estimates import ENOUGH, estimate
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.editing import describe, make_edit

#: Pairs of each category on which the judge is tried, and pairs altogether where there are few
#: categories.
SAMPLE, ALTOGETHER = 4, 20

WorksByControl = dict[str, list["Work"]]


def plan_controls(
    suite: Suite,
    pairs: Sequence[EditPair],
    store: Store,
    run: RunSettings,
    shard: SelectedShard | None = None,
) -> WorksByControl:
    """Edit a sample of pairs with every control, here and now, and return the work to be scored by
    control.

    Pairs of the suite that have a reference are taken, whichever `pairs` are selected, so that one
    trial serves all runs of the suite. Where they are of fewer than `ENOUGH` sources, selected
    pairs are taken, and the controls that need references left out. The sample is decided by ids; a
    shard takes its part of it. Edits are kept in the store like any other; in stage `report`, only
    those that are there already count.
    """
    sample = _sample([pair for pair in suite.pairs if pair.reference is not None])
    if len(sample) < min(ENOUGH, len(suite.pairs)):
        sample = _sample(pairs if shard is None else shard.pairs)
    tried = [pair for pair in sample if shard is None or shard.tries(pair)]
    trials: WorksByControl = {}
    for name in CONTROLS:
        control = make_model("editor", name, {})
        needs_reference = control.shown_reference is not None
        if needs_reference and any(pair.reference is None for pair in sample):
            continue
        identity = identify(control, store.fingerprints)
        works = make_works(suite, tried, Seeds(), identity, store)
        works = [
            work for work in works if not needs_reference or work.shown is not None or work.error
        ]
        editor = control.target.build("cpu", {})
        for work in works:
            work.edit = None if work.error else stored_edit(work, identity, store, run.reuse)
            _edit(work, identity, editor, store, run.stage != "report")
        if works:
            trials[name] = works
    return trials


def _sample(pairs: Sequence[EditPair]) -> list[EditPair]:
    """Choose `SAMPLE` pairs of each category, and of few categories more, up to `ALTOGETHER`."""
    by_category: dict[str, list[EditPair]] = {}
    for pair in sorted(pairs, key=lambda pair: hashlib.sha256(pair.id.encode()).digest()):
        by_category.setdefault(pair.category, []).append(pair)
    most = max(SAMPLE, math.ceil(ALTOGETHER / max(1, len(by_category))))
    return [pair for group in by_category.values() for pair in group[:most]]


def _edit(work: Work, identity: Identity, editor: Any, store: Store, make: bool) -> None:
    if work.error is not None or work.edit is not None:
        return
    if not make:
        work.fail("edit", "not_edited", "the store has no such edit, and stage 'report' makes none")
        return
    store.remember(identity.digest, identity.recipe)
    try:
        request = EditRequest.decoded(vars(edit_request(work)))
        made = make_edit(editor.edit, request, identity.model.may_be_blank)
    except Exception as error:  # such as an image that does not decode
        work.fail("edit", *describe(error))
    else:
        store_edit(work, identity, None, made, store)


def control_trials(works: WorksByControl) -> list[ControlTrial]:
    """Return how the judge scored the controls."""
    return [
        ControlTrial(
            control=name,
            pair=work.pair.id,
            cluster=work.source.sha256 if work.source else work.pair.id,
            score=None if work.verdict is None else work.verdict.score,
            pending=work.is_open,
        )
        for name, trials in works.items()
        for work in trials
    ]


#: Points by which a score must move to show in two decimals.
VISIBLE = 0.005


def plan_repeats(plan: Sequence[Work], count: int, has_order: bool) -> list[Work]:
    """Return the edits of a plan to be judged `count` times more; without `has_order`, their order
    is left alone.
    """
    kinds = [name for name in PERTURBATIONS if has_order or name != "order"]
    return [
        replace(
            work,
            verdict=None,
            failures=0,
            reminders=[],
            perturbation=kinds[repeat % len(kinds)],
            repeat=repeat + 1,
        )
        for repeat in range(count)
        for work in plan
        if work.error is None and work.edit is not None
    ]


def describe_noise(plan: Sequence[Work], repeats: Sequence[Work]) -> Noise:
    """Describe how far scores move when only the judging changes.

    Each row is one repeat, with `n` pairs that have a score in both judgings, `errors` and
    `pending` of the others, all in pairs: `shift` of the overall (macro) score, `sd` of the change
    of a pair's score (about 0), how many scores `changed` by `VISIBLE` points. `floor` is the root
    mean square of the shifts, `None` if there is none; that of `order` does not count, since runs
    that are compared show images in the same order.
    """
    first = _by_pair(plan)
    rows: list[NoiseRow] = []
    shifts: list[float] = []
    for number in dict.fromkeys(work.repeat for work in repeats):
        mine = [work for work in repeats if work.repeat == number]
        again = _by_pair(mine)
        known = [
            name
            for name, score in again.items()
            if score is not None and first.get(name) is not None
        ]
        moves = [(again[name] or 0.0) - (first[name] or 0.0) for name in known]
        of = {work.pair.id: work for work in mine}
        waiting = {work.pair.id for work in mine if work.is_open} - set(known)
        whole = (
            estimate(moves, known, [of[name].pair.category for name in known]) if known else None
        )
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
        scores.setdefault(work.pair.id, []).append(
            None if work.verdict is None else work.verdict.score
        )
    means: dict[str, float | None] = dict.fromkeys(scores)
    for name, of_seeds in scores.items():
        known = [score for score in of_seeds if score is not None]
        if len(known) == len(of_seeds):
            means[name] = sum(known) / len(known)
    return means


@dataclass(frozen=True)
class Trials:
    """Edits of known quality by control, and the run's own edits to be judged again."""

    controls: dict[str, list[Work]] = field(default_factory=dict)
    repeats: list[Work] = field(default_factory=list)

    @property
    def works(self) -> list[Work]:
        return [*(work for works in self.controls.values() for work in works), *self.repeats]

    @property
    def left(self) -> int:
        """How many were cut off when the run was stopped."""
        return sum(work.verdict is None and work.error is None for work in self.works)
