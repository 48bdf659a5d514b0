"""A hook of the user's that raises or exits is named in one line, and costs nothing that was
finished before it.
"""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_imgedit.run.interrupts import Interrupts, TimedOut

RUN = ("--imgedit-editor=noise", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2")
#: Each with the exit codes that tell of it: 1 where the run goes on, another where the hook asked
#: to stop.
ENDS = {
    "raises": ("raise ValueError('no such luck')", {1}),
    "mute": ("raise Mute", {1}),
    "base": ("raise BaseException('no such luck')", {1}),
    "pytest-exit": ("pytest.exit('no such luck', returncode=7)", {1, 2, 7}),
    "sys-exit": ("sys.exit(0)", {1, 2}),
    "os-error": ("open('/no/such/file')", {1}),
    "pytest-fail": ("pytest.fail('no such luck')", {1}),
}
CONFTEST = """
import os, sys
import pytest
class Mute(Exception):
    def __str__(self): raise ValueError
"""


def write(bench, *lines: str) -> None:
    (bench.path / "conftest.py").write_text(CONFTEST + "\n".join(lines) + "\n")


def check(bench, result, hook: str, codes: set[int]) -> None:
    """Check that a run has ended with all its results, and tells of a hook in one line."""
    printed = result.outlines + result.errlines
    assert not [
        line for line in printed if "INTERNALERROR" in line or line.startswith("Traceback")
    ], printed[-20:]
    assert int(result.ret) in codes, printed[-10:]
    assert any(hook in line and line.startswith("imgedit: ") for line in printed)
    items = bench.results["items"]
    assert len(items) == 10
    assert sum(item["seeds"][0]["edit"] is not None for item in items) == bench.stored_edits()
    assert sum(item["seeds"][0]["verdict"] is not None for item in items) == bench.records(
        "verdicts"
    )
    assert (bench.runs[-1] / "report.md").exists()


@pytest.mark.parametrize(
    ("hook", "stage", "how"),
    [
        *(
            ("before_stage", "score", how)
            for how in ("raises", "mute", "base", "pytest-exit", "sys-exit")
        ),
        *(("after_stage", "edit", how) for how in ("raises", "pytest-exit")),
    ],
)
@pytest.mark.everyday_for(
    "before_stage-score-raises", "before_stage-score-pytest-exit", "after_stage-edit-pytest-exit"
)
def test_stage_hook_that_fails_keeps_what_is_finished(bench, hook, stage, how):
    body, codes = ENDS[how]
    write(bench, f"def pytest_imgedit_{hook}(stage):", f"    if stage == '{stage}': {body}")
    check(bench, bench.run(*RUN), f"pytest_imgedit_{hook}", codes)
    assert bench.stored_edits() == 10
    if hook == "after_stage":
        (bench.path / "conftest.py").unlink()
        bench.run(*RUN).assert_outcomes(passed=10)
        assert bench.timing["edits_cached"] == 10


@pytest.mark.parametrize(
    ("hook", "stage", "arguments"),
    [
        ("before_stage", "edit", ()),
        ("after_stage", "score", ()),
        ("after_stage", "score", ("-n1",)),
    ],
    ids=["before-edit", "after-score", "xdist-after-score"],
)
@pytest.mark.full_for("xdist-after-score")
def test_first_and_last_hook_that_fail_leave_a_report(bench, hook, stage, arguments):
    write(
        bench,
        f"def pytest_imgedit_{hook}(stage):",
        f"    if stage == '{stage}': raise ValueError('no such luck')",
    )
    result = bench.run(*RUN, *arguments)
    check(bench, result, f"pytest_imgedit_{hook}", {1})
    assert "no such luck" in result.stdout.str()
    if stage == "score":
        assert {item["status"] for item in bench.results["items"]} == {"scored"}


@pytest.mark.parametrize(
    ("role", "how"),
    [
        *(("editor", how) for how in (*ENDS, "a-number", "a-class")),
        ("judge", "raises"),
        ("judge", "a-number"),
    ],
)
def test_hook_that_names_a_model_and_fails_is_refused_in_one_line(bench, role, how):
    body = {"a-number": "return 5", "a-class": "return Mute"}.get(how) or ENDS[how][0]
    write(bench, f"def pytest_imgedit_{role}(spec): {body}")
    result = bench.pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--imgedit-limit=2", "-k", "physics"
    )
    printed = result.outlines + result.errlines
    assert not [
        line for line in printed if "INTERNALERROR" in line or line.startswith("Traceback")
    ], printed[-10:]
    assert int(result.ret) == 4
    assert len([line for line in result.errlines if line.strip()]) == 1
    result.stderr.fnmatch_lines([f"ERROR: *pytest_imgedit_{role}*"])
    assert not (bench.path / ".imgedit").exists()


@pytest.mark.parametrize("how", ["sys-exit", "base"])
def test_report_section_that_exits_costs_its_section_only(bench, how):
    write(bench, f"def pytest_imgedit_report_section(results): {ENDS[how][0]}")
    result = bench.run(*RUN)
    printed = result.outlines + result.errlines
    assert not [line for line in printed if "INTERNALERROR" in line], printed[-10:]
    assert int(result.ret) in (0, 1)
    result.assert_outcomes(passed=10)
    assert any("pytest_imgedit_report_section" in line for line in printed)
    assert {item["score"] for item in bench.results["items"]} == {5.0}


@pytest.mark.parametrize(
    "body",
    [
        "results['items'][0]['score'] = float('nan'); results['overall']['macro']['mean'] = 9",
        "results['items'].clear(); results['gates'].clear(); results['run'] = results",
    ],
)
def test_report_section_cannot_change_the_results(bench, body):
    write(
        bench,
        "def pytest_imgedit_report_section(results):",
        f"    {body}",
        "    return 'title', 'body'",
    )
    result = bench.run(*RUN)
    assert "INTERNALERROR" not in result.stdout.str()
    assert int(result.ret) in (0, 1)
    result.assert_outcomes(passed=10)
    document = bench.results
    assert [item["score"] for item in document["items"]] == [5.0] * 10
    assert document["overall"]["macro"]["mean"] == 5.0
    assert [gate["state"] for gate in document["gates"]] == ["PASS"]
    assert document["run"]["status"] == "complete"


@pytest.mark.parametrize(
    ("hook", "arguments"),
    [("item_edited", "pair, edit"), ("item_scored", "pair, result"), ("run_finished", "results")],
)
@pytest.mark.parametrize("how", ["raises", "sys-exit"])
@pytest.mark.everyday_for(
    "raises-item_edited-pair, edit", "raises-run_finished-results", "sys-exit-run_finished-results"
)
def test_hook_for_pairs_or_for_the_end_that_fails_keeps_what_is_finished(
    bench, hook, arguments, how
):
    write(bench, f"def pytest_imgedit_{hook}({arguments}):", f"    {ENDS[how][0]}")
    result = bench.run(*RUN)
    check(bench, result, f"pytest_imgedit_{hook}", {1})
    told = [
        line
        for line in (bench.runs[-1] / "run.log").read_text().splitlines()
        if f"pytest_imgedit_{hook}" in line
    ]
    assert len(told) <= 3  # one that fails for a pair fails for many


@pytest.mark.parametrize(
    "body", ["plan.works.clear()", "plan.request.pairs.clear()", "plan.works = ()"]
)
@pytest.mark.everyday_for("plan.works.clear()")
def test_a_hook_cannot_change_what_is_to_be_done(bench, body):
    write(bench, "def pytest_imgedit_before_stage(plan):", f"    {body}")
    check(bench, bench.run(*RUN), "pytest_imgedit_before_stage", {1})
    assert {item["status"] for item in bench.results["items"]} == {"scored"}


HANGS = {
    "item_edited": "pair",
    "before_stage": "stage",
    "after_stage": "stage",
    "item_scored": "pair",
    "report_section": "results",
    "run_finished": "results",
}


@pytest.mark.parametrize("hook", HANGS)
@pytest.mark.parametrize("how", ["sleeps", "retries"])
@pytest.mark.full
def test_hook_that_hangs_keeps_no_results_from_a_run_that_is_to_stop(bench, hook, how):
    """An upload without a deadline, and one that is tried again whatever happens; a stop comes 30 s
    before SIGKILL.
    """
    again = "    while True:\n        try: time.sleep(600)\n        except Exception: pass"
    hang = {"sleeps": "    time.sleep(600)", "retries": again}
    write(
        bench,
        "import time, pathlib",
        f"def pytest_imgedit_{hook}({HANGS[hook]}):",
        "    pathlib.Path('hangs').touch()",
        hang[how],
    )
    process = bench.start("--imgedit-editor=fakes:Slow", *RUN[1:])
    bench.wait_for((bench.path / "hangs").exists)
    process.terminate()
    started = time.monotonic()
    output = bench.finish(process)
    assert time.monotonic() - started < 30
    assert process.returncode == 2, output
    assert f"pytest_imgedit_{hook}" in output
    assert "TimedOut: still running 5 s after the stop" in output
    items = bench.results["items"]
    assert len(items) == 10
    assert sum(item["seeds"][0]["edit"] is not None for item in items) == bench.stored_edits()
    assert (bench.runs[-1] / "report.md").exists()


class Listener:
    """Progress that is about to stop."""

    stopping = False

    def note(self, text):
        pass


@pytest.fixture
def interrupts(monkeypatch):
    monkeypatch.setattr("pytest_imgedit.run.interrupts.HOOK_GRACE", 0.3)
    return Interrupts(Listener())


def in_thread(call):
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


@pytest.mark.parametrize("where", [lambda call: call(), in_thread], ids=["main", "thread"])
def test_hooks_have_a_deadline_in_all_once_a_stop_is_asked_for(interrupts, where):
    assert where(lambda: interrupts.call(lambda: 5)) == 5
    with pytest.raises(ValueError, match="no such luck"):
        where(lambda: interrupts.call(int, "no such luck"))
    interrupts.progress.stopping = True
    assert where(lambda: interrupts.call(lambda: 6)) == 6
    for _ in range(2):
        with pytest.raises(TimedOut):
            where(lambda: interrupts.call(threading.Event().wait, 60))
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.parametrize("where", [lambda call: call(), in_thread], ids=["main", "thread"])
def test_hooks_that_return_are_called_after_a_stop_too(interrupts, where):
    """What counts is their time since the stop: neither how long one ran before, nor how many there
    are.
    """

    def is_stopped_at_last():
        time.sleep(0.4)
        interrupts._stop()

    interrupts.working = True
    where(lambda: interrupts.call(is_stopped_at_last))
    assert [where(lambda: interrupts.call(lambda: 5)) for _ in range(20)] == [5] * 20


def test_an_alarm_of_the_users_own_goes_on_where_nothing_is_to_stop(interrupts):
    heard = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: heard.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        interrupts.call(lambda: None)
        assert heard.wait(5)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_all_failures_of_a_hook_are_counted(bench):
    write(bench, "def pytest_imgedit_item_edited(pair, edit): raise ValueError('no such luck')")
    result = bench.run("--imgedit-limit=2")
    assert result.ret == 1
    assert sum("ValueError: no such luck" in line for line in {*result.outlines}) >= 3
    assert "pytest_imgedit_item_edited: failed 7 more times" in result.outlines


def test_a_text_that_a_hook_returns_at_the_end_is_a_warning_and_no_failure(bench):
    write(
        bench,
        "def pytest_imgedit_run_finished(store):",
        "    return 'tracker: not\\nthere \\x1b[31m' + 'x' * 2000",
    )
    result = bench.run(
        "--imgedit-editor=noise", "--imgedit-judge=fakes:Constant", "--imgedit-save=a"
    )
    assert result.ret == 0
    lines = [line for line in result.outlines if line.startswith("warning: tracker")]
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert len(lines[0]) < 1100
    assert any(line.startswith("baseline: ") for line in result.outlines)
