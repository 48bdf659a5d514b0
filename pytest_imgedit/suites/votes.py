"""Reads votes between systems: a CSV file, or GenArena's logs; and writes the CSV file."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, file_types, files, strict_json
from pytest_imgedit.core.choices import NO_CATEGORY, Winner
from pytest_imgedit.core.duel_votes import DuelVote, First
from pytest_imgedit.core.measures import SCORE
from pytest_imgedit.core.pairs import slug
from pytest_imgedit.core.text import shorten
from pytest_imgedit.suites.vote_rows import (
    MAX_BYTES,
    REQUIRED,
    Layout,
    VoteRow,
    read_vote_rows,
    shown,
)

#: The folder of a store's votes.
FOLDER = "votes"
_OPTIONAL = ("first", "dimension", "category", "source")
_LAYOUT = Layout(_OPTIONAL, "id,a,b,winner,rater[,first][,dimension][,category][,source]")
_FORMS = "a CSV file of votes, or GenArena's logs: a .jsonl file, or a folder with *_vs_*.jsonl"
_LOG = "a log of GenArena: a JSON object a line"
#: The folder of a subset's logs, and of the replies beside them.
_LOGS = "pk_logs"
_REPLIES = "raw_outputs"
_MOST_SHOWN = 80
_FIRST: dict[str, First] = {"": "", "a": "a", "b": "b"}


def read_votes(path: Path) -> list[DuelVote]:
    """Return the votes of a CSV file, of a log of GenArena (`.jsonl`), or of all logs in a folder,
    in the order of their names.

    A line of a log is the outcome of both orders, so no edit is its first, and nobody is named as
    its judge. Its pair is called as in the suite `genarena`: by the subset, if it is below a folder
    `pk_logs`, and the index of the sample. The subset is its category too. A line that a log
    repeats counts once.

    Raises `UsageError` with file and line for a row that says nothing clear or that says again, in
    a log otherwise, who won; also for no votes.
    """
    if files.is_folder(path):
        votes = list(_read_logs(path))
    elif path.suffix.lower() == ".jsonl":
        votes = list(_read_log(path))
    elif path.suffix.lower() == ".csv":
        votes = list(_read_csv(path))
    else:
        raise errors.UsageError(f"{path}: no votes, expected {_FORMS}")
    if not votes:
        problem = f"{path}: no votes, expected at least one"
        raise files.unusable(path, _FORMS, problem)
    return votes


def stored_votes(store: Path) -> list[DuelVote]:
    """Return the votes in the folder `votes` of a store; raise `UsageError` as `read_votes`."""
    return [vote for path in sorted((store / FOLDER).glob("*.csv")) for vote in read_votes(path)]


def join_votes(sources: Iterable[Sequence[DuelVote]]) -> list[DuelVote]:
    """Return the votes of several files; a vote that stands in two of them counts once.

    Raises `UsageError`, which names both places, if they disagree on who won.
    """
    known: dict[tuple[str, ...], DuelVote] = {}
    for votes in sources:
        for vote in votes:
            _require_same(known.setdefault(_key(vote), vote), vote)
    return list(known.values())


def votes_csv(votes: Iterable[DuelVote]) -> str:
    """Return votes as the CSV file that `read_votes` reads; its lines end as RFC 4180 says."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow((*REQUIRED, *_OPTIONAL))
    for vote in votes:
        writer.writerow(
            (
                vote.pair,
                vote.a,
                vote.b,
                vote.winner,
                vote.judge,
                vote.first,
                vote.dimension,
                vote.category,
                vote.cluster,
            )
        )
    return file.getvalue()


def _key(vote: DuelVote) -> tuple[str, ...]:
    """Return what makes a vote: what was asked, and who was. The system that was shown first comes
    first, if that is known.
    """
    systems = (vote.b, vote.a) if vote.first == "b" else (vote.a, vote.b)
    return (vote.pair, *systems, vote.judge, str(bool(vote.first)), vote.dimension)


def _winner(vote: DuelVote) -> str | None:
    """Return the system that won; `None` for a tie."""
    return {"a": vote.a, "b": vote.b, "tie": None}[vote.winner]


def _require_same(first: DuelVote, again: DuelVote) -> None:
    expected = _winner(first)
    if _winner(again) != expected:
        outcome = "a tie" if expected is None else f"a win of {shown(expected)}"
        raise errors.UsageError(
            f"{again.row}: another winner in id {shown(again.pair)} than {first.row}, expected "
            f"{outcome} as there: remove one of the two"
        )


def _read_csv(path: Path) -> Iterator[DuelVote]:
    places: dict[tuple[str, ...], str] = {}
    for row in read_vote_rows(path, _LAYOUT):
        vote = _vote_of_row(row)
        first = places.setdefault(_key(vote), row.place)
        if first != row.place:
            raise errors.UsageError(
                f"{row.place}: rater {shown(vote.judge)} votes again on {shown(vote.a)} and "
                f"{shown(vote.b)} in id {shown(vote.pair)}, expected one row: the first is {first}"
            )
        yield vote


def _vote_of_row(row: VoteRow) -> DuelVote:
    first = row.text("first").casefold()
    if first not in _FIRST:
        raise row.error("first", "a, b or nothing")
    vote = DuelVote(
        pair=row.required("id", "an id"),
        a=row.required("a", "the name of a run or system"),
        b=row.required("b", "the name of a run or system"),
        winner=row.winner,
        first=_FIRST[first],
        judge=row.text("rater"),
        dimension=row.text("dimension") or SCORE,
        category=row.text("category") or NO_CATEGORY,
        cluster=row.text("source"),
        row=row.place,
    )
    _require_two(vote)
    return vote


def _require_two(vote: DuelVote) -> None:
    if vote.a == vote.b:
        raise errors.UsageError(
            f"{vote.row}: both systems are {shown(vote.a)}, expected two different ones"
        )


def _read_logs(folder: Path) -> Iterator[DuelVote]:
    """Yield the votes of all logs in a folder, but for those in hidden folders, which GenArena
    makes of models that were removed.
    """
    found = []
    for path in sorted(folder.rglob("*_vs_*.jsonl")):
        above = path.relative_to(folder).parts[:-1]
        if not any(name == _REPLIES or name.startswith(".") for name in above):
            found.append(path)
    if not found:
        raise errors.UsageError(f"{folder}: no *_vs_*.jsonl in it, expected {_FORMS}")
    yield from join_votes(map(_read_log, found))


def _read_log(path: Path) -> list[DuelVote]:
    """Return the votes of one log, each once."""
    text = files.read_utf8(path, MAX_BYTES, _LOG)
    subset = _subset(path)
    votes = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            votes.append(_vote_of_line(f"{path}:{number}", line, subset))
    return join_votes([votes])


def _subset(path: Path) -> str:
    """Return the folder that holds the folder of logs which a log is in; an empty text if it is in
    none.
    """
    for parent in path.absolute().parents:
        if parent.name == _LOGS:
            return parent.parent.name
    return ""


def _vote_of_line(place: str, text: str, subset: str) -> DuelVote:
    try:
        line = strict_json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = file_types.why_no_json(text, error)
        raise errors.UsageError(f"{place}: not valid JSON: {reason}, expected {_LOG}") from None
    if not isinstance(line, dict):
        raise errors.UsageError(f"{place}: {type(line).__name__}, expected {_LOG}")
    index = line.get("sample_index")
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 2**53:
        raise _wrong(place, "sample_index", index, "a whole number from 0")
    vote = DuelVote(
        pair=slug(f"{subset}-{index:06}") if subset else f"{index:06}",
        a=_system(place, "model_a", line),
        b=_system(place, "model_b", line),
        winner="tie",
        category=subset or NO_CATEGORY,
        row=place,
    )
    _require_two(vote)
    vote = replace(vote, winner=_winner_of_line(vote, line.get("final_winner")))
    return vote.in_order


def _system(place: str, field: str, line: strict_json.JsonObject) -> str:
    name = line.get(field)
    if not isinstance(name, str) or not name.strip():
        raise _wrong(place, field, name, "the name of a model")
    if name == "tie":
        raise _wrong(place, field, name, "another name: final_winner says tie if nobody won")
    return name.strip()


def _winner_of_line(vote: DuelVote, winner: object) -> Winner:
    """Return the winner that a log names; the words `model_a` and `model_b` stand for the two, if
    neither is a model's name.
    """
    winners: dict[object, Winner] = {"tie": "tie", vote.a: "a", vote.b: "b"}
    words: dict[object, Winner] = {"model_a": "a", "model_b": "b"}
    if not words.keys() & winners.keys():
        winners |= words
    if not isinstance(winner, str) or winner not in winners:
        raise _wrong(vote.row, "final_winner", winner, f"{shown(vote.a)}, {shown(vote.b)} or 'tie'")
    return winners[winner]


def _wrong(place: str, field: str, value: Any, expected: str) -> errors.UsageError:
    found = shorten(repr(value), _MOST_SHOWN)
    return errors.UsageError(f"{place}: {field} is {found}, expected {expected}")
