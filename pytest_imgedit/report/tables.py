"""Tables beside that of the scores: the comparison with a baseline, controls, and the judge's noise."""

from __future__ import annotations

from pytest_imgedit.report.model import WORST_FIRST, Document, interval, number, signed

COMPARISON_HEADER = ("category", "n", "before", "now", "diff", "95% CI", "p of drop", "verdict", "MDE")
CONTROLS_HEADER = ("control", "n", "errors", "pending", "mean", "95% CI", "AUC", "judge")
NOISE_HEADER = ("judged again", "n", "errors", "pending", "changed", "SD", "shift")
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]], list[str]]
_TOLD = {"PASS": "told apart", "INVALID": "not told apart", "INCONCLUSIVE": "not shown", None: "–"}


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


def comparison_title(document: Document) -> str:
    """Say what the run is compared with; nothing without a baseline."""
    if "comparison" not in document:
        return ""
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
    over = gates if gated == len(found["rows"]) else family
    notes = [f"p is one-sided, after Holm {over}; an interval is two-sided, of its row alone"]
    if found.get("environment"):
        notes.append(f"computed in other environments: {'; '.join(found['environment'])}")
    if found.get("collapsed"):
        notes.append(f"collapsed: {', '.join(found['collapsed'])}")
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
            str(row["pending"]),
            number(row["mean"]),
            interval(row["ci95"]),
            _area(row),
            "not all asked" if row["pending"] else _TOLD[row["state"]],
        )
        for row in document.get("controls", {"rows": ()})["rows"]
    ]


def further_tables(document: Document) -> list[Table]:
    """Title, header, rows and notes of the tables that a run may have: the comparison, controls, the judge's noise."""
    tried = document.get("controls", {"pairs": 0})["pairs"]
    floor = "the noise floor is that of all rows but order, in which no two runs differ"
    tables: list[Table] = [
        (comparison_title(document), COMPARISON_HEADER, comparison_rows(document), comparison_notes(document)),
        (f"controls: the judge on edits of known worth, {tried} pairs", CONTROLS_HEADER, controls_rows(document), []),
        ("judge's noise: the same edits judged again", NOISE_HEADER, noise_rows(document), [floor]),
    ]
    return [table for table in tables if table[2]]


def noise_rows(document: Document) -> list[tuple[str, ...]]:
    """One row a repeat of the judging, as `NOISE_HEADER` says; none if no repeats were asked for."""
    return [
        (
            row["perturbation"],
            str(row["n"]),
            str(row["errors"]),
            str(row["pending"]),
            str(row["changed"]),
            number(row["sd"]),
            signed(row["shift"]),
        )
        for row in document.get("noise", {"rows": ()})["rows"]
    ]


def _area(row: Document) -> str:
    ends = row.get("auc_ci95")
    return "–" if ends is None else f"{row['auc']:.2f} ({interval(ends)})"


def _p_value(p: float | None) -> str:
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
