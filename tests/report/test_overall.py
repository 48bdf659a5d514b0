"""`overall`: the macro mean, with the other statistics of pairs, in every table; and below it the
mean over pairs where categories are uneven.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from documents import a_run, an_item

from pytest_imgedit.cli.merge import ShardRun, merge_results
from pytest_imgedit.cli.runs import list_runs
from pytest_imgedit.core import files
from pytest_imgedit.core.results import ItemError, Measure, ShardInfo
from pytest_imgedit.report import html, markdown, terminal
from pytest_imgedit.report.pictures import Picture

#: Six pairs in two uneven categories: score and PSNR.
PAIRS = {
    "physics": [(8.0, 100.0), (6.0, 30.0), (7.0, 20.0), (7.0, 30.0)],
    "social": [(2.0, 10.25), (3.0, 11.75)],
}
PSNR = {"psnr": Measure(scale=(0.0, 100.0), is_main=True)}
#: By measure: the mean of the category means, the mean over pairs, and the pairs' values.
EXPECTED = {
    "score": (4.75, 5.5, [score for pairs in PAIRS.values() for score, _ in pairs]),
    "psnr": (28.0, 33.67, [psnr for pairs in PAIRS.values() for _, psnr in pairs]),
}


def items_of(pairs):
    return [
        an_item(
            f"{category}-{place}",
            category,
            score,
            aspects={"psnr": psnr},
            source=f"ab/{place:02}{'ab' * 31}.png",
        )
        for category, values in pairs.items()
        for place, (score, psnr) in enumerate(values)
    ]


def a_run_of(pairs, **changes):
    return a_run(items=items_of(pairs), declared=PSNR, **changes)


UNEVEN = a_run_of(PAIRS)
EVEN = a_run_of({"physics": PAIRS["physics"][:2], "social": PAIRS["social"]})
ONLY_PSNR = a_run_of(
    {category: [(None, psnr) for _, psnr in pairs] for category, pairs in PAIRS.items()}
)


def merged():
    """The same pairs as a run of two shards."""
    items = items_of(PAIRS)
    ids = tuple(item.id for item in items)
    shards = []
    for index in (1, 2):
        run = a_run(items=items[index - 1 :: 2], declared=PSNR)
        shards.append(ShardRun(Path("x"), run, ShardInfo(index=index, count=2, ids=ids), Path("x")))
    return merge_results(shards, None)


@pytest.mark.parametrize("results", [UNEVEN, merged()], ids=["a run", "a merged run"])
@pytest.mark.parametrize("name", EXPECTED)
def test_the_statistics_of_overall_are_of_pairs_and_its_mean_is_that_of_categories(results, name):
    macro_mean, pairs_mean, values = EXPECTED[name]
    measured = results.measures[name]
    overall = measured.rows["overall"]
    assert overall.mean == macro_mean
    for row in (overall, measured.micro):
        assert (row.n, row.scored, row.clusters) == (6, 6, 4)
        assert row.std == pytest.approx(statistics.stdev(values))
        assert (row.median, row.min, row.max) == (
            statistics.median(values),
            min(values),
            max(values),
        )
    assert measured.micro.mean == pytest.approx(pairs_mean, abs=0.005)
    assert overall.ci95 != measured.micro.ci95
    score = results.measures["score"]
    assert (results.overall.macro, results.overall.micro) == (score.rows["overall"], score.micro)


def test_overall_without_a_macro_mean_has_the_other_statistics():
    error = ItemError("score", "unreadable_reply", "no number")
    failed = an_item("failed", "causal", None, error=error)
    results = a_run(items=[*items_of(PAIRS), failed], declared=PSNR)
    for overall in (results.overall.macro, results.measures["psnr"].rows["overall"]):
        assert (overall.n, overall.scored, overall.errors) == (7, 6, 1)
        assert (overall.mean, overall.ci95, overall.se, overall.mde) == (None,) * 4
        assert None not in (overall.std, overall.median, overall.min, overall.max)


def page(results):
    """The tables of the HTML report, a line a row."""
    text = html.render(results, lambda name: Picture(name, name))
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    return "\n".join(re.sub(r"\s*<[^>]*>\s*", " ", row).strip() for row in rows)


def page_in_markdown(results):
    lines = markdown.render(results).replace("\\", "").splitlines()
    return "\n".join(line.strip("| ").replace(" | ", " ") for line in lines)


@pytest.mark.parametrize(
    ("show", "score_row", "micro_row"),
    [
        pytest.param(
            lambda results: terminal.render(results, 120, color=False),
            r"overall +6 4\.75 .* 2\.00 8\.00 28\.00",
            r"overall \(micro\) +6 5\.50 .* 2\.00 8\.00 33\.67",
            id="terminal",
        ),
        pytest.param(
            lambda results: terminal.render(results, 120, color=False, verbose=True),
            r"overall +6 +6 +0 +0 4\.75 .* 2\.43 +6\.50 2\.00 8\.00 28\.00",
            r"overall \(micro\) 6 +6 +0 +0 5\.50 .* 2\.43 +6\.50 2\.00 8\.00 33\.67",
            id="terminal -v",
        ),
        pytest.param(
            page_in_markdown,
            r"overall 6 6 0 0 4\.75 .* 2\.43 6\.50 2\.00 8\.00 28\.00",
            r"overall \(micro\) 6 6 0 0 5\.50 .* 2\.43 6\.50 2\.00 8\.00 33\.67",
            id="markdown",
        ),
        pytest.param(
            page,
            r"overall +4\.75 .* 28\.00 +6 +6 +0 +0 +2\.43 +6\.50 +2\.00 +8\.00",
            r"overall \(micro\) +5\.50 .* 33\.67 +6 +6 +0 +0 +2\.43 +6\.50 +2\.00 +8\.00",
            id="html",
        ),
    ],
)
def test_the_mean_over_pairs_stands_below_overall_where_categories_are_uneven(
    show, score_row, micro_row
):
    text = show(UNEVEN)
    assert re.search(rf"^{score_row}$\n^{micro_row}$", text, re.M), text
    assert "(macro)" not in text
    even = show(EVEN)
    assert re.search(r"^overall ", even, re.M)
    assert "(micro)" not in even


@pytest.mark.parametrize(
    ("show", "extremes"),
    [
        pytest.param(
            lambda results: terminal.render(results, 120, color=False),
            r"10\.25 100\.00",
            id="terminal",
        ),
        pytest.param(
            lambda results: terminal.render(results, 120, color=False, verbose=True),
            r"33\.59 +25\.00 10\.25 100\.00",
            id="terminal -v",
        ),
        pytest.param(page_in_markdown, r"33\.59 25\.00 10\.25 100\.00", id="markdown"),
        pytest.param(page, r"33\.59 +25\.00 +10\.25 +100\.00", id="html"),
    ],
)
def test_the_table_of_a_measure_has_both_rows_too(show, extremes):
    text = show(ONLY_PSNR)
    assert re.search(
        rf"^overall .*28\.00 .*{extremes}.*$\n^overall \(micro\) .*33\.67 .*{extremes}.*$",
        text,
        re.M,
    ), text


def test_a_metric_that_some_pairs_lack_makes_its_own_categories_uneven():
    pairs = {"physics": [(8.0, 100.0), (6.0, 30.0)], "social": [(2.0, 10.25), (3.0, 11.75)]}
    items = items_of(pairs)
    items[0] = an_item("physics-0", "physics", 8.0, aspects={}, missing=("psnr",))
    text = terminal.render(a_run(items=items, declared=PSNR), 120, color=False)
    assert re.search(
        r"^overall +4 4\.75 .* 20\.50$\n^overall \(micro\) +4 4\.75 .* 17\.33$", text, re.M
    )


def test_imgedit_runs_lists_the_macro_mean(tmp_path):
    (tmp_path / "runs/r1").mkdir(parents=True)
    files.write_json(tmp_path / "runs/r1/results.json", UNEVEN.model_dump(mode="json"))
    document, text, _ = list_runs(tmp_path)
    assert document["runs"][0]["overall"] == 4.75
    assert "4.75" in text
