"""How long a run takes one after the other and side by side, by hand and by a small simulation."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import replace

import pytest
from documents import a_run

from pytest_imgedit.run.durations import Durations, Pace, pace_of

EDITOR = Pace(job=10.0, start=4.0, load=16.0)
JUDGE = Pace(job=0.5, start=1.0, load=8.0, first=3.0, batch_size=8)
BOTH = Durations(editor=EDITOR, judge=JUDGE, edits=24)


def test_one_after_the_other_by_hand():
    # 20 to load, 6 rounds of 10, 8 to load and 3 for the first batch, 6 verdicts a GPU
    assert BOTH.one_after_the_other(4) == pytest.approx(20 + 60 + 8 + 3 + 3)
    # a seventh round for one edit, 7 verdicts on the GPU that has most
    assert replace(BOTH, edits=25).one_after_the_other(4) == pytest.approx(20 + 70 + 11 + 3.5)
    # groups of two GPUs for either model
    grouped = replace(BOTH, editor_gpus=2, judge_gpus=4)
    assert grouped.one_after_the_other(4) == pytest.approx(20 + 120 + 11 + 12)
    # trials after the edits, 10 a GPU
    assert replace(BOTH, later=40).one_after_the_other(4) == pytest.approx(94 + 5)
    # 3 calls of 8 edits
    padded = replace(BOTH, edits_a_call=8)
    assert padded.one_after_the_other(4) == pytest.approx(20 + 80 + 14)
    # a run that judges stored edits alone
    stored = replace(BOTH, editor=None, edits=0, waiting=40)
    assert stored.one_after_the_other(4) == pytest.approx(1 + 8 + 3 + 5)
    assert replace(stored, waiting=0).one_after_the_other(4) == 0


def test_side_by_side_by_hand():
    # 8 rounds of 10 on three GPUs; the last three edits are judged after them
    assert BOTH.side_by_side(4, 1) == pytest.approx(20 + 80 + 1.5)
    # two judges share the last two, which the two editors end together
    assert BOTH.side_by_side(4, 2) == pytest.approx(20 + 120 + 0.5)
    # a slow judge begins with the first round and goes on until the end: 21 of 24, then 3
    slow = replace(BOTH, judge=replace(JUDGE, job=9.0))
    assert slow.side_by_side(4, 1) == pytest.approx(20 + 10 + 3 + 24 * 9)
    # two of them keep up, and judge the last two after these are made
    assert slow.side_by_side(4, 2) == pytest.approx(20 + 120 + 9)
    # stored edits let it begin as soon as it has loaded
    waiting = replace(slow, waiting=10)
    assert waiting.side_by_side(4, 1) == pytest.approx(4 + 8 + 3 + 34 * 9)
    # a judge of two GPUs beside an editor of two
    grouped = replace(BOTH, editor_gpus=2, judge_gpus=2)
    assert grouped.side_by_side(4, 2) == pytest.approx(20 + 240 + 1)
    assert grouped.divisions(4) == [2]
    assert replace(grouped, editor_gpus=1).divisions(5) == [2, 4]
    # without edits to make, GPUs of its own are fewer GPUs
    stored = replace(BOTH, editor=None, edits=0, waiting=40)
    assert stored.side_by_side(4, 1) == pytest.approx(1 + 8 + 3 + 20)


def test_the_best_division():
    assert BOTH.best(4) == 0  # editing takes nearly all of the time
    slow = replace(BOTH, judge=replace(JUDGE, job=9.0, load=60.0))
    assert slow.best(4) == 2  # halves of the work, and nothing waits for a minute of loading
    assert replace(slow, edits=2000).best(4) == 0  # halves that differ by more than a minute
    assert replace(BOTH, edits=3).best(4) == 1  # the fourth GPU has no edit to make
    assert replace(BOTH, editor=None, edits=0, waiting=40).best(4) == 0
    assert BOTH.best(1) == 0


def simulated(durations: Durations, gpus: int, for_judge: int) -> float:
    """The seconds of a run whose workers take edits and batches as they are free.

    With GPUs for it alone, a judge takes a batch when a quarter of one has come, or the last edit;
    without, when all edits are made. A batch is no larger than a fair share.
    """
    editor, judge = durations.editor, durations.judge
    editors = (gpus - for_judge) // durations.editor_gpus
    judges = (for_judge or gpus) // durations.judge_gpus
    free = [editor.start + editor.load] * editors
    made = []
    for _ in range(durations.edits):
        at = heapq.heappop(free) + editor.job
        made.append(at)
        heapq.heappush(free, at)
    edited = max(made, default=0.0)
    start = max(editor.start, judge.start)
    coming = deque([0.0] * durations.waiting + sorted(made))
    loaded = start + judge.load
    if not for_judge:
        loaded = max(edited, start) + judge.load
    free = [(loaded, number, judge.first) for number in range(judges)]
    queue, ended = 0, []
    while coming or queue:
        now, number, first = heapq.heappop(free)
        while coming and coming[0] <= now:
            coming.popleft()
            queue += 1
        size = min(judge.batch_size, -(-queue // judges))
        if coming and queue < max(1, judge.batch_size // 4):
            heapq.heappush(free, (coming[0], number, first))
            continue
        if not queue:
            continue
        queue -= size
        ended.append(now + first + size * judge.job)
        heapq.heappush(free, (ended[-1], number, 0.0))
    return max([edited, *ended])


@pytest.mark.parametrize("edits", [30, 200])
@pytest.mark.parametrize("job", [0.1, 2.0, 12.0])
@pytest.mark.parametrize(("gpus", "for_judge"), [(2, 1), (4, 1), (4, 2), (8, 1), (8, 3)])
@pytest.mark.parametrize("waiting", [0, 40])
def test_estimates_are_those_of_workers_that_take_jobs_as_they_are_free(
    edits, job, gpus, for_judge, waiting
):
    judge = replace(JUDGE, job=job, batch_size=16)
    durations = replace(BOTH, judge=judge, edits=edits, waiting=waiting)
    swapped = simulated(durations, gpus, 0)
    assert durations.one_after_the_other(gpus) == pytest.approx(swapped, rel=0.02)
    beside = simulated(durations, gpus, for_judge)
    assert durations.side_by_side(gpus, for_judge) == pytest.approx(beside, rel=0.05)


def worker(stage, jobs, busy, **changes):
    return {
        "name": f"{stage}-0",
        "device": "GPU 0",
        "stage": stage,
        "jobs": jobs,
        "batch_size": 16 if stage == "score" else 1,
        "busy_s": busy,
        "load_s": 8.0,
        "ready_s": 12.0,
        "gpu_peak": None,
        "host_peak": None,
        **changes,
    }


def test_the_pace_of_an_editor_is_the_mean_of_its_workers():
    workers = [
        worker("edit", 3, 30.0),
        worker("edit", 1, 14.0, load_s=10.0, ready_s=18.0),
        worker("edit", 0, 0.0, load_s=90.0),
        worker("score", 4, 4.0),
    ]
    pace = pace_of("editor", a_run(workers=workers))
    assert pace == Pace(job=11.0, start=6.0, load=9.0, batch_size=1, run="r1")


def judged(**changes):
    """A run of one swap in which two workers judge 80 edits, a first batch of 16 each in 13 s and
    the others in half a second each.
    """
    timing = {"swaps": 1, "swap_s": 9.0, "first_verdict_s": 22.0, "verdicts": 80, **changes}
    workers = [worker("score", 40, 25.0), worker("score", 40, 25.0)]
    return a_run(timing=timing, workers=workers)


def test_a_run_of_one_swap_tells_what_the_first_batch_took():
    pace = pace_of("judge", judged())
    assert pace == Pace(job=0.5, start=4.0, load=8.0, first=5.0, batch_size=16, run="r1")


def test_the_first_batch_of_a_judge_of_many_is_small():
    workers = [worker("score", 80, 44.0, batch_size=64)]
    timing = {"swaps": 1, "swap_s": 9.0, "first_verdict_s": 21.0, "verdicts": 80}
    pace = pace_of("judge", a_run(timing=timing, workers=workers))
    # 12 s for the first 16, and 32 s for the 64 others
    assert (pace.job, pace.first, pace.batch_size) == (0.5, 12 - 16 * 0.5, 64)


def test_a_batch_size_that_was_set_counts_in_place_of_what_the_judge_can_take():
    made = judged()
    options = made.run.options.model_copy(update={"judge": {"batch_size": 4}})
    made = made.model_copy(update={"run": made.run.model_copy(update={"options": options})})
    pace = pace_of("judge", made)
    # 13 s for each first batch of 4, and 24 s for the 72 others
    assert (pace.job, pace.batch_size) == (pytest.approx(24 / 72), 4)
    assert pace.first == pytest.approx(13 - 4 * 24 / 72)


@pytest.mark.parametrize(
    "changes",
    [{"swaps": 0}, {"swaps": 3}, {"first_verdict_s": 9.0}, {"first_verdict_s": 15.0}],
    ids=["no swap", "several swaps", "not known", "not slower"],
)
def test_other_runs_tell_the_mean_of_all_verdicts(changes):
    pace = pace_of("judge", judged(**changes))
    assert (pace.job, pace.first) == (pytest.approx(50 / 80), 0.0)


def test_a_first_batch_of_all_edits_is_a_mean_too():
    workers = [worker("score", 16, 13.0)]
    timing = {"swaps": 1, "swap_s": 9.0, "first_verdict_s": 22.0, "verdicts": 16}
    pace = pace_of("judge", a_run(timing=timing, workers=workers))
    assert (pace.job, pace.first) == (pytest.approx(13 / 16), 0.0)


@pytest.mark.parametrize(
    "workers",
    [
        [],
        [worker("score", 4, 4.0)],
        [worker("edit", 4, 0.0)],
    ],
    ids=["none", "another stage", "no time"],
)
def test_a_run_without_work_of_an_editor_tells_no_pace(workers):
    assert pace_of("editor", a_run(workers=workers)) is None


def test_further_judges_are_not_the_judge():
    assert pace_of("judge", a_run(workers=[worker("score", 4, 4.0, further="second")])) is None
