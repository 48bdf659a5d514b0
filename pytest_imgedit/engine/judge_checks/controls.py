"""Judge qualification: edits of known quality, scored like any other, and whether the judge tells them apart."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import ControlRow, Controls, GateResult, State
from pytest_imgedit.engine.edit_stage import edit_message, store_edit, stored_edit
from pytest_imgedit.engine.plan import RunPlan
from pytest_imgedit.engine.work import Seeds, Work, make_works
from pytest_imgedit.models.identity import Identity, identify
from pytest_imgedit.models.specs import make_model
from pytest_imgedit.stats.discrimination import auc
from pytest_imgedit.stats.estimates import ENOUGH, estimate, summarize
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.messages import describe, make_edit

CONTROLS = ("oracle", "identity", "shuffled", "blank", "noise")
#: Pairs of each category on which the judge is tried, and pairs altogether where there are few categories.
SAMPLE, ALTOGETHER = 4, 20
#: Where no pair has a reference, an edit that is known to be worthless must stay under this score.
WORTHLESS = 5.0
#: Chance that a right edit is scored over a worthless one, and points by which it is on average, from which on a judge
#: tells them apart.
ENOUGH_AUC, ENOUGH_POINTS = 0.9, 1.0
_STATES = ("INVALID", "INCONCLUSIVE")

WorksByControl = dict[str, list["Work"]]


def plan_controls(plan: RunPlan, pairs: Sequence[EditPair]) -> WorksByControl:
    """Edit a sample of pairs with every control, here and now, and return the work to be scored by control.

    Pairs of the suite that have a reference are taken, whichever `pairs` are selected, so that one trial serves all
    runs of the suite. Where they are of fewer than `ENOUGH` sources, selected pairs are taken, and the controls that
    need references left out. The sample is decided by ids. Edits are kept in the store like any other; in stage
    `report`, only those that are there already count.
    """
    suite, store, run = plan.suite, plan.store, plan.settings.run
    sample = _sample([pair for pair in suite.pairs if pair.reference is not None])
    if len(sample) < min(ENOUGH, len(suite.pairs)):
        sample = _sample(pairs)
    trials: WorksByControl = {}
    for name in CONTROLS:
        control = make_model("editor", name, {})
        needs_reference = control.shown_reference is not None
        if needs_reference and any(pair.reference is None for pair in sample):
            continue
        identity = identify(control, store.fingerprints)
        works = make_works(suite, sample, Seeds(), identity, store)
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


def describe_controls(trials: WorksByControl, own: Mapping[str, float], alpha: float) -> Controls:
    """Describe how the judge scored the controls.

    Where no pair has a reference, they must stay under `WORTHLESS`, and be worth less than the run's own edits (`own`,
    scores by pair).
    """
    has_oracle = "oracle" in trials
    waiting = any(work.is_open for works in trials.values() for work in works)
    best = {work.pair.id: work.verdict.score for work in trials.get("oracle", ()) if work.verdict is not None}
    rows = []
    for name, works in trials.items():
        scored = {work.pair.id: (work.verdict.score, _cluster(work)) for work in works if work.verdict is not None}
        pending = sum(work.is_open for work in works)
        values, clusters = [score for score, _ in scored.values()], [cluster for _, cluster in scored.values()]
        summary = summarize(values, clusters, len(works) - len(scored) - pending, pending)
        finding = _Finding()
        if name != "oracle" and not waiting:
            finding = _told_apart(scored, best, alpha) if has_oracle else _known_worthless(scored, own, alpha)
        rows.append(ControlRow(**asdict(summary), control=name, pending=pending, **asdict(finding)))
    rows.sort(key=lambda row: (row.mean is None, -(row.mean or 0.0)))
    pairs = {work.pair.id: _cluster(work) for works in trials.values() for work in works}
    return Controls(
        pairs=len(pairs),
        sources=len(set(pairs.values())),
        has_oracle=has_oracle,
        beside_editor=bool(own),
        rows=tuple(rows),
    )


@dataclass(frozen=True)
class _Finding:
    """Whether a control is told from a right edit; see `ControlRow`."""

    p: float | None = None
    auc: float | None = None
    auc_ci95: tuple[float, float] | None = None
    state: State | None = None


def _cluster(work: Work) -> str:
    return work.source.sha256 if work.source else work.pair.id


def _known_worthless(scored: Mapping[str, tuple[float, str]], own: Mapping[str, float], alpha: float) -> _Finding:
    """Decide, without references, whether scores stay under `WORTHLESS`, and under those of an editor's `own` edits.

    Where they do not stay under its own, the editor may be to blame; where there are none, nothing shows that the judge
    gives a right edit more.
    """
    found = _told_apart(scored, dict.fromkeys(scored, WORTHLESS), alpha, points=0.0)
    if found.state != "PASS":
        return found
    found = _told_apart(scored, own, alpha) if own else _Finding(p=found.p)
    return replace(found, state="PASS" if found.state == "PASS" else "INCONCLUSIVE")


def _told_apart(
    scored: Mapping[str, tuple[float, str]], than: Mapping[str, float], alpha: float, points: float = ENOUGH_POINTS
) -> _Finding:
    """Decide whether scores are lower than those of the same pairs in `than`: by effect, and beyond chance."""
    known = [(than[name], score, cluster) for name, (score, cluster) in scored.items() if name in than]
    if not known:
        return _Finding(state="INVALID" if scored else "INCONCLUSIVE")
    right, worthless, clusters = zip(*known, strict=True)
    found = estimate([score - better for better, score, _ in known], clusters)
    p, (area, ends) = found.p_below(0), auc(right, worthless, clusters)
    state: State = "INVALID"
    far = -found.mean >= points
    if p <= alpha and area >= ENOUGH_AUC and far:
        state = "PASS"
    elif not found.can_show(alpha) or (p <= alpha and ends[1] >= ENOUGH_AUC and far):
        state = "INCONCLUSIVE"
    return _Finding(p, area, ends, state)


def controls_gate(controls: Controls) -> GateResult:
    """Decide whether the judge can be believed: INVALID if it does not tell every control from a right edit."""
    rows, has_oracle = controls.rows, controls.has_oracle
    names = {state: ", ".join(row.control for row in rows if row.state == state) for state in _STATES}
    state: State = "PASS"
    why = "the judge tells every control from a right edit"
    if not has_oracle:
        why = f"the judge scores every control under {WORTHLESS:g} and under this editor's edits"
    if any(row.pending for row in rows) or not rows:
        state, why = "INCONCLUSIVE", "the judge was not asked about all controls (stage 'score' does that)"
    elif names["INVALID"]:
        state, why = "INVALID", f"the judge cannot tell {names['INVALID']} from a right edit"
        if not has_oracle:
            why = f"the judge does not score {names['INVALID']} under {WORTHLESS:g}, as worthless edits must be"
    elif names["INCONCLUSIVE"]:
        than = "a right edit" if has_oracle else "this editor's edits (no pair has a reference)"
        if not has_oracle and not controls.beside_editor:
            than = "a right edit, of which the suite has none (no reference)"
        images = f"{controls.pairs} pairs of {controls.sources} source images"
        state, why = "INCONCLUSIVE", f"{images} do not show that the judge tells {names['INCONCLUSIVE']} from {than}"
    return GateResult("overall", "controls", None, None, state, f"{why}: {_ranking(rows)}" if rows else why)


def _ranking(rows: Sequence[ControlRow]) -> str:
    """Write `oracle 10.00 > shuffled 0.72 > identity 0.00 = noise 0.00, blank unscored`."""
    text, last = "", None
    for row in rows:
        mean = None if row.mean is None else f"{row.mean:.2f}"
        link = "" if not text else ", " if mean is None else " = " if mean == last else " > "
        text += f"{link}{row.control} {mean or 'unscored'}"
        last = mean
    return text
