"""The HTML report in a real browser: it filters, sorts, shows a card, and runs nothing from the data."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = {
    "executable_path": "/usr/bin/chromium",
    "args": ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
}


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.problems = []
    page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: (page.problems.append("a dialog opened"), dialog.dismiss()))
    page.on("request", lambda request: page.problems.append(request.url) if request.url.startswith("http") else None)
    yield page
    page.close()


@pytest.fixture
def report(bench):
    """Open the report of a run in which one pair failed."""
    (bench.path / "mixed.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Judge:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions): return [self.one(question) for question in questions]\n"
        "    def one(self, question):\n"
        "        if question.pair_id == 'causal-0000': return Answer('I will not grade this.')\n"
        "        number = 2 + int(question.pair_id[-4:])\n"
        "        return Answer(f'instruction: {number}\\npreservation: {number}\\nrealism: {number}')\n"
    )
    bench.run("--imgedit-editor=oracle", "--imgedit-judge=mixed:Judge", "--imgedit-limit=4")
    return f"file://{bench.runs[-1] / 'report.html'}"


def cards(page):
    return page.locator("article").evaluate_all("nodes => nodes.map(node => node.id)")


def test_report_opens_without_a_problem_and_shows_every_pair_worst_first(page, report):
    page.goto(report)
    assert page.locator(".verdict").inner_text() == "FAIL: 1 of 20 pairs without a score, 0 allowed"
    assert cards(page)[0] == "pair-causal-0000"
    assert page.locator("#count").inner_text() == "20 of 20 pairs"
    scores = [float(text) for text in page.locator(".score:not(.none)").all_inner_texts()]
    assert scores == sorted(scores)
    assert len(scores) == 19
    assert page.problems == []


def test_filters_by_category_and_by_errors(page, report):
    page.goto(report)
    page.select_option("#category", "physics")
    assert sorted(cards(page)) == [f"pair-physics-000{n}" for n in range(4)]
    page.select_option("#category", "")
    page.select_option("#status", "error")
    assert cards(page) == ["pair-causal-0000"]
    assert page.locator("#count").inner_text() == "1 of 20 pairs"
    page.select_option("#status", "")
    page.fill("#search", "physics-0002")
    assert cards(page) == ["pair-physics-0002"]
    page.fill("#search", "")
    page.select_option("#sort", "best")
    assert cards(page)[-1] == "pair-causal-0000"


def test_a_card_shows_images_instruction_aspects_and_reply(page, report):
    page.goto(f"{report}#pair-physics-0003")
    card = page.locator("#pair-physics-0003")
    assert card.locator(".score").inner_text() == "5.00"
    assert card.locator(".instruction").inner_text()
    assert card.locator("figcaption").all_inner_texts() == ["source", "edit", "reference"]
    page.wait_for_function(
        "[...document.querySelectorAll('#pair-physics-0003 img')].every(image => image.naturalWidth === 128)"
    )
    assert card.locator(".aspects").inner_text().split() == [
        "instruction",
        "5.00",
        "preservation",
        "5.00",
        "realism",
        "5.00",
    ]
    card.locator("summary").click()
    assert card.locator(".reply").inner_text() == "instruction: 5\npreservation: 5\nrealism: 5"
    assert page.problems == []


def test_failed_card_shows_its_error_and_the_raw_reply(page, report):
    page.goto(report)
    card = page.locator("#pair-causal-0000")
    assert "unreadable_reply" in card.locator(".error").inner_text()
    card.locator("summary").click()
    assert card.locator(".reply").inner_text() == "I will not grade this."


def test_hostile_texts_do_nothing(page, bench):
    from PIL import Image

    Image.new("RGB", (30, 30), "red").save(bench.path / "a.png")
    text = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    row = {"id": "x", "category": "physics", "image": "a.png", "instruction": text}
    (bench.path / "pairs.json").write_text(json.dumps([row]))
    (bench.path / "evil.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Judge:\n"
        "    def __init__(self, *, device): pass\n"
        f"    def answer(self, questions): return [Answer({text!r}) for _ in questions]\n"
    )
    bench.run("--imgedit-suite=pairs.json", "--imgedit-judge=evil:Judge")
    page.goto(f"file://{bench.runs[-1] / 'report.html'}")
    assert page.locator(".instruction").inner_text() == text
    page.locator("article summary").click()
    assert page.locator(".reply").inner_text() == text
    assert page.problems == []


def test_narrow_page_has_no_sideways_scroll(page, report):
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(report)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
