"""How a judge agrees with people's choices between two edits, and people with each other.

Pairs that share a source image are one cluster.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_imgedit.core import pairs
from pytest_imgedit.core.choices import Vote, Winner, majority
from pytest_imgedit.core.judge_card import JudgedBy, Way
from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.results import Share, State, Variant
from pytest_imgedit.core.text import counted, percent, percent_interval
from pytest_imgedit.stats.duels import EVEN, MOST_FOR_ONE
from pytest_imgedit.stats.estimates import ENOUGH, ROUNDING, estimate, share_of


@dataclass(frozen=True, kw_only=True)
class JudgedChoice:
    """Two edits, a and b, that people voted on and a judge compared.

    `share` is how much of the judge's choice is a's, 0.5 for a tie and `None` without an answer;
    `first` the share of its votes for the edit that is shown first, `None` where it scored each.
    `cluster` names the source.
    """

    id: str
    cluster: str
    category: str
    votes: Sequence[Vote]
    share: float | None
    first: float | None = None

    @property
    def winner(self) -> Winner:
        """What the majority of people chose."""
        return majority(vote.winner for vote in self.votes)

    @property
    def is_decided(self) -> bool:
        """Whether the majority chose one of the edits, and the judge answered."""
        return self.winner != "tie" and self.share is not None

    @property
    def is_tied(self) -> bool:
        """Whether the judge calls both equal."""
        return self.share is not None and abs(self.share - EVEN) < ROUNDING

    @property
    def margin(self) -> str:
        """How many people chose the winner, and how many the other edit: `2:1`; those that tied
        are counted behind it.
        """
        counts = Counter(vote.winner for vote in self.votes)
        high, low = sorted((counts["a"], counts["b"]), reverse=True)
        ties = f", {counted(counts['tie'], 'tie')}" if counts["tie"] else ""
        return f"{high}:{low}{ties}"

    def agreement_with(self, winner: Winner) -> float:
        """Return 1 if the judge chose the winner, 0 if the other edit, and 0.5 for a tie."""
        assert self.share is not None
        if self.is_tied:
            return EVEN
        return float((self.share > EVEN) == (winner == "a"))


@dataclass(frozen=True)
class PeopleAgreement:
    """How many people voted, how often they tie, and how often one chooses as the others do."""

    raters: int
    ties: Share
    ceiling: Share


@dataclass(frozen=True, kw_only=True)
class AskedBy:
    """How a judge was asked: by scores or duels, and by which protocol, `None` if it measures."""

    way: Way
    protocol: str | None = None
    variant: Variant | None = None
    protocol_sha256: str | None = None


def describe_people(choices: Sequence[JudgedChoice]) -> PeopleAgreement:
    """Describe how people agree. The ceiling leaves one rater out at a time: the share of votes for
    what the majority of the others chose, a tied vote counting half.
    """
    values = []
    clusters = []
    for choice in choices:
        for vote, others in _left_out(choice):
            values.append(EVEN if vote.winner == "tie" else float(vote.winner == others))
            clusters.append(choice.cluster)
    ties = [float(choice.winner == "tie") for choice in choices]
    return PeopleAgreement(
        raters=len({vote.rater for choice in choices for vote in choice.votes}),
        ties=share_of(ties, [choice.cluster for choice in choices]),
        ceiling=share_of(values, clusters),
    )


def _left_out(choice: JudgedChoice) -> list[tuple[Vote, Winner]]:
    """Return each vote with what the majority of the other raters chose, unless these tie."""
    votes = list(choice.votes)
    pairings: list[tuple[Vote, Winner]] = []
    for place, vote in enumerate(votes):
        others = majority(other.winner for other in votes[:place] + votes[place + 1 :])
        if others != "tie":
            pairings.append((vote, others))
    return pairings


def describe_judge(choices: Sequence[JudgedChoice], asked: AskedBy, alpha: float) -> JudgedBy:
    """Describe how a judge agrees with people. It passes if it is shown at `alpha` to agree with
    the majority in more than half of the pairs.

    It is INVALID if it answers nothing, prefers the edit in one place, or is shown to agree in less
    than half; otherwise INCONCLUSIVE.
    """
    answered = [choice for choice in choices if choice.share is not None]
    decided = [choice for choice in answered if choice.is_decided]
    by_category: defaultdict[str, list[JudgedChoice]] = defaultdict(list)
    by_margin: defaultdict[str, list[JudgedChoice]] = defaultdict(list)
    for choice in decided:
        by_category[choice.category].append(choice)
        by_margin[choice.margin].append(choice)
    accuracy = {OVERALL: _accuracy(decided)}
    if len(by_category) > 1:
        for name in pairs.in_order(by_category):
            accuracy[name] = _accuracy(by_category[name])
    against = [(choice, others) for choice in answered for _, others in _left_out(choice)]
    first = None
    if asked.way == "duels":
        seen = [choice for choice in answered if choice.first is not None]
        firsts = [choice.first for choice in seen if choice.first is not None]
        first = share_of(firsts, _clusters(seen))
    errors = len(choices) - len(answered)
    state, why = _verdict(choices, decided, first, alpha)
    return JudgedBy(
        way=asked.way,
        protocol=asked.protocol,
        variant=asked.variant,
        protocol_sha256=asked.protocol_sha256,
        accuracy=accuracy,
        by_margin={name: _accuracy(by_margin[name]) for name in sorted(by_margin, reverse=True)},
        against_others=share_of(
            [choice.agreement_with(others) for choice, others in against],
            [choice.cluster for choice, _ in against],
        ),
        ties=share_of([float(choice.is_tied) for choice in answered], _clusters(answered)),
        errors=errors,
        first=first,
        state=state,
        why=why,
    )


def _accuracy(decided: Sequence[JudgedChoice]) -> Share:
    return share_of(_agreements(decided), _clusters(decided))


def _agreements(decided: Sequence[JudgedChoice]) -> list[float]:
    return [choice.agreement_with(choice.winner) for choice in decided]


def _clusters(choices: Sequence[JudgedChoice]) -> list[str]:
    return [choice.cluster for choice in choices]


def _verdict(
    choices: Sequence[JudgedChoice],
    decided: Sequence[JudgedChoice],
    first: Share | None,
    alpha: float,
) -> tuple[State, str]:
    """Decide whether the judge is to be believed, and say why."""
    errors = sum(choice.share is None for choice in choices)
    if all(choice.winner == "tie" for choice in choices):
        return "INCONCLUSIVE", f"people tie in all of {counted(len(choices), 'pair')}"
    if not decided:
        return "INVALID", "the judge answered no pair that people decided"
    place = _preferred_place(first)
    if place:
        return "INVALID", place
    if errors > len(decided):
        return "INCONCLUSIVE", f"{counted(errors, 'pair')} without an answer"
    mean = estimate(_agreements(decided), _clusters(decided))
    found = f"{percent(mean.mean)} of {len(decided):,} decided pairs"
    if mean.p_above(EVEN) <= alpha:
        return "PASS", f"the judge agrees with people in {found}, more than by chance"
    if mean.p_below(EVEN) <= alpha:
        return "INVALID", f"the judge agrees with people in {found}, less than by chance"
    return "INCONCLUSIVE", f"the judge agrees with people in {found}, which may be chance"


def _preferred_place(first: Share | None) -> str:
    """Say which of two edits the judge prefers by its place alone; an empty text for neither."""
    if first is None or first.share is None or first.n < ENOUGH:
        return ""
    place = ""
    if first.share >= MOST_FOR_ONE:
        place = "first"
    elif first.share <= 1 - MOST_FOR_ONE:
        place = "second"
    if not place:
        return ""
    return (
        f"the judge prefers the {place} of any two edits: {percent(first.share)}"
        f"{percent_interval(first.ci95)} of its votes are for the first"
    )
