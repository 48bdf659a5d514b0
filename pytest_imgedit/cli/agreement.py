"""`imgedit agreement`: how well a run's judge ranks edits as people do."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.cli.runs import find_run
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import read_utf8
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.sanitize import counted, interval, number
from pytest_imgedit.report import terminal
from pytest_imgedit.report.tables import judge_name
from pytest_imgedit.stats.agreement import MEASURES, agreement
from pytest_imgedit.store.baselines import read_results

MAX_BYTES = 64 * 2**20


def read_ratings(path: Path) -> dict[str, list[float]]:
    """Read `id,score` rows, with any further columns: the ratings of each pair; raise `UsageError`
    with file:line.
    """
    ratings: dict[str, list[float]] = {}
    text = read_utf8(path, MAX_BYTES, "a CSV file")
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        counts = Counter(rows.fieldnames or ())
        wrong = next((name for name in ("id", "score") if counts[name] != 1), None)
        if wrong is not None:
            found = "twice" if counts[wrong] else "no"
            raise UsageError(
                f"{path}:1: {found} column {wrong!r}, expected a header with one id and one score"
            )
        for row in rows:
            score = _number(row["score"] or "")
            if score is None or not row["id"]:
                raise UsageError(
                    f"{path}:{rows.line_num}: id {row['id']!r} with score {row['score']!r}, "
                    "expected an id and a number"
                )
            ratings.setdefault(row["id"], []).append(score)
    except csv.Error as error:
        raise UsageError(f"{path}:{rows.line_num + 1}: not valid CSV: {error}") from None
    return ratings


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if math.isfinite(value) and "_" not in text:
        return value
    return None


def agree(reference: str, ratings: Path, out: Path) -> Printed:
    """Compare a run's scores with the mean rating of each pair, overall and by category."""
    results, rated_as = read_results(find_run(reference, out)), read_ratings(ratings)
    items = {item.id: item for item in results.items}
    unknown = [name for name in rated_as if name not in items]
    rated = [item for name, item in items.items() if name in rated_as]
    known = [item for item in rated if item.score is not None]
    fields = {"overall": known}
    for category in in_order(item.category for item in known):
        fields[category] = [item for item in known if item.category == category]
    measured = {
        field: agreement(
            [item.score or 0.0 for item in own],
            [sum(rated_as[item.id]) / len(rated_as[item.id]) for item in own],
            [item.cluster for item in own],
        )
        for field, own in fields.items()
    }
    count, unscored = sum(len(own) for own in rated_as.values()), len(rated) - len(known)
    found = {
        "pairs": len(known),
        "ratings": count,
        "unscored": unscored,
        "unknown": unknown,
        "rows": measured,
    }
    rows = [
        (field, str(row["n"]), *(_cell(row[name]) for name in MEASURES))
        for field, row in sorted(measured.items(), key=lambda row: row[0] == "overall")
    ]
    rated_by = f"{counted(count, 'rating')} of {counted(len(rated_as), 'pair')}"
    text = [
        f"judge {judge_name(results)} against {rated_by} in {ratings}",
        terminal.render_table(
            ("category", "n", "Spearman", "Kendall τ-b", "pairwise accuracy"), rows
        ),
    ]
    if unscored:
        text.append(f"{unscored} rated pairs have no score in the run")
    if unknown:
        text.append(f"ids that are rated but not in the run: {len(unknown)}, such as {unknown[0]}")
    return Printed(found, "\n".join(text), int(not known))


def _cell(measure: dict[str, Any]) -> str:
    if measure["value"] is None:
        return "–"
    ends = measure["ci95"]
    return number(measure["value"]) + ("" if ends is None else f" ({interval(ends)})")
