"""A store that others have tidied up: what can be used is used, and what cannot is said once, in
one line.
"""

from __future__ import annotations

import os
import shutil

import pytest

NOISE = ("--imgedit-editor=noise", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2")
SLOW = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2")


@pytest.mark.full
def test_store_without_its_lock_file_is_still_a_store(bench):
    bench.run_with_workers(*NOISE).assert_outcomes(passed=10)
    (bench.path / ".imgedit" / "lock").unlink()
    bench.run_with_workers(*NOISE).assert_outcomes(passed=10)
    assert (bench.timing["edits_cached"], bench.timing["verdicts_cached"]) == (10, 10)
    assert len(bench.runs) == 2


@pytest.mark.full
def test_store_that_loses_its_lock_file_during_a_run_is_still_a_store(bench):
    process = bench.start(*SLOW)
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    (bench.path / ".imgedit" / "lock").unlink()
    output = bench.finish(process)
    assert process.returncode == 0, output
    bench.run_with_workers(*SLOW).assert_outcomes(passed=10)
    assert bench.timing["edits_cached"] == 10


def test_folder_with_other_files_is_no_store(bench):
    (bench.path / "photos").mkdir()
    (bench.path / "photos" / "a.png").write_text("")
    result = bench.run_with_workers("--imgedit-limit=1", "--imgedit-out=photos")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: *photos: holds other files, expected a store or an empty or new folder"]
    )
    assert [path.name for path in (bench.path / "photos").iterdir()] == ["a.png"]


@pytest.mark.parametrize("name", [".gitignore", "lock", "edits.jsonl"])
@pytest.mark.full_for(".gitignore", "lock")
def test_pipe_in_the_place_of_a_file_is_not_waited_for(bench, name):
    store = bench.path / ".imgedit"
    store.mkdir()
    if name != "lock":
        (store / "lock").touch()
    os.mkfifo(store / name)
    process = bench.start(*NOISE)
    try:
        output = bench.finish(process)
    finally:
        process.kill()
    assert "INTERNALERROR" not in output
    assert process.returncode in (0, 4), output
    if process.returncode == 4:
        assert output.count("ERROR: ") == 1
        assert name in output


@pytest.mark.parametrize("how", ["removed", "renamed"])
@pytest.mark.full_for("renamed")
def test_store_that_goes_away_during_a_run_is_said_once(bench, left, how):
    process = bench.start(*SLOW)
    bench.wait_for(lambda: bench.stored_edits() >= 2)
    store = bench.path / ".imgedit"
    if how == "removed":
        while store.exists():  # the run may write a file meanwhile
            shutil.rmtree(store, ignore_errors=True)
    else:
        store.rename(bench.path / "elsewhere")
    output = bench.finish(process)
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
    assert process.returncode == 1, output
    lines = [
        line for line in output.splitlines() if line.startswith("imgedit: ") and ".imgedit" in line
    ]
    assert len(lines) >= 1
    assert any("No such file" in line or "gone" in line or "removed" in line for line in lines), (
        output
    )
    assert "the edited image is not in the store any more" not in output, (
        "the items are told an odd reason"
    )
    assert "took longer" not in output
    assert not left()
    again = bench.run_with_workers(*SLOW, "-q")
    again.assert_outcomes(passed=10)
