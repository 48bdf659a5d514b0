"""Report rows, and text from data that must stay text in a terminal, in Markdown and in HTML."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.config import GatesSettings
from pytest_imgedit.errors import UsageError
from pytest_imgedit.gates import GateResult, check_fields, errors_allowed, evaluate
from pytest_imgedit.report import html, markdown, model, terminal
from pytest_imgedit.stats import macro, summarize

HOSTILE = "<script>alert(1)</script>|[x](javascript:alert(1)) \x1b[31m\u202e\"'&"


def document(**changes):
    physics, social = summarize([8.0, 6.0], ["a", "b"]).to_dict(), summarize([2.0], ["c"], errors=1).to_dict()
    overall = macro([summarize([8.0, 6.0], ["a", "b"]), summarize([2.0], ["c"], 1)], (4, 3, 1)).to_dict()
    error = {"stage": "score", "kind": "unreadable_reply", "message": HOSTILE, "reply": HOSTILE}

    def item(name, category, score, failed=None):
        verdict = (
            None if score is None else {"reply": HOSTILE, "aspects": {"realism": 7.0}, "score": score, "batch_size": 1}
        )
        edit = {"blob": "ab" * 32, "seconds": 1.0, "worker": "edit-0", "near_copy": False}
        return {
            "id": name,
            "category": category,
            "status": "scored" if failed is None else "judge_error",
            "score": score,
            "instruction": HOSTILE,
            "description": "",
            "reference_text": "",
            "difficulty": "",
            "tags": ["gravity"],
            "aspects": {"realism": 7.0},
            "source": "ab/x.png",
            "reference": None,
            "error": failed,
            "seeds": [{"seed": 0, "edit": edit, "verdict": verdict, "error": failed}],
        }

    return {
        "run": {"id": "r1", "started": "s", "finished": "f", "status": "complete"},
        "suite": {"name": HOSTILE, "pairs": 4},
        "editor": {"spec": "identity"},
        "judge": {"spec": "j", "rubric": "aspects", "rubric_sha256": "0" * 64},
        "timing": {
            "edit_s": 1,
            "swap_s": 0,
            "score_s": 2,
            "swaps": 1,
            "edits": 4,
            "verdicts": 3,
            "edits_cached": 0,
            "verdicts_cached": 0,
        },
        "workers": [{"name": "edit-0", "device": "GPU 0", "stage": "edit", "jobs": 4, "busy_s": 1.0, "load_s": 0.5}],
        "categories": {"physics": physics, "social": social},
        "overall": {"macro": overall, "micro": overall},
        "gates": [
            GateResult("overall", "max_errors", 0, 1, "FAIL", "1 of 4 pairs without a score, 0 allowed").to_dict()
        ],
        "items": [
            item("p1", "physics", 8.0),
            item("p2", "physics", 6.0),
            item("s1", "social", 2.0),
            item("s2", "social", None, error),
        ],
        **changes,
    }


def test_terminal_shows_rows_and_hides_control_characters():
    text = terminal.render(document(), {"html": "x.html"}, [("Section", HOSTILE)], 100, color=False)
    assert re.search(r"physics +2 +2 +0 +7\.00", text)
    assert re.search(r"social +2 +1 +1 +2\.00 +– +–", text)
    assert "best: physics 7.00 · worst: social 2.00" in text
    assert "s2: score error (unreadable_reply)" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m" in text


@given(st.text())
def test_printable_text_steers_no_terminal(text):
    assert terminal.printable(text).replace("\u3000", "").isprintable() or not text
    assert terminal.printable("物理 physics é") == "物理 physics é"


def test_markdown_keeps_hostile_text_inside_its_cell():
    text = markdown.render(document(), [("Section", HOSTILE + "```\n# no heading")])
    text, section = text.split("## Section")
    assert section.strip().startswith("````\n")  # a code block with a longer fence than any inside
    assert section.strip().endswith("# no heading\n````")
    assert "<script>" not in text
    assert "](javascript" not in text
    assert "\\<script\\>" in text
    assert markdown.escape("see https://x.example or www.x.example") == r"see https:\//x.example or www\.x.example"
    assert "| physics | 2 | 2 | 0 | 7.00 |" in text
    assert "## Gates that failed" in text


def test_html_escapes_everything_and_allows_only_its_own_script():
    page = html.render(document(), "../../blobs", [("Section", HOSTILE)])
    assert page.count("<script") == 2
    assert "alert(1)</script>" not in page
    assert "default-src 'none'" in page
    data = re.search(r'<script type="application/json" id="cards">(.*?)</script>', page, re.DOTALL)[1]
    cards = json.loads(data)
    assert [card["id"] for card in cards] == ["p1", "p2", "s1", "s2"]
    assert cards[0]["instruction"] == HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert cards[0]["images"][0] == {"label": "source", "url": "../../blobs/ab/x.png"}


@pytest.mark.parametrize(
    ("changes", "state", "line"),
    [
        ({}, "FAIL", "FAIL: 1 of 4 pairs without a score, 0 allowed"),
        (
            {"run": {"status": "incomplete", "stopped_by": "the user"}},
            "FAIL",
            "INCOMPLETE: stopped by the user with 0 pairs to do; run again to do the rest",
        ),
    ],
)
def test_verdict_says_why(changes, state, line):
    assert model.verdict(document(**changes)) == model.Verdict(state, line)


def gates(**settings):
    physics, social = summarize([8.0, 6.0], ["a", "b"]), summarize([2.0], ["c"], errors=1)
    overall = macro([physics, social], (4, 3, 1))
    return [
        (g.field, g.state) for g in evaluate(GatesSettings(**settings), {"physics": physics, "social": social}, overall)
    ]


@pytest.mark.parametrize(
    ("settings", "states"),
    [
        ({}, [("overall", "FAIL")]),
        ({"max_errors": 1}, [("overall", "PASS")]),
        ({"max_errors": 0.25}, [("overall", "PASS")]),
        ({"max_errors": 0.2}, [("overall", "FAIL")]),
        (
            {"max_errors": 1, "fail_under": {"物理": 7.0, "social": 2.1}},
            [("overall", "PASS"), ("physics", "PASS"), ("social", "FAIL")],
        ),
        ({"max_errors": 1, "fail_under": {"causal": 0}}, [("overall", "PASS"), ("causal", "INVALID")]),
    ],
)
def test_gates(settings, states):
    assert gates(**settings) == states


def test_a_run_without_any_score_is_invalid_however_many_errors_are_allowed():
    nothing = summarize([], [], errors=3)
    results = evaluate(GatesSettings(max_errors=1.0), {"physics": nothing}, macro([nothing], (3, 0, 3)))
    assert [gate.state for gate in results] == ["INVALID"]


def test_fraction_of_errors_is_rounded_down():
    assert errors_allowed(0.1, 50) == 5
    assert errors_allowed(0.1, 59) == 5
    assert errors_allowed(3, 50) == 3


def test_gate_on_an_unknown_field_lists_the_known():
    check_fields(["overall", "物理"], ["physics"])
    with pytest.raises(UsageError, match="unknown field 'phys', expected one of: overall, physics"):
        check_fields(["phys"], ["physics"])
