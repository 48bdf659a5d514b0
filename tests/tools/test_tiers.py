"""The tiers of tests, the parts of `full`, and the budget of the processor."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import PARTS, is_selected

ROOT = Path(__file__).parents[2]
BURN = "import time\nwhile time.process_time() < {seconds}: pass"


def test_every_full_test_is_in_one_part_and_each_part_has_some():
    names = [f"tests/test_some.py::test_{number}" for number in range(200)]
    parts = [
        [name for name in names if is_selected(name, "full", "full", str(n))] for n in range(PARTS)
    ]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(parts)
    assert not any(is_selected(name, "full", "full", "torchvision") for name in names)


@pytest.mark.parametrize(
    ("tier", "lowest_tiers"),
    [
        ("quick", ["quick"]),
        ("everyday", ["quick", "everyday"]),
        ("full", ["full"]),
        ("all", ["quick", "everyday", "full"]),
    ],
)
def test_a_tier_selects_what_is_its_own(tier, lowest_tiers):
    tiers = ("quick", "everyday", "full")
    assert [
        lowest
        for lowest in tiers
        if is_selected("tests/test_some.py::test_it", lowest, tier, "all")
    ] == lowest_tiers


def test_a_test_that_runs_pytest_or_a_model_is_not_quick(pytester, monkeypatch):
    monkeypatch.delenv("IMGEDIT_PART", raising=False)
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.fixture\n"
        "def tiny(): pass\n"
        "def test_plain(tmp_path): pass\n"
        "def test_model(tiny): pass\n"
        "@pytest.mark.everyday\n"
        "def test_process(): pass\n"
        "@pytest.mark.full\n"
        "def test_long(): pass\n"
    )
    for tier, passed in (("quick", 1), ("everyday", 3), ("full", 1), ("all", 4)):
        result = pytester.runpytest_inprocess("-p", "tiers", f"--tier={tier}")
        result.assert_outcomes(passed=passed, deselected=4 - passed)


@pytest.mark.parametrize(("mark", "everyday"), [("full_for", 2), ("everyday_for", 1)])
def test_a_mark_names_the_parameters_that_are_full_or_those_that_are_not(
    pytester, monkeypatch, mark, everyday
):
    monkeypatch.delenv("IMGEDIT_PART", raising=False)
    code = (
        "import pytest\n"
        "@pytest.mark.{mark}('{named}')\n"
        "@pytest.mark.parametrize('x', ['one', 'two', 'six'])\n"
        "def test_it(x): pass\n"
    )
    pytester.makepyfile(code.format(mark=mark, named="two"))
    for arguments, passed in (((), everyday), (("--tier=full",), 3 - everyday)):
        result = pytester.runpytest_inprocess("-p", "tiers", *arguments)
        result.assert_outcomes(passed=passed, deselected=3 - passed)
    result = pytester.runpytest_inprocess("-p", "tiers", "-k", "one or two")
    result.assert_outcomes(passed=1, deselected=2)
    pytester.makepyfile(code.format(mark=mark, named="ten"))
    result = pytester.runpytest_inprocess("-p", "tiers")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{mark} names no parameters of *::test_it: [[]'ten']"])


@pytest.mark.parametrize(("budget", "code"), [("60", 0), ("0.01", 1)])
def test_an_everyday_test_over_the_budget_fails_the_session_by_name(pytester, budget, code):
    pytester.makepyfile(
        "def test_costly():\n    import time\n    end = time.process_time() + 0.1\n"
        "    while time.process_time() < end: pass\n"
        + "".join(f"def test_{n}(): pass\n" for n in range(10))
        + "import pytest\n@pytest.mark.full\ndef test_full(): test_costly()\n"
    )
    result = pytester.runpytest_inprocess(
        "-p", "tiers", "-p", "no:cacheprovider", "--tier=all", f"--cpu-budget={budget}"
    )
    assert result.ret == code
    result.stdout.fnmatch_lines(["*costliest tests, of * CPU s*", "*0.1 s  *::test_costly"])
    told = [line for line in result.outlines if line.startswith("ERROR: ")]
    assert bool(told) == bool(code)
    assert all("test_costly took 0.1 CPU s, 0.01 allowed" in line for line in told)


@pytest.mark.parametrize(
    ("most", "command", "code"),
    [
        ("1", "exit 0", 0),
        ("1", "exit 3", 3),
        # One whose parent ends before it counts too; it is there until it is reaped.
        (
            "0.001",
            f'("{sys.executable}" -c "{BURN.format(seconds=0.4)}" & echo $! >"$PID")\n'
            'while kill -0 "$(cat "$PID")"; do sleep 0.05; done',
            1,
        ),
    ],
)
def test_cpu_minutes_of_all_processes_are_counted(tmp_path, monkeypatch, most, command, code):
    monkeypatch.setenv("PID", str(tmp_path / "pid"))
    call = [sys.executable, "-m", "tools.cpu_minutes", most, "bash", "-c", command]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"CPU minutes, {most} allowed" in done.stdout


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
@pytest.mark.parametrize("program", ["pytest", "imgedit", "nox", "ruff"])
def test_no_test_finds_a_program_of_the_environment_by_its_name(program):
    beside = Path(sys.executable).with_name(program)
    assert beside.exists()
    assert shutil.which(program) != str(beside)
