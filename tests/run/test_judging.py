"""Trying the judge: edits of known quality, the same edits judged again, and expected grades."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from pytest_imgedit.run.questions import swap_images
from pytest_imgedit.stats.judge_qualification import EDITED


def controls(bench, below="oracle"):
    rows = bench.results["controls"]["rows"]
    return {row["control"]: row for row in rows if row["below"] == below}


def test_a_judge_that_tells_controls_apart_is_believed(bench):
    result = bench.run("--imgedit-controls", "--imgedit-editor=shuffled", "-v")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  PASS *the judge tells every control from a right edit: oracle 10.00 > *",
            "controls: the judge on edits of known quality, 20 pairs",
            "oracle * 10.00 *",
            "identity * 0.00 * 1.00 (1.00 to 1.00) told apart",
        ]
    )
    assert {name: row["n"] for name, row in controls(bench).items()} == dict.fromkeys(EDITED, 20)
    edits, verdicts = bench.stored_edits(), bench.records("verdicts")
    again = bench.run("--imgedit-controls", "--imgedit-editor=identity")
    assert again.ret == 0
    assert bench.stored_edits() == edits + 30  # the control made 20 of the 50 edits already
    assert bench.records("verdicts") == verdicts + 30
    assert bench.timing["verdicts_cached"] == 20


@pytest.mark.full
def test_a_judge_that_always_says_7_makes_the_run_invalid(bench):
    seven = (
        "--imgedit-judge=fakes:Constant",
        "--imgedit-set=judge.score=7",
        "--imgedit-editor=oracle",
    )
    result = bench.run(*seven, "--imgedit-fail-under=overall:6")
    assert result.ret == 1
    result.assert_outcomes(passed=50, failed=1)
    result.stdout.fnmatch_lines(
        [
            "  INVALID *: the judge cannot tell blend, damaged, identity, shuffled, blank, "
            "noise, counterfactual, counterfactual colours from a right edit and identity, "
            "counterfactual from a half-done one: oracle 7.00 = blend 7.00 = *; not asked about "
            "other sides, numbers, sizes, order (fewer than 8 source images have some)"
        ]
    )
    assert [gate["state"] for gate in bench.results["gates"]] == ["PASS", "PASS", "INVALID"]
    one = bench.run(*seven, "-k", "physics", "--imgedit-fail-under=physics:6")
    assert one.ret == 1  # whatever is selected, the judge is tried once on the suite
    assert (bench.timing["verdicts_cached"], bench.timing["trials_s"]) == (10, 0)
    one.stdout.fnmatch_lines(["imgedit: INVALID: *the judge cannot tell blend, *"])
    few = bench.run(*seven, "--imgedit-controls", "--imgedit-limit=1")
    assert few.ret == 1
    few.stdout.fnmatch_lines(
        [
            "  INVALID *: the judge gives every control 7.00, so that nothing shows that it "
            "looks at them: *"
        ]
    )


@pytest.mark.full
def test_a_judge_that_goes_by_the_length_of_the_instruction_makes_the_run_invalid(bench):
    (bench.path / "longwinded.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Length:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions):\n"
        "        return [Answer(score=min(10.0, len(q.instruction) / 8)) for q in questions]\n"
    )
    judge = ("--imgedit-editor=oracle", "--imgedit-judge=longwinded:Length")
    result = bench.run(*judge, "--imgedit-fail-under=overall:2")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["  INVALID *: the judge cannot tell * from a right edit and * from a half-done one: *"]
    )
    assert bench.run(*judge).ret == 0  # no gate rests on its scores
    assert bench.results["controls"] is None
    off = bench.run(*judge, "--imgedit-fail-under=overall:2", "--imgedit-set=judge.controls=false")
    assert off.ret == 0
    assert bench.results["controls"] is None


def test_an_edit_of_nothing_passes_no_gate(bench):
    seven = (
        "--imgedit-judge=fakes:Constant",
        "--imgedit-set=judge.score=7",
        "--imgedit-set=judge.controls=false",
    )
    result = bench.run(*seven, "--imgedit-fail-under=overall:6")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["imgedit: INVALID: 50 of 50 edits are near-copies of their source*"]
    )
    allowed = bench.run(
        *seven, "--imgedit-fail-under=overall:6", "--imgedit-set=gates.max_near_copies=1.0"
    )
    assert allowed.ret == 0


@pytest.mark.full
def test_a_judge_that_tells_controls_apart_on_average_only_makes_the_run_invalid(bench):
    (bench.path / "weak.py").write_text(
        "import random\n"
        "from pytest_imgedit import Answer\n"
        "class Weak:\n"
        "    def __init__(self, *, device, gap=0.4, noise=0.1): self.gap, self.noise = gap, noise\n"
        "    def answer(self, questions):\n"
        "        return [Answer(score=self.score(q.images)) for q in questions]\n"
        "    def score(self, images):\n"
        "        luck = random.Random(images['source'].tobytes() + "
        "images['edited'].tobytes()[:999])\n"
        "        right = images['edited'].tobytes() == images['reference'].tobytes()\n"
        "        return 5.1 + self.gap * right + luck.uniform(-self.noise, self.noise)\n"
    )
    result = bench.run(
        "--imgedit-judge=weak:Weak", "--imgedit-editor=oracle", "--imgedit-fail-under=overall:1"
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["  INVALID *: the judge cannot tell *identity*, blank from a right edit*: *"]
    )
    row = controls(bench)["identity"]
    assert row["p"] < 0.05
    assert row["auc"] > 0.9  # always less, and hardly
    wide = ("--imgedit-set=judge.gap=2.0", "--imgedit-set=judge.noise=4.0")
    assert (
        bench.run(
            "--imgedit-judge=weak:Weak", "--imgedit-editor=oracle", *wide, "--imgedit-controls"
        ).ret
        == 1
    )
    row = controls(bench)["identity"]
    assert row["auc"] < 0.9  # two points less on average, and often more


def test_without_references_a_worthless_edit_must_stay_under_half_of_the_scale(bench):
    from PIL import Image

    Image.effect_noise((64, 64), 90).save(bench.path / "a.png")
    words = ("lift", "drop", "turn", "paint", "hide", "move", "open", "close")
    rows = [
        {"id": f"p{n}", "category": "physics", "instruction": f"{word} it"}
        for n, word in enumerate(words)
    ]
    images = [Image.effect_noise((64, 64), 60 + n) for n in range(8)]
    for n, (row, image) in enumerate(zip(rows, images, strict=True)):
        image.save(bench.path / f"{n}.png")
        row["image"] = f"{n}.png"
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    options = ("--imgedit-suite=pairs.json", "--imgedit-judge=fakes:Constant", "--imgedit-controls")
    low = bench.run(*options, "--imgedit-set=judge.score=2")
    assert low.ret == 1
    low.stdout.fnmatch_lines(
        [
            "  INCONCLUSIVE *the judge gives every control and every edit of this run 2.00, "
            "so that nothing shows that it looks at them: *"
        ]
    )
    assert set(controls(bench)) == {"identity", "blank", "noise", "counterfactual"}
    (bench.path / "keen.py").write_text(
        "import numpy as np\n"
        "from pytest_imgedit import Answer\n"
        "class Keen:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions):\n"
        "        return [Answer(score=8.0 if self.inverted(q) else 1.0) for q in questions]\n"
        "    def inverted(self, q):\n"
        "        return np.array_equal(255 - np.asarray(q.images['source']), "
        "np.asarray(q.images['edited']))\n"
    )
    keen = bench.run(
        options[0], "--imgedit-judge=keen:Keen", "--imgedit-editor=fakes:Slow", "--imgedit-controls"
    )
    assert keen.ret == 1
    keen.stdout.fnmatch_lines(
        [
            "  INVALID *: the judge does not score this editor's edits, of 8.00 on average, "
            "lower with other words: counterfactual: counterfactual 8.00 > *"
        ]
    )
    high = bench.run(*options, "--imgedit-set=judge.score=6")
    assert high.ret == 1
    high.stdout.fnmatch_lines(
        ["*INVALID: *does not score identity, blank, noise under 5, as worthless edits must be*"]
    )


@pytest.mark.full
def test_a_judge_that_fails_on_every_right_edit_is_not_believed(bench):
    (bench.path / "blind.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Blind:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions):\n"
        "        same = [q.images['edited'].tobytes() == q.images['reference'].tobytes() for q in "
        "questions]\n"
        "        return [Answer(error='no idea') if right else Answer(score=1.0) for right in "
        "same]\n"
    )
    result = bench.run("--imgedit-judge=blind:Blind", "--imgedit-controls")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["  INVALID *the judge cannot tell *identity 1.00 = *, oracle unscored, *"]
    )


def test_an_alpha_that_so_few_pairs_cannot_reach_blames_no_judge(bench):
    result = bench.run(
        "--imgedit-limit=2", "--imgedit-controls", "--imgedit-set=gates.alpha=0.0005"
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["  INCONCLUSIVE *: 10 pairs of 10 source images do not show *"])


def test_stage_report_makes_no_controls(bench):
    bench.run("--imgedit-limit=2")
    edits = bench.stored_edits()
    result = bench.run(
        "--imgedit-limit=2",
        "--imgedit-stage=report",
        "--imgedit-controls",
        "--imgedit-judge-repeats=1",
    )
    assert result.ret == 1
    assert bench.stored_edits() == edits
    result.stdout.fnmatch_lines(["  INCONCLUSIVE *: the judge was not asked about all controls *"])
    result.stdout.fnmatch_lines(["identity * 0.00 *–*", "oracle * not all asked*"])
    (row,) = bench.results["noise"]["rows"]
    assert (row["n"], row["errors"], row["pending"]) == (0, 0, 10)


@pytest.mark.full
def test_ctrl_c_while_the_judge_is_tried_loses_nothing(bench):
    slow = (
        "--imgedit-judge=fakes:Sensitive",
        "--imgedit-set=judge.delay=0.2",
        "--imgedit-limit=2",
        "--imgedit-controls",
    )
    process = bench.start(*slow)
    bench.wait_for(lambda: bench.records("verdicts") > 12)
    bench.interrupt(process)
    output = bench.finish(process)
    assert process.returncode == 2
    assert "imgedit: INCOMPLETE: stopped by the user; 10 of 10 pairs edited, 10 scored" in output
    assert all(row["errors"] == 0 for row in controls(bench).values())
    assert (
        sum(row["pending"] for row in controls(bench).values())
        == bench.results["run"]["trials_left"]
        > 0
    )
    assert bench.run(*slow).ret in (0, 1)
    assert bench.results["run"]["trials_left"] == 0


@pytest.mark.full
def test_repeats_measure_what_should_not_matter(bench):
    options = (
        "--imgedit-judge=fakes:Sensitive",
        "--imgedit-editor=oracle",
        "--imgedit-limit=4",
        "--imgedit-judge-repeats=5",
    )
    result = bench.run(*options)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*judge's noise floor 0.0*", "judged again * n *changed *SD *shift*"]
    )
    rows = bench.results["noise"]["rows"]
    assert [row["perturbation"] for row in rows] == ["batch", "order", "jpeg", "resize", "batch"]
    assert all(row["n"] == 20 and row["errors"] == 0 for row in rows)
    assert rows[0]["changed"] > 0  # batches hold several categories then
    assert rows[1]["shift"] == pytest.approx(-2, abs=0.05)
    assert 0 < rows[3]["sd"] < 0.5
    assert bench.results["noise"]["floor"] < 0.1  # without the order, which no two runs differ in
    asked = Counter((bench.path / "asked.txt").read_text().split())
    assert set(asked.values()) == {6}
    assert bench.run(*options).ret == 0
    assert (
        Counter((bench.path / "asked.txt").read_text().split()) == asked
    )  # all came from the store


def test_images_change_places_with_the_words_before_them():
    parts = (
        ("text", "A:"),
        ("image", "source"),
        ("text", "B:"),
        ("image", "edited"),
        ("text", "end"),
    )
    swapped = (
        ("text", "B:"),
        ("image", "edited"),
        ("text", "A:"),
        ("image", "source"),
        ("text", "end"),
    )
    assert swap_images(parts) == swapped
    bare = (("image", "source"), ("image", "edited"), ("image", "reference"))
    assert swap_images(bare) == (("image", "edited"), ("image", "source"), ("image", "reference"))
    apart = (("image", "edited"), ("text", "x"), ("text", "y"), ("image", "source"))
    assert swap_images(apart) == (
        ("text", "y"),
        ("image", "source"),
        ("text", "x"),
        ("image", "edited"),
    )
    assert swap_images(parts[:2]) == parts[:2]


EXPECTING = (
    "from pytest_imgedit import Answer\n"
    "class Expecting:\n"
    "    def __init__(self, *, device, grade=8.5): self.grade = grade\n"
    "    def answer(self, questions):\n"
    "        reply = 'instruction: 9\\npreservation: 9\\nrealism: 9'\n"
    "        expected = dict.fromkeys(questions[0].aspects, self.grade)\n"
    "        return [Answer(reply, expected=expected, off_scale=0.02) for _ in questions]\n"
)


def test_expected_grades_make_the_score_beside_the_greedy_reply(bench):
    (bench.path / "expecting.py").write_text(EXPECTING)
    result = bench.run("--imgedit-judge=expecting:Expecting", "--imgedit-limit=1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "scores are made of expected grades: mean 8.50, of the greedy replies 9.00; at most "
            "2.0% off *"
        ]
    )
    verdict = bench.items["physics-0000"]["seeds"][0]["verdict"]
    assert (verdict["score"], verdict["greedy"], verdict["off_scale"]) == (
        pytest.approx(8.5),
        9.0,
        0.02,
    )
    assert verdict["replies"]["aspects"].startswith("instruction: 9")
    assert bench.run("--imgedit-judge=expecting:Expecting", "--imgedit-limit=1").ret == 0
    assert bench.items["physics-0000"]["seeds"][0]["verdict"] == verdict


def test_an_expected_grade_off_the_scale_is_an_error(bench):
    (bench.path / "expecting.py").write_text(EXPECTING)
    bench.run(
        "--imgedit-judge=expecting:Expecting", "--imgedit-set=judge.grade=11.0", "--imgedit-limit=1"
    )
    assert set(bench.error_kinds.values()) == {"bad_score"}
