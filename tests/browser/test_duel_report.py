"""Duels in the HTML report, in a real browser: both edits, the votes with their reasons, filters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from documents import an_item
from duels import WAYS, a_run_with_duel, a_vote, make_duel
from PIL import Image

from pytest_imgedit.core import images
from pytest_imgedit.report import html
from pytest_imgedit.report.pictures import linked
from pytest_imgedit.store.blobs import Blobs

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202ecod\x1b[31m"


def put(blobs, colour):
    return blobs.put(images.encode_png(Image.new("RGB", (32, 32), colour)), durable=False)


def with_edits(pair, now, before):
    seed = pair.seeds[0]
    edits = {"now": now, "before": now if seed.is_identical else before}
    return pair.model_copy(update={"seeds": (replace(seed, **edits),)})


@pytest.fixture
def report(tmp_path, page):
    """The report of a run, whose pair `lost` has a hostile reply and no edit of the other run."""
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
    path = tmp_path / "report.html"
    path.write_text(html.render(run, linked(blobs.folder, path)))
    page.goto(f"file://{path}")
    return page


def ids(page):
    return page.locator("article").evaluate_all("nodes => nodes.map(node => node.id.slice(5))")


def test_pairs_are_chosen_by_how_their_duels_ended(report):
    ways = {
        "duel-won": ["won"],
        "duel-lost": ["lost"],
        "duel-tie": ["turned", "tied"],
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
    assert "no vote: no choice in the reply" in failed.locator(".error").text_content()
    assert "I like both." in failed.locator("pre").all_text_contents()


def test_a_hostile_reply_is_shown_as_text(report):
    lost = report.locator("#pair-lost")
    lost.locator("summary", has_text="votes of the duel").click()
    assert lost.locator("pre").first.inner_text() == HOSTILE.replace("\u202e", r"\u202e").replace(
        "\x1b", r"\x1b"
    )
    assert report.problems == []
