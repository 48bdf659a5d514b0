"""Judge qualification: whether the judge's scores tell edits of known quality apart."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from statistics import fmean

import numpy as np

from pytest_imgedit.core import results
from pytest_imgedit.core.false_instructions import CLASSES
from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.text import counted, number
from pytest_imgedit.stats.estimates import ALPHA, ENOUGH, Draft, complete, draft, estimate

#: Editors whose edits are of known quality, best first.
EDITED = ("oracle", "blend", "damaged", "identity", "shuffled", "blank", "noise")
#: A right edit, or without references the run's own, with the instruction of another pair; and a
#: right edit with one word of its own instruction changed, by the class of the word.
COUNTERFACTUAL = "counterfactual"
CLASS_CONTROLS = tuple(f"{COUNTERFACTUAL} {name}" for name in CLASSES)
CONTROLS = EDITED + (COUNTERFACTUAL,) + CLASS_CONTROLS
#: Controls that must score under a further one: what is not done is worth less than what is half
#: done.
ALSO_BELOW = {"identity": ("blend",), COUNTERFACTUAL: ("blend",)}
#: Without references, an edit that is known to be worthless must stay under this score.
WORTHLESS = 5.0
#: Least chance that a right edit scores over a worthless one with which a judge tells them apart.
ENOUGH_AUC = 0.9
#: Least mean difference of their scores, in points.
ENOUGH_POINTS = 1.0
#: Resamples of the bootstrap, always the same; clusters are drawn, not pairs.
RESAMPLES = 2_000


def describe_controls(
    trials: Sequence[results.ControlTrial],
    own_scores: Mapping[str, float],
    alpha: float,
    untried: str = "",
) -> results.Controls:
    """Describe how the judge scored the controls, each in a row for every better edit that it must
    score under; while trials are pending, nothing is decided.

    With references, controls must score under `oracle`, and some under others (`ALSO_BELOW`).
    Where no pair has a reference, controls must score under `WORTHLESS`, and the run's own edits
    (`own_scores`, by pair) over themselves with other instructions. `alpha` is that of each test.
    `untried` says what the judge was not asked about.
    """
    trials = sorted(trials, key=lambda trial: (CONTROLS.index(trial.control), trial.pair))
    scores: dict[str, dict[str, tuple[float, str]]] = {trial.control: {} for trial in trials}
    for trial in trials:
        if trial.score is not None:
            scores[trial.control][trial.pair] = (trial.score, trial.cluster)
    is_waiting = any(trial.pending for trial in trials)
    pairs = {trial.pair: trial.cluster for trial in trials}
    has_oracle = "oracle" in scores
    tried_scores = [own_scores[pair] for pair in pairs if pair in own_scores]
    own_mean = None if has_oracle or not tried_scores else fmean(tried_scores)
    rows = []
    for name, scored in scores.items():
        (summary,) = complete([draft_control(name, trials)])
        pending = sum(trial.pending for trial in trials if trial.control == name)
        row = results.ControlRow(**asdict(summary), control=name, pending=pending)
        if name == "oracle" or is_waiting:
            rows.append(row)
        elif has_oracle:
            for below in ("oracle",) + ALSO_BELOW.get(name, ()):
                better = {pair: score for pair, (score, _) in scores[below].items()}
                rows.append(_told_apart(replace(row, below=below), scored, better, alpha))
        elif name.startswith(COUNTERFACTUAL):
            rows.append(_not_as_asked(row, scored, own_scores, own_mean, alpha))
        else:
            rows.append(_known_worthless(row, scored, own_mean, alpha))
    rows.sort(key=_best_first)
    return results.Controls(
        pairs=len(pairs),
        sources=len(set(pairs.values())),
        has_oracle=has_oracle,
        own_mean=own_mean,
        untried=untried,
        rows=tuple(rows),
        trials=tuple(trials),
    )


def _best_first(row: results.ControlRow) -> tuple[bool, float]:
    return row.mean is None, -(row.mean or 0.0)


def draft_control(name: str, trials: Sequence[results.ControlTrial]) -> Draft:
    """Draft the summary of the scores of a control; trials without one are pending or errors."""
    of_control = [trial for trial in trials if trial.control == name]
    scores = []
    clusters = []
    for trial in of_control:
        if trial.score is not None:
            scores.append(trial.score)
            clusters.append(trial.cluster)
    pending = sum(trial.pending for trial in of_control)
    errors = len(of_control) - len(scores) - pending
    return draft(scores, clusters, errors=errors, pending=pending)


def _known_worthless(
    row: results.ControlRow,
    scored: Mapping[str, tuple[float, str]],
    own_mean: float | None,
    alpha: float,
) -> results.ControlRow:
    """Decide, without references, whether the scores of worthless edits stay under `WORTHLESS`.

    Without scores of the editor's own edits nothing shows that the judge gives a right edit more: a
    PASS is then INCONCLUSIVE.
    """
    finding = _told_apart(row, scored, dict.fromkeys(scored, WORTHLESS), alpha, points=0.0)
    if finding.state == "PASS" and own_mean is None:
        return replace(row, p=finding.p, state="INCONCLUSIVE")
    return finding


def _not_as_asked(
    row: results.ControlRow,
    scored: Mapping[str, tuple[float, str]],
    own_scores: Mapping[str, float],
    own_mean: float | None,
    alpha: float,
) -> results.ControlRow:
    """Decide, without references, whether the editor's own edits are worth less under other
    instructions; edits that have no scores, or a mean under `WORTHLESS`, decide nothing.

    Some of these edits are wrong, so that the means have to differ, and not most pairs: an area of
    0.5 is enough.
    """
    if own_mean is None or own_mean < WORTHLESS:
        return row
    return _told_apart(row, scored, own_scores, alpha, area=0.5)


def _told_apart(
    row: results.ControlRow,
    scored: Mapping[str, tuple[float, str]],
    better: Mapping[str, float],
    alpha: float,
    *,
    points: float = ENOUGH_POINTS,
    area: float = ENOUGH_AUC,
) -> results.ControlRow:
    """Decide whether scores are lower than those of `better` edits of the same pairs, beyond
    chance, by `points` on average and with an area under the ROC curve of at least `area`.

    `scored` has the score and the source of each pair. The state is INCONCLUSIVE if only the area
    falls short, and its interval reaches `area`, or if the sources are too few to show anything. If
    no pair has both scores, it is INVALID, or INCONCLUSIVE if none is `scored`.
    """
    higher = []
    lower = []
    clusters = []
    for pair, (score, cluster) in scored.items():
        if pair in better:
            higher.append(better[pair])
            lower.append(score)
            clusters.append(cluster)
    if not higher:
        return replace(row, state="INVALID" if scored else "INCONCLUSIVE")
    difference = estimate(np.subtract(lower, higher).tolist(), clusters)
    p = difference.p_below(0)
    observed_area, (lowest_area, highest_area) = auc(higher, lower, clusters)
    is_lower = p <= alpha and -difference.mean >= points
    may_be_apart = is_lower and highest_area >= area
    state: results.State = "INVALID"
    if is_lower and observed_area >= area:
        state = "PASS"
    elif may_be_apart or not difference.can_show(alpha):
        state = "INCONCLUSIVE"
    return replace(row, p=p, auc=observed_area, auc_ci95=(lowest_area, highest_area), state=state)


def auc(
    higher: Sequence[float], lower: Sequence[float], clusters: Sequence[str]
) -> tuple[float, tuple[float, float]]:
    """Return the area under the ROC curve, in [0, 1], with the 95% percentile interval of a
    bootstrap over clusters.

    The area is the chance that a random pair's score in `higher` is over a random pair's in
    `lower`, a tie counting half: 0.5 where nothing is told apart. All three arguments have one
    entry a pair, at least one.
    """
    wins = np.greater.outer(higher, lower) + 0.5 * np.equal.outer(higher, lower)
    _, cluster = np.unique(clusters, return_inverse=True)
    groups = int(cluster.max()) + 1
    counts = np.random.default_rng(0).multinomial(groups, np.full(groups, 1 / groups), RESAMPLES)
    drawn = counts[:, cluster]
    # Σ_ij drawn_i·wins_ij·drawn_j / (Σ_i drawn_i)² of each resample
    areas = ((drawn @ wins) * drawn).sum(axis=1) / drawn.sum(axis=1) ** 2
    low, high = np.quantile(areas, [ALPHA / 2, 1 - ALPHA / 2])
    return float(wins.mean()), (float(low), float(high))


def controls_gate(controls: results.Controls) -> results.GateResult:
    """Decide whether the judge can be believed: INVALID if it does not tell every control from a
    right edit, or half done from not done; without references, as `describe_controls` says.

    INCONCLUSIVE for want of source images alone is a warning. A judge that gives everything one
    score is INVALID; without references it is INCONCLUSIVE and fails the run, as a good judge of a
    useless editor may do so too.
    """
    state, why = _verdict(controls)
    warns = state == "INCONCLUSIVE" and _is_asked(controls) and controls.sources < ENOUGH
    constant = _only_score(controls)
    if state != "INVALID" and constant is not None:
        state = "INVALID" if controls.has_oracle else "INCONCLUSIVE"
        warns = False
        edits = "every control"
        if not controls.has_oracle:
            edits += " and every edit of this run"
        why = f"the judge gives {edits} {constant:.2f}, so that nothing shows that it looks at them"
    if controls.rows:
        why += f": {_ranking(controls.rows)}"
    if controls.untried:
        why += f"; not asked about {controls.untried}"
    return results.GateResult(
        OVERALL, "controls", limit=None, value=None, state=state, why=why, warns=warns
    )


def _is_asked(controls: results.Controls) -> bool:
    """Tell whether the judge was asked about all controls."""
    return bool(controls.rows) and not any(row.pending for row in controls.rows)


def _verdict(controls: results.Controls) -> tuple[results.State, str]:
    """Decide the gate by the states of the controls, and say why."""
    if not _is_asked(controls):
        return (
            "INCONCLUSIVE",
            "the judge was not asked about all controls (stage 'score' does that)",
        )
    invalid = [row for row in controls.rows if row.state == "INVALID"]
    inconclusive = [row for row in controls.rows if row.state == "INCONCLUSIVE"]
    if invalid and controls.has_oracle:
        return "INVALID", f"the judge cannot tell {_apart(invalid, 'a right edit')}"
    if invalid:
        return "INVALID", _invalid_without_references(controls, invalid)
    if inconclusive:
        return "INCONCLUSIVE", _not_shown(controls, inconclusive)
    if controls.has_oracle:
        return "PASS", "the judge tells every control from a right edit"
    return "PASS", _without_references(controls)


def _not_shown(controls: results.Controls, inconclusive: Sequence[results.ControlRow]) -> str:
    """Say that the pairs are too few to show that the judge tells these controls from better
    edits.
    """
    right = "a right edit"
    if not controls.has_oracle:
        right += ", of which the suite has none (no reference)"
    pairs = counted(controls.pairs, "pair")
    sources = counted(controls.sources, "source image")
    verb = "does" if controls.pairs == 1 else "do"
    apart = _apart(inconclusive, right)
    return f"{pairs} of {sources} {verb} not show that the judge tells {apart}"


def passed(controls: results.Controls | None) -> bool:
    """Tell whether a trial shows that a judge tells edits apart: there was one, it passed, and it
    had better edits to compare the worthless with.
    """
    if controls is None or controls_gate(controls).state != "PASS":
        return False
    return controls.has_oracle or (controls.own_mean or 0.0) >= WORTHLESS


def _only_score(controls: results.Controls) -> float | None:
    """Return the score that a judge gave all controls, and without references the run's own edits
    on average; `None` for fewer than two controls, if scores differ, or if one of them has none.
    """
    scores = {row.min for row in controls.rows} | {row.max for row in controls.rows}
    if not controls.has_oracle:
        scores.add(controls.own_mean)
    if len(controls.rows) < 2 or len(scores) > 1:
        return None
    return scores.pop()


def _without_references(controls: results.Controls) -> str:
    """Say what a judge has shown on a suite without references."""
    mean = controls.own_mean
    worthless = f"the judge scores worthless edits under {WORTHLESS:g}"
    if mean is None:
        return worthless
    if mean < WORTHLESS:
        return (
            f"{worthless}; this editor's edits, of {mean:.2f} on average, are too poor to try it "
            "with other words"
        )
    if any(row.control.startswith(COUNTERFACTUAL) for row in controls.rows):
        return f"{worthless}, and this editor's, of {mean:.2f} on average, lower with other words"
    return worthless


def _invalid_without_references(
    controls: results.Controls, invalid: Sequence[results.ControlRow]
) -> str:
    """Say what a judge failed at on a suite without references: worthless edits that it does not
    score low, and this editor's edits that it does not score lower with other words.
    """
    worthless = [row for row in invalid if not row.control.startswith(COUNTERFACTUAL)]
    reworded = [row for row in invalid if row not in worthless]
    reasons = []
    if worthless:
        reasons.append(
            f"the judge does not score {_names(worthless)} under {WORTHLESS:g}, as worthless edits "
            "must be"
        )
    if reworded:
        reasons.append(
            f"the judge does not score this editor's edits, of {controls.own_mean:.2f} on average, "
            f"lower with other words: {_names(reworded)}"
        )
    return "; ".join(reasons)


def _apart(rows: Sequence[results.ControlRow], right: str) -> str:
    """Write `identity, blank from a right edit and identity from a half-done one`, where `right`
    names the right edit.
    """
    from_right = _names([row for row in rows if row.below == "oracle"])
    from_half_done = _names([row for row in rows if row.below == "blend"])
    parts = []
    if from_right:
        parts.append(f"{from_right} from {right}")
    if from_half_done:
        parts.append(f"{from_half_done} from a half-done one")
    return " and ".join(parts)


def _names(rows: Sequence[results.ControlRow]) -> str:
    return ", ".join(row.control for row in rows)


def _ranking(rows: Sequence[results.ControlRow]) -> str:
    """Write `oracle 10.00 > shuffled 0.72 > identity 0.00 = noise 0.00, blank unscored`, each
    control once; `rows` are the best first.
    """
    rows = [row for row in rows if row.below == "oracle"]
    scored = [row for row in rows if row.mean is not None]
    ranks = []
    for mean, group in groupby(scored, key=lambda row: number(row.mean)):
        ranks.append(" = ".join(f"{row.control} {mean}" for row in group))
    parts = [" > ".join(ranks)] if ranks else []
    parts += [f"{row.control} unscored" for row in rows if row.mean is None]
    return ", ".join(parts)
