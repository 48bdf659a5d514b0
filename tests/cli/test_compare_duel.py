"""`imgedit compare --duel`: the edits of two finished runs are put against each other."""

from __future__ import annotations

import json
import re
import shutil
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

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.everyday

#: 10 pairs, and a judge that is asked about them.
SUITE = "--imgedit-suite=scenes:n=2"
KNOWING = "duel_judges:Knowing"
PAIRS = 10
#: Duels of a right edit against each of three controls, two in a category, in both orders.
OF_CONTROLS = 10 * 3 * 2
UNTRIED = "--set=judge.controls=false"
ALONE = "nothing to decide, expected --duel too"


def edit(
    folder: Path, editor: str, *options: str, judge: str = KNOWING, tried: str = "false"
) -> None:
    """Finish a run of an editor, which has its name, and save it as a baseline with its edits."""
    models = (f"--imgedit-editor={editor}", f"--imgedit-judge={judge}")
    saved = (f"--imgedit-name={editor}", f"--imgedit-save={editor}", "--imgedit-save-edits")
    code, printed = run_in(
        folder, SUITE, f"--imgedit-set=judge.controls={tried}", *models, *saved, *options
    )
    assert code == 0, printed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of half-done edits, and one of right ones."""
    folder = fill(tmp_path_factory.mktemp("finished"))
    for editor in ("blend", "oracle"):
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


def run_of(name: str, store: str = ".imgedit") -> str:
    """The results.json of the run with a name in a store of the working folder."""
    return str(find_run(name, Path(store)))


class Compared:
    """What `imgedit compare --duel --json` prints and returns."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.errors = err
        self.document: dict[str, Any] = json.loads(out) if out else {}

    @property
    def gates(self) -> dict[str, str]:
        return {gate["kind"]: gate["state"] for gate in self.document["gates"]}

    @property
    def share(self) -> float:
        share: float = self.document["duel"]["measures"]["score"]["overall"]["share"]
        return share


@pytest.fixture
def duel(capsys: pytest.CaptureFixture[str], here: Path) -> Callable[..., Compared]:
    """Call `imgedit compare --duel --json`."""

    def call(*arguments: str) -> Compared:
        capsys.readouterr()
        code = main(["compare", *arguments, "--duel", "--json"])
        return Compared(code, *capsys.readouterr())

    return call


def refuses(capsys: pytest.CaptureFixture[str], line: str, *arguments: str) -> None:
    """Check that a comparison is refused in one line that begins like this, with nothing asked."""
    assert main(["compare", *arguments]) == 4
    (found,) = capsys.readouterr().err.splitlines()
    assert fnmatch(found, f"imgedit: {line}*"), found
    assert not Knowing.asked


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("blend", "oracle", "--min-win=overall:0.5"), f"--min-win: {ALONE}"),
        (("blend", "oracle", "--judge=reference"), f"--judge: {ALONE}"),
        (("blend", "oracle", "--set=judge.reasks=0"), f"--set: {ALONE}"),
        (("blend", "oracle", "oracle", "--duel"), "--duel: a duel is between two runs, not more"),
        (("oracle", "blend", "--duel"), "--duel: *blend.json is a baseline, which has no texts"),
        (("blend", "RUN", "--duel", "--min-win=overall:2"), "--min-win: overall: 2*0 to 1"),
        (("blend", "RUN", "--duel", "--min-win=beauty@overall:0"), "*--min-win*'beauty'"),
        (("blend", "RUN", "--duel", "--judge=none"), "judge 'none' does not score edits"),
        (("blend", "RUN", "--duel", "--set=judge.duel_protocol=aspects"), "*it judges one edit"),
    ],
    ids=["win", "judge", "set", "three", "baseline", "share", "measure", "none", "protocol"],
)
def test_what_cannot_be_decided_is_refused_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    """Costly as the first to use the runs of this module, two of 10 pairs."""
    refuses(capsys, line, *(run_of("oracle") if name == "RUN" else name for name in arguments))


def test_edits_that_are_gone_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of("oracle")
    (here / ".imgedit").rename(here / "there")
    run = run.replace(".imgedit", "there")
    shutil.rmtree(here / "benchmarks/baselines/edits")
    blobs = here / "there/blobs"
    edits = json.loads(Path(run).read_text("utf-8"))["items"]
    line = "--duel: run * lacks images: those of 1 of 10 pairs are not in .imgedit, there (such as "
    blob = edits[3]["seeds"][0]["edit"]["blob"]
    (blobs / blob[:2] / f"{blob}.png").write_bytes(b"damaged")
    refuses(capsys, f"{line}{edits[3]['id']})", "blend", run, "--duel")


def test_a_baseline_whose_edits_are_gone_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(here / "benchmarks/baselines/edits")
    for item in json.loads(Path(run_of("blend")).read_text("utf-8"))["items"]:
        blob = item["seeds"][0]["edit"]["blob"]
        (here / ".imgedit/blobs" / blob[:2] / f"{blob}.png").unlink()
    line = "--duel: baseline blend has no edits: those of 10 of 10 pairs are in none of "
    refuses(capsys, line, "blend", run_of("oracle"), "--duel")


def test_a_judge_whose_secrets_its_run_does_not_tell_must_be_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(run_of("oracle"))
    document = json.loads(path.read_text("utf-8"))
    document["judge"]["params"] = {"headers": {"x-api-key": "***"}}
    path.write_text(json.dumps(document))
    line = "--duel: run * does not tell the secrets of its judge (duel_judges:Knowing): name the "
    refuses(capsys, line, run_of("blend"), str(path), "--duel")


def test_two_runs_are_put_against_each_other_once(duel: Callable[..., Compared]) -> None:
    better = duel("blend", run_of("oracle"))
    assert (better.code, better.share) == (0, 1.0)
    assert better.gates == {"min_win": "PASS", "duel_controls": "PASS"}
    assert Knowing.asked == {"duel": 2 * PAIRS + OF_CONTROLS}, "no edit is scored"
    assert (
        "plan: 10 duels against blend, protocol duel@strict, in both orders: 20 questions, and "
        f"{OF_CONTROLS} of the judge's trial; 0 in the store"
    ) in better.errors
    assert better.document["comparison"]["measures"]["score"]["overall"]["difference"] > 0
    assert better.document["duel_judge"]["spec"] == KNOWING


def test_a_worse_run_fails_and_the_same_two_edits_are_asked_about_once(
    duel: Callable[..., Compared],
) -> None:
    assert duel("blend", run_of("oracle"), UNTRIED).code == 0
    assert Knowing.asked.pop("duel") == 2 * PAIRS
    worse = duel(run_of("oracle"), run_of("blend"), UNTRIED)
    assert (worse.code, worse.share) == (1, 0.0)
    assert worse.gates == {"min_win": "FAIL"}
    assert not Knowing.asked, "whichever of them is the older"


def test_the_verdict_the_tables_and_the_page(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "blend", run_of("oracle"), "--duel", "--html=page.html"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("PASS: wins 1.00 of 10 duels against blend\nPASS: overall wins 1.00 of ")
    page = (here / "page.html").read_text("utf-8")
    for title in ("duels against blend: editor blend, run ", "duels of controls: the judge on two"):
        assert title in text
        assert title in page
    line = f"duels decided by judge {KNOWING}"
    assert f"\n{line}\n" in text
    assert f">{line}<" in page


def test_what_was_asked_before_an_interrupt_is_not_asked_again(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = ScoreStage.finish

    def interrupted(stage: ScoreStage, *batch: Any) -> None:
        finish(stage, *batch)
        if Knowing.asked["duel"] > PAIRS:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ScoreStage, "finish", interrupted)
        assert main(["compare", "blend", run_of("oracle"), "--duel"]) == 2
    assert "imgedit: interrupted; what was finished is kept" in capsys.readouterr().err
    records = (here / ".imgedit/verdicts.jsonl").read_text("utf-8").splitlines()
    stored = sum('"second"' in record for record in records)
    assert 0 < stored < 2 * PAIRS
    Knowing.asked.clear()
    assert main(["compare", "blend", run_of("oracle"), "--duel"]) == 0
    [known] = re.findall(r"; (\d+) in the store", capsys.readouterr().err)
    assert int(known) >= stored, "a duel of the trial may be one of these runs"
    assert Knowing.asked["duel"] == 2 * PAIRS + OF_CONTROLS - int(known)


def test_votes_of_pytest_are_not_asked_again(here: Path, duel: Callable[..., Compared]) -> None:
    against = ("--imgedit-compare=blend", "--imgedit-duel")
    edit(here, "oracle", *against, "--imgedit-name=tried", tried="true")
    Knowing.asked.clear()
    compared = duel("blend", run_of("tried"))
    assert not Knowing.asked
    of_pytest = json.loads((here / run_of("tried")).read_text("utf-8"))
    assert compared.document["duel"] == of_pytest["duel"]
    kinds = {gate["kind"]: gate["state"] for gate in of_pytest["gates"]}
    assert compared.gates == {kind: kinds[kind] for kind in ("min_win", "duel_controls")}


def test_another_judge_another_store_and_other_seeds(
    here: Path, duel: Callable[..., Compared], capsys: pytest.CaptureFixture[str]
) -> None:
    there = ("--imgedit-out=there", "--imgedit-seeds=2")
    edit(here, "oracle", *there, judge="fakes:Reads")
    judge = f"--judge={KNOWING}"
    compared = duel(run_of("blend"), run_of("oracle", "there"), judge, "--out=third")
    assert (compared.code, compared.share) == (0, 1.0)
    assert compared.document["comparison"] is None
    assert all(len(pair["seeds"]) == 1 for pair in compared.document["duel"]["pairs"].values())
    for store in (".imgedit", "there"):
        shutil.rmtree(here / store / "blobs")
    shutil.copytree(here / "third" / "blobs", here / "there" / "blobs")
    Knowing.asked.clear()
    assert (
        main(["compare", "blend", run_of("oracle", "there"), "--duel", judge, "--out=third"]) == 0
    )
    assert "\nscores are not compared: another judge: " in capsys.readouterr().out
    assert not Knowing.asked, "the baseline's edits are beside it"


@pytest.mark.parametrize(
    ("judge", "line"),
    [
        ("duel_judges:First", "the judge prefers the first of any two edits"),
        ("blind_judges:Constant", "the judge answered none of 30 duels of controls"),
    ],
    ids=["first", "scores"],
)
def test_a_judge_that_cannot_choose_is_invalid(
    here: Path, capsys: pytest.CaptureFixture[str], judge: str, line: str
) -> None:
    assert main(["compare", "blend", run_of("oracle"), "--duel", f"--judge={judge}"]) == 1
    text = capsys.readouterr().out
    assert f"\nINVALID: {line}" in text
    hint = f"\njudge {judge} answered with scores, expected which edit is better: score "
    assert (hint in text) == (judge == "blind_judges:Constant")


def test_a_judge_that_measures_decides_by_its_scores(
    here: Path, duel: Callable[..., Compared]
) -> None:
    compared = duel("blend", run_of("oracle"), "--judge=reference", "--min-win=overall:0.5")
    assert (compared.code, compared.share) == (0, 1.0)
    assert compared.document["duel"]["by_scores"] is True
    assert "by the difference of the judge's scores" in compared.errors
    assert compared.gates == {"min_win": "PASS", "duel_controls": "PASS"}


def test_a_judge_of_ones_own_that_has_scored_the_later_run_decides_by_its_scores(
    here: Path, duel: Callable[..., Compared]
) -> None:
    judge = "blind_judges:Good"
    truth = "judge.truth=scenes:n=2"
    edit(here, "oracle", f"--imgedit-set={truth}", "--imgedit-name=scored", judge=judge)
    compared = duel("blend", run_of("scored"))
    assert compared.document["duel"]["by_scores"] is True
    assert (compared.code, compared.share) == (0, 1.0)


def test_the_bill_of_a_server_is_what_it_is_asked(
    here: Path, duel: Callable[..., Compared]
) -> None:
    edit(here, "identity", "-kphysics", judge="reference")
    with api_server() as server:
        server.answer = lambda _: (200, completion('{"reason": "it is", "better": "A"}'))
        judge = (f"--judge=openai:{server.url}#m", "--set=judge.price_in=2", UNTRIED)
        billed = duel("blend", run_of("identity"), *judge)
        asked = len(server.asked)
        again = duel("blend", run_of("identity"), *judge)
    assert asked == len(server.asked) == 2 * 2 + 1
    assert f"plan: judge: {asked} to " in billed.errors
    assert "(4 votes, 1 to try the server), 0 in the store; about " in billed.errors
    assert " by judge.price_in and judge.price_out" in billed.errors
    assert billed.share == 0.5
    assert list(billed.gates) == ["min_win"]
    assert "plan: judge: 0 questions, 4 in the store" in again.errors
