"""How a judge agrees with people's choices: majorities, ties, margins, the ceiling and places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_imgedit.core.choices import Vote
from pytest_imgedit.stats.choices import AskedBy, JudgedChoice, describe_judge, describe_people

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.core.choices import Winner
    from pytest_imgedit.core.judge_card import JudgedBy

SCORES = AskedBy(way="scores")
DUELS = AskedBy(way="duels")


def choice(
    place: int,
    votes: Sequence[Winner],
    share: float | None,
    *,
    category: str = "all",
    first: float | None = None,
    cluster: str = "",
) -> JudgedChoice:
    return JudgedChoice(
        id=f"c{place}",
        cluster=cluster or f"s{place}",
        category=category,
        votes=[Vote(winner, str(rater)) for rater, winner in enumerate(votes)],
        share=share,
        first=first,
    )


def judged(choices: Sequence[JudgedChoice], asked: AskedBy = SCORES) -> JudgedBy:
    return describe_judge(choices, asked, alpha=0.05)


def test_a_tie_of_the_judge_counts_half_and_one_of_people_not_at_all() -> None:
    way = judged([choice(0, "aab", 0.5), choice(1, "bbb", 0.0), choice(2, ["a", "b", "tie"], 1.0)])
    assert (way.accuracy["overall"].n, way.accuracy["overall"].share) == (2, 0.75)
    assert (way.ties.n, way.ties.share) == (3, pytest.approx(1 / 3))
    assert {name: (row.n, row.share) for name, row in way.by_margin.items()} == {
        "3:0": (1, 1.0),
        "2:1": (1, 0.5),
    }


def test_a_judge_is_not_to_blame_for_people_who_tie() -> None:
    way = judged([choice(0, "ab", 1.0), choice(1, ["tie"], 0.0)])
    assert (way.state, way.why) == ("INCONCLUSIVE", "people tie in all of 2 pairs")


def test_votes_that_tie_are_told_in_the_margin() -> None:
    assert list(judged([choice(0, ["a", "a", "tie"], 1.0)]).by_margin) == ["2:0, 1 tie"]


def test_categories_have_rows_if_there_are_several() -> None:
    two = [choice(0, "a", 1.0, category="x"), choice(1, "a", 0.0, category="y")]
    assert list(judged(two).accuracy) == ["overall", "x", "y"]
    assert list(judged(two[:1]).accuracy) == ["overall"]


def test_a_share_of_both_orders_over_a_half_is_a_choice() -> None:
    way = judged([choice(0, "a", 0.75), choice(1, "a", 0.25)], DUELS)
    assert (way.accuracy["overall"].share, way.ties.share) == (0.5, 0.0)


def test_the_ceiling_leaves_the_rater_out() -> None:
    people = describe_people([choice(0, "aaa", 1.0), choice(1, "aab", 1.0), choice(2, "ab", 1.0)])
    # three votes that agree, one dissenter, and two whose only other chose the other edit
    assert (people.ceiling.n, people.ceiling.share) == (6, 0.5)
    assert people.ties.share == pytest.approx(1 / 3)
    assert people.raters == 3


def test_a_tied_vote_counts_half_in_the_ceiling() -> None:
    people = describe_people([choice(0, ["a", "a", "tie"], 1.0)])
    assert (people.ceiling.n, people.ceiling.share) == (1, 0.5)


def test_single_votes_have_no_ceiling() -> None:
    people = describe_people([choice(0, "a", 1.0)])
    assert (people.ceiling.n, people.ceiling.share, people.ceiling.ci95) == (0, None, None)


def test_the_judge_is_put_beside_the_same_others() -> None:
    # by 2:1, only the dissenter leaves others that agree
    way = judged([choice(0, "aaa", 1.0), choice(1, "aab", 0.0)])
    assert (way.against_others.n, way.against_others.share) == (4, 0.75)


def test_choices_of_one_source_are_one_cluster() -> None:
    alone = [choice(place, "a", float(place % 3 > 0)) for place in range(60)]
    shared = [
        choice(place, "a", float(place // 20 > 0), cluster=f"s{place // 20}") for place in range(60)
    ]
    wide = judged(shared).accuracy["overall"].ci95
    narrow = judged(alone).accuracy["overall"].ci95
    assert wide is not None
    assert narrow is not None
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


@pytest.mark.parametrize(("first", "place"), [(1.0, "first"), (0.95, "first"), (0.0, "second")])
def test_a_judge_that_prefers_a_place_is_invalid(first: float, place: str) -> None:
    way = judged([choice(number, "a", 1.0, first=first) for number in range(20)], DUELS)
    assert way.state == "INVALID"
    assert way.why.startswith(f"the judge prefers the {place} of any two edits: {first:.1%} (")


@pytest.mark.parametrize(
    ("shares", "state"),
    [
        ([1.0] * 20, "PASS"),
        ([1.0, 0.0] * 10, "INCONCLUSIVE"),
        ([0.0] * 20, "INVALID"),
        ([None] * 20, "INVALID"),
        ([1.0] * 9 + [None] * 11, "INCONCLUSIVE"),
        ([1.0] * 3, "INCONCLUSIVE"),
    ],
)
def test_the_verdict_on_a_judge(shares: Sequence[float | None], state: str) -> None:
    way = judged([choice(place, "a", share) for place, share in enumerate(shares)])
    assert way.state == state
    assert way.errors == sum(share is None for share in shares)
