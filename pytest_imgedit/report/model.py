"""From a results document to the rows that every report shows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pytest_imgedit.text import counted, printable

Document = dict[str, Any]

CATEGORY_HEADER = ("category", "n", "scored", "errors", "mean", "95% CI", "std", "median", "min", "max")
#: Columns of words, which are aligned to the left.
WORDS = (
    "run",
    "commit",
    "finished",
    "chart",
    "suite",
    "editor",
    "state",
    "GPU",
    "product",
    "category",
    "gate",
    "worker",
    "device",
    "stage",
    "verdict",
    "control",
    "judge",
    "judged again",
)
WORST_FIRST = ("INVALID", "FAIL", "INCONCLUSIVE", "PASS")
#: The state of a gate of a config over pairs that are not selected: it decides nothing.
NOT_SELECTED = "NOT SELECTED"
WORKER_HEADER = ("worker", "device", "stage", "done", "busy s", "load s")


@dataclass(frozen=True)
class Verdict:
    """What a run came to: the state of its worst gate, or `INCOMPLETE`; one line; and whether pytest is to fail."""

    state: str
    line: str
    fails: bool


def number(value: float | None, digits: int = 2) -> str:
    """Format a number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(ends: tuple[float, float] | None, signs: bool = False) -> str:
    """Format an interval, with `signs` for one of differences, or a dash where there is none."""
    if ends is None:
        return "–"
    return " to ".join(signed(end) if signs else number(end) for end in ends)


def signed(value: float | None) -> str:
    """Format a difference with its sign, or a dash where there is none; what rounds to zero is +0.00."""
    return "–" if value is None else f"{round(value, 2) + 0.0:+.2f}"


def _row(name: str, summary: Document) -> tuple[str, ...]:
    return (
        name,
        str(summary["n"]),
        str(summary["scored"]),
        str(summary["errors"]),
        number(summary["mean"]),
        interval(summary["ci95"]),
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
    scoring = ", expected grades" if judge["params"].get("scoring") == "expected" else ""
    return str(judge["spec"]) if judge["rubric"] is None else f"{judge['spec']}, rubric {judge['rubric']}{scoring}"


def timing_line(document: Document) -> str:
    """Say how long each stage took and what came from the store."""
    timing = document["timing"]
    shares = [("editing", timing.get("edit_gpu_busy")), ("scoring", timing.get("score_gpu_busy"))]
    busy = ", ".join(f"{share:.0%} while {stage}" for stage, share in shares if share is not None)
    gpus = f" · GPUs busy {busy}" if busy else ""
    trials = f" · trials of the judge {timing['trials_s']:.1f} s" if timing["trials_s"] else ""
    swaps = timing["swaps"]
    swap = f"swap {timing['swap_s']:.1f} s ({counted(swaps, 'swap')}) · " if swaps else ""
    return (
        f"edit {timing['edit_s']:.1f} s ({timing['edits']} edited, {timing['edits_cached']} from the store) · "
        f"{swap}"
        f"score {timing['score_s']:.1f} s ({timing['verdicts']} scored, {timing['verdicts_cached']} from the store)"
        f"{trials}{gpus}"
    )


def usage_line(document: Document) -> str | None:
    """Say what a judge behind a server took; `None` for others."""
    usage = document["judge"].get("usage")
    if not usage:
        return None
    cost = "" if usage["cost"] is None else f", cost {usage['cost']:.4g}"
    return f"judge: {usage['tokens_in']:,} tokens in, {usage['tokens_out']:,} out{cost}"


def near_copy_line(document: Document) -> str | None:
    """Count the edits that hardly differ from their source; `None` if there is none."""
    edits = [seed for item in document["items"] for seed in item["seeds"] if seed["edit"]]
    copies = sum(map(is_near_copy, edits))
    return f"near-copies: {copies} of {len(edits)} edits hardly differ from their source" if copies else None


def is_near_copy(seed: Document) -> bool:
    """Tell whether a repetition's edit hardly differs from its source."""
    return bool(seed["edit"] and seed["edit"]["near_copy"])


def reframed_line(document: Document) -> str | None:
    """Count the edits whose aspect ratio is not that of their source; `None` if there is none."""
    edits = [seed["edit"] for item in document["items"] for seed in item["seeds"] if seed["edit"]]
    reframed = sum(bool(edit.get("reframed")) for edit in edits)
    if not reframed:
        return None
    return f"reframed: {reframed} of {len(edits)} edits have another aspect ratio than their source (over 3%)"


def reuse_line(document: Document) -> str | None:
    """Say how many edits and verdicts were computed in another environment than this one; `None` if none was."""
    reuse = document.get("reuse", {"edits": 0, "verdicts": 0})
    counts = [f"{reuse[name]} {name}" for name in ("edits", "verdicts") if reuse[name]]
    return f"other environments: {' and '.join(counts)} ({'; '.join(reuse['differences'])})" if counts else None


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


def verdict(document: Document) -> Verdict:
    """Say in one line whether the run's gates passed and whether it was complete.

    The state is that of the worst gate. INCONCLUSIVE fails unless `gates.allow_inconclusive` is set.
    """
    if document["run"]["status"] != "complete":
        left = sum(item["status"] == "interrupted" for item in document["items"])
        by = document["run"]["stopped_by"]
        trials = f" and {document['run']['trials_left']} trials of the judge" if document["run"]["trials_left"] else ""
        line = f"INCOMPLETE: stopped by {by} with {left} pairs{trials} to do; run again to do the rest"
        return Verdict("INCOMPLETE", printable(line), fails=True)
    gates = [gate for gate in document["gates"] if gate["state"] != NOT_SELECTED]
    state = min((gate["state"] for gate in gates), key=WORST_FIRST.index)
    part = _left_out(document)
    if state != "PASS":
        whys = [
            gate["why"] if gate["state"] == state else f"{gate['state']}, {gate['why']}"
            for name in WORST_FIRST[:-1]
            for gate in gates
            if gate["state"] == name
        ]
        allowed = state == "INCONCLUSIVE" and document["run"]["options"]["gates"]["allow_inconclusive"]
        line = f"{state}{' (allowed)' if allowed else ''}: " + "; ".join([*whys, *part])
        return Verdict(state, printable(line), fails=not allowed)
    mean = document["overall"]["macro"]["mean"]
    head = [f"overall {mean:.2f}"] if mean is not None else []
    if document["run"]["options"]["run"]["stage"] == "edit":
        head = [f"{counted(len(document['items']), 'pair')} edited, no scores asked for"]
    line = "PASS: " + "; ".join([*head, *_compared(document), *(gate["why"] for gate in gates), *part])
    return Verdict("PASS", printable(line), fails=False)


def _compared(document: Document) -> list[str]:
    """Say what the comparison with a baseline found, where no gate says so."""
    if "comparison" not in document or any(gate["kind"] == "max_drop" for gate in document["gates"]):
        return []
    found, row = document["comparison"], document["comparison"]["rows"]["overall"]
    if row["difference"] is None:
        return []
    mde = "" if row["mde"] is None else f", MDE {row['mde']:.2f}"
    return [f"{signed(row['difference'])} against {found['name']} ({row['verdict']}{mde})"]


def _left_out(document: Document) -> list[str]:
    """Say of which pairs a run is not: those not needed, not selected, skipped, or missing from the baseline."""
    items, found, parts = document["items"], document.get("comparison", {"size": 0}), []
    selection = document.get("selection", {"selected": len(items), "whole": len(items), "skipped": 0})
    if unneeded := sum(item["status"] == "not_needed" for item in items):
        parts.append(f"{unneeded} of {len(items)} pairs were not needed")
    if selection["selected"] < selection["whole"]:
        parts.append(f"a part: {selection['selected']} of {selection['whole']} pairs")
    elif found["size"] > len(items):
        missing = found["size"] - len(items)
        parts.append(f"{missing} of the {found['size']} pairs of {found.get('name')} were not selected")
    if selection["skipped"]:
        parts.append(f"{counted(selection['skipped'], 'pair')} skipped by marks")
    resting = [f"{gate['kind']} {gate['field']}" for gate in document["gates"] if gate["state"] == NOT_SELECTED]
    return [*parts, *([f"not selected: {', '.join(resting)}"] if resting else [])]


def flat_line(document: Document) -> str | None:
    """Say so if all scores are the same number; `None` for fewer than three, or if two differ."""
    scores = [item["score"] for item in document["items"] if item["score"] is not None]
    if len(scores) < 3 or len(set(scores)) > 1:
        return None
    return f"no spread: all {len(scores)} scores are {scores[0]:.2f}"


def provenance_lines(document: Document) -> list[str]:
    """Say with what the edits and verdicts were made, so that a reader can repeat the run."""
    run, seeds = document["run"], document["run"]["options"]["editor"]["seeds"]
    commit = f"commit {run['commit']['sha'][:10]}{' with changes' * run['commit']['dirty']}" if run["commit"] else ""
    gpus = ", ".join(f"{count} x {name}" for name, count in Counter(run["machine"]["gpus"]).items())
    versions = (f"{name} {version}" for name, version in run["versions"].items())
    lines = [
        f"editor: {_made_with(document['editor']['spec'], document['editor'])}, {counted(seeds, 'seed')} a pair",
        f"judge: {_made_with(judge_name(document), document['judge'])}",
        "; ".join(filter(None, (commit, gpus or "CPU", *versions))),
    ]
    return list(map(printable, lines))


def _made_with(name: str, model: Document) -> str:
    """Write what a model is called with its parameters, number format and fingerprint."""
    params = [f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in model["params"].items()]
    weights = f"fingerprint {model['fingerprint'][:12]}" if model["fingerprint"] else ""
    return ", ".join(filter(None, (name, *params, model.get("dtype") or "", weights)))


def mde_line(document: Document) -> str | None:
    """Say what these pairs could show, and how far the judge's own noise reaches; `None` where neither is known."""
    parts = []
    macro, rows = document["overall"]["macro"], document["categories"]
    known = {name: row["mde"] for name, row in rows.items() if row["mde"]}
    if macro["mde"]:  # zero says only that no spread was seen
        widest = max(known, key=lambda name: known[name]) if len(known) > 1 else None
        parts.append(f"{macro['mde']:.2f} under a threshold" + (f" ({widest} {known[widest]:.2f})" if widest else ""))
    if "comparison" in document and document["comparison"]["rows"]["overall"]["mde"]:
        parts.append(f"{document['comparison']['rows']['overall']['mde']:.2f} under the baseline")
    found = ["MDE of the overall score, at 80% power: " + ", ".join(parts)] if parts else []
    if "noise" in document and document["noise"]["floor"] is not None:
        found.append(f"judge's noise floor {document['noise']['floor']:.2f}")
    return " · ".join(found) or None


def expected_line(document: Document) -> str | None:
    """Say so if scores are expectations, beside what the greedy replies gave; `None` if no score is one."""
    verdicts = [seed["verdict"] for item in document["items"] for seed in item["seeds"] if seed["verdict"]]
    known = [verdict for verdict in verdicts if verdict["greedy"] is not None]
    if not known:
        return None
    expected, greedy = (sum(verdict[key] for verdict in known) / len(known) for key in ("score", "greedy"))
    off = max(verdict["off_scale"] for verdict in known)
    return (
        f"scores are made of expected grades: mean {expected:.2f}, of the greedy replies {greedy:.2f}; "
        f"at most {off:.1%} off the scale"
    )


def remarks(document: Document) -> list[str]:
    """Lines that follow the table of scores."""
    lines = (best_and_worst, flat_line, near_copy_line, reframed_line, reuse_line, expected_line, mde_line, usage_line)
    return [text for text in (line(document) for line in lines) if text is not None]
