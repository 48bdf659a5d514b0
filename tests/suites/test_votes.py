"""Votes between systems: the CSV file that is written and read, and the logs of GenArena."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hostile_documents import STEERING, steering_in

from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.text import message
from pytest_imgedit.suites.votes import join_votes, read_votes, votes_csv

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.everyday

HEADER = "id,a,b,winner,rater,first,dimension,category,source"
FIELDS = ("model_a", "model_b", "sample_index", "final_winner", "is_consistent", "timestamp")


def write_csv(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "votes.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def line(winner: object = "x", **changes: object) -> dict[str, object]:
    """A line of a log on the models `x` and `y`."""
    values = ("x", "y", 3, winner, True, "2026-01-02T03:04:05Z")
    return dict(zip(FIELDS, values, strict=True)) | changes


def write_log(path: Path, *lines: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_votes(path)
    return str(caught.value)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    votes = [
        DuelVote(pair="p1", a="one", b='two, "2"', winner="a", first="b", judge="j", cluster="s"),
        DuelVote(pair="p1", a="one", b='two, "2"', winner="tie", first="a", judge="j"),
        DuelVote(pair="p2", a="一", b="one", winner="b", dimension="realism", category="colour"),
    ]
    path = tmp_path / "x.CSV"
    path.write_text(votes_csv(votes))
    found = read_votes(path)
    assert [vote.row for vote in found] == [f"{path}:{number}" for number in (2, 3, 4)]
    assert [DuelVote(**{**_fields(vote), "row": ""}) for vote in found] == votes


def test_any_text_of_a_vote_is_read_as_it_is_written(tmp_path: Path) -> None:
    names = ("a\rb", "a\nb", "a,b", '"', "'", "=1+1", "a\x00b", "a\u2028b")
    votes = [DuelVote(pair="p", a=name, b="other", winner="a") for name in names]
    path = tmp_path / "x.csv"
    path.write_text(votes_csv(votes))
    assert tuple(vote.a for vote in read_votes(path)) == names


def _fields(vote: DuelVote) -> dict[str, object]:
    return {name: getattr(vote, name) for name in DuelVote.__slots__}


def test_columns_that_may_be_missing_have_their_usual_values(tmp_path: Path) -> None:
    (vote,) = read_votes(write_csv(tmp_path, "p,x,y,Tie,", header="id,a,b,winner,rater"))
    assert vote == DuelVote(pair="p", a="x", b="y", winner="tie", row=f"{tmp_path}/votes.csv:2")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["p,x,y,x,ann,,,,"], ":2: winner is 'x', expected a, b or tie"),
        (["p,x,y,a,ann,x,,,"], ":2: first is 'x', expected a, b or nothing"),
        (["p,x,,a,ann,,,,"], ":2: b is '', expected the name of a run or system"),
        (["p,x,NA,a,ann,,,,"], ":2: b is 'NA', expected the name of a run or system"),
        ([",x,y,a,ann,,,,"], ":2: id is '', expected an id"),
        (["p,x,x,a,ann,,,,"], ":2: both systems are 'x', expected two different ones"),
        (["p,x,y,a,ann,,,,,more"], ":2: 10 cells, expected 9, one a column: put a text with"),
        (["p,x,y,a,ann,,,,", '"'], ":3: not valid CSV: unexpected end of data"),
        (
            ["p,x,y,a,ann,a,,,", "p,x,y,a,ann,b,,,", "p,x,y,a,ann,a,,,"],
            ":4: rater 'ann' votes again on 'x' and 'y' in id 'p', expected one row: the first is ",
        ),
        (["p,x,y,a,ann,a,,,", "p,y,x,a,ann,b,,,"], ":3: rater 'ann' votes again on 'y' and 'x'"),
        ([], "votes.csv: no votes, expected at least one"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, rows: list[str], problem: str) -> None:
    assert problem in refusal(write_csv(tmp_path, *rows))


def test_votes_in_other_dimensions_orders_and_by_others_are_votes_of_their_own(
    tmp_path: Path,
) -> None:
    rows = ("p,x,y,a,ann,a,,,", "p,x,y,a,ann,b,,,", "p,x,y,a,ann,a,d,,", "p,x,y,a,bob,a,,,")
    assert len(read_votes(write_csv(tmp_path, *rows))) == 4


def test_a_wrong_header_is_named(tmp_path: Path) -> None:
    told = refusal(write_csv(tmp_path, header="id,a,b,winner"))
    assert ":1: no column 'rater', expected id,a,b,winner,rater[,first][,dimension]" in told
    assert ":1: twice column 'first'" in refusal(write_csv(tmp_path, header=f"{HEADER},first"))


@pytest.mark.parametrize(
    "name", ["votes.txt", "votes.json", "missing.csv", "missing.jsonl", "gone"]
)
def test_what_are_no_votes_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "votes.txt").write_text("x")
    told = refusal(tmp_path / name)
    assert told.startswith(f"{tmp_path / name}: ")
    assert "expected " in told
    assert "no *_vs_*.jsonl in it, expected a CSV file of votes" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("winner", "expected"), [("x", "a"), ("y", "b"), ("tie", "tie"), ("model_b", "b")]
)
def test_a_line_of_a_log_is_a_vote_in_both_orders(
    tmp_path: Path, winner: str, expected: str
) -> None:
    path = write_log(tmp_path / "x_vs_y.jsonl", line(winner))
    (vote,) = read_votes(path)
    assert (vote.pair, vote.a, vote.b, vote.winner) == ("000003", "x", "y", expected)
    assert (vote.first, vote.judge, vote.category) == ("", "", "all")
    assert vote.row == f"{path}:1"


def test_models_that_have_names_of_words_are_taken_by_their_names(tmp_path: Path) -> None:
    named = {"model_a": "model_b", "model_b": "z"}
    path = write_log(
        tmp_path / "log.jsonl", line("model_b", **named), line("z", **named, sample_index=4)
    )
    assert [vote.winner for vote in read_votes(path)] == ["a", "b"]
    write_log(path, line("model_a", **named))
    assert "final_winner is 'model_a', expected 'model_b', 'z' or 'tie'" in refusal(path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"final_winner": "z"}, "final_winner is 'z', expected 'x', 'y' or 'tie'"),
        ({"final_winner": None}, "final_winner is None, expected 'x', 'y' or 'tie'"),
        ({"final_winner": ["x"]}, "final_winner is ['x'], expected"),
        ({"model_a": 3}, "model_a is 3, expected the name of a model"),
        ({"model_b": " "}, "model_b is ' ', expected the name of a model"),
        ({"model_b": "x"}, "both systems are 'x', expected two different ones"),
        ({"model_a": "tie"}, "model_a is 'tie', expected another name"),
        ({"sample_index": True}, "sample_index is True, expected a whole number from 0"),
        ({"sample_index": "3"}, "sample_index is '3', expected a whole number from 0"),
        ({"sample_index": 10**400}, "sample_index is 1000"),
        ({"sample_index": -1}, "sample_index is -1, expected"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    path = write_log(tmp_path / "x_vs_y.jsonl", line(sample_index=1), line(**changes))
    assert refusal(path).startswith(f"{path}:2: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"model_a": "x"', ":1: not valid JSON: it ends too early: cut short?"),
        ("[1]", ":1: list, expected a log of GenArena"),
        ("[" * 100_000, ":1: not valid JSON: "),
        ('{"model_a": "x", "model_a": "y"}', ":1: not valid JSON: key 'model_a' occurs twice"),
        ("", ": empty file, expected a CSV file of votes, or GenArena's logs: "),
        ("PK\x03\x04", ": "),
    ],
)
def test_what_is_no_log_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "x_vs_y.jsonl"
    path.write_text(text)
    assert refusal(path).startswith(f"{path}{problem}")


def test_a_line_that_is_repeated_counts_once_and_may_not_say_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "x_vs_y.jsonl"
    again = line("y", model_a="y", model_b="x", timestamp="later")
    assert len(read_votes(write_log(path, line("y"), again))) == 1
    assert refusal(write_log(path, line("x"), again)) == (
        f"{path}:2: another winner in id '000003' than {path}:1, expected a win of 'x' as there: remove "
        "one of the two"
    )


def test_logs_are_found_in_folders_and_samples_of_subsets_told_apart(tmp_path: Path) -> None:
    for subset in ("basic", "reasoning"):
        write_log(tmp_path / subset / "pk_logs/e/x_vs_y.jsonl", line())
        write_log(tmp_path / subset / "pk_logs/e/raw_outputs/x_vs_y.jsonl", line("y"))
        write_log(tmp_path / subset / ".pk_logs_rm/e/x_vs_z.jsonl", line("z", model_b="z"))
    found = read_votes(tmp_path)
    assert [(vote.pair, vote.category, vote.winner) for vote in found] == [
        ("basic-000003", "basic", "a"),
        ("reasoning-000003", "reasoning", "a"),
    ]
    assert read_votes(tmp_path / "basic/pk_logs/e/x_vs_y.jsonl") == found[:1]
    write_log(tmp_path / "basic/pk_logs/f/x_vs_y.jsonl", line("tie"))
    assert "f/x_vs_y.jsonl:1: another winner in id 'basic-000003' than " in refusal(tmp_path)


def test_a_vote_in_two_files_counts_once(tmp_path: Path) -> None:
    vote = DuelVote(pair="p", a="x", b="y", winner="a", first="a", judge="j", row="1.csv:2")
    swapped = DuelVote(pair="p", a="y", b="x", winner="b", first="b", judge="j", row="2.csv:2")
    assert join_votes([[vote], [swapped]]) == [vote]
    lost = DuelVote(pair="p", a="x", b="y", winner="b", first="a", judge="j", row="2.csv:2")
    with pytest.raises(UsageError, match=r"^2\.csv:2: another winner in id 'p' than 1\.csv:2, "):
        join_votes([[vote], [lost]])


@pytest.mark.parametrize("column", range(9))
def test_no_cell_steers_a_terminal_through_a_refusal(tmp_path: Path, column: int) -> None:
    cells = ["p", "x", "x", "a", "ann", "", "", "", ""]
    cells[column] += STEERING
    path = write_csv(tmp_path, ",".join(cells), ",".join(cells))
    with pytest.raises(UsageError) as caught:
        read_votes(path)
    assert steering_in(message(caught.value)) == []


@pytest.mark.parametrize("field", FIELDS[:4])
def test_no_field_steers_a_terminal_through_a_refusal(tmp_path: Path, field: str) -> None:
    row = line()
    wrong = {"final_winner": 7, field: f"x{STEERING}"}
    path = write_log(tmp_path / "x.jsonl", row | wrong)
    with pytest.raises(UsageError) as caught:
        read_votes(path)
    assert steering_in(message(caught.value)) == []
