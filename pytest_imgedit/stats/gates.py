"""Gates on mean scores and drops: which apply to the selected pairs, when one fails, and what it
says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core import errors, results, sanitize
from pytest_imgedit.core.pairs import category_slug
from pytest_imgedit.stats import holm, planning
from pytest_imgedit.stats.estimates import ENOUGH, Estimate, estimate

MeanGate = Literal["fail_under", "max_drop"]
#: Steps in which the missing values of pairs are moved from the lowest possible to the highest.
STEPS = 20


@dataclass(frozen=True)
class Observation:
    """One value of one pair: its score, or its difference from a baseline.

    `value` is `None` for a pair without one; it would have been between `lowest` and `highest`.
    `alike` says that the pair's edits look as in the baseline. `before` is the baseline's score of
    a difference.
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
    pairs = [pair for pair in observations if field in ("overall", pair.category)]
    known = [(pair.value, pair.cluster, pair.category) for pair in pairs if pair.value is not None]
    if not known or {category for _, _, category in known} != {pair.category for pair in pairs}:
        return None
    return estimate(*zip(*known, strict=True))


def allowed_pairs(limit: float, pairs: int) -> int:
    """Turn a limit on pairs into a count: a float is a fraction of the pairs, rounded down."""
    return int(limit * pairs + 1e-9) if isinstance(limit, float) else limit


def check_fields(name: str, fields: Iterable[str], categories: Iterable[str]) -> None:
    """Raise `UsageError` if a gate of `name` names neither `overall` nor a category of the
    suite.
    """
    known = ["overall", *categories]
    for field in fields:
        if field != "overall" and category_slug(field) not in known:
            raise errors.UsageError(
                f"{name}: unknown field {field!r}, expected one of: {', '.join(known)}"
                f"{sanitize.did_you_mean(field, known)}"
            )


def check_counts(name: str, fields: Iterable[str], counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated category has fewer than two of the selected pairs."""
    for field in map(category_slug, fields):
        if field != "overall" and counts.get(field, 0) < 2:
            raise errors.UsageError(
                f"{name}: {field!r} has {counts.get(field, 0)} of the selected pairs, expected at "
                "least 2"
            )


@dataclass(frozen=True)
class Selection:
    """Numbers of selected pairs and of all pairs, by category.

    Pairs that a user's mark skips are in neither. `skipped` is their number.
    """

    selected: Mapping[str, int]
    whole: Mapping[str, int]
    skipped: int = 0

    @classmethod
    def of(
        cls, selected: Iterable[str], counts: Mapping[str, int], skipped: Iterable[str]
    ) -> Selection:
        """Count pairs, from the categories of the selected and of the skipped pairs, and the
        `counts` of all pairs by category.
        """
        skips = Counter(skipped)
        return cls(Counter(selected), Counter(counts) - skips, skips.total())

    def counts(self, field: str) -> tuple[int, int]:
        """Return the numbers of selected pairs and of all pairs of a gate's field."""
        if field == "overall":
            return sum(self.selected.values()), sum(self.whole.values())
        return self.selected.get(field, 0), self.whole.get(field, 0)


def narrow(
    gates: GatesSettings, selection: Selection, asked: Collection[str]
) -> tuple[GatesSettings, list[results.GateResult]]:
    """Split gates into those that the selected pairs decide, and those that are NOT SELECTED.

    Gates of the command line (`asked`) are decided on whatever is selected. A gate of a config is
    not selected if none of its pairs is, or only some and `gates.partial` is `skip`.
    """
    update: dict[str, Any] = {"fail_under": {}, "max_drop": {}}
    resting: list[results.GateResult] = []
    for kind in get_args(MeanGate):
        for field, limit in getattr(gates, kind).items():
            some, whole = selection.counts(field)
            is_whole = some == whole > 0 and (some >= 2 or field == "overall")
            if f"gates.{kind}" in asked or is_whole or (gates.partial == "decide" and some >= 2):
                update[kind][field] = limit
            else:
                why = f"{field}: {some} of its {whole} pairs are selected"
                resting.append(results.GateResult(field, kind, limit, None, "NOT SELECTED", why))
    if not (update["fail_under"] or update["max_drop"]) and "gates.until" not in asked:
        update["until"] = "all"
    least = gates.min_coverage
    some, whole = selection.counts("overall")
    if least and some < whole and gates.partial == "skip" and "gates.min_coverage" not in asked:
        update["min_coverage"] = 0.0
        why = f"min_coverage: {some} of {whole} pairs are selected"
        resting.append(
            results.GateResult("overall", "min_coverage", least, None, "NOT SELECTED", why)
        )
    return gates.model_copy(update=update), resting


def fail_under(
    settings: results.GateOptions, scores: Sequence[Observation]
) -> list[results.GateResult]:
    """Evaluate all `--imgedit-fail-under` gates: H0 of each is that the true mean is not under its
    limit.
    """
    return _Family("fail_under", settings, settings.fail_under, scores, 1, 0.0).evaluate()


def max_drop(
    settings: results.GateOptions, differences: Sequence[Observation], baseline: str
) -> list[results.GateResult]:
    """Evaluate all `--imgedit-max-drop` gates: H0 of each is that the true difference is not under
    minus its limit.
    """
    return _Family(
        "max_drop", settings, settings.max_drop, differences, -1, -10.0, baseline
    ).evaluate()


def means_before(fields: Iterable[str], differences: Sequence[Observation]) -> dict[str, float]:
    """Return the baseline's mean of each field, over the pairs that have a difference."""
    known = [replace(pair, value=pair.before) for pair in differences if pair.value is not None]
    estimates = {field: estimate_field(field, known) for field in fields}
    return {field: before.mean for field, before in estimates.items() if before is not None}


def describe_mean(
    kind: MeanGate, field: str, mean: float, baseline: str, before: Mapping[str, float]
) -> str:
    """Report the mean of a field; a drop is related to the means `before` in the `baseline`."""
    if kind == "fail_under":
        return f"{field} {mean:.2f}"
    size = f"{abs(mean):.2f}" if abs(mean) >= 0.005 else f"{abs(mean):.1g}"
    verb = "fell" if mean < 0 else "rose"
    moved = f"{verb} by {size}" if mean else "did not move"
    if field not in before:
        return f"{field} {moved} against {baseline}"
    return f"{field} {before[field] + mean:.2f}, was {before[field]:.2f} in {baseline}: {moved}"


def relate_to_limit(kind: MeanGate, mean: float, limit: float) -> str:
    """Compare a mean with the limit of its gate."""
    if kind == "fail_under":
        return f" {'>=' if mean >= limit else '<'} {limit:g}"
    return f", {limit:g} allowed"


@dataclass(frozen=True)
class _Family:
    """Gates of one kind, which share one chance of a false alarm.

    The threshold of each gate is `sign` times its limit; `lowest` is the lowest possible value.
    """

    kind: MeanGate
    settings: results.GateOptions
    limits: Mapping[str, float]
    observations: Sequence[Observation]
    sign: Literal[1, -1]
    lowest: float
    baseline: str = ""

    @property
    def alpha(self) -> float:
        """The share of α that each gate has where all must be shown."""
        return self.settings.alpha_of(self.kind) / len(self.limits)

    def evaluate(self) -> list[results.GateResult]:
        """Evaluate all gates; pairs without a value that could turn a gate leave it inconclusive.

        These pairs are given the values at every twentieth of the way from their lowest to their
        highest, all at the same time. The two ends alone would not do, since an outlier widens the
        interval.
        """
        before = means_before(self.limits, self.observations)
        gates = [self._gate(*test, before) for test in self._tests(self.observations)]
        missing = sum(pair.value is None for pair in self.observations)
        if not missing:
            return gates
        fills = [self._tests(filled(self.observations, step / STEPS)) for step in range(STEPS + 1)]
        for position, gate in enumerate(gates):
            if gate.lacks_pairs:
                states = {self._state(*tests[position]) for tests in fills}
                gates[position] = replace(gate, lacks_pairs=states == {"INCONCLUSIVE"})
            elif any(self._turns(gate, *tests[position]) for tests in fills):
                why = f"which the pairs without a score ({missing} in the run) could turn"
                gates[position] = replace(
                    gate, state="INCONCLUSIVE", why=f"{gate.why}: {gate.state}, {why}"
                )
        return gates

    def _tests(
        self, observations: Sequence[Observation]
    ) -> list[tuple[str, Estimate | None, float]]:
        """Return each field with its estimate and its p value after Holm."""
        estimates = {field: estimate_field(field, observations) for field in self.limits}
        p_values = [
            1.0 if estimate is None else estimate.p_below(self.sign * self.limits[field])
            for field, estimate in estimates.items()
        ]
        return list(zip(estimates, estimates.values(), holm.holm(p_values), strict=True))

    def _turns(
        self, gate: results.GateResult, field: str, estimate: Estimate | None, p: float
    ) -> bool:
        """Tell whether a gate would be in another state with the estimate of filled values.

        A PASS that rests on doubt (not `strict`) also turns if their mean is more than `margin`
        beyond the limit.
        """
        if gate.state in ("INVALID", "INCONCLUSIVE"):
            return False
        state = self._state(field, estimate, p)
        if self.settings.strict or "FAIL" in (gate.state, state):
            return gate.state != state
        return estimate is not None and (
            estimate.mean < self.sign * self.limits[field] - self.settings.margin
        )

    def _state(self, field: str, estimate: Estimate | None, p: float) -> results.State:
        if estimate is None:
            return "INVALID"
        threshold = self.sign * self.limits[field]
        is_unchanged = all(pair.alike and pair.value == 0 for pair in self._pairs_of(field))
        if is_unchanged or threshold <= self.lowest:  # no value is under the lowest
            return "PASS"
        if p <= self.settings.alpha_of(self.kind):
            return "FAIL"
        if estimate.p_shown_above(threshold, self.lowest, 10.0) <= self.alpha:
            return "PASS"
        if not self.settings.strict and self._finds_margin(estimate):
            return "PASS"
        return "INCONCLUSIVE"

    def _finds_margin(self, estimate: Estimate) -> bool:
        """Tell whether so many pairs would find a mean `margin` beyond the limit."""
        mde = estimate.mde(self.alpha)
        return mde is not None and mde <= self.settings.margin

    def _pairs_of(self, field: str) -> list[Observation]:
        return [pair for pair in self.observations if field in ("overall", pair.category)]

    def _gate(
        self, field: str, estimate: Estimate | None, p: float, before: Mapping[str, float]
    ) -> results.GateResult:
        limit = self.limits[field]
        is_score = self.kind == "fail_under"
        if estimate is None:
            why = f"{field} has no mean {'score' if is_score else 'difference'} in this run"
            return results.GateResult(field, self.kind, limit, None, "INVALID", why)
        mean = estimate.mean
        state = self._state(field, estimate, p)
        why = describe_mean(self.kind, field, mean, self.baseline, before)
        if state == "PASS" and mean < self.sign * limit:
            breach = "under" if is_score else "more than"
            why += f", not shown to be {breach} {limit:g} ({sanitize.p_value(p)})"
        else:
            why += relate_to_limit(self.kind, mean, limit)
        if state == "FAIL":
            why += f" ({sanitize.p_value(p)})"
        elif state == "INCONCLUSIVE":
            why += f": {self._reason(field, estimate)}"
        return results.GateResult(
            field,
            self.kind,
            limit,
            mean,
            state,
            why,
            p,
            mde=estimate.mde(self.alpha),
            lacks_pairs=state == "INCONCLUSIVE",
        )

    def _reason(self, field: str, estimate: Estimate) -> str:
        """Say why these pairs do not decide a gate, and how many would."""
        clusters = estimate.clusters
        unit = "pairs" if clusters == estimate.n else "source images"
        if clusters < ENOUGH or 0.5**clusters > self.alpha:
            alpha = self.settings.alpha_of(self.kind)
            spent = "" if self.settings.until == "all" else ", what the looks left of it"
            return f"too few {unit} ({clusters}) to show anything at alpha {alpha:g}{spent}"
        if estimate.alone:
            verb = "has a" if len(estimate.alone) == 1 else "have each a"
            return (
                f"{', '.join(estimate.alone)} {verb} single source image, whose spread is not known"
            )
        if not estimate.can_show(self.alpha):
            return (
                f"{clusters} source images of unequal weight, worth {estimate.even_clusters:.1f} "
                f"equal ones: {ENOUGH} are needed"
            )
        mde = estimate.mde(self.alpha)
        if mde is None:
            return (
                f"no spread seen in {clusters} {unit}, so that nothing says what others would give"
            )
        more = "16 times the pairs would not decide"
        if needed := self._pairs_needed(field):
            more = f"about {needed} pairs like these would decide"
        if self.settings.strict:
            return f"not shown (gates.strict); {more}"
        return (
            f"{estimate.n} pairs would show {mde:.2f} beyond the limit at best, gates.margin is "
            f"{self.settings.margin:g}; {more}"
        )

    def _pairs_needed(self, field: str) -> int | None:
        """Simulate how many pairs like these would decide a gate in 80% of runs."""
        threshold = self.sign * self.limits[field]

        def decides(drawn: list[tuple[Observation, str]]) -> bool:
            estimate = estimate_field(field, [replace(pair, cluster=name) for pair, name in drawn])
            if estimate is None:
                return False
            if estimate.student_below(threshold) <= self.alpha:
                return True
            if self.settings.strict:
                return estimate.p_shown_above(threshold, self.lowest, 10.0) <= self.alpha
            return self._finds_margin(estimate)

        pairs = [pair for pair in self._pairs_of(field) if pair.value is not None]
        return planning.pairs_needed(
            pairs, lambda pair: pair.cluster, lambda pair: pair.category, decides
        )


def filled(observations: Sequence[Observation], part: float) -> list[Observation]:
    """Give those without a value the one this `part` of the way from their lowest to their
    highest.
    """
    return [
        replace(pair, value=pair.lowest + part * (pair.highest - pair.lowest))
        if pair.value is None
        else pair
        for pair in observations
    ]
