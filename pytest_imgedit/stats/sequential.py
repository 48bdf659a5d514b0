"""Gates that are decided as scores come in: e-processes, which hold at whatever time one looks and
stops.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.core.results import GateOptions, GateResult
from pytest_imgedit.core.sanitize import p_value
from pytest_imgedit.stats.bounded import BETS
from pytest_imgedit.stats.gates import Observation, Words, estimate_field, means_before

Floats = NDArray[np.float64]
Side = Literal[1, -1]
Kind = Literal["fail_under", "max_drop"]

#: Parts at most into which a run's pairs are divided.
MOST = 20
#: Slopes of the bets on differences over which evidence is averaged, per standard deviation of
#: those seen before, which counts as at least `LEAST` points, and as `FIRST` before any was seen.
SLOPES = np.array([0.1, 0.2, 0.4, 0.8])
LEAST, FIRST = 0.05, 1.0
#: Share of α that is spent on all looks; the rest is left to the gates at the end.
LOOKS = 0.75
#: Ends of the scales of scores and of their differences.
SCALES = {"fail_under": (0.0, 10.0), "max_drop": (-10.0, 10.0)}


@dataclass(frozen=True)
class Place:
    """Where a planned pair stands: its source and its category."""

    pair: str
    cluster: str
    category: str


def in_parts(places: Sequence[Place]) -> list[list[Place]]:
    """Divide pairs, in an order that their sources' hashes decide, into at most `MOST` parts alike
    in categories.

    Pairs of one source stay together, and every part has pairs of every category.
    """
    members: defaultdict[str, list[Place]] = defaultdict(list)
    for place in places:
        members[place.cluster].append(place)
    strata: defaultdict[frozenset[str], list[list[Place]]] = defaultdict(list)
    for _, group in sorted(
        members.items(), key=lambda one: hashlib.sha256(one[0].encode()).digest()
    ):
        strata[frozenset(place.category for place in group)].append(group)
    categories = {place.category for place in places}
    for count in range(MOST, 1, -1):
        parts: list[list[Place]] = [[] for _ in range(count)]
        for groups in strata.values():
            for number, group in enumerate(groups):
                parts[int((number + 0.5) / len(groups) * count)] += group
        if all({place.category for place in part} == categories for part in parts):
            return parts
    return [list(places)]


def weights_of(parts: Sequence[Sequence[Place]], field: str) -> list[dict[str, float]]:
    """What each pair of each part counts in the mean of a field; the most that a source counts in a
    part is 1.

    In `overall` the categories of a part weigh the same, and parts weigh as many pairs as they
    have, so that each part alone has the macro mean that is tested.
    """
    found = []
    for part in parts:
        sizes = Counter(place.category for place in part)
        weights = dict.fromkeys((place.pair for place in part if place.category == field), 1.0)
        if field == "overall":
            share = len(part) / len(sizes)
            weights = {place.pair: share / sizes[place.category] for place in part}
        found.append(weights)
    largest = 0.0
    for part, weights in zip(parts, found, strict=True):
        of_cluster: Counter[str] = Counter()
        for place in part:
            of_cluster[place.cluster] += weights.get(place.pair, 0.0)  # type: ignore[assignment]
        largest = max(largest, *of_cluster.values())
    return [{pair: weight / largest for pair, weight in weights.items()} for weights in found]


@dataclass
class Evidence:
    """An e-value, of the parts seen so far, that a mean is above (`side` 1) or below (-1) a limit;
    valid at any stop.

    Each source bets what its pairs weigh. On values within a `scale` a bet that is linear in them
    gains nothing by chance, however they are distributed (Waudby-Smith and Ramdas, JRSS B 2024).
    Without one, values are taken to be symmetric about their mean, as the sign-flip test takes
    differences to be: then 1 + tanh(slope·x) gains nothing (it is 2/(1 + exp(-2·slope·x))), and
    small moves of all pairs are seen early.
    """

    side: Side
    limit: float
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self._before = np.zeros(0)
        self._logs = np.zeros(len(SLOPES if self.scale is None else BETS))

    @property
    def value(self) -> float:
        return float(np.exp(min(700.0, np.logaddexp.reduce(self._logs) - np.log(len(self._logs)))))

    def see(
        self, part: Sequence[Place], weights: Mapping[str, float], values: Mapping[str, Observation]
    ) -> None:
        """Take the values of a part, by pair; one without a value has that which speaks most
        against the claim.
        """
        sums: defaultdict[str, float] = defaultdict(float)
        for place in part:
            if place.pair in weights:
                one = values[place.pair]
                if one.value is not None:
                    value = one.value
                elif self.side == 1:
                    value = one.lowest
                else:
                    value = one.highest
                sums[place.cluster] += weights[place.pair] * (value - self.limit)
        moves = self.side * np.array([*sums.values()])
        if self.scale is None:
            scale = max(LEAST, float(np.std(self._before))) if len(self._before) > 1 else FIRST
            gains = np.tanh(np.clip(SLOPES[:, None] * moves / scale, -15, 15))
        else:
            room = self.limit - self.scale[0] if self.side == 1 else self.scale[1] - self.limit
            gains = BETS[:, None] * moves / room if room > 0 else 0 * moves
        self._logs = self._logs + np.log1p(gains).sum(axis=-1)
        self._before = np.append(self._before, moves)


class Looks:
    """The gates of a kind, looked at part by part.

    A gate fails where the mean is shown to be beyond the limit. It passes where it is shown not to
    be, or, without `gates.strict`, where it is shown not to be by `gates.margin` and nothing speaks
    for a breach (no e-value over 1). Where that rests on symmetry, Student's t and the sign-flip
    test must agree. Nothing is decided by fewer source images than the gates at the end take, nor
    by differences without any spread, unless all edits are the baseline's.
    """

    def __init__(
        self, kind: Kind, settings: GateOptions, parts: Sequence[Sequence[Place]], against: str = ""
    ) -> None:
        self.kind, self.settings, self.parts = kind, settings, parts
        self.against, self.limits = against, dict(getattr(settings, kind))
        self.decided: dict[str, GateResult] = {}
        self._sign = 1 if kind == "fail_under" else -1
        self._weights = {field: weights_of(parts, field) for field in self.limits}
        scale = SCALES[kind]
        assumed = scale if kind == "fail_under" else None
        self._evidence = {
            field: [
                Evidence(-1, self._sign * limit, assumed),
                Evidence(1, self._sign * limit, scale),
                Evidence(1, self._sign * limit - settings.margin, assumed),
            ]
            for field, limit in self.limits.items()
        }
        self._seen: list[Observation] = []

    def see(self, number: int, values: Mapping[str, Observation]) -> None:
        """Take the values, by pair, of the part of this number, which follows on those seen."""
        part = self.parts[number]
        self._seen += [values[place.pair] for place in part]
        for field, claims in self._evidence.items():
            for claim in claims:
                claim.see(part, self._weights[field][number], values)
            if field in self.decided:
                gate = None
            else:
                gate = self._look(field, *(claim.value for claim in claims))
            if gate is not None:
                self.decided[field] = gate

    def _look(self, field: str, fails: float, passes: float, within: float) -> GateResult | None:
        limit, settings, planned = self.limits[field], self.settings, sum(map(len, self.parts))
        needed = len(self.limits) / (LOOKS * settings.alpha_of(self.kind))
        if self.kind == "fail_under" and limit <= settings.margin:
            within = float("inf")
        near = not settings.strict and fails <= 1 + 1e-9 and within >= needed
        found = estimate_field(field, self._seen) if near or max(fails, passes) >= needed else None
        alpha, threshold = settings.alpha_of(self.kind) / len(self.limits), self._sign * limit
        if found is None or not found.can_show(alpha):
            return None
        state: Literal["PASS", "FAIL"] = "FAIL" if fails >= needed else "PASS"
        if self.kind == "max_drop" and not all(one.alike and one.value == 0 for one in self._seen):
            if state == "FAIL":
                known = found.p_below(threshold)
            else:
                known = found.p_above(threshold - settings.margin)
            if passes < needed and (not found.se or known > alpha):
                return None
        shown = within
        if state == "FAIL":
            shown = fails
        elif passes >= needed:
            shown = passes
        p = min(1.0, len(self.limits) / (LOOKS * shown))
        words = Words(
            self.kind,
            self.against,
            means_before([field], self._seen) if self.kind == "max_drop" else {},
        )
        why = words.measured(field, found.mean) + words.related(found.mean, limit)
        if state == "PASS" and passes < needed:
            how = f"not more than {settings.margin:g} beyond the limit, "
        else:
            how = ""
        why += f": {how}shown with {len(self._seen)} of {planned} pairs ({p_value(p)})"
        return GateResult(field, self.kind, limit, found.mean, state, why, p)


def at_the_end(settings: GateOptions) -> GateOptions:
    """Return the settings of gates that no look decided: what is left of α."""
    if settings.until == "all":
        return settings
    return settings.model_copy(update={"alpha": settings.alpha * (1 - LOOKS)})
