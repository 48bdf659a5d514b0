"""`imgedit agreement`: files of ratings, and what is printed of a run and its raters."""

from __future__ import annotations

import json

import pytest
from documents import a_run, an_item

from pytest_imgedit.cli.agreement import Rating, agree, read_ratings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import ItemError


def test_ratings_are_collected_by_pair(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("\ufeffwhen,id,score\nMay,p1, 7.0\nMay, p1 ,8.5\nJune,p2,03\n", "utf-8")
    assert read_ratings(path) == {"p1": [Rating(7.0), Rating(8.5)], "p2": [Rating(3.0)]}


def test_ratings_name_their_rater(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("rater,id,score\nann,p1,7\n bob ,p1,8.5\nann,p2,3\n", "utf-8")
    assert read_ratings(path) == {
        "p1": [Rating(7.0, "ann"), Rating(8.5, "bob")],
        "p2": [Rating(3.0, "ann")],
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"id\np1\n", ":1: no column 'score', expected a header with one id, one score and"),
        (b"", ": empty file, expected a CSV file: download it or save it again"),
        (b"id,score,score\np1,7,8\n", ":1: twice column 'score', expected a header with one id"),
        (b"id,score,rater,rater\np1,7,a,b\n", ":1: twice column 'rater', expected a header"),
        (b"id,score\np1,seven\n", ":2: id 'p1' with score 'seven', expected an id and a number"),
        (b"id,score\np1,7\np2\n", ":3: id 'p2' with score None"),
        (b"id,score\np1,nan\n", ":2: id 'p1' with score 'nan'"),
        (b"id,score\np1,1_0\n", ":2: id 'p1' with score '1_0'"),
        (b"id,score,rater\np1,7,ann\np2,8, \n", ":3: no rater of id 'p2', expected a name in each"),
        (b"id,score,rater\np1,7\n", ":2: no rater of id 'p1', expected a name in each row, or no"),
        (
            b"id,score,rater\np1,7,ann\np2,7,ann\np1,8,ann \n",
            ":4: rater 'ann' rates id 'p1' again, expected one rating: the first is in line 2, "
            "delete one of them",
        ),
        (
            b"id,score\np1,1.7e308\n",
            ":2: id 'p1' with score '1.7e308', expected an id and a number",
        ),
        (b"id,score\np1,-1.7e308\n", ":2: id 'p1' with score '-1.7e308', expected an id and a"),
        (b"id,score\np1,1e400\n", ":2: id 'p1' with score '1e400'"),
        ("id,score\np1,\uff17\n".encode(), ":2: id 'p1' with score '\uff17', expected an id and a"),
        (b"id,score\np1,NA\n", ":2: id 'p1' with score 'NA', expected an id and a number"),
        (b"id,score\n \t,7\n", ":2: id ' \\t' with score '7', expected an id and a number"),
        (b"id,score\nnan,7\n", ":2: id 'nan' with score '7', expected an id and a number"),
        (b"id,score,rater\np1,7,None\n", ":2: no rater of id 'p1', expected a name in each row"),
        (
            b"id,score,rater\np1,7,ann\n p1 ,8,ann\n",
            ":3: rater 'ann' rates id ' p1 ' again, expected one rating",
        ),
        (b"id,score\np1,-inf\n", ":2: id 'p1' with score '-inf'"),
        (b"id,score\np1,True\n", ":2: id 'p1' with score 'True'"),
        (
            b"id,score\np1,-1000001\n",
            "'-1000001', expected an id and a number from -1,000,000 to 1,000,000",
        ),
        (b"id,score\np1," + b"9" * 5000, f":2: id 'p1' with score '{'9' * 79}… (5002 characters)"),
        (b"id,score\n" + b"p" * 5000 + b",x", f":2: id '{'p' * 79}… (5002 characters) with score"),
        (b'id,score\n"p1,7\n', ": not valid CSV: "),
        (b"id,score\n\xff,7\n", ": not UTF-8 (byte "),
    ],
)
def test_bad_ratings_are_named_by_file_and_line(tmp_path, text, line):
    path = tmp_path / "people.csv"
    path.write_bytes(text)
    with pytest.raises(UsageError) as error:
        read_ratings(path)
    assert str(error.value).startswith(str(path))
    assert line.strip(": ") in str(error.value)


@pytest.fixture
def judged(tmp_path):
    """The results.json of a run of 4 sources with 2 edits each, one of which has no score."""
    items = []
    for number in range(8):
        category = ("physics", "social")[number // 4]
        source = f"ab/{number // 2:064x}.png"
        items.append(an_item(f"p{number}", category, float(number), source=source))
    error = ItemError("score", "unreadable_reply", "no number")
    items.append(an_item("p8", "social", None, error=error))
    path = tmp_path / "results.json"
    path.write_text(json.dumps(a_run(items=items).model_dump(mode="json")))
    return path


def write_ratings(path, raters):
    """Rate p0 to p8 by their number, with an offset of each rater, and one pair of no run."""
    rows = [f"p{number},{number + len(rater)},{rater}" for number in range(9) for rater in raters]
    path.write_text("\n".join(["id,score,rater", *rows, f"ghost,1,{raters[0]}"]))
    return path


def test_raters_and_judge_are_measured_over_the_same_pairs(judged, tmp_path):
    ratings = write_ratings(tmp_path / "people.csv", ["a", "bb", "ccc"])
    document, text, code = agree([str(judged)], ratings, tmp_path)
    assert code == 0
    assert (document["pairs"], document["ratings"], document["raters"]) == (8, 28, 3)
    assert (document["unscored"], document["unknown"]) == (1, ["ghost"])
    assert list(document["rows"]) == list(document["rater_rows"])
    assert list(document["rows"]) == ["physics", "social", "overall"]
    overall, raters = document["rows"]["overall"], document["rater_rows"]["overall"]
    assert (overall["n"], overall["sources"], overall["ranked_within"]) == (8, 4, 4)
    assert overall["within_source"]["value"] == 1
    # α = 1 - observed / expected: offsets of 1, 2, 3 over the numbers 0 to 7
    assert raters["alpha"]["value"] == pytest.approx(1 - 1 / ((5.25 + 2 / 3) * 24 / 23))
    assert raters["against_others"]["value"] == pytest.approx(1)
    assert raters["raters"] == 3
    json.dumps(document, allow_nan=False)
    lines = text.splitlines()
    assert (
        lines[0]
        == f"judge j, protocol aspects@strict against 28 ratings of 10 pairs by 3 raters in {ratings}"
    )
    assert "Krippendorff's α" in text
    assert "within a source" in text
    assert (
        "ceiling: a rater's Spearman with the others' mean is 1.00, the judge's with the mean of "
        "all is 1.00" in lines
    )
    assert "1 rated pairs have no score in the run" in lines
    assert "ids that are rated but not in the run: 1, such as ghost" in lines


def test_without_raters_nothing_is_said_of_them(judged, tmp_path):
    ratings = tmp_path / "people.csv"
    ratings.write_text("id,score\np0,1\np1,2\np2,3\np2,5\n")
    document, text, code = agree([str(judged)], ratings, tmp_path)
    assert code == 0
    assert (document["pairs"], document["raters"], document["rater_rows"]) == (3, None, {})
    assert document["rows"]["overall"]["spearman"]["value"] == pytest.approx(1)
    assert "rater" not in text.replace(str(ratings), "")


def test_no_rating_of_a_scored_pair_fails(judged, tmp_path):
    ratings = tmp_path / "people.csv"
    ratings.write_text("id,score,rater\nghost,1,ann\np8,3,ann\n")
    document, text, code = agree([str(judged)], ratings, tmp_path)
    assert code == 1
    assert document["pairs"] == 0
    assert document["rater_rows"]["overall"]["alpha"] == {"value": None, "ci95": None}
    assert "overall" in text


def test_a_sample_of_many_raters_is_told(judged, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pytest_imgedit.stats.raters.COMPARED", 10)
    monkeypatch.setattr("pytest_imgedit.cli.agreement.PROGRESS_S", -1)
    ratings = write_ratings(tmp_path / "people.csv", [f"rater{number}" for number in range(12)])
    document, text, _ = agree([str(judged)], ratings, tmp_path)
    rows = document["rater_rows"]
    assert (rows["overall"]["compared"], rows["overall"]["is_sample"]) == (10, True)
    assert "rater to rater: of 10 random two raters (physics, social, overall)" in text
    assert (
        capsys.readouterr().err.splitlines()[-1] == "imgedit: overall: 10 of 10 two raters compared"
    )


def test_of_few_raters_no_sample_is_told(judged, tmp_path, capsys):
    ratings = write_ratings(tmp_path / "people.csv", ["a", "bb", "ccc"])
    _, text, _ = agree([str(judged)], ratings, tmp_path)
    assert "random" not in text
    assert capsys.readouterr().err == ""


def test_ratings_are_of_one_run(judged, tmp_path):
    ratings = write_ratings(tmp_path / "people.csv", ["a"])
    with pytest.raises(UsageError, match="ratings of 2 runs, expected one run, or choices"):
        agree([str(judged), str(judged)], ratings, tmp_path)
