"""Processes that die, hang or leak: the job has its second try, and the others go on."""

from __future__ import annotations

import json
import os
import signal
import sys

import psutil
import pytest
from PIL import Image

CONSTANT = ("--imgedit-judge=fakes:Constant", "--imgedit-limit=2")


@pytest.mark.parametrize("how", ["sleep", "native", "stopped"])
@pytest.mark.full_for("sleep", "native")
def test_hanging_edit_is_ended_at_its_deadline_and_the_others_go_on(bench, how):
    result = bench.run_with_workers(
        *CONSTANT,
        "--imgedit-editor=fakes:Hangs",
        f"--imgedit-set=editor.how={how}",
        "--imgedit-set=workers.edit_timeout=2",
    )
    result.assert_outcomes(passed=9, failed=1)
    assert bench.error_kinds == {"physics-0001": "timeout"}
    message = bench.items["physics-0001"]["error"]["message"]
    assert "a job took longer than 2 s (workers.edit_timeout)" in message
    assert "about to hang" in message
    # The edit before it may be blamed once for what was its reply's delay; then both are done
    # alone.
    assert (
        3 <= len([worker for worker in bench.results["workers"] if worker["stage"] == "edit"]) <= 4
    )


JUMP = """
import os, time
real = time.monotonic
time.monotonic = lambda: real() + {jump} * os.path.exists(".imgedit/edits.jsonl")
"""


@pytest.mark.parametrize("jump", [1e6, -1e6])
@pytest.mark.full
def test_a_clock_that_jumps_ends_no_edit_and_spares_none(bench, jump):
    (bench.path / "conftest.py").write_text(JUMP.format(jump=jump))
    process = bench.start(
        *(
            "--imgedit-editor=fakes:Hangs",
            "--imgedit-set=editor.how=sleep",
            "--imgedit-set=workers.edit_timeout=2",
        ),
        *CONSTANT,
        "--imgedit-set=workers.cpu_workers=2",
    )
    bench.finish(process)
    assert process.returncode == 1
    assert bench.error_kinds == {"physics-0001": "timeout"}


@pytest.mark.full
def test_worker_that_ignores_sigterm_is_killed(bench, left):
    bench.run_with_workers(
        *CONSTANT,
        "--imgedit-editor=fakes:Hangs",
        "--imgedit-set=editor.how=deaf",
        "--imgedit-set=workers.edit_timeout=2",
        "-k",
        "physics-0001",
    )
    assert bench.error_kinds == {"physics-0001": "timeout"}
    assert not left()


def test_hanging_judge_is_ended_and_spoils_only_its_own_pair(bench):
    result = bench.run_with_workers(
        "--imgedit-judge=fakes:Hangs",
        "--imgedit-set=judge.batch_size=4",
        "--imgedit-set=workers.judge_timeout=2",
        "--imgedit-limit=2",
    )
    result.assert_outcomes(passed=9, failed=1)
    assert bench.error_kinds == {"physics-0001": "timeout"}
    assert "workers.judge_timeout" in bench.items["physics-0001"]["error"]["message"]


def test_hanging_load_is_ended_and_every_pair_says_so(bench):
    result = bench.run_with_workers(
        *CONSTANT,
        "--imgedit-editor=fakes:Hangs",
        "--imgedit-set=editor.how=loading",
        "--imgedit-set=workers.load_timeout=2",
    )
    result.assert_outcomes(failed=10)
    assert set(bench.error_kinds.values()) == {"no_worker"}
    assert (
        "loading took longer than 2 s (workers.load_timeout)"
        in bench.items["social-0000"]["error"]["message"]
    )


@pytest.mark.full
def test_hanging_import_is_ended_and_refused(bench):
    (bench.path / "stuck.py").write_text(
        "import time\ntime.sleep(600)\nclass Editor:\n"
        "    def __init__(self, *, device): ...\n    def edit(self, request): ...\n"
    )
    result = bench.run_with_workers(
        "--imgedit-editor=stuck:Editor", "--imgedit-set=workers.load_timeout=1", "--imgedit-limit=1"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [
            "ERROR: worker edit-0 (CPU) was ended: starting took longer than 1 s "
            "(workers.load_timeout) before it was *"
        ]
    )


@pytest.mark.full
def test_job_of_a_killed_worker_is_done_once_more_in_a_fresh_process(bench):
    result = bench.run_with_workers(
        "--imgedit-editor=fakes:Fragile",
        "--imgedit-set=editor.once=causal-0001",
        "--imgedit-judge=fakes:Constant",
    )
    result.assert_outcomes(passed=50)
    assert [worker["name"] for worker in bench.results["workers"] if worker["stage"] == "edit"] == [
        "edit-0"
    ] * 2
    assert "edit-0 | about to die" in (bench.runs[-1] / "run.log").read_text()


def test_job_that_kills_its_worker_twice_is_an_error_and_the_others_go_on(bench):
    result = bench.run_with_workers(
        "--imgedit-editor=fakes:Fragile",
        "--imgedit-set=editor.always=causal-0001",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-limit=3",
    )
    result.assert_outcomes(passed=14, failed=1)
    assert bench.error_kinds == {"causal-0001": "worker_died"}
    assert "about to die" in bench.items["causal-0001"]["error"]["message"]


@pytest.mark.full
def test_judge_that_dies_on_one_pair_spoils_only_that_pair(bench):
    bench.run_with_workers("--imgedit-judge=fakes:Deadly", "--imgedit-limit=2").assert_outcomes(
        passed=9, failed=1
    )
    assert bench.error_kinds == {"causal-0001": "worker_died"}


@pytest.mark.full
def test_place_that_loses_a_process_to_every_pair_blames_the_pairs(bench):
    result = bench.run_with_workers(*CONSTANT, "--imgedit-editor=fakes:Dies")
    result.assert_outcomes(failed=10)
    assert set(bench.error_kinds.values()) == {"worker_died"}


@pytest.mark.parametrize("moment", ["starting", "loading", "busy"])
@pytest.mark.full_for("starting", "loading")
def test_worker_killed_at_any_moment_costs_nothing(bench, moment):
    process = bench.start(
        *CONSTANT, "--imgedit-editor=fakes:Slow", "--imgedit-set=editor.delay=0.3"
    )
    if moment == "starting":
        bench.wait_for(lambda: bool(workers_of(bench, process)))
    else:
        bench.wait_for(
            lambda: (
                bench.log_says("edit-0 (CPU): loading")
                and (moment == "loading" or bench.stored_edits())
            )
        )
    os.kill(workers_of(bench, process)[0].pid, signal.SIGKILL)
    output = bench.finish(process)
    assert process.returncode == 0, output
    assert bench.error_kinds == {}


def workers_of(bench, process):
    """The worker processes themselves, not their supervisors."""
    return [
        child
        for child in bench.children(process)
        if "sys.stdin.readline" in " ".join(cmdline(child))[:4000]
        and "supervisor.py" not in " ".join(cmdline(child))
    ]


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.full
def test_leaking_worker_is_replaced_and_every_pair_is_edited(bench):
    result = bench.run_with_workers(
        "--imgedit-editor=fakes:Leaks", "--imgedit-judge=fakes:Constant", "--imgedit-limit=5"
    )
    result.assert_outcomes(passed=25)
    processes = [worker for worker in bench.results["workers"] if worker["stage"] == "edit"]
    assert 3 <= len(processes) <= 13
    assert "MemoryError" in (bench.runs[-1] / "run.log").read_text()


@pytest.mark.full
def test_edit_that_needs_too_much_memory_has_a_second_try_and_is_an_oom_error(bench):
    result = bench.run_with_workers(*CONSTANT, "--imgedit-editor=fakes:Greedy")
    result.assert_outcomes(passed=9, failed=1)
    assert bench.error_kinds == {"physics-0001": "oom"}
    attempts = [line.split() for line in (bench.path / "attempts").read_text().splitlines()]
    processes = [pid for name, pid in attempts if name == "physics-0001"]
    assert len(set(processes)) == 2  # once more in a fresh process
    assert (
        9 <= sum(name != "physics-0001" for name, _ in attempts) <= 11
    )  # what came next may have begun, and lost


def test_judge_out_of_memory_halves_its_batches_and_records_their_size(bench):
    bench.run("--imgedit-judge=fakes:Greedy", "--imgedit-limit=2").assert_outcomes(passed=10)
    sizes = [
        seed["verdict"]["batch_size"] for item in bench.results["items"] for seed in item["seeds"]
    ]
    assert max(sizes) == 2
    bench.run("--imgedit-judge=fakes:Greedy", "--imgedit-set=judge.most=1", "--imgedit-limit=2")
    assert {
        s["verdict"]["batch_size"] for item in bench.results["items"] for s in item["seeds"]
    } == {1}


def test_judge_out_of_memory_with_a_single_question_is_an_oom_error(bench):
    result = bench.run(
        "--imgedit-judge=fakes:Greedy", "--imgedit-set=judge.most=0", "--imgedit-limit=1"
    )
    result.assert_outcomes(failed=5)
    assert set(bench.error_kinds.values()) == {"oom"}


def test_worker_whose_child_holds_its_pipes_is_missed_all_the_same(bench, left):
    (bench.path / "forks.py").write_text(
        "import os, time\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid(); time.sleep(60); open('let go', 'w'); os._exit(0)\n"
        "        os._exit(3)\n"
    )
    bench.run_with_workers(*CONSTANT, "--imgedit-editor=forks:Editor", "-kphysics-0000")
    assert not (bench.path / "let go").exists()
    assert bench.error_kinds == {"physics-0000": "worker_died"}
    assert "died (exit status 3)" in bench.items["physics-0000"]["error"]["message"]


@pytest.mark.full
def test_interpreter_that_never_answers_is_ended_and_refused(bench):
    (bench.path / "python").write_text("#!/bin/sh\nexec sleep 600\n")
    (bench.path / "python").chmod(0o755)
    result = bench.run_with_workers(
        "--imgedit-set=workers.editor_python=./python",
        "--imgedit-set=workers.load_timeout=0.5",
        "--imgedit-limit=1",
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *edit-0*0.5 s (workers.load_timeout)*"])


def test_interpreter_that_talks_before_python_does_is_refused(bench):
    (bench.path / "python").write_text(
        f"#!/bin/sh\necho Activating environment\nexec {sys.executable} $@\n"
    )
    (bench.path / "python").chmod(0o755)
    result = bench.run_with_workers(
        "--imgedit-set=workers.editor_python=./python", "--imgedit-limit=1"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: edit-0: *does not start as a worker: it does not answer as Python does"]
    )


@pytest.mark.full
def test_worker_that_does_not_come_back_holds_up_no_other(bench):
    (bench.path / "python").write_text(
        f'#!/bin/sh\nif [ -e died ]; then sleep 600; touch waited; fi\nexec {sys.executable} "$@"\n'
    )
    (bench.path / "python").chmod(0o755)
    (bench.path / "dies.py").write_text(
        "import os, time\n"
        "from PIL import ImageOps\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        if request.pair_id == 'physics-0000' and not os.path.exists('died'):\n"
        "            open('died', 'w').close(); os._exit(3)\n"
        "        time.sleep(0.2)\n"
        "        return ImageOps.invert(request.source)\n"
    )
    bench.run_with_workers(
        *("--imgedit-editor=dies:Editor", "--imgedit-judge=fakes:Constant", "--imgedit-limit=4"),
        *("--imgedit-set=workers.editor_python=./python", "--imgedit-set=workers.cpu_workers=2"),
    ).assert_outcomes(passed=20)
    assert not (bench.path / "waited").exists()  # a start may take an hour


@pytest.mark.full
def test_stopped_worker_does_not_stop_the_run(bench):
    image = Image.effect_noise((700, 700), 90)  # larger than a pipe holds
    image.save(bench.path / "a.png")
    rows = [
        {"id": f"physics-{n:04d}", "category": "physics", "instruction": "x", "image": "a.png"}
        for n in range(4)
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    (bench.path / "stops.py").write_text(
        "import os, queue, signal\n"
        "from PIL import ImageOps\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        if request.pair_id == 'physics-0001' and not os.path.exists('stopped'):\n"
        "            open('stopped', 'w').close()\n"
        "            get = queue.Queue.get\n"
        "            def "
        "stop(self):\n"  # as it waits for its next job, which does not fit into the pipe then
        "                queue.Queue.get = get\n"
        "                os.kill(os.getpid(), signal.SIGSTOP)\n"
        "                return get(self)\n"
        "            queue.Queue.get = stop\n"
        "        return ImageOps.invert(request.source.convert('RGB'))\n"
    )
    result = bench.run_with_workers(
        *(
            "--imgedit-suite=pairs.json",
            "--imgedit-editor=stops:Editor",
            "--imgedit-judge=fakes:Constant",
        ),
        "--imgedit-set=workers.edit_timeout=2",
    )
    result.assert_outcomes(passed=4)


@pytest.mark.parametrize(
    "error",
    [
        *("KeyboardInterrupt", "SystemExit(3)", "GeneratorExit", "asyncio.CancelledError"),
        *(
            "RuntimeError('caf\\\\udce9.png')",
            "RuntimeError('x' * 10**7)",
            "Mute()",
            "sys.stderr.close() or Mute()",
        ),
    ],
)
@pytest.mark.everyday_for("KeyboardInterrupt", "SystemExit(3)", "RuntimeError('x' * 10**7)")
def test_whatever_an_editor_raises_is_the_error_of_its_pair(bench, error):
    (bench.path / "raises.py").write_text(
        "import asyncio, sys\n"
        "class Mute(Exception):\n"
        "    def __str__(self): raise ValueError\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        f"    def edit(self, request): raise {error}\n"
    )
    result = bench.run_with_workers(*CONSTANT, "--imgedit-editor=raises:Editor", "-kphysics")
    result.assert_outcomes(failed=2)
    assert set(bench.error_kinds.values()) == {"exception"}
    assert all(len(item["error"]["message"]) < 1100 for item in bench.results["items"])
    assert "Traceback" not in result.stderr.str()


@pytest.mark.parametrize("size", ["0", "-1", "'many'", "None"])
def test_judge_without_a_batch_size_is_refused(bench, size):
    (bench.path / "sizes.py").write_text(
        f"class Judge:\n    batch_size = {size}\n    def __init__(self, *, device): pass\n"
        "    def answer(self, questions): return []\n"
    )
    result = bench.run("--imgedit-judge=sizes:Judge", "--imgedit-limit=1")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: Judge.batch_size is *, expected a count of at least 1"])
