"""A category is named once, when the last of its pairs has a score or an error."""

from __future__ import annotations

import re
from types import SimpleNamespace

from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Edit, Verdict
from pytest_imgedit.run.category_progress import MOST_SHOWN, Categories
from pytest_imgedit.run.work import Work

LINE = re.compile(r"(\w+: \d+ of \d+ scored.*)")


def lines_of(text: str) -> list[str]:
    return [match[1] for line in text.splitlines() if (match := LINE.search(line))]


def test_each_category_is_named_once_and_not_again_where_nothing_is_computed(bench):
    usual = ("--imgedit-judge=fakes:Constant", "--imgedit-limit=2")
    result = bench.run("--imgedit-editor=fakes:Raises", *usual)
    named = lines_of(str(result.stdout))
    assert sorted(line.partition(":")[0] for line in named) == sorted(
        {item["category"] for item in bench.items.values()}
    )
    assert "physics: 1 of 2 scored, 1 failed, mean 5.00" in named
    assert "social: 2 of 2 scored, mean 5.00" in named
    assert lines_of((bench.runs[-1] / "run.log").read_text()) == named

    again = bench.run("--imgedit-editor=fakes:Raises", *usual)
    assert [line.partition(":")[0] for line in lines_of(str(again.stdout))] == ["physics"]


def test_edits_alone_name_no_category(bench):
    assert not lines_of(str(bench.run("--imgedit-judge=none", "--imgedit-limit=1").stdout))


def works_of(categories: int, pairs: int = 2) -> list[Work]:
    return [
        Work(EditPair(f"c{c}-{n}", f"c{c}", "edit", Base64Image("")), seed=0)
        for c in range(categories)
        for n in range(pairs)
    ]


def lines_by(works: list[Work], labels: dict[str, str] | None = None) -> tuple[list, list]:
    """Score all of some works, and return the lines for the terminal and those of the log alone."""
    shown: list[str] = []
    logged: list[str] = []
    categories = Categories(
        works, labels or {}, SimpleNamespace(note=shown.append, log=logged.append)
    )
    for number, work in enumerate(works):
        if work.error is None:
            work.edit = Edit("0" * 64, 1.0, "edit-0")
            work.judgement.verdict = Verdict({}, {}, float(number % 10))
        categories.scored(work)
    categories.look()
    return shown, logged


def test_many_categories_are_named_in_the_log_alone():
    shown, logged = lines_by(works_of(MOST_SHOWN))
    assert (len(shown), logged) == (MOST_SHOWN, [])
    shown, logged = lines_by(works_of(MOST_SHOWN + 1))
    assert (shown, len(logged)) == ([], MOST_SHOWN + 1)


def test_a_line_counts_what_has_no_score_and_says_the_suites_own_name():
    works = works_of(1, pairs=5)
    works[0].fail("exception", "no")
    works[1].judgement.fail("refused", "no")
    works[2].judgement.fail("not_needed", "no")
    assert lines_by(works, {"c0": "物理"})[0] == [
        "c0 物理: 2 of 4 scored, 1 failed, 1 refused, mean 3.50"
    ]


def test_a_category_without_a_score_has_no_mean():
    works = works_of(1)
    for work in works:
        work.fail("exception", "no")
    assert lines_by(works)[0] == ["c0: 0 of 2 scored, 2 failed"]
