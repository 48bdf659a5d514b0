"""What pages show of the duels of one pair: how they ended, and each vote with the judge's replies.

Pages call the edits of a run `edit`, and those of the run that it is put against `baseline edit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pytest_imgedit.core.measures import OVERALL, SCORE
from pytest_imgedit.core.results import Duel, DuelPair, DuelSeed, Results, Vote
from pytest_imgedit.core.text import number
from pytest_imgedit.report.duel_tables import not_decided, why_not_decided
from pytest_imgedit.stats.duels import EVEN
from pytest_imgedit.stats.estimates import ROUNDING

Ending = Literal["won", "lost", "tie", "identical", "error"]
#: What a pair is marked with, by how its duels ended.
MARKS: dict[Ending, str] = {
    "won": "duel won",
    "lost": "duel lost",
    "tie": "duel: tie",
    "identical": "duel: identical edits",
    "error": "duel: not decided",
}
#: What a pair is marked with if a vote changes with the order.
TURNED = "duel: order decides"
_EDITS = {"now": "edit", "before": "baseline edit"}
_CHOICES = {1.0: "vote for the edit", 0.5: "tie", 0.0: "vote for the baseline edit"}


def ending(pair: DuelPair) -> Ending:
    """Return how the duels of a pair ended: `error` if a vote is missing, `identical` if all edits
    are, and else whether the share is over, under or at a half.
    """
    share = pair.value(SCORE)
    if share is None:
        return "error"
    if all(seed.is_identical for seed in pair.seeds):
        return "identical"
    if abs(share - EVEN) < ROUNDING:
        return "tie"
    return "won" if share > EVEN else "lost"


def is_turned(pair: DuelPair) -> bool:
    """Tell whether a vote on some seed is another one in the other order, by the score."""
    return any(_is_turned(seed) for seed in pair.seeds)


def _is_turned(seed: DuelSeed) -> bool:
    shares = [vote.values[SCORE] for vote in seed.votes if SCORE in vote.values]
    return bool(shares) and max(shares) - min(shares) > ROUNDING


def marks(pair: DuelPair) -> list[str]:
    """Return what a pair is marked with; a tie of votes that change with the order is no tie."""
    how = ending(pair)
    if not is_turned(pair):
        return [MARKS[how]]
    return [TURNED] if how == "tie" else [MARKS[how], TURNED]


def share_won(results: Results) -> str:
    """Return the share of duels that a run wins and whom they are with, such as `0.52 of main`; an
    empty text without duels.
    """
    duel = results.duel
    row = None if duel is None else duel.measures.get(SCORE, {}).get(OVERALL)
    if duel is None or row is None or row.share is None:
        return ""
    return f"{number(row.share)} of {duel.name}"


def line(pair: DuelPair, duel: Duel) -> str:
    """Return a line on how the duels of a pair ended."""
    how = ending(pair)
    said = f"against {duel.name}: "
    if how == "error":
        return f"{said}{not_decided(duel)}: {why_not_decided(pair, duel.name) or 'unknown'}"
    if how == "identical":
        return f"{said}identical edits, which count half"
    said += f"{how}, share {number(pair.value(SCORE))}"
    return f"{said}; the vote changes with the order" if is_turned(pair) else said


def edit_before(pair: DuelPair | None, seed: int) -> str | None:
    """Return the SHA-256 of the other run's edit of a seed; `None` without a duel of it."""
    if pair is None:
        return None
    return next((duel.before for duel in pair.seeds if duel.seed == seed), None)


def votes(seed: DuelSeed) -> Iterator[tuple[str, str]]:
    """Yield the votes on a seed: for each reply, in which order the edits were shown and for which
    the vote is, and its text; a vote or an error without a reply has no text.
    """
    for vote in seed.votes:
        order = f"{_EDITS[vote.first]} shown first" if vote.first else _scores(vote)
        if vote.error is not None:
            yield f"{order}: {vote.error.message}", vote.error.reply or ""
        elif not vote.replies:
            yield f"{order}: {_choice(vote, SCORE)}", ""
        for call, reply in vote.replies.items():
            name = f", {call}" if len(vote.replies) > 1 else ""
            said = "" if vote.error is not None else f": {_choice(vote, call)}"
            yield f"{order}{name}{said}", reply


def _scores(vote: Vote) -> str:
    """Return the scores of both edits that a vote compares."""
    if vote.scores is None:
        return "scores unknown"
    before, now = vote.scores
    return f"baseline edit {number(before)}, edit {number(now)}"


def _choice(vote: Vote, measure: str) -> str:
    """Return for which edit a vote is by a measure, the score if the vote does not have that."""
    value = vote.values.get(measure, vote.values.get(SCORE))
    if value is None:
        return "–"
    return _CHOICES.get(value, f"{value:.3g} of the vote for the edit")
