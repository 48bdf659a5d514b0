"""Gates decide the exit code, and say why."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

#: A judge whose scores are known, and that is no judge.
CONSTANT = (
    *("--imgedit-judge=fakes:Constant", "--imgedit-limit=2", "--imgedit-set=judge.controls=false"),
    "--imgedit-set=gates.max_near_copies=1.0",
)


@pytest.mark.parametrize(
    ("gates", "failed", "line"),
    [
        pytest.param(
            ["overall:2"],
            0,
            "imgedit: PASS: overall 5.00; a part: *",
            id="pass",
        ),
        pytest.param(
            ["overall:5"],
            1,
            "imgedit: INCONCLUSIVE: overall 5.00 >= 5: no spread seen in 10 pairs*",
            id="flat",
        ),
        pytest.param(
            ["overall:5.1"], 1, "imgedit: FAIL: overall 5.00 < 5.1 (p <0.001); a part: *", id="fail"
        ),
        pytest.param(
            ["物理:6", "causal:2"],
            2,
            "imgedit: INCONCLUSIVE: physics 5.00 < 6: too few pairs*",
            id="few",
        ),
    ],
)
def test_fail_under(bench, gates, failed, line):
    result = bench.run(*CONSTANT, *(f"--imgedit-fail-under={gate}" for gate in gates))
    result.assert_outcomes(passed=10, failed=failed)  # gates that fail count as tests do
    assert result.ret == int(failed > 0)
    result.stdout.fnmatch_lines([line])


def test_gates_that_fail_are_named_in_the_summary_and_are_not_the_last_failed(bench):
    low = (
        "--imgedit-fail-under=overall:9",
        "--imgedit-fail-under=physics:9",
        "--imgedit-fail-under=causal:1",
    )
    result = bench.run(*CONSTANT, *low, "--junitxml=junit.xml")
    result.stdout.fnmatch_lines(
        [
            "FAILED imgedit.gates::fail_under[[]overall[]] - FAIL: overall 5.00 < 9 *",
            "FAILED imgedit.gates::fail_under[[]physics[]] - INCONCLUSIVE: physics 5.00 < 9: too "
            "few pairs *",
        ]
    )
    names = [
        case.get("name") for case in ElementTree.parse(bench.path / "junit.xml").iter("testcase")
    ]
    assert names.count("fail_under[overall]") == 1
    assert not (bench.path / ".pytest_cache/v/cache/lastfailed").exists()


def test_gate_on_a_category_that_was_not_selected_is_refused_before_any_edit(bench):
    result = bench.run(*CONSTANT, "-k", "physics", "--imgedit-fail-under=causal:1")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: --imgedit-fail-under: 'causal' has 0 of the selected pairs, expected at least 2"]
    )
    assert not (bench.path / ".imgedit").exists()


@pytest.mark.parametrize(
    ("allowed", "code", "outcome"),
    [
        ("0", 1, {"failed": 1}),
        ("1", 0, {"xfailed": 1}),
        ("0.1", 0, {"xfailed": 1}),
        ("0.05", 1, {"failed": 1}),
    ],
)
@pytest.mark.everyday_for("0-1-outcome0", "0.05-1-outcome3")
def test_errors_within_the_limit_are_xfailed_with_their_reason(bench, allowed, code, outcome):
    result = bench.run(
        *CONSTANT, "--imgedit-editor=fakes:Raises", f"--imgedit-max-errors={allowed}", "-rx"
    )
    result.assert_outcomes(passed=9, **outcome)
    assert result.ret == code
    if "xfailed" in outcome:
        result.stdout.fnmatch_lines(
            ["XFAIL *physics-0001* RuntimeError: no such luck (edit error: exception)"]
        )


def test_item_under_min_score_fails(bench):
    result = bench.run(*CONSTANT, "--imgedit-set=suite.min_score=5.5")
    result.assert_outcomes(failed=10)
    result.stdout.fnmatch_lines(["score 5.00 is under the suite's min_score 5.5"])


def test_unreadable_replies_are_asked_again_with_a_reminder(bench):
    bench.run("--imgedit-judge=fakes:Reader", "--imgedit-limit=1").assert_outcomes(passed=5)
    for item in bench.results["items"]:
        expected = {
            "instruction": 9,
            "preservation": 4 if item["category"] == "social" else 9,
            "realism": 9,
        }
        assert item["aspects"] == expected


def test_reply_that_stays_unreadable_is_an_error_with_the_raw_reply(bench):
    result = bench.run(
        "--imgedit-judge=fakes:Reader", "--imgedit-set=judge.mumbles=3", "--imgedit-limit=1"
    )
    result.assert_outcomes(passed=4, failed=1)
    item = next(item for item in bench.results["items"] if item["category"] == "social")
    assert item["status"] == "judge_error"
    assert item["score"] is None
    assert item["error"]["kind"] == "unreadable_reply"
    assert item["error"]["reply"] == "3 people stand there, 9/10, Score: 85"
    assert bench.results["categories"]["social"]["mean"] is None
    assert bench.results["overall"]["macro"]["mean"] is None


def test_judge_without_a_reference_image_is_an_error_of_that_pair(bench, photographs):
    result = bench.run(f"--imgedit-suite={photographs}")
    result.assert_outcomes(passed=2, failed=3)
    assert all(
        "reference" in item["error"]["message"]
        for item in bench.results["items"]
        if item["category"] == "causal"
    )
    result.stdout.fnmatch_lines(
        ["*3 of 5 pairs have no reference image, which judge 'reference' needs (causal*"]
    )


@pytest.mark.parametrize("score", ["11.0", "-0.5", "'nan'"])
def test_score_out_of_range_is_an_error(bench, score):
    result = bench.run(*CONSTANT, f"--imgedit-set=judge.score={score}")
    result.assert_outcomes(failed=10)
    assert {item["error"]["kind"] for item in bench.results["items"]} == {"bad_score"}


@pytest.mark.parametrize(("judge", "kind"), [("Fussy", "exception"), ("Deadly", "worker_died")])
@pytest.mark.everyday_for("Fussy-exception")
def test_one_edit_cannot_spoil_the_verdicts_on_the_others_of_its_batch(bench, judge, kind):
    result = bench.run_with_workers(f"--imgedit-judge=fakes:{judge}", "--imgedit-limit=3")
    result.assert_outcomes(passed=14, failed=1)
    assert {
        item["id"]: item["error"]["kind"] for item in bench.results["items"] if item["error"]
    } == {"causal-0001": kind}


def test_broken_reference_is_the_error_of_its_pair_alone(bench):
    import json

    from PIL import Image

    Image.new("RGB", (30, 30), "red").save(bench.path / "good.png")
    (bench.path / "bad.png").write_bytes((bench.path / "good.png").read_bytes()[:60])
    rows = [
        {
            "id": f"p{n}",
            "category": "physics",
            "image": "good.png",
            "instruction": "x",
            "reference": "bad.png" if n == 2 else "good.png",
        }
        for n in range(6)
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    options = ("--imgedit-judge=fakes:Constant", "--imgedit-max-errors=1")
    bench.run("--imgedit-suite=pairs.json", *options).assert_outcomes(passed=5, xfailed=1)
    assert [item["id"] for item in bench.results["items"] if item["error"]] == ["p2"]


@pytest.mark.parametrize(
    "answer",
    [
        "Answer(reply=None)",
        "Answer(score=5, aspects={'x': float('nan')})",
        "'5'",
        "Answer(score='x')",
    ],
)
def test_answer_that_is_none_is_an_error_of_its_pair(bench, answer):
    (bench.path / "odd.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Odd:\n"
        "    def __init__(self, *, device): pass\n"
        f"    def answer(self, questions): return [{answer} for _ in questions]\n"
    )
    result = bench.run("--imgedit-judge=odd:Odd", "--imgedit-limit=1")
    result.assert_outcomes(failed=5)
    assert {item["error"]["kind"] for item in bench.results["items"]} <= {"judge", "bad_score"}


def test_stage_edit_counts_pairs_and_errors(bench):
    options = ("--imgedit-editor=fakes:Raises", "--imgedit-limit=3", "--imgedit-stage=edit")
    bench.run(*options, "--imgedit-max-errors=1").assert_outcomes(passed=14, xfailed=1)
    physics, causal = (bench.results["categories"][name] for name in ("physics", "causal"))
    assert (physics["n"], physics["errors"], causal["n"], causal["errors"]) == (3, 1, 3, 0)
    assert bench.run(*options).ret == 1


def test_parameters_that_look_like_secrets_are_masked(bench):
    (bench.path / "keyed.py").write_text(
        "class Keyed:\n"
        "    def __init__(self, *, device, api_key): self.key = api_key\n"
        "    def edit(self, request):\n"
        "        assert self.key == 'SECRET123'\n"
        "        return request.source\n"
    )
    bench.run(
        "--imgedit-editor=keyed:Keyed",
        "--imgedit-set=editor.api_key=SECRET123",
        "--imgedit-limit=1",
    ).assert_outcomes(passed=5)
    for path in (bench.path / ".imgedit").rglob("*"):
        assert not path.is_file() or b"SECRET123" not in path.read_bytes(), path
