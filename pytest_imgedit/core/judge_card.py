"""The card of a judge: how it agrees with people's choices between two edits."""

from typing import Literal

from pydantic import Field

from pytest_imgedit.core.results import Part, Sha256, Share, State, Variant

#: How a judge chooses: by the scores that it gives each edit, or asked about both, in both orders.
Way = Literal["scores", "duels"]


class JudgedBy(Part):
    """How a judge agrees with the majority of people, asked in one way by a protocol (`None` if it
    measures).

    `accuracy` has a row for `overall` and for each category, and `by_margin` one for each count of
    votes, such as `3:0`: shares of the pairs that people decided and the judge answered, where a
    tie of the judge counts half. `against_others` is over the same votes as the people's ceiling.
    `ties` is the share of all answered pairs that the judge ties; `errors` counts the pairs without
    an answer. `first` is the share of votes for the edit that is shown first; `None` by scores.
    """

    way: Way
    protocol: str | None
    variant: Variant | None
    protocol_sha256: str | None
    accuracy: dict[str, Share]
    by_margin: dict[str, Share]
    against_others: Share
    ties: Share
    errors: int
    first: Share | None
    state: State
    why: str


class JudgeCard(Part):
    """A judge measured on `choices` pairs of the set `people`, whose rows and edits have a SHA-256.

    `judge` is the digest of its identity. `ties` is the share of pairs that people tie; `ceiling`
    the share of single votes for what the majority of the other raters chose, where a tied vote
    counts half and tied majorities are left out.
    """

    schema_name: Literal["pytest-imgedit/people/1"] = Field(
        default="pytest-imgedit/people/1", alias="schema"
    )
    judge: Sha256
    spec: str
    people: str
    sha256: Sha256
    choices: int
    sources: int
    raters: int
    ties: Share
    ceiling: Share
    ways: tuple[JudgedBy, ...]
