"""From a results document to the rows that every report shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]

CATEGORY_HEADER = ("category", "n", "scored", "errors", "mean", "95% CI", "std", "median", "min", "max")
WORKER_HEADER = ("worker", "device", "stage", "done", "busy s", "load s")


@dataclass(frozen=True)
class Verdict:
    """What a run came to: `PASS` or `FAIL`, and one line."""

    state: str
    line: str


def number(value: float | None, digits: int = 2) -> str:
    """Format a number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def _row(name: str, summary: Document) -> tuple[str, ...]:
    ci = summary["ci95"]
    return (
        name,
        str(summary["n"]),
        str(summary["scored"]),
        str(summary["errors"]),
        number(summary["mean"]),
        "–" if ci is None else f"{ci[0]:.2f} to {ci[1]:.2f}",
        *(number(summary[key]) for key in ("std", "median", "min", "max")),
    )


def category_rows(document: Document) -> list[tuple[str, ...]]:
    """One row a category, as `CATEGORY_HEADER` says."""
    return [_row(name, summary) for name, summary in document["categories"].items()]


def overall_rows(document: Document) -> list[tuple[str, ...]]:
    """Macro (every category weighs the same) and micro (every pair weighs the same)."""
    overall = document["overall"]
    return [_row("overall (macro)", overall["macro"]), _row("overall (micro)", overall["micro"])]


def best_and_worst(document: Document) -> str | None:
    """Name the categories with the highest and the lowest mean; `None` if no two differ."""
    means = {name: row["mean"] for name, row in document["categories"].items() if row["mean"] is not None}
    if len(means) < 2:
        return None
    best, worst = max(means, key=lambda name: means[name]), min(means, key=lambda name: means[name])
    if means[best] == means[worst]:
        return None
    return f"best: {best} {means[best]:.2f} · worst: {worst} {means[worst]:.2f}"


def judge_name(document: Document) -> str:
    """Name the judge, and the rubric that was put to it, if one was."""
    judge = document["judge"]
    return str(judge["spec"]) if judge["rubric"] is None else f"{judge['spec']}, rubric {judge['rubric']}"


def timing_line(document: Document) -> str:
    """Say how long each stage took and what came from the store."""
    timing = document["timing"]
    return (
        f"edit {timing['edit_s']:.1f} s ({timing['edits']} edited, {timing['edits_cached']} from the store) · "
        f"swap {timing['swap_s']:.1f} s ({timing['swaps']} swaps) · "
        f"score {timing['score_s']:.1f} s ({timing['verdicts']} scored, {timing['verdicts_cached']} from the store)"
    )


def near_copy_line(document: Document) -> str | None:
    """Count the edits that hardly differ from their source; `None` if there is none."""
    edits = [seed for item in document["items"] for seed in item["seeds"] if seed["edit"]]
    copies = sum(map(is_near_copy, edits))
    return f"near-copies: {copies} of {len(edits)} edits hardly differ from their source" if copies else None


def is_near_copy(seed: Document) -> bool:
    """Tell whether a repetition's edit hardly differs from its source."""
    return bool(seed["edit"] and seed["edit"]["near_copy"])


def worker_rows(document: Document) -> list[tuple[str, ...]]:
    """What each worker did, as `WORKER_HEADER` says."""
    return [
        (w["name"], w["device"], w["stage"], str(w["jobs"]), f"{w['busy_s']:.1f}", f"{w['load_s']:.1f}")
        for w in document["workers"]
    ]


def error_lines(document: Document, most: int = 10) -> list[str]:
    """One line for each pair without a score, the first `most` of them."""
    broken = [item for item in document["items"] if item["status"] in ("edit_error", "judge_error")]
    lines = [
        f"{item['id']}: {item['error']['stage']} error ({item['error']['kind']}): {item['error']['message']}"
        for item in broken[:most]
    ]
    return lines if len(broken) <= most else [*lines, f"… and {len(broken) - most} more"]


def _why(gate: Document) -> str:
    why: str = gate["why"]
    return why if gate["state"] == "FAIL" else f"{gate['state']}, {why}"


def verdict(document: Document) -> Verdict:
    """Say in one line whether the run's gates passed and whether it was complete."""
    failed = [gate for gate in document["gates"] if gate["state"] != "PASS"]
    if document["run"]["status"] != "complete":
        left = sum(item["status"] == "interrupted" for item in document["items"])
        by = document["run"]["stopped_by"]
        return Verdict("FAIL", f"INCOMPLETE: stopped by {by} with {left} pairs to do; run again to do the rest")
    if failed:
        return Verdict("FAIL", "FAIL: " + "; ".join(map(_why, failed)))
    mean = document["overall"]["macro"]["mean"]
    if mean is None:
        return Verdict("PASS", "PASS: " + "; ".join(gate["why"] for gate in document["gates"]))
    return Verdict("PASS", f"PASS: overall {mean:.2f}; " + "; ".join(gate["why"] for gate in document["gates"]))
