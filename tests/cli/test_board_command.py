"""`imgedit leaderboard --duel`: which votes count, what is refused, and what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from boards_by_hand import a_board, rated
from documents import a_run, an_item
from hostile_documents import FORGED, STEERING, steering_in

from pytest_imgedit.cli import boards as command
from pytest_imgedit.cli.leaderboard import leaderboard
from pytest_imgedit.cli.main import main
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.stats.boards import Chance, Elo
from pytest_imgedit.suites.votes import votes_csv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.stats.boards import Board

pytestmark = pytest.mark.everyday


def vote(pair: str, a: str, b: str, **changes: Any) -> DuelVote:
    return DuelVote(pair=pair, a=a, b=b, **({"winner": "a", "judge": "j"} | changes))


VOTES = [vote("p1", "good", "bad"), vote("p2", "r2", "fair"), vote("p1", "fair", "other")]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the runs `good`, `fair` and `bad`, with votes on them and on another system."""
    monkeypatch.chdir(tmp_path)
    for order, name in enumerate(("bad", "good", "fair"), 1):
        path = tmp_path / "store" / "runs" / f"r{order}" / "results.json"
        path.parent.mkdir(parents=True)
        results = a_run(
            run={"id": f"r{order}", "name": name}, items=[an_item("p1", "physics", 5.0)]
        )
        path.write_text(json.dumps(results.model_dump(mode="json")))
    write(tmp_path / "store/votes/1.csv", VOTES)
    return tmp_path / "store"


def write(path: Path, votes: Sequence[DuelVote]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(votes_csv(votes))
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[DuelVote], str | None]]:
    """The votes and the reference that a board was asked of."""
    calls: list[tuple[Sequence[DuelVote], str | None]] = []

    def rate(votes: Sequence[DuelVote], reference: str | None = None) -> Board:
        calls.append((votes, reference))
        systems = dict.fromkeys(name for each in votes for name in (each.a, each.b))
        rows = [rated(name, rank, -50.0 * rank) for rank, name in enumerate(systems, 1)]
        return a_board(*rows, votes=len(votes))

    monkeypatch.setattr(command.boards, "rate", rate)
    return calls


Asked = list[tuple["Sequence[DuelVote]", "str | None"]]


def shown(
    out: Path, *references: str, reference: str | None = None, **options: Any
) -> tuple[dict[str, Any], str]:
    formats = dict.fromkeys(("md", "csv", "html")) | options
    measure = formats.pop("measure", ())
    document, text, code = leaderboard(
        references, reference, measure=measure, out=out, duel=True, **formats
    )
    assert code == 0
    return document, text


def systems_of(votes: Sequence[DuelVote]) -> list[tuple[str, str]]:
    return [(each.a, each.b) for each in votes]


def test_all_votes_of_the_store_count_by_the_names_of_its_runs(out: Path, asked: Asked) -> None:
    document, text = shown(out)
    ((votes, reference),) = asked
    assert systems_of(votes) == [("good", "bad"), ("good", "fair"), ("fair", "other")]
    assert reference is None
    assert len(document["rows"]) == 4
    assert "Board of duels of 4 systems" in text
    assert "3 votes on 15 pairs of 5 source images" in text


def test_with_runs_only_votes_between_their_systems_count_by_name_or_id(
    out: Path, asked: Asked
) -> None:
    document, text = shown(out, "good", "r1", "fair", reference="r3")
    ((votes, reference),) = asked
    assert systems_of(votes) == [("good", "bad"), ("good", "fair")]
    assert reference == document["reference"] == "fair"
    assert "1 vote on other systems left out" in text


def test_a_reference_is_a_system_of_the_votes_or_a_run_which_takes_part(
    out: Path, asked: Asked
) -> None:
    shown(out, "fair", "good", reference="other")
    shown(out, "good", "bad", reference="r3")
    shown(out, reference="other")
    shown(out, reference=str(out / "runs/r2"))
    assert [reference for _, reference in asked] == ["other", "fair", "other", "good"]
    assert [len(votes) for votes, _ in asked] == [2, 2, 3, 3]
    assert systems_of(asked[-1][0])[1] == ("good", "fair"), "the id is one more name of the run"


def test_a_reference_that_is_neither_is_refused(out: Path, asked: Asked) -> None:
    with pytest.raises(
        UsageError, match=r"^othr: no such baseline.*; or a system of the votes: go"
    ):
        shown(out, reference="othr")
    with pytest.raises(UsageError, match="did you mean 'other'"):
        shown(out, reference="othr")
    assert not asked


def test_files_of_votes_stand_in_for_the_store_unless_runs_are_named(
    out: Path, asked: Asked
) -> None:
    path = write(out.parent / "people.csv", [vote("p9", "good", "bad", judge="ann")])
    log = out.parent / "logs" / "bad_vs_good.jsonl"
    log.parent.mkdir()
    line = {"model_a": "bad", "model_b": "good", "sample_index": 1, "final_winner": "tie"}
    log.write_text(json.dumps(line))
    shown(out, votes=[path, log.parent])
    _, text = shown(out, "good", "bad", votes=[path])
    assert [len(votes) for votes, _ in asked] == [2, 2]
    assert "the votes of 2 judges count: ann 1, j 1" in text


def test_a_vote_in_two_files_counts_once(out: Path, asked: Asked) -> None:
    write(out / "votes/2.csv", VOTES[:2])
    _, text = shown(out)
    assert len(asked[0][0]) == 3
    assert "2 votes that other files repeat left out" in text
    path = write(out / "votes/3.csv", [vote("p1", "good", "bad", winner="b")])
    with pytest.raises(UsageError, match=f"^{path}:2: another winner in id 'p1' than "):
        shown(out)


def test_a_run_without_votes_or_against_itself_is_refused(out: Path, asked: Asked) -> None:
    write(out / "votes/1.csv", VOTES[:1])
    with pytest.raises(
        UsageError, match=r"^r3: no vote is on its system 'fair' .*`imgedit duel RUN"
    ):
        shown(out, "good", "bad", "r3")
    with pytest.raises(UsageError, match=r"^good and r2 are one run, r2: name it once"):
        shown(out, "good", "r2")
    path = write(out / "votes/1.csv", [vote("p1", "good", "r2")])
    with pytest.raises(UsageError, match=f"^{path}:2: 'good' and 'r2' are one run"):
        shown(out, "good", "bad")
    assert not asked


def test_without_votes_it_says_what_makes_some(out: Path) -> None:
    (out / "votes/1.csv").unlink()
    with pytest.raises(UsageError, match=r"store/votes: no votes, .*`imgedit duel RUN RUN…` makes"):
        shown(out)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["good", "--votes=x.csv"], "--votes: no votes to rate by, expected --duel too"),
        (["good", "--fit=genarena"], "--fit: no votes to rate by, expected --duel too"),
        (["--duel", "--measure=score"], "--measure: votes have no measures"),
        (["--duel", "--fit=genarena", "--reference=a"], "--reference=a: ratings without intervals"),
        ([], "leaderboard: no RUN, expected one or more, or --duel"),
        (["--duel", "--votes=gone.csv"], "gone.csv: No such file or directory, expected a CSV"),
        (["--duel", "--votes=x.csv", "--csv=./x.csv"], "x.csv: in x.csv, which holds results or"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(
    out: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    write(Path("x.csv"), VOTES)
    assert main(["leaderboard", *arguments, f"--out={out}"]) == 4
    said = capsys.readouterr().err
    assert said.startswith(f"imgedit: {told}")
    assert said.count("\n") == 1


def test_each_format_is_written_and_named(
    out: Path, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--md=x/b.md", "--csv=b.csv", "--html=b.html", f"--out={out}"]
    assert main(["leaderboard", "--duel", *arguments]) == 0
    said = capsys.readouterr().out
    assert said.endswith("md: x/b.md\ncsv: b.csv\nhtml: b.html\n")
    assert "| good |" in Path("x/b.md").read_text()
    assert Path("b.csv").read_text().startswith("column,group,system,rank,")
    assert Path("b.html").read_text().count('<circle class="mean"') == 4


def test_a_narrow_terminal_keeps_ratings_and_their_intervals(
    out: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "46")
    _, text = shown(out)
    assert "95% CI of Elo" in text
    assert "hidden at this width: won, tied, lost" in text


@pytest.mark.parametrize("field", ["a", "judge", "dimension", "category"])
def test_no_text_of_a_vote_steers_or_forges_a_line_in_any_output(
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    field: str,
) -> None:
    name = f"mark{STEERING}\n{FORGED}"
    path = write(
        Path("x.csv"), [replace(vote("p1", "x", "y"), **{field: name}), vote("p2", "y", "x")]
    )

    def rate(votes: Sequence[DuelVote], reference: str | None = None) -> Board:
        groups = {
            "dimensions": {each.dimension: Elo(0.0, None) for each in votes},
            "categories": {each.category: Elo(0.0, None) for each in votes},
        }
        judges = {each.judge: Chance(0.5, None) for each in votes}
        dimensions = {each.dimension: Chance(0.5, None) for each in votes}
        rows = [rated(votes[0].a, 1, 1.0, **groups), rated("y", 2, -1.0, **groups)]
        return a_board(*rows, first=judges, ties=dimensions, notes=(f"{votes[0]}",))

    monkeypatch.setattr(command.boards, "rate", rate)
    arguments = ["leaderboard", "--duel", f"--votes={path}", f"--out={out}"]
    written = ["--md=b.md", "--csv=b.csv", "--html=b.html"]
    assert main([*arguments, *written]) == 0
    assert main([*arguments, "--json"]) == 0
    texts = [capsys.readouterr().out]
    texts += [Path(option.partition("=")[2]).read_text() for option in written]
    for text in texts:
        assert steering_in(text) == []
        assert f"\n{FORGED}" not in text
    assert "mark" in "".join(texts)


def in_both_orders(a: str, b: str, *, won: int, of: int, judge: str = "j") -> list[DuelVote]:
    """Votes on pairs of two systems in both orders, of which the first `won` are for `a`."""
    votes = []
    for pair in range(of):
        for first in ("a", "b"):
            winner = "a" if pair < won else "b"
            changes = {"first": first, "winner": winner, "judge": judge, "cluster": f"s{pair // 2}"}
            votes.append(vote(f"p{pair}", a, b, **changes))
    return votes


def test_pairs_of_runs_have_the_category_and_source_of_the_runs(out: Path, asked: Asked) -> None:
    """People's votes name neither, so that one source would count as two."""
    write(out / "votes/1.csv", [vote("p1", "r1", "r2", category="x", cluster="y")])
    people = write(Path("people.csv"), [vote("p1", "good", "fair"), vote("other", "good", "fair")])
    shown(out, "bad", "good", "fair", votes=[people])
    ((votes, _),) = asked
    known = {(each.pair, each.category, each.cluster) for each in votes}
    assert known == {("p1", "physics", "ab" * 32), ("other", "all", "")}


def test_systems_that_won_or_lost_every_vote_are_told_beside_the_board(out: Path) -> None:
    votes = in_both_orders("fair", "good", won=12, of=20)
    for other in ("fair", "good", "worst"):
        votes += in_both_orders("best", other, won=20, of=20)
    for other in ("fair", "good"):
        votes += in_both_orders(other, "worst", won=20, of=20)
    path = write(Path("people.csv"), votes)
    document, text = shown(out, votes=[path])
    assert [row["system"] for row in document["rows"]] == ["fair", "good"]
    told = "won every vote against the rest: without a finite rating, above this board"
    assert f"best {told}" in text
    assert "worst lost every vote against the rest: " in text
    with pytest.raises(UsageError, match="no finite rating fits: best won every vote"):
        shown(out, votes=[path], reference="best")


def test_another_fit_of_votes_that_none_fits_says_so(out: Path) -> None:
    path = write(Path("apart.csv"), [vote("p1", "u", "v"), vote("p1", "x", "y")])
    _, text = shown(out, votes=[path], fit="gedit-v2")
    assert (
        "these ratings are not to be believed: 2 parts that no vote connects: u, v | x, y" in text
    )


def test_shares_of_runs_link_to_their_pairs_in_the_page_of_the_store(out: Path) -> None:
    for names in (("r1", "r2"), ("r2", "r3"), ("r1", "r3")):
        write(out / f"votes/{'-'.join(names)}.csv", in_both_orders(*names, won=10, of=20))
    (out / "votes/1.csv").unlink()
    arguments = ["leaderboard", "--duel", "bad", "good", "fair", "--html=b.html", f"--out={out}"]
    assert main(arguments) == 0
    assert "order=won" not in Path("b.html").read_text()
    for run in ("r1", "r2", "r3"):
        page = out / f"view/runs/{run}.js"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.touch()
    assert main(arguments) == 0
    page = Path("b.html").read_text()
    assert page.count("order=won") == 6
    address = "store/view/index.html#view=pairs&amp;runs=r2%2Cr1&amp;order=won&amp;a=r2&amp;b=r1"
    assert f'<a href="{address}">0.50</a>' in page


def test_real_votes_are_rated_from_the_files_to_the_page(out: Path) -> None:
    votes = in_both_orders("good", "fair", won=16, of=20)
    votes += in_both_orders("fair", "bad", won=15, of=20)
    votes += in_both_orders("good", "bad", won=18, of=20)
    write(out / "votes/1.csv", votes[:50])
    write(out / "votes/2.csv", votes[40:])
    document, text = shown(out, "good", "bad", "fair", reference="bad", html=Path("b.html"))
    assert [row["system"] for row in document["rows"]] == ["good", "fair", "bad"]
    assert (document["votes"], document["pairs"], document["clusters"]) == (120, 20, 11)
    assert sum(row["overall"]["elo"] for row in document["rows"]) == pytest.approx(0, abs=1e-6)
    best, _, worst = document["rows"]
    assert best["difference"]["elo"] == pytest.approx(
        best["overall"]["elo"] - worst["overall"]["elo"], abs=1e-6
    )
    assert (best["wins"], best["ties"], best["losses"]) == (68, 0, 12)
    assert document["first"]["j"]["share"] == pytest.approx(0.5, abs=1e-6)
    assert "10 votes that other files repeat left out" in text
    assert Path("b.html").read_text().count('<circle class="mean"') == 3


@pytest.mark.parametrize(("fit", "told"), [("genarena", "100 rounds"), ("gedit-v2", "a ridge")])
def test_the_fit_of_another_arena_has_no_intervals_and_says_what_is_wrong(
    out: Path, fit: str, told: str
) -> None:
    write(out / "votes/1.csv", in_both_orders("good", "bad", won=16, of=20))
    document, text = shown(out, fit=fit, csv=Path("b.csv"), html=Path("b.html"))
    assert list(document["ratings"]) == ["good", "bad"]
    assert told in text
    assert "no intervals: " in text
    assert "CI" not in text
    assert Path("b.csv").read_text().startswith("system,rating\ngood,1")
    assert "<figure" not in Path("b.html").read_text()


def test_a_board_that_has_no_finite_ratings_is_refused_in_one_line(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(out / "votes/1.csv", in_both_orders("good", "bad", won=20, of=20))
    assert main(["leaderboard", "--duel", f"--out={out}"]) == 4
    assert capsys.readouterr().err.count("\n") == 1
