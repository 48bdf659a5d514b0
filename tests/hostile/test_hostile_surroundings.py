"""Odd folders, environments, plugins and models: each costs one pair, or one line, and never the
run.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
from PIL import Image

FAST = ("--imgedit-editor=noise", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1")

ODD = """
import os, sys, time
from PIL import ImageOps
from pytest_imgedit import Answer

class Mute(RuntimeError):
    def __str__(self): raise ValueError
class Exits(Exception):
    def __str__(self): raise SystemExit(0)

def clock(value):
    time.monotonic = time.perf_counter = value

HOW = {
    "mute": lambda: throw(Mute()), "exits": lambda: throw(Exits()),
    "clock-text": lambda: clock(lambda: "noon"), "clock-nan": lambda: clock(lambda: float("nan")),
    "clock-back": lambda: clock(lambda: -1e9),
}
def throw(error): raise error

class Editor:
    def __init__(self, *, device, how, at="edit"):
        self.how, self.at = how, at
        if at == "load": HOW[how]()
    def edit(self, request):
        if request.pair_id == "physics-0000": HOW[self.how]()
        return ImageOps.invert(request.source)

class Named:
    compiled, processor_name = "reduce-overhead", 3
    def __init__(self, *, device): pass
    def edit(self, request): return ImageOps.invert(request.source)
    def answer(self, questions): return [Answer(score=5.0) for _ in questions]

class Judge:
    batch_size = 3
    def __init__(self, *, device, what): self.what = what
    def answer(self, questions):
        n, i = float("nan"), float("inf")
        grades = {"instruction": 5, "preservation": 5, "realism": 5}
        text = "".join(f"{name}: 5\\n" for name in grades)
        odd = {
            "int": 5, "none": None, "nan": Answer(score=n), "infinite": Answer(score=i),
            "huge-aspect": Answer(score=5.0, aspects={"a": 1.7e308}),
            "expected": Answer(text, expected={**grades, "realism": n}), "tokens": Answer(score=5.0, tokens_in=i),
        }
        return [odd[self.what] if q.pair_id == "physics-0000" else Answer(score=5.0) for q in questions]

class Unloadable:
    def __init__(self, *, device, how):
        if how == "exits": os._exit(3)
        raise RuntimeError("no such weights")
    def answer(self, questions): ...  # which is never reached

class Whole:
    def __init__(self, *, device): pass
    def answer(self, questions): return 5
"""


@pytest.fixture
def odd(bench):
    (bench.path / "odd.py").write_text(ODD)


def check(result, *codes: int) -> None:
    printed = result.outlines + result.errlines
    assert not [
        line for line in printed if "INTERNALERROR" in line or line.startswith("Traceback")
    ], printed[-10:]
    assert int(result.ret) in codes, printed[-10:]


@pytest.mark.parametrize("how", ["mute", "exits"])
@pytest.mark.everyday_for("mute")
def test_error_that_cannot_say_what_it_is_costs_one_pair(bench, odd, how):
    result = bench.run_with_workers(
        "--imgedit-editor=odd:Editor", f"--imgedit-set=editor.how='{how}'", *FAST[1:]
    )
    check(result, 1)
    result.assert_outcomes(passed=4, failed=1)
    assert bench.error_kinds == {"physics-0000": "exception"}
    assert how in bench.items["physics-0000"]["error"]["message"].lower()
    assert len([worker for worker in bench.results["workers"] if worker["stage"] == "edit"]) == 1


@pytest.mark.parametrize("how", ["mute", "exits"])
@pytest.mark.everyday_for("mute")
def test_error_that_cannot_say_what_it_is_is_named_at_load(bench, odd, how):
    options = (f"--imgedit-set=editor.how='{how}'", "--imgedit-set=editor.at='load'", *FAST[1:])
    check(bench.run_with_workers("--imgedit-editor=odd:Editor", *options), 1, 4)
    assert set(bench.error_kinds.values()) == {"no_worker"}
    assert f"could not load: {how.capitalize()}" in bench.items["physics-0000"]["error"]["message"]


@pytest.mark.parametrize(
    ("how", "said"), [("raises", "no such weights"), ("exits", "died (exit status 3)")]
)
@pytest.mark.everyday_for("raises-no such weights")
def test_judge_that_cannot_load_is_the_error_of_every_verdict(bench, odd, how, said):
    check(
        bench.run_with_workers(
            "--imgedit-judge=odd:Unloadable", f"--imgedit-set=judge.how='{how}'", FAST[0], FAST[2]
        ),
        1,
    )
    assert set(bench.error_kinds.values()) == {"no_worker"}
    assert len(bench.error_kinds) == 5
    assert said in bench.items["physics-0000"]["error"]["message"]
    assert bench.records("edits") == 5


@pytest.mark.parametrize("how", ["clock-text", "clock-nan", "clock-back"])
@pytest.mark.everyday_for("clock-nan")
def test_editor_that_breaks_its_clock_costs_no_edit(bench, odd, how):
    result = bench.run_with_workers(
        "--imgedit-editor=odd:Editor", f"--imgedit-set=editor.how='{how}'", *FAST[1:]
    )
    check(result, 0)
    result.assert_outcomes(passed=5)
    for item in bench.results["items"]:
        assert 0 <= item["seeds"][0]["edit"]["seconds"] < math.inf
    for worker in bench.results["workers"]:
        assert 0 <= worker["busy_s"] < 60


def test_attributes_that_mean_something_else_in_an_own_class_do_no_harm(bench, odd):
    check(
        bench.run_with_workers(
            "--imgedit-editor=odd:Named", "--imgedit-judge=odd:Named", "--imgedit-limit=1"
        ),
        0,
    )
    assert [one["compiled"] for one in bench.results["environments"].values()] == [None]


@pytest.mark.parametrize(
    "what", ["int", "none", "nan", "infinite", "huge-aspect", "expected", "tokens"]
)
@pytest.mark.everyday_for("none", "nan")
def test_odd_answer_of_an_own_judge_costs_one_pair(bench, odd, what):
    judge = ("--imgedit-judge=odd:Judge", f"--imgedit-set=judge.what='{what}'", "--imgedit-seeds=2")
    check(
        bench.run_with_workers(
            "--imgedit-editor=noise", *judge, "--imgedit-limit=1", "-k", "physics or social"
        ),
        0,
        1,
    )
    error = bench.items["physics-0000"]["error"]
    assert bench.items["social-0000"]["score"] == 5.0
    if what in ("int", "none"):
        assert "expected an Answer" in error["message"]
    if error is not None:
        assert "has no attribute" not in error["message"]


def test_judge_that_answers_with_no_list_says_what_was_expected(bench, odd):
    check(
        bench.run_with_workers(
            "--imgedit-editor=noise", "--imgedit-judge=odd:Whole", "--imgedit-limit=1"
        ),
        1,
    )
    assert "expected a list of answers" in bench.items["physics-0000"]["error"]["message"].replace(
        "Answers", "answers"
    )


@pytest.mark.parametrize("arguments", [(), ("-n1",)], ids=["plain", "xdist"])
def test_folder_whose_name_is_not_utf8(bench, arguments):
    folder = bench.path / "caf\udce9"
    folder.mkdir()
    for path in [*bench.path.glob("*.py"), *bench.path.glob("*.toml"), bench.path / "pytest.ini"]:
        path.rename(folder / path.name)
    command = [sys.executable, "-m", "pytest", *FAST, *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
    told = (result.stdout + result.stderr).decode("utf-8", "replace")
    assert "INTERNALERROR" not in told
    assert "Traceback" not in told
    assert result.returncode == 0 or (
        result.returncode == 4 and b"\n" not in result.stderr.strip()
    ), told
    if not arguments:
        assert list((folder / ".imgedit").glob("runs/*/results.json"))


@pytest.mark.parametrize(
    ("option", "arguments"),
    [("suite", ()), ("html", ()), ("suite", ("-n1",)), ("out", ("-n1",))],
    ids=["suite", "html", "xdist-suite", "xdist-out"],
)
@pytest.mark.everyday_for("suite", "xdist-out")
def test_path_that_is_not_utf8(bench, option, arguments):
    Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
    row = {"id": "a", "category": "physics", "instruction": "x", "image": "a.png"}
    (bench.path / "s\udce9.json").write_text(json.dumps([row]))
    paths = {
        "suite": "s\udce9.json",
        "out": "o\udce9",
        "json": "j\udce9.json",
        "html": "h\udce9.html",
    }
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *FAST, f"--imgedit-{option}={paths[option]}", *arguments],
        cwd=bench.path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    told = (result.stdout + result.stderr).decode("utf-8", "replace")
    assert "INTERNALERROR" not in told
    assert "Traceback" not in told
    assert result.returncode == 0 or (
        result.returncode == 4 and b"\n" not in result.stderr.strip()
    ), told


def test_failing_pair_without_pytests_terminal(bench):
    fails = ("--imgedit-editor=fakes:Raises", "--imgedit-set=editor.on='physics-0000'", *FAST[1:])
    check(bench.run_with_workers("-p", "no:terminal", *fails), 1)
    assert bench.error_kinds == {"physics-0000": "exception"}


@pytest.mark.parametrize("spec", ["socket=127.0.0.1:9", "popen//via=x"])
def test_xdist_workers_that_cannot_be_are_refused(bench, spec):
    result = bench.run_with_workers("--dist=load", f"--tx={spec}", *FAST)
    check(result, 4)
    assert len([line for line in result.errlines if line.strip()]) == 1


@pytest.mark.full
def test_workers_start_without_a_path(bench):
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *FAST],
        cwd=bench.path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": ""},
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.full
def test_encoding_that_is_not_that_of_pipes_is_no_matter(bench):
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *FAST],
        cwd=bench.path,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-16"},
    )
    assert result.returncode == 0, (result.stdout + result.stderr).decode("utf-16", "replace")
