"""What changed between a baseline and a run: paired differences of the same pairs, from two documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_imgedit.environments import Environment
from pytest_imgedit.stats.collapse import same_edits
from pytest_imgedit.stats.estimates import holm
from pytest_imgedit.stats.gates import Observation, categories_of, estimate_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_imgedit.stats.estimates import Estimate
    from pytest_imgedit.stats.gates import GateResult

    Document = Mapping[str, Any]

#: How many of the pairs that fell or rose most a comparison names.
MOST = 5


def differences(before: Iterable[Document], now: Iterable[Document]) -> list[Observation]:
    """Pair the items of a run with those of a baseline by id; `value` is now − before, within [-10, 10].

    A pair that has no score on one side has no value, and bounds from the end of the scale.
    """
    old = {item["id"]: item for item in before}
    found = []
    for item in now:
        score, was = item["score"], old[item["id"]]["score"]
        found.append(
            Observation(
                item["category"],
                item["source"] or item["id"],
                None if score is None or was is None else round(score - was, 6),
                (0.0 if score is None else score) - (10.0 if was is None else was),
                (10.0 if score is None else score) - (0.0 if was is None else was),
                unchanged=same_edits(old[item["id"]], item),
            )
        )
    return found


def compare(
    baseline: Document,
    items: Sequence[Document],
    alpha: float,
    gates: Sequence[GateResult] = (),
    environment: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare a run's items with a baseline: the section `comparison` of results.json.

    `rows` has one entry a category and `overall`: means of the pairs that have a score on both sides, their mean
    difference with 95% interval, one-sided p of a drop and of a rise, each after Holm over all rows, verdict and MDE;
    a row that one of the `max_drop` gates is on has that gate's p, state and MDE. `pairs` holds what the baseline
    has of each pair; `fell` and `rose` name those that moved most. `environment` is what
    `environment_differences` says of the two.
    """
    observations = differences(baseline["items"], items)
    old = {item["id"]: item for item in baseline["items"]}
    fields = ["overall", *categories_of(observations)]
    found = {field: estimate_field(field, observations) for field in fields}
    drops = holm([1.0 if one is None else one.p_below(0) for one in found.values()])
    rises = holm([1.0 if one is None else one.p_above(0) for one in found.values()])
    rows: dict[str, Any] = {}
    for (field, one), drop, rise in zip(found.items(), drops, rises, strict=True):
        both = [item for item, moved in zip(items, observations, strict=True) if moved.value is not None]
        both = [item for item in both if field in ("overall", item["category"])]
        before = estimate_field(
            field, [Observation(item["category"], item["id"], old[item["id"]]["score"]) for item in both]
        )
        now = estimate_field(field, [Observation(item["category"], item["id"], item["score"]) for item in both])
        rows[field] = {
            "n": len(both),
            "before": before and before.mean,
            "now": now and now.mean,
            "difference": one and one.mean,
            "ci95": one and one.interval(),
            **_row_verdict(one, drop, rise, alpha, len(fields)),
        }
        gate = next((gate for gate in gates if gate.field == field), None)
        if gate is not None:
            rows[field] |= {"p": gate.p, "verdict": gate.state, "mde": gate.mde}
    moved = sorted(
        (
            {"id": item["id"], "before": old[item["id"]]["score"], "now": item["score"], "difference": one.value}
            for item, one in zip(items, observations, strict=True)
            if one.value
        ),
        key=lambda pair: (pair["difference"], pair["id"]),
    )
    return {
        "name": baseline["name"],
        "run": baseline["run"],
        "editor": baseline["editor"]["spec"],
        "commit": baseline["commit"],
        "environment": list(environment),
        "size": len(baseline["items"]),
        "rows": rows,
        "pairs": {
            item["id"]: {
                "before": old[item["id"]]["score"],
                "difference": one.value,
                "edits": [seed.get("edit") for seed in old[item["id"]]["seeds"]],
            }
            for item, one in zip(items, observations, strict=True)
        },
        "fell": [pair for pair in moved if pair["difference"] < 0][:MOST],
        "rose": [pair for pair in reversed(moved) if pair["difference"] > 0][:MOST],
    }


def environment_differences(before: Document, now: Document) -> list[str]:
    """Say in what two runs or baselines were computed otherwise, edits and verdicts apart; nothing where they agree.

    That is where they were (`environments`), in which `dtype`, and by which decoder a judge's batches.
    """
    found = []
    for what, role in (("edits", "editor"), ("verdicts", "judge")):
        theirs, ours = (
            [_bare(one) for one in side.get("environments", {}).values() if one[what]] for side in (before, now)
        )
        if theirs and ours:
            unlike = dict.fromkeys(text for old in theirs for new in ours for text in old.differences(new))
            if not all(old in ours for old in theirs) or not all(new in theirs for new in ours):
                found += [f"{what}: {text}" for text in unlike]
        for name in ("dtype", "decoder"):
            was, is_now = before[role].get(name), now[role].get(name)
            if was != is_now and None not in (was, is_now):
                found.append(f"{what}: {name} {was} there, {is_now} here")
    return found


def _bare(environment: Mapping[str, Any]) -> Environment:
    return Environment(**{name: value for name, value in environment.items() if name not in ("edits", "verdicts")})


def _row_verdict(found: Estimate | None, drop: float, rise: float, alpha: float, rows: int) -> dict[str, Any]:
    """Say whether a mean difference fell or rose; `drop` and `rise` are p values after Holm over so many `rows`."""
    if found is None or found.se is None:
        return {"p": None, "p_rise": None, "verdict": "unknown", "mde": None}
    verdict = "fell" if drop <= alpha else "rose" if rise <= alpha else "no change shown"
    if found.se == 0 and found.mean == 0:
        verdict = "same"
    return {"p": drop, "p_rise": rise, "verdict": verdict, "mde": found.mde(alpha / rows)}
