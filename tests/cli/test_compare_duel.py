"""`imgedit compare --duel`: the edits of two finished runs are put against each other."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from duel_judges import Knowing
from worker_threads import ThreadExecutor

from pytest_imgedit.cli.main import main

if TYPE_CHECKING:
    from conftest import Bench

#: 25 pairs, and a judge that is asked about them.
SUITE = "--imgedit-suite=scenes:n=5"
KNOWING = "duel_judges:Knowing"
UNTRIED = "--imgedit-set=judge.controls=false"
PAIRS = 25
#: Duels of a right edit against each of three controls, four in a category, in both orders.
OF_CONTROLS = 20 * 3 * 2


@pytest.fixture
def here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench in whose folder commands run too, with threads for workers."""
    monkeypatch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
    monkeypatch.chdir(bench.path)
    Knowing.asked.clear()
    return bench


def edit(bench: Bench, editor: str, *options: str, judge: str = KNOWING) -> None:
    """Finish a run of an editor that has its name, without a trial of the judge."""
    named = (f"--imgedit-editor={editor}", f"--imgedit-judge={judge}")
    if not any(option.startswith("--imgedit-name") for option in options):
        named += (f"--imgedit-name={editor}",)
    bench.run(SUITE, UNTRIED, *named, *options)
    Knowing.asked.clear()


class Compared:
    """What `imgedit compare --duel` prints: with `--json`, its document."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        self.code = main(["compare", *arguments, "--duel", "--json"])
        printed = capsys.readouterr()
        self.errors = printed.err
        self.document: dict[str, Any] = json.loads(printed.out) if printed.out else {}

    @property
    def gates(self) -> dict[str, str]:
        return {gate["kind"]: gate["state"] for gate in self.document["gates"]}

    @property
    def share(self) -> float:
        share: float = self.document["duel"]["measures"]["score"]["overall"]["share"]
        return share


def test_two_runs_are_put_against_each_other_once(
    here: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(here, "blend")
    edit(here, "oracle")
    better = Compared(capsys, "blend", "oracle")
    assert (better.code, better.share) == (0, 1.0)
    assert better.gates == {"min_win": "PASS", "duel_controls": "PASS"}
    assert Knowing.asked == {"duel": 2 * PAIRS + OF_CONTROLS}, "no edit is scored"
    assert "plan: 25 duels against blend, protocol duel@strict, in both orders" in better.errors
    assert better.document["comparison"]["measures"]["score"]["overall"]["difference"] > 0
    assert better.document["duel_judge"]["spec"] == KNOWING

    Knowing.asked.clear()
    again = Compared(capsys, "blend", "oracle")
    assert again.document == better.document
    worse = Compared(capsys, "oracle", "blend")
    assert (worse.code, worse.share) == (1, 0.0)
    assert worse.gates["min_win"] == "FAIL"
    assert not Knowing.asked, "the same two edits, whichever of them is the older"


def test_the_verdict_the_tables_and_the_page(
    here: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(here, "blend")
    edit(here, "oracle")
    capsys.readouterr()
    assert main(["compare", "blend", "oracle", "--duel", "--html=page.html"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("PASS: wins 1.00 of 25 duels against blend\nPASS: overall wins 1.00 of ")
    page = (here.path / "page.html").read_text("utf-8")
    for title in ("duels against blend: editor blend, run ", "duels of controls: the judge on two"):
        assert title in text
        assert title in page
    assert f"\nduels decided by judge {KNOWING}\n" in text


def test_votes_of_pytest_are_not_asked_again(
    here: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(here, "blend", "--imgedit-save=main", "--imgedit-save-edits")
    tried = ("--imgedit-editor=oracle", f"--imgedit-judge={KNOWING}", "--imgedit-name=tried")
    here.run(SUITE, *tried, "--imgedit-compare=main", "--imgedit-duel")
    of_pytest = here.results["duel"]
    Knowing.asked.clear()
    compared = Compared(capsys, "main", "tried")
    assert not Knowing.asked
    assert compared.document["duel"] == of_pytest
    assert compared.code == 0


def test_a_baseline_or_run_of_another_store_and_another_judge(
    here: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(here, "blend", "--imgedit-out=there", "--imgedit-save=main", "--imgedit-save-edits")
    edit(here, "oracle", "--imgedit-seeds=2", judge="fakes:Constant")
    (run,) = (here.path / "there/runs").iterdir()
    compared = Compared(capsys, str(run), "oracle", f"--judge={KNOWING}")
    assert (compared.code, compared.share) == (0, 1.0)
    assert compared.document["comparison"] is None
    assert all(len(pair["seeds"]) == 1 for pair in compared.document["duel"]["pairs"].values())
    shutil.rmtree(here.path / "there")
    Knowing.asked.clear()
    capsys.readouterr()
    assert main(["compare", "main", "oracle", "--duel", f"--judge={KNOWING}"]) == 0
    assert "\nscores are not compared: another judge: " in capsys.readouterr().out
    assert not Knowing.asked


def test_a_judge_that_measures_duels_by_its_scores(
    here: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(here, "blend", judge="reference")
    edit(here, "oracle", judge="reference")
    compared = Compared(capsys, "blend", "oracle", "--min-win=overall:0.6")
    assert (compared.code, compared.share) == (0, 1.0)
    assert compared.document["duel"]["by_scores"] is True
    assert "by the difference of the judge's scores" in compared.errors
    assert compared.gates == {"min_win": "PASS", "duel_controls": "PASS"}
