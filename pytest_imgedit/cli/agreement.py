"""`imgedit agreement`: a run's scores against ratings by people."""

import csv
import io
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pytest_imgedit.cli import run_choices
from pytest_imgedit.cli.comparable import read_run
from pytest_imgedit.core import errors, files, pairs
from pytest_imgedit.core.results import Item
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, first_of, interval, number, printable, shorten
from pytest_imgedit.report import tables, terminal
from pytest_imgedit.stats.agreement import RankAgreement, agreement
from pytest_imgedit.stats.raters import RaterAgreement, RatingRows, rater_agreement
from pytest_imgedit.stats.resampling import Statistic
from pytest_imgedit.suites import cells

#: The most bytes of a file of ratings.
MAX_BYTES = 64 * 2**20
#: Ratings lie between this and its negative: the means of larger ones are no longer exact.
MAX_RATING = 1e6
#: Seconds between two lines of progress.
PROGRESS_S = 5.0
#: The most characters of a cell that a message shows.
_MOST_SHOWN = 80
#: Columns of the two tables, by the field of a row that each shows.
_JUDGE_COLUMNS = {
    "n": "n",
    "spearman": "Spearman",
    "kendall": "Kendall τ-b",
    "pairwise": "pairwise accuracy",
    "within_source": "within a source",
}
_RATER_COLUMNS = {
    "raters": "raters",
    "alpha": "Krippendorff's α",
    "against_others": "rater to the others' mean",
    "against_rater": "rater to rater",
}


@dataclass(frozen=True, slots=True)
class Rating:
    """A person's rating of an edit, on any scale up to `MAX_RATING`; `rater` is empty if the file
    does not say who.
    """

    score: float
    rater: str = ""


Ratings = Mapping[str, Sequence[Rating]]


def read_ratings(path: Path) -> dict[str, list[Rating]]:
    """Return the ratings of each pair, by its id, from a CSV file.

    Its columns are `id`, `score` and optionally `rater`; further ones are ignored. Raises
    `UsageError`, with file:line for a wrong row and for a rater who rates a pair twice.
    """
    ratings: dict[str, list[Rating]] = {}
    first_lines: dict[tuple[str, str], int] = {}
    text = files.read_utf8(path, MAX_BYTES, "a CSV file")
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = list(rows.fieldnames or ())
        _check_header(path, header)
        for row in rows:
            location = f"{path}:{rows.line_num}"
            pair_id = _name(row["id"])
            rating = _rating(location, pair_id, row, "rater" in header)
            if rating.rater:
                rated = (pair_id, rating.rater)
                if rated in first_lines:
                    raise errors.UsageError(
                        f"{location}: rater {_shown(rating.rater)} rates id {_shown(row['id'])} "
                        f"again, expected one rating: the first is in line {first_lines[rated]}, "
                        "delete one of them"
                    )
                first_lines[rated] = rows.line_num
            ratings.setdefault(pair_id, []).append(rating)
    except csv.Error as error:
        line = rows.line_num + 1  # the one after the last row that was read
        problem = f"{path}:{line}: not valid CSV: {error}"
        raise files.unusable(path, "a CSV file", problem) from None
    return ratings


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Raise `UsageError` for a column that is missing or occurs twice."""
    expected = (
        "expected a header with one id, one score and at most one rater, or for choices with id, "
        "a, b, winner and rater"
    )
    for column in ("id", "score", "rater"):
        if header.count(column) > 1:
            raise errors.UsageError(f"{path}:1: twice column {column!r}, {expected}")
        if column != "rater" and column not in header:
            problem = f"{path}:1: no column {column!r}, {expected}"
            raise files.unusable(path, "a CSV file", problem)


def _rating(location: str, pair_id: str, row: Mapping[str, str | None], has_raters: bool) -> Rating:
    """Return the rating in a row; raise `UsageError` for a wrong id or score, and for no rater in a
    file that `has_raters`.
    """
    score = _score(row["score"])
    if score is None or not pair_id:
        raise errors.UsageError(
            f"{location}: id {_shown(row['id'])} with score {_shown(row['score'])}, expected an id "
            f"and a number from {-MAX_RATING:,.0f} to {MAX_RATING:,.0f}"
        )
    if not has_raters:
        return Rating(score)
    rater = _name(row["rater"])
    if not rater:
        raise errors.UsageError(
            f"{location}: no rater of id {_shown(row['id'])}, expected a name in each row, or no "
            "column 'rater'"
        )
    return Rating(score, rater)


def _name(text: str | None) -> str:
    with suppress(ValueError):
        return cells.as_name(text) or ""
    return ""


def _score(text: str | None) -> float | None:
    with suppress(ValueError):
        value = cells.as_number(text)
        if value is not None and abs(value) <= MAX_RATING:
            return value
    return None


def _shown(value: str | None) -> str:
    return shorten(repr(value), _MOST_SHOWN)


class _Progress:
    """Prints a line to stderr at most every `PROGRESS_S` seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def tell(self, field: str, done: str) -> None:
        if time.monotonic() - self._last > PROGRESS_S:
            self._last = time.monotonic()
            print(f"imgedit: {printable(field)}: {done} compared", file=sys.stderr, flush=True)


def agree(references: Sequence[str], ratings: Path, out: Path) -> tuple[JsonObject, str, int]:
    """Compare a run's scores with the mean rating of each pair, and raters with each other, overall
    and by category; or what several runs' scores say with people's choices between their edits.

    Raters are compared if the file names them. The exit code is 1 if no rated pair has a score.
    """
    if run_choices.has_choices(ratings):
        return run_choices.agree_on_choices(references, ratings, out)
    ratings_by_id = read_ratings(ratings)
    if len(references) > 1:
        raise errors.UsageError(
            f"{ratings}: ratings of {len(references)} runs, expected one run, or choices between "
            "their edits (columns id, a, b, winner and rater)"
        )
    results = read_run(references[0], out)
    raters = _raters(ratings_by_id)
    rated = [item for item in results.items if item.id in ratings_by_id]
    scored = [item for item in rated if item.score is not None]
    unscored = len(rated) - len(scored)
    known = {item.id for item in results.items}
    unknown = [pair_id for pair_id in ratings_by_id if pair_id not in known]
    judge_rows, rater_rows = _agreements(scored, ratings_by_id, raters)
    rating_count = sum(map(len, ratings_by_id.values()))
    rated_pairs = counted(len(ratings_by_id), "pair")
    judge = printable(tables.judge_name(results))
    lines = [
        f"judge {judge} against {counted(rating_count, 'rating')} of {rated_pairs}{_by(raters)} in "
        f"{ratings}",
        _table(_JUDGE_COLUMNS, judge_rows),
    ]
    if raters:
        lines += [
            "raters against each other, over the same pairs",
            _table(_RATER_COLUMNS, rater_rows),
        ]
        lines += _samples(rater_rows)
        lines.append(_ceiling(judge_rows["overall"], rater_rows["overall"]))
    if unscored:
        lines.append(f"{unscored} rated pairs have no score in the run")
    if unknown:
        example = printable(shorten(unknown[0], _MOST_SHOWN))
        lines.append(f"ids that are rated but not in the run: {len(unknown)}, such as {example}")
    document = {
        "pairs": len(scored),
        "ratings": rating_count,
        "raters": len(raters) if raters else None,
        "unscored": unscored,
        "unknown": unknown,
        "rows": _as_dicts(judge_rows),
        "rater_rows": _as_dicts(rater_rows),
    }
    return document, "\n".join(lines), int(not scored)


def _raters(ratings: Ratings) -> list[str]:
    """Return the names of all raters, sorted."""
    raters = {rating.rater for rows in ratings.values() for rating in rows}
    raters.discard("")
    return sorted(raters)


def _agreements(
    scored: Sequence[Item], ratings: Ratings, raters: Sequence[str]
) -> tuple[dict[str, RankAgreement], dict[str, RaterAgreement]]:
    """Return the agreement of the judge with the ratings, and that of the raters with each other,
    by category and `overall`; the latter is empty without `raters`.
    """
    judge_rows: dict[str, RankAgreement] = {}
    rater_rows: dict[str, RaterAgreement] = {}
    progress = _Progress()
    fields = list(pairs.in_order(item.category for item in scored))
    fields.append("overall")
    for field in fields:
        members = [item for item in scored if field in ("overall", item.category)]
        judge_rows[field] = _judge_agreement(members, ratings)
        progress.tell(field, f"{counted(len(members), 'pair')} of the judge")
        if raters:
            tell = partial(progress.tell, field)
            rater_rows[field] = _rater_agreement(members, ratings, raters, tell)
    return judge_rows, rater_rows


def _as_dicts(rows: Mapping[str, RankAgreement | RaterAgreement]) -> JsonObject:
    return {field: asdict(row) for field, row in rows.items()}


def _judge_agreement(members: Sequence[Item], ratings: Ratings) -> RankAgreement:
    """Return the agreement of the judge's scores with the mean ratings of pairs, all scored."""
    means = []
    for item in members:
        scores = [rating.score for rating in ratings[item.id]]
        means.append(math.fsum(scores) / len(scores))
    judge_scores = [item.score for item in members if item.score is not None]
    clusters = [item.cluster for item in members]
    return agreement(judge_scores, means, clusters)


def _rater_agreement(
    members: Sequence[Item],
    ratings: Ratings,
    raters: Sequence[str],
    progress: Callable[[str], None],
) -> RaterAgreement:
    """Return the agreement of raters with each other; `progress` is told what is done so far."""
    rater_indices = {rater: index for index, rater in enumerate(raters)}
    rows = [
        (rater_indices[rating.rater], pair, rating.score)
        for pair, item in enumerate(members)
        for rating in ratings[item.id]
    ]
    rater, pair, value = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return rater_agreement(
        RatingRows(rater.astype(np.intp), pair.astype(np.intp), value),
        [item.cluster for item in members],
        progress,
    )


def _by(raters: Sequence[str]) -> str:
    return f" by {counted(len(raters), 'rater')}" if raters else ""


def _table(columns: Mapping[str, str], rows: Mapping[str, RankAgreement | RaterAgreement]) -> str:
    """Render a row for each category and `overall`, with a column for each named field."""
    table = []
    for field, row in rows.items():
        cells = [_cell(getattr(row, name)) for name in columns]
        table.append((field, *cells))
    return terminal.render_table(("category", *columns.values()), table)


def _samples(rows: Mapping[str, RaterAgreement]) -> Iterator[str]:
    """Yield a line that names the rows whose last column was computed from a sample, if any."""
    sampled = {field: row.compared for field, row in rows.items() if row.is_sample}
    if sampled:
        yield (
            f"rater to rater: of {max(sampled.values())} random two raters "
            f"({first_of(list(sampled))}), the same in each call"
        )


def _ceiling(judge: RankAgreement, raters: RaterAgreement) -> str:
    return (
        f"ceiling: a rater's Spearman with the others' mean is "
        f"{number(raters.against_others.value)}, the judge's with the mean of all is "
        f"{number(judge.spearman.value)}"
    )


def _cell(value: int | Statistic) -> str:
    if isinstance(value, int):
        return str(value)
    ends = "" if value.ci95 is None else f" ({interval(value.ci95)})"
    return f"{number(value.value)}{ends}"
