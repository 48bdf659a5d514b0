"""The pages of `imgedit leaderboard` in a real browser: they fit wide and narrow windows."""

from __future__ import annotations

import pytest
from boards_by_hand import DIFFERENCE, a_board, rated
from documents import a_baseline, baseline_item

from pytest_imgedit.report import board_page
from pytest_imgedit.report.board_tables import ratings_of
from pytest_imgedit.report.leaderboard_page import render
from pytest_imgedit.stats.boards import Elo
from pytest_imgedit.stats.leaderboard import rank_runs


@pytest.mark.parametrize("width", [1440, 768, 390])
@pytest.mark.everyday_for("768")
def test_no_column_is_cut(page, tmp_path, width):
    names = [f"a-long-name-of-a-category-{number}" for number in range(8)]
    items = [baseline_item(f"p{n}", n % 10, names[n % 8]) for n in range(32)]
    runs = [a_baseline(*items, run=f"r{n}", name=f"a-long-name-of-a-system-{n}") for n in range(3)]
    path = tmp_path / "page.html"
    path.write_text(render(rank_runs(runs, runs[0], ())))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"file://{path}")
    page.click("summary")
    page.until("document.querySelector('details').open")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    widths = page.locator(".wide").evaluate_all("ns => ns.map(n => n.scrollWidth - n.clientWidth)")
    assert max(widths) <= 0
    labels = page.locator(".wide td").evaluate_all("cells => cells.map(c => c.dataset.label)")
    assert {"mean", "missing", *names} <= set(labels)
    assert page.locator("circle.mean").count() == 3
    assert page.problems == []


def test_table_that_fits_stays_a_table(page, tmp_path):
    runs = [a_baseline(baseline_item("p", n), run=f"r{n}", name=f"s{n}") for n in range(3)]
    path = tmp_path / "page.html"
    path.write_text(render(rank_runs(runs, None, ())))
    page.goto(f"file://{path}")
    assert page.locator(".wide").count() == 2
    assert page.locator(".stacked").count() == 0
    page.set_viewport_size({"width": 250, "height": 900})
    page.until("document.querySelector('.stacked') !== null")


@pytest.mark.parametrize("width", [1440, 768, 390])
@pytest.mark.everyday_for("768")
def test_no_column_of_a_board_of_duels_is_cut(page, tmp_path, width):
    categories = {f"a-long-name-of-a-category-{n}": Elo(-100.0, (-140.0, -60.0)) for n in range(8)}
    rows = [
        rated(
            f"a-long-name-of-a-system-{n}",
            n,
            -90.0 * n,
            categories=categories,
            difference=DIFFERENCE,
        )
        for n in range(1, 4)
    ]
    board = a_board(*rows)
    path = tmp_path / "page.html"
    path.write_text(board_page.render(ratings_of(board, None), board))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"file://{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    widths = page.locator(".wide").evaluate_all("ns => ns.map(n => n.scrollWidth - n.clientWidth)")
    assert max(widths) <= 0
    labels = page.locator(".wide td").evaluate_all("cells => cells.map(c => c.dataset.label)")
    assert {"Elo", "95% CI of Elo", "diff", *categories} <= set(labels)
    assert page.locator("circle.mean").count() == 3
    assert page.problems == []
