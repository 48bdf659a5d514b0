"""Report rows, and text from data that must stay text in a terminal, in Markdown and in HTML."""

from __future__ import annotations

import json
import re

import pytest
from documents import a_run, an_item
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.core.results import Comparison, GateResult, ItemError, Summary
from pytest_imgedit.plugin.junit import gate_reports, run_properties
from pytest_imgedit.report import charts, html, markdown, tables, terminal, write
from pytest_imgedit.report.pictures import Picture
from pytest_imgedit.report.tables import error_lines
from pytest_imgedit.stats.decision import measures_of, summarize_items
from pytest_imgedit.stats.estimates import complete, draft
from pytest_imgedit.stats.outcome import outcome

HOSTILE = "<script>alert(1)</script>|[x](javascript:alert(1)) \x1b[31m\u202e\"'&"


def run(**changes):
    """A run with hostile texts wherever data and judges put some."""
    error = ItemError("score", "unreadable_reply", HOSTILE, HOSTILE)
    hostile = {"instruction": HOSTILE, "tags": ("gravity",), "reply": HOSTILE}
    items = [
        an_item("p1", "physics", 8.0, **hostile),
        an_item("p2", "physics", 6.0, source=f"cd/{'cd' * 32}.png", **hostile),
        an_item("s1", "social", 2.0, **hostile),
        an_item("s2", "social", None, error=error, instruction=HOSTILE),
    ]
    worker = {
        "name": "edit-0",
        "device": "GPU 0",
        "stage": "edit",
        "jobs": 4,
        "busy_s": 1.0,
        "load_s": 0.5,
    }
    return a_run(
        **{
            "items": items,
            "suite": {"name": HOSTILE, "sha256": "", "pairs": 4},
            "sections": [{"title": "Section", "body": HOSTILE}],
            "workers": [
                {
                    **worker,
                    "ready_s": 0.5,
                    "batch_size": 8,
                    "gpu_peak": None,
                    "host_peak": 3 * 2**30,
                }
            ],
            **changes,
        }
    )


def test_terminal_shows_rows_and_hides_control_characters():
    text = terminal.render(run(), 100, color=False)
    assert re.search(r"^category +n +errors +mean +95% CI +min +max +realism$", text, re.M)
    assert re.search(r"^physics +2 +0 +7\.00 +6\.00 +8\.00 +7\.00$", text, re.M)
    assert re.search(r"^social +2 +1 +2\.00 +2\.00 +2\.00 +7\.00$", text, re.M)
    assert re.search(
        r"^overall +4 +1 +4\.50 +– +2\.00 +8\.00 +7\.00$", text, re.M
    )  # the extremes are those of pairs
    assert "no interval for fewer than 20 pairs (-v shows it)" in text
    assert "best: physics 7.00 · worst: social 2.00" in text
    assert "(score error: unreadable_reply)" in text.replace("\n", " ")
    assert "edit-0" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m" in text


def test_verbose_terminal_shows_statistics_and_workers():
    text = terminal.render(run(), 120, color=False, verbose=True)
    assert re.search(r"physics +2 +2 +0 +0 +7\.00", text)
    assert re.search(r"social +2 +1 +1 +0 +2\.00 +– +–", text)
    assert re.search(r"^overall \(micro\) ", text, re.M)
    assert re.search(r"^edit-0 ", text, re.M)
    assert "no interval" not in text


def test_categories_of_twenty_pairs_have_an_interval():
    scores = [5.0 + n / 10 for n in range(20)]
    categories = {
        "physics": complete([draft(scores, [f"p{n}" for n in range(20)])])[0],
        "social": complete([draft(scores[:19], [f"s{n}" for n in range(19)])])[0],
    }
    text = terminal.render(run(categories=categories), 100, color=False)
    assert re.search(r"^physics +20 +0 +5\.95 +[\d.]+ to [\d.]+ +5\.00 +6\.90 +7\.00$", text, re.M)
    assert re.search(r"^social +19 +0 +5\.90 +5\.00 +6\.80 +7\.00$", text, re.M)


@given(st.text())
def test_printable_text_steers_no_terminal(text):
    assert terminal.printable(text).replace("\u3000", "").isprintable() or not text
    assert terminal.printable("物理 physics é") == "物理 physics é"


def test_markdown_keeps_hostile_text_inside_its_cell():
    text = markdown.render(
        run(sections=[{"title": "Section", "body": HOSTILE + "```\n# no heading"}])
    )
    text, section = text.split("## Section")
    assert section.strip().startswith("````\n")  # a code block with a longer fence than any inside
    assert section.strip().endswith("# no heading\n````")
    assert "<script>" not in text
    assert "](javascript" not in text
    assert "\\<script\\>" in text
    assert (
        markdown.escape("see https://x.example or www.x.example")
        == r"see https:\//x.example or www\.x.example"
    )
    assert "| physics | 2 | 2 | 0 | 0 | 7.00 |" in text
    assert "## Gates that did not pass" in text


def test_html_escapes_everything_and_allows_only_its_own_script():
    page = html.render(run(), lambda name: Picture(f"thumb/{name}", f"../../blobs/{name}"))
    assert page.count("<script") == 2
    assert "alert(1)</script>" not in page
    assert "default-src 'none'" in page
    data = re.search(r'<script type="application/json" id="cards">(.*?)</script>', page, re.DOTALL)[
        1
    ]
    cards = json.loads(data)
    assert [card["id"] for card in cards] == ["p1", "p2", "s1", "s2"]
    assert cards[0]["instruction"] == HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert cards[0]["images"][0] == {
        "label": "source",
        "thumbnail": f"thumb/ab/{'ab' * 32}.png",
        "full": f"../../blobs/ab/{'ab' * 32}.png",
    }


def test_reports_show_how_much_edits_change_and_count_what_is_odd():
    edits = (
        {"change": 0.4, "near_copy": True},
        {"change": 61.25, "leaked": True},
        {"change": 12.0, "reframed": True},
        {},
    )
    results = a_run(items=[an_item(f"p{n}", edit=edit) for n, edit in enumerate(edits)])
    page = html.render(results, lambda name: None)
    data = re.search(r'id="cards">(.*?)</script>', page, re.DOTALL)[1]
    cards = json.loads(data)
    assert [card["change"] for card in cards] == [0.4, 61.25, 12.0, None]
    assert [card["tags"] for card in cards] == [["near-copy"], ["leak"], ["reframed"], []]
    for name in ("near_copy", "leaked", "reframed"):
        assert [card[name] for card in cards] == [edit.get(name, False) for edit in edits]
    remarks = list(tables.remarks(results))
    assert "1 of 4 edits is a near-copy of its source" in remarks
    assert "leaks: 1 of 4 edits equals the reference of the pair" in remarks
    assert "reframed: 1 of 4 edits has another aspect ratio than the source (over 3%)" in remarks


@pytest.mark.parametrize("edited_source", [1, 2])
def test_a_near_copy_of_a_pair_of_two_sources_is_not_said_to_be_one_of_the_edited_source(
    edited_source,
):
    further = (f"cd/{'cd' * 32}.png",)
    copy = {"change": 107.5, "near_copy": True}
    two = an_item("p1", further=further, edited_source=edited_source, edit=copy)
    one = an_item("p2", edit={"near_copy": True})
    page, cards = shown_cards(a_run(items=[two, one, an_item("p3", further=further)]))
    tags = [["near-copy of one of its sources"], ["near-copy"], []]
    assert [card["tags"] for card in cards] == tags
    assert [card["near_copy"] for card in cards] == [True, True, False]
    assert all(f'"{tag}": "the edit' in page for tag in tags[0])
    lines = {
        "1 of 1 edit is a near-copy of one of its sources": [two],
        "1 of 2 edits is a near-copy of one of its sources": [two, an_item("p3")],
        "2 of 2 edits are near-copies of one of their sources": [two, one],
        "1 of 2 edits is a near-copy of its source": [one, an_item("p3", further=further)],
    }
    for line, items in lines.items():
        results = a_run(items=items)
        verdict = outcome(results)
        assert line in [*verdict.notes, verdict.line.partition("; ")[2], *tables.remarks(results)]


def shown_cards(results):
    page = html.render(results, lambda name: Picture(f"thumb/{name}", name))
    return page, json.loads(re.search(r'id="cards">(.*?)</script>', page, re.DOTALL)[1])


def test_a_pair_of_three_sources_shows_them_in_order_with_the_edited_one_marked():
    blobs = [f"{name}/{name * 32}.png" for name in ("c1", "c2", "c3")]
    item = an_item(
        "p1",
        source=blobs[1],
        further=(blobs[0], blobs[2]),
        edited_source=2,
        reference=f"ef/{'ef' * 32}.png",
        edit={"sources": 3},
    )
    results = a_run(items=[item, an_item("p2")])
    page, cards = shown_cards(results)
    sources = ["source 1", "source 2 (edited)", "source 3"]
    assert [image["label"] for image in cards[0]["images"]] == [*sources, "edit", "reference"]
    assert [image["full"] for image in cards[0]["images"][:3]] == blobs
    assert [image["label"] for image in cards[1]["images"]] == ["source", "edit"]
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    first_screen = [*sources, "edit", "source", "edit"]
    assert captions[: len(first_screen)] == first_screen
    assert [card["made"] for card in cards] == ["given 3 source images", ""]
    line = "several sources: 1 of 2 pairs has 3 source images"
    assert line in tables.remarks(results)
    assert line in terminal.render(results, 100, color=False)
    assert line in page
    assert line in markdown.render(results)


def test_pairs_of_several_sources_are_counted_with_the_most_of_them():
    blob = f"cd/{'cd' * 32}.png"
    further = {"p1": (), "p2": (blob,), "p3": (blob, blob)}
    items = [an_item(name, further=blobs) for name, blobs in further.items()]
    line = "several sources: 2 of 3 pairs have up to 3 source images"
    assert line in tables.remarks(a_run(items=items))
    assert not [line for line in tables.remarks(a_run(items=items[:1])) if "sources" in line]


def test_an_edit_that_was_laid_over_white_is_told():
    results = a_run(items=[an_item("p1", edit={"composited": True}), an_item("p2")])
    _, cards = shown_cards(results)
    assert [card["composited"] for card in cards] == [True, False]
    assert [card["tags"] for card in cards] == [["composited"], []]
    told = "laid over white: the editor's image had transparent pixels"
    assert [card["made"] for card in cards] == [told, ""]
    line = "laid over white: 1 of 2 edits (the editor's image had transparent pixels)"
    assert line in tables.remarks(results)
    assert markdown.escape(line) in markdown.render(results)


def gate(state, why, **changes):
    return GateResult("overall", "fail_under", 7, 6, state, why, **changes)


FAILS = {"inconclusive": "fail"}
FEW = gate("INCONCLUSIVE", "b", warns=True)
UNTRIED = GateResult("overall", "controls", None, None, "INCONCLUSIVE", "c", warns=True)


@pytest.mark.parametrize(
    ("changes", "state", "line", "fails"),
    [
        (
            {},
            "FAIL",
            "FAIL: judge: <script>alert(1)</script>|[x](javascript:a… (1 of 4 pairs)",
            True,
        ),
        (
            {"run": {"status": "incomplete", "stopped_by": "the user", "trials_left": 0}},
            "INCOMPLETE",
            "INCOMPLETE: stopped by the user; 4 of 4 pairs edited, 3 scored",
            True,
        ),
        (
            {"run": {"status": "incomplete", "stopped_by": "the user", "trials_left": 7}},
            "INCOMPLETE",
            "INCOMPLETE: stopped by the user; 4 of 4 pairs edited, 3 scored",
            True,
        ),
        (
            {"gates": [gate("PASS", "a\x1b[31m\n")]},
            "PASS",
            "PASS: overall 4.50",
            False,
        ),
        (
            {"gates": [gate("PASS", "a"), gate("INCONCLUSIVE", "b")]},
            "INCONCLUSIVE",
            "INCONCLUSIVE: b",
            True,
        ),
        (
            {"gates": [gate("PASS", "a"), FEW]},
            "INCONCLUSIVE",
            "INCONCLUSIVE (warning): b",
            False,
        ),
        (
            {"gates": [FEW, UNTRIED]},
            "INCONCLUSIVE",
            "INCONCLUSIVE (warning): judge not tried; b; 1 more gate did not pass",
            False,
        ),
        (
            {"gates": [UNTRIED, gate("FAIL", "a")]},
            "FAIL",
            "FAIL: a; 1 more gate did not pass",
            True,
        ),
        ({"gates": [FEW], "gate_options": FAILS}, "INCONCLUSIVE", "INCONCLUSIVE: b", True),
        (
            {"gates": [FEW], "gate_options": {"strict": True}},
            "INCONCLUSIVE",
            "INCONCLUSIVE: b",
            True,
        ),
        (
            {"gates": [FEW, gate("INCONCLUSIVE", "missing")]},
            "INCONCLUSIVE",
            "INCONCLUSIVE: missing; 1 more gate did not pass",
            True,
        ),
        (
            {"gates": [gate("FAIL", "a"), FEW]},
            "FAIL",
            "FAIL: a; 1 more gate did not pass",
            True,
        ),
        (
            {"gates": [gate("FAIL", "a"), gate("INVALID", "b")]},
            "INVALID",
            "INVALID: b; 1 more gate did not pass",
            True,
        ),
    ],
)
def test_outcome_is_that_of_the_worst_gate_and_says_why(changes, state, line, fails):
    found = outcome(run(**changes))
    assert (found.state, found.line, found.fails) == (state, line, fails)


@pytest.mark.parametrize(
    ("options", "outcomes"), [(FAILS, ["failed", "failed"]), ({}, ["skipped", "failed"])]
)
def test_a_gate_that_only_warns_is_skipped_in_junit_and_marked_in_reports(options, outcomes):
    made = run(gates=[FEW, gate("INCONCLUSIVE", "missing")], gate_options=options)
    assert [report.outcome for report in gate_reports(made)] == outcomes
    warned = run(gates=[FEW], gate_options=options)
    assert (r"INCONCLUSIVE \(warning\): b" in markdown.render(warned)) == (not options)


@given(st.lists(st.floats(0, 10) | st.none(), max_size=30))
def test_histogram_counts_every_score_once(scores):
    plot = charts.histogram(
        a_run(items=[an_item(str(place), score=score) for place, score in enumerate(scores)])
    )
    assert sum(bar["count"] for bar in plot["bars"]) == sum(score is not None for score in scores)
    assert all(
        bar["x"] >= charts.LEFT and bar["x"] + bar["width"] <= charts.RIGHT for bar in plot["bars"]
    )


def test_category_chart_places_means_intervals_and_the_baseline_on_one_axis():
    row = {
        "n": 1,
        "now": 7.0,
        "difference": None,
        "ci95": None,
        "p": None,
        "p_rise": None,
        "finding": "",
        "mde": None,
    }
    rows = {"physics": {**row, "before": 10.0}, "overall": {**row, "before": None}}
    empty = {"measures": {}, "environment": (), "size": 4, "pairs": {}, "fell": (), "rose": ()}
    compared = Comparison.model_validate(
        {"name": "main", "run": "r", "editor": "e", "commit": None, "rows": rows, **empty}
    )
    rows = {row["name"]: row for row in charts.category_chart(run(comparison=compared))["rows"]}
    assert list(rows) == ["physics", "social", "overall"]
    assert rows["physics"]["mean"] == charts.x_of(7.0)
    assert (rows["physics"]["before"], rows["social"]["before"]) == (charts.RIGHT, None)
    assert rows["social"]["low"] is None
    assert (
        charts.LEFT
        <= rows["physics"]["low"]
        < rows["physics"]["mean"]
        < rows["physics"]["high"]
        <= charts.RIGHT
    )


def test_scatter_has_a_circle_for_pairs_of_the_same_two_values():
    lower, higher = Summary(3, 3, 0, mean=4.0), Summary(3, 3, 0, mean=5.0)
    measure = {"scale": (0, 10), "is_main": True, "rows": {"overall": lower}, "micro": lower}
    score = {"scale": (0, 10), "rows": {"overall": higher}, "micro": higher}
    grades = ((0.0, 10.0), (0.0, 10.0), (10.0, 5.0))
    made = [
        an_item(f"p{number}", aspects={"instruction": x, "preservation": y})
        for number, (x, y) in enumerate(grades)
    ]
    of_two = {"score": score, "instruction": measure, "preservation": measure}
    plot = charts.scatter(run(items=made, measures=of_two))
    low, high = charts.EDGE, charts.SCATTER - charts.EDGE
    assert [(point["x"], point["y"], point["radius"]) for point in plot["points"]] == [
        (low, low, pytest.approx(5.7)),
        (high, charts.SCATTER / 2, 4),
    ]
    assert plot["points"][0]["text"] == "p0, p1: instruction 0.00, preservation 10.00"
    assert charts.scatter(run()) is None


def test_pairs_with_one_reason_are_one_line_with_their_count():
    same, other = (
        ItemError("score", "exception", "no route"),
        ItemError("edit", "oom", "out of memory"),
    )
    items = [an_item(f"p{n}", score=None, error=same) for n in range(50)] + [
        an_item("q", score=None, error=other)
    ]
    results = a_run(items=items)
    first = f"50 pairs (p0, p1, p2, p3, p4 and 45 more): {same}"
    assert error_lines(results) == [first, f"q: {other}"]
    assert error_lines(results, most=1) == [first, "and 1 pair more"]


def a_long_run():
    """A run of 20 pairs whose measure has 9,000 groups by tag, with long names."""
    items = [
        an_item(f"p{number}", ("physics", "causal")[number % 2], float(number % 10))
        for number in range(20)
    ]
    categories, overall, measures = summarize_items(items, measures_of(items, {}))
    rows = {
        f"tag=物 object <{number}> " + "y" * 40: Summary(1, 1, 0, mean=float(number % 10))
        for number in range(9000)
    }
    measured = measures["score"]
    measures["score"] = measured.model_copy(update={"rows": {**measured.rows, **rows}})
    return a_run(items=items, measures=measures, categories=categories, overall=overall)


@pytest.fixture(scope="module")
def long_run():
    return a_long_run()


def test_junit_lists_the_worst_tags_of_a_measure_and_counts_the_others(long_run):
    properties = dict(run_properties(long_run))
    tags = [value for name, value in properties.items() if "@tag=" in name]
    assert tags == [0.0] * 200  # a tenth of 9,000 has this mean
    assert properties["imgedit_left_out[score]"] == (
        "8800 of 9000 tags, with the best means: results.json"
    )
    assert {f"imgedit_mean[score@{group}]" for group in ("overall", "physics")} <= set(properties)


@pytest.mark.parametrize("held", [0, 100, 500_000, 1_000_000])
@pytest.mark.full_for("0", "100", "500000")
@pytest.mark.everyday
def test_what_github_would_drop_is_cut_counted_and_said(long_run, tmp_path, monkeypatch, held):
    summary = tmp_path / "summary.md"
    summary.write_text("x" * held)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert len(markdown.render(long_run).encode()) > write.SUMMARY_BYTES
    assert write.add_to_github_summary(long_run) == ""
    assert held < summary.stat().st_size <= write.SUMMARY_BYTES
    page = summary.read_text("utf-8")[held:]
    [told] = [line for line in page.splitlines() if "left out" in line]
    assert re.fullmatch(
        r"[0-9]+ lines of [0-9]+ tables? or lists? left out: .*report\\?\.md has all", told
    )
    shown, whole = (set(text.splitlines()) for text in (page, markdown.render(long_run)))
    assert not sorted(shown - whole - {told})[:3]
    lines_of = markdown.render(long_run).splitlines()
    # the line that counts, and an empty one after it and at the end, are new
    assert len(lines_of) - len(page.splitlines()) + 3 == int(told.partition(" ")[0])
    for line in ("| overall", "| causal", "| physics", "**"):
        assert any(row.startswith(line) for row in shown)


@pytest.mark.parametrize("held", [1024 * 1024 - 200, 1024 * 1024, 1024 * 1024 + 1])
@pytest.mark.everyday_for("1048577")
@pytest.mark.everyday
def test_a_full_summary_is_left_alone_and_said(long_run, tmp_path, monkeypatch, held):
    summary = tmp_path / "summary.md"
    summary.write_text("x" * held)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert write.add_to_github_summary(long_run).startswith(
        f"GITHUB_STEP_SUMMARY: nothing was appended to {held:,} bytes: GitHub shows 1,024 KiB"
    )
    assert summary.stat().st_size == held


@pytest.mark.parametrize("most", [2_000, 5_000, 20_000, 200_000, 900_000])
@pytest.mark.everyday_for("2000", "900000")
@pytest.mark.everyday
def test_a_page_that_is_cut_keeps_overall_categories_and_the_worst(long_run, most):
    page = markdown.render_within(long_run, most, "limit")
    assert len(page.encode()) <= most
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert any(row.startswith("| overall") for row in rows)
    tags = [row for row in rows if row.startswith("| tag=")]
    means = [float(row.split(" | ")[3]) for row in tags]
    if len(tags) > 0:
        assert sum(row.startswith(("| causal ", "| physics ")) for row in rows) >= 2
        assert min(means) == 0
    if most == 20_000:
        assert set(means) == {0.0}


def test_sections_and_errors_are_cut_too(long_run):
    section = {"title": "of mine", "body": "\n".join(f"line {n} ::error::" for n in range(90_000))}
    gates = [
        GateResult(f"tag={n}", "fail_under", 5, 4, "FAIL" if n % 2 else "INVALID", "w" * 900)
        for n in range(3_000)
    ]
    run = a_run(sections=[section], gates=gates)
    page = markdown.render_within(run, 500_000, "limit")
    assert len(page.encode()) <= 500_000
    assert page.count("- FAIL: www") > 400
    assert "- INVALID" not in page


def test_of_many_annotations_the_last_counts_the_others():
    errors = [write.command("error", f"g{number}", "why") for number in range(14)]
    warnings = [write.command("warning", f"g{number}", "why") for number in range(10)]
    shown = write.shown([*warnings, *errors])
    assert shown[:9] == errors[:9]
    assert "5 more are in the log" in shown[9]
    assert shown[10:] == warnings
    assert len(write.command("error", "t" * 10_000, "m" * 100_000)) < 4500


def test_the_heads_of_reports_say_what_is_set_of_the_editor():
    adapter = {"path": "/out/checkpoint-200/adapter_model.safetensors", "weight": 1, "scale": None}
    params = {"num_inference_steps": 4, "scheduler": {"shift": 3.0}, "loras": [adapter]}
    files = {adapter["path"]: "0123456789ab"}
    results = a_run(editor={"spec": "diffusers:m", "params": params, "files": files})
    line = (
        "num_inference_steps=4 scheduler.shift=3.0 loras=checkpoint-200/adapter_model.safetensors"
    )
    assert f" · editor diffusers:m ({line}) · judge " in terminal.render(results, 200, color=False)
    page = html.render(results, lambda name: None)
    assert f'diffusers:m <span class="quiet">{line}</span>' in page
    content = "checkpoint-200/adapter_model.safetensors@0123456789ab"
    assert content in page
    assert content in markdown.render(results).replace("\\", "")


def test_nothing_is_said_of_an_editor_without_parameters():
    results = a_run(editor={"spec": "diffusers:m"})
    assert " · editor diffusers:m · judge " in terminal.render(results, 200, color=False)


def test_what_is_set_of_an_editor_is_cut_to_a_line():
    results = a_run(editor={"spec": "e", "params": {f"k{n}": 1 for n in range(10, 99)}})
    text = terminal.render(results, 400, color=False)
    assert " k29=1 … (533 characters)) · judge" in text
