"""The HTML report in a real browser: it filters, sorts, shows and compares images, and runs nothing
from the data.
"""

from __future__ import annotations

import json

import pytest
from documents import a_run, an_item
from PIL import Image

from pytest_imgedit.core import images
from pytest_imgedit.core.results import ItemError, Measure
from pytest_imgedit.report.html import render
from pytest_imgedit.report.pictures import linked
from pytest_imgedit.report.tables import CATEGORY_HEADER
from pytest_imgedit.stats.decision import measures_of, summarize_items
from pytest_imgedit.store.blobs import Blobs


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
        "        return Answer(f'instruction: {number}\\npreservation: {number}\\nrealism: "
        "{number}')\n"
    )
    bench.run("--imgedit-editor=oracle", "--imgedit-judge=mixed:Judge", "--imgedit-limit=4")
    return f"file://{bench.runs[-1] / 'report.html'}"


@pytest.fixture
def measured_report(tmp_path):
    """The report of a run with measures of both directions; one pair has no value of any."""
    measures = {
        "realism": Measure(scale=(0.0, 10.0)),
        "lpips": Measure(scale=(0.0, 1.0), lower_is_better=True),
    }
    items = [
        an_item("low", score=1.0, aspects={"realism": 5.0, "lpips": 0.1}),
        an_item("middle", score=2.0, aspects={"realism": 4.0, "lpips": 0.2}),
        an_item("high", score=3.0, aspects={"realism": 6.0, "lpips": 0.3}),
        an_item("without", score=None, error=ItemError("score", "unreadable_reply", "no number")),
    ]
    _, _, measured = summarize_items(items, measures_of(items, measures))
    path = tmp_path / "report.html"
    path.write_text(render(a_run(items=items, measures=measured), lambda name: None))
    return f"file://{path}"


def cards(page):
    return page.locator("article").evaluate_all("nodes => nodes.map(node => node.id)")


def test_report_opens_without_a_problem_and_shows_every_pair_worst_first(page, report):
    page.goto(report)
    verdict = page.locator(".outcome").inner_text()
    assert verdict == "FAIL: judge: no line 'instruction': expected… (1 of 20 pairs)"
    gate = page.locator(".gates li.fail").inner_text()
    assert gate.startswith("FAIL max_errors: 1 of 20 pairs without a score, 0 allowed")
    assert "(with theirs, overall would be between 3.40 and 3.90)" in gate
    assert page.locator(".gates + .quiet").inner_text() == "a part: 20 of 50 pairs"
    assert cards(page)[0] == "pair-causal-0000"
    assert page.locator("#count").inner_text() == "20 of 20 pairs"
    scores = [float(text) for text in page.locator(".score:not(.none)").all_text_contents()]
    assert scores == sorted(scores)
    assert len(scores) == 19
    assert page.problems == []


def test_first_screen_shows_the_lowest_pairs_with_source_and_edit(page, report):
    page.goto(report)
    first = page.locator(".first li")
    assert first.count() == 6
    assert first.locator("b").all_text_contents()[:4] == ["2.00"] * 4
    assert first.nth(0).locator("figcaption").all_text_contents() == ["source", "edit"]
    assert first.nth(5).bounding_box()["y"] < 900
    page.until(
        "[...document.querySelectorAll('.first img')].every(image => image.naturalWidth > 0)"
    )
    name = first.nth(0).locator("a").inner_text()
    first.nth(0).locator("a").click()
    page.until(f"document.activeElement.id === 'pair-{name}'")
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
    page.fill("#search", "social")
    assert set(
        page.locator("article .tag").evaluate_all(
            "nodes => nodes.map(n => n.textContent.split(' ')[0])"
        )
    ) == {"social"}
    page.fill("#search", "unreadable_reply")
    assert page.locator("#count").inner_text() == "1 of 20 pairs"
    page.fill("#search", "")
    for kind, count in (("copy", 0), ("reframed", 0), ("leak", 20)):  # the editor is the oracle
        page.select_option("#status", kind)
        assert len(cards(page)) == count
    page.select_option("#status", "")
    page.select_option("#sort", "change")
    lines = page.locator("article p", has_text="change from the source").all_text_contents()
    changes = [float(line.split()[-1]) for line in lines]
    assert changes == sorted(changes)
    assert len(changes) == 20
    page.select_option("#sort", "best")
    assert cards(page)[-1] == "pair-causal-0000"


def test_sorts_by_any_measure_its_worst_values_first(page, measured_report):
    page.goto(measured_report)
    page.select_option("#sort", label="realism, worst first")
    assert cards(page) == ["pair-middle", "pair-low", "pair-high", "pair-without"]
    page.select_option("#sort", label="lpips, worst first")  # lower is better
    assert cards(page) == ["pair-high", "pair-middle", "pair-low", "pair-without"]
    page.select_option("#sort", "worst")
    assert cards(page) == ["pair-without", "pair-low", "pair-middle", "pair-high"]
    assert page.problems == []


def test_a_card_shows_images_instruction_aspects_and_reply(page, report):
    page.goto(f"{report}#pair-physics-0003")
    card = page.locator("#pair-physics-0003")
    assert card.locator(".score").inner_text() == "5.00"
    assert card.locator(".instruction").inner_text()
    assert card.locator("figcaption").all_inner_texts() == ["source", "edit", "reference"]
    page.until(
        "[...document.querySelectorAll('#pair-physics-0003 img')].every(image => "
        "image.naturalWidth === 128)"
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


HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)><svg/onload=alert(3)>"
    "[x](javascript:alert(4)) ![x](http://evil/x.png) | ``` \n# heading\n<https://evil.example> "
    "<!-- \u202egnp.exe "
    "\x1b[31m &lt;b&gt; {{ 7 * 7 }} " + "W" * 3000
)


@pytest.fixture
def hostile(bench):
    """Run a suite, an editor, a judge and a report section that all say hostile things; return the
    run's folder.
    """
    Image.effect_noise((64, 64), 60).save(bench.path / "a.png")
    row = {
        "category": HOSTILE[:90],
        "image": "a.png",
        "instruction": HOSTILE,
        "description": HOSTILE,
        "tags": [HOSTILE],
    }
    rows = [
        {**row, "id": name, "difficulty": HOSTILE, "reference_text": HOSTILE}
        for name in ("good", "bad", "<b>x")
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    (bench.path / "conftest.py").write_text(
        f"def pytest_imgedit_report_section(config, results): return {HOSTILE!r}, {HOSTILE!r}\n"
    )
    (bench.path / "evil.py").write_text(
        "from PIL import ImageOps\n"
        "from pytest_imgedit import Answer\n"
        f"TEXT = {HOSTILE!r}\n"
        "class Both:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        if request.pair_id == 'bad': raise RuntimeError(TEXT)\n"
        "        return ImageOps.invert(request.source)\n"
        "    def answer(self, questions): return [self.one(question) for question in questions]\n"
        "    def one(self, question):\n"
        "        if question.pair_id == 'good': return Answer(score=5.0, aspects={TEXT: 1.0})\n"
        "        return Answer(TEXT)\n"
    )
    bench.run(
        "--imgedit-suite=pairs.json", "--imgedit-editor=evil:Both", "--imgedit-judge=evil:Both"
    )
    return bench.runs[-1]


def shown(text):
    return text.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")


@pytest.mark.parametrize("width", [1200, 380])
@pytest.mark.everyday_for("1200")
def test_hostile_texts_do_nothing_in_the_html_report(page, hostile, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"file://{hostile / 'report.html'}")
    assert page.locator("article").count() == 3
    for article in page.locator("article").all():
        assert article.locator(".instruction").text_content() == shown(HOSTILE)
        for summary in article.locator("summary").all():
            summary.click()
    assert shown(HOSTILE) in [reply.text_content() for reply in page.locator(".reply").all()]
    page.wait_for_timeout(200)
    assert page.problems == []
    assert page.locator("script").count() == 2
    assert (
        page.locator(
            "#gallery svg, .chart svg svg, iframe, article .instruction *, article .reply *, "
            "article .error *"
        ).count()
        == 0
    )
    assert page.locator("img[src]").evaluate_all(
        "images => images.every(image => image.src.startsWith('file:'))"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator("article").evaluate_all(
        "nodes => nodes.map(node => node.scrollWidth - node.clientWidth)"
    )
    assert max(boxes) <= 1


def test_hostile_texts_do_nothing_in_the_markdown_report(page, hostile):
    from markdown_it import MarkdownIt

    text = (hostile / "report.md").read_text()
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    page.set_content(rendered)
    page.wait_for_timeout(200)
    assert page.problems == []
    assert page.locator("script, img, svg, a, iframe, b").count() == 0
    assert page.locator("pre").count() == 1  # the body of the hook's section
    headings = page.locator("h1, h2").all_text_contents()
    kinds = [name.split()[0] for name in headings if not name.startswith("measure ")]
    assert kinds[:3] == ["Image", "Gates", "Pairs"]
    assert len(kinds) == 4  # the last is the title of the hook's section
    rows = page.locator("table").first.locator("tbody tr").all()
    assert [row.locator("td").count() for row in rows] == [len(CATEGORY_HEADER)] * 2


@pytest.fixture
def report_of_sources(tmp_path):
    """The report of a pair with three sources of unlike shapes, of which the second is edited, and
    of a pair with one.
    """
    blobs = Blobs(tmp_path / "blobs")
    names = []
    for size, color in (((90, 30), "red"), ((30, 90), "green"), ((60, 60), "blue")):
        digest = blobs.put(images.encode_png(Image.new("RGB", size, color)), durable=False)
        blobs.made_thumbnail(digest)
        names.append(f"{digest[:2]}/{digest}.png")
    wide, high, square = names
    of_three = {"source": high, "further": (wide, square), "edited_source": 2}
    made = {"edit": {"sources": 3, "composited": True}, "blob": square[3:67], "reference": wide}
    items = [
        an_item("three", score=1.0, **of_three, **made),
        an_item("one", score=2.0, source=wide, blob=high[3:67]),
    ]
    path = tmp_path / "report.html"
    path.write_text(render(a_run(items=items), linked(blobs.folder, path)))
    return f"file://{path}"


def test_edits_are_compared_with_the_edited_one_of_three_sources_or_with_a_chosen_one(
    page, report_of_sources
):
    page.goto(report_of_sources)
    captions = ["source 1", "source 2 (edited)", "source 3", "edit"]
    card = page.locator("#pair-three")
    assert card.locator("figcaption").all_text_contents() == [*captions, "reference"]
    assert page.locator(".first li").nth(0).locator("figcaption").all_text_contents() == captions
    told = "given 3 source images; laid over white: the editor's image had transparent pixels"
    assert told in card.text_content()
    card.locator("figure button").nth(2).click()
    panes = page.locator("#look-stage figcaption").all_text_contents()
    assert panes == [*captions[:3], "1 edit 1.00 composited", "reference"]
    assert told in page.locator("#look-side").text_content()

    def compared():
        sizes = "images => images.map(image => [image.naturalWidth, image.naturalHeight])"
        page.until("[...document.querySelectorAll('#look img')].every(image => image.complete)")
        return page.locator(".over img").evaluate_all(sizes)

    assert compared() == [[30, 90]]
    against = page.get_by_label("The source that edits are compared with")
    against.select_option(label="against source 1")
    assert compared() == [[90, 30]]
    against.focus()
    page.keyboard.press("s")  # the choice has the focus, and keeps its keys
    assert page.locator("#look-stage").get_attribute("data-mode") == "plain"
    page.locator("#look-stage").focus()
    page.keyboard.press("Enter")
    assert page.locator(".pane:visible figcaption").all_text_contents()[0] == "source 1"
    page.keyboard.press("ArrowRight")
    page.until("document.getElementById('look-title').textContent === 'one'")
    assert not against.is_visible()
    assert compared() == [[90, 30]]
    page.keyboard.press("ArrowLeft")
    page.until("document.getElementById('look-title').textContent === 'three'")
    assert compared() == [[30, 90]]
    assert page.problems == []


def test_three_sources_fit_a_narrow_page(page, report_of_sources):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(report_of_sources)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#pair-three figure button").first.click()
    assert page.evaluate("document.getElementById('look').scrollWidth") <= 390
    assert page.problems == []


def test_narrow_page_has_no_sideways_scroll(page, report):
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(report)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
