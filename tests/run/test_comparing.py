"""Baselines: saved, compared with, refused where verdicts are of another kind; gates on drops
decide the exit code.
"""

from __future__ import annotations

import json

import pytest

from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.store.baselines import write_baseline

DROPS = ("--imgedit-max-drop=overall:0", "--imgedit-max-drop=physics:0")


@pytest.fixture
def saved(bench):
    """A benchmark whose oracle's run was saved as `main`."""
    result = bench.run("--imgedit-editor=oracle", "--imgedit-save=main")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["baseline: benchmarks/baselines/main.json"])
    return bench


def test_a_worse_editor_fails_by_name_of_the_category_and_the_same_one_passes(saved):
    text = (saved.path / "benchmarks/baselines/main.json").read_text()
    document = json.loads(text)
    assert document["schema"] == "imgedit.baseline/5"
    assert len(document["items"]) == 50
    assert document["machine"]["gpus"] == []
    assert str(saved.path) not in text

    worse = saved.run(
        "--imgedit-compare=main", *DROPS, "--junitxml=junit.xml", "--imgedit-save=worse"
    )
    assert worse.ret == 1
    worse.assert_outcomes(passed=50, failed=3)
    worse.stdout.fnmatch_lines(
        [
            "imgedit: FAIL: 50 of 50 edits are near-copies of their source",
            "  FAIL * overall:*: 0.00, was 10.00 in main: -10.00 (a drop of up to 0 is allowed), p "
            "<0.001",
            "  FAIL * physics:*: 0.00, was 10.00 in main: *",
            "against baseline main: editor oracle, run *",
            "category * before * now * diff *",
            "physics *10.00*0.00*-10.00*<0.001 FAIL*",
            "overall *10.00*0.00*-10.00*<0.001 FAIL*",
            "0 of 50 edits are unchanged",
            "fell most: * 10.00 → 0.00, *",
            "imgedit: FAIL: 50 of 50 edits are near-copies of their source",
            "html: *report.html",
            "baseline: worse was not saved: the run is FAIL",
        ]
    )
    assert not (saved.path / "benchmarks/baselines/worse.json").exists()
    found = saved.results
    assert found["comparison"]["rows"]["social"]["finding"] == "fell"
    assert [gate["state"] for gate in found["gates"]] == ["PASS", "FAIL", "FAIL", "FAIL", "PASS"]
    assert found["gates"][3]["why"].startswith(
        "50 of 50 pairs fell by 3 points or more against main, 0 allowed ("
    )
    assert len(found["comparison"]["collapsed"]) == 50
    junit = (saved.path / "junit.xml").read_text()
    assert '<property name="imgedit_before" value="10.0" />' in junit
    assert '<property name="imgedit_difference" value="-10.0" />' in junit

    same = saved.run("--imgedit-editor=oracle", "--imgedit-compare=main", *DROPS)
    assert same.ret == 0
    same.stdout.fnmatch_lines(
        [
            "imgedit: PASS: overall 10.00, was 10.00 in main: +0.00",
            "  PASS * overall:*: 10.00, was 10.00 in main: no change (a drop of up to 0 is allowed)",
        ]
    )


@pytest.mark.full
def test_few_pairs_of_which_all_are_ruined_fail_the_run(saved):
    few = (
        "--imgedit-compare=main",
        "--imgedit-limit=1",
        "--imgedit-max-drop=overall:0",
        "--imgedit-max-collapsed=5",
    )
    few = (*few, "--imgedit-set=gates.alpha=0.01", "--imgedit-set=gates.max_near_copies=1.0")
    result = saved.run(*few)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "imgedit: plan: max_drop overall: 5 sources cannot fail this gate, 8 can",
            "imgedit: INCONCLUSIVE: overall 0.00, was 10.00 in main: -10.00*",
            "  INCONCLUSIVE *too few pairs (5) to show anything *: nothing could have failed; the mean "
            "fell by gates.collapse (3) or more*",
        ]
    )
    same = saved.run("--imgedit-editor=oracle", *few[:3], "--imgedit-set=judge.controls=false")
    assert same.ret == 0  # every edit is the baseline's
    same.stdout.fnmatch_lines(["imgedit: PASS: *; a part: 5 of 50 pairs"])


#: Edits of five pairs that are a little worse than in the baseline `main`.
LITTLE = (
    *("--imgedit-editor=blend", "--imgedit-compare=main", "--imgedit-limit=1"),
    *("--imgedit-max-drop=overall:0", "--imgedit-set=gates.collapse=9.5"),
)


@pytest.mark.full
def test_few_pairs_that_moved_little_warn_and_fail_where_that_is_asked_for(saved):
    result = saved.run(*LITTLE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["imgedit: INCONCLUSIVE (warning): *", "  INCONCLUSIVE *: nothing could have failed*"]
    )
    for option in ("--imgedit-inconclusive=fail", "--imgedit-set=gates.strict=true"):
        refused = saved.run(*LITTLE, option)
        assert refused.ret == 1
        refused.stdout.fnmatch_lines(["imgedit: INCONCLUSIVE: *"])


@pytest.mark.full
def test_a_run_that_only_warns_is_a_first_baseline_and_replaces_none(saved):
    folder = saved.path / "benchmarks/baselines"
    result = saved.run(*LITTLE, "--imgedit-save=first")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["baseline: benchmarks/baselines/first.json"])
    before = (folder / "first.json").read_bytes()
    again = saved.run(*LITTLE, "--imgedit-save=first")
    assert again.ret == 0
    again.stdout.fnmatch_lines(
        [
            "baseline: first was not saved: the run is INCONCLUSIVE, and only a PASS replaces a "
            "baseline: save it under another name, or remove benchmarks/baselines/first.json"
        ]
    )
    assert (folder / "first.json").read_bytes() == before


@pytest.mark.full
def test_coverage_of_the_baseline_is_a_gate_where_that_is_asked_for(saved):
    part = ("--imgedit-editor=oracle", "--imgedit-compare=main", "-k", "physics")
    assert saved.run(*part, "--imgedit-min-coverage=0.2").ret == 0
    result = saved.run(*part, "--imgedit-min-coverage=0.5")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["imgedit: FAIL: 10 of the 50 pairs of main compared, 50% asked for*"]
    )


@pytest.mark.full
def test_a_baseline_of_another_environment_is_refused_where_that_is_asked_for(saved):
    path = saved.path / "benchmarks/baselines/main.json"
    baseline = as_baseline(path)
    places = [
        place.model_copy(update={"versions": {**place.versions, "numpy": "1.0"}})
        for place in baseline.environments.values()
    ]
    elsewhere = {"environments": {place.bare.digest: place for place in places}}
    write_baseline(path.parent, baseline.model_copy(update=elsewhere))
    options = ("--imgedit-editor=oracle", "--imgedit-compare=main", *DROPS)
    assert saved.run(*options).ret == 0
    same = (*options, "--imgedit-set=gates.environment='same'")
    result = saved.run(*same)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["imgedit: INVALID: computed in *", "  INVALID *: *(gates.environment): *numpy*"]
    )
    stored = saved.stored_edits()
    early = saved.run(*same, "--imgedit-fresh")
    assert early.ret == 4  # before anything is edited
    early.stderr.fnmatch_lines(
        ["ERROR: baseline main: not comparable: computed in another environment *numpy*"]
    )
    assert saved.stored_edits() == stored


@pytest.mark.full
def test_a_part_of_the_pairs_is_compared_with_the_same_part_under_xdist_too(saved):
    result = saved.run(
        "-k",
        "physics or social",
        "--imgedit-compare=benchmarks/baselines/main.json",
        *DROPS,
        "-n",
        "2",
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["against baseline main: *(20 of its 50 pairs)"])
    assert list(saved.results["comparison"]["rows"]) == ["overall", "physics", "social"]


@pytest.mark.full
def test_a_run_is_a_baseline_too(saved):
    result = saved.run("--imgedit-editor=shuffled", f"--imgedit-compare={saved.runs[-1]}")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["  FAIL *: * pairs fell by 3 points or more against *", "overall * fell *"]
    )
    allowed = saved.run(
        "--imgedit-editor=shuffled",
        f"--imgedit-compare={saved.runs[-1]}",
        "--imgedit-max-collapsed=50",
    )
    assert allowed.ret == 0


@pytest.mark.full
def test_saving_twice_differs_in_the_run_alone(saved):
    path = saved.path / "benchmarks/baselines/main.json"
    first = json.loads(path.read_text())
    saved.run("--imgedit-editor=oracle", "--imgedit-save=main", "--imgedit-fresh")
    second = json.loads(path.read_text())
    assert {key for key in first if first[key] != second[key]} <= {"digest", "run", "finished"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--imgedit-judge=fakes:Constant"], "another judge: reference there, fakes:Constant here"),
        (["--imgedit-seeds=2"], "another number of seeds: 1 there, 2 here"),
        (
            ["--imgedit-set=suite.language=zh"],
            "the instruction* of 50 of 50 pairs has changed (physics-0000, *); save a new baseline *",
        ),
        (
            ["--imgedit-suite=scenes:n=11"],
            "5 of 55 pairs are not in it (physics-0010, *); save a new baseline *",
        ),
    ],
)
@pytest.mark.everyday_for(
    "options3-5 of 55 pairs are not in it (physics-0010, *); save a new baseline *"
)
def test_unlike_runs_are_refused_before_anything_is_edited(saved, options, reason):
    edits = saved.stored_edits()
    result = saved.run(*options, "--imgedit-compare=main")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: baseline main: not comparable: {reason}"])
    assert saved.stored_edits() == edits


@pytest.mark.full
def test_a_run_that_was_stopped_is_not_saved(bench):
    process = bench.start("--imgedit-editor=fakes:Slow", "--imgedit-save=main")
    bench.wait_for(lambda: bench.stored_edits() > 2)
    bench.interrupt(process)
    output = bench.finish(process)
    assert process.returncode == 2
    assert not (bench.path / "benchmarks").exists()
    assert "main was not saved: the run is INCOMPLETE" in output


def test_a_run_with_items_under_the_min_score_is_not_saved(bench):
    result = bench.run(
        "--imgedit-set=suite.min_score=5", "--imgedit-limit=1", "--imgedit-save=main"
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["baseline: main was not saved: the run is FAIL"])
    assert not (bench.path / "benchmarks").exists()


def test_a_part_of_the_pairs_does_not_replace_a_baseline_of_all(saved):
    result = saved.run("-k", "physics", "--imgedit-editor=oracle", "--imgedit-save=main")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: --imgedit-save=main: *main.json holds 40 pairs that are not selected, such *"]
    )
    assert saved.run("-k", "physics", "--imgedit-editor=oracle", "--imgedit-save=physics").ret == 0


@pytest.mark.full
def test_github_is_told_of_every_gate_that_did_not_pass(saved, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = saved.run("--imgedit-compare=main", *DROPS)
    result.stdout.fnmatch_lines(
        [
            "::error title=imgedit max_drop overall::FAIL: overall 0.00, was 10.00 in main: "
            "-10.00 *",
            "::error title=imgedit max_drop physics::FAIL: physics 0.00, was 10.00 in main: "
            "-10.00 *",
        ]
    )
    few = saved.run(*LITTLE)
    few.stdout.fnmatch_lines(
        [
            "::warning title=imgedit max_drop overall::INCONCLUSIVE: overall 6.96, was 10.00 in main: *"
        ]
    )


@pytest.mark.parametrize(
    ("ruined", "code"),
    [
        pytest.param("", 0, id="none", marks=pytest.mark.full),
        pytest.param("social-0001", 1, id="one"),
        pytest.param(
            "physics-0000 physics-0005 social-0001 causal-0002",
            1,
            id="four",
            marks=pytest.mark.full,
        ),
    ],
)
@pytest.mark.full_for("one")
def test_ruined_pictures_fail_a_run_whose_other_edits_are_one_grey_level_away(bench, ruined, code):
    """By equal bytes, no edit would have been that of the baseline, and four ruined pictures a
    matter of chance.
    """
    run = (
        "--imgedit-editor=fakes:Checkpoint",
        "--imgedit-judge=fakes:Reads",
        "--imgedit-set=judge.controls=false",
    )
    run = (*run, "--imgedit-set=editor.luck=0.0", "--imgedit-set=editor.level=8.0")
    assert bench.run(*run, "--imgedit-save=main").ret == 0
    before = {item["seeds"][0]["edit"]["blob"] for item in bench.results["items"]}
    worse = (*run, "--imgedit-set=editor.shade=1", f"--imgedit-set=editor.ruined={ruined!r}")
    result = bench.run(*worse, "--imgedit-compare=main", "--imgedit-max-drop=overall:0.5")
    assert result.ret == code
    edits = [item["seeds"][0]["edit"]["blob"] for item in bench.results["items"]]
    assert (
        sum(edit in before for edit in edits) < 25
    )  # most have other bytes; some are as white as can be
    count = len(ruined.split())
    assert len(bench.results["comparison"]["collapsed"]) == count
    if count:
        result.stdout.fnmatch_lines(
            [
                f"  FAIL *: {count} of 50 pairs fell by 3 points or more against main, 0 "
                "allowed (*): 0 of the *"
            ]
        )
