"""Votes on which of two systems made the better edit."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from pytest_imgedit.core.choices import NO_CATEGORY, Winner
from pytest_imgedit.core.measures import SCORE

#: An edit that was shown first; empty if that is not known.
First = Literal["a", "b", ""]
_SHARES: Mapping[Winner, float] = {"a": 1.0, "b": 0.0, "tie": 0.5}
_OTHER_WINNER: Mapping[Winner, Winner] = {"a": "b", "b": "a", "tie": "tie"}
_OTHER_FIRST: Mapping[First, First] = {"a": "b", "b": "a", "": ""}
#: A pair, and two systems in the order of their names.
Comparison = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DuelVote:
    """What a judge or a person chose between the edits of the systems `a` and `b` in one pair.

    `pair` is the id of the pair, with `#` and the seed where a run has several. A system is called
    by a name, or by the id of its run. `first` is the edit that was shown first, empty if that is
    not known. `dimension` is what the edits were compared by, such as `instruction`, and `cluster`
    names the source image, by default the pair. `row` is where the vote stands, such as
    `votes.csv:3`.
    """

    pair: str
    a: str
    b: str
    winner: Winner
    first: First = ""
    judge: str = ""
    dimension: str = SCORE
    category: str = NO_CATEGORY
    cluster: str = ""
    row: str = ""

    @property
    def pair_id(self) -> str:
        """The id of the pair, without a seed."""
        return self.pair.partition("#")[0]

    @property
    def share(self) -> float:
        """How much of the vote is a's: 1, 0, or 0.5 for a tie."""
        return _SHARES[self.winner]

    @property
    def swapped(self) -> "DuelVote":
        """The same vote with a and b exchanged."""
        return replace(
            self,
            a=self.b,
            b=self.a,
            winner=_OTHER_WINNER[self.winner],
            first=_OTHER_FIRST[self.first],
        )

    @property
    def in_order(self) -> "DuelVote":
        """The same vote with its systems in the order of their names."""
        return self if self.a < self.b else self.swapped


def by_comparison(
    votes: Iterable[DuelVote], systems: Mapping[str, str]
) -> dict[Comparison, list[DuelVote]]:
    """Return votes by what they compare, with a as the system of the first name; `systems` has the
    system that a name in a vote means. Votes on others are left out.
    """
    found: defaultdict[Comparison, list[DuelVote]] = defaultdict(list)
    for vote in votes:
        a = systems.get(vote.a)
        b = systems.get(vote.b)
        if a is None or b is None or a == b:
            continue
        named = replace(vote, a=a, b=b).in_order
        found[vote.pair_id, named.a, named.b].append(named)
    return dict(found)


def shares_won(
    votes: Iterable[DuelVote], systems: Mapping[str, str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the share of votes that each system won over each other one, by pair; `systems` as in
    `by_comparison`.
    """
    won: dict[str, dict[str, dict[str, float]]] = {}
    for (pair, a, b), compared in by_comparison(votes, systems).items():
        share = fmean(vote.share for vote in compared)
        won.setdefault(a, {}).setdefault(b, {})[pair] = share
        won.setdefault(b, {}).setdefault(a, {})[pair] = 1 - share
    return won
