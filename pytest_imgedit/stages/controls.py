"""Judge qualification: edits of known worth, scored like any other, and whether the judge tells them apart."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_imgedit.editors.base import SHOWN_REFERENCE, build, resolve_editor
from pytest_imgedit.gates import GateResult
from pytest_imgedit.stages.edit import edit_message, store_edit, stored_edit
from pytest_imgedit.stages.plan import make_plan
from pytest_imgedit.stats import estimate, summarize
from pytest_imgedit.workers.process import describe, make_edit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_imgedit.gates import State
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.registry import Target
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.suites.base import Suite

CONTROLS = ("oracle", "identity", "shuffled", "blank", "noise")
#: Pairs of each category on which the judge is tried.
SAMPLE = 4
#: Where no pair has a reference, an edit that is known to be worthless must stay under this score.
WORTHLESS = 5.0

Trials = dict[str, list["Work"]]


def plan_controls(
    suite: Suite, pairs: Sequence[EditPair], store: Store, identify: Callable[[Target], dict[str, Any]]
) -> Trials:
    """Edit a sample of the pairs with every control, here and now, and return the work to be scored by control.

    The sample is decided by the ids alone. The oracle needs pairs with a reference, `shuffled` other such pairs in
    their categories; where there are none, these controls are left out. Edits are kept in the store like any other.
    """
    sample = _sample(pairs)
    trials: Trials = {}
    for name in CONTROLS:
        target = resolve_editor(name)
        suited = sample if name not in SHOWN_REFERENCE else [pair for pair in sample if pair.reference is not None]
        plan = make_plan(suite, suited, 1, identify(target), store)
        works = [work for work in plan if name not in SHOWN_REFERENCE or work.shown is not None or work.error]
        editor = build(target, "cpu", {})
        for work in works:
            _edit(work, name, editor, store)
        if works:
            trials[name] = works
    return trials


def _sample(pairs: Sequence[EditPair]) -> list[EditPair]:
    taken: dict[str, list[EditPair]] = {}
    for pair in sorted(pairs, key=lambda pair: hashlib.sha256(pair.id.encode()).digest()):
        if len(taken.setdefault(pair.category, [])) < SAMPLE:
            taken[pair.category].append(pair)
    return [pair for group in taken.values() for pair in group]


def _edit(work: Work, name: str, editor: Any, store: Store) -> None:
    if work.error is None:
        work.edit = stored_edit(work, store)
    if work.error is None and work.edit is None:
        try:
            made = make_edit(editor.edit, edit_message(work), may_be_blank=name == "blank")
        except Exception as error:  # such as an image that does not decode
            work.fail("edit", **describe(error))
        else:
            store_edit(work, "controls", made, store)


def controls_document(trials: Trials, alpha: float) -> dict[str, Any]:
    """Describe how the judge scored the controls: the section `controls` of results.json, best control first.

    `p` is the one-sided p value that the control is not worth less than the oracle on the same pairs; where there is
    no oracle, that its mean is not under `WORTHLESS`.
    """
    best = {work.pair.id: work.verdict.score for work in trials.get("oracle", ()) if work.verdict is not None}
    rows = []
    for name, works in trials.items():
        scored = [work for work in works if work.verdict is not None]
        clusters = [work.source.sha256 if work.source else work.pair.id for work in scored]
        summary = summarize([_score(work) for work in scored], clusters, len(works) - len(scored))
        row: dict[str, Any] = {"control": name, **summary.to_dict(), "p": None, "state": None}
        if name != "oracle":
            known = [
                (_score(work) - (best[work.pair.id] if best else WORTHLESS), cluster)
                for work, cluster in zip(scored, clusters, strict=True)
                if not best or work.pair.id in best
            ]
            row |= _told_apart(known, alpha)
        rows.append(row)
    rows.sort(key=lambda row: (row["mean"] is None, -(row["mean"] or 0.0)))
    return {"pairs": len({work.pair.id for works in trials.values() for work in works}), "rows": rows}


def _score(work: Work) -> float:
    return work.verdict.score if work.verdict is not None else 0.0


def _told_apart(known: Sequence[tuple[float, str]], alpha: float) -> dict[str, Any]:
    if not known:
        return {"state": "INVALID"}
    found = estimate([value for value, _ in known], [cluster for _, cluster in known])
    p = found.p_below(0)
    if p <= alpha:
        return {"p": p, "state": "PASS"}
    return {"p": p, "state": "INCONCLUSIVE" if 0.5**found.clusters > alpha else "INVALID"}


def controls_gate(document: dict[str, Any]) -> GateResult:
    """Decide whether the judge can be believed: INVALID if it does not tell every control from a right edit."""
    rows = document["rows"]
    ranking = " > ".join(f"{row['control']} {_number(row['mean'])}" for row in rows)
    oracle = any(row["control"] == "oracle" and row["scored"] for row in rows)
    worse = "oracle" if oracle else f"a score of {WORTHLESS:g} (no pair has a reference)"
    gate = GateResult(
        "overall", "controls", None, None, "PASS", f"the judge tells every control from {worse}: {ranking}"
    )
    for state in ("INVALID", "INCONCLUSIVE"):
        names = [row["control"] for row in rows if row["state"] == state]
        if names or not rows:
            few = f" on {document['pairs']} pairs, which are too few" if state == "INCONCLUSIVE" else ""
            return replace(
                gate, state=_state(state), why=f"the judge cannot tell {', '.join(names)} from {worse}{few}: {ranking}"
            )
    return gate


def _state(name: str) -> State:
    return "INVALID" if name == "INVALID" else "INCONCLUSIVE"


def _number(mean: float | None) -> str:
    return "unscored" if mean is None else f"{mean:.2f}"
