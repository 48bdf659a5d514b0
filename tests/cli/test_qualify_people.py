"""`imgedit qualify --people`: a judge measured on people's choices between two edits."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest
from api_server import GRADES, api_server, completion
from duel_judges import Knowing
from folders import fill
from in_process import run_in
from worker_threads import ThreadExecutor

from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.store.judge_cards import people_shares
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.everyday

#: Pairs of scenes, five of each of five categories.
PAIRS = 25
HEADER = ("id", "a", "b", "winner", "rater", "category", "source", "instruction")
#: Votes of three raters for the right edit, by the number of a pair: one pair is tied.
TIED = 24
WRONG = (0, 1)
SPLIT = (0, 5, 10)


def winners(number: int, right: str) -> Sequence[str]:
    """What three raters chose: the right edit in most pairs, once more with one dissenter."""
    wrong = "b" if right == "a" else "a"
    if number == TIED:
        return ("a", "b", "tie")
    if number in WRONG:
        right, wrong = wrong, right
    return (right, right, wrong if number in SPLIT else right)


@pytest.fixture
def votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three raters' votes on right edits against untouched sources, in a working folder."""
    monkeypatch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
    monkeypatch.chdir(tmp_path)
    Knowing.asked.clear()
    rows: list[Sequence[str]] = [HEADER]
    for number, pair in enumerate(load_suite(SuiteSettings(spec="scenes:n=5")).pairs):
        (tmp_path / f"{pair.id}-source.png").write_bytes(pair.source.read())
        assert pair.reference is not None
        (tmp_path / f"{pair.id}-right.png").write_bytes(pair.reference.read())
        source, right = f"{pair.id}-source.png", f"{pair.id}-right.png"
        a, b = (right, source) if number % 2 else (source, right)
        side = "a" if number % 2 else "b"
        for rater, winner in zip(("ann", "bob", "cy"), winners(number, side), strict=True):
            rows.append((pair.id, a, b, winner, rater, pair.category, source, pair.instruction))
    path = tmp_path / "votes.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


class Card:
    """What `imgedit qualify --people --json` prints and returns."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.errors = err
        self.document: dict[str, Any] = json.loads(out)["card"] if out else {}

    def way(self, name: str) -> dict[str, Any]:
        (way,) = (way for way in self.document["ways"] if way["way"] == name)
        return dict(way)


@pytest.fixture
def qualify(capsys: pytest.CaptureFixture[str]) -> Callable[..., Card]:
    def call(judge: str, *arguments: str) -> Card:
        capsys.readouterr()
        code = main(["qualify", judge, "--people=votes.csv", "--json", *arguments])
        return Card(code, *capsys.readouterr())

    return call


@pytest.mark.usefixtures("votes")
def test_a_judge_that_knows_agrees_where_people_are_right(qualify: Callable[..., Card]) -> None:
    card = qualify("duel_judges:Knowing")
    assert card.code == 0, card.errors
    document = card.document
    assert (document["choices"], document["raters"], document["sources"]) == (PAIRS, 3, PAIRS)
    assert document["ties"]["share"] == pytest.approx(1 / PAIRS)
    # of 21 pairs all three votes agree with the others, of three the dissenter's alone is wrong
    assert document["ceiling"]["n"] == 3 * 21 + 3
    assert document["ceiling"]["share"] == pytest.approx(63 / 66)
    for name in ("scores", "duels"):
        way = card.way(name)
        overall = way["accuracy"]["overall"]
        assert (overall["n"], overall["share"]) == (24, pytest.approx(22 / 24))
        low, high = overall["ci95"]
        assert low < 22 / 24 < high
        assert way["by_margin"]["3:0"]["share"] == pytest.approx(20 / 21)
        assert way["by_margin"]["2:1"]["share"] == pytest.approx(2 / 3)
        assert (way["ties"]["share"], way["errors"], way["state"]) == (0, 0, "PASS")
        assert sum(row["n"] for field, row in way["accuracy"].items() if field != "overall") == 24
    assert card.way("duels")["first"]["share"] == 0.5
    assert card.way("scores")["first"] is None


@pytest.mark.usefixtures("votes")
def test_a_second_call_asks_nothing_and_the_plan_says_so(qualify: Callable[..., Card]) -> None:
    first = qualify("duel_judges:Knowing")
    asked = dict(Knowing.asked)
    assert asked == {"edit": 2 * PAIRS, "duel": 2 * PAIRS}
    assert "plan: 25 choices of votes" in first.errors
    assert "100" in next(line for line in first.errors.splitlines() if "questions" in line)
    again = qualify("duel_judges:Knowing")
    assert dict(Knowing.asked) == asked
    assert "plan: judge: 0 questions, 100 in the store" in again.errors
    assert again.document == first.document


@pytest.mark.usefixtures("votes")
def test_a_judge_that_names_the_first_is_invalid(
    qualify: Callable[..., Card], capsys: pytest.CaptureFixture[str]
) -> None:
    card = qualify("duel_judges:First")
    way = card.way("duels")
    assert card.code == 1
    assert (way["state"], way["first"]["share"]) == ("INVALID", 1.0)
    assert way["accuracy"]["overall"]["share"] == 0.5, "it ties every pair"
    assert way["ties"]["share"] == 1.0
    assert card.way("scores")["state"] == "PASS"
    assert main(["qualify", "duel_judges:First", "--people=votes.csv"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "INVALID: by duels, the judge prefers the first of any two edits: 100.0% ("
    )


@pytest.mark.usefixtures("votes")
def test_a_judge_that_prefers_the_worse_is_invalid(qualify: Callable[..., Card]) -> None:
    way = qualify("duel_judges:Worse").way("duels")
    assert way["state"] == "INVALID"
    assert way["accuracy"]["overall"]["share"] == pytest.approx(2 / 24)
    assert way["why"].endswith("of 24 decided pairs, less than by chance")


@pytest.mark.usefixtures("votes")
def test_replies_that_cannot_be_read_are_counted_apart(qualify: Callable[..., Card]) -> None:
    card = qualify("duel_judges:Mumbling")
    way = card.way("duels")
    assert (way["errors"], way["accuracy"]["overall"]["n"]) == (PAIRS, 0)
    assert (way["state"], card.code) == ("INVALID", 1)


@pytest.mark.usefixtures("votes")
def test_a_judge_that_measures_has_scores_alone(qualify: Callable[..., Card]) -> None:
    card = qualify("reference")
    (way,) = card.document["ways"]
    assert (way["way"], way["protocol"]) == ("scores", None)


def test_edits_without_a_score_are_told_with_their_reason(
    tmp_path: Path, votes: Path, qualify: Callable[..., Card], capsys: pytest.CaptureFixture[str]
) -> None:
    """The suite has no references, which the judge needs; no report tells such a card."""
    card = qualify("reference")
    assert main(["qualify", "reference", f"--people={votes}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("50 edits without a score, "))
    assert f": {votes}:2: " in line
    assert people_shares(tmp_path / ".imgedit", card.document["judge"], None) == ()


def test_an_edit_that_cannot_be_read_is_an_error_of_its_pair(
    votes: Path, qualify: Callable[..., Card]
) -> None:
    (damaged,) = list(votes.parent.glob("*-right.png"))[:1]
    damaged.write_bytes(damaged.read_bytes()[:100])
    card = qualify("duel_judges:Knowing")
    assert [way["errors"] for way in card.document["ways"]] == [1, 1]


@pytest.mark.usefixtures("votes")
def test_runs_with_the_same_judge_and_protocol_tell_it(
    tmp_path: Path, qualify: Callable[..., Card]
) -> None:
    qualify("duel_judges:Knowing")
    fill(tmp_path)
    options = (
        "--imgedit-suite=scenes:n=5",
        "--imgedit-editor=oracle",
        "--imgedit-set=judge.controls=false",
    )
    judge = "--imgedit-judge=duel_judges:Knowing"
    code, printed = run_in(tmp_path, judge, *options)
    assert code == 0, printed
    line = "judge: agrees with people in 91.7% ("
    assert line in printed
    assert "of 24 choices (votes)" in printed
    (results,) = tmp_path.glob(".imgedit/runs/*/results.json")
    (share,) = json.loads(results.read_text())["judge"]["people"]
    assert (share["people"], share["n"]) == ("votes", 24)
    for report in ("report.html", "report.md"):
        assert line in (results.parent / report).read_text().replace("\\", "")


@pytest.mark.usefixtures("votes")
def test_runs_with_a_judge_that_measures_tell_it_whatever_their_protocol(
    tmp_path: Path, qualify: Callable[..., Card]
) -> None:
    assert qualify("fakes:Constant").way("scores")["protocol"] is None
    fill(tmp_path)
    options = ("--imgedit-suite=scenes:n=5", "--imgedit-editor=oracle")
    _, printed = run_in(tmp_path, "--imgedit-judge=fakes:Constant", *options)
    assert "judge: agrees with people in 50.0% (" in printed


def test_other_pictures_of_the_same_names_are_other_choices(
    votes: Path, qualify: Callable[..., Card]
) -> None:
    first = qualify("duel_judges:Knowing")
    one, other = sorted(votes.parent.glob("*-right.png"))[:2]
    one.write_bytes(other.read_bytes())
    assert qualify("duel_judges:Knowing").document["sha256"] != first.document["sha256"]
    assert len(list(votes.parent.glob(".imgedit/people/*.json"))) == 2


@pytest.mark.usefixtures("votes")
def test_a_damaged_card_is_no_news(tmp_path: Path, qualify: Callable[..., Card]) -> None:
    qualify("duel_judges:Knowing")
    (card,) = tmp_path.glob(".imgedit/people/*.json")
    card.write_text('{"schema": "pytest-imgedit/people/1"}')
    fill(tmp_path)
    options = ("--imgedit-suite=scenes:n=5", "--imgedit-editor=oracle")
    code, printed = run_in(tmp_path, "--imgedit-judge=duel_judges:Knowing", *options)
    assert code == 0, printed
    assert "agrees with people" not in printed


@pytest.mark.usefixtures("votes")
def test_a_judge_of_drawn_scenes_is_refused(qualify: Callable[..., Card]) -> None:
    card = qualify("scenes")
    assert card.code == 4
    assert "knows drawn scenes only and cannot grade the suite 'votes.csv'" in card.errors


def test_a_suite_beside_people_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qualify", "scenes", "--suite=scenes", "--people=votes.csv"]) == 4
    assert capsys.readouterr().err.startswith("imgedit: --suite: not with --people")


def test_choices_without_sources_are_refused(
    votes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sorted(path.name for path in votes.parent.glob("*.png"))[:2]
    votes.write_text(f"id,a,b,winner,rater\nx,{a},{b},a,ann\n")
    assert main(["qualify", "duel_judges:Knowing", "--people=votes.csv"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "imgedit: votes.csv:2: no source and instruction of id 'x', expected both: a judge is "
        "shown them"
    )


def test_mmrb2_is_asked_with_all_its_sources(
    votes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = []
    with votes.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["rater"] == "ann"]
    for row in rows:
        prompt = [["image", row["source"]], ["text", row["instruction"]], ["image", row["b"]]]
        pair = {
            "id": row["id"],
            "prompt_content": prompt,
            "prompt_source": row["category"],
            "response_a": {"response_content": [["image", row["a"]]]},
            "response_b": {"response_content": [["image", row["b"]]]},
            "human_annotations": [6, 5, 4] if row["winner"] == "a" else [1, 2, 3],
        }
        pairs.append(pair)
    (votes.parent / "edit.json").write_text(json.dumps({"pairs": pairs}))
    assert main(["qualify", "duel_judges:Knowing", "--people=mmrb2:."]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "25 choices of mmrb2, of 25 sources by 3 raters" in printed
    # ann names the source in two pairs, and in the one that all three tie
    assert printed[-1].startswith("PASS: by duels, the judge agrees with people in 88.0% of 25 ")


@pytest.mark.usefixtures("votes")
def test_a_served_judge_is_billed_before_it_is_asked(qualify: Callable[..., Card]) -> None:
    def answer(body: Any) -> tuple[int, Any]:
        is_duel = '"better"' in json.dumps(body).replace("\\", "")
        return 200, completion('{"reason": "it is", "better": "B"}' if is_duel else GRADES)

    with api_server() as server:
        server.answer = answer
        judge = (f"openai:{server.url}#m", "--set=judge.price_in=2")
        card = qualify(*judge)
        asked = len(server.asked)
        qualify(*judge)
        assert len(server.asked) == asked
    assert asked >= 4 * PAIRS
    assert f"plan: judge: {asked} to " in card.errors
    assert "(50 edits, 50 votes, " in card.errors
    assert " by judge.price_in and judge.price_out" in card.errors
    scores, duels = card.way("scores"), card.way("duels")
    assert (scores["state"], scores["ties"]["share"]) == ("INCONCLUSIVE", 1.0)
    assert (duels["state"], duels["first"]["share"]) == ("INVALID", 0.0)
