"""What is finished is kept: second runs, changed settings, and the stages by themselves."""

from __future__ import annotations

import pytest

SLOW = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=4")


def scores(bench):
    return {item["id"]: item["score"] for item in bench.results["items"]}


def test_second_run_does_nothing_again(bench):
    bench.run("--imgedit-editor=noise", "--imgedit-limit=2")
    first = scores(bench)
    bench.run("--imgedit-editor=noise", "--imgedit-limit=2")
    timing = bench.timing
    assert (timing["edits"], timing["verdicts"], timing["swaps"]) == (0, 0, 0)
    assert (timing["edits_cached"], timing["verdicts_cached"]) == (10, 10)
    assert bench.results["workers"] == []
    assert scores(bench) == first


def test_fresh_does_everything_again(bench):
    for _ in range(2):
        bench.run("--imgedit-limit=1", "--imgedit-fresh")
    assert (bench.timing["edits"], bench.timing["verdicts"]) == (5, 5)


@pytest.mark.parametrize(
    ("changed", "edits", "verdicts"),
    [
        pytest.param(["--imgedit-set=editor.delay=0.01"], 5, 0, id="editor-parameter"),
        pytest.param(["--imgedit-set=judge.score=6.0"], 0, 5, id="judge-parameter"),
        pytest.param(["--imgedit-set=judge.protocol=seeds"], 0, 5, id="protocol"),
        pytest.param(["--imgedit-set=suite.language=zh"], 5, 5, id="instruction"),
    ],
)
@pytest.mark.everyday_for("editor-parameter", "instruction")
def test_only_what_a_change_touches_is_done_again(bench, changed, edits, verdicts):
    base = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1")
    bench.run(*base)
    bench.run(*base, *changed)
    assert (bench.timing["edits"], bench.timing["verdicts"]) == (edits, verdicts)


@pytest.mark.full
def test_interrupted_run_still_shows_the_verdicts_of_earlier_runs(bench):
    bench.run(*SLOW, "-k", "physics")
    process = bench.start(*SLOW, "--imgedit-set=workers.cpu_workers=1")
    bench.wait_for(lambda: bench.stored_edits() >= 6)
    bench.interrupt(process)
    bench.finish(process)
    assert bench.results["categories"]["physics"]["scored"] == 4


def test_several_workers_share_the_jobs(bench):
    (bench.path / "together.py").write_text(
        "import threading\n"
        "ALL = threading.Barrier(3, timeout=60)\n"
        "class Editor:\n"
        "    def __init__(self, *, device): self.has_begun = False\n"
        "    def edit(self, request):\n"
        "        if not self.has_begun:\n"
        "            self.has_begun = True\n"
        "            ALL.wait()  # until each of three workers has a job\n"
        "        return request.source\n"
    )
    together = ("--imgedit-editor=together:Editor", "--imgedit-judge=fakes:Constant")
    bench.run(*together, "--imgedit-limit=4", "--imgedit-set=workers.cpu_workers=3")
    done = {
        worker["name"]: worker["jobs"]
        for worker in bench.results["workers"]
        if worker["stage"] == "edit"
    }
    assert set(done) == {"edit-0", "edit-1", "edit-2"}
    assert sum(done.values()) == 20
    assert min(done.values()) >= 1


def test_stages_run_by_themselves(bench):
    base = ("--imgedit-editor=noise", "--imgedit-limit=1")
    result = bench.run(*base, "--imgedit-stage=report")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: --imgedit-stage=report: * has no edit of these pairs by this editor, *"]
    )

    assert bench.run(*base, "--imgedit-stage=edit").ret == 0
    assert {item["status"] for item in bench.results["items"]} == {"edited"}

    bench.run(*base, "--imgedit-stage=report")
    assert {item["error"]["kind"] for item in bench.results["items"]} == {"not_scored"}

    assert bench.run(*base, "--imgedit-stage=score").ret == 0
    assert {worker["stage"] for worker in bench.results["workers"]} == {"score"}

    assert bench.run(*base, "--imgedit-stage=report").ret == 0
    assert bench.results["workers"] == []
    assert {item["status"] for item in bench.results["items"]} == {"scored"}


@pytest.mark.full
def test_a_verdict_is_the_same_alone_in_a_batch_and_after_a_resume(bench):
    """What is judged beside an edit decides nothing: not a bit of its expected grades."""
    scored = ("--imgedit-editor=oracle", "--imgedit-judge=scenes", "--imgedit-limit=2")
    options = (*scored, "--imgedit-set=judge.scoring=expected")

    def verdicts(out):
        items = bench.document_of(out)["items"]
        found = {item["id"]: item["seeds"][0]["verdict"] for item in items}
        return {
            name: (verdict["replies"]["aspects"], verdict["aspects"], verdict["score"])
            for name, verdict in found.items()
        }

    bench.run(*options, "--imgedit-out=whole")
    for part in ("physics-0001", "social", "causal"):
        bench.run(*options, "--imgedit-out=parts", "-k", part)
    runs = sorted(
        (bench.path / "parts" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns
    )
    bench.run(*options, "--imgedit-out=parts", "--imgedit-set=judge.batch_size=3")
    for run in runs:
        (run / "results.json").unlink()
    assert verdicts("parts") == verdicts("whole")
