"""What gates on means are decided on: the values of pairs, which gates apply to the selected pairs,
and which of them can fail.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Literal, TypeVar

from pytest_imgedit.config.settings import NO_LOSS, GatesSettings
from pytest_imgedit.core import errors, results
from pytest_imgedit.core.measures import (
    OVERALL,
    SCORE_ONLY,
    Field,
    Measured,
    by_group,
    groups_of,
)
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.text import counted, did_you_mean, first_of
from pytest_imgedit.stats.estimates import ENOUGH, Estimate, estimate
from pytest_imgedit.stats.gate_limits import KINDS, MeanGate

ItemT = TypeVar("ItemT", bound=Measured)
#: Factor on the error of the macro mean over which small categories are named in the plan.
COSTLY = 1.1


@dataclass(frozen=True)
class Observation:
    """One number of one pair: a value of a measure, its difference from a baseline, or the share of
    its duels that a run wins.

    `value` is `None` for a pair without one; it would have been between `lowest` and `highest`.
    `groups` are those beside the category. Of a difference, `alike` says that the pair's edits look
    as in the baseline, `before` is the baseline's value, and `seeds` the number of edits whose
    differences are averaged; of duels, `alike` says that the edits are equal.
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
        return tuple(dict.fromkeys((OVERALL, self.category) + self.groups))

    @property
    def negated(self) -> Observation:
        """The same pair in the measure with the opposite sign."""
        return replace(
            self,
            value=_negative(self.value),
            before=_negative(self.before),
            lowest=-self.highest,
            highest=-self.lowest,
        )


def _negative(number: float | None) -> float | None:
    return None if number is None else -number


def observe(items: Iterable[Measured], name: str, measure: Measure) -> list[Observation]:
    """Return an observation of each item that a measure applies to, with its value, if it has
    one.
    """
    lowest, highest = measure.ends
    observations = []
    for item in measured_by(items, name):
        observation = Observation(
            item.category,
            item.cluster,
            item.value(name),
            lowest=lowest,
            highest=highest,
            groups=groups_of(item),
        )
        observations.append(observation)
    return observations


def measured_by(items: Iterable[ItemT], name: str) -> Iterator[ItemT]:
    """Yield the items that a measure applies to: those with a value, those that failed to get one,
    and those without a score, unless their category has scored items and no value.
    """
    items = list(items)
    has_value = [item.value(name) is not None for item in items]
    scored = {item.category for item in items if item.score is not None}
    valued = {item.category for item in compress(items, has_value)}
    not_measured = scored - valued
    for item, is_valued in zip(items, has_value, strict=True):
        is_missing = item.score is None and item.category not in not_measured
        if is_valued or is_missing or name in item.missing:
            yield item


def estimate_group(group: str, observations: Sequence[Observation]) -> Estimate | None:
    """Estimate the mean over the pairs of a group, or for `overall` the macro mean; `None` if the
    group, or a category in `overall`, has no value.
    """
    pairs = [pair for pair in observations if pair.is_in(group)]
    known = [pair for pair in pairs if pair.value is not None]
    values = [pair.value for pair in known if pair.value is not None]
    clusters = [pair.cluster for pair in known]
    if group != OVERALL:
        return estimate(values, clusters) if known else None
    categories = [pair.category for pair in known]
    if not known or set(categories) != {pair.category for pair in pairs}:
        return None
    return estimate(values, clusters, categories)


def means_before(groups: Iterable[str], differences: Sequence[Observation]) -> dict[str, float]:
    """Return the baseline's mean of each group, over the pairs that have a difference; groups
    without such a mean are left out.
    """
    known = [replace(pair, value=pair.before) for pair in differences if pair.value is not None]
    members = by_group(known, Observation.all_groups)
    estimates = {group: estimate_group(group, members.get(group, ())) for group in groups}
    return {group: before.mean for group, before in estimates.items() if before is not None}


def filled(observations: Sequence[Observation], part: float) -> list[Observation]:
    """Return the observations with each missing value between its pair's bounds, if these are
    finite.

    `part` is how far up it is: 0 at the lowest value, 1 at the highest.
    """
    filled_pairs = []
    for pair in observations:
        width = pair.highest - pair.lowest
        if pair.value is None and math.isfinite(width):
            pair = replace(pair, value=pair.lowest + part * width)
        filled_pairs.append(pair)
    return filled_pairs


def hindrance(estimate: Estimate, alpha: float) -> str:
    """Say what keeps any mean of such sources from being shown to be beyond a limit at `alpha`; an
    empty text if nothing does.
    """
    clusters = estimate.clusters
    if clusters < ENOUGH or 0.5**clusters > alpha:
        return f"too few {cluster_unit(estimate)} ({clusters})"
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
    if estimate is None:
        return ""
    reason = hindrance(estimate, alpha)
    if not reason:
        return ""
    clusters = estimate.clusters
    enough = max(ENOUGH, math.ceil(-math.log2(alpha)))
    if clusters >= enough:
        return f"{group}: {reason}, so that nothing can fail this gate"
    sources = counted(clusters, "source")
    if 0.5**clusters > alpha:
        return f"{group}: {sources} cannot fail this gate, {enough} can"
    return (
        f"{group}: with {sources} this gate fails only if every one is worse, with {enough} also "
        "if some are not"
    )


def costly_categories(pairs: Sequence[Observation]) -> str:
    """Say which categories of fewer than `ENOUGH` sources make the error of the macro mean `COSTLY`
    times that of the others, where all sources vary alike; an empty text if they do not.
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
    named = [f"{category} ({counted(size, 'source')})" for category, size in few.items()]
    return (
        f"overall: {first_of(named)} weighs as much as any other category, so that "
        f"changes have to be {factor:.1f} times as large to be seen as without; merge small "
        "categories to see more"
    )


def _error_of(sizes: Collection[int]) -> float:
    """Return the standard error of the mean of the means of K categories, in standard deviations of
    a source: √(Σ 1/size) / K.
    """
    return math.sqrt(sum(1 / size for size in sizes)) / len(sizes)


def cluster_unit(estimate: Estimate) -> str:
    """Name what the clusters of an estimate are: pairs, unless some share a source image."""
    return "pairs" if estimate.clusters == estimate.n else "source images"


def allowed_pairs(limit: float, pairs: int) -> int:
    """Return a limit on pairs as a count: a float is a fraction of the pairs, rounded down."""
    # a product that is whole may fall short of that by rounding
    return int(limit * pairs + 1e-9) if isinstance(limit, float) else limit


def check_fields(
    name: str,
    limits: Mapping[str, float],
    groups: Collection[str],
    measures: Mapping[str, Measure] | None = SCORE_ONLY,
) -> None:
    """Raise `UsageError` if a gate of the option `name` is on a group or a measure that the run
    does not have, or its limit is beyond the scale of the measure.

    The limit of a drop may be as large as the scale is wide. `measures` is `None` for a judge that
    declares none: they are known at the end alone, and neither they nor limits are checked.
    """
    for text, limit in limits.items():
        check_field(name, text, groups, measures)
        if measures is None:
            continue
        lowest, highest = measures[Field.parse(text).measure].ends
        if name.endswith("drop"):
            highest -= lowest
            lowest = 0.0
        if not lowest <= limit <= highest:
            raise errors.UsageError(
                f"{name}: {text}:{limit:g}, expected a number from {lowest:g} to {highest:g}"
            )


def check_field(
    name: str, text: str, groups: Collection[str], measures: Mapping[str, Measure] | None
) -> None:
    """Raise `UsageError` if a field of the option `name` is of a group or a measure that the run
    does not have; without `measures` only the group is checked.
    """
    measure, group = Field.parse(text)
    if group not in groups:
        known = [group for group in groups if "=" not in group]
        if len(known) < len(groups):
            known.append("difficulty=NAME, tag=NAME")
        raise errors.UsageError(
            f"{name}: unknown field {text!r}, expected one of: {', '.join(known)}"
            f"{did_you_mean(group, groups)}"
        )
    if measures is not None and measure not in measures:
        known_measures = ", ".join(measures)
        raise errors.UsageError(
            f"{name}: unknown measure {measure!r} in {text!r}, expected one of: {known_measures}"
            f"{did_you_mean(measure, measures)}"
        )


def check_counts(name: str, fields: Iterable[str], counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated group other than `overall` has fewer than two of the selected
    pairs; `counts` are theirs by group, `name` is the option.
    """
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
        """Make a selection of the numbers of selected, of all (`counts`) and of skipped pairs, by
        group.
        """
        whole = Counter(counts) - Counter(skipped)
        return cls(selected, whole, skipped.get(OVERALL, 0))

    def counts(self, group: str) -> tuple[int, int]:
        """Return the numbers of selected pairs and of all pairs of a group."""
        return self.selected.get(group, 0), self.whole.get(group, 0)


def narrow(
    gates: GatesSettings, selection: Selection, asked: Collection[str]
) -> tuple[GatesSettings, list[results.GateResult]]:
    """Split gates into those that the selected pairs decide, and those that are NOT SELECTED.

    Gates of the command line (`asked`) are decided on any selection, and so is the one that a duel
    of the command line implies. A gate on a mean from a config
    needs all pairs of its group, two at least unless that is `overall`; where `gates.partial` is
    `decide`, two are enough. The one on coverage needs all pairs, unless that is `decide`. Without
    gates on means, nothing is decided before the end (`gates.until`), unless that was asked for.
    """
    update: dict[str, Any] = {kind: {} for kind in KINDS}
    resting: list[results.GateResult] = []
    for kind in KINDS:
        for field, limit in getattr(gates, kind).items():
            group = Field.parse(field).group
            some, whole = selection.counts(group)
            is_whole = some == whole > 0 and (some >= 2 or group == OVERALL)
            is_enough = gates.partial == "decide" and some >= 2
            if _is_asked(kind, gates, asked) or is_whole or is_enough:
                update[kind][field] = limit
            else:
                why = f"{field} has {some} of its {counted(whole, 'pair')} selected"
                resting.append(_not_selected(field, kind, limit, why=why))
    if not any(update.values()) and "gates.until" not in asked:
        update["until"] = "all"
    least = gates.min_coverage
    some, whole = selection.counts(OVERALL)
    is_part = some < whole and gates.partial == "skip"
    if least and is_part and "gates.min_coverage" not in asked:
        update["min_coverage"] = 0.0
        why = f"{some} of {counted(whole, 'pair')} selected"
        resting.append(_not_selected(OVERALL, "min_coverage", least, why=why))
    return gates.model_copy(update=update), resting


def _is_asked(kind: MeanGate, gates: GatesSettings, asked: Collection[str]) -> bool:
    """Tell whether the command line sets the gates of a kind, or implies the one there is."""
    is_implied = kind == "min_win" and gates.min_win == NO_LOSS and "gates.duel" in asked
    return is_implied or f"gates.{kind}" in asked


def _not_selected(
    field: str, kind: MeanGate | Literal["min_coverage"], limit: float, *, why: str
) -> results.GateResult:
    return results.GateResult(field, kind, limit, value=None, state="NOT SELECTED", why=why)


def describe_rule(kind: MeanGate, field: str, limit: float, measure: Measure) -> str:
    """Say in words what a gate asks for."""
    return KINDS[kind](field=field, value=limit, measure=measure).describe()
