"""Judge qualification: whether the judge tells edits of known quality apart, from the scores that
it gave them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pytest_imgedit.core.results import ControlRow, Controls, ControlTrial, GateResult, State
from pytest_imgedit.core.sanitize import number
from pytest_imgedit.stats.discrimination import auc
from pytest_imgedit.stats.estimates import estimate, summarize

#: Best first; the edits of a control are worth the same in any order.
CONTROLS = ("oracle", "identity", "shuffled", "blank", "noise")
#: Where no pair has a reference, an edit that is known to be worthless must stay under this score.
WORTHLESS = 5.0
#: Chance that a right edit is scored over a worthless one, and points by which it is on average,
#: from which on a judge tells them apart.
ENOUGH_AUC, ENOUGH_POINTS = 0.9, 1.0
_STATES = ("INVALID", "INCONCLUSIVE")


def describe_controls(
    trials: Sequence[ControlTrial], own: Mapping[str, float], alpha: float
) -> Controls:
    """Describe how the judge scored the controls.

    Where no pair has a reference, they must stay under `WORTHLESS`, and be worth less than the
    run's own edits (`own`, scores by pair).
    """
    trials = sorted(trials, key=lambda trial: (CONTROLS.index(trial.control), trial.pair))
    names = list(dict.fromkeys(trial.control for trial in trials))
    has_oracle = "oracle" in names
    waiting = any(trial.pending for trial in trials)
    best = {
        trial.pair: trial.score
        for trial in trials
        if trial.control == "oracle" and trial.score is not None
    }
    rows = []
    for name in names:
        mine = [trial for trial in trials if trial.control == name]
        scored = {
            trial.pair: (trial.score, trial.cluster) for trial in mine if trial.score is not None
        }
        pending = sum(trial.pending for trial in mine)
        values, clusters = (
            [score for score, _ in scored.values()],
            [cluster for _, cluster in scored.values()],
        )
        summary = summarize(values, clusters, len(mine) - len(scored) - pending, pending)
        finding = _Finding()
        if name != "oracle" and not waiting:
            if has_oracle:
                finding = _told_apart(scored, best, alpha)
            else:
                finding = _known_worthless(scored, own, alpha)
        rows.append(ControlRow(**asdict(summary), control=name, pending=pending, **asdict(finding)))
    rows.sort(key=lambda row: (row.mean is None, -(row.mean or 0.0)))
    pairs = {trial.pair: trial.cluster for trial in trials}
    return Controls(
        pairs=len(pairs),
        sources=len(set(pairs.values())),
        has_oracle=has_oracle,
        beside_editor=bool(own),
        rows=tuple(rows),
        trials=tuple(trials),
    )


@dataclass(frozen=True)
class _Finding:
    """Whether a control is told from a right edit; see `ControlRow`."""

    p: float | None = None
    auc: float | None = None
    auc_ci95: tuple[float, float] | None = None
    state: State | None = None


def _known_worthless(
    scored: Mapping[str, tuple[float, str]], own: Mapping[str, float], alpha: float
) -> _Finding:
    """Decide, without references, whether scores stay under `WORTHLESS`, and under those of an
    editor's `own` edits.

    Where they do not stay under its own, the editor may be to blame; where there are none, nothing
    shows that the judge gives a right edit more.
    """
    found = _told_apart(scored, dict.fromkeys(scored, WORTHLESS), alpha, points=0.0)
    if found.state != "PASS":
        return found
    found = _told_apart(scored, own, alpha) if own else _Finding(p=found.p)
    return replace(found, state="PASS" if found.state == "PASS" else "INCONCLUSIVE")


def _told_apart(
    scored: Mapping[str, tuple[float, str]],
    than: Mapping[str, float],
    alpha: float,
    points: float = ENOUGH_POINTS,
) -> _Finding:
    """Decide whether scores are lower than those of the same pairs in `than`: by effect, and beyond
    chance.
    """
    known = [
        (than[name], score, cluster) for name, (score, cluster) in scored.items() if name in than
    ]
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
    """Decide whether the judge can be believed: INVALID if it does not tell every control from a
    right edit.
    """
    rows, has_oracle = controls.rows, controls.has_oracle
    names = {
        state: ", ".join(row.control for row in rows if row.state == state) for state in _STATES
    }
    state: State = "PASS"
    why = "the judge tells every control from a right edit"
    if not has_oracle:
        why = f"the judge scores every control under {WORTHLESS:g} and under this editor's edits"
    if any(row.pending for row in rows) or not rows:
        state, why = (
            "INCONCLUSIVE",
            "the judge was not asked about all controls (stage 'score' does that)",
        )
    elif names["INVALID"]:
        state, why = "INVALID", f"the judge cannot tell {names['INVALID']} from a right edit"
        if not has_oracle:
            why = (
                f"the judge does not score {names['INVALID']} under {WORTHLESS:g}, as worthless "
                "edits must be"
            )
    elif names["INCONCLUSIVE"]:
        than = "a right edit" if has_oracle else "this editor's edits (no pair has a reference)"
        if not has_oracle and not controls.beside_editor:
            than = "a right edit, of which the suite has none (no reference)"
        images = f"{controls.pairs} pairs of {controls.sources} source images"
        state, why = (
            "INCONCLUSIVE",
            f"{images} do not show that the judge tells {names['INCONCLUSIVE']} from {than}",
        )
    return GateResult(
        "overall", "controls", None, None, state, f"{why}: {_ranking(rows)}" if rows else why
    )


def _ranking(rows: Sequence[ControlRow]) -> str:
    """Write `oracle 10.00 > shuffled 0.72 > identity 0.00 = noise 0.00, blank unscored`."""
    scored = [row for row in rows if row.mean is not None]
    text, last = "", ""
    for row in scored:
        mean = number(row.mean)
        if text:
            text += " = " if mean == last else " > "
        text += f"{row.control} {mean}"
        last = mean
    unscored = [f"{row.control} unscored" for row in rows if row.mean is None]
    return ", ".join(filter(None, [text, *unscored]))
