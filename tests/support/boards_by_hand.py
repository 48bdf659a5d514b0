"""Boards that no votes made, for tests of what shows them."""

from __future__ import annotations

from pytest_imgedit.stats.boards import Board, Chance, Elo, EloDifference, RatedSystem


def rated(system: str, rank: int, elo: float, **changes: object) -> RatedSystem:
    """A system of 10 wins, 2 ties and 3 losses, 40 Elo points around whose rating are open."""
    usual: dict[str, object] = {
        "rank_interval": (rank, rank),
        "groups": (rank,),
        "overall": Elo(elo, (elo - 40.4, elo + 40.4)),
        "dimensions": {"score": Elo(elo, None)},
        "categories": {"all": Elo(elo, None)},
        "wins": 10,
        "ties": 2,
        "losses": 3,
        "against": {},
        "difference": None,
    }
    return RatedSystem(system=system, rank=rank, **(usual | changes))  # type: ignore[arg-type]


def a_board(*rows: RatedSystem, **changes: object) -> Board:
    """A board of two systems, by the votes of one judge."""
    usual: dict[str, object] = {
        "rows": rows or (rated("one", 1, 57.4), rated("two", 2, -57.4)),
        "first": {"j": Chance(0.6, (0.55, 0.65))},
        "ties": {"score": Chance(0.1, None)},
        "votes": 30,
        "pairs": 15,
        "clusters": 5,
        "notes": ("a note",),
    }
    return Board(**(usual | changes))  # type: ignore[arg-type]


DIFFERENCE = EloDifference(-114.8, (-190.0, -39.6), 0.0004)
