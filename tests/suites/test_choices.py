"""People's choices between two edits: a CSV file, and the folders of MMRB2 and EditReward-Bench."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from pytest_imgedit.core.choices import Choice, Vote, majority
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.suites.choices import read_choices

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "id,a,b,winner,rater,category,source,instruction"


def png(level: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 8), (level, 0, 0)).save(data, "PNG")
    return data.getvalue()


def write_csv(folder: Path, *rows: str, header: str = HEADER) -> str:
    for level, name in enumerate(("a.png", "b.png", "s.png")):
        (folder / name).write_bytes(png(level))
    (folder / "votes.csv").write_text("\n".join((header, *rows)) + "\n")
    return str(folder / "votes.csv")


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as caught:
        read_choices(spec)
    return str(caught.value)


def test_rows_of_one_id_are_the_votes_of_one_choice(tmp_path: Path) -> None:
    spec = write_csv(
        tmp_path,
        "x,a.png,b.png,a,ann,colour,s.png,make it red",
        "y,b.png,a.png,Tie,ann,,s.png,make it blue",
        "x,a.png,b.png,B,bob,colour,s.png,make it red",
    )
    found = read_choices(spec)
    assert found.name == "votes"
    first, second = found.choices
    assert first.votes == (Vote("a", "ann"), Vote("b", "bob"))
    assert (first.category, first.instruction) == ("colour", "make it red")
    assert first.a == FileImage(tmp_path / "a.png")
    assert first.source == FileImage(tmp_path / "s.png")
    assert (second.votes, second.category) == ((Vote("tie", "ann"),), "all")


def test_the_digest_covers_votes_and_texts(tmp_path: Path) -> None:
    row = "x,a.png,b.png,{},ann,,s.png,{}"
    digests = {
        read_choices(write_csv(tmp_path, row.format(winner, text))).sha256
        for winner, text in (("a", "one"), ("b", "one"), ("a", "two"))
    }
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["x,a.png,b.png,c,ann,,,"], ":2: winner is 'c', expected a, b or tie"),
        (["x,a.png,b.png,a,,,,"], ":2: rater is '', expected a name"),
        ([",a.png,b.png,a,ann,,,"], ":2: id is '', expected an id"),
        (["x,,b.png,a,ann,,,"], ":2: a is '', expected the path of a picture"),
        (["x,a.png,b.png,a,ann,,s.png,"], ":2: source 's.png' with instruction '', expected both"),
        (
            ["x,a.png,b.png,a,ann,,,", "x,a.png,b.png,b,ann,,,"],
            ":3: rater 'ann' chooses again in id 'x', expected one row: the first is ",
        ),
        (
            ["x,a.png,b.png,a,ann,,,", "x,b.png,a.png,b,bob,,,"],
            "votes.csv:3: a is ",
        ),
        (
            ["x,a.png,b.png,a,ann,,s.png,red, then blue"],
            ":2: 9 cells, expected 8, one a column: put",
        ),
        ([], "votes.csv: no choices, expected at least one"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, rows: list[str], problem: str) -> None:
    assert problem in refusal(write_csv(tmp_path, *rows))


def test_a_wrong_header_is_named(tmp_path: Path) -> None:
    assert ":1: no column 'rater', expected id,a,b,winner,rater[" in refusal(
        write_csv(tmp_path, header="id,a,b,winner")
    )
    assert ":1: twice column 'a'" in refusal(write_csv(tmp_path, header="id,a,a,b,winner,rater"))
    assert ":1: one of the columns 'source' and 'instruction', expected id,a," in refusal(
        write_csv(tmp_path, header="id,a,b,winner,rater,source")
    )


def test_missing_pictures_are_counted(tmp_path: Path) -> None:
    spec = write_csv(tmp_path, "x,a.png,gone.png,a,ann,,s.png,z", "y,lost.png,b.png,a,ann,,s.png,z")
    assert "2 of 5 pictures are missing, the first is " in refusal(spec)
    assert refusal(spec).endswith("gone.png; paths are relative to the CSV file")


def test_an_unknown_spec_is_refused() -> None:
    assert refusal("mmrb:x") == (
        "--people=mmrb:x: no such choices, expected FILE.csv, mmrb2:DIR or editreward-bench:DIR; "
        "did you mean 'mmrb2'?"
    )
    assert refusal("mmrb2") == (
        "--people=mmrb2: no such choices, expected FILE.csv, mmrb2:DIR or editreward-bench:DIR"
    )


def test_a_folder_without_the_set_is_refused(tmp_path: Path) -> None:
    assert refusal(f"editreward-bench:{tmp_path}").startswith(
        f"editreward-bench:{tmp_path}: no parquet files in {tmp_path}, expected those of "
    )


def test_a_majority_is_what_more_raters_chose_than_anything_else() -> None:
    assert majority(["a", "b", "a"]) == "a"
    assert majority(["a", "b", "tie"]) == "tie"
    assert majority(["b", "tie"]) == "tie"
    assert majority(["b", "tie", "b"]) == "b"


def mmrb2_pair(number: int, **changes: Any) -> dict[str, Any]:
    """A pair of MMRB2 as its script builds it, with two source images."""
    name = f"emu-edit_{number}"
    return {
        "id": name,
        "prompt_content": [
            ["image", f"input_images/{name}_prompt_0.png"],
            ["text", "Put this into "],
            ["image", f"input_images/{name}_prompt_1.png"],
        ],
        "prompt_source": "emu-edit",
        "prompt_metadata": {"id": number},
        "response_a": {
            "model_name": "m",
            "response_content": [["image", f"images/{name}_a_0.png"]],
        },
        "response_b": {
            "model_name": "n",
            "response_content": [["image", f"images/{name}_b_0.png"]],
        },
        "chosen": "A",
        "human_annotations": [6, 3, 4],
    } | changes


def write_mmrb2(folder: Path, pairs: list[Any]) -> str:
    for name in ("images", "input_images"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for pair in pairs:
        for part in pair["prompt_content"]:
            if part[0] == "image":
                (folder / part[1]).write_bytes(png(1))
        for side in ("response_a", "response_b"):
            for _, name in pair[side]["response_content"]:
                (folder / name).write_bytes(png(2))
    (folder / "edit.json").write_text(json.dumps({"pairs": pairs}))
    return f"mmrb2:{folder}"


def test_mmrb2_has_three_votes_and_several_sources(tmp_path: Path) -> None:
    several = mmrb2_pair(2)
    several["response_b"]["response_content"].append(["image", "images/more.png"])
    found = read_choices(write_mmrb2(tmp_path, [mmrb2_pair(1), several]))
    assert (found.name, found.remarks) == (
        "mmrb2",
        ("1 pair with several pictures in one answer left out",),
    )
    (choice,) = found.choices
    assert choice.votes == (Vote("a", "1"), Vote("b", "2"), Vote("a", "3"))
    assert choice.instruction == "Put this into"
    assert choice.source == FileImage(tmp_path / "input_images/emu-edit_1_prompt_0.png")
    assert choice.further == (FileImage(tmp_path / "input_images/emu-edit_1_prompt_1.png"),)
    assert choice.category == "emu-edit"


def test_mmrb2_without_votes_has_the_choice(tmp_path: Path) -> None:
    pair = mmrb2_pair(1, chosen="B")
    del pair["human_annotations"]
    (choice,) = read_choices(write_mmrb2(tmp_path / "benchmark", [pair])).choices
    assert choice.votes == (Vote("b"),)
    assert read_choices(f"mmrb2:{tmp_path}").choices == [choice], "a clone, with the folder in it"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"human_annotations": [7]}, "edit.json: pair 1: human_annotations has 7, expected"),
        ({"id": 3}, "edit.json: pair 1: id is 3, expected a value of type str"),
        (
            {"response_a": {"response_content": [["sound", "x"]]}},
            "edit.json: pair 1: response_a has ['sound', 'x'], expected",
        ),
        ({"prompt_content": [["text", "x"]]}, "prompt_content lacks a text or an image"),
    ],
)
def test_a_wrong_pair_of_mmrb2_is_named(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    write_mmrb2(tmp_path, [mmrb2_pair(1)])
    (tmp_path / "edit.json").write_text(json.dumps({"pairs": [mmrb2_pair(1, **changes)]}))
    assert problem in refusal(f"mmrb2:{tmp_path}")


def test_mmrb2_says_how_it_is_built(tmp_path: Path) -> None:
    assert "no edit.json in " in refusal(f"mmrb2:{tmp_path}")
    spec = write_mmrb2(tmp_path, [mmrb2_pair(1)])
    (tmp_path / "images/emu-edit_1_b_0.png").unlink()
    message = refusal(spec)
    assert "1 of 4 pictures are missing, the first is " in message
    assert message.endswith("python benchmark/build_from_hf.py")


def editreward_rows(count: int) -> list[dict[str, Any]]:
    """Rows of EditScore's EditReward-Bench, whose better edit is of level 200."""
    rows = []
    for number in range(count):
        edits = [{"bytes": png(level), "path": None} for level in (200, 100)]
        for dimension in ("consistency", "overall"):
            row = {
                "key": [f"{number}x", f"{number}y"],
                "instruction": f"change {number}",
                "input_image": {"bytes": png(number), "path": None},
                "output_images": edits,
                "dimension": dimension,
                "task_type": "color_alter",
            }
            rows.append(row)
    return rows


def write_parquet(folder: Path, rows: list[dict[str, Any]]) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train-0.parquet")
    return f"editreward-bench:{folder}"


def winner(choice: Choice) -> bytes:
    (vote,) = choice.votes
    return choice.a.read() if vote.winner == "a" else choice.b.read()


def test_half_of_editreward_bench_is_swapped(tmp_path: Path) -> None:
    found = read_choices(write_parquet(tmp_path, editreward_rows(40)))
    assert found.remarks == ("40 rows of dimensions other than overall left out",)
    assert [winner(choice) for choice in found.choices] == [png(200)] * 40
    first = sum(choice.votes[0].winner == "a" for choice in found.choices)
    assert 12 <= first <= 28, "a judge that names the first is right by chance alone"
    assert found.choices[3].source is not None
    assert found.choices[3].source.read() == png(3)


def test_the_other_editreward_bench_is_told_apart(tmp_path: Path) -> None:
    rows = [{"id": "1", "candidate_1": {"bytes": png(1), "path": None}, "ranking": "A>B"}]
    message = refusal(write_parquet(tmp_path, rows))
    assert "holds TIGER-Lab/EditReward-Bench, another set, expected that of EditScore/" in message


def test_editreward_bench_without_files_says_where_they_are(tmp_path: Path) -> None:
    assert "no parquet files in " in refusal(f"editreward-bench:{tmp_path}")
