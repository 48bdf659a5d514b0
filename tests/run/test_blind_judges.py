"""The trial of the judge finds out judges that do not read what an edit should have done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image, ImageDraw
from tiers import full_but

if TYPE_CHECKING:
    from conftest import Bench

PHOTOGRAPHS = Path(__file__).parents[1] / "data" / "step1x"
GATE = ("--imgedit-editor=oracle", "--imgedit-fail-under=overall:1")
PLACES = {"top": (0, 0), "right": (96, 0), "left": (0, 96), "bottom": (96, 96)}


@pytest.fixture(params=full_but(["photographs"], ["scenes", "photographs"]))
def suite(request: pytest.FixtureRequest, bench: Bench) -> str:
    """Return an option: drawn scenes, or 20 photographs of which a part is to be painted."""
    if request.param == "scenes":
        return "--imgedit-suite=scenes"
    rows = []
    for number, path in enumerate(sorted(PHOTOGRAPHS.glob("*.jpg")) * 4):
        side, (place, corner) = 192, [*PLACES.items()][number // 5]
        left = 16 * (number // 5)
        source = Image.open(path).convert("RGB").resize((256, 256))
        source = source.crop((left, left, left + side, left + side))
        reference = source.copy()
        colour = ("red", "blue", "yellow", "green", "white")[number % 5]
        ImageDraw.Draw(reference).ellipse((*corner, corner[0] + 95, corner[1] + 95), colour)
        source.save(bench.path / f"{number}.png")
        reference.save(bench.path / f"{number}-after.png")
        rows.append(
            {
                "id": f"p{number}",
                "category": place,
                "image": f"{number}.png",
                "reference": f"{number}-after.png",
                "instruction": f"put a {colour} ball at the {place}",
            }
        )
    (bench.path / "photographs.json").write_text(json.dumps(rows))
    return "--imgedit-suite=photographs.json"


@pytest.mark.parametrize(
    "judge", full_but(["Easy"], ["Constant", "Length", "Brightness", "Layout", "Easy"])
)
def test_a_blind_judge_makes_the_run_invalid(bench: Bench, suite: str, judge: str) -> None:
    result = bench.run(suite, f"--imgedit-judge=blind_judges:{judge}", *GATE)
    result.stdout.fnmatch_lines(["imgedit: INVALID: *the judge cannot tell * from *"])
    assert result.ret == 1


@pytest.mark.full
def test_a_judge_that_orders_all_edits_but_ignores_the_words_is_found_out(bench: Bench) -> None:
    result = bench.run("--imgedit-suite=scenes", "--imgedit-judge=blind_judges:Wordless", *GATE)
    result.stdout.fnmatch_lines(
        [
            "imgedit: INVALID: *the judge cannot tell counterfactual from a right edit and "
            "counterfactual from a half-done one: *"
        ]
    )
    assert result.ret == 1


def test_a_judge_that_is_right_is_believed(bench: Bench, suite: str) -> None:
    """It costs over 5 CPU seconds, as it measures 140 edits of photographs."""
    result = bench.run(suite, "--imgedit-judge=reference", *GATE)
    result.stdout.fnmatch_lines(
        [
            "imgedit: warning: judge reference is not tried with other instructions: it does not "
            "read instructions",
            "imgedit: PASS: *the judge tells every control from a right edit: oracle 10.00 > *; "
            "not asked about other instructions: it does not read instructions",
        ]
    )
    assert result.ret == 0
