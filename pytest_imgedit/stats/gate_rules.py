"""Gates on means of measures and on their drops: when one fails, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from pytest_imgedit.core import results
from pytest_imgedit.core.measures import OVERALL, SCORE_ONLY, WINS_ONLY, Field
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.text import counted, first_of, p_value
from pytest_imgedit.stats import holm, planning
from pytest_imgedit.stats.estimates import ENOUGH, Estimate, estimate
from pytest_imgedit.stats.gate_limits import KINDS, Limit, MeanGate
from pytest_imgedit.stats.gate_values import (
    Observation,
    cluster_unit,
    estimate_group,
    filled,
    hindrance,
    means_before,
)

#: Observations by measure.
Samples = Mapping[str, Sequence[Observation]]
#: Steps in which the missing values of pairs are moved from the lowest possible to the highest.
STEPS = 20


def fail_under(
    settings: results.GateOptions,
    samples: Samples,
    measures: Mapping[str, Measure] = SCORE_ONLY,
    is_judge_tried: bool = False,
) -> list[results.GateResult]:
    """Evaluate all `--imgedit-fail-under` gates: H0 of each is that the true mean is not under its
    limit, or where lower is better not over it.

    `is_judge_tried` says that the judge has passed its trial: then equal scores may be true.
    """
    rules = rules_of("fail_under", settings, samples, measures, is_judge_tried=is_judge_tried)
    return evaluate(rules)


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
    rules = rules_of(
        "max_drop",
        settings,
        differences,
        measures,
        is_judge_tried=is_judge_tried,
        baseline=baseline,
    )
    return evaluate(rules)


def min_win(
    settings: results.GateOptions,
    wins: Samples,
    baseline: str,
    measures: Mapping[str, Measure] = WINS_ONLY,
    is_judge_tried: bool = False,
) -> list[results.GateResult]:
    """Evaluate all `--imgedit-min-win` gates: H0 of each is that the true share of duels that a
    field wins against `baseline` is not under its limit.

    `wins` and `measures` are those of duels, on a scale from 0 to 1. `is_judge_tried` says that the
    judge has passed its trial by duels.
    """
    rules = rules_of(
        "min_win", settings, wins, measures, is_judge_tried=is_judge_tried, baseline=baseline
    )
    return evaluate(rules)


def rules_of(
    kind: MeanGate,
    settings: results.GateOptions,
    samples: Samples,
    measures: Mapping[str, Measure],
    *,
    is_judge_tried: bool,
    baseline: str = "",
) -> list[Rule]:
    """Return the rules of all gates of a kind, for `evaluate`.

    A measure that `measures` lacks has no known scale; one that `samples` lacks has no
    observations. `baseline` names what drops are measured against, or what duels are with.
    """
    limits: Mapping[str, float] = getattr(settings, kind)
    rules = []
    for field, value in limits.items():
        name = Field.parse(field).measure
        measure = measures.get(name, Measure())
        observations = samples.get(name, ())
        if measure.lower_is_better:
            observations = [pair.negated for pair in observations]
        rule = Rule(
            limit=KINDS[kind](field=field, value=value, measure=measure, baseline=baseline),
            observations=observations,
            settings=settings,
            is_judge_tried=is_judge_tried,
        )
        rules.append(rule)
    return rules


def evaluate(rules: Sequence[Rule]) -> list[results.GateResult]:
    """Evaluate all gates of a kind, which share one chance of a false alarm; pairs without a value
    that could turn a gate leave it inconclusive.

    These pairs are given the values at each of `STEPS` steps from their lowest to their highest,
    all at the same time. The two ends alone would not do, since an outlier widens the interval.
    """
    gates = [rule.gate(p) for rule, p in _with_p_values(rules)]
    if all(rule.is_complete for rule in rules):
        return gates
    steps = []
    for step in range(STEPS + 1):
        filled_rules = [rule.filled(step / STEPS) for rule in rules]
        steps.append(_with_p_values(filled_rules))
    for position, rule in enumerate(rules):
        if not rule.is_complete:
            filled_rules_of_gate = [rules_of_step[position] for rules_of_step in steps]
            gates[position] = _allow_for_missing(gates[position], rule, filled_rules_of_gate)
    return gates


def _with_p_values(rules: Sequence[Rule]) -> list[tuple[Rule, float]]:
    """Return the rules of a kind with their p values after Holm's correction."""
    p_values = holm.holm([rule.p for rule in rules])
    return list(zip(rules, p_values, strict=True))


def _allow_for_missing(
    gate: results.GateResult, rule: Rule, filled_rules: Sequence[tuple[Rule, float]]
) -> results.GateResult:
    """Return a gate, INCONCLUSIVE if any of the filled rules, with their p values, would turn it.

    A gate that warns stays a warning only if it is one by all of them; otherwise it says that the
    missing values are why it is none.
    """
    pairs = f"{counted(rule.missing, 'pair')} without a {rule.limit.value_name}"
    if gate.warns:
        if all(other.only_warns(p) for other, p in filled_rules):
            return gate
        assert gate.p is not None, "a gate that warns has an estimate"
        why = f"{pairs} could turn this warning: {rule.gate(gate.p, advises=False).why}"
        return replace(gate, warns=False, why=why)
    if not any(other.turns(gate, p) for other, p in filled_rules):
        return gate
    why = f"{pairs} could turn this {gate.state}: {gate.why}"
    return replace(gate, state="INCONCLUSIVE", why=why)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One gate: the mean of a measure over a group of pairs against a limit.

    `observations` are those of the measure, negated where lower is better, so that the gate fails
    if their mean is under the threshold of the `limit`.
    """

    limit: Limit
    observations: Sequence[Observation]
    settings: results.GateOptions
    is_judge_tried: bool

    @property
    def is_complete(self) -> bool:
        """Whether every pair has a value."""
        return all(pair.value is not None for pair in self.observations)

    @property
    def missing(self) -> int:
        """The number of pairs without a value: in its group, or if all of these have one, in all
        groups, whose gates share its chance of a false alarm.
        """
        in_group = sum(pair.value is None for pair in self.pairs)
        return in_group or sum(pair.value is None for pair in self.observations)

    def filled(self, part: float) -> Rule:
        """Return the rule with missing values filled as by `gate_values.filled`."""
        return replace(self, observations=filled(self.observations, part))

    @property
    def family_alpha(self) -> float:
        """The chance of a false alarm that all gates of the kind share."""
        return self.settings.alpha_of(self.limit.kind)

    @property
    def alpha(self) -> float:
        """The share of `family_alpha` that each gate has where all must be shown."""
        return self.family_alpha / len(getattr(self.settings, self.limit.kind))

    @property
    def margin(self) -> float:
        """`gates.margin` on the measure's own scale."""
        return self.settings.margin * _point(self.limit.measure)

    @cached_property
    def pairs(self) -> list[Observation]:
        """The observations of its group."""
        group = self.limit.group
        return [pair for pair in self.observations if pair.is_in(group)]

    @cached_property
    def estimate(self) -> Estimate | None:
        return estimate_group(self.limit.group, self.observations)

    @property
    def p(self) -> float:
        """The p value of "the limit is not breached"; 1 without an estimate."""
        if self.estimate is None:
            return 1.0
        return self.estimate.p_below(self.limit.threshold)

    def p_of_pass(self, estimate: Estimate) -> float:
        """Return the p value of "the limit is breached": without an assumption for a bounded
        measure, by Student's t and the sign-flip test for others.
        """
        threshold = self.limit.threshold
        if not self.limit.measure.is_bounded:
            return estimate.p_above(threshold)
        lowest, highest = self.limit.ends
        return estimate.p_shown_above(threshold, lowest, highest)

    def finds_margin(self, estimate: Estimate) -> bool:
        """Tell whether the pairs of an estimate would find a mean `margin` beyond the limit."""
        mde = estimate.mde(self.alpha)
        return mde is not None and mde <= self.margin

    def ruin(self, estimate: Estimate) -> str:
        """Say why an inconclusive gate is more than a warning: its mean is far beyond the limit, or
        nothing shows that the judge looks at edits. An empty text if nothing speaks of ruin.
        """
        can_detect = estimate.mde(self.alpha) is not None
        far_beyond = self.limit.ruin(
            estimate.mean,
            margin=self.margin,
            collapse=self.settings.collapse * _point(self.limit.measure),
            can_detect=can_detect,
        )
        if far_beyond:
            return far_beyond
        if can_detect or self.is_judge_tried or self._has_spread(estimate):
            return ""
        return "no trial shows that the judge tells edits apart"

    def _has_spread(self, estimate: Estimate) -> bool:
        values = {pair.value for pair in self.pairs if pair.value is not None}
        return estimate.se != 0 and len(values) > 1

    def state(self, p: float) -> results.State:
        """Decide the gate. Here and below `p` is the rule's, after Holm's correction over the rules
        of its kind.

        PASS is what cannot fail, what is shown to be within the limit, and without `gates.strict`
        what would have been found if it were `margin` beyond. Without an estimate it is INVALID.
        """
        estimate = self.estimate
        if estimate is None:
            return "INVALID"
        unchanged = self.limit.unchanged
        is_unchanged = all(pair.alike and pair.value == unchanged for pair in self.pairs)
        lowest, _ = self.limit.ends
        # no value is under the lowest
        if self.limit.threshold <= (unchanged if is_unchanged else lowest):
            return "PASS"
        if p <= self.family_alpha:
            return "FAIL"
        if self.p_of_pass(estimate) <= self.alpha:
            return "PASS"
        if not self.settings.strict and self.finds_margin(estimate):
            return "PASS"
        return "INCONCLUSIVE"

    def only_warns(self, p: float) -> bool:
        """Tell whether the gate is inconclusive, and nothing speaks of ruin."""
        if self.estimate is None or self.state(p) != "INCONCLUSIVE":
            return False
        return not self.ruin(self.estimate)

    def turns(self, gate: results.GateResult, p: float) -> bool:
        """Tell whether a gate would be in another state by this rule, whose values are filled.

        A gate that is INVALID or INCONCLUSIVE does not turn. Missing values of a measure without
        ends could be anything, and turn it. A FAIL turns into any other state, a PASS into a FAIL.
        A PASS turns into INCONCLUSIVE under `gates.strict`; otherwise it also turns where the mean
        is more than `margin` beyond the limit.
        """
        if gate.state in ("INVALID", "INCONCLUSIVE"):
            return False
        if not self.limit.measure.is_bounded:
            return any(pair.value is None for pair in self.pairs)
        state = self.state(p)
        if self.settings.strict or "FAIL" in (gate.state, state):
            return gate.state != state
        furthest = self.limit.threshold - self.margin
        return self.estimate is not None and self.estimate.mean < furthest

    def gate(self, p: float, advises: bool = True) -> results.GateResult:
        """Return the result of the gate, from the pairs that have a value; INVALID if they give no
        mean. If it `advises`, an inconclusive one says how many pairs would decide.
        """
        limit = self.limit
        estimate = self.estimate
        if estimate is None:
            why = self._why_unknown()
            return results.GateResult(
                limit.field, limit.kind, limit.value, value=None, state="INVALID", why=why
            )
        state = self.state(p)
        ruin = self.ruin(estimate) if state == "INCONCLUSIVE" else ""
        return results.GateResult(
            limit.field,
            limit.kind,
            limit.value,
            value=_oriented(estimate.mean, limit.measure),
            state=state,
            why=self._why(estimate, state, p, ruin, advises),
            p=p,
            mde=estimate.mde(self.alpha),
            warns=state == "INCONCLUSIVE" and not ruin,
        )

    def _why_unknown(self) -> str:
        """Say what the field lacks; of `overall`, which of several categories do."""
        limit = self.limit
        known = {pair.category for pair in self.pairs if pair.value is not None}
        lacking = in_order(pair.category for pair in self.pairs if pair.category not in known)
        if not known or not lacking:
            return f"{limit.field} has no {limit.mean_name} in this run"
        have = "has" if len(lacking) == 1 else "have"
        return (
            f"{limit.field} cannot be computed: {first_of(lacking)} {have} no {limit.mean_name} in "
            "this run"
        )

    def _why(
        self, estimate: Estimate, state: results.State, p: float, ruin: str, advises: bool
    ) -> str:
        """Report the mean and how it stands to the limit; if the gate is inconclusive, also why it
        is, and the `ruin` if there is one.
        """
        limit = self.limit
        mean = _oriented(estimate.mean, limit.measure)
        before = means_before([limit.group], self.observations).get(limit.group)
        if before is not None:
            before = _oriented(before, limit.measure)
        why = limit.observed(mean, before)
        if state == "PASS" and estimate.mean < limit.threshold:
            return why + limit.not_shown(p_value(p))
        why += limit.relation(mean)
        if state == "FAIL":
            why += limit.shown(p_value(p))
        elif state == "INCONCLUSIVE":
            why += f": {self._why_open(estimate, advises)}"
        if ruin:
            why += f"; {ruin}"
        return why

    def pairs_needed(self) -> int | None:
        """Return how many pairs like these would decide the gate in 80% of runs, by simulation;
        `None` if 16 times as many would not.

        Simulated runs of more pairs know no more of the spread of a category of few.
        """
        pairs = [pair for pair in self.pairs if pair.value is not None]
        needs_proof = self.settings.strict or not self.limit.measure.is_bounded

        def decides(drawn: list[tuple[Observation, str]]) -> bool:
            """Tell whether pairs of a simulated run, with their clusters, decide the gate."""
            values = [pair.value for pair, _ in drawn if pair.value is not None]
            clusters = [cluster for _, cluster in drawn]
            categories = None
            if self.limit.group == OVERALL:
                categories = [pair.category for pair, _ in drawn]
            # a category that has few clusters here counts as one of few in the larger run
            enough = ENOUGH * len(drawn) / len(pairs)
            drawn_estimate = estimate(values, clusters, categories, enough)
            if drawn_estimate.student_below(self.limit.threshold) <= self.alpha:
                return True
            if needs_proof:
                return self.p_of_pass(drawn_estimate) <= self.alpha
            return self.finds_margin(drawn_estimate)

        share = planning.POWER if needs_proof else planning.POWER_OF_SPREAD
        return planning.pairs_needed(
            pairs, attrgetter("cluster"), attrgetter("category"), decides, share
        )

    def _why_open(self, estimate: Estimate, advises: bool) -> str:
        """Say why these pairs do not decide the gate: that nothing could have, or what they would
        miss, and if it `advises`, what would decide.
        """
        reason = hindrance(estimate, self.alpha)
        if reason:
            if reason.startswith("too few"):
                reason += self._why_too_few()
            return f"{reason}: nothing could have failed"
        mde = estimate.mde(self.alpha)
        if mde is None:
            sources = f"{estimate.clusters} {cluster_unit(estimate)}"
            return (
                f"no spread seen in {sources} (nothing says what others would give): nothing could "
                "have failed"
            )
        missed = self.limit.missed(mde, counted(estimate.n, "pair"))
        if self.settings.strict:
            missed = f"not shown (gates.strict); {missed}"
        if not advises:
            return missed
        needed = self.pairs_needed()
        if needed is None:
            return f"{missed}; 16 times the pairs would not decide"
        seeds = ""
        if self.limit.gains_from_seeds:
            most = max(pair.seeds for pair in self.pairs)
            seeds = f", or {math.ceil(needed / estimate.n) * most} seeds,"
        shown = mde * math.sqrt(estimate.n / needed)  # an MDE is in proportion to 1/√pairs
        advice = f"about {needed} pairs like these{seeds} would decide, and show {shown:.2g}"
        return f"{missed}; {advice}"

    def _why_too_few(self) -> str:
        """Return what completes `hindrance`: the α that the sources are too few for."""
        looks = "" if self.settings.until == "all" else ", what the looks left of it"
        return f" to show anything at alpha {self.family_alpha:g}{looks}"


def _point(measure: Measure) -> float:
    """Return what a point of a scale of ten is on the measure's own; 0 if that has no ends."""
    if not measure.is_bounded:
        return 0.0
    lowest, highest = measure.ends
    return (highest - lowest) / 10


def _oriented(mean: float, measure: Measure) -> float:
    """Return a mean of oriented values as one of the measure, or the other way round."""
    return -mean if measure.lower_is_better else mean
