"""The page of `imgedit view` in a real browser: runs, pairs by models and a pair, by keyboard and
mouse, from `file://` and over HTTP.
"""

from __future__ import annotations

import csv
import functools
import http.server
import io
from urllib.parse import quote

import pytest
from documents import a_run, an_item
from PIL import Image
from serving import serve

from pytest_imgedit.core import images
from pytest_imgedit.core.results import ItemError, Measure, Verdict
from pytest_imgedit.report.view_page import StoredRun, write_view
from pytest_imgedit.store.blobs import Blobs

PAIRS = 60
MEASURES = {
    "realism": Measure(scale=(0.0, 10.0), is_main=True),
    "second.score": Measure(scale=(0.0, 10.0)),
}
FURTHER = {"second": {"spec": "other", "role": "judge", "agreement": None}}
SYSTEMS = ("alpha", "beta", "gamma")
#: By system: what it scores on a pair, and what else is known of the pair.
SCORES = {
    "alpha": lambda number: 5.0,
    "beta": lambda number: 9.5 if number == 7 else 5.0,
    "gamma": lambda number: number % 10 / 2,
}
HOSTILE = "<img src=x onerror=alert(1)>\u202ecod\x1b[31m"


def put(blobs: Blobs, colour: tuple[int, int, int], size: int = 32) -> str:
    """Store an image of one colour, with its thumbnail; return its digest."""
    image = Image.new("RGB", (size, size), colour)
    digest = blobs.put(images.encode_png(image), durable=False)
    blobs.made_thumbnail(digest)
    return digest


def make_item(system: str, number: int, blobs: Blobs):
    name = f"pair-{number:02}"
    source = put(blobs, (number, 0, 0))
    place = SYSTEMS.index(system)
    known = {
        "instruction": f"make it rain, number {number}",
        "source": f"{source[:2]}/{source}.png",
        "blob": put(blobs, (number, 80 * place + 40, 0)),
        "tags": ("wet",) if number % 2 else ("dry",),
        "difficulty": "hard" if number < 10 else "easy",
        "edit": {"near_copy": number == 3, "change": float(number), "key": "ab" * 32},
    }
    category = "physics" if number < 30 else "social"
    if system == "gamma" and number == 5:
        error = ItemError("score", "unreadable_reply", "no number in the reply")
        return an_item(name, category, None, error=error, **known)
    score = SCORES[system](number)
    second = 0.0 if (system, number) == ("beta", 11) else score
    return an_item(
        name,
        category,
        score,
        aspects={"realism": score, "second.score": second},
        reply=f"{system} leaves the sky as it was in {name}: {score:g}",
        **known,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A page of three runs, which can be moved."""
    return written(tmp_path_factory.mktemp("view"), SYSTEMS)


def written(path, systems, **changes):
    blobs = Blobs(path / "store/blobs")
    times = {"started": "2026-11-01T10:00:00Z", "finished": "2026-11-01T10:01:05Z"}
    runs = [
        a_run(
            run={"id": f"run-{system}", "name": system, **times},
            items=[make_item(system, number, blobs) for number in range(PAIRS)],
            declared=MEASURES,
            further=FURTHER,
            editor={"spec": "own:Editor", "params": {"steps": place}},
            **changes,
        )
        for place, system in enumerate(systems)
    ]
    going_on = [{"key": "run-late", "running": "running, 34 of 100 edits", "measures": []}]
    stored = [StoredRun(run, blobs.folder) for run in runs]
    write_view(stored, going_on, path / "page", is_movable=True)
    return path / "page"


def address(folder, /, **state):
    keys = ",".join(f"run-{system}" for system in SYSTEMS)
    chosen = {"view": "pairs", "runs": keys, **state}
    hash_ = "&".join(f"{name}={quote(str(value))}" for name, value in chosen.items())
    return f"file://{folder}/index.html#{hash_}"


def ids(page):
    return page.locator("[data-pair]").evaluate_all("rows => rows.map(row => row.dataset.pair)")


def run_keys(page):
    return page.locator("[data-run]").evaluate_all("rows => rows.map(row => row.dataset.run)")


def open_pairs(page, folder, /, **state):
    page.goto(address(folder, **state))
    page.until("document.querySelectorAll('[data-pair]').length > 0")


def test_runs_are_listed_sorted_and_ticked_by_mouse(page, folder):
    page.goto(f"file://{folder}/index.html")
    page.until("document.querySelectorAll('tbody tr').length === 4")
    text = page.locator("main").text_content()
    assert "running, 34 of 100 edits" in text
    assert "steps=1" in text
    assert "1 min 5 s" in text
    assert "suite: s · judge: j, protocol aspects@strict" in text  # which all runs share
    page.click("#by-score")
    assert run_keys(page) == ["run-beta", "run-alpha", "run-gamma"]
    assert page.locator("#by-score").text_content() == "score ▼"
    page.click("#by-score")
    assert run_keys(page) == ["run-gamma", "run-alpha", "run-beta"]
    page.fill("#find", "beta")
    assert page.locator("[data-run]").count() == 1
    assert page.evaluate("document.activeElement.id") == "find"
    page.check("#tick-run-beta")
    page.fill("#find", "")
    page.check("#tick-run-alpha")
    page.click("#open")
    page.until("document.querySelectorAll('[data-pair]').length === 50")
    assert [text.split("mean")[0] for text in headings(page)[2:]] == ["beta", "alpha"]
    page.click("#to-runs")
    page.fill("#find", "nothing")
    assert page.locator("main").text_content().endswith("No run has these words.")
    assert page.problems == []


def headings(page):
    return page.locator("thead th").all_text_contents()


def test_all_runs_are_ticked_at_once_and_one_is_opened_without_losing_them(page, folder):
    page.goto(f"file://{folder}/index.html#view=pairs")
    page.click("#all")
    page.until("document.querySelectorAll('[data-pair]').length === 50")
    page.click("#to-runs")
    assert page.is_checked("#tick-all")
    page.click("text=beta")
    page.until("document.querySelectorAll('thead th').length === 3")
    page.click("#to-runs")
    assert page.locator("tbody input:checked").count() == 3
    page.uncheck("#tick-all")
    assert page.locator("tbody input:checked").count() == 0
    assert page.is_disabled("#open")


@pytest.mark.parametrize(
    ("state", "name", "first"),
    [
        ({"order": "spread"}, "spread", "6.00"),
        ({"order": "disagreement"}, "judges differ by", "5.00"),
        ({"order": "change"}, "change", "59.00"),
        ({"order": "difference"}, "alpha less gamma", "5.00"),
        ({"order": "difference", "a": "run-beta", "b": "run-alpha"}, "beta less alpha", "4.50"),
    ],
)
@pytest.mark.everyday_for("state2-change-59.00")
def test_amount_that_pairs_are_sorted_by_has_a_column(page, folder, state, name, first):
    open_pairs(page, folder, **state)
    assert headings(page)[1] == name
    amounts = page.locator(".amount").all_text_contents()
    assert amounts[0] == first
    assert amounts == sorted(amounts, key=float, reverse=True)


def test_two_runs_are_chosen_and_swapped(page, folder):
    open_pairs(page, folder)
    page.select_option("#order", "difference")
    page.select_option("#a", label="beta")
    assert headings(page)[1] == "beta less gamma"
    page.click("#swap")
    assert headings(page)[1] == "gamma less beta"
    page.click("#down")
    assert page.locator("#down").text_content() == "smallest first ▲"
    assert page.locator(".amount").first.text_content() == "-6.00"
    assert page.problems == []


def test_one_edit_is_shown_large_with_its_marks(page, folder):
    page.goto(address(folder, pair="pair-03", edit=2))
    page.until("document.querySelectorAll('.frame img').length === 7")
    caption = page.locator(".pane.active figcaption")
    assert caption.text_content() == "2 beta score 5.00 near-copy"
    assert (
        caption.locator("span").get_attribute("title") == "the edit hardly differs from its source"
    )
    page.keyboard.press("Enter")
    assert page.locator(".pane:visible figcaption").all_text_contents()[1].startswith("2 beta")
    assert page.locator(".pane:visible").count() == 2
    page.keyboard.press("Enter")
    assert page.locator(".pane:visible").count() == 4
    page.locator(".pane.edit .frame").nth(2).dblclick()
    assert page.locator(".pane:visible figcaption").nth(1).text_content().startswith("3 gamma")


def test_runs_are_chosen_by_keyboard_alone(page, folder):
    page.goto(f"file://{folder}/index.html")
    page.until("document.querySelectorAll('tbody tr').length === 4")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.focus("#tick-run-alpha")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.until("document.querySelectorAll('[data-pair]').length === 50")
    page.go_back()
    page.until("document.querySelectorAll('[data-run]').length === 3")
    assert page.is_checked("#tick-run-beta")


@pytest.mark.parametrize(
    ("state", "first"),
    [
        ({"order": "spread"}, "pair-07"),
        ({"order": "mean"}, "pair-00"),
        ({"order": "mean", "down": 1}, "pair-07"),
        ({"order": "disagreement"}, "pair-11"),
        ({"order": "change"}, "pair-59"),
        ({"order": "change", "down": 0}, "pair-00"),
        ({"order": "difference", "measure": "realism"}, "pair-00"),
        ({"page": 2}, "pair-50"),
    ],
)
@pytest.mark.everyday_for("state2-pair-07", "state4-pair-59")
def test_pairs_are_sorted_and_paged(page, folder, state, first):
    open_pairs(page, folder, **state)
    assert ids(page)[0] == first
    assert len(ids(page)) == (10 if "page" in state else 50)
    assert page.problems == []


@pytest.mark.parametrize(
    ("control", "value", "expected"),
    [
        ("category", "social", 30),
        ("tag", "wet", 30),
        ("difficulty", "hard", 10),
        ("status", "near-copy", 1),
        ("status", "error", 1),
        ("low", "9.5", 1),
        ("high", "0.4", 6),
        ("search", "number 41", 1),
        ("search", "gamma leaves the sky as it was in pair-17", 1),
        ("search", "no number in the reply", 1),
        ("search", "nothing of the kind", 0),
    ],
)
@pytest.mark.everyday_for("category-social-30", "status-error-1", "low-9.5-1", "search-number 41-1")
def test_pairs_are_filtered_and_the_filters_cleared(page, folder, control, value, expected):
    open_pairs(page, folder)
    if control in ("category", "tag", "difficulty", "status"):
        page.select_option(f"#{control}", value)
    else:
        page.fill(f"#{control}", value)
    page.until(f"document.getElementById('count').textContent === '{expected} of 60 pairs'")
    assert f"{control}=" in page.url
    page.reload()
    page.until(f"document.getElementById('count')?.textContent === '{expected} of 60 pairs'")
    page.click("#clear")
    page.until("document.getElementById('count').textContent === '60 of 60 pairs'")
    assert page.problems == []


def test_pair_is_looked_at_by_keyboard(page, folder):
    open_pairs(page, folder, category="social")
    page.focus("a.id >> nth=0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.until("document.getElementById('look')?.open")
    place = page.locator("#look-place")
    assert place.text_content() == "2 of 30"
    page.keyboard.press("ArrowRight")
    assert (place.text_content(), page.locator("#look-title").text_content()) == (
        "3 of 30",
        "pair-32",
    )
    page.keyboard.press("2")
    page.until("document.getElementById('look-said').textContent.includes('beta leaves the sky')")
    assert "edit=2" in page.url
    assert "imgedit explain abababababab" in page.locator("#look-said").text_content()
    for key, mode in ((" ", "flicker"), ("d", "difference"), ("s", "slider"), ("s", "plain")):
        page.keyboard.press(key)
        assert page.locator("#look-stage").get_attribute("data-mode") == mode
    page.keyboard.press("+")
    assert page.locator("#look-zoom").text_content() == "150%"
    page.keyboard.press("0")
    assert page.locator("#look-zoom").text_content() == "100%"
    page.keyboard.press("Escape")
    page.until("!location.href.includes('pair=')")
    assert not page.locator("#look").is_visible()
    assert "category=social" in page.url
    assert page.problems == []


def test_link_to_a_pair_opens_it_and_says_what_failed(page, folder):
    page.goto(address(folder, pair="pair-05", edit=3))
    page.until("document.getElementById('look')?.open")
    page.until("document.getElementById('look-said').textContent.includes('no number')")
    rows = page.locator("#look-side tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in rows] == [
        ["1 alpha", "5.00"],
        ["2 beta", "5.00"],
        ["3 gamma", "–"],
    ]
    assert page.locator(".pane.active figcaption").text_content() == "3 gamma score judge error"


@pytest.mark.parametrize("width", [1440, 390])
def test_a_pair_of_three_sources_shows_all_of_them(page, tmp_path, width):
    blobs = Blobs(tmp_path / "store/blobs")
    digests = [put(blobs, (200, 40 * number, 0), 30 + number) for number in range(3)]
    names = [f"{digest[:2]}/{digest}.png" for digest in digests]
    shown = {"source": names[1], "further": (names[0], names[2]), "edited_source": 2}
    made = {"blob": digests[2], "edit": {"sources": 3, "composited": True}}
    copy = an_item("copy", blob=names[0][3:67], edit={"near_copy": True}, **shown)
    items = [an_item("three", **shown, **made), an_item("one", source=names[0], blob=digests[1])]
    items.append(copy)
    run = StoredRun(a_run(run={"id": "r"}, items=items), blobs.folder)
    write_view([run], [], tmp_path / "page", is_movable=True)
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs=r")
    page.until("document.querySelectorAll('[data-pair]').length === 3")
    sources = page.locator("[data-pair=three] .sources")
    captions = ["source 1", "source 2 (edited)", "source 3"]
    assert sources.locator("figcaption").all_text_contents() == captions
    assert page.locator("[data-pair=one] .sources").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert sources.evaluate("node => node.scrollWidth <= node.clientWidth")
    page.select_option("#status", "near-copy")
    page.until("document.getElementById('count').textContent === '1 of 3 pairs'")
    mark = page.locator("[data-pair=copy] td > span")
    assert mark.text_content() == " near-copy of one of its sources"
    assert "a source of its pair" in mark.get_attribute("title")
    page.select_option("#status", "composited")
    page.until("document.getElementById('count').textContent === '1 of 3 pairs'")
    page.until("document.querySelector('[data-pair=three]') !== null")
    sources.locator("button").nth(2).click()
    page.until("document.querySelectorAll('#look .frame img').length === 5")
    page.until("document.getElementById('look-said').textContent.includes('given 3 source')")
    panes = page.locator("#look-stage figcaption").all_text_contents()
    assert panes[:3] == captions
    page.until("document.querySelector('.over img').naturalWidth === 31")
    assert page.evaluate("document.getElementById('look').scrollWidth") <= width
    assert page.problems == []


def test_all_images_of_a_pair_zoom_and_move_together(page, folder):
    page.goto(address(folder, pair="pair-08"))
    page.until("document.querySelectorAll('.frame img').length === 7")
    box = page.locator(".frame").first.bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    page.until("document.getElementById('look-zoom').textContent !== '100%'")
    page.mouse.down()
    page.mouse.move(box["x"] - 60, box["y"] - 40)  # out of the frame
    page.mouse.up()
    styles = page.locator(".frame > img").evaluate_all(
        "images => images.map(image => getComputedStyle(image).transform)"
    )
    assert len(set(styles)) == 1
    matrix = styles[0].removeprefix("matrix(").removesuffix(")").split(", ")
    assert float(matrix[0]) > 1.5
    assert float(matrix[4]) < -30
    page.keyboard.press("s")
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 9)
    page.mouse.down()
    page.mouse.up()
    assert 20 <= int(page.input_value("#look-slide")) <= 30


def test_difference_from_the_source_is_dark_where_nothing_changed(page, folder):
    page.goto(address(folder, pair="pair-08"))
    page.until("document.querySelectorAll('.frame img').length === 7")
    page.until("[...document.querySelectorAll('.frame img')].every(image => image.complete)")
    page.keyboard.press("d")
    shot = page.locator(".edit .frame").first.screenshot()
    with Image.open(io.BytesIO(shot)) as image:
        red, green, blue = image.convert("RGB").getpixel((image.width // 2, image.height // 2))
    assert (red, blue) == (0, 0)
    assert green > 60


def test_tables_are_copied_as_markdown_and_csv(page, folder, browser):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_pairs(page, folder, order="mean", down=1)
    page.click("text=copy as CSV")
    page.until("[...document.querySelectorAll('button')].some(one => one.textContent === 'copied')")
    rows = list(csv.reader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
    assert rows[0] == ["pair", "category", "alpha", "beta", "gamma"]
    assert rows[1] == ["pair-07", "physics", "5", "9.5", "3.5"]
    assert len(rows) == PAIRS + 1
    page.goto(f"file://{folder}/index.html")
    page.until("document.querySelectorAll('[data-run]').length === 3")
    page.click("text=copy as Markdown")
    page.until("[...document.querySelectorAll('button')].some(one => one.textContent === 'copied')")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].startswith(
        "| run | outcome | pairs | editor | finished | time | score | score, "
    )
    assert lines[2].startswith("| alpha | ")


def test_names_replies_and_tags_with_markup_are_shown_as_text(page, tmp_path):
    blobs = Blobs(tmp_path / "blobs")
    item = an_item(
        "p1",
        instruction=HOSTILE,
        tags=(HOSTILE,),
        difficulty=HOSTILE,
        reply=HOSTILE,
        blob=put(blobs, (1, 2, 3)),
    )
    times = {"started": "2026-11-01T10:00:00Z", "finished": "2026-11-01T10:01:05Z"}
    run = a_run(run={"id": "r", "name": "", **times}, items=[item], editor={"spec": HOSTILE})
    write_view([StoredRun(run, blobs.folder)], [], tmp_path / "page", is_movable=False)
    page.goto(f"file://{tmp_path}/page/index.html")
    page.until("document.querySelectorAll('[data-run]').length === 1")
    shown = page.locator("[data-run]").text_content()
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs=r&pair=p1")
    page.until("document.getElementById('look-said')?.textContent.includes('onerror')")
    texts = [shown, page.locator("main").text_content(), page.locator("#look").text_content()]
    for text in texts:
        assert "<img src=x onerror=alert(1)>\\u202ecod\\x1b[31m" in text
    assert page.problems == []


def test_page_works_from_a_plain_server(page, folder):
    requests: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            requests.append(f"{code} {self.path}")

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    serve(server)
    with server:
        state = address(folder, pair="pair-08").partition("#")[2]
        page.goto(f"http://127.0.0.1:{server.server_port}/#{state}")
        page.until("document.querySelectorAll('.frame img').length === 7")
        page.until("document.getElementById('look-said').textContent.includes('leaves the sky')")
        server.shutdown()
    own = f"http://127.0.0.1:{server.server_port}/"
    assert [url for url in page.problems if not url.startswith(own)] == []
    assert [line for line in requests if not line.startswith("200 ")] == []


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
@pytest.mark.parametrize("state", [{"view": ""}, {}, {"pair": "pair-08"}])
@pytest.mark.everyday_for("state0-390-dark", "state1-390-dark")
def test_only_the_tables_scroll_sideways(page, folder, width, scheme, state):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address(folder, **state))
    page.until("document.querySelectorAll('tbody tr').length > 2")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.problems == []


@pytest.mark.parametrize("recipes", [("a", "a"), ("a", "b")])
def test_runs_of_different_judges_are_told(page, tmp_path, recipes):
    blobs = Blobs(tmp_path / "blobs")
    item = an_item("p1", source=None, blob=put(blobs, (1, 2, 3)))
    runs = [
        a_run(run={"id": f"r{place}"}, items=[item], judge={"spec": "j", "recipe": recipe * 64})
        for place, recipe in enumerate(recipes)
    ]
    stored = [StoredRun(run, blobs.folder) for run in runs]
    write_view(stored, [], tmp_path / "page", is_movable=False)
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs=r0,r1")
    page.until("document.querySelectorAll('[data-pair]').length === 1")
    assert page.locator("#caution").count() == (recipes[0] != recipes[1])


@pytest.mark.parametrize("runs", [3, 5])
def test_labels_of_sources_and_marks_of_edits_wrap(page, tmp_path, runs):
    blobs = Blobs(tmp_path / "blobs")
    digests = [put(blobs, (50 * number, 0, 0)) for number in range(3)]
    names = [f"{digest[:2]}/{digest}.png" for digest in digests]
    shown = {"source": names[0], "further": tuple(names[1:]), "blob": digests[0]}
    item = an_item("p1", edit={"near_copy": True}, **shown)
    keys = [f"r{number}" for number in range(runs)]
    stored = [StoredRun(a_run(run={"id": key}, items=[item]), blobs.folder) for key in keys]
    write_view(stored, [], tmp_path / "page", is_movable=False)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs={','.join(keys)}")
    page.until("document.querySelectorAll('.sources figure').length === 3")
    fit = "nodes => nodes.map(node => node.scrollWidth <= node.clientWidth)"
    assert page.locator(".sources figure").evaluate_all(fit) == [True] * 3
    assert page.locator(".wide").evaluate_all(fit) == [True]


def test_a_run_that_edited_other_sources_than_those_shown_is_told(page, tmp_path):
    blobs = Blobs(tmp_path / "blobs")
    names = [f"{d[:2]}/{d}.png" for d in (put(blobs, (50 * n, 0, 0)) for n in range(4))]
    edit = put(blobs, (1, 2, 3))
    given = {
        "same": {"hat": {"further": (names[1],)}, "desk": {}, "dog": {}},
        "changed": {"hat": {"further": (names[2],)}, "desk": {"source": names[3]}, "dog": {}},
        "moved": {"hat": {"further": (names[1],)}, "desk": {}, "dog": {}, "solo": {}},
        "turned": {"hat": {"further": (names[1],), "edited_source": 2}, "desk": {}, "dog": {}},
    }
    stored = []
    for name, changes in given.items():
        items = [
            an_item(pair, blob=edit, **{"source": names[0], **shown})
            for pair, shown in changes.items()
        ]
        run = a_run(run={"id": name, "name": name}, items=items)
        stored.append(StoredRun(run, blobs.folder))
    write_view(stored, [], tmp_path / "page", is_movable=False)
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs=same,moved")
    page.until("document.querySelectorAll('[data-pair]').length === 4")
    assert page.locator("#other-sources").count() == 0
    assert "other sources" not in page.locator("main").text_content()
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs=same,changed,turned")
    page.until("document.querySelectorAll('[data-pair]').length === 3")
    assert page.locator("#other-sources").text_content() == (
        "Run changed edited other source images of 2 pairs than are shown (hat, desk). "
        "Run turned edited other source images of 1 pair than are shown (hat)."
    )
    cells = page.locator("[data-pair=hat] > td").all_text_contents()
    assert ["other sources" in cell for cell in cells] == [False, False, True, True]
    assert "other sources" not in page.locator("[data-pair=dog]").text_content()
    page.click("[data-pair=hat] a")
    page.until("document.querySelectorAll('#look .pane.edit').length === 3")
    captions = page.locator("#look .edit figcaption").all_text_contents()
    assert ["other sources" in caption for caption in captions] == [False, True, True]
    told = page.locator("#look .edit figcaption span").first.get_attribute("title")
    assert told == "this run edited other source images of the pair than those shown"
    assert page.problems == []


def test_page_without_its_images_says_so(page, folder, tmp_path):
    (tmp_path / "runs").symlink_to(folder / "runs")
    for path in folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    page.goto(address(tmp_path, pair="pair-08"))
    page.until("document.getElementById('look-reduced')?.hidden === false")


def test_verdicts_of_further_judges_are_shown_with_their_names(page, tmp_path):
    blobs = Blobs(tmp_path / "blobs")
    item = an_item("p1", blob=put(blobs, (1, 2, 3)), reply="fine")
    [seed] = item.seeds
    answer = Verdict({"": "not fine at all"}, {}, 1.0)
    item = item.model_copy(
        update={"seeds": (seed.__class__(0, seed.edit, seed.verdict, None, {"second": answer}),)}
    )
    times = {"started": "2026-11-01T10:00:00Z", "finished": "2026-11-01T10:01:05Z"}
    run = a_run(run={"id": "r", **times}, items=[item])
    write_view([StoredRun(run, blobs.folder)], [], tmp_path / "page", is_movable=False)
    page.goto(f"file://{tmp_path}/page/index.html#view=pairs&runs=r&pair=p1")
    page.until("document.getElementById('look-said')?.textContent.includes('not fine at all')")
    assert page.locator("#look-said h4").all_text_contents()[:2] == ["judge", "second"]


def test_pairs_are_sorted_by_votes_between_two_runs(tmp_path, page):
    """A link of a board shows the pairs that decided between two systems."""
    blobs = Blobs(tmp_path / "blobs")
    edit = blobs.put(images.encode_png(Image.new("RGB", (32, 32))), durable=False)
    items = [an_item(name, blob=edit, aspects={}) for name in ("p0", "p1", "p2", "p3")]
    runs = [a_run(run={"id": name}, items=items) for name in ("old", "new", "third")]
    votes = [
        ("p0", "a", "a"),
        ("p0", "a", "b"),
        ("p1", "b", "a"),
        ("p1", "b", "b"),
        ("p2", "a", "a"),
    ]
    votes += [("p2", "b", "b")]
    rows = [f"{pair},new,old,{winner},j,{first}" for pair, winner, first in votes]
    (tmp_path / "votes").mkdir()
    (tmp_path / "votes" / "j.csv").write_text("\n".join(["id,a,b,winner,rater,first", *rows]))
    write_view([StoredRun(run, blobs.folder) for run in runs], [], tmp_path / "p", is_movable=False)
    address = f"file://{tmp_path}/p/index.html#view=pairs&runs=old,new"
    page.goto(f"{address}&order=won&a=new&b=old")
    page.until("document.querySelectorAll('[data-pair]').length == 4")
    rows = page.locator("[data-pair]")
    names = rows.evaluate_all("nodes => nodes.map(node => node.dataset.pair)")
    assert names == ["p0", "p2", "p1", "p3"]
    amounts = rows.evaluate_all(
        "nodes => nodes.map(node => node.querySelector('.amount').innerText)"
    )
    assert amounts == ["1.00", "0.50", "0.00", "–"]
    heading = page.locator("th", has_text="votes for").inner_text()
    assert "against" in heading
    page.click("#swap")
    page.until("document.querySelector('[data-pair]').dataset.pair == 'p1'")
    page.click("[data-pair=p0] a")
    page.until("document.querySelector('dialog').open")
    shown = page.locator("dialog dl").first.inner_text().split()
    assert " ".join(shown).endswith("votes for identity old against identity new 0.00")
    assert page.problems == []


def test_runs_without_votes_offer_no_such_order(tmp_path, page):
    blobs = Blobs(tmp_path / "blobs")
    items = [an_item("p0", aspects={})]
    runs = [a_run(run={"id": name}, items=items) for name in ("old", "new")]
    write_view([StoredRun(run, blobs.folder) for run in runs], [], tmp_path / "p", is_movable=False)
    page.goto(f"file://{tmp_path}/p/index.html#view=pairs&runs=old,new")
    page.until("document.querySelectorAll('[data-pair]').length == 1")
    assert "won" not in page.locator("#order option").evaluate_all(
        "nodes => nodes.map(n => n.value)"
    )
