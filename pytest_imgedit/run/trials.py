"""Trials of the judge: edits of known quality, and the run's own edits to be judged again."""

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core import requests, results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.run.edit import edit_request, store_edit, stored_edit
from pytest_imgedit.run.score import PERTURBATIONS
from pytest_imgedit.run.work import SelectedShard, Work, by_pair, grouped, make_works, missing_edits
from pytest_imgedit.stats import controls, estimates
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers import base, editing

#: Number of pairs of each category on which the judge is tried, and the minimum of all pairs.
SAMPLE, ALTOGETHER = 4, 20
#: Points by which a score must move to show in two decimals.
VISIBLE = 0.005


def plan_controls(
    suite: Suite,
    pairs: Sequence[EditPair],
    store: Store,
    run: RunSettings,
    judge: Model,
    shard: SelectedShard | None = None,
) -> dict[str, list[Work]]:
    """Edit a sample of pairs with every control, here and now; return the works to score, by
    control.

    The sample is drawn from the pairs of the suite that have a reference, whichever `pairs` are
    selected, so that one trial serves all runs of the suite. If fewer than `ENOUGH` pairs have one,
    the sample is drawn from the selected pairs, without the controls that need references. The
    sample is decided by ids; a shard takes its part of it. Edits are stored like any other; stage
    `report` uses stored ones only.
    """
    sample = _sample([pair for pair in suite.pairs if pair.reference is not None])
    if len(sample) < min(estimates.ENOUGH, len(suite.pairs)):
        sample = _sample(pairs if shard is None else shard.pairs)
    tried = [pair for pair in sample if shard is None or shard.tries(pair)]
    trials: dict[str, list[Work]] = {}
    for name in controls.EDITED:
        control = make_model("editor", name, {})
        needs_reference = control.shown_reference is not None
        if needs_reference and any(pair.reference is None for pair in sample):
            continue
        identity = identify(control, store.fingerprints)
        works = [
            work
            for work in make_works(tried, suite.pairs, identity, store)
            if not needs_reference or work.shown is not None or work.error
        ]
        for work in works:
            if work.error is None:
                work.edit = stored_edit(work, identity, store, run.reuse)
        _edit(missing_edits(works), identity, store, run.stage)
        if works:
            trials[name] = works
    if not judge.blind_to_words and (right := trials.get("oracle")):
        trials[controls.COUNTERFACTUAL] = list(_counterfactual(right, suite.pairs))
    return trials


def _counterfactual(right: Sequence[Work], pairs: Sequence[EditPair]) -> Iterator[Work]:
    """Yield right edits with the instruction of another pair, of the same source or else of the
    same category.

    A pair is left out if all other instructions may be true of its edit too.
    """
    for work in right:
        pair = work.pair
        others = [other for other in pairs if not _may_be_true(other, pair)]
        near = [other for other in others if other.source == pair.source]
        near += [other for other in others if other.category == pair.category]
        if work.error is None and near:
            words = replace(
                pair, instruction=near[0].instruction, reference_text=near[0].reference_text
            )
            yield replace(work, pair=words, answers={})


def _may_be_true(other: EditPair, pair: EditPair) -> bool:
    """Tell whether the instruction of `other` may describe a right edit of `pair`: it has the same
    words or the same result, or one contains the other.
    """
    asked, also = _words(pair.instruction), _words(other.instruction)
    return asked <= also or also <= asked or other.reference == pair.reference


def _words(text: str) -> frozenset[str]:
    """Return the words of a text; of a script without spaces, its characters."""
    return frozenset(re.findall(r"[a-z0-9]+|[^\W\da-z_]", text.casefold()))


def _edit(works: Sequence[Work], control: Identity, store: Store, stage: str) -> None:
    editor = control.model.target.build("cpu", {})
    worker = base.Worker(base.Slot("controls", ()), environment=control.here)
    for work in works:
        if stage == "report":
            work.fail(
                "edit", "not_edited", "the store has no such edit, and stage 'report' makes none"
            )
            continue
        store.remember(control.digest, control.recipe)
        try:
            output = editing.make_edit(
                editor.edit,
                requests.EditRequest.decoded(vars(edit_request(work))),
                control.model.may_be_blank,
            )
        except Exception as error:  # such as an image that does not decode
            work.fail("edit", *editing.describe(error))
        else:
            store_edit(work, control, worker, output, store)


def _sample(pairs: Sequence[EditPair]) -> list[EditPair]:
    """Choose `SAMPLE` pairs of each category, or more, up to `ALTOGETHER`, if there are few."""
    groups = grouped(
        sorted(pairs, key=lambda pair: hashlib.sha256(pair.id.encode()).digest()),
        lambda pair: pair.category,
    ).values()
    size = max(SAMPLE, math.ceil(ALTOGETHER / max(1, len(groups))))
    return [pair for group in groups for pair in group[:size]]


def control_trials(works: dict[str, list[Work]]) -> list[results.ControlTrial]:
    """Return the judge's score of every control on every pair."""
    return [
        results.ControlTrial(
            control=name,
            pair=work.pair.id,
            cluster=work.source.sha256 if work.source else work.pair.id,
            score=None if work.verdict is None else work.verdict.score,
            pending=work.is_open,
        )
        for name, trials in works.items()
        for work in trials
    ]


def plan_repeats(plan: Sequence[Work], count: int, has_order: bool) -> list[Work]:
    """Return the edits of a plan to be judged `count` more times; without `has_order`, images keep
    their order.
    """
    kinds = [name for name in PERTURBATIONS if has_order or name != "order"]
    return [
        replace(
            work,
            verdict=None,
            failures=0,
            answers={},
            perturbation=kinds[repeat % len(kinds)],
            repeat=repeat + 1,
        )
        for repeat in range(count)
        for work in plan
        if work.error is None and work.edit is not None
    ]


def describe_noise(plan: Sequence[Work], repeats: Sequence[Work]) -> results.Noise:
    """Describe how far scores move when only the judging changes.

    Each row is one repeat, and counts pairs: `n` have a score in both judgings, the others are
    `errors` or `pending`. `shift` is that of the overall (macro) score, `sd` the root mean square
    change of a pair's score, and `changed` how many scores moved by `VISIBLE` points. `floor` is
    the root mean square of the shifts, `None` without any. Repeats with another `order` do not
    count there, since runs that are compared show images in the same order.
    """
    before = _mean_scores(plan)
    rows: list[results.NoiseRow] = []
    shifts: list[float] = []
    for works in grouped(repeats, lambda work: work.repeat).values():
        after = _mean_scores(works)
        categories = {work.pair.id: work.pair.category for work in works}
        moves = {pair: score - before[pair] for pair, score in after.items() if pair in before}
        pending = {work.pair.id for work in works if work.is_open} - set(moves)
        shift = sd = None
        if moves:
            shift = estimates.estimate(
                list(moves.values()), list(moves), [categories[pair] for pair in moves]
            ).mean
            sd = float(np.sqrt(np.mean(np.square(list(moves.values())))))
            if works[0].perturbation != "order":
                shifts.append(shift)
        rows.append(
            results.NoiseRow(
                perturbation=works[0].perturbation,
                n=len(moves),
                errors=len(categories) - len(moves) - len(pending),
                pending=len(pending),
                changed=sum(abs(move) >= VISIBLE for move in moves.values()),
                shift=shift,
                sd=sd,
            )
        )
    return results.Noise(
        rows=tuple(rows),
        floor=math.sqrt(sum(shift**2 for shift in shifts) / len(shifts)) if shifts else None,
    )


def _mean_scores(works: Sequence[Work]) -> dict[str, float]:
    """Return the mean score over the seeds of each pair whose seeds all have a verdict."""
    means = {}
    for pair, seeds in by_pair(works).items():
        scores = [work.verdict.score for work in seeds if work.verdict is not None]
        if len(scores) == len(seeds):
            means[pair] = sum(scores) / len(scores)
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
    def remaining(self) -> int:
        """The number of trials that were cut off when the run was stopped."""
        return sum(work.verdict is None and work.error is None for work in self.works)
