"""Gates on scores and on drops: when one fails, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import category_slug, in_order
from pytest_imgedit.core.results import GateOptions, GateResult, State
from pytest_imgedit.core.sanitize import did_you_mean, p_value
from pytest_imgedit.stats.estimates import ENOUGH, Estimate, estimate
from pytest_imgedit.stats.holm import holm
from pytest_imgedit.stats.planning import pairs_needed

#: Steps in which pairs without a number are moved from the lowest that they could have to the
#: highest.
STEPS = 20


@dataclass(frozen=True)
class Observation:
    """One number of one pair: its score, or its difference to a baseline.

    `value` is `None` for a pair without one; it would have been somewhere from `lowest` to
    `highest`. `alike` says that the pair's edits look as in the baseline, and `before` is the score
    of a difference there.
    """

    category: str
    cluster: str
    value: float | None
    lowest: float = 0.0
    highest: float = 10.0
    alike: bool = False
    before: float | None = None


def estimate_field(field: str, observations: Sequence[Observation]) -> Estimate | None:
    """Estimate the mean of a category, or the macro mean for `overall`; `None` where a category has
    no value.
    """
    mine = [one for one in observations if field in ("overall", one.category)]
    known = [(one.value, one.cluster, one.category) for one in mine if one.value is not None]
    if not known or {category for _, _, category in known} != {one.category for one in mine}:
        return None
    values, clusters, categories = zip(*known, strict=True)
    return estimate(values, clusters, categories)


def check_fields(name: str, fields: Iterable[str], categories: Iterable[str]) -> None:
    """Raise `UsageError` if a gate of `name` names neither `overall` nor a category of the
    suite.
    """
    known = ["overall", *categories]
    for field in fields:
        if field != "overall" and category_slug(field) not in known:
            near = did_you_mean(field, known)
            raise UsageError(
                f"{name}: unknown field {field!r}, expected one of: {', '.join(known)}{near}"
            )


def check_counts(name: str, fields: Iterable[str], counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated category has fewer than the two pairs that make a mean worth
    gating.
    """
    for field in map(category_slug, fields):
        if field != "overall" and counts.get(field, 0) < 2:
            raise UsageError(
                f"{name}: {field!r} has {counts.get(field, 0)} of the selected pairs, expected at "
                "least 2"
            )


def fail_under(settings: GateOptions, scores: Sequence[Observation]) -> list[GateResult]:
    """Evaluate all `--imgedit-fail-under` gates: H0 of each is that the true mean is not under its
    limit.
    """
    return _Family(
        "fail_under", settings, settings.fail_under, scores, 1, 0.0, Words("fail_under", "", {})
    ).evaluate()


def max_drop(
    settings: GateOptions, differences: Sequence[Observation], baseline: str
) -> list[GateResult]:
    """Evaluate all `--imgedit-max-drop` gates: H0 of each is that the true difference is not under
    minus its limit.
    """
    words = Words("max_drop", baseline, means_before(settings.max_drop, differences))
    return _Family(
        "max_drop", settings, settings.max_drop, differences, -1, -10.0, words
    ).evaluate()


def means_before(fields: Iterable[str], differences: Sequence[Observation]) -> dict[str, float]:
    """Return the mean that each field had in the baseline, over the pairs that have a
    difference.
    """
    known = [replace(pair, value=pair.before) for pair in differences if pair.value is not None]
    estimates = {field: estimate_field(field, known) for field in fields}
    return {field: found.mean for field, found in estimates.items() if found is not None}


@dataclass(frozen=True)
class Words:
    """How gates of a kind say what they found; those on drops name the `baseline`, and its means by
    field.
    """

    kind: Literal["fail_under", "max_drop"]
    baseline: str
    before: Mapping[str, float]

    @property
    def doubt(self) -> str:
        """That nothing is certain."""
        return f"not shown to be {'under' if self.kind == 'fail_under' else 'more than'}"

    def measured(self, field: str, value: float) -> str:
        """What was found."""
        if self.kind == "fail_under":
            return f"{field} {value:.2f}"
        size = f"{abs(value):.2f}" if abs(value) >= 0.005 else f"{abs(value):.1g}"
        moved = "did not move"
        if value:
            moved = f"{'fell' if value < 0 else 'rose'} by {size}"
        if field not in self.before:
            return f"{field} {moved} against {self.baseline}"
        before = self.before[field]
        return f"{field} {before + value:.2f}, was {before:.2f} in {self.baseline}: {moved}"

    def related(self, value: float, limit: float) -> str:
        """How that is to the limit."""
        if self.kind == "fail_under":
            return f" {'>=' if value >= limit else '<'} {limit:g}"
        return f", {limit:g} allowed"


@dataclass(frozen=True)
class _Family:
    """Gates of one kind, which share one chance of a false alarm; the threshold of each is `sign`
    times its limit.
    """

    kind: Literal["fail_under", "max_drop"]
    settings: GateOptions
    limits: Mapping[str, float]
    observations: Sequence[Observation]
    sign: Literal[1, -1]
    lowest: float
    words: Words

    def evaluate(self) -> list[GateResult]:
        """Evaluate with what there is; pairs without a number that could turn a gate leave it
        inconclusive.

        They are given a number at every twentieth of the way from the lowest that they could have
        to the highest, all the same way along: the ends alone would not do, as an outlier widens
        the interval.
        """
        gates = [self._explained(gate) for gate in self._evaluate(self.observations)]
        missing = sum(one.value is None for one in self.observations)
        if not missing:
            return gates
        fills = [
            self._evaluate(filled(self.observations, step / STEPS)) for step in range(STEPS + 1)
        ]
        why = f"which the pairs without a score ({missing} in the run) could turn"
        for place, gate in enumerate(gates):
            if any(self._turns(gate, fill[place]) for fill in fills):
                told = f"{gate.why}: {gate.state}, {why}"
                gates[place] = replace(gate, state="INCONCLUSIVE", why=told)
        return gates

    def _turns(self, gate: GateResult, filled: GateResult) -> bool:
        """Tell whether a gate would be in another state with some number for the pairs that have
        none.

        A PASS that rests on doubt (not `strict`) also falls if they could take the mean `margin`
        beyond the limit.
        """
        if gate.state in ("INVALID", "INCONCLUSIVE"):
            return False
        if self.settings.strict or "FAIL" in (gate.state, filled.state):
            return gate.state != filled.state
        return (
            filled.value is not None
            and filled.value < self.sign * self.limits[gate.field] - self.settings.margin
        )

    def _evaluate(self, observations: Sequence[Observation]) -> list[GateResult]:
        found = {field: estimate_field(field, observations) for field in self.limits}
        below = [
            1.0 if one is None else one.p_below(self.sign * self.limits[field])
            for field, one in found.items()
        ]
        adjusted = dict(zip(found, holm(below), strict=True))
        return [self._gate(field, one, adjusted[field]) for field, one in found.items()]

    def _gate(self, field: str, found: Estimate | None, p: float) -> GateResult:
        limit = self.limits[field]
        if found is None:
            why = (
                f"{field} has no mean {'score' if self.kind == 'fail_under' else 'difference'} "
                "in this run"
            )
            return GateResult(field, self.kind, limit, None, "INVALID", why)
        mde = found.mde(self.alpha)
        threshold = self.sign * limit
        state = self._state(found, p, mde, threshold)
        if self._is_unchanged(field):
            state = "PASS"
        why = self.words.measured(field, found.mean)
        if state == "PASS" and found.mean < threshold:
            why += f", {self.words.doubt} {limit:g} ({p_value(p)})"
        else:
            why += self.words.related(found.mean, limit)
        if state == "FAIL":
            why += f" ({p_value(p)})"
        return GateResult(field, self.kind, limit, found.mean, state, why, p, mde)

    @property
    def alpha(self) -> float:
        """The share of α that each gate has where all must be shown."""
        return self.settings.alpha_of(self.kind) / len(self.limits)

    def _state(self, found: Estimate, p: float, mde: float | None, threshold: float) -> State:
        if threshold <= self.lowest:  # no score breaks it
            return "PASS"
        if p <= self.settings.alpha_of(self.kind):
            return "FAIL"
        if found.p_shown_above(threshold, self.lowest, 10.0) <= self.alpha:
            return "PASS"
        doubtful = not self.settings.strict and mde is not None and mde <= self.settings.margin
        if doubtful:
            return "PASS"
        return "INCONCLUSIVE"

    def _is_unchanged(self, field: str) -> bool:
        """Tell whether all edits look as in the baseline, and have its scores."""
        mine = [pair for pair in self.observations if field in ("overall", pair.category)]
        return all(pair.alike and pair.value == 0 for pair in mine)

    def _explained(self, gate: GateResult) -> GateResult:
        """Say, where a gate is open, why these pairs do not decide it, and what would."""
        found = estimate_field(gate.field, self.observations)
        if gate.state != "INCONCLUSIVE" or found is None:
            return gate
        return replace(gate, why=f"{gate.why}: {self._reason(gate.field, found, gate.mde)}")

    def _reason(self, field: str, found: Estimate, mde: float | None) -> str:
        alpha, few = (
            self.settings.alpha_of(self.kind),
            "pairs" if found.clusters == found.n else "source images",
        )
        spent = "" if self.settings.until == "all" else ", what the looks left of it"
        if found.clusters < ENOUGH or 0.5**found.clusters > self.alpha:
            return f"too few {few} ({found.clusters}) to show anything at alpha {alpha:g}{spent}"
        if not found.alone and not found.can_show(self.alpha):
            worth = (
                f"of unequal weight, worth {found.even_clusters:.1f} equal ones: {ENOUGH} are "
                "needed"
            )
            return f"{found.clusters} source images {worth}"
        if found.alone:
            verb = "has a" if len(found.alone) == 1 else "have each a"
            return f"{', '.join(found.alone)} {verb} single source image, whose spread is not known"
        if mde is None:
            return (
                f"no spread seen in {found.clusters} {few}, so that nothing says what others "
                "would give"
            )
        needed = self._pairs_needed(field)
        if needed:
            more = f"about {needed} pairs like these would decide"
        else:
            more = "16 times the pairs would not decide"
        if self.settings.strict:
            return f"not shown (gates.strict); {more}"
        margin = f"gates.margin is {self.settings.margin:g}"
        return f"{found.n} pairs would show {mde:.2f} beyond the limit at best, {margin}; {more}"

    def _pairs_needed(self, field: str) -> int | None:
        """Simulate how many pairs like these would decide a gate in 80% of runs."""
        pairs = [
            pair
            for pair in self.observations
            if field in ("overall", pair.category) and pair.value is not None
        ]
        threshold = self.sign * self.limits[field]

        def decides(drawn: list[tuple[Observation, str]]) -> bool:
            found = estimate_field(field, [replace(pair, cluster=name) for pair, name in drawn])
            if found is None or found.student_below(threshold) <= self.alpha:
                return found is not None
            if self.settings.strict:
                return found.p_shown_above(threshold, self.lowest, 10.0) <= self.alpha
            mde = found.mde(self.alpha)
            return mde is not None and mde <= self.settings.margin

        return pairs_needed(pairs, lambda pair: pair.cluster, lambda pair: pair.category, decides)


def filled(observations: Sequence[Observation], part: float) -> list[Observation]:
    """Give those without a value one that lies this `part` of the way from their lowest to their
    highest.
    """
    numbers = []
    for observation in observations:
        if observation.value is None:
            width = observation.highest - observation.lowest
            observation = replace(observation, value=observation.lowest + part * width)
        numbers.append(observation)
    return numbers


def categories_of(observations: Sequence[Observation]) -> list[str]:
    """List the categories of observations in their usual order."""
    return in_order(one.category for one in observations)
