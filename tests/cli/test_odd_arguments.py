"""What `imgedit` is pointed at may be anything: it destroys no run, waits for nothing, and says one
line.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys

import pytest
from waiting import PATIENCE

from pytest_imgedit.cli.main import main

LONG = "a" * 5000


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder for the store of a finished run, which the first test that needs it makes."""
    return tmp_path_factory.mktemp("command-line") / "store"


@pytest.fixture
def run(bench, finished):
    """The folder of a finished run, in a store of the test's own."""
    if not finished.exists():
        bench.run("--imgedit-limit=1", "--imgedit-editor=noise").assert_outcomes(passed=5)
        shutil.copytree(bench.path / ".imgedit", finished)
    else:
        shutil.copytree(finished, bench.path / ".imgedit")
    (bench.path / "people.csv").write_text("id,score\nphysics-0000,5\n")
    return bench.runs[0]


def call(
    bench, *arguments: str, stdout=subprocess.PIPE, encoding: str = "utf-8"
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [
            "/bin/sh",
            "-c",
            'ulimit -v 8000000; exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "pytest_imgedit.cli.main",
            *arguments,
        ],
        cwd=bench.path,
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )


def check_refusal(code: int, told: str) -> None:
    """Check that a command ended with exit code 4 and told one line."""
    assert code == 4, told[-2000:]
    assert told.startswith("imgedit: ")
    assert told.count("\n") == 1
    assert len(told) < 12_000


@pytest.mark.parametrize("option", ["--html", "--md"])
@pytest.mark.parametrize(
    "target", ["results.json", "link.html", "../../edits.jsonl", "../../verdicts.jsonl"]
)
def test_report_is_written_over_no_record_of_its_run(run, capsys, option, target):
    (run / "link.html").symlink_to("results.json")
    kept = {name: (run / name).resolve().read_bytes() for name in ("results.json", target)}
    code, told = main(["report", "latest", f"{option}={run / target}"]), capsys.readouterr().err
    check_refusal(code, told)
    assert target.rpartition("/")[2] in told
    for name, data in kept.items():
        assert (run / name).resolve().read_bytes() == data


def test_run_is_written_over_no_record_of_its_store(bench, run):
    edits = (bench.path / ".imgedit" / "edits.jsonl").read_bytes()
    result = bench.run(
        "--imgedit-limit=1", "--imgedit-editor=noise", "--imgedit-json=.imgedit/edits.jsonl"
    )
    assert (bench.path / ".imgedit" / "edits.jsonl").read_bytes() == edits
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *edits.jsonl*"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("agreement", "latest", "pipe.csv"),
        ("agreement", "pipe.json", "people.csv"),
        ("compare", "latest", "./pipe.json"),
        ("compare", "./pipe.json", "latest"),
        ("report", "./pipe.json"),
        ("doctor", "--config=pipe.toml"),
    ],
    ids=" ".join,
)
@pytest.mark.everyday_for("agreement latest pipe.csv", "doctor --config=pipe.toml")
def test_pipe_is_refused_and_not_waited_for(bench, run, arguments):
    for name in ("pipe.csv", "pipe.json", "pipe.toml"):
        os.mkfifo(bench.path / name)
    result = call(bench, *arguments)
    check_refusal(result.returncode, result.stderr.decode())
    assert b"pipe." in result.stderr


@pytest.mark.full
def test_run_whose_results_are_a_pipe_is_told_and_not_waited_for(bench, run):
    other = run.with_name("20000101T000000Z-000000")
    other.mkdir()
    os.mkfifo(other / "results.json")
    result = call(bench, "runs")
    assert result.returncode == 1, result.stderr
    assert run.name in result.stdout.decode()
    assert f"{other.name}/results.json" in result.stdout.decode()
    assert call(bench, "report", "latest").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("agreement", "latest", "/dev/zero"),
        ("compare", "latest", "/dev/zero"),
        ("report", "/dev/zero"),
    ],
    ids=" ".join,
)
@pytest.mark.everyday_for("agreement latest /dev/zero")
def test_device_without_an_end_is_refused(bench, run, arguments):
    result = call(bench, *arguments)
    check_refusal(result.returncode, result.stderr.decode())


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", LONG),
        ("report", f"./{LONG}.json"),
        ("compare", "latest", LONG),
        ("compare", "latest", f"{'b' * 300}/{LONG}"),
        ("agreement", "latest", LONG),
        ("runs", f"--out={LONG}"),
        ("report", "latest", f"--out={LONG}"),
        ("report", "latest", f"--html={LONG}"),
        ("report", "latest", f"--html={'c' * 300}/x.html"),
        ("doctor", f"--config={LONG}"),
        ("report", "latest\udc80"),
        ("agreement", "latest", "\udcff.csv"),
    ],
    ids=lambda arguments: " ".join(arguments).encode("ascii", "replace").decode()[:30],
)
def test_name_that_no_file_can_have_is_refused(run, capsys, arguments):
    check_refusal(main(list(arguments)), capsys.readouterr().err)


@pytest.mark.parametrize("encoding", ["ascii", "utf-16"])
@pytest.mark.full
def test_output_of_another_encoding_is_shown_as_far_as_it_goes(bench, run, encoding):
    for arguments in (("runs",), ("compare", "latest", "latest")):
        result = call(bench, *arguments, encoding=encoding)
        assert result.returncode == 0, result.stderr.decode(encoding)
        assert run.name in result.stdout.decode(encoding)
    result = call(bench, "report", "nö-画", encoding=encoding)
    assert result.returncode == 4
    assert "Traceback" not in result.stderr.decode(encoding, "replace")


def test_output_that_cannot_be_written_is_one_line(bench, run):
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        result = call(bench, "runs", stdout=full)
    told = result.stderr.decode()
    assert result.returncode not in (0, 120), "what was asked for was not shown"
    assert "Traceback" not in told
    assert "No space left on device" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EMFILE, "Too many open files", LONG), f"{LONG[:200]}: Too many open files"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "Resource temporarily"),
        (RuntimeError("can't start new thread"), "can't start new thread, expected room for more"),
        (MemoryError(), "out of memory"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_system_refuses_a_command_is_one_short_line(monkeypatch, capsys, error, told):
    def refuse(**_):
        raise error

    monkeypatch.setattr("pytest_imgedit.cli.main.resolve_name", lambda _: refuse)
    assert main(["runs"]) == 4
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"imgedit: {told}")


def test_a_mistake_of_our_own_stays_a_traceback(monkeypatch):
    def fail(**_):
        raise RuntimeError("of another kind")

    monkeypatch.setattr("pytest_imgedit.cli.main.resolve_name", lambda _: fail)
    with pytest.raises(RuntimeError, match="of another kind"):
        main(["runs"])
