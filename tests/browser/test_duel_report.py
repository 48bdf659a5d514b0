"""Duels in the HTML report and in `imgedit view`, in a real browser: both edits, the votes with
their reasons, filters.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from documents import an_item
from duels import WAYS, a_run_with_duel, a_vote, make_duel
from PIL import Image

from pytest_imgedit.core import images
from pytest_imgedit.report import html
from pytest_imgedit.report.pictures import linked
from pytest_imgedit.report.view_page import StoredRun, write_view
from pytest_imgedit.store.blobs import Blobs

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202ecod\x1b[31m"


def put(blobs, colour):
    return blobs.put(images.encode_png(Image.new("RGB", (32, 32), colour)), durable=False)


def with_edits(pair, now, before):
    seed = pair.seeds[0]
    edits = {"now": now, "before": now if seed.is_identical else before}
    return pair.model_copy(update={"seeds": (replace(seed, **edits),)})


@pytest.fixture
def dueled(tmp_path):
    """A run with its blobs, whose pair `lost` has a hostile reply and no edit of the other run."""
    blobs = Blobs(tmp_path / "blobs")
    source, now, before = (put(blobs, (value, 0, 90)) for value in (0, 120, 240))
    duel = make_duel()
    others = dict.fromkeys(WAYS, before) | {"lost": "ee" * 32}
    pairs = {name: with_edits(pair, now, others[name]) for name, pair in duel.pairs.items()}
    votes = (a_vote("now", 0.0, replies={"": HOSTILE}), a_vote("before", 0.0))
    seed = replace(pairs["lost"].seeds[0], votes=votes)
    pairs["lost"] = pairs["lost"].model_copy(update={"seeds": (seed,)})
    items = [
        an_item(name, category, blob=now, aspects={}, source=f"{source[:2]}/{source}.png")
        for name, (category, _) in WAYS.items()
    ]
    run = a_run_with_duel(duel.model_copy(update={"pairs": pairs}), items=items)
    return StoredRun(run, blobs.folder)


@pytest.fixture
def report(dueled, tmp_path, page):
    path = tmp_path / "report.html"
    path.write_text(html.render(dueled.results, linked(dueled.blobs, path)))
    page.goto(f"file://{path}")
    return page


@pytest.fixture
def view(dueled, tmp_path, page):
    """The page of two runs, of which one has duels."""
    other = dueled.results.model_copy(update={"duel": None})
    other = other.model_copy(update={"run": other.run.model_copy(update={"id": "r2"})})
    runs = [dueled, StoredRun(other, dueled.blobs)]
    write_view(runs, [], tmp_path / "page", is_movable=False)
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs=r1,r2")
    page.until("document.querySelectorAll('[data-pair]').length > 0")
    return page


def ids(page):
    return page.locator("article").evaluate_all("nodes => nodes.map(node => node.id.slice(5))")


def test_pairs_are_chosen_by_how_their_duels_ended(report):
    ways = {
        "duel-won": ["won"],
        "duel-lost": ["lost"],
        "duel-tie": ["tied"],
        "duel-identical": ["same"],
        "duel-turned": ["turned"],
        "duel-error": ["failed"],
    }
    for way, names in ways.items():
        report.select_option("#status", way)
        assert ids(report) == names, way
    report.select_option("#status", "")
    report.select_option("#sort", "duel")
    assert ids(report) == ["lost", "turned", "same", "tied", "won", "failed"]
    report.fill("#search", "shown first: before. share: 0.5")
    assert ids(report) == ["tied"]
    assert report.problems == []


def test_a_pair_shows_both_edits_and_the_votes_of_both_orders(report):
    card = report.locator("#pair-turned")
    assert card.locator("figcaption").all_inner_texts() == ["source", "edit", "baseline edit"]
    line = "duel against main: tie, share 0.50; the vote changes with the order"
    assert card.locator("p", has_text="duel against").inner_text() == line
    card.locator("summary", has_text="votes of the duel").click()
    assert card.locator(".vote").all_inner_texts() == [
        "edit shown first: vote for the edit",
        "baseline edit shown first: vote for the baseline edit",
    ]
    assert card.locator("pre").first.inner_text() == "Shown first: now. Share: 1.0."
    card.locator("button").nth(1).click()
    report.until("document.getElementById('look-said').textContent.includes('Share: 1.0.')")
    assert "order decides" in report.locator(".pane.active figcaption").inner_text()
    assert report.problems == []


def test_what_a_pair_lacks_is_said(report):
    assert report.locator("#pair-same figcaption").all_text_contents() == ["source", "edit"]
    assert "identical edits, which count half" in report.locator("#pair-same").text_content()
    lost = report.locator("#pair-lost")
    assert "an edit of main is not in the store of this run" in lost.text_content()
    assert lost.locator("figcaption").all_text_contents() == ["source", "edit"]
    failed = report.locator("#pair-failed")
    assert (
        "not decided in both orders: no choice in the reply"
        in failed.locator(".error").text_content()
    )
    assert "I like both." in failed.locator("pre").all_text_contents()


def test_a_hostile_reply_is_shown_as_text(report):
    lost = report.locator("#pair-lost")
    lost.locator("summary", has_text="votes of the duel").click()
    assert lost.locator("pre").first.inner_text() == HOSTILE.replace("\u202e", r"\u202e").replace(
        "\x1b", r"\x1b"
    )
    assert report.problems == []


def rows(page):
    return page.locator("[data-pair]").evaluate_all("rows => rows.map(row => row.dataset.pair)")


def test_view_has_the_share_of_a_run_in_its_head_and_chooses_pairs_by_their_duels(view):
    heads = view.locator(".models thead small").all_text_contents()
    assert heads[0].endswith(" · wins 0.50 (0.40 to 0.60) of duels against main")
    assert "duels" not in heads[1]
    ways = {
        "duel won": ["won"],
        "duel lost": ["lost"],
        "duel: tie": ["tied"],
        "duel: order decides": ["turned"],
        "duel: not decided": ["failed"],
    }
    for way, names in ways.items():
        view.select_option("#status", way)
        assert rows(view) == names, way
    assert view.problems == []


def test_view_shows_the_votes_on_a_pair_beside_its_edits(view):
    view.locator("[data-pair=won] a.id").click()
    captions = [text.split(" ")[0] for text in view.locator("#look figcaption").all_inner_texts()]
    assert captions == ["source", "baseline", "1", "2"]
    view.keyboard.press("Escape")
    view.locator("[data-pair=lost] a.id").click()
    view.until("document.getElementById('look-said')?.textContent.includes('onerror')")
    titles = view.locator("#look-said h4").all_text_contents()
    assert "duel, edit shown first: vote for the baseline edit" in titles
    assert "duel, baseline edit shown first: vote for the baseline edit" in titles
    assert r"\u202ecod\x1b[31m" in view.locator("#look-said").text_content()
    assert view.problems == []


def test_the_list_of_runs_has_the_share_of_duels(view, tmp_path):
    view.goto(f"file://{tmp_path}/page/index.html#view=runs")
    view.until("document.querySelector('#by-duels')")
    assert sorted(view.locator("td.fact-duels").all_text_contents()) == ["", "0.50 of main"]
    assert view.problems == []
