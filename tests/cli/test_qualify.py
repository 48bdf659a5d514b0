"""`imgedit qualify`: a judge tried alone, and what runs with gates make of its verdicts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture
def qualify(bench):
    def run(*arguments):
        command = [sys.executable, "-m", "pytest_imgedit.cli.main", "qualify", *arguments]
        return subprocess.run(
            command, cwd=bench.path, capture_output=True, text=True, timeout=240, check=False
        )

    return run


@pytest.mark.full
def test_a_judge_is_tried_once_for_all_runs_with_gates(bench, qualify):
    card = qualify("reference", "--suite=scenes:n=10", "--json")
    assert card.returncode == 0
    document = json.loads(card.stdout)
    assert (document["gate"]["state"], document["controls"]["pairs"]) == ("PASS", 20)
    assert (document["judge"]["spec"], document["suite"]["pairs"]) == ("reference", 50)
    (environment,) = document["environments"].values()
    assert environment["device"] == "cpu"
    verdicts = bench.records("verdicts")
    assert verdicts == 140
    result = bench.run("--imgedit-editor=oracle", "--imgedit-fail-under=overall:5")
    assert result.ret == 0
    assert bench.timing["trials_s"] == 0
    (gate,) = (gate for gate in bench.results["gates"] if gate["kind"] == "controls")
    assert (gate["state"], gate["why"]) == ("PASS", document["gate"]["why"])
    assert bench.results["controls"] == document["controls"]
    assert (
        bench.records("verdicts") == verdicts + 30
    )  # the oracle's edits of 20 pairs were judged before


@pytest.mark.full
def test_the_embedded_judge_tells_all_apart_but_other_instructions(qualify):
    """Costly: the embedded model answers 140 questions, which takes a CPU a minute."""
    card = qualify("scenes")
    assert card.returncode == 0, card.stdout + card.stderr
    last = card.stdout.splitlines()[-1]
    assert last.startswith("PASS: the judge tells every control from a right edit: oracle 10.00 > ")
    assert last.endswith(
        "; not asked about other instructions: this demo judge does not read instructions reliably"
    )


@pytest.mark.full
def test_the_card_of_a_judge_that_always_says_the_same(bench, qualify):
    (bench.path / "judge.toml").write_text(
        '[judge]\nspec = "fakes:Constant"\nscore = 7\n[editor]\nseeds = 3\n'
    )
    card = qualify("--config=judge.toml", "--set=suite.limit=2")
    assert card.returncode == 1
    lines = card.stdout.splitlines()
    assert lines[0] == "judge fakes:Constant, protocol aspects@strict, on suite scenes"
    assert any(line.split()[:5] == ["identity", "10", "0", "0", "7.00"] for line in lines)
    assert lines[-1].startswith(
        "INVALID: the judge cannot tell blend, damaged, identity, shuffled, blank, noise, "
        "counterfactual from a right edit and identity, counterfactual from a half-done one: "
    )


@pytest.mark.full
def test_without_references_a_judge_must_hold_worthless_edits_under_half_of_the_scale(
    bench, qualify
):
    from PIL import Image

    rows = []
    for n in range(9):
        Image.effect_noise((64, 64), 60 + n).save(bench.path / f"{n}.png")
        rows.append(
            {"id": f"p{n}", "category": "physics", "image": f"{n}.png", "instruction": f"do {n}"}
        )
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    for score, code, line in (
        (
            2,
            1,
            "INCONCLUSIVE: 9 pairs of 9 source images do not show that * a right edit, of which "
            "the suite has none *",
        ),
        (
            6,
            1,
            "INVALID: the judge does not score identity, blank, noise under 5, as worthless edits "
            "must be: *",
        ),
    ):
        card = qualify("fakes:Constant", "--suite=pairs.json", f"--set=judge.score={score}")
        assert card.returncode == code
        pytest.LineMatcher(card.stdout.splitlines()).fnmatch_lines([line])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            ["nothing"], "imgedit: unknown judge 'nothing', expected one of *", id="judge"
        ),
        pytest.param(
            ["none"],
            "imgedit: judge 'none' does not score edits; choose another judge",
            id="no-judge",
        ),
        pytest.param(["--set=x"], "imgedit: --set=x: expected SECTION.KEY=VALUE *", id="set"),
        pytest.param(["reference", "--suite=gone.json"], "imgedit: gone.json: *", id="suite"),
        pytest.param(["--config=gone.toml"], "imgedit: gone.toml: No such file *", id="config"),
    ],
)
@pytest.mark.everyday_for("judge", "suite")
def test_what_cannot_be_tried_is_said_in_one_line(bench, qualify, arguments, line):
    refused = qualify(*arguments)
    assert (refused.returncode, refused.stdout) == (4, "")
    (said,) = refused.stderr.splitlines()
    pytest.LineMatcher([said]).fnmatch_lines([line])
    assert not (bench.path / ".imgedit").exists()
