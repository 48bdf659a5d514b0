"""Texts from data give GitHub Actions no command: it obeys a line that begins with `::`, or holds
`##[` anywhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from PIL import Image

COMMAND = re.compile(r"\s*(::|##\[)")

#: Commands after every number of letters up to 39, between words of every length: wherever a line
#: is wrapped or folded, some of them are what the next one begins with.
TALKER = """
from PIL import Image, ImageOps
from pytest_imgedit import Answer, EditPair, FileImage
from pathlib import Path

COMMANDS = ("::error file=x::y", "::set-output name=a::b", "::stop-commands::x", "::add-mask::x", "##[error]x")

def text(pair_id):
    first = 13 * int(pair_id[-1])
    words = [f"{'z' * (n % 40)}{COMMANDS[n % 5]} {COMMANDS[n % 5]}" for n in range(first, first + 13)]
    return COMMANDS[first % 5] + " " + " ".join(words)

class Editor:
    def __init__(self, *, device): pass
    def edit(self, request):
        print(text(request.pair_id), flush=True)
        if request.pair_id.startswith("editor"):
            raise RuntimeError(text(request.pair_id))
        return ImageOps.invert(request.source)

class Judge:
    def __init__(self, *, device): pass
    def answer(self, questions): return [self.one(question) for question in questions]
    def one(self, question):
        said = text(question.pair_id)
        if question.pair_id.startswith("judge"):
            return Answer(error=said)
        if question.pair_id.startswith("reply"):
            return Answer(f"instruction: {said}")
        return Answer(f"{said}\\ninstruction: 5\\npreservation: 5\\nrealism: 5\\n{said}")

def load(argument, settings):
    for kind in ("editor", "judge", "reply", "good"):
        for n in range(3):
            yield EditPair(f"{kind}-{n}", text(f"{n}")[:60], text(f"{n}"), FileImage(Path("a.png")), tags=(text("0"),))
"""
CONFTEST = """
from talker import text
def pytest_imgedit_report_section(results):
    lines = ["::error file=x::y", "  ::add-mask::x", "\\t##[error]x", "\\u3000::debug::x", text("2")]
    return text("1"), "\\n".join(lines)
"""
WAYS = {
    "quiet": ("80", "-q"),
    "narrow": ("40", "-v"),
    "all": ("80", "-rA"),
    "xdist": ("40", "-n2", "-v"),
    "xfailed": ("80", "-rx", "--imgedit-max-errors=9"),
    "wordy": ("40", "-vv", "--imgedit-max-errors=9"),
}


@pytest.fixture(scope="module")
def printed():
    """What the first test that needs it has a run print, by the way in which it is run: its lines,
    and open gates.
    """
    return {}


@pytest.fixture(params=WAYS)
def said(request, bench, printed, monkeypatch):
    if request.param not in printed:
        columns, *options = WAYS[request.param]
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
        (bench.path / "talker.py").write_text(TALKER)
        (bench.path / "conftest.py").write_text(CONFTEST)
        suite = (
            "--imgedit-suite=talker:load",
            "--imgedit-editor=talker:Editor",
            "--imgedit-judge=talker:Judge",
        )
        result = bench.run_with_workers(*suite, *options, "-p", "no:cacheprovider")
        assert {item["status"] for item in bench.results["items"]} == {
            "scored",
            "edit_error",
            "judge_error",
        }
        not_passed = [gate for gate in bench.results["gates"] if gate["state"] != "PASS"]
        printed[request.param] = result.outlines + result.errlines, len(not_passed)
    return printed[request.param]


@pytest.mark.everyday_for("quiet", "wordy")
def test_no_line_begins_as_a_command_but_our_own(said):
    lines, not_passed = said
    obeyed = [line for line in lines if COMMAND.match(line)]
    own = [line for line in obeyed if re.match(r"::error title=imgedit \w+ \w+::FAIL: ", line)]
    assert [line for line in obeyed if line not in own] == []
    assert len(own) == not_passed


@pytest.mark.everyday_for("quiet", "wordy")
def test_no_line_holds_a_command_of_the_older_kind(said):
    lines, _ = said
    assert [line for line in lines if re.search(r"##\[[^\]]*\]", line)] == []


def test_name_of_a_suite_is_no_command(bench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
    row = {
        "id": "::error file=x::y",
        "category": "::add-mask::x",
        "instruction": "x",
        "image": "a.png",
    }
    name = "a b c d e f g h ::error file=x::y ::error file=x::y ##[error]x.json"
    (bench.path / name).write_text(json.dumps([row]))
    result = bench.run_with_workers(
        f"--imgedit-suite={name}", "--imgedit-judge=fakes:Constant", "-v"
    )
    result.assert_outcomes(passed=1)
    assert [line for line in result.outlines + result.errlines if COMMAND.match(line)] == []


@pytest.mark.full
def test_command_line_passes_on_no_command(bench):
    bench.run_with_workers("--imgedit-limit=1").assert_outcomes(passed=5)
    (bench.path / "people.csv").write_text('id,score\nphysics-0000,5\n"a\n::error file=x::y",5\n')
    result = subprocess.run(
        [sys.executable, "-m", "pytest_imgedit.cli.main", "agreement", "latest", "people.csv"],
        cwd=bench.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "not in the run: 1, such as a" in result.stdout
    assert [line for line in result.stdout.splitlines() if COMMAND.match(line)] == []
