"""Ratings of published arenas, against values by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from pytest_imgedit.core.choices import Winner
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.stats.arena_fits import gedit_v2, genarena

pytestmark = pytest.mark.everyday
WINNERS: dict[str, Winner] = {"a": "a", "b": "b", "=": "tie"}


def decided(a: str, b: str, outcome: str, dimension: str = "score") -> list[DuelVote]:
    """Votes of a pair each: `a` wins, `b` wins or a tie, a letter each."""
    return [
        DuelVote(pair=f"p{place}", a=a, b=b, winner=WINNERS[letter], dimension=dimension)
        for place, letter in enumerate(outcome)
    ]


def test_genarena_centres_on_the_mean_of_strengths():
    # strengths are as 3 points to 1: 1.5 and 0.5 of the mean
    ratings = genarena(decided("x", "y", "aab=a=a="[:4]))
    assert ratings["x"] == pytest.approx(1000 + 400 * math.log10(2 * 5 / 8))
    assert ratings["y"] == pytest.approx(1000 + 400 * math.log10(2 * 3 / 8))


def test_genarena_stops_after_its_rounds():
    votes = []
    for place in range(15):
        votes += decided(f"m{place:02d}", f"m{place + 1:02d}", "aaab")
    ratings = genarena(votes)
    exact = 15 * 400 * math.log10(3)
    assert ratings["m00"] - ratings["m15"] < 0.9 * exact


def test_genarena_gives_a_system_without_a_win_the_middle():
    ratings = genarena(decided("x", "y", "aaa"))
    assert ratings == pytest.approx({"x": 1000 + 400 * math.log10(2), "y": 1000})


def test_gedit_v2_is_drawn_to_the_last_name():
    # without ties: 6 of 8 wins, less θ of the ridge; ν is next to none at its limit
    ratings = gedit_v2(decided("x", "y", "aaaaaabb"))
    theta = brentq(lambda theta: 6 - 8 / (1 + math.exp(-theta)) - theta, 0, 2)
    assert ratings["x"] == pytest.approx(1000 + 200 / math.log(10) * theta, abs=0.05)
    assert ratings["y"] == pytest.approx(2000 - ratings["x"])


def test_gedit_v2_weighs_dimensions_alike():
    # 8 votes and 2 votes weigh 5 each: 3.75 and 2.5 wins
    votes = decided("x", "y", "aaaaaabb", "if") + decided("x", "y", "ab", "vq")
    theta = brentq(lambda theta: 6.25 - 10 / (1 + math.exp(-theta)) - theta, 0, 2)
    assert gedit_v2(votes)["x"] == pytest.approx(1000 + 200 / math.log(10) * theta, abs=0.05)


def test_gedit_v2_models_ties():
    # shares of wins, ties and losses of 8 votes are w, t, l: 3 − 8w + (4 − 8t)/2 = θ, 8t = 4
    ratings = gedit_v2(decided("x", "y", "aaa====b"))
    theta = brentq(lambda theta: 3 - 4 / (1 + math.exp(-theta)) - theta, 0, 2)
    assert ratings["x"] == pytest.approx(1000 + 200 / math.log(10) * theta, abs=0.05)
    assert np.mean(list(ratings.values())) == pytest.approx(1000)
