"""Cards of judges in a store: written, read, refused, and what runs take of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_imgedit.core.errors import StoreError, UsageError
from pytest_imgedit.core.judge_card import JudgeCard, JudgedBy
from pytest_imgedit.core.results import Share
from pytest_imgedit.store.judge_cards import cards_of, keep_card, people_shares, read_card

if TYPE_CHECKING:
    from pathlib import Path

JUDGE = "a" * 64
PROTOCOL = "b" * 64


def share(value: float) -> Share:
    return Share(n=10, share=value, ci95=(0.0, 1.0))


def way(value: float, **changes: Any) -> JudgedBy:
    fields: dict[str, Any] = {
        "way": "scores",
        "protocol": "aspects",
        "variant": "strict",
        "protocol_sha256": PROTOCOL,
        "accuracy": {"overall": share(value)},
        "by_margin": {},
        "against_others": share(value),
        "ties": share(0.0),
        "errors": 0,
        "first": None,
        "state": "PASS",
        "why": "",
    }
    return JudgedBy(**fields | changes)


def card(*ways: JudgedBy, **changes: Any) -> JudgeCard:
    fields: dict[str, Any] = {
        "judge": JUDGE,
        "spec": "x:Y",
        "people": "votes",
        "sha256": "c" * 64,
        "choices": 10,
        "sources": 10,
        "raters": 3,
        "ties": share(0.0),
        "ceiling": share(0.9),
        "ways": ways,
    }
    return JudgeCard(**fields | changes)


def test_a_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = card(way(0.6), way(0.7, way="duels", first=share(0.5)))
    path = keep_card(tmp_path, kept)
    assert path.name.startswith(f"{JUDGE}-")
    assert read_card(path) == kept
    assert cards_of(tmp_path, JUDGE) == [kept]
    assert cards_of(tmp_path, "d" * 64) == []


def test_a_later_card_of_the_same_choices_replaces_the_earlier(tmp_path: Path) -> None:
    keep_card(tmp_path, card(way(0.6)))
    keep_card(tmp_path, card(way(0.7)))
    keep_card(tmp_path, card(way(0.8), people="others", sha256="d" * 64))
    (first, second) = people_shares(tmp_path, JUDGE, PROTOCOL)
    assert [(row.people, row.share) for row in (first, second)] == [("votes", 0.7), ("others", 0.8)]


def test_the_newest_card_of_a_set_counts(tmp_path: Path) -> None:
    older = keep_card(tmp_path, card(way(0.6)))
    newer = keep_card(tmp_path, card(way(0.7), sha256="d" * 64))
    os.utime(older, (1, 1))
    os.utime(newer, (2, 2))
    assert [row.share for row in people_shares(tmp_path, JUDGE, PROTOCOL)] == [0.7]
    os.utime(older, (3, 3))
    assert [row.share for row in people_shares(tmp_path, JUDGE, PROTOCOL)] == [0.6]


def test_another_protocol_and_duels_are_not_what_a_run_scores_by(tmp_path: Path) -> None:
    keep_card(tmp_path, card(way(0.6, protocol_sha256="e" * 64), way(0.7, way="duels")))
    assert people_shares(tmp_path, JUDGE, PROTOCOL) == ()
    assert people_shares(tmp_path / "none", JUDGE, PROTOCOL) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"schema": "pytest-imgedit/people/1"}', "judge: Field required, expected the card of a"),
        ('{"schema": "other"}', "schema: "),
        ("{", "not valid JSON"),
    ],
)
def test_a_damaged_card_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = keep_card(tmp_path, card(way(0.6)))
    sound = keep_card(tmp_path, card(way(0.7), sha256="d" * 64, people="others"))
    path.write_text(text)
    with pytest.raises(UsageError, match=problem) as caught:
        read_card(path)
    assert str(path) in str(caught.value)
    assert sound.exists()
    assert [row.people for row in people_shares(tmp_path, JUDGE, PROTOCOL)] == ["others"]


def test_a_card_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "people").write_text("")
    with pytest.raises(StoreError, match="people"):
        keep_card(tmp_path, card(way(0.6)))
