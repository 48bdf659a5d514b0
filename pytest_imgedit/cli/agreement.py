"""`imgedit agreement`: how well a run's judge ranks edits as people do."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from pytest_imgedit.cli.runs import find_run
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import read_utf8
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.sanitize import counted, interval, number
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import terminal
from pytest_imgedit.report.tables import judge_name
from pytest_imgedit.stats.agreement import MEASURES, agreement
from pytest_imgedit.store.baselines import read_results

MAX_BYTES = 64 * 2**20


def read_ratings(path: Path) -> dict[str, list[float]]:
    """Read the ratings of each pair from rows `id,score`, which may have further columns.

    Raises `UsageError` with file:line.
    """
    ratings: dict[str, list[float]] = {}
    text = read_utf8(path, MAX_BYTES, "a CSV file")
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = list(rows.fieldnames or ())
        for column in ("id", "score"):
            if header.count(column) != 1:
                raise UsageError(
                    f"{path}:1: {'twice' if column in header else 'no'} column {column!r}, "
                    "expected a header with one id and one score"
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


def agree(reference: str, ratings: Path, out: Path) -> tuple[JsonObject, str, int]:
    """Compare a run's scores with the mean rating of each pair, overall and by category."""
    results = read_results(find_run(reference, out))
    ratings_by_id = read_ratings(ratings)
    count = sum(map(len, ratings_by_id.values()))
    rated = [item for item in results.items if item.id in ratings_by_id]
    scored = [item for item in rated if item.score is not None]
    unscored = len(rated) - len(scored)
    known = {item.id for item in results.items}
    unknown = [pair_id for pair_id in ratings_by_id if pair_id not in known]
    measured: dict[str, JsonObject] = {}
    for field in ("overall", *in_order(item.category for item in scored)):
        members = [item for item in scored if field in ("overall", item.category)]
        measured[field] = agreement(
            [item.score or 0.0 for item in members],
            [sum(ratings_by_id[item.id]) / len(ratings_by_id[item.id]) for item in members],
            [item.cluster for item in members],
        )
    table = terminal.render_table(
        ("category", "n", "Spearman", "Kendall τ-b", "pairwise accuracy"),
        [
            (field, str(row["n"]), *(_cell(row[name]) for name in MEASURES))
            for field, row in sorted(measured.items(), key=lambda row: row[0] == "overall")
        ],
    )
    rated_by = f"{counted(count, 'rating')} of {counted(len(ratings_by_id), 'pair')}"
    lines = [f"judge {judge_name(results)} against {rated_by} in {ratings}", table]
    if unscored:
        lines.append(f"{unscored} rated pairs have no score in the run")
    if unknown:
        lines.append(f"ids that are rated but not in the run: {len(unknown)}, such as {unknown[0]}")
    document = {
        "pairs": len(scored),
        "ratings": count,
        "unscored": unscored,
        "unknown": unknown,
        "rows": measured,
    }
    return document, "\n".join(lines), int(not scored)


def _cell(measure: JsonObject) -> str:
    if measure["ci95"] is None:
        return number(measure["value"])
    return f"{number(measure['value'])} ({interval(measure['ci95'])})"
