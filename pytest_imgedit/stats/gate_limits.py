"""Limits of means, a class for each kind of gate: the mean at which it fails, and every phrase that
depends on the kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pytest_imgedit.core.measures import OVERALL, SCORE, Field
from pytest_imgedit.core.results import Measure

MeanGate = Literal["fail_under", "max_drop", "min_win"]


@dataclass(frozen=True, kw_only=True)
class Limit(ABC):
    """The limit of one gate; `baseline` names what drops are measured against, or what duels are
    with. A further kind of gate is one more class, listed in `KINDS`.

    Means are as the measure has them. What is `oriented` has the opposite sign where lower is
    better, so that a gate fails if its oriented mean is under the `threshold`.
    """

    kind: ClassVar[MeanGate]
    #: Whether looks before the end assume that values are symmetric about their mean.
    is_symmetric: ClassVar[bool]
    #: Whether more seeds of the same pairs decide as more pairs do.
    gains_from_seeds: ClassVar[bool]
    #: What pairs whose edits look alike are sure to have.
    unchanged: ClassVar[float] = 0.0

    field: str
    value: float
    measure: Measure
    baseline: str = ""

    @property
    def group(self) -> str:
        return Field.parse(self.field).group

    @property
    def measure_name(self) -> str:
        return Field.parse(self.field).measure

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The oriented mean under which the gate fails."""

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest oriented value."""

    @abstractmethod
    def ruin(self, mean: float, *, margin: float, collapse: float, can_detect: bool) -> str:
        """Say why an oriented mean is too far beyond the limit for a warning; an empty text if it
        is not.

        `margin` and `collapse` are on the scale of the measure. `can_detect` says that the pairs
        could show a breach.
        """

    @property
    @abstractmethod
    def breach(self) -> str:
        """What the mean is shown to do where the gate fails."""

    @property
    @abstractmethod
    def mean_name(self) -> str:
        """What a run without values lacks."""

    @property
    def value_name(self) -> str:
        """What a pair without a value lacks."""
        return "score" if self.measure_name == SCORE else "value"

    @abstractmethod
    def observed(self, mean: float, before: float | None) -> str:
        """Report the mean of the field, a difference from a baseline if the gate is on drops;
        `before` is the mean of the baseline, if it is known.
        """

    @abstractmethod
    def relation(self, mean: float) -> str:
        """Compare a mean with the limit."""

    @abstractmethod
    def not_shown(self, p_value: str) -> str:
        """Say of a mean beyond the limit that this may be chance."""

    @abstractmethod
    def shown(self, p_value: str) -> str:
        """Say how surely a mean is beyond the limit."""

    @abstractmethod
    def missed(self, mde: float, pairs: str) -> str:
        """Say which breach of the limit may have been missed with these `pairs`, a number in words.
        `mde` is how far beyond the limit a mean is found.
        """

    @staticmethod
    @abstractmethod
    def detectable(mde: float, measure: Measure, value: float | None) -> str:
        """Say what a gate with this `mde` detects; without the `value` of its limit, how far beyond
        it that is.
        """

    def describe(self) -> str:
        """Say in words when the gate fails."""
        pairs = "all pairs" if self.group == OVERALL else self.group
        mean = f"{self.measure_name} ({self.measure.range})"
        return f"fails if the mean {mean} of {pairs} is shown to {self.breach}"


@dataclass(frozen=True, kw_only=True)
class FailUnder(Limit):
    """The lowest mean that passes, or the highest where lower is better."""

    kind = "fail_under"
    is_symmetric = False
    gains_from_seeds = False

    @property
    def threshold(self) -> float:
        return -self.value if self.measure.lower_is_better else self.value

    @property
    def ends(self) -> tuple[float, float]:
        lowest, highest = self.measure.ends
        if self.measure.lower_is_better:
            return -highest, -lowest
        return lowest, highest

    def ruin(self, mean: float, *, margin: float, collapse: float, can_detect: bool) -> str:
        """Say that the mean is more than `margin` beyond the limit; the rest does not matter."""
        if self.threshold - mean <= margin:
            return ""
        if not margin:
            return "the mean is beyond the limit"
        return f"the mean is beyond the limit by more than gates.margin ({margin:g})"

    @property
    def breach(self) -> str:
        return f"be {self._beyond} {self.value:g}"

    @property
    def mean_name(self) -> str:
        return f"mean {self.measure_name}"

    def observed(self, mean: float, before: float | None) -> str:
        return f"{self.field} {mean:.{self.measure.decimals}f}"

    def relation(self, mean: float) -> str:
        sign = ">=" if mean >= self.value else "<"
        return f" {sign} {self.value:g}"

    def not_shown(self, p_value: str) -> str:
        return f", not shown to be {self._beyond} {self.value:g} ({p_value})"

    def shown(self, p_value: str) -> str:
        return f" ({p_value})"

    def missed(self, mde: float, pairs: str) -> str:
        """Name the mean beyond the limit that may be missed."""
        oriented = self.threshold - mde
        mean = -oriented if self.measure.lower_is_better else oriented
        return (
            f"not shown to be {self._beyond} it; a mean of {mean:.{self.measure.decimals}f} may be "
            f"missed with {pairs}"
        )

    @property
    def _beyond(self) -> str:
        return "over" if self.measure.lower_is_better else "under"

    @staticmethod
    def detectable(mde: float, measure: Measure, value: float | None) -> str:
        """Name the mean that is detected, within the scale, or how far beyond the limit it is."""
        decimals = measure.decimals
        if value is None:
            beyond = "over" if measure.lower_is_better else "under"
            return f"a mean about {mde:.{decimals}f} {beyond} the limit"
        lowest, highest = measure.ends
        if measure.lower_is_better:
            mean = min(highest, value + mde)
        else:
            mean = max(lowest, value - mde)
        return f"a mean of about {mean:.{decimals}f}"


@dataclass(frozen=True, kw_only=True)
class MaxDrop(Limit):
    """The furthest drop against a baseline that passes, or the furthest rise where lower is
    better.
    """

    kind = "max_drop"
    is_symmetric = True
    gains_from_seeds = True

    @property
    def threshold(self) -> float:
        return -self.value

    @property
    def ends(self) -> tuple[float, float]:
        lowest, highest = self.measure.ends
        return lowest - highest, highest - lowest

    def ruin(self, mean: float, *, margin: float, collapse: float, can_detect: bool) -> str:
        """Say that the mean is beyond the limit and fell by `collapse`, if that is over 0 and the
        pairs could not show it.
        """
        is_beyond = self.threshold - mean > 0
        fell_far = 0 < collapse <= -mean
        if can_detect or not is_beyond or not fell_far:
            return ""
        return f"the mean fell by gates.collapse ({collapse:g}) or more"

    @property
    def breach(self) -> str:
        moved = "risen" if self.measure.lower_is_better else "fallen"
        return f"have {moved} by more than {self.value:g}"

    @property
    def mean_name(self) -> str:
        return "mean difference"

    def observed(self, mean: float, before: float | None) -> str:
        """Report the difference, and if `before` is known the means that it is between.

        A difference that would be rounded to 0 has one significant digit.
        """
        decimals = self.measure.decimals
        if not mean:
            moved = "no change"
        elif abs(mean) >= 0.5 * 10**-decimals:
            moved = f"{mean:+.{decimals}f}"
        else:
            moved = f"{mean:+.1g}"
        if before is None:
            return f"{self.field} {moved} against {self.baseline}"
        now = f"{before + mean:.{decimals}f}"
        return f"{self.field} {now}, was {before:.{decimals}f} in {self.baseline}: {moved}"

    def relation(self, mean: float) -> str:
        return f" (a {_change(self.measure)} of up to {self.value:g} is allowed)"

    def not_shown(self, p_value: str) -> str:
        change = f"a {_change(self.measure)} of more than {self.value:g}"
        return f", not shown to be {change} ({p_value})"

    def shown(self, p_value: str) -> str:
        return f", {p_value}"

    def missed(self, mde: float, pairs: str) -> str:
        """Name the largest change for the worse that may be missed."""
        more = f" of more than {self.value:g}" if self.value else ""
        furthest = f"{self.value + mde:.{self.measure.decimals}f}"
        return (
            f"no {_change(self.measure)}{more} shown; one of up to {furthest} may be missed with "
            f"{pairs}"
        )

    @staticmethod
    def detectable(mde: float, measure: Measure, value: float | None) -> str:
        """Name the change that is detected, or how far over the limit it is."""
        change = f"{mde + (value or 0.0):.{measure.decimals}f}"
        over = " over the limit" if value is None else ""
        return f"a {_change(measure)} of about {change}{over}"


@dataclass(frozen=True, kw_only=True)
class MinWin(Limit):
    """The lowest share of duels that passes, from 0 to 1."""

    kind = "min_win"
    is_symmetric = True
    gains_from_seeds = True
    unchanged = 0.5

    @property
    def threshold(self) -> float:
        return self.value

    @property
    def ends(self) -> tuple[float, float]:
        return 0.0, 1.0

    def ruin(self, mean: float, *, margin: float, collapse: float, can_detect: bool) -> str:
        """Say nothing: a lost duel does not tell by how much an edit is worse."""
        return ""

    @property
    def breach(self) -> str:
        return f"be under {self.value:g}"

    @property
    def mean_name(self) -> str:
        return "duel with all its votes"

    @property
    def value_name(self) -> str:
        return "decided duel"

    def observed(self, mean: float, before: float | None) -> str:
        return f"{self.field} wins {_share(mean)} of duels against {self.baseline}"

    def relation(self, mean: float) -> str:
        sign = ">=" if mean >= self.value else "<"
        return f" {sign} {self.value:g}"

    def not_shown(self, p_value: str) -> str:
        return f", not shown to be under {self.value:g} ({p_value})"

    def shown(self, p_value: str) -> str:
        return f" ({p_value})"

    def missed(self, mde: float, pairs: str) -> str:
        """Name the share that may be missed."""
        share = _share(max(0.0, self.value - mde))
        return f"not shown to be under it; a share of {share} may be missed with {pairs}"

    @staticmethod
    def detectable(mde: float, measure: Measure, value: float | None) -> str:
        """Name the share that is detected, or how far under the limit it is."""
        if value is None:
            return f"a share of duels about {_share(mde)} under the limit"
        return f"a share of about {_share(max(0.0, value - mde))}"

    def describe(self) -> str:
        pairs = "all pairs win" if self.group == OVERALL else f"{self.group} wins"
        by = "" if self.measure_name == SCORE else f" by {self.measure_name}"
        return f"fails if the share of duels (0 to 1) that {pairs}{by} is shown to {self.breach}"


def _share(share: float) -> str:
    """Write a share with two decimals."""
    return f"{share:.2f}"


def _change(measure: Measure) -> str:
    """Name a change for the worse."""
    return "rise" if measure.lower_is_better else "drop"


#: The kinds of gates on means, in the order in which a run decides them.
KINDS: Mapping[MeanGate, type[Limit]] = {
    "fail_under": FailUnder,
    "max_drop": MaxDrop,
    "min_win": MinWin,
}
