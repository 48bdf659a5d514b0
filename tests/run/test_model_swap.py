"""The swap, and scoring that overlaps editing."""

import time
from types import SimpleNamespace

import pytest
from run_world import Clock, FakePool

from pytest_imgedit.core.results import Timing
from pytest_imgedit.run.model_swap import Overlap, Swap, first_loaded


@pytest.fixture
def log():
    return []


def pool(role, log, slots=1):
    return FakePool(role, None, None, Clock(), log, slots)


def test_editors_end_when_they_are_released(log):
    editors = pool("editor", log)
    editors.start(1)
    swap = Swap(pool("judge", log), lambda: 5.0)
    swap.release(editors)
    assert (swap.edits_ended, log) == (5.0, ["start editor", "close editor"])


def test_editors_that_stay_are_not_ended(log):
    editors = pool("editor", log)
    Swap(pool("judge", log), lambda: 5.0, stays=True).release(editors)
    assert log == []


def test_the_judge_starts_beside_the_editors_and_does_not_load(log):
    swap = Swap(pool("judge", log), Clock())
    swap.judge.start(3)
    assert log == ["start judge"]
    assert first_loaded(swap.judge) == 0.0


@pytest.mark.parametrize(
    ("loaded_at", "ended", "since"), [(9.0, 5.0, 9.0), (3.0, 5.0, 5.0), (9.0, None, 9.0)]
)
def test_judging_counts_from_the_load_but_not_from_before_the_last_edit(
    log, loaded_at, ended, since
):
    judge = pool("judge", log)
    judge.start(1)
    judge.workers[0].loaded_at = loaded_at
    assert (
        Swap(judge, Clock(), edits_ended=ended).judging_since(7.0 if ended is None else 5.0)
        == since
    )


def swapped(log, **changes):
    judge = pool("judge", log)
    judge.start(1)
    judge.workers[0].loaded_at = 9.0
    timing = Timing()
    Swap(judge, Clock(), **changes).account(timing, 6.0, 11.0)
    return timing


def test_a_swap_lasts_from_the_last_edit_until_the_judge_is_loaded(log):
    timing = swapped(log, edits_ended=5.0)
    assert (timing.swaps, timing.swap_s, timing.first_verdict_s) == (1, 4.0, 6.0)


def test_models_that_stay_loaded_are_not_swapped(log):
    assert swapped(log, edits_ended=5.0, stays=True).swaps == 0


def test_without_an_edit_there_is_no_swap(log):
    timing = swapped(log)
    assert (timing.swaps, timing.swap_s) == (0, 0.0)


def test_the_first_worker_that_has_loaded_counts_also_when_it_is_gone(log):
    judge = pool("judge", log, slots=2)
    judge.start(2)
    judge.workers[0].loaded_at, judge.workers[1].loaded_at = 8.0, 4.0
    judge.close()
    assert first_loaded(judge) == 4.0


class Beside:
    """An overlap whose score stage takes what comes through the feed; it can be made to fail."""

    def __init__(self, error=None):
        self.error, self.scored, self.begun = error, [], 0
        self.overlap = Overlap(self.score, self.begin, Clock())

    def begin(self):
        self.begun += 1

    def score(self, feed):
        if self.error:
            raise self.error
        while feed.is_open or feed.judgements:
            self.scored += feed.take()
            time.sleep(0.001)


def editors(*states):
    return SimpleNamespace(workers=[SimpleNamespace(state=state) for state in states])


@pytest.mark.parametrize("state", ["starting", "waiting", "loading"])
def test_the_judge_does_not_load_while_an_editor_may_still_load(state):
    beside = Beside()
    beside.overlap.edited(["a"], editors("busy", state))
    assert (beside.overlap.has_begun, beside.begun) == (False, 0)


def test_the_score_stage_begins_once_and_judges_all_that_comes():
    beside = Beside()
    for name in "abc":
        beside.overlap.edited([name], editors("busy", "idle"))
    beside.overlap.finish()
    assert (beside.scored, beside.begun) == (["a", "b", "c"], 1)


def test_edits_that_came_before_it_began_are_judged_too():
    beside = Beside()
    beside.overlap.edited(["a"], editors("loading"))
    beside.overlap.edited(["b"], editors("busy"))
    beside.overlap.finish()
    assert beside.scored == ["a", "b"]


def test_an_overlap_that_never_began_ends_at_once():
    beside = Beside()
    beside.overlap.edited(["a"], editors("loading"))
    beside.overlap.finish()
    assert beside.scored == []


def test_what_the_score_stage_ends_with_is_raised_at_the_end():
    beside = Beside(ValueError("no judge"))
    beside.overlap.edited(["a"], editors("busy"))
    with pytest.raises(ValueError, match="no judge"):
        beside.overlap.finish()


def test_what_the_score_stage_ends_with_is_raised_at_the_next_edit():
    beside = Beside(ValueError("no judge"))
    beside.overlap.edited(["a"], editors("busy"))
    beside.overlap._thread.join()
    with pytest.raises(ValueError, match="no judge"):
        beside.overlap.edited(["b"], editors("busy"))


def test_an_aborted_overlap_ends_its_stage():
    beside = Beside()
    beside.overlap.edited(["a"], editors("busy"))
    beside.overlap.abort()
    assert not beside.overlap._thread.is_alive()
