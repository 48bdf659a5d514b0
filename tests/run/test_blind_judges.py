"""The trial of the judge finds out judges that do not read what an edit should have done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image, ImageDraw

if TYPE_CHECKING:
    from conftest import Bench

PHOTOGRAPHS = Path(__file__).parents[1] / "data" / "step1x"
GATE = "--imgedit-fail-under=overall:3"
PLACES = {"top": (0, 0), "right": (96, 0), "left": (0, 96), "bottom": (96, 96)}
COLOURS = ("red", "blue", "yellow", "green", "white")
BLIND = (
    *("Constant", "Length", "Brightness", "Layout", "Easy"),
    *("Wordless", "AnyChange", "ColourWord", "SideWord"),
)
#: Judges that need the reference to look at.
NEED_REFERENCE = ("Easy", "Wordless")
SUITES = {
    "scenes": ("--imgedit-suite=scenes", "--imgedit-editor=oracle"),
    "photographs": ("--imgedit-suite=photographs.json", "--imgedit-editor=oracle"),
    "without references": (
        "--imgedit-suite=bare.json",
        "--imgedit-editor=folder:after?{id}.png",
    ),
}
TRUTHS = {"scenes": "scenes"}


@pytest.fixture
def painted(bench: Bench) -> Bench:
    """A folder with 20 photographs of which a part is to be painted, with and without references,
    and with right edits of them.
    """
    rows = []
    (bench.path / "after").mkdir()
    for number, path in enumerate(sorted(PHOTOGRAPHS.glob("*.jpg")) * 4):
        side, (place, corner) = 192, [*PLACES.items()][number // 5]
        left = 16 * (number // 5)
        source = Image.open(path).convert("RGB").resize((256, 256))
        source = source.crop((left, left, left + side, left + side))
        reference = source.copy()
        colour = COLOURS[(number + number // 5) % 5]
        ImageDraw.Draw(reference).ellipse((*corner, corner[0] + 95, corner[1] + 95), colour)
        source.save(bench.path / f"{number}.png")
        reference.save(bench.path / "after" / f"p{number}.png")
        rows.append(
            {
                "id": f"p{number}",
                "category": place,
                "image": f"{number}.png",
                "reference": f"after/p{number}.png",
                "instruction": f"put a {colour} ball at the {place}",
            }
        )
    (bench.path / "photographs.json").write_text(json.dumps(rows))
    for row in rows:
        del row["reference"]
    (bench.path / "bare.json").write_text(json.dumps(rows))
    return bench


#: Every blind judge on every suite.
CASES = [
    pytest.param(suite, judge, id=f"{judge}, {suite}")
    for suite in SUITES
    for judge in BLIND
    if suite != "without references" or judge not in NEED_REFERENCE
]


@pytest.mark.parametrize(("suite", "judge"), CASES)
@pytest.mark.everyday_for("AnyChange, without references")
def test_a_blind_judge_makes_the_run_invalid(painted: Bench, suite: str, judge: str) -> None:
    result = painted.run(*SUITES[suite], f"--imgedit-judge=blind_judges:{judge}", GATE)
    result.stdout.fnmatch_lines(["  INVALID *the judge *"])
    assert result.ret == 1


@pytest.mark.full
def test_a_judge_that_orders_all_edits_but_ignores_the_words_is_found_out(bench: Bench) -> None:
    result = bench.run(*SUITES["scenes"], "--imgedit-judge=blind_judges:Wordless", GATE)
    result.stdout.fnmatch_lines(
        [
            "  INVALID *the judge cannot tell counterfactual* from a right edit and "
            "counterfactual from a half-done one: *"
        ]
    )
    assert result.ret == 1


@pytest.mark.full
def test_a_judge_of_one_class_of_words_is_found_out_by_another(painted: Bench) -> None:
    """It costs over 5 CPU seconds, as two judges look at 200 photographs each."""
    for judge, unread in (("ColourWord", "sides"), ("SideWord", "colours")):
        result = painted.run(*SUITES["photographs"], f"--imgedit-judge=blind_judges:{judge}", GATE)
        line = next(line for line in result.outlines if line.startswith("  INVALID  controls"))
        assert f"counterfactual {unread}" in line.partition(" from a right edit")[0]


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.full
def test_a_judge_that_reads_is_believed(painted: Bench, suite: str) -> None:
    """It costs over 5 CPU seconds, as it looks at 200 photographs."""
    truth = TRUTHS.get(suite, "photographs.json")
    judge = ("--imgedit-judge=blind_judges:Good", f"--imgedit-set=judge.truth={truth}")
    result = painted.run(*SUITES[suite], *judge, GATE)
    result.stdout.fnmatch_lines(["imgedit: PASS: overall 10.00*", "  PASS *the judge *"])
    assert result.ret == 0


@pytest.mark.parametrize("editor", ["noise", "identity"])
@pytest.mark.full
def test_a_good_judge_of_a_useless_editor_fails_the_run(painted: Bench, editor: str) -> None:
    judge = ("--imgedit-judge=blind_judges:Good", "--imgedit-set=judge.truth=photographs.json")
    result = painted.run("--imgedit-suite=bare.json", f"--imgedit-editor={editor}", *judge, GATE)
    result.stdout.fnmatch_lines(["imgedit: FAIL: *"])
    assert result.ret == 1
    gate = next(gate for gate in painted.results["gates"] if gate["kind"] == "controls")
    assert gate["state"] == "INCONCLUSIVE"
    assert "the judge gives every control and every edit of this run 0.00" in gate["why"]


@pytest.mark.parametrize("suite", ["scenes", "photographs"])
@pytest.mark.full
def test_a_judge_that_is_right_is_believed(painted: Bench, suite: str) -> None:
    """It costs over 5 CPU seconds, as it measures 140 edits of photographs."""
    result = painted.run(*SUITES[suite], "--imgedit-judge=reference", GATE)
    result.stdout.fnmatch_lines(
        [
            "imgedit: warning: judge reference is not tried with other instructions: it does not "
            "read instructions",
            "  PASS *the judge tells every control from a right edit: oracle 10.00 > *; "
            "not asked about other instructions: it does not read instructions",
        ]
    )
    assert result.ret == 0
