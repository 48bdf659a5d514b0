"""`imgedit duel`: a judge compares the edits of every two of several runs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_server import api_server, completion
from duel_judges import Knowing
from folders import fill
from in_process import run_in
from worker_threads import ThreadExecutor

from pytest_imgedit.cli.main import main
from pytest_imgedit.run.score import ScoreStage
from pytest_imgedit.store.run_references import find_run
from pytest_imgedit.suites.votes import read_votes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_imgedit.core.duel_votes import DuelVote

pytestmark = pytest.mark.everyday

SUITE = "--imgedit-suite=scenes:n=2"
KNOWING = "duel_judges:Knowing"
PAIRS = 10
#: Right edits first, and equal edits beside each other.
EDITORS = ("oracle", "blend", "identity")
UNTRIED = "--set=judge.controls=false"
#: Duels of a right edit against each of three controls, two in a category, in both orders.
OF_CONTROLS = 10 * 3 * 2


def edit(folder: Path, editor: str, *options: str, name: str = "") -> None:
    """Finish a run of an editor that has its name, and save it with its edits."""
    name = name or editor
    models = (f"--imgedit-editor={editor}", f"--imgedit-judge={KNOWING}")
    named = (f"--imgedit-name={name}", f"--imgedit-save={name}", "--imgedit-save-edits")
    code, printed = run_in(
        folder, SUITE, "--imgedit-set=judge.controls=false", *models, *named, *options
    )
    assert code == 0, printed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs."""
    folder = fill(tmp_path_factory.mktemp("finished"))
    for editor in EDITORS:
        edit(folder, editor)
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, in which commands run with threads for workers."""
    folder = tmp_path / "here"
    shutil.copytree(finished, folder)
    monkeypatch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
    monkeypatch.chdir(folder)
    Knowing.asked.clear()
    return folder


def run_of(name: str) -> str:
    """The results.json of the run with a name."""
    return str(find_run(name, Path(".imgedit")))


class Duels:
    """What `imgedit duel --json` prints, returns and writes."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.errors = err
        self.document: dict[str, Any] = json.loads(out) if out else {}
        self.asked = Knowing.asked.pop("duel", 0)

    @property
    def shares(self) -> dict[tuple[str, str], float]:
        """The share that the system of the first name wins, by the names of two."""
        shares = {}
        for contest in self.document["contests"]:
            a, b, share = contest["a"], contest["b"], contest["share"]["share"]
            shares[min(a, b), max(a, b)] = share if a < b else 1 - share
        return shares

    @property
    def votes(self) -> list[DuelVote]:
        """The votes of the file by the names of systems; the file has the ids of runs."""
        names = {run: system for system, run in self.document["runs"].items()}
        return [
            replace(vote, a=names[vote.a], b=names[vote.b]).in_order
            for vote in read_votes(self.file)
        ]

    @property
    def file(self) -> Path:
        return Path(self.document["votes"])


@pytest.fixture
def duel(capsys: pytest.CaptureFixture[str], here: Path) -> Callable[..., Duels]:
    """Call `imgedit duel --json` on runs and options; without a trial of the judge."""

    def call(*arguments: str, options: tuple[str, ...] = (UNTRIED,)) -> Duels:
        capsys.readouterr()
        code = main(["duel", *arguments, *options, "--json"])
        return Duels(code, *capsys.readouterr())

    return call


def refuses(capsys: pytest.CaptureFixture[str], line: str, *arguments: str) -> None:
    """Check that a command is refused in one line that begins like this, with nothing asked."""
    assert main(["duel", *arguments]) == 4
    (found,) = capsys.readouterr().err.splitlines()
    assert fnmatch(found, f"imgedit: {line}*"), found
    assert not Knowing.asked


def test_every_two_of_three_runs_are_put_against_each_other(
    duel: Callable[..., Duels],
) -> None:
    found = duel(*map(run_of, EDITORS))
    assert found.code == 0
    assert found.asked == 3 * PAIRS * 2
    assert found.shares == {
        ("blend", "oracle"): 0.0,
        ("blend", "identity"): 1.0,
        ("identity", "oracle"): 0.0,
    }
    assert (
        "plan: 3 runs, 3 pairs of them, protocol duel@strict, in both orders: 30 duels, 0 votes "
        "stored, 60 questions to ask\n"
    ) in found.errors


def test_the_file_of_votes(duel: Callable[..., Duels]) -> None:
    found = duel(*map(run_of, EDITORS))
    assert fnmatch(str(found.file), ".imgedit/votes/duel_judges-Knowing*-duel-strict-*.csv")
    assert all(vote.a < vote.b for vote in read_votes(found.file))
    votes = found.votes
    assert len(votes) == found.asked
    (rater,) = {vote.judge for vote in votes}
    assert fnmatch(rater, f"{KNOWING} (duel@strict ????????)")
    assert {vote.dimension for vote in votes} == {"score"}
    assert all(len(vote.cluster) == 64 for vote in votes)
    winners = Counter((vote.a, vote.b, vote.first, vote.winner) for vote in votes)
    assert winners == {
        (a, b, first, winner): PAIRS
        for a, b, winner in (
            ("blend", "oracle", "b"),
            ("blend", "identity", "a"),
            ("identity", "oracle", "b"),
        )
        for first in ("a", "b")
    }
    categories = Counter(vote.category for vote in votes)
    assert len(categories) == 5
    assert set(categories.values()) == {3 * 2 * 2}


def test_a_further_run_asks_its_own_questions_alone(here: Path, duel: Callable[..., Duels]) -> None:
    edit(here, "noise")
    old = duel(*map(run_of, EDITORS))
    new = duel(*map(run_of, (*EDITORS, "noise")))
    assert new.asked == 3 * PAIRS * 2
    assert "4 runs, 6 pairs of them, " in new.errors
    assert "60 duels, 60 votes stored, 60 questions to ask" in new.errors
    assert new.file == old.file
    assert len(read_votes(new.file)) == 6 * PAIRS * 2
    assert duel(*map(run_of, (*EDITORS, "noise"))).asked == 0


def test_the_order_of_runs_does_not_change_the_file(duel: Callable[..., Duels]) -> None:
    found = duel(*map(run_of, EDITORS))
    text = found.file.read_bytes()
    found.file.unlink()
    again = duel(*map(run_of, reversed(EDITORS)))
    assert again.asked == 0
    assert again.file.read_bytes() == text
    part = duel(*map(run_of, EDITORS[1:]))
    assert part.file.read_bytes() == text, "other pairs of runs stay"


def test_equal_edits_are_a_tie_that_nobody_is_asked_about(
    here: Path, duel: Callable[..., Duels]
) -> None:
    edit(here, "identity", name="copy")
    runs = ("oracle", "identity", "copy")
    found = duel(*map(run_of, runs))
    assert found.asked == PAIRS * 2, "both copies have the same question"
    assert found.shares["copy", "identity"] == 0.5
    votes = found.votes
    ties = Counter((vote.a, vote.b, vote.first) for vote in votes if vote.winner == "tie")
    assert ties == {("copy", "identity", "a"): PAIRS, ("copy", "identity", "b"): PAIRS}
    assert len(votes) == 3 * PAIRS * 2


def test_a_baseline_that_keeps_its_edits_takes_part(
    here: Path, duel: Callable[..., Duels], capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of("identity")
    for item in json.loads(Path(run_of("blend")).read_text("utf-8"))["items"]:
        blob = item["seeds"][0]["edit"]["blob"]
        (here / ".imgedit/blobs" / blob[:2] / f"{blob}.png").unlink()
    shutil.rmtree(Path(run_of("blend")).parent)
    baselines = here / "benchmarks/baselines"
    found = duel(run, str(baselines / "blend.json"))
    assert found.shares == {("blend", "identity"): 1.0}
    refuses(
        capsys,
        "duel: *blend.json, *oracle.json are baselines, which have no texts",
        *(str(baselines / f"{name}.json") for name in ("blend", "oracle")),
    )
    shutil.rmtree(baselines / "edits")
    shutil.rmtree(here / ".imgedit/blobs")
    shutil.copytree(here / ".imgedit", here / "other")
    refuses(capsys, "duel: run * lacks images: ", run, str(baselines / "blend.json"))


def test_what_was_asked_before_an_interrupt_is_not_asked_again(
    duel: Callable[..., Duels], monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = ScoreStage.finish

    def interrupted(stage: ScoreStage, *batch: Any) -> None:
        finish(stage, *batch)
        if Knowing.asked["duel"] > 2 * PAIRS:
            raise KeyboardInterrupt

    runs = tuple(map(run_of, EDITORS))
    with monkeypatch.context() as patch:
        patch.setattr(ScoreStage, "finish", interrupted)
        assert duel(*runs).code == 2
    records = Path(".imgedit/verdicts.jsonl").read_text("utf-8").splitlines()
    stored = sum('"second"' in record for record in records)
    assert 0 < stored < 6 * PAIRS
    assert duel(*runs).asked == 6 * PAIRS - stored


def test_errors_are_counted_and_are_no_votes(duel: Callable[..., Duels]) -> None:
    found = duel(*map(run_of, EDITORS), "--judge=duel_judges:Halting")
    undecided = found.document["undecided"]
    assert found.code == 0
    assert 0 < undecided < 3 * PAIRS
    assert found.document["usual_error"].startswith("'better' is ")
    assert len(read_votes(found.file)) == 6 * PAIRS - 2 * undecided


def test_a_judge_that_decides_nothing_fails(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = map(run_of, EDITORS[:2])
    code = main(["duel", *runs, UNTRIED, "--judge=duel_judges:Mumbling"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert lines[-1].startswith("10 of 10 duels without a vote: 'better' is ")
    assert not (here / ".imgedit/votes").exists()


def test_the_trial_of_the_judge(duel: Callable[..., Duels], capsys: Any) -> None:
    runs = tuple(map(run_of, EDITORS))
    tried = duel(*runs, options=())
    assert tried.code == 0
    assert tried.asked == 6 * PAIRS + OF_CONTROLS
    assert [gate["state"] for gate in tried.document["gates"]] == ["PASS"]
    assert f"60 questions to ask, and {OF_CONTROLS} of the judge's trial" in tried.errors
    blind = duel(*runs, "--judge=duel_judges:First", options=())
    assert blind.code == 1
    assert [gate["state"] for gate in blind.document["gates"]] == ["INVALID"]
    assert len(read_votes(blind.file)) == 6 * PAIRS


def test_a_judge_that_measures_decides_by_its_scores(duel: Callable[..., Duels]) -> None:
    found = duel(*map(run_of, EDITORS), "--judge=reference")
    assert found.shares["blend", "oracle"] == 0.0
    assert "by the difference of the judge's scores: 30 duels, " in found.errors
    votes = read_votes(found.file)
    assert len(votes) == 3 * PAIRS
    assert {vote.first for vote in votes} == {""}
    assert "-scores-" in found.file.name


def test_each_dimension_has_its_votes(duel: Callable[..., Duels]) -> None:
    found = duel(*map(run_of, EDITORS[:2]), "--set=judge.duel_protocol=duel-aspects")
    votes = read_votes(found.file)
    dimensions = Counter(vote.dimension for vote in votes)
    assert dimensions == dict.fromkeys(("instruction", "quality", "preservation"), 2 * PAIRS)


def test_common_seeds_are_compared_by_their_pair_and_seed(
    here: Path, duel: Callable[..., Duels]
) -> None:
    edit(here, "noise", "--imgedit-seeds=2")
    found = duel(run_of("oracle"), run_of("noise"))
    assert found.asked == PAIRS * 2
    ids = {vote.pair for vote in read_votes(found.file)}
    assert len(ids) == PAIRS
    assert all("#" in name for name in ids)


def test_the_bill_of_a_server_is_what_it_is_asked(here: Path, duel: Callable[..., Duels]) -> None:
    for editor in ("identity", "blend", "oracle"):
        edit(here, editor, "-kphysics", name=f"small-{editor}")
    runs = [run_of(f"small-{editor}") for editor in ("identity", "blend", "oracle")]
    with api_server() as server:
        server.answer = lambda _: (200, completion('{"reason": "it is", "better": "A"}'))
        judge = (f"--judge=openai:{server.url}#m", "--set=judge.price_in=2")
        billed = duel(*runs, *judge)
        asked = len(server.asked)
        again = duel(*runs, *judge)
    assert asked == len(server.asked) == 3 * 2 * 2 + 1
    assert f"plan: judge: {asked} to " in billed.errors
    assert " by judge.price_in and judge.price_out" in billed.errors
    assert "plan: judge: 0 questions, 12 in the store" in again.errors
    assert billed.document["contests"][0]["disagreement"]["share"] == 1.0


def test_what_is_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run_of(editor) for editor in EDITORS]
    assert main(["duel", *runs, UNTRIED]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"duels decided by judge {KNOWING}\n")
    assert "votes: 60 in .imgedit/votes/" in text
    assert f"\nrank them: imgedit leaderboard --duel {' '.join(runs)}\n" in text


VOTES = "id,a,b,winner,rater,first,dimension,category,source\n"


def test_votes_that_were_made_elsewhere_are_kept_and_not_asked_again(
    here: Path, duel: Callable[..., Duels], capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads(Path(run_of("oracle")).read_text("utf-8"))
    pair = run["items"][0]["id"]
    Path("ann.csv").write_text(
        f"{VOTES}{pair},oracle,blend,a,ann,a,,physics,\n{pair},{run['run']['id']},identity,tie,,,,,\n"
        "of-no-run,oracle,blend,a,ann,a,,physics,\n"
    )
    runs = [run_of(editor) for editor in EDITORS]
    found = duel(*runs, "--votes=ann.csv")
    assert "2 duels that other votes decided left out" in found.errors
    assert found.asked == 6 * PAIRS - 4
    votes = found.votes
    assert len(votes) == 6 * PAIRS - 4 + 2
    (of_ann,) = [vote for vote in votes if vote.judge == "ann"]
    assert (of_ann.a, of_ann.b, of_ann.winner, of_ann.first) == ("blend", "oracle", "b", "b")
    Path("ann.csv").write_text(f"{VOTES}{pair},oracle,someone,a,ann,,,,\n")
    line = "ann.csv:2: 'someone' is none of the runs, expected one of oracle, blend, identity"
    refuses(capsys, line, *runs, "--votes=ann.csv")


def test_votes_are_taken_over_without_a_judge(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ann.csv").write_text(f"{VOTES}p,two,one,a,ann,a,,,\n")
    for _ in range(2):
        assert main(["duel", "--votes=ann.csv"]) == 0
        assert capsys.readouterr().out == "votes: 1 vote in .imgedit/votes/ann.csv\n"
    (vote,) = read_votes(Path(".imgedit/votes/ann.csv"))
    assert (vote.a, vote.b, vote.winner, vote.first) == ("one", "two", "b", "b")
    Path("ann.csv").write_text(f"{VOTES}p,two,one,b,ann,a,,,\n")
    refuses(capsys, "ann.csv:2: another winner in id 'p' than ", "--votes=ann.csv")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "duel: expected two or more runs or baselines, or --votes=FILE"),
        (("oracle",), "duel oracle: expected two or more runs or baselines"),
        (("--judge=reference",), "--judge: nothing to ask, expected a RUN too"),
        (("oracle", "oracle"), "oracle and oracle are one run, "),
        (("oracle", "RUN", "--judge=none"), "judge 'none' does not score edits"),
        (("oracle", "RUN", "--set=judge.duel_protocol=aspects"), "*it judges one edit"),
    ],
    ids=["none", "one", "judge", "twice", "no-scores", "protocol"],
)
def test_what_cannot_be_decided_is_refused_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    refuses(capsys, line, *(run_of("blend") if name == "RUN" else name for name in arguments))


def test_runs_of_other_pairs_are_refused_by_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(here, "oracle", "-kphysics", name="some")
    edit(here, "oracle", "-ksocial", name="others")
    some, others = run_of("some"), run_of("others")
    refuses(capsys, f"{some} and {others} share no pair", run_of("blend"), some, others)


def test_runs_that_share_some_pairs_are_compared_over_these(
    here: Path, duel: Callable[..., Duels]
) -> None:
    edit(here, "noise", "-kphysics", name="some")
    for runs in (("some", "oracle"), ("blend", "some")):
        found = duel(*map(run_of, runs))
        assert (found.asked, found.document["duels"]) == (2 * 2, 2)
    assert Counter(vote.category for vote in read_votes(found.file)) == {"physics": 2 * 2 * 2}


def test_votes_are_ranked(
    here: Path, duel: Callable[..., Duels], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run_of(editor) for editor in EDITORS]
    assert duel(*runs, "--judge=duel_judges:First").code == 0
    assert main(["leaderboard", "--duel", *runs, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["system"]: row["overall"]["elo"] for row in document["rows"]} == dict.fromkeys(
        EDITORS, 0.0
    )
    ((rater, first),) = document["first"].items()
    assert rater.startswith("duel_judges:First (duel@strict ")
    assert first["share"] == 1.0


def test_votes_of_one_judge_by_two_protocols_are_ranked_together(
    here: Path, duel: Callable[..., Duels], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run_of(editor) for editor in EDITORS]
    first = duel(*runs, "--judge=duel_judges:First")
    other = duel(*runs, "--judge=duel_judges:First", "--set=judge.duel_protocol=duel-tie")
    assert first.file != other.file
    assert main(["leaderboard", "--duel", *runs, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["first"]) == 2


def test_an_edit_that_a_run_lacks_is_no_vote(here: Path, duel: Callable[..., Duels]) -> None:
    models = ("--imgedit-editor=fakes:Raises", f"--imgedit-judge={KNOWING}")
    run_in(here, SUITE, *models, "--imgedit-name=failing")
    runs = tuple(map(run_of, ("blend", "failing", "oracle")))
    found = duel(*runs)
    assert found.code == 0
    assert found.asked == 2 * (3 * PAIRS - 2)
    assert (found.document["duels"], found.document["undecided"]) == (3 * PAIRS, 2)
    assert found.document["usual_error"] == "failing has no edit"
