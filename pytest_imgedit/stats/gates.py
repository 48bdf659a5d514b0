"""Rules over a run that decide the exit code."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.errors import UsageError
from pytest_imgedit.pairs import category_slug, in_order
from pytest_imgedit.stats.estimates import estimate, estimate_macro, holm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_imgedit.config import GatesSettings
    from pytest_imgedit.stats.estimates import Estimate

#: Steps in which pairs without a number are moved from the lowest that they could have to the highest.
STEPS = 20
State = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]


@dataclass(frozen=True)
class GateResult:
    """What a gate found: `value` against `limit` and, in one line, why it is in its state.

    `p` is the one-sided p value after Holm over the gates of the kind; `mde` the smallest distance beyond the limit
    that this gate finds in 80% of runs, `None` where so few pairs can show nothing.
    """

    field: str
    kind: Literal["fail_under", "max_drop", "max_errors", "controls"]
    limit: float | None
    value: float | None
    state: State
    why: str
    p: float | None = None
    mde: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Observation:
    """One number of one pair: its score, or its difference to a baseline.

    `value` is `None` for a pair without one; it would have been somewhere from `lowest` to `highest`.
    """

    category: str
    cluster: str
    value: float | None
    lowest: float = 0.0
    highest: float = 10.0


def estimate_field(field: str, observations: Sequence[Observation]) -> Estimate | None:
    """Estimate the mean of a category, or the macro mean for `overall`; `None` where a category has no value."""
    mine = [one for one in observations if field in ("overall", one.category)]
    known = [(one.value, one.cluster, one.category) for one in mine if one.value is not None]
    if not known or {category for _, _, category in known} != {one.category for one in mine}:
        return None
    values, clusters, categories = zip(*known, strict=True)
    return estimate_macro(values, clusters, categories) if field == "overall" else estimate(values, clusters)


def check_fields(name: str, fields: Iterable[str], categories: Iterable[str]) -> None:
    """Raise `UsageError` if a gate of `name` names neither `overall` nor a category of the suite."""
    known = ["overall", *categories]
    for field in fields:
        if field != "overall" and category_slug(field) not in known:
            raise UsageError(f"{name}: unknown field {field!r}, expected one of: {', '.join(known)}")


def check_counts(name: str, fields: Iterable[str], counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated category has fewer than the two pairs that make a mean worth gating."""
    for field in map(category_slug, fields):
        if field != "overall" and counts.get(field, 0) < 2:
            raise UsageError(f"{name}: {field!r} has {counts.get(field, 0)} of the selected pairs, expected at least 2")


def errors_allowed(limit: float, pairs: int) -> int:
    """Turn `--imgedit-max-errors` into a count: a float is a fraction of the pairs, rounded down."""
    return int(limit * pairs + 1e-9) if isinstance(limit, float) else limit


def coverage(
    settings: GatesSettings, scores: Sequence[Observation], errors: int, scores_expected: bool = True
) -> GateResult:
    """Gate the pairs that ended in an error; where there are some, say what the overall score could have been."""
    n, scored = len(scores), sum(one.value is not None for one in scores)
    allowed = errors_allowed(settings.max_errors, n)
    state: State = "PASS" if errors <= allowed else "FAIL"
    why = f"{errors} of {n} pairs without {'a score' if scores_expected else 'an edit'}, {allowed} allowed"
    if scores_expected and not scored and state == "PASS":
        state, why = "INVALID", "no pair has a score"  # missing data never passes
    elif scores_expected and scored and errors:
        worst, best = (estimate_field("overall", _filled(scores, part)) for part in (0, 1))
        if worst is not None and best is not None:
            why += f" (with theirs, overall would be between {worst.mean:.2f} and {best.mean:.2f})"
    return GateResult("overall", "max_errors", allowed, errors, state, why)


def fail_under(settings: GatesSettings, scores: Sequence[Observation]) -> list[GateResult]:
    """Evaluate all `--imgedit-fail-under` gates: H0 of each is that the true mean is not under its limit."""

    def measured(field: str, value: float) -> str:
        return f"{field} {value:.2f}"

    def related(value: float, limit: float) -> str:
        return f" {'>=' if value >= limit else '<'} {limit:g}"

    words = _Words(measured, related, "not shown to be under")
    return _Family("fail_under", settings, settings.fail_under, scores, 1, words).evaluate()


def max_drop(settings: GatesSettings, differences: Sequence[Observation], baseline: str) -> list[GateResult]:
    """Evaluate all `--imgedit-max-drop` gates: H0 of each is that the true difference is not under minus its limit."""

    def measured(field: str, value: float) -> str:
        size = f"{abs(value):.2f}" if abs(value) >= 0.005 else f"{abs(value):.1g}"
        moved = f"fell by {size}" if value < 0 else f"rose by {size}" if value > 0 else "did not move"
        return f"{field} {moved} against {baseline}"

    def related(value: float, limit: float) -> str:
        del value
        return f", {limit:g} allowed"

    words = _Words(measured, related, "not shown to be more than")
    return _Family("max_drop", settings, settings.max_drop, differences, -1, words).evaluate()


@dataclass(frozen=True)
class _Words:
    """How gates of a kind say what they found, how that is to their limit, and that nothing is certain."""

    measured: Callable[[str, float], str]
    related: Callable[[float, float], str]
    doubt: str


@dataclass(frozen=True)
class _Family:
    """Gates of one kind, which share one chance of a false alarm; the threshold of each is `sign` times its limit."""

    kind: Literal["fail_under", "max_drop"]
    settings: GatesSettings
    limits: Mapping[str, float]
    observations: Sequence[Observation]
    sign: Literal[1, -1]
    words: _Words

    def evaluate(self) -> list[GateResult]:
        """Evaluate with what there is; pairs without a number that could turn a gate leave it inconclusive.

        They are given a number at every twentieth of the way from the lowest that they could have to the highest,
        all the same way along: the ends alone would not do, as an outlier widens the interval.
        """
        gates = self._evaluate(self.observations)
        missing = sum(one.value is None for one in self.observations)
        if not missing:
            return gates
        fills = [self._evaluate(_filled(self.observations, step / STEPS)) for step in range(STEPS + 1)]
        why = f"which the pairs without a score ({missing} in the run) could turn"
        return [
            replace(gate, state="INCONCLUSIVE", why=f"{gate.why}: {gate.state}, {why}")
            if any(self._turns(gate, fill[place]) for fill in fills)
            else gate
            for place, gate in enumerate(gates)
        ]

    def _turns(self, gate: GateResult, filled: GateResult) -> bool:
        """Tell whether a gate would be in another state with some number for the pairs that have none.

        A PASS that rests on doubt (not `strict`) also falls if they could take the mean `margin` beyond the limit.
        """
        if gate.state in ("INVALID", "INCONCLUSIVE"):
            return False
        if self.settings.strict or "FAIL" in (gate.state, filled.state):
            return gate.state != filled.state
        return filled.value is not None and filled.value < self.sign * self.limits[gate.field] - self.settings.margin

    def _evaluate(self, observations: Sequence[Observation]) -> list[GateResult]:
        found = {field: estimate_field(field, observations) for field in self.limits}
        below = [1.0 if one is None else one.p_below(self.sign * self.limits[field]) for field, one in found.items()]
        adjusted = dict(zip(found, holm(below), strict=True))
        return [self._gate(field, one, adjusted[field]) for field, one in found.items()]

    def _gate(self, field: str, found: Estimate | None, p: float) -> GateResult:
        limit, settings = self.limits[field], self.settings
        if found is None:
            why = f"{field} has no mean {'score' if self.kind == 'fail_under' else 'difference'} in this run"
            return GateResult(field, self.kind, limit, None, "INVALID", why)
        mde = found.mde(settings.alpha / len(self.limits))
        threshold = self.sign * limit
        state = self._state(found, p, mde, threshold)
        why = self.words.measured(field, found.mean)
        if state == "PASS" and found.mean < threshold:
            why += f", {self.words.doubt} {limit:g} (p {p:.2g})"
        else:
            why += self.words.related(found.mean, limit)
        if state == "FAIL":
            why += f" (p {p:.2g})"
        elif state == "INCONCLUSIVE" and mde is None:
            few = f"pairs ({found.n})" if found.clusters == found.n else f"source images ({found.clusters})"
            why += f": too few {few} to show anything at alpha {settings.alpha:g}"
        elif state == "INCONCLUSIVE" and settings.strict:
            why += ", but that is not shown (gates.strict)"
        elif state == "INCONCLUSIVE":
            why += (
                f": {found.n} pairs would show {mde:.2f} beyond the limit at best, gates.margin is {settings.margin:g}"
            )
        return GateResult(field, self.kind, limit, found.mean, state, why, p, mde)

    def _state(self, found: Estimate, p: float, mde: float | None, threshold: float) -> State:
        settings = self.settings
        if p <= settings.alpha:
            return "FAIL"
        if mde is None:
            return "INCONCLUSIVE"
        if settings.strict:
            return "PASS" if found.p_above(threshold) <= settings.alpha / len(self.limits) else "INCONCLUSIVE"
        return "PASS" if mde <= settings.margin else "INCONCLUSIVE"


def _filled(observations: Sequence[Observation], part: float) -> list[Observation]:
    """Give those without a value one that lies this `part` of the way from their lowest to their highest."""
    return [
        one if one.value is not None else replace(one, value=one.lowest + part * (one.highest - one.lowest))
        for one in observations
    ]


def categories_of(observations: Sequence[Observation]) -> list[str]:
    """List the categories of observations in their usual order."""
    return in_order(one.category for one in observations)
