"""Gates that are decided as scores come in: e-processes, which hold at any time of looking."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from pytest_imgedit.core import results
from pytest_imgedit.core.measures import OVERALL, SCORE, SCORE_ONLY, Field
from pytest_imgedit.core.text import p_value
from pytest_imgedit.stats import estimates, gate_values, planning
from pytest_imgedit.stats.gate_limits import KINDS, Limit, MeanGate

#: Largest number of parts into which a run's pairs are divided.
MOST = 20
#: Slopes of the bets on differences over which evidence is averaged, per standard deviation of
#: those seen before.
SLOPES = np.array([0.1, 0.2, 0.4, 0.8])
#: Smallest standard deviation of differences, in points.
LEAST = 0.05
#: Standard deviation of differences before any were seen, in points.
FIRST = 1.0
#: Share of α that is spent on all looks; the gates at the end have the rest.
LOOKS = 0.75


@dataclass(frozen=True)
class PlannedPair:
    """A planned pair: its id, its source and its category."""

    id: str
    cluster: str
    category: str


def in_parts(pairs: Sequence[PlannedPair]) -> list[list[PlannedPair]]:
    """Divide pairs into at most `MOST` parts with the same mix of categories; one part if no more
    are possible.

    The order is that of the hashes of their sources. Pairs of one source stay together, and every
    part has pairs of every category.
    """
    by_hash = sorted(pairs, key=lambda pair: hashlib.sha256(pair.cluster.encode()).digest())
    strata = planning.strata_of(by_hash, attrgetter("cluster"), attrgetter("category"))
    categories = {pair.category for pair in pairs}
    for count in range(MOST, 1, -1):
        parts: list[list[PlannedPair]] = [[] for _ in range(count)]
        for groups in strata:
            for number, group in enumerate(groups):  # spread evenly over the parts
                parts[int((number + 0.5) / len(groups) * count)] += group
        if all({pair.category for pair in part} == categories for part in parts):
            return parts
    return [list(pairs)]


def weights_of(parts: Sequence[Sequence[PlannedPair]], field: str) -> dict[str, float]:
    """Return the weight of each pair that counts in the mean of a field; the largest sum of the
    weights of a source is 1.

    In `overall` the categories of a part weigh the same, and parts weigh as many pairs as they
    have, so that each part alone has the macro mean that is tested. In a category all of its pairs
    weigh the same.
    """
    weights: dict[str, float] = {}
    for part in parts:
        if field == OVERALL:
            sizes = Counter(pair.category for pair in part)
            share = len(part) / len(sizes)
            weights |= {pair.id: share / sizes[pair.category] for pair in part}
        else:
            weights |= {pair.id: 1.0 for pair in part if pair.category == field}
    sums: defaultdict[str, float] = defaultdict(float)
    for pair in chain.from_iterable(parts):
        sums[pair.cluster] += weights.get(pair.id, 0.0)
    largest = max(sums.values())
    return {pair: weight / largest for pair, weight in weights.items()}


@dataclass
class EProcess:
    """An e-value, of the parts seen so far, that a mean is above (`side` 1) or below (-1) a limit;
    valid at any stop.

    Each source bets what its pairs weigh. On values within a `scale` a bet that is linear in them
    gains nothing by chance, whatever their distribution (Waudby-Smith and Ramdas, JRSS B 2024).
    Without a scale, values are assumed to be symmetric about their mean, as in the sign-flip test:
    then 1 + tanh(slope·x) gains nothing (it is 2/(1 + exp(-2·slope·x))), and small moves of all
    pairs are seen early.
    """

    side: Literal[1, -1]
    limit: float
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        bets = SLOPES if self.scale is None else estimates.BETS
        self._logs = np.zeros(len(bets))
        self._before = np.zeros(0)

    @property
    def value(self) -> float:
        """The mean of what all bets have made of a stake of 1."""
        log_mean = np.logaddexp.reduce(self._logs) - np.log(len(self._logs))
        return float(np.exp(min(estimates.LARGEST_LOG, log_mean)))

    def see(
        self,
        part: Sequence[PlannedPair],
        weights: Mapping[str, float],
        values: Mapping[str, gate_values.Observation],
    ) -> None:
        """Take the values of a part, by pair; a missing value counts as the one that speaks most
        against the claim. A pair that is not in `values` says nothing.
        """
        sums: defaultdict[str, float] = defaultdict(float)
        for pair in part:
            if pair.id in weights and pair.id in values:
                observation = values[pair.id]
                worst = observation.lowest if self.side == 1 else observation.highest
                value = worst if observation.value is None else observation.value
                sums[pair.cluster] += weights[pair.id] * (value - self.limit)
        moves = self.side * np.array(list(sums.values()))
        self._logs = self._logs + np.log1p(self._gains(moves)).sum(axis=-1)
        self._before = np.append(self._before, moves)

    def _gains(self, moves: estimates.Floats) -> estimates.Floats:
        """Return the gains of the bets (rows) on the moves of sources away from the limit
        (columns), over -1; 0 where the limit leaves no value on the scale that speaks against the
        claim.
        """
        if self.scale is None:
            scaled = SLOPES[:, None] * moves / self._spread
            # the tanh of 20 is 1 in floating point: no bet may lose all
            return np.tanh(np.clip(scaled, -15, 15))
        lowest, highest = self.scale
        room = self.limit - lowest if self.side == 1 else highest - self.limit
        if room <= 0:
            return np.zeros_like(moves)
        return estimates.BETS[:, None] * moves / room

    @property
    def _spread(self) -> float:
        """The standard deviation of the moves seen before."""
        if len(self._before) < 2:
            return FIRST
        return max(LEAST, float(np.std(self._before)))


@dataclass(frozen=True, kw_only=True)
class _Claims:
    """What is claimed of the mean of one gate: that it is beyond the limit, that it is not, and
    that it is not by `gates.margin`. `weights` are those of the pairs.
    """

    limit: Limit
    weights: Mapping[str, float]
    fails: EProcess
    passes: EProcess
    is_within: EProcess

    @classmethod
    def of(cls, limit: Limit, weights: Mapping[str, float], margin: float) -> _Claims:
        """Start the claims of a gate. That it passes is shown without an assumption; the others
        assume symmetry where the limit does.
        """
        assumed = None if limit.is_symmetric else limit.ends
        return cls(
            limit=limit,
            weights=weights,
            fails=EProcess(-1, limit.threshold, assumed),
            passes=EProcess(1, limit.threshold, limit.ends),
            is_within=EProcess(1, limit.threshold - margin, assumed),
        )

    def see(
        self, part: Sequence[PlannedPair], values: Mapping[str, gate_values.Observation]
    ) -> None:
        for claim in (self.fails, self.passes, self.is_within):
            claim.see(part, self.weights, values)

    @property
    def evidence_within(self) -> float:
        """The e-value of `is_within`; infinite if no value can be under its limit."""
        if self.is_within.scale is not None:
            lowest, _ = self.is_within.scale
            if self.is_within.limit <= lowest:
                return math.inf
        return self.is_within.value


class _Shown(NamedTuple):
    """A state that an e-value shows; `how` qualifies it."""

    state: Literal["PASS", "FAIL"]
    evidence: float
    how: str = ""


class Looks:
    """The gates of a kind, looked at part by part; `against` names the baseline of drops. Looked at
    are those on the score overall and by category; others need all pairs.

    A gate fails where the mean is shown to be beyond the limit. It passes where it is shown not to
    be. Without `gates.strict` it also passes where it is shown not to be by `gates.margin` and
    nothing speaks for a breach (no e-value over 1). Where that rests on symmetry, Student's t and
    the sign-flip test must agree. Nothing is decided by fewer source images than the gates at the
    end need, nor by differences without any spread, unless all edits are the baseline's.
    """

    def __init__(
        self,
        kind: MeanGate,
        settings: results.GateOptions,
        parts: Sequence[Sequence[PlannedPair]],
        against: str = "",
    ) -> None:
        self.kind = kind
        self.settings = settings
        self.parts = parts
        self.decided: dict[str, results.GateResult] = {}
        limits: Mapping[str, float] = getattr(settings, kind)
        self._alpha = settings.alpha_of(kind)
        self._gates = len(limits)
        self._claims: list[_Claims] = []
        self._seen: list[gate_values.Observation] = []
        for field, value in limits.items():
            if is_looked_at(field):
                limit = KINDS[kind](
                    field=field, value=value, measure=SCORE_ONLY[SCORE], baseline=against
                )
                weights = weights_of(parts, field)
                self._claims.append(_Claims.of(limit, weights, settings.margin))

    def see(self, number: int, values: Mapping[str, gate_values.Observation]) -> None:
        """Take the values, by pair, of the part of this number, which follows those seen."""
        part = self.parts[number]
        self._seen += [values[pair.id] for pair in part if pair.id in values]
        for claims in self._claims:
            claims.see(part, values)
            field = claims.limit.field
            if field not in self.decided:
                gate = self._look(claims)
                if gate is not None:
                    self.decided[field] = gate

    def _look(self, claims: _Claims) -> results.GateResult | None:
        """Return the result of a gate if its e-values show a state, and the class's conditions on
        sources and on symmetry hold.
        """
        shown = self._shown(claims)
        if shown is None:
            return None
        limit = claims.limit
        estimate = gate_values.estimate_group(limit.field, self._seen)
        if estimate is None or not estimate.can_show(self._alpha / self._gates):
            return None
        rests_on_symmetry = limit.is_symmetric and claims.passes.value < self._needed
        if rests_on_symmetry and not self._tests_agree(estimate, shown.state, limit):
            return None
        p = min(1.0, self._gates / (LOOKS * shown.evidence))
        before = gate_values.means_before([limit.field], self._seen).get(limit.field)
        mean = limit.observed(estimate.mean, before) + limit.relation(estimate.mean)
        pairs = f"{len(self._seen)} of {sum(map(len, self.parts))} pairs"
        return results.GateResult(
            limit.field,
            limit.kind,
            limit.value,
            estimate.mean,
            shown.state,
            why=f"{mean}: {shown.how}shown with {pairs} ({p_value(p)})",
            p=p,
        )

    @property
    def _needed(self) -> float:
        """The e-value that decides a gate."""
        return self._gates / (LOOKS * self._alpha)

    def _shown(self, claims: _Claims) -> _Shown | None:
        """Return what the e-values of a gate show, if they show a state."""
        fails = claims.fails.value
        if fails >= self._needed:
            return _Shown("FAIL", fails)
        passes = claims.passes.value
        if passes >= self._needed:
            return _Shown("PASS", passes)
        within = claims.evidence_within
        speaks_for_breach = fails > 1 + estimates.ROUNDING
        if self.settings.strict or speaks_for_breach or within < self._needed:
            return None
        return _Shown("PASS", within, f"not more than {self.settings.margin:g} beyond the limit, ")

    def _tests_agree(
        self, estimate: estimates.Estimate, state: Literal["PASS", "FAIL"], limit: Limit
    ) -> bool:
        """Tell whether all edits are the baseline's, or Student's t and the sign-flip test show a
        state of a drop too; without a standard error over 0 they show none.
        """
        if all(pair.alike and pair.value == 0 for pair in self._seen):
            return True
        if state == "FAIL":
            p = estimate.p_below(limit.threshold)
        else:
            p = estimate.p_above(limit.threshold - self.settings.margin)
        return bool(estimate.se) and p <= self._alpha / self._gates


def is_looked_at(field: str) -> bool:
    """Tell whether a gate on a field can be decided before the end."""
    measure, group = Field.parse(field)
    return measure == SCORE and "=" not in group


def at_the_end(settings: results.GateOptions) -> results.GateOptions:
    """Return the settings of gates that no look decided: with the rest of α if there are looks."""
    share = 1 if settings.until == "all" else 1 - LOOKS
    return settings.model_copy(update={"alpha": settings.alpha * share})
