"""Tables beside that of the scores: the comparison with a baseline, controls, and the judge's noise."""

from __future__ import annotations

from pytest_imgedit.report.model import WORST_FIRST, Document, interval, number, signed

COMPARISON_HEADER = ("category", "n", "before", "now", "diff", "95% CI", "p of drop", "verdict", "MDE")
CONTROLS_HEADER = ("control", "n", "errors", "mean", "95% CI", "p", "judge")
NOISE_HEADER = ("judged again", "n", "errors", "changed", "SD", "shift")
_TOLD = {"PASS": "told apart", "INVALID": "not told apart", "INCONCLUSIVE": "too few pairs", None: "–"}


def comparison_rows(document: Document) -> list[tuple[str, ...]]:
    """One row a category and `overall` against the baseline, as `COMPARISON_HEADER` says; none without a baseline."""
    rows = document["comparison"]["rows"] if "comparison" in document else {}
    return [
        (
            field,
            str(row["n"]),
            number(row["before"]),
            number(row["now"]),
            signed(row["difference"]),
            interval(row["ci95"], signs=True),
            _p_value(row["p"]),
            f"rose, p {_p_value(row['p_rise'])}" if row["verdict"] == "rose" else row["verdict"],
            number(row["mde"]),
        )
        for field, row in sorted(rows.items(), key=lambda row: row[0] == "overall")
    ]


def comparison_title(document: Document) -> str | None:
    """Say what the run is compared with; `None` without a baseline."""
    if "comparison" not in document:
        return None
    found = document["comparison"]
    commit = f", commit {found['commit']['sha'][:10]}" if found["commit"] else ""
    part = (
        "" if found["size"] == len(document["items"]) else f" ({len(document['items'])} of its {found['size']} pairs)"
    )
    return f"against baseline {found['name']}: editor {found['editor']}, run {found['run']}{commit}{part}"


def comparison_notes(document: Document) -> list[str]:
    """Say whose p values share a family, and which pairs fell and rose most; nothing without a baseline."""
    if "comparison" not in document:
        return []
    found = document["comparison"]
    gated = sum(row["verdict"] in WORST_FIRST for row in found["rows"].values())
    gates = f"over the {gated} gate{'s' * (gated > 1)}"
    family = "over all rows" if not gated else f"of rows with a gate {gates}, of the others over all rows"
    notes = [f"p is after Holm: {gates if gated == len(found['rows']) else family}"]
    for verb in ("fell", "rose"):
        if found[verb]:
            pairs = (f"{pair['id']} {pair['before']:.2f} → {pair['now']:.2f}" for pair in found[verb])
            notes.append(f"{verb} most: {', '.join(pairs)}")
    return notes


def controls_rows(document: Document) -> list[tuple[str, ...]]:
    """One row a control, best first, as `CONTROLS_HEADER` says; none if no controls were asked for."""
    return [
        (
            row["control"],
            str(row["n"]),
            str(row["errors"]),
            number(row["mean"]),
            interval(row["ci95"]),
            _p_value(row["p"]),
            _TOLD[row["state"]],
        )
        for row in document.get("controls", {"rows": ()})["rows"]
    ]


def further_tables(document: Document) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, header and rows of the tables that a run may have: the comparison, controls, the judge's noise."""
    tried = document.get("controls", {"pairs": 0})["pairs"]
    noise = "judge's noise: the same edits judged again (the floor is of all rows but order)"
    tables = [
        (comparison_title(document) or "", COMPARISON_HEADER, comparison_rows(document)),
        (f"controls: the judge on edits of known worth, {tried} pairs", CONTROLS_HEADER, controls_rows(document)),
        (noise, NOISE_HEADER, noise_rows(document)),
    ]
    return [table for table in tables if table[2]]


def noise_rows(document: Document) -> list[tuple[str, ...]]:
    """One row a repeat of the judging, as `NOISE_HEADER` says; none if no repeats were asked for."""
    return [
        (
            row["perturbation"],
            str(row["n"]),
            str(row["errors"]),
            str(row["changed"]),
            number(row["sd"]),
            signed(row["shift"]),
        )
        for row in document.get("noise", {"rows": ()})["rows"]
    ]


def _p_value(p: float | None) -> str:
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
