"""The leaderboard of runs: which pairs and measures are ranked, how systems are named, what is
refused, and what each format holds.
"""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import replace

import pytest
from documents import UNGATED, a_baseline, a_run, an_item, baseline_item, ended_early

from pytest_imgedit.cli.compare import compare_runs
from pytest_imgedit.cli.leaderboard import leaderboard
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.measures import SCORE
from pytest_imgedit.report.leaderboard_page import chart, render
from pytest_imgedit.report.leaderboard_tables import as_json, letters, markdown, measure_table
from pytest_imgedit.stats.leaderboard import rank_runs
from pytest_imgedit.store.baselines import write_baseline

PAIRS = 12
MEASURES = {"drift": {"scale": (0.0, None), "lower_is_better": True}}


def system(name, level, *, pairs=range(PAIRS), lower=0.0, **changes):
    """A run of pairs of one source image each, in two categories, whose scores are near a level."""
    items = [
        baseline_item(
            f"p{pair}",
            level + pair % 3 / 10,
            "social" if pair % 2 else "physics",
            values={"drift": lower + pair % 4},
        )
        for pair in pairs
    ]
    return a_baseline(
        *items, **{"name": name, "run": f"run-{name}", "measures": MEASURES, **changes}
    )


def test_systems_are_ranked_by_each_measure_in_its_direction():
    ranked = rank_runs([system("low", 4.0, lower=1.0), system("high", 8.0, lower=2.0)], None, ())
    order = {
        name: [row.system for row in part.board.rows] for name, part in ranked.measures.items()
    }
    assert order == {"score": ["high", "low"], "drift": ["low", "high"]}
    assert ranked.measures[SCORE].board.rows[0].rank_interval == (1, 1)


def test_only_common_pairs_are_ranked_and_the_others_counted():
    ranked = rank_runs([system("whole", 5.0), system("part", 5.0, pairs=range(2, 15))], None, ())
    board = ranked.measures[SCORE].board
    assert (board.n, board.left_out) == (10, 5)
    assert {row.system: row.missing for row in board.rows} == {"whole": 3, "part": 2}


def test_a_pair_without_a_score_is_missing_in_each_measure():
    broken = system("broken", 5.0)
    items = [replace(broken.items[0], score=None, values={}), *broken.items[1:]]
    broken = broken.model_copy(update={"items": tuple(items)})
    ranked = rank_runs([system("whole", 5.0), broken], None, ())
    assert {part.board.left_out for part in ranked.measures.values()} == {1}


def test_a_measure_that_a_run_lacks_is_not_ranked_and_cannot_be_named():
    runs = [system("a", 5.0), system("b", 5.0, measures={})]
    assert list(rank_runs(runs, None, ()).measures) == [SCORE]
    with pytest.raises(UsageError, match=r"--measure=drift: not a measure of all runs, .*: score"):
        rank_runs(runs, None, ["drift"])


def test_a_measure_of_another_direction_is_refused():
    other = {"drift": {"scale": (0.0, None)}}
    with pytest.raises(UsageError, match=r"drift: b has another scale or direction than a"):
        rank_runs([system("a", 5.0), system("b", 5.0, measures=other)], None, ())


def test_systems_are_named_by_run_or_editor_and_made_unique_by_the_id():
    runs = [
        system("mine", 5.0),
        system("r1", 5.0, run="r1", editor={"spec": "identity"}),
        system("r2", 5.0, run="r2", editor={"spec": "identity"}),
        system("r3", 5.0, run="r3", editor={"spec": "oracle"}),
    ]
    assert list(rank_runs(runs, None, ()).runs) == [
        "mine",
        "identity (r1)",
        "identity (r2)",
        "oracle",
    ]


def test_a_category_without_a_common_pair_is_one_line():
    runs = [system("a", 5.0, pairs=range(0, PAIRS, 2)), system("b", 5.0)]
    with pytest.raises(UsageError, match=r"^measure score: social: no pair has a score of every"):
        rank_runs(runs, None, ())


def test_a_measure_that_cannot_be_ranked_is_left_out_unless_it_is_named():
    first = system("a", 5.0)
    items = [
        replace(item, values={"drift": 1.0 if item.category == "social" else None})
        for item in first.items
    ]
    runs = [first.model_copy(update={"items": tuple(items)}), system("b", 5.0)]
    ranked = rank_runs(runs, None, ())
    assert list(ranked.measures) == [SCORE]
    [note] = ranked.notes
    assert note.startswith("measure drift is not ranked: physics: no pair has a score of every")
    for shown in (markdown(ranked).replace("\\", ""), render(ranked), str(as_json(ranked))):
        assert note in shown
    with pytest.raises(UsageError, match=r"^measure drift: physics: no pair has a score of every"):
        rank_runs(runs, None, ["drift"])


def test_a_system_that_trades_quality_for_speed_has_a_note():
    editor = {"spec": "e", "lossy": ("quantization=fp8",)}
    ranked = rank_runs([system("a", 5.0), system("b", 5.0, editor=editor)], None, ())
    assert ranked.notes == ["b trades quality for speed: quantization=fp8"]


def test_groups_have_letters_and_beyond_these_numbers():
    assert [letters(groups) for groups in ([1], [1, 3], [52, 53])] == ["a", "ac", "Z(53)"]


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A store of three runs, `good`, `fair` and `bad`."""
    monkeypatch.chdir(tmp_path)
    for order, (name, level) in enumerate([("bad", 2.0), ("good", 8.0), ("fair", 7.0)], 1):
        items = [
            an_item(
                f"p{pair}",
                "social" if pair % 2 else "physics",
                level + pair % 3 / 10,
                source=f"ab/{pair:064x}.png",
            )
            for pair in range(PAIRS)
        ]
        path = tmp_path / "store" / "runs" / f"r{order}" / "results.json"
        path.parent.mkdir(parents=True)
        results = a_run(run={"id": f"r{order}", "name": name}, items=items)
        path.write_text(json.dumps(results.model_dump(mode="json")))
        os.utime(path, ns=(order, order))
    return tmp_path / "store"


def ranked(out, *references, reference=None, md=None, csv=None, html=None):
    """The document and the text of a leaderboard."""
    document, text, code = leaderboard(
        references, reference, measure=(), md=md, csv=csv, html=html, out=out
    )
    assert code == 0
    return document, text


def test_the_terminal_has_the_score_and_the_main_measures(out):
    document, text = ranked(out, "bad", "good", "r3")
    assert [row["system"] for row in document["measures"]["score"]["rows"]] == [
        "good",
        "fair",
        "bad",
    ]
    assert "Leaderboard of 3 systems, judge j, protocol aspects@strict" in text
    assert (
        "over the 12 pairs of 12 source images that all systems have a value of; no pair is left out"
        in text
    )
    assert "main measures: mean (ranks)" in text
    assert "7.00 (1–3)" in text


def test_differences_are_those_from_the_reference_which_takes_part(out):
    document, text = ranked(out, "bad", "good", reference="latest")
    assert document["reference"] == "fair"
    differences = {
        row["system"]: row["difference"] and round(row["difference"]["mean"], 6)
        for row in document["measures"]["score"]["rows"]
    }
    assert differences == {"good": 1.0, "fair": None, "bad": -5.0}
    assert "reference" in text
    assert (
        ranked(out, "bad", "good", "fair", reference="r3")[0]
        == ranked(out, "bad", "good", "latest", reference="fair")[0]
    )


def test_markdown_and_csv_hold_all_measures_and_categories(out, tmp_path):
    document, text = ranked(
        out, "bad", "good", "fair", md=tmp_path / "x/board.md", csv=tmp_path / "board.csv"
    )
    assert "md: x/board.md" in text
    markdown = (tmp_path / "x/board.md").read_text()
    assert markdown.count("| good |") == 4
    assert "## score \\(0 to 10\\)" in markdown
    assert "no pair is left out" in markdown
    rows = list(csv.DictReader(io.StringIO((tmp_path / "board.csv").read_text())))
    assert len(rows) == 2 * 3 * 3  # measures, systems, groups
    first = document["measures"]["score"]["rows"][0]
    assert rows[0] | {"run": "r2", "rank_low": "1"} == rows[0]
    assert float(rows[0]["mean"]) == first["overall"]["mean"]
    assert float(rows[1]["high"]) == first["categories"]["physics"]["ci95"][1]


def test_comparing_three_runs_is_a_leaderboard_with_the_first_as_reference(out):
    document, text, code = compare_runs(["bad", "good", "fair"], out=out, **UNGATED)
    assert (document, text) == ranked(out, "bad", "good", "fair", reference="bad")
    assert code == 0
    with pytest.raises(UsageError, match="gates compare two runs"):
        compare_runs(["bad", "good", "fair"], out=out, **{**UNGATED, "max_drop": ["overall:0"]})
    with pytest.raises(UsageError, match="compare bad: expected two or more"):
        compare_runs(["bad"], out=out, **UNGATED)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param(
            {"judge": {"spec": "k", "fingerprint": "2" * 64}}, "another judge: j there", id="judge"
        ),
        pytest.param({"judge": {"variant": "compat"}}, "another variant of the pro", id="variant"),
        pytest.param({"judge": {"protocol": "kris"}}, "another protocol", id="protocol"),
        pytest.param({"judge": {"protocol_sha256": "3" * 64}}, "another content", id="digest"),
        pytest.param({"seeds": 2}, "another number of seeds", id="seeds"),
        pytest.param({"editor": {"rewrites": "4" * 64}}, "edits by the suite's ins", id="rewrites"),
        pytest.param(
            {"item": {"sha256": "5" * 64}},
            "the instruction, description or reference of 1 of 12 pairs has changed",
            id="content",
        ),
    ],
)
def test_unlike_runs_are_refused_by_what_differs_and_both_are_named(
    tmp_path, monkeypatch, changes, reason
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "benchmarks" / "baselines"
    base, other = system("a", 5.0), system("b", 5.0, pairs=range(13))
    seeds = changes.get("seeds", 1)
    first, *rest = (
        replace(item, seeds=tuple(replace(item.seeds[0], seed=seed) for seed in range(seeds)))
        for item in other.items
    )
    update = {
        "judge": other.judge.model_copy(update=changes.get("judge")),
        "editor": other.editor.model_copy(update=changes.get("editor")),
        "seeds": seeds,
        "items": (replace(first, **changes.get("item", {})), *rest),
    }
    write_baseline(folder, base)
    write_baseline(folder, other)
    ranked(tmp_path, "a", "b")
    write_baseline(folder, other.model_copy(update=update))
    with pytest.raises(UsageError, match=f"^a and b cannot be compared, {reason}"):
        ranked(tmp_path, "a", "b")


def test_a_run_that_occurs_twice_or_ended_early_is_refused(out, tmp_path):
    with pytest.raises(UsageError, match=r"^good and r2 are one run, r2: name it once"):
        ranked(out, "good", "r2")
    write_baseline(tmp_path / "benchmarks" / "baselines", ended_early(system("early", 5.0), 3))
    with pytest.raises(UsageError, match="ended early"):
        ranked(out, "early", "good")


def test_the_page_is_one_file_and_has_a_row_and_a_mark_a_system(out, tmp_path):
    ranked(out, "bad", "good", "fair", reference="bad", html=tmp_path / "board.html")
    page = (tmp_path / "board.html").read_text()
    assert page.count("<script") == 1
    assert "src=" not in page.partition("<script")[0]
    assert page.count('<circle class="mean"') == 2 * 3  # measures, systems
    assert page.count('<th scope="row">good</th>') == 2 * 2  # means and intervals
    assert "good: score 8.10, better than all others" in page


def test_without_intervals_the_axis_spans_the_scale():
    runs = [a_baseline(baseline_item("p", score), name=f"s{score}") for score in (7.4, 7.6)]
    ticks = chart(rank_runs(runs, None, ()).measures[SCORE])["ticks"]
    assert [ticks[0]["score"], ticks[-1]["score"]] == ["0", "10"]


def test_a_system_stands_on_the_axis_of_its_chart():
    part = rank_runs([system("low", 4.0), system("high", 8.0)], None, ()).measures[SCORE]
    plot = chart(part)
    assert [row["name"] for row in plot["rows"]] == ["high", "low"]
    ends = [tick["x"] for tick in plot["ticks"]]
    for row in plot["rows"]:
        assert ends[0] <= row["ends"][0] <= row["mean"] <= row["ends"][1] <= ends[-1]
    assert plot["rows"][0]["mean"] > plot["rows"][1]["mean"]


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ([], "no intervals, and no system better than another: each category has one source image"),
        (
            ["c", "d", "e"],
            "social has one source image: overall intervals take its variance from the other",
        ),
    ],
)
def test_a_mean_without_an_interval_of_its_own_is_explained(more, note):
    runs = []
    for name, score in (("x", 5.0), ("y", 9.0)):
        items = [baseline_item(pair, score - place / 9) for place, pair in enumerate(["a", *more])]
        runs.append(
            a_baseline(*items, baseline_item("b", score, "social"), name=name, run=f"r{name}")
        )
    part = rank_runs(runs, None, ()).measures[SCORE]
    assert measure_table(SCORE, part, None).notes[1].startswith(note)
    assert [row["ends"] is None for row in chart(part)["rows"]] == [not more] * 2
