"""Tests of a user's own that call the run's workers: each model is loaded once a session, with and
without xdist.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_imgedit.run import pools, run
from pytest_imgedit.run.placement import Placement

COUNTED = """
import os, pathlib
from pytest_imgedit import Answer

class Loaded:
    def __init__(self, *, device):
        with open({path!r}, "a") as log:
            log.write(type(self).__name__ + "\\n")

class Editor(Loaded):
    def edit(self, request):
        return request.source.rotate(180)

    def edit_batch(self, requests):
        with open({path!r}, "a") as log:
            log.write(f"batch of {{len(requests)}}\\n")
        return [self.edit(request) for request in requests]

class Judge(Loaded):
    batch_size = 4

    def answer(self, questions):
        return [Answer(score=len(question.instruction) % 10) for question in questions]
"""
OWN = """
import pytest
from PIL import Image

SOURCES = [Image.new("RGB", (40, 30), (shade, 0, 0)) for shade in range(6)]

@pytest.mark.parametrize("n", range(3))
def test_edits(edit_workers, n):
    edits = edit_workers.edit_batch([(source, f"turn {n}") for source in SOURCES])
    assert [edit.getpixel((0, 0)) for edit in edits] == [(shade, 0, 0) for shade in range(6)]

@pytest.mark.parametrize("n", range(3))
def test_scores(reward_model, n):
    words = ["x" * (n + length) for length in range(6)]
    verdicts = reward_model.score_batch([(source, source, word) for source, word in zip(SOURCES, words)])
    assert [verdict.score for verdict in verdicts] == [len(word) % 10 for word in words]
    assert reward_model.score(SOURCES[0], SOURCES[1], "four").score == 4
"""
MODELS = ("--imgedit-editor=counted:Editor", "--imgedit-judge=counted:Judge", "--imgedit-limit=1")
MODELS = (*MODELS, "--imgedit-set=editor.batch_size=8")


def place(monkeypatch, mode):
    """Have the models of all runs and calls stay together, or not."""
    for module in (run, pools):
        monkeypatch.setattr(module, "place", lambda *given: Placement(mode))


@pytest.fixture
def called(bench):
    log = bench.path / "loads"
    log.touch()
    (bench.path / "counted.py").write_text(COUNTED.format(path=str(log)))
    (bench.path / "test_own.py").write_text(OWN)
    bench.lines = lambda: log.read_text().split("\n")
    return bench


@pytest.mark.parametrize("xdist", [(), ("-n", "2")])
@pytest.mark.parametrize("together", ["", "resident"])
@pytest.mark.everyday_for("-xdist0")
def test_each_model_is_loaded_once_a_session(called, monkeypatch, xdist, together):
    if together:
        place(monkeypatch, "resident")
    called.run(*MODELS, *xdist).assert_outcomes(passed=5 + 6)
    assert (called.lines().count("Editor"), called.lines().count("Judge")) == (1, 1)
    assert called.timing["swaps"] == 0
    assert "batch of 6" in called.lines()


@pytest.mark.parametrize("xdist", [(), pytest.param(("-n", "2"), marks=pytest.mark.full)])
@pytest.mark.full_for("xdist0")
def test_calls_without_a_run_start_workers_of_their_own(called, xdist):
    called.run_subprocess(*MODELS, *xdist, "test_own.py").assert_outcomes(passed=6)
    assert (called.lines().count("Editor"), called.lines().count("Judge")) == (1, 1)
    assert not (called.path / ".imgedit" / "runs").exists()


def test_where_both_do_not_fit_the_one_that_is_called_takes_the_place_of_the_other(
    called, monkeypatch
):
    place(monkeypatch, "swap")
    called.run(*MODELS, "--deselect=test_own.py::test_scores").assert_outcomes(
        passed=5 + 3, deselected=3
    )
    assert (called.lines().count("Editor"), called.lines().count("Judge")) == (2, 1)
    assert called.timing["swaps"] == 1


@pytest.mark.parametrize("xdist", [(), pytest.param(("-n", "1"), marks=pytest.mark.full)])
@pytest.mark.full_for("xdist0")
def test_workers_that_were_kept_and_never_called_end_with_the_session(called, xdist):
    (called.path / "test_a.py").write_text("def test_fails(edit_result): raise ValueError\n")
    result = called.run_subprocess(*MODELS, "-x", *xdist)
    assert result.ret == (2 if xdist else 1)  # pytest-xdist stops so
    assert "INTERNALERROR" not in result.stdout.str()
    assert not [line for line in result.errlines if line.startswith("Traceback")], result.errlines
    called.run_subprocess(*MODELS).assert_outcomes(passed=11, failed=5)  # nothing holds the store


def test_a_run_that_ends_early_loads_each_model_once_too(called):
    until = (
        "--imgedit-until=decided",
        "--imgedit-fail-under=overall:0",
        "--imgedit-set=judge.controls=false",
    )
    called.run(*MODELS, *until)
    assert (called.lines().count("Editor"), called.lines().count("Judge")) == (1, 1)


def test_a_run_that_only_edits_has_no_judge_to_call(called):
    result = called.run(*MODELS, "--imgedit-stage=edit", "test_own.py")
    result.assert_outcomes(passed=3, errors=3)
    result.stdout.fnmatch_lines(["*reward_model: --imgedit-stage=edit starts no judge*"])


@pytest.mark.full
def test_without_calls_the_workers_of_a_run_end_with_it(called):
    (called.path / "test_own.py").write_text(
        "import psutil\ndef test_own(imgedit_run):\n    assert not "
        "psutil.Process().children(recursive=True)\n"
    )
    called.run_subprocess(*MODELS).assert_outcomes(passed=5 + 1)


@pytest.mark.full
def test_a_failed_call_says_why_under_xdist_too(called):
    (called.path / "counted.py").write_text(
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request): raise ValueError('no such luck')\n"
    )
    (called.path / "test_own.py").write_text(
        "import pytest\n"
        "from PIL import Image\n"
        "from pytest_imgedit import EditFailed\n"
        "def test_own(edit_workers):\n"
        "    for side in (16, 24):\n"
        "        with pytest.raises(EditFailed, match='ValueError: no such luck'):\n"
        "            edit_workers.edit(Image.new('RGB', (side, side)), 'x')\n"
    )
    for xdist in ((), ("-n", "1")):
        called.run("--imgedit-editor=counted:Editor", "test_own.py", *xdist).assert_outcomes(
            passed=1
        )


@pytest.mark.parametrize("xdist", [(), pytest.param(("-n", "1"), marks=pytest.mark.full)])
def test_a_fixture_that_a_test_asks_for_as_it_runs_is_there(called, xdist):
    (called.path / "test_own.py").write_text(
        "from PIL import Image\n"
        "def test_own(request):\n"
        "    workers = request.getfixturevalue('edit_workers')\n"
        "    assert workers.edit(Image.new('RGB', (8, 8)), 'x').size == (8, 8)\n"
    )
    called.run(*MODELS, *xdist, "test_own.py").assert_outcomes(passed=1)
    called.run(*MODELS, *xdist).assert_outcomes(passed=6)


SLOW = """
import time

class Slow:
    def __init__(self, *, device): pass

    def edit(self, request):
        if request.instruction == "slow":
            time.sleep(1)
        return request.source.rotate(180)
"""
INTERRUPTED = """
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

class Late(Exception): pass

def late(*_):
    raise Late

def test_interrupted(edit_workers):
    edit_workers.edit(Image.new("RGB", (64, 64)), "warm up")
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(Late):
        edit_workers.edit(Image.new("RGB", (64, 64)), "slow")

def test_next(edit_workers):
    assert edit_workers.edit(Image.new("RGB", (96, 64)), "another").size == (96, 64)

def test_threads(edit_workers):
    sizes = [(8 + n, 8) for n in range(24)]
    with ThreadPoolExecutor(8) as threads:
        edits = threads.map(lambda size: edit_workers.edit(Image.new("RGB", size), "turn"), sizes)
        assert [edit.size for edit in edits] == sizes
"""


@pytest.mark.parametrize("xdist", [(), ("-n", "1"), ("-n", "3")])
@pytest.mark.full
def test_an_interrupted_call_and_calls_of_threads_get_their_own_answers(bench, xdist):
    (bench.path / "slow.py").write_text(SLOW)
    (bench.path / "test_own.py").write_text(INTERRUPTED)
    options = ("--imgedit-editor=slow:Slow", "--imgedit-judge=reference", "test_own.py", *xdist)
    bench.run_subprocess(*options).assert_outcomes(passed=3)


@pytest.mark.full
def test_runs_of_two_base_seeds_draw_apart(bench):
    noise = ("--imgedit-editor=noise", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1")
    blobs = []
    for seed in (0, 7, 7):
        bench.run_subprocess(
            *noise, f"--imgedit-set=editor.seed={seed}", "--imgedit-fresh"
        ).assert_outcomes(passed=5)
        blobs.append([item["seeds"][0]["edit"]["blob"] for item in bench.items.values()])
        assert bench.results["run"]["options"]["editor"]["seed"] == seed
    assert blobs[1] == blobs[2]
    assert not set(blobs[0]) & set(blobs[1])


def test_models_of_a_config_can_be_called_outside_of_pytest(called):
    script = (
        "from PIL import Image\n"
        "from pytest_imgedit import open_models\n"
        "photo = Image.new('RGB', (40, 30), 'red')\n"
        "with open_models(editor={'spec': 'counted:Editor'}, judge={'spec': 'counted:Judge'}) as "
        "models:\n"
        "    edited = models.edit_workers.edit(photo, 'turn it')\n"
        "    print(models.reward_model.score(photo, edited, 'turn it').score, edited.size)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=called.path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["7.0 (40, 30)"]
    assert (called.lines().count("Editor"), called.lines().count("Judge")) == (1, 1)
