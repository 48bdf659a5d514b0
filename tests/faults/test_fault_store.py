"""A store that is full, damaged or held: what is finished stays readable, and the run says what is
wrong.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from pytest_imgedit.core.images import encode_png

NOISE = ("--imgedit-editor=noise", "--imgedit-limit=2")


def run_with_small_files(bench, size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest where no file can grow over `size` bytes: the kernel refuses the write, as on a
    full disk.
    """
    # Python would leave torn bytecode files, and coverage cannot write what it has measured.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COVERAGE_PROCESS_CONFIG": ""}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=bench.path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )


def journal(bench, name):
    return bench.path / ".imgedit" / f"{name}.jsonl"


def test_full_disk_in_the_edit_stage_stops_the_run_and_keeps_what_is_stored(bench):
    image = base64.b64encode(encode_png(Image.radial_gradient("L").resize((16, 16)))).decode()
    rows = [
        {"id": f"p{n}", "category": "physics", "instruction": "fall", "image_b64": image}
        for n in range(40)
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    small = (
        "--imgedit-suite=pairs.json",
        "--imgedit-editor=identity",
        "--imgedit-judge=fakes:Constant",
    )
    result = run_with_small_files(bench, 4000, *small)
    assert result.returncode == 1, result.stdout
    assert "INTERNALERROR" not in result.stdout + result.stderr
    assert "edits.jsonl: File too large" in result.stdout
    assert "INCOMPLETE: stopped: " in result.stdout
    for line in (
        " of 40 pairs edited, 0 scored\n",
        "\nfix that and run again to do the rest\n",
        "so that the reports are not all there\n",
        "\n40 of 40 items failed\n",
    ):
        assert line in result.stdout
    stored = bench.records("edits")
    assert 0 < stored < 40
    assert journal(bench, "edits").read_bytes().endswith(b"\n")
    bench.run(*small).assert_outcomes(passed=40)
    assert (bench.timing["edits_cached"], bench.timing["edits"]) == (stored, 40 - stored)


@pytest.mark.full
def test_full_disk_in_the_score_stage_stops_the_run_and_keeps_what_is_stored(bench):
    bench.run(*NOISE, "--imgedit-stage=edit")
    judge = ("--imgedit-judge=fakes:Reader", "--imgedit-set=judge.batch_size=1")
    result = run_with_small_files(bench, 9000, *NOISE, *judge)
    assert result.returncode == 1
    assert "INTERNALERROR" not in result.stdout + result.stderr
    assert "verdicts.jsonl: File too large" in result.stdout
    stored = bench.records("verdicts")
    assert 0 < stored < 10
    bench.run(*NOISE, *judge).assert_outcomes(passed=10)
    assert (bench.timing["verdicts_cached"], bench.timing["edits"]) == (stored, 0)


@pytest.mark.full
def test_disk_that_is_full_from_the_start_is_one_line_before_anything_is_edited(bench):
    result = run_with_small_files(bench, 100, *NOISE)
    assert result.returncode == 4
    assert result.stderr.strip().startswith("ERROR: ")
    assert result.stderr.strip().endswith(": File too large")
    assert "\n" not in result.stderr.strip()
    assert bench.records("edits") == 0


@pytest.mark.parametrize("name", ["edits", "verdicts"])
@pytest.mark.everyday_for("edits")
def test_torn_last_line_is_dropped_with_a_warning(bench, name):
    bench.run(*NOISE)
    path = journal(bench, name)
    path.write_bytes(path.read_bytes()[:-7])
    result = bench.run(*NOISE)
    result.assert_outcomes(passed=10)
    result.stdout.fnmatch_lines([f"imgedit: warning: *{name}.jsonl: dropped a torn last line"])
    expected = (1, 0) if name == "edits" else (0, 1)
    assert (bench.timing["edits"], bench.timing["verdicts"]) == expected
    assert bench.records(name) == 10


@pytest.mark.parametrize("name", ["edits", "verdicts"])
@pytest.mark.everyday_for("edits")
def test_bad_middle_line_is_refused_by_file_and_line(bench, name):
    bench.run(*NOISE)
    path = journal(bench, name)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"', b"'", 1)
    path.write_bytes(b"".join(lines))
    result = bench.run(*NOISE)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: *{name}.jsonl:4: damaged record, expected JSON with its checksum"]
    )
    assert path.read_bytes() == b"".join(lines)


def test_truncated_image_is_edited_again(bench):
    bench.run(*NOISE)
    blob = bench.results["items"][0]["seeds"][0]["edit"]["blob"]
    path = bench.path / ".imgedit" / "blobs" / blob[:2] / f"{blob}.png"
    path.write_bytes(path.read_bytes()[:100])
    bench.run(*NOISE).assert_outcomes(passed=10)
    assert (bench.timing["edits"], bench.timing["verdicts"]) == (1, 0)


def test_second_run_on_a_held_store_exits_4_and_names_the_holder(bench):
    process = bench.start("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    result = bench.run("--imgedit-limit=1")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: *the store is held by process {process.pid} on *"])
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert bench.run("--imgedit-limit=1").ret == 0  # a lock does not outlive its holder


@pytest.fixture
def without_locks(bench):
    """A benchmark whose file system has no locks."""
    (bench.path / "conftest.py").write_text(
        "import errno, fcntl\n"
        "def flock(*_): raise OSError(errno.ENOSYS, 'Function not implemented')\n"
        "fcntl.flock = flock\n"
    )
    return bench.path / ".imgedit" / "lock.held"


@pytest.mark.parametrize(
    "number",
    [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL],
)
@pytest.mark.full
def test_without_locks_the_second_of_two_runs_exits_4_and_names_the_first(
    bench, without_locks, number
):
    """Two runs of processes; whatever ends the first, the third run can begin."""
    slow = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant")
    process = bench.start(*slow, *(() if number else ("--imgedit-limit=1",)))
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    result = bench.run_subprocess("--imgedit-limit=1")
    if number is None:
        output = bench.finish(process)
        assert process.returncode == 0
        assert "imgedit: warning: " in output
        assert "the file system has no locks (flock: Function not implemented); " in output
    else:
        assert result.ret == 4
        result.stderr.fnmatch_lines([f"ERROR: *the store is held by process {process.pid} on *"])
        process.send_signal(number)
        bench.finish(process)
    assert without_locks.exists() == (number == signal.SIGKILL)
    assert bench.run_subprocess("--imgedit-limit=1").ret == 0
    assert not without_locks.exists()


def test_store_that_cannot_be_written_is_refused(bench):
    (bench.path / "file").write_text("")
    result = bench.run("--imgedit-limit=1", "--imgedit-out=file/store")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: *file/store: Not a directory, expected a folder that can be written"]
    )


@pytest.mark.parametrize("name", ["edits", "verdicts"])
@pytest.mark.everyday_for("verdicts")
def test_records_of_another_version_are_refused_by_file_and_line(bench, name):
    bench.run(*NOISE)
    first, *rest = journal(bench, name).read_text().splitlines(keepends=True)
    record = json.loads(first.partition("\t")[0])
    del record["recipe"]
    body = json.dumps(record, sort_keys=True)
    journal(bench, name).write_text("".join([f"{body}\t{zlib.crc32(body.encode()):08x}\n", *rest]))
    result = bench.run(*NOISE)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: *{name}.jsonl:1: recipe: Field required, expected a record as this version*"]
    )


@pytest.mark.full
def test_pairs_of_a_run_that_the_disk_stopped_fail_though_errors_are_tolerated(bench):
    bench.run(*NOISE, "--imgedit-stage=edit")
    result = run_with_small_files(
        *(bench, 1500, *NOISE, "--imgedit-judge=fakes:Reader", "--imgedit-set=judge.batch_size=1"),
        "--imgedit-max-errors=10",
    )
    assert "xfailed" not in result.stdout
    assert " failed" in result.stdout


def test_copies_are_written_through_links_and_devices(bench):
    (bench.path / "real.json").write_text("old")
    (bench.path / "link.json").symlink_to("real.json")
    bench.run("--imgedit-limit=1", "--imgedit-json=link.json", "--imgedit-md=/dev/null")
    assert (bench.path / "link.json").is_symlink()
    assert json.loads((bench.path / "real.json").read_text())["schema"] == "imgedit.results/3"
    assert not Path("/dev/null").is_file()


def test_store_on_a_path_of_two_slashes(bench):
    assert bench.run("--imgedit-limit=1", f"--imgedit-out=/{bench.path}/store").ret == 0


@pytest.mark.full
def test_run_whose_folder_is_deleted_says_so(bench):
    process = bench.start(
        "--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2"
    )
    bench.wait_for(lambda: bench.stored_edits() >= 2)
    shutil.rmtree(bench.path / ".imgedit" / "runs")
    output = bench.finish(process)
    assert process.returncode == 1, output
    assert "INTERNALERROR" not in output
    assert "so that the reports are not all there" in output
