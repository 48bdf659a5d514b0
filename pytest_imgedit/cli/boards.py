"""`imgedit leaderboard --duel`: systems rated by votes between their edits."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from pytest_imgedit.cli.comparable import read_all, refuse_twice, voted_systems
from pytest_imgedit.core import errors
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.pairs import slug
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, did_you_mean, first_of, printable, shorten
from pytest_imgedit.report import board_page, board_tables, outputs, terminal
from pytest_imgedit.report.board_tables import Ratings
from pytest_imgedit.report.view_page import pairs_url
from pytest_imgedit.stats import arena_fits, boards
from pytest_imgedit.stats.davidson import OneSided, check_connected
from pytest_imgedit.stats.vote_counts import Coded, Tally
from pytest_imgedit.store.baselines import Baseline, BaselineItem
from pytest_imgedit.store.store import finished_runs
from pytest_imgedit.suites.votes import FOLDER, join_votes, read_votes, stored_votes

_MAKE = "`imgedit duel RUN RUN…` makes them"
#: Columns for which a narrow terminal has no room, the last first.
_DISPENSABLE = ("95% CI of diff", "ranks", "lost", "tied", "won")


@dataclass(frozen=True)
class BoardOptions:
    """The options of `imgedit leaderboard` that are for duels: files of votes, and the arena whose
    own fit is shown. Raises `UsageError` for one without `duel`.
    """

    duel: bool = False
    votes: Sequence[Path] = ()
    fit: str | None = None

    def __post_init__(self) -> None:
        for name in ("votes", "fit"):
            if getattr(self, name) and not self.duel:
                raise errors.UsageError(f"--{name}: no votes to rate by, expected --duel too")


@dataclass(frozen=True)
class _Fit:
    """How another arena computes ratings, and what is known to be wrong with that."""

    title: str
    rate: Callable[[Sequence[DuelVote]], Mapping[str, float]]
    note: str


_FITS = {
    "genarena": _Fit(
        "GenArena's own ratings",
        arena_fits.genarena,
        "the fit stops after 100 rounds, even if it has not converged; 1000 is the arithmetic mean "
        "of strengths, so a strong system lowers all other ratings",
    ),
    "gedit-v2": _Fit(
        "GEdit v2's own ratings",
        arena_fits.gedit_v2,
        "a ridge draws all ratings to that of the last name in order; which edit was shown first "
        "is ignored",
    ),
}


@dataclass(frozen=True)
class _Found:
    """Votes that count, the ids of the runs of systems, the system of the reference, and lines on
    what is to be known of the votes.
    """

    votes: Sequence[DuelVote]
    runs: Mapping[str, str]
    reference: str | None
    notes: Sequence[str]


def board(
    references: Sequence[str],
    reference: str | None,
    options: BoardOptions,
    paths: Mapping[str, Path],
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Rate the systems of runs, or all that votes name, and write a file in each format that has a
    path.

    Votes are those of the files of the options. Those of the store `out` count too if runs are
    named, or no files. `reference` is a system of the votes or a run. Raises `UsageError` without
    votes, for a run that has none, and as `boards.rate` does.
    """
    if reference is not None and options.fit is not None:
        raise errors.UsageError(
            f"--reference={reference}: ratings without intervals have no differences, expected "
            "--fit without it"
        )
    kept = outputs.inputs(out)
    kept += [
        path for path in options.votes if not Path.cwd().is_relative_to(os.path.realpath(path))
    ]
    outputs.check(paths, kept)
    found = _find(references, reference, options.votes, out)
    if options.fit is None:
        rated = _rated(found.votes, found.reference)
        rated = replace(rated, notes=(*rated.notes, *found.notes))
        ratings = board_tables.ratings_of(rated, found.reference)
    else:
        rated = None
        chosen = _FITS[options.fit]
        notes = [f"no intervals: {chosen.note}", *found.notes, *_why_none_fits(found.votes)]
        ratings = board_tables.ratings_of_fit(chosen.title, chosen.rate(found.votes), notes)
    lines = _terminal_lines(ratings)
    for kind, path in paths.items():
        pairs_of = partial(_pairs_url, path, out, found.runs)
        outputs.write(path, _rendered(kind, ratings, rated, pairs_of), kept)
        lines.append(f"{kind}: {os.path.relpath(path)}")
    return ratings.document, "\n".join(lines), 0


def _pairs_url(page: Path, out: Path, runs: Mapping[str, str], one: str, other: str) -> str:
    """Return the address, from a page, of the pairs by two systems in the page of a store, those
    first whose votes are for `one`; an empty text if that lacks the run of one.
    """
    if not {one, other} <= runs.keys():
        return ""
    url = pairs_url(page, out, [runs[one], runs[other]])
    return url and f"{url}&order=won&a={slug(runs[one])}&b={slug(runs[other])}"


def _rated(votes: Sequence[DuelVote], reference: str | None) -> boards.Board:
    """Rate systems, without those that won or lost every vote against the rest: their ratings are
    infinite, and a note tells them.
    """
    notes: list[str] = []
    while True:
        try:
            rated = boards.rate(votes, reference)
        except OneSided as error:
            rest = [vote for vote in votes if not {vote.a, vote.b} & set(error.systems)]
            if reference in error.systems or not rest:
                raise
            place = "above" if error.what == "won" else "below"
            notes.append(
                f"{first_of(error.systems)} {error.what} every vote against the rest: without a "
                f"finite rating, {place} this board"
            )
            votes = rest
        else:
            return replace(rated, notes=(*notes, *rated.notes))


def _why_none_fits(votes: Sequence[DuelVote]) -> Iterator[str]:
    """Yield why votes have no finite ratings, where another arena's fit has some all the same."""
    try:
        check_connected(Tally.of(Coded.of(votes)))
    except errors.UsageError as error:
        yield f"these ratings are not to be believed: {error}"


def _rendered(
    kind: str,
    ratings: Ratings,
    rated: boards.Board | None,
    pairs_of: Callable[[str, str], str],
) -> str:
    if kind == "html":
        return board_page.render(ratings, rated, pairs_of)
    return ratings.csv if kind == "csv" else board_tables.markdown(ratings)


def _terminal_lines(ratings: Ratings) -> list[str]:
    """Return lines that show all tables and notes."""
    width = shutil.get_terminal_size().columns
    lines = [printable(ratings.title)]
    for table in ratings.tables:
        dispensable = list(_DISPENSABLE)
        if table is not ratings.tables[0]:
            dispensable = list(table.header[1:])
        shown = terminal.render_table(table.header, table.rows, width, dispensable)
        lines += ["", printable(table.title), shown]
    lines.append("")
    lines += map(printable, ratings.notes)
    return lines


def _find(
    references: Sequence[str], reference: str | None, files: Sequence[Path], out: Path
) -> _Found:
    """Read the votes that count.

    If runs are named, these are the votes between their systems and the reference; votes may name
    a run by its id too. Raises `UsageError` for no votes, for a run without any, and for a
    reference that is neither a run nor a system of the votes.
    """
    found = _read(files, out, is_of_runs=bool(references))
    voted = list(dict.fromkeys(name for vote in found for name in (vote.a, vote.b)))
    named = references or _runs_in(out, voted)
    runs = dict(zip(named, read_all(named, out), strict=True))
    refuse_twice(runs, runs.values())
    names = voted_systems(list(runs.values()))
    base = reference
    if reference is not None and reference not in {*voted, *names}:
        run = _run_of(reference, voted, out)
        base = run.run
        if base not in names:
            runs[reference] = run
            names = voted_systems(list(runs.values()))
    pairs = {item.id: item for run in runs.values() for item in run.items}
    if not references:
        names = {name: name for name in voted} | names
    elif base is not None:
        names.setdefault(base, base)
    votes = [_of_pair(vote, pairs) for vote in _between(found, names)]
    _require_votes(runs, names, votes)
    joined = join_votes([votes])
    notes = _notes(joined, others=len(found) - len(votes), repeated=len(votes) - len(joined))
    ids = {names[run.run]: run.run for run in runs.values()}
    return _Found(joined, ids, None if base is None else names[base], list(notes))


def _read(files: Sequence[Path], out: Path, *, is_of_runs: bool) -> list[DuelVote]:
    """Return the votes of files and, if there are no files or runs are named, those of the
    store.
    """
    votes = [vote for path in files for vote in read_votes(path)]
    if is_of_runs or not files:
        votes += stored_votes(out)
    if not votes:
        raise errors.UsageError(
            f"{out / FOLDER}: no votes, expected CSV files: {_MAKE}, or name a file with --votes"
        )
    return votes


def _runs_in(out: Path, voted: Sequence[str]) -> list[str]:
    """Return those names that are the ids of runs in the store."""
    known = {path.parent.name for path in finished_runs(out)}
    return [name for name in voted if name in known]


def _run_of(reference: str, voted: Sequence[str], out: Path) -> Baseline:
    """Return the run of a reference that is no system of the votes."""
    try:
        (run,) = read_all([reference], out)
    except errors.UsageError as error:
        raise errors.UsageError(
            f"{error}; or a system of the votes: {first_of(voted)}{did_you_mean(reference, voted)}"
        ) from None
    return run


def _between(votes: Iterable[DuelVote], names: Mapping[str, str]) -> Iterator[DuelVote]:
    """Yield the votes between systems, which have other names too."""
    for vote in votes:
        if vote.a not in names or vote.b not in names:
            continue
        a = names[vote.a]
        b = names[vote.b]
        if a == b:
            raise errors.UsageError(
                f"{vote.row}: {vote.a!r} and {vote.b!r} are one run, expected two systems"
            )
        yield replace(vote, a=a, b=b)


def _of_pair(vote: DuelVote, pairs: Mapping[str, BaselineItem]) -> DuelVote:
    """Return a vote with the category and the source of its pair, if runs tell them: people's votes
    rarely do, and one source would count as two.
    """
    item = pairs.get(vote.pair_id)
    if item is None:
        return vote
    cluster = item.id if item.source is None else PurePosixPath(item.source).stem
    return replace(vote, category=item.category, cluster=cluster)


def _require_votes(
    runs: Mapping[str, Baseline], names: Mapping[str, str], votes: Sequence[DuelVote]
) -> None:
    """Raise `UsageError` for a run on whose system there is no vote."""
    voted = {name for vote in votes for name in (vote.a, vote.b)}
    for reference, run in runs.items():
        system = names[run.run]
        if system not in voted:
            raise errors.UsageError(
                f"{reference}: no vote is on its system {shorten(system, 80)!r} and another one "
                f"of these, expected some: {_MAKE}"
            )


def _notes(votes: Sequence[DuelVote], *, others: int, repeated: int) -> Iterator[str]:
    """Yield what is to be known of the votes that count, and how many do not."""
    judges = Counter(vote.judge or board_tables.UNNAMED for vote in votes)
    if len(judges) > 1:
        counts = [f"{shorten(judge, 60)} {count}" for judge, count in judges.most_common()]
        yield f"the votes of {counted(len(judges), 'judge')} count: {first_of(counts)}"
    if others:
        yield f"{counted(others, 'vote')} on other systems left out"
    if repeated:
        yield f"{counted(repeated, 'vote')} that other files repeat left out"
