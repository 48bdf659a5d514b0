"""Judge qualification: edits of known quality, to be scored like any other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import ControlTrial
from pytest_imgedit.engine.edit_stage import edit_message, store_edit, stored_edit
from pytest_imgedit.engine.plan import RunPlan
from pytest_imgedit.engine.work import Seeds, Work, make_works
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.stats.controls import CONTROLS
from pytest_imgedit.stats.estimates import ENOUGH
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.messages import describe, make_edit

#: Pairs of each category on which the judge is tried, and pairs altogether where there are few categories.
SAMPLE, ALTOGETHER = 4, 20

WorksByControl = dict[str, list["Work"]]


def plan_controls(plan: RunPlan, pairs: Sequence[EditPair]) -> WorksByControl:
    """Edit a sample of pairs with every control, here and now, and return the work to be scored by control.

    Pairs of the suite that have a reference are taken, whichever `pairs` are selected, so that one trial serves all
    runs of the suite. Where they are of fewer than `ENOUGH` sources, selected pairs are taken, and the controls that
    need references left out. The sample is decided by ids; a shard takes its part of it. Edits are kept in the store
    like any other; in stage `report`, only those that are there already count.
    """
    suite, store, run, shard = plan.suite, plan.store, plan.settings.run, plan.request.shard
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
        works = [work for work in works if not needs_reference or work.shown is not None or work.error]
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
        made = make_edit(editor.edit, edit_message(work), may_be_blank=identity.model.may_be_blank)
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
