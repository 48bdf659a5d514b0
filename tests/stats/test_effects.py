"""What the difference of two runs' overall scores consists of: each step by hand, and that steps and
rest add up for runs that are made up.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest
from documents import a_run, an_item

from pytest_imgedit.config.settings import make_settings, read_tables
from pytest_imgedit.core.results import (
    Item,
    ItemError,
    Overall,
    ProtocolRow,
    ProtocolTable,
    Results,
    Summary,
    Verdict,
)
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.run.assemble import protocol_table
from pytest_imgedit.stats import effects as module
from pytest_imgedit.stats.effects import Effects, effects

if TYPE_CHECKING:
    from collections.abc import Mapping

EMPTY = a_run()
#: The steps in their order, without that of the judge.
STEPS = [
    module.ALONE_IN_A,
    module.WITHOUT_SCORE_IN_B,
    module.TABLE_RULE,
    module.WITHOUT_SCORE_IN_A,
    module.ALONE_IN_B,
]


def pair(name: str, score: float | str | None, category: str = "physics", **changes: Any) -> Item:
    """A pair with its score, or with the kind of the error that it ended in, and its own source."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    changes = {"source": f"{digest[:2]}/{digest}.png", **changes}
    if isinstance(score, str):
        changes["error"] = ItemError("score", score, "why")
        score = None
    return an_item(name, category, score, **changes)


@dataclass(frozen=True)
class Table:
    """How the first row of a run's table is made, as plainly as can be."""

    by_category: bool = True
    counts_dropped: bool = False
    scale: tuple[float, float] = (0.0, 10.0)

    def row(self, items: list[Item]) -> ProtocolRow:
        low, high = self.scale
        values = []
        for item in items:
            if item.score is not None:
                values.append((item.category, low + item.score * (high - low) / 10))
            elif item.status == "dropped" and self.counts_dropped:
                values.append((item.category, low))
        groups: dict[str, list[float]] = {}
        for category, value in values:
            groups.setdefault(category if self.by_category else "", []).append(value)
        value = fmean(map(fmean, groups.values()))
        return ProtocolRow(
            name="score", n=len(values), value=value, ci95=None, scale=self.scale, decimals=2
        )


def run_of(*items: Item, table: Table | None = Table(), **judge: Any) -> Results:
    """A run of items, whose overall score and table are told without intervals."""
    needed = [item for item in items if item.status != "not_needed"]
    scored: dict[str, list[float]] = {item.category: [] for item in needed}
    for item in needed:
        if item.score is not None:
            scored[item.category].append(item.score)
    macro = fmean(map(fmean, scored.values())) if all(scored.values()) else None
    summary = Summary(len(needed), sum(map(len, scored.values())), 0, mean=macro)
    protocol = None
    if table is not None:
        row = table.row(needed)
        protocol = ProtocolTable(name="p@strict", calls=(), rows=(row,), published=())
    update = {
        "items": items,
        "overall": Overall(macro=summary, micro=summary),
        "protocol": protocol,
        "judge": EMPTY.judge.model_copy(update=judge),
    }
    return EMPTY.model_copy(update=update)


def found(a: Results, b: Results, rejudged: Mapping[str, float] | None = None) -> Effects:
    """The effects, which add up."""
    told = effects(a, b, rejudged)
    assert told is not None
    at = told.start
    for step in told.steps:
        assert step.before == at
        at = step.after
    assert told.unexplained == pytest.approx(told.end - at, abs=1e-9)
    total = sum(step.after - step.before for step in told.steps) + told.unexplained
    assert total == pytest.approx(told.end - told.start, abs=1e-9)
    return told


def sizes(told: Effects) -> dict[str, float]:
    """The effects by name that are not 0, and the rest, rounded."""
    by_name = {step.name: round(step.after - step.before, 6) for step in told.steps}
    by_name["rest"] = round(told.unexplained, 6)
    return {name: size for name, size in by_name.items() if size}


def test_equal_runs_differ_by_nothing() -> None:
    run = run_of(pair("a", 3.0), pair("b", 7.0), pair("c", 5.0, "social"), pair("d", "refused"))
    told = found(run, run)
    assert [step.name for step in told.steps] == STEPS
    assert (told.start, told.end, told.unexplained, sizes(told)) == (5.0, 5.0, 0.0, {})


def test_pairs_of_one_run_alone() -> None:
    a = run_of(pair("a", 4.0), pair("b", 8.0), pair("only", 9.0))
    b = run_of(pair("a", 4.0), pair("b", 8.0), pair("other", 1.5))
    told = found(a, b)
    assert (told.start, told.end, told.unexplained) == (7.0, 4.5, 0.0)
    assert sizes(told) == {module.ALONE_IN_A: -1.0, module.ALONE_IN_B: -1.5}
    assert "2 shared pairs, 2 with a score in both runs; A alone has 1, B alone 1" in told.notes


def test_a_pair_with_another_content_is_another_pair() -> None:
    a = run_of(pair("a", 4.0), pair("b", 8.0))
    b = run_of(pair("a", 4.0), pair("b", 0.0, instruction="make it snow"))
    told = found(a, b)
    assert sizes(told) == {module.ALONE_IN_A: -2.0, module.ALONE_IN_B: -2.0}
    assert any("(1 of one id, whose content has changed)" in note for note in told.notes)


@pytest.mark.parametrize("kind", ["refused", "unreadable_reply", "dropped", "timeout"])
def test_pairs_without_a_score_on_one_side(kind: str) -> None:
    whole = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", 9.0))
    part = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", kind))
    assert sizes(found(whole, part)) == {module.WITHOUT_SCORE_IN_B: -1.0}
    assert sizes(found(part, whole)) == {module.WITHOUT_SCORE_IN_A: 1.0}


def test_a_dropped_pair_counts_as_the_lowest_score_where_the_table_has_it_so() -> None:
    left_out = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", "dropped"))
    lowest = run_of(
        pair("a", 4.0), pair("b", 8.0), pair("c", "dropped"), table=Table(counts_dropped=True)
    )
    assert sizes(found(left_out, lowest)) == {module.WITHOUT_SCORE_IN_B: -2.0}
    assert sizes(found(lowest, left_out)) == {module.WITHOUT_SCORE_IN_B: 2.0}
    whole = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", 6.0))
    assert sizes(found(whole, lowest)) == {module.WITHOUT_SCORE_IN_B: -2.0}


def test_pairs_that_were_not_needed_are_in_no_number() -> None:
    a = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", 9.0))
    b = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", "not_needed"))
    assert sizes(found(a, b)) == {module.ALONE_IN_A: -1.0}
    assert sizes(found(b, a)) == {module.ALONE_IN_B: 1.0}


def test_a_pair_without_a_score_in_both_runs_counts_as_in_b() -> None:
    scored = (pair("a", 4.0), pair("b", 8.0), pair("d", "dropped"))
    a = run_of(*scored, pair("c", "dropped"))
    b = run_of(*scored, pair("c", "refused"), table=Table(counts_dropped=True))
    assert sizes(found(a, b)) == {module.WITHOUT_SCORE_IN_B: -2.0}
    assert sizes(found(b, a)) == {module.WITHOUT_SCORE_IN_B: 2.0}


def test_a_replaced_reply_counts_as_none_where_the_other_run_reads_by_another_variant() -> None:
    verdict = Verdict({"": "no number"}, {}, 0.0, touched=("",))
    replaced = pair("c", 0.0)
    replaced = replaced.model_copy(update={"seeds": (replace(replaced.seeds[0], verdict=verdict),)})
    compat = run_of(pair("a", 4.0), pair("b", 8.0), replaced, variant="compat")
    strict = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", "unreadable_reply"))
    assert sizes(found(compat, strict)) == {module.WITHOUT_SCORE_IN_B: 2.0}
    reasked = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", 9.0))
    assert sizes(found(compat, reasked)) == {
        module.WITHOUT_SCORE_IN_B: 2.0,
        module.WITHOUT_SCORE_IN_A: 1.0,
    }
    same_variant = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", 9.0), variant="compat")
    assert sizes(found(compat, same_variant)) == {"rest": 3.0}


def test_the_rule_of_the_table() -> None:
    pairs = [pair("a", 4.0), pair("b", 8.0), pair("c", 9.0, "social")]
    told = found(run_of(*pairs), run_of(*pairs, table=Table(by_category=False)))
    assert (told.start, told.end, told.unexplained) == (7.5, 7.0, 0.0)
    assert sizes(told) == {module.TABLE_RULE: -0.5}


def test_a_table_that_may_be_of_either_rule_is_of_that_of_the_other_run() -> None:
    over_pairs = Table(by_category=False)
    pairs = [pair("a", 4.0), pair("b", 8.0), pair("c", 9.0, "social")]
    balanced = run_of(*pairs, pair("d", 1.0, "social"), table=over_pairs)
    told = found(balanced, run_of(*pairs, pair("d", "refused", "social"), table=over_pairs))
    assert sizes(told) == {module.WITHOUT_SCORE_IN_B: 1.5}


def test_the_judge_as_far_as_it_was_asked() -> None:
    a = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", 6.0, "social"))
    b = run_of(pair("a", 5.0), pair("b", 8.0), pair("c", 8.0, "social"), fingerprint="1" * 64)
    told = found(a, b, {"a": 5.0, "b": 8.0, "c": 8.0})
    assert (told.start, told.end) == (6.0, 7.25)
    assert sizes(told) == {module.JUDGE: 1.25}
    sample = found(a, b, {"a": 5.0, "c": 8.0, "gone": 0.0})
    assert sizes(sample) == {module.JUDGE: 1.5, "rest": -0.25}
    assert [step.name for step in sample.steps] == [*STEPS[:3], module.JUDGE, *STEPS[3:]]
    unasked = found(a, b)
    assert sizes(unasked) == {"rest": 1.25}
    assert any("judge or its protocol differs" in note for note in unasked.notes)


def test_the_interval_of_the_judge_is_over_sources() -> None:
    """Four sources of two pairs whose differences are -1, 0, 1 and 2: mean 0.5, standard error
    √(5/3)/2, and 3.182446 of these at three degrees of freedom.
    """
    source = "ab/{}.png".format("{}" * 64)
    items = [pair(f"p{n}", 5.0, source=source.replace("{}", str(n // 2))) for n in range(8)]
    run = run_of(*items)
    told = found(run, run, {f"p{n}": 5.0 + n // 2 - 1 for n in range(8)})
    assert "judge: +0.50 by 8 pairs of 4 sources, 95% interval -1.55 to +2.55" in told.notes


def test_the_judge_does_not_move_a_pair_that_counts_as_the_lowest_score() -> None:
    """Differences of 1 and 3 have the standard error 1, and 12.706 of these at one degree of
    freedom; a third of the pairs has none.
    """
    run = run_of(
        pair("a", 4.0), pair("b", 5.0), pair("c", "dropped"), table=Table(counts_dropped=True)
    )
    told = found(run, run, {"a": 5.0, "b": 8.0})
    assert sizes(told) == {module.JUDGE: 1.333333, "rest": -1.333333}
    assert "judge: +1.33 by 2 pairs of 2 sources, 95% interval -7.14 to +9.80" in told.notes


def test_numbers_of_different_scales_end_the_steps() -> None:
    a = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", 9.0), table=Table(scale=(1, 5)))
    b = run_of(pair("a", 4.0), pair("b", 8.0), pair("c", "refused"))
    told = found(a, b, {"a": 5.0})
    assert [step.name for step in told.steps] == STEPS[:2]
    assert (told.start, told.end) == (pytest.approx(3.8), 6.0)
    assert told.unexplained == pytest.approx(2.6)
    assert (
        "A's number is from 1 to 5, B's from 0 to 10: the rest cannot be told apart" in told.notes
    )


def test_both_on_a_scale_of_the_protocol() -> None:
    table = Table(by_category=False, scale=(1, 5))
    a = run_of(pair("a", 4.0), pair("b", 8.0), table=table)
    told = found(a, run_of(pair("a", 9.0), pair("b", 9.0), table=table), {"a": 9.0})
    assert (told.start, told.end) == (pytest.approx(3.4), pytest.approx(4.6))
    assert sizes(told) == {module.JUDGE: 2.0, "rest": -0.8}


def test_without_scores_there_is_no_overall_number() -> None:
    scored = run_of(pair("a", 4.0), pair("s", 8.0, "social"))
    lacking = run_of(pair("a", 4.0), pair("s", "refused", "social"))
    assert effects(scored, lacking) is None
    assert effects(lacking, scored) is None
    pairs = [pair("a", 4.0), pair("b", 5.0), pair("s", 8.0, "social"), pair("c", "refused", "c")]
    told = found(scored, run_of(*pairs, table=Table(by_category=False)))
    assert told.end == pytest.approx(17 / 3)


def test_no_pair_in_common() -> None:
    told = found(run_of(pair("a", 4.0), pair("b", "refused")), run_of(pair("b", 7.0)))
    assert (told.steps, told.unexplained) == ((), 3.0)
    assert told.notes[-1] == "no pair has a score in both runs: the rest cannot be told apart"


@pytest.mark.parametrize("change", [{"value": 6.5}, {"n": 4}], ids=["value", "n"])
def test_a_table_that_is_not_made_of_scores_is_not_told(change: dict[str, Any]) -> None:
    a = run_of(pair("a", 4.0), pair("b", 8.0))
    row = a.protocol.rows[0].model_copy(update=change)
    b = a.model_copy(update={"protocol": a.protocol.model_copy(update={"rows": (row,)})})
    told = found(a, b)
    assert (told.start, told.end, sizes(told)) == (6.0, 6.0, {})
    assert told.notes[0].startswith("the table of B (p@strict) is not made of scores alone: ")


@pytest.mark.parametrize(
    ("name", "start", "is_by_category"),
    [
        ("aspects", 7.5, True),
        ("gedit", 7.5, True),
        ("imgedit", 4.0, True),
        ("omnicontext", 7.5, True),
        ("seeds", 7.0, False),
        ("kris", 70.0, False),
        ("risebench", 3.8, False),
    ],
)
def test_numbers_of_the_protocols_of_this_package(
    name: str, start: float, is_by_category: bool
) -> None:
    raw = read_tables(None)
    raw["judge"] = {"protocol": name}
    protocol = load_protocol(make_settings(raw))
    low, high = protocol.scale
    items = []
    for number, (score, category) in enumerate(((4.0, "x"), (8.0, "x"), (9.0, "y"))):
        grade = low + score * (high - low) / 10
        own = {} if protocol.scale == (0, 10) else {"score": grade, "consistency": grade}
        items.append(pair(f"p{number}", score, category, aspects=own))
    table = protocol_table(protocol, items, (), sees_change=True)
    assert table.problem == ""
    run = run_of(*items).model_copy(update={"protocol": table})
    over_pairs = Table(by_category=False, scale=table.rows[0].scale)
    told = found(run, run_of(*items, table=over_pairs))
    assert told.start == pytest.approx(start)
    assert list(sizes(told)) == ([module.TABLE_RULE] if is_by_category else [])


# Simulations


@dataclass
class Sides:
    """Two runs of the same scores, made to differ in what `draw` is asked for."""

    scores: dict[str, float]
    categories: dict[str, str]
    ids: tuple[list[str], list[str]]
    errors: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))
    tables: tuple[Table, Table] = (Table(), Table())
    offset: float = 0.0

    def run(self, side: int) -> Results:
        items = []
        for name in self.ids[side]:
            score = self.scores[name] + self.offset * side
            items.append(pair(name, self.errors[side].get(name, score), self.categories[name]))
        fingerprint = "0" if not (side and self.offset) else "1"
        return run_of(*items, table=self.tables[side], fingerprint=fingerprint * 64)


def draw(seed: int, *what: str) -> Sides:
    """Draw two runs of up to 30 pairs of three categories; the first three pairs, one of each, have
    a score on both sides.
    """
    dice = random.Random(seed)
    names = [f"p{number:02}" for number in range(dice.randint(12, 30))]
    kept = names[:3]
    sides = Sides(
        scores={name: dice.uniform(1, 9) for name in names},
        categories={
            name: "abc"[n] if n < 3 else dice.choice("aaabbc") for n, name in enumerate(names)
        },
        ids=(names, names),
    )
    if "pairs" in what:
        sides.ids = tuple(kept + [n for n in names[3:] if dice.random() < 0.7] for _ in "AB")
    if "errors" in what:
        kinds = ("refused", "unreadable_reply", "dropped", "timeout")
        sides.errors = tuple(
            {name: dice.choice(kinds) for name in names[3:] if dice.random() < 0.3} for _ in "AB"
        )
    if "rule" in what:
        by_category = dice.random() < 0.5
        sides.tables = (Table(by_category=by_category), Table(by_category=not by_category))
    if "dropped" in what:
        first, second = sides.tables
        sides.tables = (replace(first, counts_dropped=True), second)
    if "judge" in what:
        sides.offset = dice.uniform(-1, 1)
    return sides


ALL = ("pairs", "errors", "rule", "dropped", "judge")


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_steps_and_rest_add_up_for_200_runs(first: int) -> None:
    for seed in range(first, first + 50):
        what = random.Random(seed).sample(ALL, k=seed % 6)
        sides = draw(seed, *what)
        a, b = sides.run(0), sides.run(1)
        told = found(a, b)
        assert told.start == pytest.approx(a.protocol.rows[0].value, abs=1e-9)
        assert told.end == pytest.approx(b.protocol.rows[0].value, abs=1e-9)
        if "judge" not in what:
            assert told.unexplained == 0.0, (seed, what)
        rejudged = {name: score + sides.offset for name, score in sides.scores.items()}
        assert found(a, b, rejudged).unexplained == pytest.approx(0, abs=1e-9), (seed, what)


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (("pairs",), {module.ALONE_IN_A, module.ALONE_IN_B}),
        (("errors",), {module.WITHOUT_SCORE_IN_B, module.WITHOUT_SCORE_IN_A}),
        (("rule",), {module.TABLE_RULE}),
        (("judge",), {module.JUDGE}),
    ],
)
def test_one_thing_that_differs_holds_the_whole_difference(
    what: tuple[str, ...], names: set[str]
) -> None:
    for seed in range(50):
        sides = draw(seed, *what)
        rejudged = {name: score + sides.offset for name, score in sides.scores.items()}
        told = found(sides.run(0), sides.run(1), rejudged if what == ("judge",) else None)
        assert told.unexplained == pytest.approx(0, abs=1e-9)
        moved = [step for step in told.steps if abs(step.after - step.before) > 1e-9]
        assert {step.name for step in moved} <= names
        held = sum(step.after - step.before for step in moved)
        assert held == pytest.approx(told.end - told.start, abs=1e-9)
        assert moved, seed


def test_other_edits_are_named_as_a_part_of_the_rest() -> None:
    a = run_of(pair("a", 4.0), pair("b", 8.0))
    b = run_of(pair("a", 5.0, blob="cd" * 32), pair("b", 8.0))
    told = found(a, b)
    note = "1 shared pair with other edits, which are a part of what is not explained"
    assert (sizes(told), told.notes[-1]) == ({"rest": 0.5}, note)
    assert not any("other edits" in line for line in found(a, a).notes)
