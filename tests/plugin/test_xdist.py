"""Under xdist the controller runs the stages once, and items come out the same."""

from __future__ import annotations

import pytest


def comparable(bench):
    """Items without what differs between any two runs: seconds."""
    items = bench.results["items"]
    for item in items:
        for seed in item["seeds"]:
            if seed["edit"]:
                del seed["edit"]["seconds"]
    return items


def test_same_items_with_and_without_xdist(bench):
    """Costly: two workers of xdist are processes."""
    options = ("--imgedit-editor=noise", "--imgedit-limit=1", "--imgedit-fresh")
    bench.run(*options).assert_outcomes(passed=5)
    alone = comparable(bench)
    bench.run_subprocess(*options, "-n", "2").assert_outcomes(passed=5)
    assert comparable(bench) == alone
    assert bench.timing["edits"] == 5


@pytest.mark.full
def test_stages_run_once_and_only_for_selected_pairs(bench):
    result = bench.run_subprocess("-n", "2", "-k", "physics")
    result.assert_outcomes(passed=10)
    assert len(bench.runs) == 1
    assert bench.timing["edits"] == 10
    result.stdout.fnmatch_lines(["imgedit: PASS: *"])


@pytest.mark.full
def test_failures_and_properties_come_back_from_xdist_workers(bench):
    result = bench.run_subprocess(
        "-n", "2", "--imgedit-editor=fakes:Raises", "--imgedit-limit=2", "--junitxml=junit.xml"
    )
    result.assert_outcomes(passed=9, failed=1)
    assert result.ret == 1
    text = (bench.path / "junit.xml").read_text()
    assert text.count('name="imgedit_score"') == 9
    assert 'name="imgedit_error"' in text


@pytest.mark.full
def test_gate_fails_the_run_under_xdist_too(bench):
    result = bench.run_subprocess("-n", "2", "--imgedit-limit=2", "--imgedit-fail-under=overall:9")
    result.assert_outcomes(passed=10, failed=1)  # the gate
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["imgedit: FAIL: *", "  FAIL *: 0.00 < 9 (p *)", "a part: 10 of 50 pairs"]
    )


@pytest.mark.full
def test_usage_error_is_one_line_under_xdist_too(bench):
    result = bench.run_subprocess("-n", "2", "--imgedit-editor=nope")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: unknown editor 'nope', expected one of *"])


@pytest.mark.full
def test_collection_errors_stop_the_run_before_any_edit_under_xdist_too(bench):
    (bench.path / "test_broken.py").write_text("import nosuchmodule\n")
    assert bench.run_subprocess("-n", "2").ret == 2
    assert not (bench.path / ".imgedit").exists()
