"""A run that is killed anywhere, and run again, ends as one that was never killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

KILLER = Path(__file__).parent.parent / "support" / "killer.py"
# One edit or question at a time, so that the batches of a resumed run are those of an uninterrupted
# one.
RUN = (
    "--imgedit-editor=noise",
    "--imgedit-judge=fakes:Reader",
    "--imgedit-set=judge.batch_size=1",
    "--imgedit-limit=2",
    "-kphysics or social",
)
# With four pairs: four sources and four references are kept first, then four edits.
POINTS = [
    pytest.param("mkdir runs 1", id="run-folder"),
    pytest.param("open run.log 1", id="log"),
    pytest.param("open blobs/.partial 1", id="first-source-opened"),
    pytest.param("rename .png 3", id="source-written"),
    pytest.param("before edit 1", id="before-edit-stage"),
    pytest.param("open blobs/.partial 10", id="edited-image-opened"),
    pytest.param("rename .png 10", id="edited-image-written"),
    pytest.param("write edits.jsonl 1", id="first-edit-record"),
    pytest.param("write edits.jsonl 3", id="edit-record"),
    pytest.param("half edits.jsonl 3", id="edit-record-half-written"),
    pytest.param("sync edits.jsonl 3", id="edit-record-written"),
    pytest.param("synced edits.jsonl 4", id="last-edit-record-synced"),
    pytest.param("after edit 1", id="after-edit-stage"),
    pytest.param("before score 1", id="before-score-stage"),
    pytest.param("write verdicts.jsonl 1", id="first-verdict-record"),
    pytest.param("half verdicts.jsonl 2", id="verdict-record-half-written"),
    pytest.param("sync verdicts.jsonl 3", id="verdict-record-written"),
    pytest.param("synced verdicts.jsonl 4", id="last-verdict-record-synced"),
    pytest.param("after score 1", id="after-score-stage"),
    pytest.param("open .results.json.partial 1", id="results-opened"),
    pytest.param("rename results.json 1", id="results-written"),
    pytest.param("rename report.md 1", id="markdown-written"),
    pytest.param("rename report.html 1", id="html-written"),
]


#: A further judge, one question at a time, and two metrics, each with all edits in one batch.
FURTHER = (
    "--imgedit-judge=fakes:Constant",
    "--imgedit-set=judges.Constant.batch_size=1",
    "--imgedit-metric=psnr",
    "--imgedit-metric=ssim",
)
FURTHER_POINTS = [
    pytest.param("half verdicts.jsonl 6", id="verdict-of-a-further-judge-half-written"),
    pytest.param("sync verdicts.jsonl 8", id="last-verdict-of-a-further-judge-written"),
    pytest.param("write verdicts.jsonl 9", id="values-of-a-metric"),
    pytest.param("synced verdicts.jsonl 9", id="values-of-a-metric-synced"),
    pytest.param("write verdicts.jsonl 10", id="values-of-another-metric"),
    pytest.param("rename results.json 1", id="results-written"),
]


def timeless(document):
    """The results document without what differs between any two runs: its id, times, and who did
    how much when.
    """
    document = json.loads(json.dumps(document))
    for name in ("id", "started", "finished"):
        del document["run"][name]
    del document["timing"], document["workers"]
    for item in document["items"]:
        for seed in item["seeds"]:
            del seed["edit"]["seconds"]
    return document


@pytest.fixture(scope="module")
def uninterrupted():
    """What the first tests of this module found for runs that nobody killed, by their arguments."""
    return {}


def run_killed(bench, monkeypatch, point, uninterrupted, *arguments):
    """Run until `point`, and return what an uninterrupted run finds."""
    if arguments not in uninterrupted:
        bench.run_subprocess(*arguments, "--imgedit-out=other").assert_outcomes(passed=4)
        uninterrupted[arguments] = timeless(bench.document_of("other"))
    (bench.path / "conftest.py").write_text(KILLER.read_text())
    monkeypatch.setenv("KILL_AT", point)
    assert bench.run_subprocess(*arguments).ret == -signal.SIGKILL
    (bench.path / "conftest.py").unlink()
    return uninterrupted[arguments]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.everyday_for("edited-image-written")
def test_resumed_run_equals_an_uninterrupted_one(bench, monkeypatch, uninterrupted, point):
    whole = run_killed(bench, monkeypatch, point, uninterrupted, *RUN)
    edits, verdicts = (bench.records(name) for name in ("edits", "verdicts"))
    bench.run_subprocess(*RUN).assert_outcomes(passed=4)
    assert timeless(bench.results) == whole
    assert (bench.timing["edits_cached"], bench.timing["edits"]) == (edits, 4 - edits)
    assert (bench.timing["verdicts_cached"], bench.timing["verdicts"]) == (verdicts, 4 - verdicts)
    assert not list((bench.path / ".imgedit" / "blobs").glob("**/.*"))


@pytest.mark.parametrize("point", FURTHER_POINTS)
@pytest.mark.full
def test_resumed_run_asks_further_judges_and_metrics_for_what_is_missing(
    bench, monkeypatch, uninterrupted, point
):
    whole = run_killed(bench, monkeypatch, point, uninterrupted, *RUN, *FURTHER)
    kept = bench.records("verdicts")
    bench.run_subprocess(*RUN, *FURTHER).assert_outcomes(passed=4)
    assert timeless(bench.results) == whole
    workers = [worker for worker in bench.results["workers"] if worker["stage"] == "score"]
    unfinished = ["Constant", "psnr", "ssim"][kept // 4 - 1 :]  # the judge's four came first
    assert [worker["further"] for worker in workers] == unfinished
    assert sum(worker["jobs"] for worker in workers) == 16 - kept
    assert bench.records("verdicts") == 16
