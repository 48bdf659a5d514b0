"""`imgedit agreement`: people's choices between the edits of runs, beside scores and duels."""

import json

import pytest
from documents import a_run, an_item

from pytest_imgedit.cli.agreement import agree
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import ItemError

pytestmark = pytest.mark.everyday

PAIRS = 40


@pytest.fixture
def runs(tmp_path):
    """Two runs of 40 pairs, four a source: `up` scores 6 where `down` scores 5, but 4 in each tenth
    pair; the last pair has no score.
    """
    paths = []
    for name in ("up", "down"):
        items = []
        for number in range(PAIRS):
            score = 5.0 if name == "down" else 4.0 if number % 10 == 0 else 6.0
            error = None
            if number == PAIRS - 1 and name == "up":
                score, error = None, ItemError("score", "unreadable_reply", "no number")
            source = f"ab/{number // 4:064x}.png"
            category = "physics" if number % 2 else "social"
            items.append(an_item(f"p{number}", category, score, source=source, error=error))
        document = a_run(items=items).model_dump(mode="json")
        document["run"]["id"] = f"run-{name}"
        document["editor"]["spec"] = name
        folder = tmp_path / name
        folder.mkdir()
        path = folder / "results.json"
        path.write_text(json.dumps(document))
        paths.append(str(path))
    return paths


def write_votes(path, rows, header="id,a,b,winner,rater"):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_scores_are_measured_by_peoples_choices(runs, tmp_path):
    """Three people prefer `up` everywhere; the order of names in a row does not matter."""
    rows = [f"p{n},up,down,a,{rater}" for n in range(PAIRS) for rater in ("ann", "bob")]
    rows += [f"p{n},run-down,run-up,b,eve" for n in range(PAIRS)]
    votes = write_votes(tmp_path / "people.csv", [*rows, "ghost,up,down,a,ann"])
    document, text, code = agree(runs, votes, tmp_path)
    assert code == 0
    (way,) = document["ways"]
    assert (document["choices"], document["votes"], document["raters"]) == (40, 121, 3)
    assert way["accuracy"]["overall"]["n"] == 39
    assert way["accuracy"]["overall"]["share"] == pytest.approx(35 / 39)
    assert list(way["accuracy"]) == ["overall", "physics", "social"]
    assert way["accuracy"]["physics"]["share"] == 1
    low, high = way["accuracy"]["overall"]["ci95"]
    assert low < 35 / 39 < high
    assert document["ceiling"]["share"] == 1
    assert (way["errors"], way["state"]) == (1, "PASS")
    assert document["unknown"] == ["ghost"]
    json.dumps(document, allow_nan=False)
    assert text.splitlines()[0] == (
        f"judge j against 121 votes on 40 choices by 3 raters in {votes}"
    )
    assert "ceiling: a rater agrees with the majority of the others in 100.0%" in text
    assert "PASS: by scores, the judge agrees with people in 89.7% of 39 decided pairs" in text
    assert "ids that are voted on but not in the runs: 1, such as ghost" in text


def test_duels_of_the_same_judge_are_measured_too(runs, tmp_path):
    """In duels the judge names `down` in both orders in 10 pairs, and the first edit in 10."""
    people = [f"p{n},down,up,b,ann" for n in range(PAIRS)]
    votes = write_votes(tmp_path / "people.csv", people)
    rows = []
    for n in range(20):
        winners = ("b", "b") if n < 10 else ("a", "b")  # down, up: b is up
        rows += [
            f"p{n},down,up,{winner},j (duel@strict 1),{first}"
            for winner, first in zip(winners, "ab", strict=True)
        ]
    rows += ["p0,down,up,a,another judge,a", "p0,down,up,a,j (duel-tie@strict 1),a"]
    (tmp_path / "votes").mkdir()
    write_votes(tmp_path / "votes" / "j.csv", rows, "id,a,b,winner,rater,first")
    document, text, _ = agree(runs, votes, tmp_path)
    by_scores, by_duels = document["ways"]
    assert (by_scores["way"], by_duels["way"]) == ("scores", "duels")
    assert by_duels["accuracy"]["overall"]["n"] == 20
    assert by_duels["accuracy"]["overall"]["share"] == pytest.approx((10 + 10 * 0.5) / 20)
    assert by_duels["errors"] == 20
    assert by_duels["first"]["share"] == pytest.approx((10 * 0.5 + 10 * 1) / 20)
    assert "by duels: 75.0% (" in text


def test_names_of_other_systems_are_refused(runs, tmp_path):
    votes = write_votes(tmp_path / "people.csv", ["p0,up,down,a,ann", "p1,up,left,a,ann"])
    with pytest.raises(UsageError, match=r"people.csv:3: 'left' is none of the runs, expected one"):
        agree(runs, votes, tmp_path)


def test_choices_need_two_runs(runs, tmp_path):
    votes = write_votes(tmp_path / "people.csv", ["p0,up,down,a,ann"])
    with pytest.raises(UsageError, match="one run, expected all runs that people chose between"):
        agree(runs[:1], votes, tmp_path)


def test_choices_that_fit_no_pair_fail(runs, tmp_path):
    votes = write_votes(tmp_path / "people.csv", ["ghost,up,down,a,ann"])
    document, _, code = agree(runs, votes, tmp_path)
    assert (code, document["choices"]) == (1, 0)


def test_a_run_is_named_once(runs, tmp_path):
    votes = write_votes(tmp_path / "people.csv", ["p0,up,down,a,ann"])
    with pytest.raises(UsageError, match="are one run, run-up: name it once"):
        agree([runs[0], runs[0]], votes, tmp_path)


def test_a_person_who_contradicts_themselves_is_refused(runs, tmp_path):
    votes = write_votes(tmp_path / "people.csv", ["p0,up,down,a,ann", "p0,down,up,a,ann"])
    with pytest.raises(UsageError, match=r"people\.csv:3: another winner in id 'p0' than"):
        agree(runs, votes, tmp_path)
