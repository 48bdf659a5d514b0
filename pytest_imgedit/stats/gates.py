"""Gates on means of measures and on their drops: which apply to the selected pairs, when one fails,
and what it says.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, Literal, TypeVar, get_args

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core import errors, results, sanitize
from pytest_imgedit.core.measures import (
    OVERALL,
    SCORE,
    SCORE_ONLY,
    Field,
    Measured,
    by_group,
    groups_of,
)
from pytest_imgedit.core.results import Measure
from pytest_imgedit.stats import holm, planning
from pytest_imgedit.stats.estimates import ENOUGH, Estimate, estimate

ItemT = TypeVar("ItemT", bound=Measured)
MeanGate = Literal["fail_under", "max_drop"]
#: Steps in which the missing values of pairs are moved from the lowest possible to the highest.
STEPS = 20
#: Factor on the error of the macro mean over which small categories are named in the plan.
COSTLY = 1.1


@dataclass(frozen=True)
class Observation:
    """One number of one pair: a value of a measure, or its difference from a baseline.

    `value` is `None` for a pair without one; it would have been between `lowest` and `highest`.
    `alike` says that the pair's edits look as in the baseline. `before` is the baseline's value of
    a difference. `groups` are those beside the category. `seeds` is the number of edits whose
    differences are averaged.
    """

    category: str
    cluster: str
    value: float | None
    lowest: float = 0.0
    highest: float = 10.0
    alike: bool = False
    before: float | None = None
    groups: tuple[str, ...] = ()
    seeds: int = 1

    def is_in(self, group: str) -> bool:
        return group in (OVERALL, self.category) or group in self.groups

    def all_groups(self) -> tuple[str, ...]:
        """Return the groups of the pair, each once."""
        return tuple(dict.fromkeys((OVERALL, self.category, *self.groups)))

    @property
    def negated(self) -> Observation:
        """The same pair in the measure with the opposite sign."""
        value, before = (
            None if number is None else -number for number in (self.value, self.before)
        )
        return replace(self, value=value, before=before, lowest=-self.highest, highest=-self.lowest)


def observe(items: Iterable[Measured], name: str, measure: Measure) -> list[Observation]:
    """Return the values of a measure, one an item that it applies to."""
    return [
        Observation(
            item.category,
            item.cluster,
            item.value(name),
            *measure.ends,
            groups=groups_of(item),
        )
        for item in measured_by(items, name)
    ]


def measured_by(items: Iterable[ItemT], name: str) -> Iterator[ItemT]:
    """Yield the items that a measure applies to: those with a value, those that failed to get one,
    and those without a score, unless no scored item of their category has a value.
    """
    items = list(items)
    scored = {item.category for item in items if item.score is not None}
    has_value = [item.value(name) is not None for item in items]
    without = scored - {item.category for item in compress(items, has_value)}
    for item, is_valued in zip(items, has_value, strict=True):
        is_missing = item.score is None and item.category not in without
        if is_valued or is_missing or name in item.missing:
            yield item


#: Observations by measure.
Samples = Mapping[str, Sequence[Observation]]


def estimate_group(group: str, observations: Sequence[Observation]) -> Estimate | None:
    """Estimate the mean over the pairs of a group, or the macro mean for `overall`; `None` where a
    category of `overall`, or the group, has no value.
    """
    pairs = [pair for pair in observations if pair.is_in(group)]
    known = [pair for pair in pairs if pair.value is not None]
    values = [pair.value for pair in known if pair.value is not None]
    clusters = [pair.cluster for pair in known]
    if group != OVERALL:
        return estimate(values, clusters) if known else None
    categories = [pair.category for pair in known]
    if not known or {*categories} != {pair.category for pair in pairs}:
        return None
    return estimate(values, clusters, categories)


def hindrance(estimate: Estimate, alpha: float) -> str:
    """Say what keeps any mean of such sources from being shown to be beyond a limit at `alpha`; an
    empty text if nothing does.
    """
    clusters = estimate.clusters
    if clusters < ENOUGH or 0.5**clusters > alpha:
        return f"too few {_unit(estimate)} ({clusters})"
    if estimate.alone:
        verb = "has a" if len(estimate.alone) == 1 else "have each a"
        return f"{', '.join(estimate.alone)} {verb} single source image, whose spread is not known"
    if not estimate.can_show(alpha):
        return (
            f"{clusters} source images of unequal weight, worth {estimate.even_clusters:.1f} equal "
            f"ones: {ENOUGH} are needed"
        )
    return ""


def foresee(
    kind: MeanGate, settings: results.GateOptions, group: str, pairs: Sequence[Observation]
) -> str:
    """Say before a run that its planned `pairs`, whose values are ignored, cannot fail a gate on a
    group; an empty text if they can.
    """
    limits: Mapping[str, float] = getattr(settings, kind)
    alpha = settings.alpha_of(kind) / len(limits)
    estimate = estimate_group(group, [replace(pair, value=0.0) for pair in pairs])
    reason = "" if estimate is None else hindrance(estimate, alpha)
    if estimate is None or not reason:
        return ""
    clusters = estimate.clusters
    enough = max(ENOUGH, math.ceil(-math.log2(alpha)))
    if clusters >= enough:
        return f"{group}: {reason}, so that nothing can fail this gate"
    sources = sanitize.counted(clusters, "source")
    if 0.5**clusters > alpha:
        return f"{group}: {sources} cannot fail this gate, {enough} can"
    return f"{group}: {sources} fail this gate only if all are worse, {enough} can tell less"


def costly_categories(pairs: Sequence[Observation]) -> str:
    """Say which categories of few sources make the macro mean less certain than that of the others
    by over a tenth, where pairs vary alike; an empty text if none do.
    """
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        sources[pair.category].add(pair.cluster)
    sizes = {category: len(clusters) for category, clusters in sources.items()}
    few = {category: size for category, size in sizes.items() if size < ENOUGH}
    others = [size for size in sizes.values() if size >= ENOUGH]
    if not few or not others:
        return ""
    factor = _error_of(sizes.values()) / _error_of(others)
    if factor < COSTLY:
        return ""
    named = sanitize.first_of(
        [f"{category} ({sanitize.counted(size, 'source')})" for category, size in few.items()]
    )
    return (
        f"overall: {named} weighs as much as any other category, so that changes have to be "
        f"{factor:.1f} times as large to be seen as without; merge small categories to see more"
    )


def _error_of(sizes: Collection[int]) -> float:
    """Standard error of the mean of category means, in standard deviations of a source."""
    return math.sqrt(sum(1 / size for size in sizes)) / len(sizes)


def _unit(estimate: Estimate) -> str:
    return "pairs" if estimate.clusters == estimate.n else "source images"


def allowed_pairs(limit: float, pairs: int) -> int:
    """Turn a limit on pairs into a count: a float is a fraction of the pairs, rounded down."""
    return int(limit * pairs + 1e-9) if isinstance(limit, float) else limit


def check_fields(
    name: str,
    limits: Mapping[str, float],
    groups: Collection[str],
    measures: Mapping[str, Measure] | None = SCORE_ONLY,
) -> None:
    """Raise `UsageError` if a gate of `name` is on a group or a measure that the run has not, or
    its limit is beyond the scale of the measure. Measures of a judge that declares none (`None`)
    are known at the end alone.
    """
    for text, limit in limits.items():
        check_field(name, text, groups, measures)
        if measures is None:
            continue
        lowest, highest = measures[Field.parse(text).measure].ends
        if name.endswith("drop"):
            lowest, highest = 0.0, highest - lowest
        if not lowest <= limit <= highest:
            raise errors.UsageError(
                f"{name}: {text}:{limit:g}, expected a number from {lowest:g} to {highest:g}"
            )


def check_field(
    name: str, text: str, groups: Collection[str], measures: Mapping[str, Measure] | None
) -> None:
    """Raise `UsageError` if a field of `name` is of a group or a measure that the run has not."""
    measure, group = Field.parse(text)
    if group not in groups:
        known = [group for group in groups if "=" not in group]
        if len(known) < len(groups):
            known.append("difficulty=NAME, tag=NAME")
        raise errors.UsageError(
            f"{name}: unknown field {text!r}, expected one of: {', '.join(known)}"
            f"{sanitize.did_you_mean(group, groups)}"
        )
    if measures is not None and measure not in measures:
        raise errors.UsageError(
            f"{name}: unknown measure {measure!r} in {text!r}, expected one of: "
            f"{', '.join(measures)}{sanitize.did_you_mean(measure, measures)}"
        )


def check_counts(name: str, fields: Iterable[str], counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated group has fewer than two of the selected pairs."""
    for text in fields:
        group = Field.parse(text).group
        if group != OVERALL and counts.get(group, 0) < 2:
            raise errors.UsageError(
                f"{name}: {text!r} has {counts.get(group, 0)} of the selected pairs, expected at "
                "least 2"
            )


@dataclass(frozen=True)
class Selection:
    """Numbers of selected pairs and of all pairs, by group.

    Pairs that a user's mark skips are in neither. `skipped` is their number.
    """

    selected: Mapping[str, int]
    whole: Mapping[str, int]
    skipped: int = 0

    @classmethod
    def of(
        cls, selected: Mapping[str, int], counts: Mapping[str, int], skipped: Mapping[str, int]
    ) -> Selection:
        """Take the numbers of selected, of all and of skipped pairs, by group."""
        whole = Counter(counts) - Counter(skipped)
        return cls(selected, whole, skipped.get(OVERALL, 0))

    def counts(self, group: str) -> tuple[int, int]:
        """Return the numbers of selected pairs and of all pairs of a group."""
        return self.selected.get(group, 0), self.whole.get(group, 0)


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
            group = Field.parse(field).group
            some, whole = selection.counts(group)
            is_whole = some == whole > 0 and (some >= 2 or group == OVERALL)
            if f"gates.{kind}" in asked or is_whole or (gates.partial == "decide" and some >= 2):
                update[kind][field] = limit
            else:
                why = f"{field}: {some} of its {sanitize.counted(whole, 'pair')} selected"
                resting.append(results.GateResult(field, kind, limit, None, "NOT SELECTED", why))
    if not (update["fail_under"] or update["max_drop"]) and "gates.until" not in asked:
        update["until"] = "all"
    least = gates.min_coverage
    some, whole = selection.counts(OVERALL)
    if least and some < whole and gates.partial == "skip" and "gates.min_coverage" not in asked:
        update["min_coverage"] = 0.0
        why = f"min_coverage: {some} of {sanitize.counted(whole, 'pair')} selected"
        resting.append(
            results.GateResult("overall", "min_coverage", least, None, "NOT SELECTED", why)
        )
    return gates.model_copy(update=update), resting


def fail_under(
    settings: results.GateOptions,
    samples: Samples,
    measures: Mapping[str, Measure] = SCORE_ONLY,
    is_judge_tried: bool = False,
) -> list[results.GateResult]:
    """Evaluate all `--imgedit-fail-under` gates: H0 of each is that the true mean is not under its
    limit, or over it where lower is better.

    `is_judge_tried` says that the judge has passed its trial: then equal scores may be true.
    """
    return _Family(
        "fail_under", settings, settings.fail_under, samples, measures, is_judge_tried
    ).evaluate()


def max_drop(
    settings: results.GateOptions,
    differences: Samples,
    baseline: str,
    measures: Mapping[str, Measure] = SCORE_ONLY,
    is_judge_tried: bool = False,
) -> list[results.GateResult]:
    """Evaluate all `--imgedit-max-drop` gates: H0 of each is that the true difference is not worse
    than its limit. `is_judge_tried` is as in `fail_under`.
    """
    return _Family(
        "max_drop", settings, settings.max_drop, differences, measures, is_judge_tried, baseline
    ).evaluate()


def means_before(groups: Iterable[str], differences: Sequence[Observation]) -> dict[str, float]:
    """Return the baseline's mean of each group, over the pairs that have a difference."""
    known = [replace(pair, value=pair.before) for pair in differences if pair.value is not None]
    members = by_group(known, Observation.all_groups)
    estimates = {group: estimate_group(group, members.get(group, ())) for group in groups}
    return {group: before.mean for group, before in estimates.items() if before is not None}


def describe_mean(
    kind: MeanGate, field: str, mean: float, baseline: str, before: float | None, decimals: int = 2
) -> str:
    """Report the mean of a field; a drop is related to the mean `before` in the `baseline`."""
    if kind == "fail_under":
        return f"{field} {mean:.{decimals}f}"
    moved = f"{mean:+.{decimals}f}" if abs(mean) >= 0.5 * 10**-decimals else f"{mean:+.1g}"
    if not mean:
        moved = "no change"
    if before is None:
        return f"{field} {moved} against {baseline}"
    now, was = (f"{value:.{decimals}f}" for value in (before + mean, before))
    return f"{field} {now}, was {was} in {baseline}: {moved}"


def relate_to_limit(
    kind: MeanGate, mean: float, limit: float, lower_is_better: bool = False
) -> str:
    """Compare a mean with the limit of its gate."""
    if kind == "fail_under":
        return f" {'>=' if mean >= limit else '<'} {limit:g}"
    return f" (a {'rise' if lower_is_better else 'drop'} of up to {limit:g} is allowed)"


def describe_rule(kind: MeanGate, field: str, limit: float, measure: Measure) -> str:
    """Say in words what a gate asks for."""
    name, group = Field.parse(field)
    of = "all pairs" if group == OVERALL else group
    if kind == "fail_under":
        breach = f"be {'over' if measure.lower_is_better else 'under'} {limit:g}"
    else:
        breach = f"have {'risen' if measure.lower_is_better else 'fallen'} by more than {limit:g}"
    return f"fails if the mean {name} ({measure.range}) of {of} is shown to {breach}"


def _point(measure: Measure) -> float:
    """What a point of a scale of ten is on the measure's own; 0 if that has no ends."""
    lowest, highest = measure.ends
    return (highest - lowest) / 10 if measure.is_bounded else 0.0


@dataclass(frozen=True)
class _Rule:
    """One gate of a family: the mean of a measure over a group of pairs against a limit.

    `observations` are those of the measure, negated where lower is better, so that the gate fails
    if their mean is under the `threshold`. `margin` is on the measure's own scale.
    """

    kind: MeanGate
    field: str
    limit: float
    measure: Measure
    observations: Sequence[Observation]
    margin: float

    @classmethod
    def of(
        cls,
        kind: MeanGate,
        field: str,
        limit: float,
        measure: Measure,
        observations: Sequence[Observation],
        margin: float,
    ) -> _Rule:
        """Make the rule of a gate; `margin` is in points of a scale of ten."""
        if measure.lower_is_better:
            observations = [pair.negated for pair in observations]
        return cls(kind, field, limit, measure, observations, margin * _point(measure))

    @property
    def group(self) -> str:
        return Field.parse(self.field).group

    @property
    def sign(self) -> Literal[1, -1]:
        """The sign of observed values in those of the measure."""
        return -1 if self.measure.lower_is_better else 1

    @property
    def threshold(self) -> float:
        return -self.limit if self.kind == "max_drop" else self.sign * self.limit

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest possible value."""
        lowest, highest = self.measure.ends
        if self.kind == "max_drop":
            return lowest - highest, highest - lowest
        return (-highest, -lowest) if self.measure.lower_is_better else (lowest, highest)

    @cached_property
    def pairs(self) -> list[Observation]:
        """Those of its group."""
        return [pair for pair in self.observations if pair.is_in(self.group)]

    @cached_property
    def estimate(self) -> Estimate | None:
        return estimate_group(self.group, self.observations)

    @property
    def p(self) -> float:
        """The p value of a breach of the limit."""
        return 1.0 if self.estimate is None else self.estimate.p_below(self.threshold)

    def p_of_pass(self, estimate: Estimate) -> float:
        """The p value of "the limit is breached": without an assumption for a bounded measure, by
        Student's t and the sign-flip test for others.
        """
        if self.measure.is_bounded:
            return estimate.p_shown_above(self.threshold, *self.ends)
        return estimate.p_above(self.threshold)


@dataclass(frozen=True)
class _Family:
    """Gates of one kind, which share one chance of a false alarm."""

    kind: MeanGate
    settings: results.GateOptions
    limits: Mapping[str, float]
    samples: Samples
    measures: Mapping[str, Measure]
    is_judge_tried: bool
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
        rules = self._rules()
        p_values = holm.holm([rule.p for rule in rules])
        gates = [self._gate(rule, p) for rule, p in zip(rules, p_values, strict=True)]
        fills = list(self._fills(rules))
        for position, (rule, gate) in enumerate(zip(rules, gates, strict=True)):
            missing = sum(pair.value is None for pair in rule.observations)
            if not missing:
                continue
            if gate.warns:
                warns = all(self._only_warns(*tests[position]) for tests in fills)
                gates[position] = replace(gate, warns=warns)
            elif any(self._turns(gate, *tests[position]) for tests in fills):
                what = "score" if Field.parse(rule.field).measure == SCORE else "value"
                why = (
                    f"{sanitize.counted(missing, 'pair')} without a {what} could turn this "
                    f"{gate.state}: {gate.why}"
                )
                gates[position] = replace(gate, state="INCONCLUSIVE", why=why)
        return gates

    def _rules(self) -> list[_Rule]:
        rules = []
        for field, limit in self.limits.items():
            name = Field.parse(field).measure
            rules.append(
                _Rule.of(
                    self.kind,
                    field,
                    limit,
                    self.measures.get(name, Measure()),
                    self.samples.get(name, ()),
                    self.settings.margin,
                )
            )
        return rules

    def _fills(self, rules: Sequence[_Rule]) -> Iterator[list[tuple[_Rule, float]]]:
        """Yield rules whose pairs all have a value, with their p values after Holm."""
        if all(pair.value is not None for rule in rules for pair in rule.observations):
            return
        for step in range(STEPS + 1):
            tests = [
                replace(rule, observations=filled(rule.observations, step / STEPS))
                for rule in rules
            ]
            yield list(zip(tests, holm.holm([rule.p for rule in tests]), strict=True))

    def _turns(self, gate: results.GateResult, rule: _Rule, p: float) -> bool:
        """Tell whether a gate would be in another state by a rule with filled values.

        A PASS that rests on doubt (not `strict`) also turns if their mean is more than `margin`
        beyond the limit. Nothing is known of missing values of a measure without ends.
        """
        if gate.state in ("INVALID", "INCONCLUSIVE"):
            return False
        if not rule.measure.is_bounded:
            return any(pair.value is None for pair in rule.pairs)
        state = self._state(rule, p)
        if self.settings.strict or "FAIL" in (gate.state, state):
            return gate.state != state
        return rule.estimate is not None and rule.estimate.mean < rule.threshold - rule.margin

    def _only_warns(self, rule: _Rule, p: float) -> bool:
        """Tell whether a gate is inconclusive, and nothing speaks of ruin."""
        if rule.estimate is None or self._state(rule, p) != "INCONCLUSIVE":
            return False
        return not self._ruin(rule, rule.estimate)

    def _state(self, rule: _Rule, p: float) -> results.State:
        if rule.estimate is None:
            return "INVALID"
        is_unchanged = all(pair.alike and pair.value == 0 for pair in rule.pairs)
        if is_unchanged or rule.threshold <= rule.ends[0]:  # no value is under the lowest
            return "PASS"
        if p <= self.settings.alpha_of(self.kind):
            return "FAIL"
        if rule.p_of_pass(rule.estimate) <= self.alpha:
            return "PASS"
        if not self.settings.strict and self._finds_margin(rule, rule.estimate):
            return "PASS"
        return "INCONCLUSIVE"

    def _finds_margin(self, rule: _Rule, estimate: Estimate) -> bool:
        """Tell whether so many pairs would find a mean `margin` beyond the limit."""
        mde = estimate.mde(self.alpha)
        return mde is not None and mde <= rule.margin

    def _gate(self, rule: _Rule, p: float) -> results.GateResult:
        estimate, limit, measure = rule.estimate, rule.limit, rule.measure
        is_mean = self.kind == "fail_under"
        if estimate is None:
            name = Field.parse(rule.field).measure
            what = f"mean {name}" if is_mean else "mean difference"
            why = f"{rule.field} has no {what} in this run"
            return results.GateResult(rule.field, self.kind, limit, None, "INVALID", why)
        mean = rule.sign * estimate.mean
        state = self._state(rule, p)
        before = means_before([rule.group], rule.observations).get(rule.group)
        why = describe_mean(
            self.kind,
            rule.field,
            mean,
            self.baseline,
            None if before is None else rule.sign * before,
            measure.decimals,
        )
        if state == "PASS" and estimate.mean < rule.threshold:
            breach = f"a {'rise' if measure.lower_is_better else 'drop'} of more than"
            if is_mean:
                breach = "over" if measure.lower_is_better else "under"
            why += f", not shown to be {breach} {limit:g} ({sanitize.p_value(p)})"
        else:
            why += relate_to_limit(self.kind, mean, limit, measure.lower_is_better)
        if state == "FAIL":
            p_value = sanitize.p_value(p)
            why += f" ({p_value})" if is_mean else f", {p_value}"
        elif state == "INCONCLUSIVE":
            why += f": {self._reason(rule, estimate)}"
        ruin = self._ruin(rule, estimate) if state == "INCONCLUSIVE" else ""
        if ruin:
            why += f"; {ruin}"
        return results.GateResult(
            rule.field,
            self.kind,
            limit,
            mean,
            state,
            why,
            p,
            mde=estimate.mde(self.alpha),
            warns=state == "INCONCLUSIVE" and not ruin,
        )

    def _ruin(self, rule: _Rule, estimate: Estimate) -> str:
        """Say why an inconclusive gate is more than a warning: its mean is far beyond the limit, or
        nothing shows that the judge looks at edits. An empty text if nothing speaks of ruin.
        """
        beyond = rule.threshold - estimate.mean
        if self.kind == "fail_under" and beyond > rule.margin:
            margin = f" by more than gates.margin ({rule.margin:g})" if rule.margin else ""
            return f"the mean is beyond the limit{margin}"
        if estimate.mde(self.alpha) is not None:
            return ""
        collapse = self.settings.collapse * _point(rule.measure)
        if self.kind == "max_drop" and beyond > 0 and 0 < collapse <= -estimate.mean:
            return f"the mean fell by gates.collapse ({collapse:g}) or more"
        values = {pair.value for pair in rule.pairs if pair.value is not None}
        has_spread = estimate.se != 0 and len(values) > 1
        if has_spread or self.is_judge_tried:
            return ""
        return "no trial shows that the judge tells edits apart"

    def _reason(self, rule: _Rule, estimate: Estimate) -> str:
        """Say why these pairs do not decide a gate: that nothing could have, or what they would
        miss, and what would decide.
        """
        if reason := hindrance(estimate, self.alpha):
            if reason.startswith("too few"):
                alpha = self.settings.alpha_of(self.kind)
                reason += f" to show anything at alpha {alpha:g}"
                reason += "" if self.settings.until == "all" else ", what the looks left of it"
            return f"{reason}: nothing could have failed"
        mde = estimate.mde(self.alpha)
        if mde is None:
            return (
                f"no spread seen in {estimate.clusters} {_unit(estimate)} (nothing says what "
                "others would give): nothing could have failed"
            )
        missed = self._missed(rule, estimate, mde)
        if self.settings.strict:
            missed = f"not shown (gates.strict); {missed}"
        needed = self._pairs_needed(rule)
        if needed is None:
            return f"{missed}; 16 times the pairs would not decide"
        seeds = ""
        if self.kind == "max_drop":
            edits = max(pair.seeds for pair in rule.pairs)
            seeds = f", or {math.ceil(needed / estimate.n) * edits} seeds,"
        shown = mde * math.sqrt(estimate.n / needed)
        return (
            f"{missed}; about {needed} pairs like these{seeds} would decide, and show {shown:.2g}"
        )

    def _missed(self, rule: _Rule, estimate: Estimate, mde: float) -> str:
        """Say which breach of the limit these pairs may have missed."""
        decimals = rule.measure.decimals
        pairs = sanitize.counted(estimate.n, "pair")
        furthest = rule.sign * (rule.threshold - mde)
        if self.kind == "fail_under":
            beyond = "over" if rule.measure.lower_is_better else "under"
            return (
                f"not shown to be {beyond} it; a mean of {furthest:.{decimals}f} may be missed "
                f"with {pairs}"
            )
        drop = "rise" if rule.measure.lower_is_better else "drop"
        more = f" of more than {rule.limit:g}" if rule.limit else ""
        return (
            f"no {drop}{more} shown; one of up to {rule.limit + mde:.{decimals}f} may be missed "
            f"with {pairs}"
        )

    def _pairs_needed(self, rule: _Rule) -> int | None:
        """Simulate how many pairs like these would decide a gate in 80% of runs.

        Simulated runs of more pairs know no more of the spread of a category of few.
        """
        pairs = [pair for pair in rule.pairs if pair.value is not None]
        needs_proof = self.settings.strict or not rule.measure.is_bounded

        def decides(drawn: list[tuple[Observation, str]]) -> bool:
            found = estimate(
                [pair.value for pair, _ in drawn if pair.value is not None],
                [name for _, name in drawn],
                [pair.category for pair, _ in drawn] if rule.group == OVERALL else None,
                enough=ENOUGH * len(drawn) / len(pairs),
            )
            if found.student_below(rule.threshold) <= self.alpha:
                return True
            if needs_proof:
                return rule.p_of_pass(found) <= self.alpha
            return self._finds_margin(rule, found)

        return planning.pairs_needed(
            pairs,
            lambda pair: pair.cluster,
            lambda pair: pair.category,
            decides,
            planning.POWER if needs_proof else planning.POWER_OF_SPREAD,
        )


def filled(observations: Sequence[Observation], part: float) -> list[Observation]:
    """Give those without a value the one this `part` of the way from their lowest to their
    highest, if these are finite.
    """
    return [
        replace(pair, value=pair.lowest + part * (pair.highest - pair.lowest))
        if pair.value is None and math.isfinite(pair.highest - pair.lowest)
        else pair
        for pair in observations
    ]
