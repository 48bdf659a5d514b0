"""The page of `imgedit leaderboard` in a real browser: it fits wide and narrow windows."""

from __future__ import annotations

import pytest
from documents import a_baseline, baseline_item

from pytest_imgedit.report.leaderboard_page import render
from pytest_imgedit.stats.leaderboard import rank_runs


@pytest.mark.parametrize("width", [1440, 390])
def test_only_the_tables_scroll_sideways(page, tmp_path, width):
    names = [f"a-long-name-of-a-category-{number}" for number in range(8)]
    items = [baseline_item(f"p{n}", n % 10, names[n % 8]) for n in range(32)]
    runs = [a_baseline(*items, run=f"r{n}", name=f"a-long-name-of-a-system-{n}") for n in range(3)]
    path = tmp_path / "page.html"
    path.write_text(render(rank_runs(runs, runs[0], ())))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"file://{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(
        "(box => box.scrollWidth > box.clientWidth)(document.querySelector('.wide'))"
    )
    assert page.locator("circle.mean").count() == 3
    assert page.problems == []
