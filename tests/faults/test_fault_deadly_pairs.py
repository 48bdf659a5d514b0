"""Pairs that kill their worker end alone: a job that took two processes with it is to blame, and
not their place.
"""

from __future__ import annotations

from collections import Counter

import pytest

#: Ends its process on the pairs that are named, each time; as editor, and as judge of any batch
#: that holds one.
DEADLY = """
import os, signal, time
from PIL import ImageOps
from pytest_imgedit import Answer

class Model:
    batch_size = 4
    def __init__(self, *, device, pairs, how="kill"):
        self.pairs, self.how = pairs, how
    def edit(self, request):
        self.meet(request.pair_id)
        return ImageOps.invert(request.source)
    def answer(self, questions):
        for question in questions:
            self.meet(question.pair_id)
        return [Answer(score=5.0) for _ in questions]
    def meet(self, name):
        with open("attempts", "a") as file:
            file.write(name + "\\n")
        if name in self.pairs:
            print("the end of", name, flush=True)
            if self.how == "hang":
                time.sleep(600)
            os._exit(3) if self.how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
"""
FAST = ("--imgedit-editor=fakes:Slow", "--imgedit-set=editor.delay=0")
CONSTANT = "--imgedit-judge=fakes:Constant"
#: The 20 pairs of `--imgedit-limit=4` are done in this order.
NAMES = [
    f"{name}-{n:04d}"
    for name in ("physics", "environment", "social", "causal", "referential")
    for n in range(4)
]


@pytest.fixture
def deadly(bench):
    """Write the module with the deadly editor and judge."""
    (bench.path / "deadly.py").write_text(DEADLY)


@pytest.mark.parametrize(
    ("workers", "pairs", "how"),
    [
        pytest.param(1, NAMES[:3], "kill", id="one-worker-3-in-a-row"),
        pytest.param(
            1,
            [*NAMES[2:4], *NAMES[10:12]],
            "exit",
            id="one-worker-4-in-two-places",
            marks=pytest.mark.full,
        ),
        pytest.param(1, NAMES[15:], "kill", id="one-worker-5-last", marks=pytest.mark.full),
        pytest.param(3, NAMES[:9], "exit", id="three-workers-9-in-a-row", marks=pytest.mark.full),
        pytest.param(1, NAMES[2:5], "hang", id="one-worker-3-that-hang", marks=pytest.mark.full),
    ],
)
def test_editor_is_killed_by_exactly_the_deadly_pairs(bench, deadly, workers, pairs, how):
    result = bench.run_with_workers(
        *(
            "--imgedit-editor=deadly:Model",
            f"--imgedit-set=editor.pairs={pairs}",
            f"--imgedit-set=editor.how='{how}'",
        ),
        *(CONSTANT, "--imgedit-limit=4", f"--imgedit-set=workers.cpu_workers={workers}"),
        "--imgedit-set=workers.edit_timeout=2" if how == "hang" else "-q",
    )
    result.assert_outcomes(passed=20 - len(pairs), failed=len(pairs))
    assert bench.error_kinds == dict.fromkeys(pairs, "timeout" if how == "hang" else "worker_died")
    for name in pairs:
        assert f"its last words: the end of {name}" in bench.items[name]["error"]["message"]
    attempts = Counter((bench.path / "attempts").read_text().split())
    assert {attempts[name] for name in pairs} <= {
        2,
        3,
    }  # the job before it may be blamed once, if its reply was late
    assert max(attempts.values()) <= 3


@pytest.mark.full
def test_judge_is_killed_by_exactly_the_deadly_pairs(bench, deadly):
    pairs = [NAMES[n] for n in (0, 1, 2, 7, 12, 19)]
    result = bench.run_with_workers(
        *(
            *FAST,
            "--imgedit-judge=deadly:Model",
            f"--imgedit-set=judge.pairs={pairs}",
            "--imgedit-limit=4",
        )
    )
    result.assert_outcomes(passed=14, failed=6)
    assert bench.error_kinds == dict.fromkeys(pairs, "worker_died")


@pytest.mark.full
def test_every_pair_that_is_deadly_has_its_own_error(bench, deadly):
    names = NAMES[::4] + NAMES[1::4]
    bench.run_with_workers(
        *(
            "--imgedit-editor=deadly:Model",
            f"--imgedit-set=editor.pairs={names}",
            CONSTANT,
            "--imgedit-limit=2",
        ),
        "--imgedit-set=workers.cpu_workers=2",
    ).assert_outcomes(failed=10)
    assert bench.error_kinds == dict.fromkeys(names, "worker_died")


@pytest.mark.parametrize("moment", ["import", "load"])
@pytest.mark.everyday_for("load")
def test_editor_that_dies_before_any_job_is_given_up_after_three(bench, moment):
    (bench.path / "dies.py").write_text(
        "import os\n"
        "def die():\n"
        "    with open('starts', 'a') as file: file.write('x')\n"
        "    os._exit(3)\n"
        "class Editor:\n"
        "    def __init__(self, *, device): die()\n"
        "    def edit(self, request): ...\n" + ("die()\n" if moment == "import" else "")
    )
    result = bench.run_with_workers("--imgedit-editor=dies:Editor", CONSTANT, "--imgedit-limit=2")
    assert (bench.path / "starts").read_text() == "xxx"
    if moment == "import":
        assert result.ret == 4
        result.stderr.fnmatch_lines(
            ["ERROR: worker edit-0 (CPU) died (exit status 3) before it was ready*"]
        )
    else:
        result.assert_outcomes(failed=10)
        assert set(bench.error_kinds.values()) == {"no_worker"}


@pytest.mark.full
def test_editor_that_does_not_load_again_is_given_up_after_three(bench):
    (bench.path / "once.py").write_text(
        "import os\n"
        "from PIL import ImageOps\n"
        "class Editor:\n"
        "    def __init__(self, *, device):\n"
        "        with open('starts', 'a') as file: file.write('x')\n"
        "        if os.path.exists('died'): os._exit(3)\n"
        "    def edit(self, request):\n"
        "        if request.pair_id == 'social-0000':\n"
        "            open('died', 'w').close(); os._exit(4)\n"
        "        return ImageOps.invert(request.source)\n"
    )
    bench.run_with_workers("--imgedit-editor=once:Editor", CONSTANT, "--imgedit-limit=4")
    assert (
        bench.path / "starts"
    ).read_text() == "x" * 4  # one that worked, and three that did not come up
    # The edit before the deadly one may still have been on its way, and was to be done again.
    assert [bench.items[name]["status"] for name in NAMES[:7]] == ["scored"] * 7
    assert {bench.error_kinds[name] for name in NAMES[9:]} == {"no_worker"}
