"""How much of the difference of two runs' overall scores is due to what: effects that are taken one
after the other, and a rest that they do not explain.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean

from pytest_imgedit.core.results import Item, JudgeInfo, ProtocolRow, Results, Status
from pytest_imgedit.core.text import counted, interval, signed
from pytest_imgedit.stats.estimates import ROUNDING, estimate

ALONE_IN_A = "pairs that A alone has"
WITHOUT_SCORE_IN_B = "pairs without a score in B"
TABLE_RULE = "rule of the table"
JUDGE = "judge"
WITHOUT_SCORE_IN_A = "pairs without a score in A"
ALONE_IN_B = "pairs that B alone has"
#: Fields of a judge that two runs have in common if their scores can be compared.
SAME_JUDGE = ("fingerprint", "params", "protocol", "variant", "protocol_sha256")


@dataclass(frozen=True)
class Effect:
    """One step of a number from `before` to `after`: the difference is the effect."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Effects:
    """The steps from the overall number of a run, `start`, towards that of another, `end`, each of
    which begins where the one before it ends; `unexplained` is what is left after the last.
    """

    start: float
    end: float
    steps: tuple[Effect, ...]
    unexplained: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Counted:
    """A pair as an overall number counts it: its score from 0 to 10, if it has one, and whether it
    was `dropped` by `compat`.
    """

    category: str
    score: float | None
    dropped: bool = False


#: Pairs by their ids.
_Pairs = Mapping[str, _Counted]


@dataclass(frozen=True)
class _Rule:
    """How an overall number is made of pairs: the mean of the means `by_category`, or the mean over
    pairs, of scores on a scale. A dropped pair is left out, or counts as the lowest score if the
    rule `counts_dropped`. Other pairs without a score are left out.
    """

    by_category: bool = True
    counts_dropped: bool = False
    scale: tuple[float, float] = (0.0, 10.0)

    @property
    def unit(self) -> float:
        """What a point of a score from 0 to 10 is on the scale."""
        low, high = self.scale
        return (high - low) / 10

    def values(self, pairs: _Pairs) -> dict[str, list[float]]:
        """Return the scores from 0 to 10 that count, by category, or all as those of one."""
        values: dict[str, list[float]] = {}
        for pair in pairs.values():
            score = pair.score
            if score is None and pair.dropped and self.counts_dropped:
                score = 0.0
            if score is not None:
                values.setdefault(pair.category if self.by_category else "", []).append(score)
        return values

    def overall(self, pairs: _Pairs) -> float | None:
        """Return the overall number; `None` if no pair counts."""
        means = [fmean(values) for values in self.values(pairs).values()]
        return self.scale[0] + fmean(means) * self.unit if means else None

    def makes(self, row: ProtocolRow, pairs: _Pairs) -> bool:
        """Tell whether a row of a protocol's table is the overall number of all these pairs."""
        overall = self.overall(pairs)
        count = sum(map(len, self.values(pairs).values()))
        return overall is not None and count == row.n and abs(overall - row.value) < ROUNDING

    def is_like(self, other: "_Rule") -> bool:
        """Tell whether another rule differs in its scale alone."""
        return replace(self, scale=other.scale) == other


@dataclass
class _Steps:
    """Steps as they are taken, from the number `at`; `notes` are what is to be said of them."""

    at: float
    taken: list[Effect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, name: str, after: float) -> None:
        """Step to a number."""
        self.taken.append(Effect(name, self.at, after))
        self.at = after


@dataclass(frozen=True)
class _Sides:
    """The pairs of two runs: all, those of `shared` ids, and the shared ones with a score where
    both runs have one. Pairs of `all_a` and `all_b` are in the order of their ids.
    """

    all_a: _Pairs
    all_b: _Pairs
    shared_a: _Pairs
    shared_b: _Pairs
    both_a: _Pairs
    both_b: _Pairs


def effects(a: Results, b: Results, rejudged: Mapping[str, float] | None = None) -> Effects | None:
    """Return the effects of which the difference of the overall numbers of two runs consists, in
    this order; `None` if one of them has no overall number.

    An overall number is the first row of the protocol's own table, on its scale, where that is made
    of scores, and else the overall score from 0 to 10. Starting at that of A:

    1. the pairs that A alone has, with this content, are left out;
    2. those without a score in B are counted as B counts them: left out, or as the lowest score;
    3. the number is made by the rule of B's table: over pairs or over categories;
    4. with `rejudged`, the scores from 0 to 10 that B's judge gives the edits of A of some pairs,
       by their ids: the mean difference of the judges on these, by the rule of B's table;
    5. pairs without a score in A, and then those that B alone has, are counted as B counts them.

    A reply that `compat` replaced counts as none in 2 and 5 if the other run has another protocol
    or variant. With equal scores of all pairs that have one in both runs, nothing is left. Without
    such a pair, and where the numbers have different scales, the steps end before 3: the rest, the
    difference of `end` and the last step, cannot be told apart.
    """
    rules = _rules_of_both(a, b)
    sides = _sides(a, b)
    start = rules.a.overall(sides.all_a)
    end = rules.b.overall(sides.all_b)
    if start is None or end is None or _lacks_category(a, rules.a) or _lacks_category(b, rules.b):
        return None
    steps = _Steps(start)
    steps.notes += rules.notes
    steps.notes.append(_pairs_line(sides))
    shared = rules.a.overall(sides.shared_a)
    if shared is not None:
        steps.take(ALONE_IN_A, shared)
    counted_alike = replace(rules.a, counts_dropped=rules.b.counts_dropped)
    both = counted_alike.overall(sides.both_a)
    both_b = rules.b.overall(sides.both_b)
    if shared is None or both is None or both_b is None:
        steps.notes.append("no pair has a score in both runs: the rest cannot be told apart")
        return _ended(steps, start, end)
    steps.take(WITHOUT_SCORE_IN_B, both)
    if rules.a.scale != rules.b.scale:
        steps.notes.append(_other_scale(rules))
        return _ended(steps, start, end)
    by_rule_of_b = rules.b.overall(sides.both_a)
    assert by_rule_of_b is not None, "the same pairs count"
    steps.take(TABLE_RULE, by_rule_of_b)
    if rejudged is not None:
        _take_judge(steps, a, rejudged, sides.both_a, rules.b)
    elif not _is_same_judge(a.judge, b.judge):
        steps.notes.append(
            "the judge or its protocol differs, which is a part of what is not explained"
        )
    steps.notes += _other_edits(a, b, sides.both_a)
    rest = both_b - steps.at
    shared_b = rules.b.overall(sides.shared_b)
    assert shared_b is not None, "more pairs count"
    steps.take(WITHOUT_SCORE_IN_A, shared_b - rest)
    steps.take(ALONE_IN_B, end - rest)
    return _ended(steps, start, end)


def _ended(steps: _Steps, start: float, end: float) -> Effects:
    return Effects(
        start=start,
        end=end,
        steps=tuple(steps.taken),
        unexplained=end - steps.at,
        notes=tuple(steps.notes),
    )


# The pairs


def _sides(a: Results, b: Results) -> _Sides:
    items_a = _needed(a)
    items_b = _needed(b)
    shared = [
        name
        for name, item in items_a.items()
        if name in items_b and items_b[name].content == item.content
    ]
    is_other_reading = _reading(a.judge) != _reading(b.judge)
    both_a: dict[str, _Counted] = {}
    both_b: dict[str, _Counted] = {}
    for name in shared:
        item_a = items_a[name]
        item_b = items_b[name]
        status = _status_of_both(item_a, item_b, is_other_reading)
        both_a[name] = _counted(item_a, status)
        both_b[name] = _counted(item_b, status)
    all_a = {name: _counted(item, item.status) for name, item in items_a.items()}
    all_b = {name: _counted(item, item.status) for name, item in items_b.items()}
    return _Sides(
        all_a=all_a,
        all_b=all_b,
        shared_a={name: all_a[name] for name in shared},
        shared_b={name: all_b[name] for name in shared},
        both_a=both_a,
        both_b=both_b,
    )


def _needed(results: Results) -> dict[str, Item]:
    """Return the items that count in a run's tables by their ids, in the order of these."""
    items = {item.id: item for item in results.items if item.status != "not_needed"}
    return dict(sorted(items.items()))


def _counted(item: Item, status: Status) -> _Counted:
    """Return a pair with its score, unless its status is to be one without a score."""
    score = item.score if status == "scored" else None
    return _Counted(item.category, score, dropped=status == "dropped")


def _reading(judge: JudgeInfo) -> tuple[str | None, str | None]:
    """Return what decides how a reply is counted that cannot be read."""
    return judge.protocol, judge.variant


def _status_of_both(a: Item, b: Item, is_other_reading: bool) -> Status:
    """Return how a pair ended, as far as both runs are concerned: as in B if it has no score there,
    else as in A. With `is_other_reading`, a replaced reply is one that could not be read.
    """
    for item in (b, a):
        if item.score is None:
            return item.status
        if is_other_reading and any(verdict.touched for verdict in item.verdicts):
            return "judge_error"
    return "scored"


# The rules


@dataclass(frozen=True)
class _Rules:
    """The rules of two runs."""

    a: _Rule
    b: _Rule
    notes: tuple[str, ...] = ()


def _rules_of_both(a: Results, b: Results) -> _Rules:
    """Return the rules of two runs, alike ones where both may be; those of the overall score where
    the table of one is not made of scores.
    """
    rules_a = _rules_of(a)
    rules_b = _rules_of(b)
    for name, results, rules in (("A", a, rules_a), ("B", b, rules_b)):
        if not rules:
            assert results.protocol is not None, "the overall score has a rule"
            note = (
                f"the table of {name} ({results.protocol.name}) is not made of scores alone: the "
                "overall score from 0 to 10 is told, not its number"
            )
            return _Rules(_Rule(), _Rule(), (note,))
    for rule_a, rule_b in product(rules_a, rules_b):
        if rule_a.is_like(rule_b):
            return _Rules(rule_a, rule_b)
    return _Rules(rules_a[0], rules_b[0])


def _rules_of(results: Results) -> list[_Rule]:
    """Return the rules that make the overall number of a run; several where all categories have
    equally many pairs, none if its table is not made of scores.
    """
    if results.protocol is None or not results.protocol.rows:
        return [_Rule()]
    row = results.protocol.rows[0]
    pairs = {name: _counted(item, item.status) for name, item in _needed(results).items()}
    rules = []
    for counts_dropped, by_category in product((False, True), (True, False)):
        rule = _Rule(by_category, counts_dropped, row.scale)
        if rule.makes(row, pairs):
            rules.append(rule)
    return rules


def _lacks_category(results: Results, rule: _Rule) -> bool:
    """Tell whether a run has no mean of categories, as one of them has no score."""
    return rule.by_category and results.overall.macro.mean is None


# The judge


def _take_judge(
    steps: _Steps, a: Results, rejudged: Mapping[str, float], pairs: _Pairs, rule: _Rule
) -> None:
    """Step to what the number of A's `pairs` by B's `rule` would be if B's judge, whose scores are
    `rejudged`, had scored their edits.
    """
    clusters = {item.id: item.cluster for item in a.items}
    names = []
    differences = []
    for name, pair in pairs.items():
        if name in rejudged and pair.score is not None:
            names.append(name)
            differences.append(rejudged[name] - pair.score)
    if not names:
        steps.notes.append("the judge was asked about no pair that has a score in both runs")
        return
    mean = estimate(
        differences,
        [clusters[name] for name in names],
        [pairs[name].category for name in names] if rule.by_category else None,
        pools_alone=True,
    )
    worth = _worth_of_a_point(pairs, rule)
    effect = mean.mean * worth
    ends = mean.interval()
    note = f"{JUDGE}: {signed(effect)} by {counted(mean.n, 'pair')}"
    note += f" of {counted(mean.clusters, 'source')}, "
    if ends is None:
        note += "too few for an interval"
    else:
        note += f"95% interval {interval((ends[0] * worth, ends[1] * worth), signs=True)}"
    steps.notes.append(note)
    steps.take(JUDGE, steps.at + effect)


def _worth_of_a_point(pairs: _Pairs, rule: _Rule) -> float:
    """Return by how much the number of pairs rises if all their scores rise by a point: by less
    than a unit of the scale where pairs without a score count.
    """
    raised = {}
    for name, pair in pairs.items():
        raised[name] = pair if pair.score is None else replace(pair, score=1.0)
    share = replace(rule, scale=(0.0, 10.0)).overall(raised)
    assert share is not None, "some pair has a score"
    return share * rule.unit


def _is_same_judge(a: JudgeInfo, b: JudgeInfo) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in SAME_JUDGE)


# What is to be said


def _other_edits(a: Results, b: Results, shared: Collection[str]) -> list[str]:
    """Say how many shared pairs have other images as edits; nothing if none has."""
    images = [
        {item.id: [edit.blob for edit in item.edits] for item in run.items if item.id in shared}
        for run in (a, b)
    ]
    of_a, of_b = images
    unlike = sum(of_a[name] != of_b[name] for name in shared)
    if not unlike:
        return []
    pairs = counted(unlike, "shared pair")
    return [f"{pairs} with other edits, which are a part of what is not explained"]


def _pairs_line(sides: _Sides) -> str:
    """Say how many pairs both runs have, and how many have one id and another content."""
    shared = len(sides.shared_a)
    scored = sum(pair.score is not None for pair in sides.both_a.values())
    note = f"{counted(shared, 'shared pair')}, {scored} with a score in both runs"
    changed = len(sides.all_a.keys() & sides.all_b.keys()) - shared
    alone = (len(sides.all_a) - shared, len(sides.all_b) - shared)
    if any(alone):
        note += f"; A alone has {alone[0]}, B alone {alone[1]}"
    if changed:
        note += f" ({changed} of one id, whose content has changed)"
    return note


def _other_scale(rules: _Rules) -> str:
    scales = [f"{low:g} to {high:g}" for low, high in (rules.a.scale, rules.b.scale)]
    return f"A's number is from {scales[0]}, B's from {scales[1]}: the rest cannot be told apart"
