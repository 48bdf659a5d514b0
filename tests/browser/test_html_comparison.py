"""The HTML report of a run with a baseline: charts, filters, viewer, keys, accessibility, many
pairs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from urllib.parse import unquote

import pytest
from folders import fill
from in_process import run_in
from required import require

from pytest_imgedit.core.results import Results
from pytest_imgedit.report import html
from pytest_imgedit.report.pictures import linked

AXE = "axe-core@4.14.1"
JUDGE = """
from pytest_imgedit import Answer
class Judge:
    def __init__(self, *, device): pass
    def answer(self, questions): return [self.one(question) for question in questions]
    def one(self, question):
        if question.pair_id == "causal-0000": return Answer("I will not grade this.")
        edited, source = question.images["edited"], question.images["source"]
        number = int(question.pair_id[-4:]) * 2 + (3 if edited.tobytes() == source.tobytes() else 2)
        return Answer(f"instruction: {number}\\npreservation: {number}\\nrealism: {number}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of inverted images against a baseline of untouched ones, reported in `page.html`
    too.
    """
    folder = fill(tmp_path_factory.mktemp("compared"))
    (folder / "judging.py").write_text(JUDGE)
    options = ["--imgedit-judge=judging:Judge", "--imgedit-limit=4", "--imgedit-max-errors=1"]
    before = ["--imgedit-save=main"]
    after = [
        "--imgedit-editor=fakes:Slow",
        "--imgedit-set=editor.delay=0",
        "--imgedit-compare=main",
    ]
    after += ["--imgedit-controls", "--imgedit-judge-repeats=1", "--imgedit-html=page.html"]
    for more in (before, after):
        run_in(folder, "-q", *options, *more)
    return folder


@pytest.fixture
def report(folder, page):
    page.goto(f"file://{folder / 'page.html'}")
    return page


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The script of axe-core, from the npm registry."""
    folder = tmp_path_factory.mktemp("axe")
    require(shutil.which("npm"), "npm (apt-get install npm)")
    packed = subprocess.run(["npm", "pack", "--silent", AXE], cwd=folder, check=False, timeout=120)
    require(packed.returncode == 0, f"a registry from which npm gets {AXE}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def ids(page):
    return [
        name.removeprefix("pair-")
        for name in page.locator("article").evaluate_all("nodes => nodes.map(n => n.id)")
    ]


@pytest.mark.full
def test_charts_show_every_category_with_its_interval_and_the_baseline(report):
    """Costly as the first to use the reports of this module, of runs in processes of their own."""
    rows = report.locator(".chart").first.locator("g")
    assert [text.split(":")[0].strip() for text in rows.locator("title").all_text_contents()] == [
        "physics", "environment", "social", "causal", "referential", "overall",
    ]  # fmt: skip
    assert report.locator(".chart .before").count() == 6
    assert report.locator(".chart .interval").count() == 6
    assert (
        sum(
            int(text)
            for text in report.locator(".chart").nth(1).locator("g text").all_text_contents()
        )
        == 19
    )
    titles = report.locator("section h2").all_text_contents()
    assert [title.split(":")[0].split(" main")[0] for title in titles[:6]] == [
        "Fell most", "Scores by category", "Against baseline", "Measures against baseline",
        "Controls", "Judge's noise",
    ]  # fmt: skip
    assert report.problems == []


def test_first_screen_shows_what_fell_beside_the_baseline(report):
    first = report.locator(".first li").first
    assert first.locator("figcaption").all_text_contents() == ["source", "before", "now"]
    before, now = map(float, first.locator("b").inner_text().split(" → "))
    assert now < before
    verdict = report.locator(".outcome").inner_text()
    assert verdict.startswith("INVALID: the judge cannot tell identity, ")


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_no_column_of_a_table_is_cut(report, width):
    report.set_viewport_size({"width": width, "height": 900})
    report.evaluate("document.querySelectorAll('details').forEach(node => node.open = true)")
    cut = (
        "[...document.querySelectorAll('.wide')].filter(n => n.scrollWidth > "
        "n.clientWidth).map(n => n.ariaLabel)"
    )
    assert report.evaluate(cut) == []


def test_filters_by_score_and_by_what_moved(report):
    assert report.locator("#count").inner_text() == "20 of 20 pairs"
    report.fill("#low", "4")
    report.fill("#high", "6.5")
    assert {name[-4:] for name in ids(report)} == {"0001", "0002"}
    report.fill("#low", "")
    report.fill("#high", "")
    report.select_option("#status", "fell")
    assert len(ids(report)) == 19
    assert report.locator(".moved").first.inner_text() == "-1.00"
    report.select_option("#status", "rose")
    assert ids(report) == []
    report.select_option("#status", "copy")
    assert ids(report) == []
    report.select_option("#status", "")
    report.select_option("#sort", "drop")
    assert ids(report)[-1] == "causal-0000"


def title(page):
    return page.locator("#look-title").inner_text()


def test_pair_is_looked_at_with_its_images_side_by_side(report):
    report.select_option("#sort", "suite")
    report.locator("#pair-physics-0001 button").nth(1).click()
    assert report.locator("#look").is_visible()
    assert title(report) == "physics-0001"
    assert report.locator("#look-place").inner_text() == "2 of 20"
    assert report.locator("#look figcaption").all_inner_texts() == [
        "source",
        "reference",
        "1 edit 4.00",
        "2 baseline edit 5.00",
    ]
    report.until("document.getElementById('look-said').textContent.includes('instruction: 4')")
    rows = report.locator("#look-side tbody tr").all_inner_texts()
    assert [row.split("\t")[:3] for row in rows] == [
        ["1 edit", "4.00", "4.00"],
        ["2 baseline edit", "5.00", "–"],
    ]
    report.keyboard.press("s")
    over = report.locator(".edit .over").first
    assert over.evaluate("node => getComputedStyle(node).clipPath") == "inset(0px 50% 0px 0px)"
    report.keyboard.press("2")
    assert report.locator(".pane.active figcaption").inner_text() == "2 baseline edit 5.00"
    report.get_by_role("button", name="next").focus()
    report.keyboard.press("j")
    assert title(report) == "physics-0002"
    assert report.evaluate("location.hash") == "#view-physics-0002"
    report.keyboard.press("Escape")
    report.until("document.activeElement.id === 'pair-physics-0002'")
    assert not report.locator("#look").is_visible()
    assert report.problems == []


def test_tables_are_copied(report):
    report.context.grant_permissions(["clipboard-read", "clipboard-write"])
    report.locator("section:has(#scores) .copy >> text=Markdown").first.click()
    report.until("[...document.querySelectorAll('button')].some(n => n.textContent === 'copied')")
    lines = report.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].startswith("| category | mean | 95% CI |")
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| physics", "| environment"]


def test_keys_walk_the_gallery_and_links_lead_to_a_pair(folder, report):
    report.select_option("#sort", "suite")
    report.locator("#sort").evaluate("node => node.blur()")
    for key in ("j", "j", "k", "j", "Enter"):
        report.keyboard.press(key)
    assert title(report) == "physics-0001"
    report.keyboard.press("Escape")
    report.until("document.activeElement.id === 'pair-physics-0001'")
    report.keyboard.press("/")
    report.keyboard.type("social-0003 j")
    assert report.locator("#search").input_value() == "social-0003 j"
    report.goto("about:blank")
    report.goto(f"file://{folder / 'page.html'}#view-social-0003")
    assert title(report) == "social-0003"
    report.goto("about:blank")
    report.goto(f"file://{folder / 'page.html'}#pair-social-0003")
    assert report.locator("#pair-social-0003").evaluate(
        "node => node.getBoundingClientRect().top < innerHeight"
    )
    assert not report.locator("#look").is_visible()
    assert report.problems == []


def test_the_viewer_shows_the_image_itself(report):
    report.locator("#pair-physics-0001 button").first.click()
    report.until("document.querySelector('.frame img').naturalWidth === 128")
    assert ".imgedit/blobs/" in report.locator(".frame img").first.get_attribute("src")
    assert not report.locator("#look-reduced").is_visible()


def test_who_types_right_after_closing_the_viewer_keeps_the_focus(report):
    report.locator("#pair-physics-0001 button").first.click()
    report.evaluate(
        "window.look_ = document.getElementById('look'); look_.addEventListener('close', () => { window.told = true; })"
    )
    report.evaluate("window.look_.close(); controls.search.focus()")
    report.until("window.told")
    assert report.evaluate("document.activeElement.id") == "search"


def test_closing_the_viewer_leads_to_the_pair_last_seen(report):
    report.select_option("#sort", "suite")
    report.locator("#pair-physics-0001 button").first.click()
    report.keyboard.press("j")
    report.keyboard.press("Escape")
    report.until("document.activeElement.id === 'pair-physics-0002'")


def test_a_page_can_be_moved_with_its_images(folder, report, tmp_path):
    (folder / "page.html").rename(tmp_path / "page.html")
    (folder / "page_files").rename(tmp_path / "page_files")
    try:
        report.goto(f"file://{tmp_path / 'page.html'}#pair-physics-0003")
        report.until(
            "[...document.querySelectorAll('#pair-physics-0003 img')].every(image => "
            "image.naturalWidth === 128)"
        )
        assert report.locator("#pair-physics-0003 img").count() == 4
        report.locator("#pair-physics-0003 button").first.click()
        report.until("document.querySelector('.frame img').naturalWidth === 128")
        assert report.locator(".frame img").first.get_attribute("src").startswith("page_files/")
        assert report.locator("#look-reduced").is_visible()
    finally:
        (tmp_path / "page.html").rename(folder / "page.html")
        (tmp_path / "page_files").rename(folder / "page_files")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (380, "light"), (1200, "dark")])
@pytest.mark.full
def test_axe_finds_no_serious_fault(report, axe, width, scheme):
    report.set_viewport_size({"width": width, "height": 900})
    report.emulate_media(color_scheme=scheme)
    report.evaluate("document.querySelectorAll('details').forEach(node => node.open = true)")
    for viewed in (False, True):
        if viewed:
            report.locator("#pair-physics-0001 button").nth(1).click()
        report.evaluate(axe)
        found = report.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            (fault["id"], [node["html"][:120] for node in fault["nodes"]])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        assert serious == []
    assert report.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.full
def test_many_pairs_are_drawn_as_they_are_scrolled_to(folder, page):
    path = next(folder.glob(".imgedit/runs/*/results.json"))
    document = json.loads(path.read_text())
    document["items"] = [
        {**item, "id": f"{item['id']}-{n:02}"} for n in range(30) for item in document["items"]
    ]
    document.pop("comparison", None)
    target = path.with_name("many.html")
    target.write_text(
        html.render(Results.model_validate(document), linked(folder / ".imgedit" / "blobs", target))
    )
    page.goto(f"file://{target}")
    assert page.locator("#count").inner_text() == "600 of 600 pairs"
    assert page.locator("article").count() <= 96
    page.until("(document.getElementById('more').scrollIntoView(), drawn === 600)")
    page.reload()
    last = page.evaluate("shown[shown.length - 1].id")
    page.evaluate("id => { location.hash = 'pair-' + id; }", last)
    page.wait_for_selector(f"#pair-{last}")
    assert page.locator("article").count() == 600
    assert unquote(page.evaluate("location.hash")).endswith(last)
    page.fill("#search", "physics-0001-07")
    assert ids(page) == ["physics-0001-07"]
    assert page.problems == []
