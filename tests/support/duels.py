"""Duels that are made up, for tests of what is read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from documents import a_run, an_item

from pytest_imgedit.core.results import (
    Duel,
    DuelControl,
    DuelPair,
    DuelRow,
    DuelSeed,
    ItemError,
    Results,
    Share,
    Vote,
)

#: The edits of the run, and of the other run.
NOW = "ab" * 32
BEFORE = "cd" * 32
UNREADABLE = ItemError("score", "unreadable_reply", "no choice in the reply", "I like both.")
#: The pairs of a made-up duel with their categories and votes, each way to end once.
WAYS = {
    "won": ("physics", (1.0, 1.0)),
    "turned": ("physics", (1.0, 0.0)),
    "same": ("physics", ()),
    "lost": ("social", (0.0, 0.0)),
    "tied": ("social", (0.5, 0.5)),
    "failed": ("social", (1.0, None)),
}


def a_vote(
    first: str, value: float | None, measures: Sequence[str] = ("score",), **changes: Any
) -> Vote:
    """The vote in one order: this run's share, or an error if that is `None`."""
    reply = f"Shown first: {first}. Share: {value}."
    given: dict[str, Any] = {"first": first, "replies": {"": reply}}
    if value is None:
        given |= {"replies": {}, "error": UNREADABLE}
    else:
        given["values"] = dict.fromkeys(measures, value)
    return Vote(**given | changes)


def a_duel_seed(
    values: Sequence[float | None],
    measures: Sequence[str] = ("score",),
    *,
    seed: int = 0,
    before: str | None = BEFORE,
    now: str | None = NOW,
) -> DuelSeed:
    """The duel of two edits, whose votes have `values`: the first where this run's edit is shown
    first. Without any, the edits are equal.
    """
    if not values:
        return DuelSeed(seed=seed, before=now, now=now)
    orders = zip(("now", "before"), values, strict=True)
    votes = tuple(a_vote(first, value, measures) for first, value in orders)
    return DuelSeed(seed=seed, before=before, now=now, votes=votes)


def a_duel_row(n: int, share: float | None, **changes: Any) -> DuelRow:
    """A row of one group; its interval and p values follow from nothing."""
    given: dict[str, Any] = {
        "ci95": None if share is None else (max(share - 0.1, 0.0), min(share + 0.1, 1.0)),
        "p": 0.2,
        "p_rise": 0.8,
        "finding": "no difference shown",
        "mde": None,
    }
    return DuelRow(n=n, share=share, **given | changes)


def a_duel_control(control: str, share: float | None, **changes: Any) -> DuelControl:
    """A control with twenty duels."""
    given: dict[str, Any] = {
        "better": "oracle",
        "sources": 20,
        "state": "PASS",
        "p": 0.001,
        "ci95": (0.8, 1.0),
        "first": 0.5,
    }
    return DuelControl(control=control, n=20, share=share, **given | changes)


def make_duel(
    ways: Mapping[str, tuple[str, Sequence[float | None]]] = WAYS,
    names: Sequence[str] = ("score",),
    **changes: Any,
) -> Duel:
    """A duel of pairs with a category and the votes of one seed, in both orders, each. Its shares
    are the means over pairs. `names` are its measures.
    """
    pairs = {
        name: DuelPair(seeds=(a_duel_seed(values, names),)) for name, (_, values) in ways.items()
    }
    categories = dict.fromkeys(category for category, _ in ways.values())
    groups: dict[str, list[DuelPair]] = {"overall": list(pairs.values())}
    for category in categories:
        groups[category] = [pairs[name] for name in ways if ways[name][0] == category]
    rows = {
        measure: {group: _row(of, measure) for group, of in groups.items()} for measure in names
    }
    seeds = [pair.seeds[0] for pair in pairs.values()]
    given: dict[str, Any] = {
        "name": "main",
        "run": "r0",
        "editor": "folder:before",
        "by_scores": False,
        "protocol": "duel",
        "variant": "strict",
        "protocol_sha256": "0" * 64,
        "measures": rows,
        "disagreement": {measure: Share(n=4, share=0.25, ci95=(0.05, 0.7)) for measure in names},
        "first": {measure: Share(n=4, share=0.54, ci95=(0.3, 0.76)) for measure in names},
        "identical": sum(seed.is_identical for seed in seeds),
        "errors": sum(pair.value(names[0]) is None for pair in pairs.values()),
        "pairs": pairs,
    }
    return Duel(**given | changes)


def _row(pairs: Sequence[DuelPair], measure: str) -> DuelRow:
    """The row of some pairs; one without a vote counts nothing."""
    shares = [share for pair in pairs if (share := pair.value(measure)) is not None]
    return a_duel_row(len(shares), sum(shares) / len(shares) if shares else None)


def a_run_with_duel(duel: Duel | None = None, **changes: Any) -> Results:
    """Results of the pairs of `WAYS` that were put against another run."""
    items = [
        an_item(name, category, 5.0, blob=NOW, aspects={}) for name, (category, _) in WAYS.items()
    ]
    given: dict[str, Any] = {"items": items, "declared": {}, "duel": duel or make_duel()}
    return a_run(**given | changes)
