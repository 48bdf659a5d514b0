"""Gates that are decided as scores come in: e-processes, which hold at whatever time one looks and
stops.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np

from pytest_imgedit.core import results, sanitize
from pytest_imgedit.core.measures import OVERALL, SCORE, Field
from pytest_imgedit.stats import estimates, gates, planning

#: Largest number of parts into which a run's pairs are divided.
MOST = 20
#: Slopes of the bets on differences over which evidence is averaged, per standard deviation of
#: those seen before.
SLOPES = np.array([0.1, 0.2, 0.4, 0.8])
#: Smallest standard deviation of differences, and the one before any were seen, in points.
LEAST, FIRST = 0.05, 1.0
#: Share of α that is spent on all looks; the gates at the end have the rest.
LOOKS = 0.75
#: Ends of the scales of scores and of their differences.
SCALES = {"fail_under": (0.0, 10.0), "max_drop": (-10.0, 10.0)}


@dataclass(frozen=True)
class PlannedPair:
    """A planned pair: its id, its source and its category."""

    id: str
    cluster: str
    category: str


def in_parts(pairs: Sequence[PlannedPair]) -> list[list[PlannedPair]]:
    """Divide pairs into at most `MOST` parts with the same mix of categories.

    The order is that of the hashes of their sources. Pairs of one source stay together, and every
    part has pairs of every category.
    """
    strata = planning.strata_of(
        sorted(pairs, key=lambda pair: hashlib.sha256(pair.cluster.encode()).digest()),
        lambda pair: pair.cluster,
        lambda pair: pair.category,
    )
    categories = {pair.category for pair in pairs}
    for count in range(MOST, 1, -1):
        parts: list[list[PlannedPair]] = [[] for _ in range(count)]
        for groups in strata:
            for number, group in enumerate(groups):
                parts[int((number + 0.5) / len(groups) * count)] += group
        if all({pair.category for pair in part} == categories for part in parts):
            return parts
    return [list(pairs)]


def weights_of(parts: Sequence[Sequence[PlannedPair]], field: str) -> dict[str, float]:
    """Weight of each pair in the mean of a field; the largest sum of the weights of a source is 1.

    In `overall` the categories of a part weigh the same. Parts weigh as many pairs as they have, so
    that each part alone has the macro mean that is tested.
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
    for pair in chain(*parts):
        sums[pair.cluster] += weights.get(pair.id, 0.0)
    largest = max(sums.values())
    return {pair: weight / largest for pair, weight in weights.items()}


@dataclass
class Evidence:
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
        self._before = np.zeros(0)
        self._logs = np.zeros(len(SLOPES if self.scale is None else estimates.BETS))

    @property
    def value(self) -> float:
        return float(np.exp(min(700.0, np.logaddexp.reduce(self._logs) - np.log(len(self._logs)))))

    def see(
        self,
        part: Sequence[PlannedPair],
        weights: Mapping[str, float],
        values: Mapping[str, gates.Observation],
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
        moves = self.side * np.array([*sums.values()])
        if self.scale is None:
            scale = max(LEAST, float(np.std(self._before))) if len(self._before) > 1 else FIRST
            gains = np.tanh(np.clip(SLOPES[:, None] * moves / scale, -15, 15))
        else:
            room = self.limit - self.scale[0] if self.side == 1 else self.scale[1] - self.limit
            gains = estimates.BETS[:, None] * moves / room if room > 0 else 0 * moves
        self._logs = self._logs + np.log1p(gains).sum(axis=-1)
        self._before = np.append(self._before, moves)


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
        kind: gates.MeanGate,
        settings: results.GateOptions,
        parts: Sequence[Sequence[PlannedPair]],
        against: str = "",
    ) -> None:
        self.kind, self.settings, self.parts, self.against = kind, settings, parts, against
        self.limits: Mapping[str, float] = getattr(settings, kind)
        self.decided: dict[str, results.GateResult] = {}
        self._sign = 1 if kind == "fail_under" else -1
        scale = SCALES[kind]
        assumed = scale if kind == "fail_under" else None
        looked_at = {field: limit for field, limit in self.limits.items() if is_looked_at(field)}
        self._weights = {field: weights_of(parts, field) for field in looked_at}
        self._evidence = {
            field: [
                Evidence(-1, self._sign * limit, assumed),
                Evidence(1, self._sign * limit, scale),
                Evidence(1, self._sign * limit - settings.margin, assumed),
            ]
            for field, limit in looked_at.items()
        }
        self._seen: list[gates.Observation] = []

    def see(self, number: int, values: Mapping[str, gates.Observation]) -> None:
        """Take the values, by pair, of the part of this number, which follows those seen."""
        part = self.parts[number]
        self._seen += [values[pair.id] for pair in part if pair.id in values]
        for field, claims in self._evidence.items():
            for claim in claims:
                claim.see(part, self._weights[field], values)
            if field not in self.decided:
                gate = self._look(field, *(claim.value for claim in claims))
                if gate is not None:
                    self.decided[field] = gate

    def _look(
        self, field: str, fails: float, passes: float, within: float
    ) -> results.GateResult | None:
        """Decide a gate by its e-values, if they and the usual tests show enough."""
        limit, settings = self.limits[field], self.settings
        needed = len(self.limits) / (LOOKS * settings.alpha_of(self.kind))
        if self.kind == "fail_under" and limit <= settings.margin:
            within = float("inf")
        state: Literal["PASS", "FAIL"] = "PASS"
        how = ""
        if fails >= needed:
            state, shown = "FAIL", fails
        elif passes >= needed:
            shown = passes
        elif not settings.strict and fails <= 1 + 1e-9 and within >= needed:
            how, shown = f"not more than {settings.margin:g} beyond the limit, ", within
        else:
            return None
        estimate = gates.estimate_group(field, self._seen)
        alpha = settings.alpha_of(self.kind) / len(self.limits)
        if estimate is None or not estimate.can_show(alpha):
            return None
        if (
            self.kind == "max_drop"
            and passes < needed
            and not self._tests_agree(estimate, state, limit, alpha)
        ):
            return None
        p = min(1.0, len(self.limits) / (LOOKS * shown))
        mean = gates.describe_mean(
            self.kind,
            field,
            estimate.mean,
            self.against,
            gates.means_before([field], self._seen).get(field),
        )
        why = (
            f"{mean}{gates.relate_to_limit(self.kind, estimate.mean, limit)}: {how}shown with "
            f"{len(self._seen)} of {sum(map(len, self.parts))} pairs ({sanitize.p_value(p)})"
        )
        return results.GateResult(field, self.kind, limit, estimate.mean, state, why, p)

    def _tests_agree(
        self,
        estimate: estimates.Estimate,
        state: Literal["PASS", "FAIL"],
        limit: float,
        alpha: float,
    ) -> bool:
        """Tell whether tests show a state of a drop too, or all edits are the baseline's."""
        if all(pair.alike and pair.value == 0 for pair in self._seen):
            return True
        if state == "FAIL":
            p = estimate.p_below(-limit)
        else:
            p = estimate.p_above(-limit - self.settings.margin)
        return bool(estimate.se) and p <= alpha


def is_looked_at(field: str) -> bool:
    """Tell whether a gate on a field can be decided before the end."""
    measure, group = Field.parse(field)
    return measure == SCORE and "=" not in group


def at_the_end(settings: results.GateOptions) -> results.GateOptions:
    """Return the settings of gates that no look decided: the rest of α."""
    share = 1 if settings.until == "all" else 1 - LOOKS
    return settings.model_copy(update={"alpha": settings.alpha * share})
