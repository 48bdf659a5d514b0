"""Votes on which of two systems made the better edit."""

from dataclasses import dataclass
from typing import Literal

from pytest_imgedit.core.choices import NO_CATEGORY, Winner
from pytest_imgedit.core.measures import SCORE


@dataclass(frozen=True, slots=True, kw_only=True)
class DuelVote:
    """What a judge or a person chose between the edits of the systems `a` and `b` in one pair.

    `first` is the edit that was shown first, empty if that is not known. `dimension` is what the
    edits were compared by, such as `instruction`, and `cluster` names the source image, by default
    the pair. `row` is where the vote stands, such as `votes.csv:3`.
    """

    pair: str
    a: str
    b: str
    winner: Winner
    first: Literal["a", "b", ""] = ""
    judge: str = ""
    dimension: str = SCORE
    category: str = NO_CATEGORY
    cluster: str = ""
    row: str = ""
