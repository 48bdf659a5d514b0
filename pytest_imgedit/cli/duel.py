"""`imgedit duel`: a judge compares the edits of every two of several runs."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.comparable import (
    read_with_paths,
    refuse_others,
    refuse_twice,
    voted_systems,
)
from pytest_imgedit.cli.duelling import KnownJudge, refuse_to_duel, settings_of_duels
from pytest_imgedit.cli.judge_options import JudgeOptions
from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core import errors, files
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.pairs import slug
from pytest_imgedit.core.results import GateResult, Item, JudgeInfo, Results
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, first_of, interval, number, printable
from pytest_imgedit.report import outputs, terminal
from pytest_imgedit.report.read import read_whole
from pytest_imgedit.run.baselines import ComparedWith
from pytest_imgedit.run.many_duels import Contest, Entrant, Judged, judge_contests
from pytest_imgedit.run.run_duel import FinishedEdits, has_measured
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats.duels import controls_gate, describe_controls
from pytest_imgedit.stats.leaderboard import system_names
from pytest_imgedit.stats.outcome import fails
from pytest_imgedit.store.baselines import Baseline
from pytest_imgedit.store.store import Store, blobs_around
from pytest_imgedit.suites.votes import FOLDER, join_votes, read_votes, votes_csv

OPTION = "duel"
_HEADER = ("a", "b", "duels", "a wins", "95% CI", "order decides", "undecided")


def duel(
    references: Sequence[str], votes: Sequence[Path], out: Path, **options: Any
) -> tuple[JsonObject, str, int]:
    """Have a judge compare the edits of every two of several runs or baselines, and add its votes
    and those of other files to a file of the store; without runs, only take over those files. The
    `options` are those of `JudgeOptions`.

    The exit code is 1 if the judge fails its trial, or decides nothing. Raises `UsageError` for a
    single run, and for runs that cannot be compared.
    """
    judge = JudgeOptions.take(options)
    if not references:
        judge.refuse_without("a RUN", "nothing to ask")
        return _take_over(votes, out)
    if len(references) == 1:
        raise errors.UsageError(f"duel {references[0]}: expected two or more runs or baselines")
    runs = _read_runs(references, out)
    known = {name for run in runs for name in run.baseline.contents}
    read = join_votes(_renamed(read_votes(path), runs) for path in votes)
    given = [vote for vote in read if vote.pair_id in known]
    suite_of_all = _finished(runs, out)
    with closing(_session(runs, suite_of_all, judge, out)) as session:
        entrants = _entrants(runs, session, [item.id for item in suite_of_all.edits.items])
        judged = judge_contests(
            session,
            entrants,
            has_measured=suite_of_all.has_measured(session.settings.judge.spec),
            decided={(vote.a, vote.b, vote.pair) for vote in given},
            file=sys.stderr,
        )
        path = out / FOLDER / judged.file_name
        kept = _write(path, given, judged.votes)
        settings = session.settings.gates
    controls = describe_controls(judged.trials, settings.alpha)
    gates = [controls_gate(controls)] if controls else []
    is_failed = any(fails(gate, settings) for gate in gates)
    has_none = judged.duels > 0 and judged.undecided == judged.duels
    document = _document(judged, runs, gates)
    document["votes"] = str(path) if kept else None
    document["controls"] = [control.model_dump(mode="json") for control in controls]
    lines = list(_lines(judged, gates, path, kept, references))
    if len(given) < len(read):
        lines.append(f"{counted(len(read) - len(given), 'vote')} on pairs of no run left out")
    return document, "\n".join(lines), int(is_failed or has_none)


# Runs


@dataclass(frozen=True)
class _Run:
    """A run or a baseline, how the command names it, the name of its system, and its file."""

    reference: str
    system: str
    baseline: Baseline
    path: Path


def _read_runs(references: Sequence[str], out: Path) -> list[_Run]:
    """Return runs and baselines; raise `UsageError` for one that occurs twice, and for two that are
    not of the same pairs, where they have pairs of one id.
    """
    found = read_with_paths(references, out)
    names = system_names([baseline for baseline, _ in found])
    runs = [
        _Run(reference, name, baseline, path)
        for reference, name, (baseline, path) in zip(references, names, found, strict=True)
    ]
    refuse_twice(references, [baseline for baseline, _ in found])
    for one, other in combinations(runs, 2):
        both = f"{one.reference} and {other.reference}"
        refuse_to_duel(one.baseline, other.baseline, both, only_common=True)
        if not one.baseline.contents.keys() & other.baseline.contents.keys():
            raise errors.UsageError(f"{both} share no pair, expected runs with pairs in common")
    return runs


@dataclass(frozen=True)
class _Finished:
    """The texts and images of the pairs of runs, and the results that tell them."""

    edits: FinishedEdits
    results: Sequence[Results]

    def has_measured(self, judge: str) -> bool:
        """Tell whether a judge of this spec gave scores in one of the runs."""
        return any(has_measured(results, judge) for results in self.results)


def _finished(runs: Sequence[_Run], out: Path) -> _Finished:
    """Return the pairs of runs, as the last run that has a pair tells it; raise `UsageError` for
    baselines alone, which tell no texts, and for images that are gone.
    """
    wanted = {name for run in runs for name in run.baseline.contents}
    items: dict[str, Item] = {}
    told: list[Results] = []
    stores = {}
    for run in reversed(runs):
        document = None if wanted <= items.keys() else read_whole(run.path)
        if isinstance(document, Results):
            told.append(document)
            for item in FinishedEdits(document, ()).items:
                items.setdefault(item.id, item)
            for blobs in blobs_around(run.path, Store(out)):
                stores[blobs.folder] = blobs
    if not told:
        names = first_of([run.reference for run in runs])
        raise errors.UsageError(
            f"duel: {names} are baselines, which have no texts to ask a judge about, expected at "
            "least one run"
        )
    results = told[0].model_copy(update={"items": tuple(items.values())})
    edits = FinishedEdits(results, list(stores.values()), option=OPTION)
    edits.require_images()
    return _Finished(edits, told)


def _session(
    runs: Sequence[_Run], finished: _Finished, options: JudgeOptions, out: Path
) -> Session:
    """Return a session over the pairs of runs with the judge of the options, or of the last run."""
    last = runs[-1].baseline
    known = KnownJudge(last.judge, last.run, finished.has_measured, OPTION)
    suite = finished.edits.results.suite.name
    gates = GatesSettings.model_validate({"duel": True})
    settings = settings_of_duels(known, suite, options, gates, out)
    return Session(settings, Path(), finished.edits.suite)


def _entrants(runs: Sequence[_Run], session: Session, ids: Sequence[str]) -> list[Entrant]:
    """Return runs with their edits of pairs; raise `UsageError` if some are gone."""
    entrants = []
    for run in runs:
        compared = ComparedWith(run.baseline, path=run.path)
        edits = session.baselines.other_edits(compared, session.store)
        edits = replace(edits, option=OPTION)
        edits.require_edits(run.baseline, ids)
        entrants.append(Entrant(run.baseline, edits.edit_of, system=run.system))
    return entrants


# Files of votes


def _take_over(paths: Sequence[Path], out: Path) -> tuple[JsonObject, str, int]:
    """Add files of votes to files of the store that have their names."""
    if not paths:
        raise errors.UsageError("duel: expected two or more runs or baselines, or --votes=FILE")
    lines = []
    documents = []
    for path in paths:
        target = out / FOLDER / f"{slug(path.stem)}.csv"
        count = _write(target, [vote.in_order for vote in read_votes(path)], ())
        documents.append({"path": str(target), "votes": count})
        lines.append(f"votes: {counted(count, 'vote')} in {os.path.relpath(target)}")
    return {"votes": documents}, "\n".join(lines), 0


def _write(path: Path, given: Iterable[DuelVote], asked: Iterable[DuelVote]) -> int:
    """Add votes to a file, and return how many it has then; those that were `asked` now replace
    older ones of the judge. Raises `UsageError` if those of a user disagree with the file.
    """
    old = read_votes(path) if files.is_file(path) else []
    votes = {
        _key(vote): vote for vote in join_votes([[vote.in_order for vote in old], list(given)])
    }
    votes |= {_key(vote): vote for vote in asked}
    if votes:
        with outputs.naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(path, votes_csv(votes[key] for key in sorted(votes)))
    return len(votes)


def _key(vote: DuelVote) -> tuple[str, ...]:
    return (vote.pair, vote.a, vote.b, vote.judge, vote.first, vote.dimension)


def _renamed(votes: Sequence[DuelVote], runs: Sequence[_Run]) -> list[DuelVote]:
    """Return votes with the ids of runs in place of the names of systems; raise `UsageError` for a
    name that is neither.
    """
    systems = voted_systems([run.baseline for run in runs])
    ids = {run.system: run.baseline.run for run in runs}
    refuse_others(votes, systems)
    return [
        replace(vote, a=ids[systems[vote.a]], b=ids[systems[vote.b]]).in_order for vote in votes
    ]


# What is printed


def _document(judged: Judged, runs: Sequence[_Run], gates: Sequence[GateResult]) -> JsonObject:
    return {
        "judge": JudgeInfo(**judged.scorer.facts).model_dump(mode="json"),
        "by_scores": judged.by_scores,
        "runs": {run.system: run.baseline.run for run in runs},
        "contests": [_contest_document(contest) for contest in judged.contests],
        "duels": judged.duels,
        "undecided": judged.undecided,
        "usual_error": judged.reason,
        "gates": [asdict(gate) for gate in gates],
    }


def _contest_document(contest: Contest) -> Mapping[str, Any]:
    return {
        "a": contest.a.system,
        "b": contest.b.system,
        "duels": len(contest.bouts),
        "share": contest.share.model_dump(mode="json"),
        "disagreement": contest.disagreement.model_dump(mode="json"),
        "undecided": len(contest.undecided),
    }


def _lines(
    judged: Judged, gates: Sequence[GateResult], path: Path, kept: int, references: Sequence[str]
) -> Iterator[str]:
    """Yield the state of the judge's trial, a table of every two runs, and where the votes are."""
    for gate in gates:
        yield printable(f"{gate.state}: {gate.why}")
    yield printable(f"duels decided by judge {judged.scorer.facts['spec']}")
    yield terminal.render_table(_HEADER, [_row(contest) for contest in judged.contests])
    if judged.undecided:
        reason = printable(judged.reason)
        yield f"{judged.undecided:,} of {judged.duels:,} duels without a vote: {reason}"
    if kept:
        yield f"votes: {kept:,} in {os.path.relpath(path)}"
        yield printable(f"rank them: imgedit leaderboard --duel {' '.join(references)}")


def _row(contest: Contest) -> tuple[str, ...]:
    share = contest.share
    return (
        printable(contest.a.system),
        printable(contest.b.system),
        f"{len(contest.bouts):,}",
        number(share.share),
        interval(share.ci95),
        number(contest.disagreement.share),
        f"{len(contest.undecided):,}",
    )
