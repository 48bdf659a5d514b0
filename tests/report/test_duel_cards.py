"""What pages show of the duels of one pair: how they ended, marks, and votes with replies."""

from __future__ import annotations

import json
import re

import pytest
from documents import an_item
from duels import (
    BEFORE,
    NOW,
    UNREADABLE,
    WAYS,
    a_duel_seed,
    a_run_with_duel,
    a_vote,
    make_duel,
)

from pytest_imgedit.core.results import DuelPair, DuelSeed, GateResult, SeedResult, Vote
from pytest_imgedit.report import duel_cards, html
from pytest_imgedit.report.pictures import Picture


@pytest.mark.parametrize(
    ("name", "marks", "line"),
    [
        ("won", ["duel won"], "won, share 1.00"),
        ("lost", ["duel lost"], "lost, share 0.00"),
        ("tied", ["duel: tie"], "tie, share 0.50"),
        (
            "turned",
            ["duel: order decides"],
            "tie, share 0.50; the vote changes with the order",
        ),
        ("same", ["duel: identical edits"], "identical edits, which count half"),
        (
            "failed",
            ["duel: not decided"],
            "not decided in both orders: no choice in the reply",
        ),
    ],
)
def test_a_pair_is_marked_by_how_its_duels_ended(name, marks, line):
    duel = make_duel()
    assert duel_cards.marks(duel.pairs[name]) == marks
    assert duel_cards.line(duel.pairs[name], duel) == f"against main: {line}"


def test_a_pair_of_several_seeds_ends_by_their_mean():
    seeds = (a_duel_seed((1.0, 1.0)), a_duel_seed((), seed=1))
    assert duel_cards.ending(DuelPair(seeds=seeds)) == "won"
    even = (a_duel_seed((1.0, 1.0)), a_duel_seed((0.0, 0.0), seed=1))
    assert duel_cards.marks(DuelPair(seeds=even)) == ["duel: tie"]


def test_shares_that_differ_by_rounding_are_one_vote():
    third = 1 / 3
    seed = a_duel_seed((third, 1 - (1 - third)))
    assert not duel_cards.is_turned(DuelPair(seeds=(seed,)))


def test_each_call_of_a_vote_has_its_reply():
    values = {"score": 0.75, "instruction": 1.0, "quality": 0.5}
    replies = {"instruction": "A follows it.", "quality": "Both are fine."}
    vote = Vote(first="before", values=values, replies=replies)
    seed = DuelSeed(seed=0, before=BEFORE, now=NOW, votes=(vote,))
    assert list(duel_cards.votes(seed)) == [
        ("baseline edit shown first, instruction: vote for the edit", "A follows it."),
        ("baseline edit shown first, quality: tie", "Both are fine."),
    ]


def test_a_vote_that_failed_has_its_error_and_all_replies():
    vote = a_vote("now", None, replies={"instruction": "A.", "quality": "I like both."})
    seed = DuelSeed(seed=0, before=BEFORE, now=NOW, votes=(vote,))
    assert list(duel_cards.votes(seed)) == [
        (f"edit shown first: {UNREADABLE.message}", "I like both."),
        ("edit shown first, instruction", "A."),
        ("edit shown first, quality", "I like both."),
    ]


def test_a_judge_that_measures_votes_by_two_scores():
    vote = Vote(first="", values={"score": 1.0}, scores=(5.25, 6.5))
    seed = DuelSeed(seed=0, before=BEFORE, now=NOW, votes=(vote,))
    title = "baseline edit 5.25, edit 6.50: vote for the edit"
    assert list(duel_cards.votes(seed)) == [(title, "")]


def test_the_gallery_names_seeds_and_finds_edits_without_a_comparison():
    seeds = (a_duel_seed((1.0, 1.0), seed=0), a_duel_seed((0.0, 0.0), seed=3))
    duel = make_duel().model_copy(update={"pairs": {"won": DuelPair(seeds=seeds)}})
    item = an_item("won", aspects={})
    first = item.seeds[0]
    both = (first, SeedResult(3, first.edit, first.verdict))
    run = a_run_with_duel(duel, items=[item.model_copy(update={"seeds": both})])
    page = html.render(run, lambda name: Picture(name, None))
    (cards,) = re.findall('id="cards">(.*?)</script>', page)
    (card,) = json.loads(cards)
    labels = [image["label"] for image in card["images"]]
    assert labels == [
        "source",
        "edit, seed 0",
        "baseline edit, seed 0",
        "edit, seed 3",
        "baseline edit, seed 3",
    ]
    assert [title for title, _ in card["duel"]["votes"]] == [
        "seed 0, edit shown first: vote for the edit",
        "seed 0, baseline edit shown first: vote for the edit",
        "seed 3, edit shown first: vote for the baseline edit",
        "seed 3, baseline edit shown first: vote for the baseline edit",
    ]
    assert card["duel"]["missing"] == ""


def first_screen(run):
    """The heading of the first cards with their pairs and numbers, and the first order of all."""
    page = html.render(run, lambda name: Picture(name, None))
    (section,) = re.findall('<section aria-labelledby="first">(.*?)</section>', page, re.S)
    (heading,) = re.findall('<h2 id="first">(.*?)</h2>', section)
    cards = re.findall(r'#pair-(\w+)">.*<b>(.*)</b>', section)
    return heading, cards, 'value="duel" selected' in page


def test_lost_duels_come_first_where_the_verdict_is_about_them():
    ways = {**WAYS, "half": ("social", (0.5, 0.0))}
    items = [an_item(name, category, 5.0, aspects={}) for name, (category, _) in ways.items()]
    run = a_run_with_duel(make_duel(ways), items=items)
    lost = [("lost", "wins 0.00"), ("half", "wins 0.25")]
    assert first_screen(run) == ("Lost duels", lost, True)
    resting = GateResult("social", "min_win", 0.5, None, "NOT SELECTED", "social: not selected")
    heading, _, is_sorted = first_screen(run.model_copy(update={"gates": (resting,)}))
    assert (heading, is_sorted) == ("Lowest scores", False)


def test_without_lost_duels_the_lowest_scores_come_first():
    duel = make_duel({name: WAYS[name] for name in ("won", "tied", "failed")})
    heading, _, is_sorted = first_screen(a_run_with_duel(duel))
    assert (heading, is_sorted) == ("Lowest scores", False)
