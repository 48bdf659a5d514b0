"""Tables and lines on duels in the terminal and in Markdown: rows, remarks, order, controls."""

from __future__ import annotations

import pytest
from duels import (
    WAYS,
    a_duel_control,
    a_duel_row,
    a_run_with_duel,
    make_duel,
)

from pytest_imgedit.core.results import DuelPair, DuelSeed, GateOptions, Share
from pytest_imgedit.report import duel_tables, markdown, terminal
from pytest_imgedit.stats.duels import DuelFacts, describe

MEASURES = ("score", "instruction", "quality")


def titles(duel, *, brief):
    return [table.title for table in duel_tables.tables_of_duel(duel, brief=brief)]


def lines(duel, **options):
    return terminal.render(a_run_with_duel(duel), 120, color=False, **options).splitlines()


def notes(duel):
    return next(duel_tables.tables_of_duel(duel, brief=True)).notes


def test_rows_are_categories_and_at_last_all_pairs():
    table = next(duel_tables.tables_of_duel(make_duel(), brief=True))
    assert table.title == "duels against main: editor folder:before, run r0"
    assert [row[:4] for row in table.rows] == [
        ("physics", "3", "0.667", "0.567 to 0.767"),
        ("social", "2", "0.250", "0.150 to 0.350"),
        ("overall", "5", "0.500", "0.400 to 0.600"),
    ]


def test_lines_say_what_is_equal_what_is_missing_and_how_the_order_weighs():
    assert notes(make_duel())[1:] == [
        "asked in both orders: protocol duel@strict",
        "1 of 6 pairs is identical and counts half",
        "1 pair is not decided in both orders: no choice in the reply (failed)",
        "order: the judge changes its vote with the order in 25% of pairs (95% CI 5 to 70)",
        "the edit that is shown first gets 54% of votes (30 to 76)",
    ]


def test_a_note_says_what_the_p_values_of_a_gate_and_of_others_are_against():
    plain = "p-values: one-sided, Holm-corrected; intervals: two-sided, uncorrected"
    assert notes(make_duel())[0] == plain
    of_gate = {"overall": a_duel_row(12, 0.5, finding="PASS")}
    duel = make_duel(measures={"score": of_gate})
    assert notes(duel)[0] == (
        "p-values: one-sided, Holm-corrected, against 0.5, but p of loss of a gate's row against "
        "the gate's limit; intervals: two-sided, uncorrected"
    )


def test_a_judge_that_measures_claims_nothing_of_position():
    ways = {name: WAYS[name] for name in ("won", "lost")}
    duel = make_duel(ways, by_scores=True, protocol=None, variant=None)
    assert notes(duel)[1:] == [
        "by the difference of the judge's two scores; no claim about position"
    ]


def test_an_unknown_share_is_a_dash_and_has_no_line():
    nothing = Share(n=0, share=None, ci95=None)
    unknown = a_duel_row(0, None, p=None, p_rise=None, finding="unknown")
    duel = make_duel(
        {"failed": WAYS["failed"]},
        measures={"score": {"overall": unknown}},
        disagreement={"score": nothing},
        first={"score": nothing},
    )
    table = next(duel_tables.tables_of_duel(duel, brief=True))
    assert table.rows == [("overall", "0", "–", "–", "–", "–", "unknown", "–")]
    assert not [note for note in table.notes if "order:" in note or "first" in note]
    assert "duels against main: editor folder:before, run r0" in lines(duel)
    shares = Share(n=2, share=0.5, ci95=None)
    duel = make_duel(disagreement={"score": shares}, first={})
    assert notes(duel)[-1] == "order: the judge changes its vote with the order in 50% of pairs"


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (DuelSeed(seed=0, before=None, now="ab" * 32), "no edit of main"),
        (DuelSeed(seed=0, before="ab" * 32, now=None), "no edit of this run"),
        (DuelSeed(seed=0, before="ab" * 32, now="cd" * 32), "not asked"),
        (DuelSeed(seed=0, before="ab" * 32, now="ab" * 32), ""),
    ],
)
def test_a_pair_says_why_it_is_not_decided(seed, why):
    assert duel_tables.why_not_decided(DuelPair(seeds=(seed,)), "main") == why


def test_few_reasons_have_lines_and_the_other_pairs_are_counted():
    seeds = {
        "a": DuelSeed(seed=0, before=None, now="ab" * 32),
        "b": DuelSeed(seed=0, before="ab" * 32, now=None),
        "c": DuelSeed(seed=0, before="ab" * 32, now="cd" * 32),
    }
    pairs = {name: DuelPair(seeds=(seed,)) for name, seed in seeds.items()}
    pairs |= make_duel().pairs
    missing = [note for note in notes(make_duel(pairs=pairs, errors=4)) if "not decided" in note]
    assert missing == [
        "1 pair is not decided in both orders: no edit of main (a)",
        "1 pair is not decided in both orders: no edit of this run (b)",
        "1 pair is not decided in both orders: not asked (c)",
        "1 pair is not decided in both orders for other reasons",
    ]


def test_several_measures_have_a_compact_table_and_their_groups_in_details():
    duel = make_duel(names=MEASURES)
    groups = {**duel.measures["score"], "tag=rain": a_duel_row(2, 0.25)}
    duel = duel.model_copy(update={"measures": {**duel.measures, "score": groups}})
    brief = ["duels against main: editor folder:before, run r0, by score"]
    brief.append("duels by measure against main, all pairs")
    assert titles(duel, brief=True) == brief
    details = [f"duels by {name} against main" for name in ("group", "instruction", "quality")]
    assert titles(duel, brief=False) == brief + details
    _, compact, by_score, by_instruction, _ = duel_tables.tables_of_duel(duel, brief=False)
    assert [row[0] for row in compact.rows] == list(MEASURES)
    assert [row[0] for row in by_score.rows] == ["tag=rain"]
    assert [row[0] for row in by_instruction.rows] == ["physics", "social"]
    assert by_instruction.notes[0].startswith("order: ")
    assert by_score.notes == []


def test_a_measure_with_a_gate_of_its_own_has_its_groups_in_brief():
    duel = make_duel(names=MEASURES)
    failed = {**duel.measures["quality"], "social": a_duel_row(2, 0.17, finding="FAIL")}
    passed = {**duel.measures["score"], "overall": a_duel_row(5, 0.5, finding="PASS")}
    measures = {**duel.measures, "score": passed, "quality": failed}
    duel = duel.model_copy(update={"measures": measures})
    *_, by_quality = duel_tables.tables_of_duel(duel, brief=True)
    assert by_quality.title == "duels by quality against main"
    assert [(row[0], row[6]) for row in by_quality.rows][1] == ("social", "FAIL")
    assert len(titles(duel, brief=True)) == 3


def test_controls_name_the_better_edit_and_their_state():
    rows = [
        a_duel_control("identity", 0.95),
        a_duel_control("half", 0.7, better="own", state="INCONCLUSIVE", p=0.06, first=0.975),
    ]
    *_, table = duel_tables.tables_of_duel(make_duel(controls=rows), brief=True)
    assert table.rows == [
        ("identity", "oracle", "20", "0", "0", "0.950", "0.800 to 1.000", "0.001", "0.500", "PASS"),
        (
            "half",
            "this run's",
            "20",
            "0",
            "0",
            "0.700",
            "0.800 to 1.000",
            "0.060",
            "0.975",
            "INCONCLUSIVE",
        ),
    ]


def test_duels_stand_between_the_comparison_and_the_controls():
    shown = lines(make_duel(controls=[a_duel_control("identity", 0.95)]), verbose=True)
    places = [
        next(place for place, line in enumerate(shown) if line.startswith(start))
        for start in ("category", "duels against main", "duels of controls", "edit 1.0 s")
    ]
    assert places == sorted(places)


def test_the_time_of_duels_is_told():
    run = a_run_with_duel(timing={"duel_s": 3.0, "votes": 8, "votes_cached": 2})
    assert "duels 3.0 s (8 votes, 2 from the store)" in terminal.render(run, 200, color=False)


def test_markdown_has_the_tables_and_cuts_details_first():
    duel = make_duel(names=MEASURES)
    run = a_run_with_duel(duel)
    text = markdown.render(run)
    assert "## duels against main: editor folder:before, run r0" in text
    assert (
        "| overall | 5 | 0.500 | 0.400 to 0.600 | 0.200 | 0.800 | no difference shown | – |" in text
    )
    short = markdown.render_within(run, len(text.encode()) - 400, "why")
    assert "## duels against main" in short
    assert short.count("## duels by") <= text.count("## duels by")


def test_rows_are_those_that_the_statistics_make():
    drawn = make_duel()
    facts = DuelFacts(name="main", run="r0", editor="e", by_scores=False, pairs=drawn.pairs)
    run = a_run_with_duel()
    described = describe(facts, run.items, GateOptions())
    assert notes(described)[2:4] == notes(drawn)[2:4]
    table = next(duel_tables.tables_of_duel(described, brief=True))
    assert [row[:3] for row in table.rows] == [
        ("physics", "3", "0.667"),
        ("social", "2", "0.250"),
        ("overall", "5", "0.458"),
    ]
    shown = terminal.render(run.model_copy(update={"duel": described}), 120, color=False)
    assert "order: the judge changes its vote with the order in 25% of pairs" in shown
