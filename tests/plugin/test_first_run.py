"""What a user sees at the first run, and what the controls score."""

from __future__ import annotations

import json
import re

import pytest

from pytest_imgedit.kinds.registry import BUILTIN
from pytest_imgedit.suites import base as suites


def test_default_run_prints_five_categories_of_ten_pairs(bench):
    result = bench.run()
    assert result.ret == 0
    result.assert_outcomes(passed=50)
    for category in ("physics", "environment", "social", "causal", "referential"):
        result.stdout.re_match_lines([rf"{category} +10 +[0-9]"])
    result.stdout.fnmatch_lines(["overall *50*", "*(1 swap)*", "imgedit: PASS: *"])


def test_results_document_holds_every_pair_once_and_its_provenance(bench):
    bench.run("--imgedit-limit=2")
    document = bench.results
    assert document["schema"] == "imgedit.results/3"
    assert document["run"]["status"] == "complete"
    assert {"torch", "diffusers", "transformers", "pytest-imgedit"} <= set(
        document["run"]["versions"]
    )
    assert len({item["id"] for item in document["items"]}) == len(document["items"]) == 10
    assert {item["status"] for item in document["items"]} == {"scored"}
    assert len(document["editor"]["fingerprint"]) == len(document["judge"]["fingerprint"]) == 64
    assert (
        document["judge"]["protocol_sha256"] is None
    )  # the reference judge measures, no protocol is put to it
    assert document["categories"]["physics"]["n"] == 2
    item = document["items"][0]
    edit = item["seeds"][0]["edit"]
    assert (bench.path / ".imgedit" / "blobs" / edit["blob"][:2] / f"{edit['blob']}.png").is_file()
    assert (bench.path / ".imgedit" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("editor", "low", "high"), [("oracle", 9.5, 10), ("identity", 0, 5), ("noise", 0, 1)]
)
@pytest.mark.full_for("noise-0-1", "identity-0-5")
def test_reference_judge_knows_the_worth_of_controls(bench, editor, low, high):
    bench.run(f"--imgedit-editor={editor}")
    means = {name: row["mean"] for name, row in bench.results["categories"].items()}
    assert len(means) == 5
    assert all(low <= mean <= high for mean in means.values()), means


@pytest.mark.parametrize("editor", ["blank", "shuffled"])
@pytest.mark.full_for("blank")
def test_blank_and_shuffled_score_far_below_the_reference(bench, editor):
    bench.run(f"--imgedit-editor={editor}", "--imgedit-suite=scenes:n=6")
    assert bench.results["overall"]["macro"]["mean"] < 5


def test_reports_go_where_they_are_asked_and_to_the_github_summary(bench, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(bench.path / "summary.md"))
    copies = [f"--imgedit-{kind}=out/copy.{kind}" for kind in ("json", "md", "html")]
    assert bench.run("--imgedit-limit=1", *copies).ret == 0
    assert json.loads((bench.path / "out/copy.json").read_text()) == bench.results
    markdown = (bench.path / "out/copy.md").read_text()
    assert "| physics | 1 | 1 | 0 |" in markdown
    assert markdown in (bench.path / "summary.md").read_text()
    page = (bench.path / "out/copy.html").read_text()
    images = re.findall(r'"thumbnail": "(copy_files/\w+\.thumbnail\.webp)"', page)
    assert len(images) == 15  # source, edit and reference of 5 pairs
    assert all((bench.path / "out" / name).is_file() for name in images)
    full = re.findall(r'"full": "([^"]+)"', page)
    assert len(full) == 15
    assert all((bench.path / "out" / name).is_file() for name in full)
    assert "../../blobs/" in (bench.runs[-1] / "report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page


def test_scores_and_aspects_reach_junit(bench):
    bench.run("--imgedit-limit=1", "--imgedit-editor=oracle", "--junitxml=junit.xml")
    text = (bench.path / "junit.xml").read_text()
    assert '<property name="imgedit_score" value="10.0" />' in text
    assert '<property name="imgedit_aspect_ssim" value="1.0" />' in text


def test_reports_say_what_they_were_made_with(bench):
    bench.run(
        "--imgedit-limit=1",
        "--imgedit-editor=fakes:Slow",
        "--imgedit-set=editor.delay=0.25",
        "--imgedit-seeds=2",
    )
    text, page = ((bench.runs[-1] / f"report.{kind}").read_text() for kind in ("md", "html"))
    assert "editor: fakes:Slow, delay 0.25, fingerprint " in text
    assert "editor: fakes:Slow, delay 0.25, fingerprint " in page
    assert "2 seeds a pair" in text
    assert f"torch {bench.results['run']['versions']['torch']}" in page


def test_quiet_twice_leaves_one_line(bench):
    result = bench.run("--imgedit-limit=1", "-qq")
    lines = [line for line in result.outlines if line.strip() and not line.startswith(".")]
    assert lines == ["imgedit: PASS: overall 0.00; 5 of 5 edits are near-copies of their source"]


def test_help_names_every_spec(bench):
    text = " ".join(bench.run("--help").stdout.str().split())
    for spec in (
        *BUILTIN["editor"],
        *BUILTIN["judge"],
        *suites.BUILTIN,
        "openai:URL#MODEL",
        "openai-images:URL#MODEL",
    ):
        assert spec == "native" or spec in text, spec


def test_log_holds_what_each_worker_printed(bench):
    bench.run("--imgedit-editor=fakes:Raises", "--imgedit-limit=2", "--imgedit-max-errors=1")
    log = (bench.runs[-1] / "run.log").read_text()
    assert "edit-0 | RuntimeError: no such luck" in log
    assert "physics-0001 (seed 0): RuntimeError: no such luck (edit error: exception)" in log
    assert not list(bench.runs[-1].glob(".*"))


def test_chinese_texts_are_used_when_asked(bench):
    bench.run("--imgedit-limit=1", "--imgedit-set=suite.language=zh")
    assert "把架子拿走。" in [item["instruction"] for item in bench.results["items"]]


def test_seeds_are_averaged_inside_a_pair(bench):
    bench.run("--imgedit-editor=noise", "--imgedit-limit=1", "--imgedit-seeds=3")
    for item in bench.results["items"]:
        scores = [seed["verdict"]["score"] for seed in item["seeds"]]
        assert [seed["seed"] for seed in item["seeds"]] == [0, 1, 2]
        assert len({seed["edit"]["blob"] for seed in item["seeds"]}) == 3
        assert item["score"] == pytest.approx(sum(scores) / 3)
    assert bench.results["overall"]["micro"]["n"] == 5


@pytest.mark.parametrize("what", ["empty", "no test", "a config", "inside"])
def test_a_benchmark_folder_without_tests_says_what_to_run(pytester, monkeypatch, what):
    folder = pytester.path / ("models" if what == "a config" else "benchmarks")
    folder.mkdir()
    if what == "no test":
        (folder / "test_later.py").write_text("")
    if what == "a config":
        (folder / "imgedit.toml").write_text("")
    if what == "inside":
        monkeypatch.chdir(folder)
    result = pytester.runpytest_inprocess(*[folder.name] * (what != "inside"))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        [
            "imgedit: no collected test requests edit_result, so that nothing was evaluated: "
            "pytest --imgedit runs the shipped item, imgedit init writes one of your own"
        ]
    )


@pytest.mark.parametrize("what", ["other folder", "tests of another kind", "collected only"])
def test_other_folders_are_left_in_peace(pytester, what):
    folder = pytester.path / ("tests" if what == "other folder" else "benchmarks")
    folder.mkdir()
    if what == "tests of another kind":
        (folder / "test_speed.py").write_text("def test_fast(): pass")
    options = ["--collect-only"] if what == "collected only" else []
    result = pytester.runpytest_inprocess(folder.name, *options)
    result.stdout.no_fnmatch_line("imgedit: *")


REASONS = {
    "an exception": (["--imgedit-editor=fakes:Raises"], "RuntimeError: no s"),
    "no edit": (
        ["--imgedit-editor=fakes:Outputs", "--imgedit-set=editor.whats=['none']"],
        "the editor returne",
    ),
    "an unreadable reply": (
        ["--imgedit-judge=fakes:Replies", "--imgedit-set=judge.replies=['no']"],
        "no line 'instructi",
    ),
    "a low score": (["--imgedit-set=suite.min_score=9"], "score 0.00 is und"),
}


@pytest.mark.parametrize("name", REASONS)
@pytest.mark.everyday_for("an exception", "a low score")
def test_the_short_summary_begins_with_the_reason(bench, monkeypatch, name):
    options, reason = REASONS[name]
    for variable in ("CI", "BUILD_NUMBER"):  # where pytest does not shorten lines
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    result = bench.run("--imgedit-limit=2", *options)
    line = next(line for line in result.outlines if line.startswith("FAILED test_image_edit"))
    assert f"] - {reason}" in line
    assert len(line) <= 80
