"""Agreement of two ratings: against scipy, by hand, and by how its intervals behave."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_imgedit.cli.runs import read_ratings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.stats.agreement import agreement, pairwise_accuracy


def test_values_are_scipys_and_lie_in_their_intervals():
    generator = np.random.default_rng(0)
    people = generator.integers(0, 11, 60).astype(float)
    judge = np.clip(people + generator.normal(0, 2, 60).round(), 0, 10)
    found = agreement(list(judge), list(people), [str(n) for n in range(60)])
    assert found["n"] == 60
    assert found["spearman"]["value"] == pytest.approx(stats.spearmanr(judge, people)[0])
    assert found["kendall"]["value"] == pytest.approx(stats.kendalltau(judge, people)[0])
    for name in ("spearman", "kendall", "pairwise"):
        low, high = found[name]["ci95"]
        assert low < found[name]["value"] < high


def test_pairwise_accuracy_by_hand():
    # people rank 1 < 2 < 3 and tie 3 with 3; of the five ranked pairs the judge has two right, two
    # wrong, one tied
    judge, people = np.array([5.0, 5.0, 9.0, 4.0]), np.array([1.0, 2.0, 3.0, 3.0])
    assert pairwise_accuracy(judge, people) == pytest.approx(2.5 / 5)
    assert np.isnan(pairwise_accuracy(judge, np.ones(4)))


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=12))
def test_measures_are_in_range_or_absent(rows):
    with patch("pytest_imgedit.stats.agreement.RESAMPLES", 10):
        found = agreement(
            [a for a, _ in rows], [b for _, b in rows], [str(n) for n in range(len(rows))]
        )
    for name, low in (("spearman", -1), ("kendall", -1), ("pairwise", 0)):
        value = found[name]["value"]
        assert value is None or low - 1e-9 <= value <= 1 + 1e-9


def test_pairs_of_one_source_count_as_one_in_the_interval():
    generator = np.random.default_rng(1)
    people, judge = generator.normal(size=12), generator.normal(size=12)
    names = [str(n) for n in range(12)]
    alone = agreement(list(judge), list(people), names)["pairwise"]["ci95"]
    copies = agreement(list(judge) * 4, list(people) * 4, names * 4)["pairwise"]["ci95"]
    assert copies[1] - copies[0] == pytest.approx(alone[1] - alone[0], rel=0.2)


def test_ratings_are_collected_by_pair(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("\ufeffrater,id,score\nann,p1,7\nbob,p1,8.5\nann,p2,3\n", "utf-8")
    assert read_ratings(path) == {"p1": [7.0, 8.5], "p2": [3.0]}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"id\np1\n", ":1: no column 'score', expected a header with one id and one score"),
        (b"", ":1: no column 'id', expected a header"),
        (b"id,score,score\np1,7,8\n", ":1: twice column 'score', expected a header with one id"),
        (b"id,score\np1,seven\n", ":2: id 'p1' with score 'seven', expected an id and a number"),
        (b"id,score\np1,7\np2\n", ":3: id 'p2' with score None"),
        (b"id,score\np1,nan\n", ":2: id 'p1' with score 'nan'"),
        (b"id,score\np1,1_0\n", ":2: id 'p1' with score '1_0'"),
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
