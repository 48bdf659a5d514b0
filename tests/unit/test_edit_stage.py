"""The edit stage over workers that are made up."""

from collections import deque

import pytest
from engine_world import Drawn, FakePool, World, edited, failed, pairs_of

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.engine.edit_stage import EditStage


class Stage:
    """An edit stage over the pairs of a world; `answers` are the replies in turn, then edits."""

    def __init__(self, world, *answers, slots=1):
        self.world, self.plan, self.answers = world, world.plan(), deque(answers)
        self.asked, self.done = [], []
        self.pool = FakePool("editor", self.plan.editor.here, self.answer, world.clock, [], slots)
        self.pool.start(slots)
        self.pool.load()
        self.stage = EditStage(self.plan.editor, self.pool, world.store, self.hear)
        self.stage.queue = deque(self.plan.works)
        self.worker = self.pool.workers[0]

    def answer(self, message):
        self.asked.append(message["pair"])
        return self.answers.popleft() if self.answers else edited(message)

    def hear(self, work):
        self.done.append((work.pair.id, "edit" if work.edit else work.error.kind))

    def run(self):
        with self.world.store:
            self.stage.run(self.plan.works)
            self.stored = len(self.world.store.edits.records)
        return self


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, run={"stage": "edit"})


def test_every_edit_is_stored(world):
    stage = Stage(world).run()
    assert stage.done == [(f"p{n}", "edit") for n in range(4)]
    assert stage.stored == 4


def test_an_edit_is_stored_before_anyone_hears_of_it(world):
    stage, stored = Stage(world), []
    stage.stage.done = lambda work: stored.append(len(world.store.edits.records))
    stage.run()
    assert stored == [1, 2, 3, 4]


def test_the_largest_sources_come_first(world):
    world.pairs = [EditPair(f"p{side}", "physics", "x", Drawn(side, side)) for side in (8, 32, 16)]
    assert Stage(world).run().asked == ["p32", "p16", "p8"]


def test_an_edit_that_fails_is_the_error_of_its_pair_alone(world):
    stage = Stage(world, failed("exception")).run()
    assert stage.done == [("p0", "exception"), ("p1", "edit"), ("p2", "edit"), ("p3", "edit")]
    assert stage.stored == 3


def test_a_job_whose_worker_died_comes_last(world):
    assert Stage(world, failed("worker_died")).run().asked == ["p0", "p1", "p2", "p3", "p0"]


def test_a_job_that_kills_twice_ends_in_an_error(world):
    world.pairs = pairs_of("physics")
    stage = Stage(world, failed("worker_died"), failed("worker_died", "again")).run()
    assert stage.done == [("p0", "worker_died")]
    assert stage.plan.works[0].error.message == "again"


def test_a_job_that_runs_out_of_memory_is_tried_at_once_in_a_fresh_process(world):
    stage = Stage(world, edited(None), failed("oom")).run()
    assert stage.asked == ["p0", "p1", "p1", "p2", "p3"]
    assert len(stage.pool.renewed) == 1


def test_a_job_too_large_for_a_fresh_process_ends_in_an_error(world):
    assert Stage(world, failed("oom")).run().done[0] == ("p0", "oom")


def test_what_was_lost_before_counts_no_more_when_it_is_done(world):
    stage = Stage(world, failed("worker_died")).run()
    assert [work.failures for work in stage.plan.works] == [0, 0, 0, 0]


def test_a_worker_gets_an_edit_of_the_source_that_it_has(world):
    same = Drawn(9)
    sources = (same, Drawn(1), Drawn(2), same, Drawn(3))
    world.pairs = [EditPair(f"p{n}", "physics", f"x{n}", source) for n, source in enumerate(sources)]
    stage = Stage(world)
    stage.worker.jobs.append(stage.stage.take(stage.worker))
    assert stage.stage.take(stage.worker)[0].pair.id == "p3"


def test_near_the_end_nothing_is_handed_out_ahead(world):
    world.pairs = pairs_of("physics", "physics", "physics")
    stage = Stage(world, slots=3)
    stage.worker.jobs.append(stage.stage.take(stage.worker))
    assert stage.stage.take(stage.worker) is None
    assert stage.stage.take(stage.pool.workers[1]) is not None


def test_a_job_that_was_lost_is_done_alone(world):
    stage = Stage(world)
    stage.worker.jobs.append(stage.stage.take(stage.worker))
    stage.stage.queue[0].failures = 1
    assert stage.stage.take(stage.worker) is None


def test_an_image_that_is_gone_is_the_error_of_its_pair(world):
    stage = Stage(world)
    stage.plan.works[0].source = None
    assert stage.run().done[-1] == ("p0", "bad_image")
    assert stage.asked == ["p1", "p2", "p3"]


def test_the_message_of_an_edit_holds_what_an_editor_is_told(world):
    stage = Stage(world)
    _, message = stage.stage.take(stage.worker)
    assert (message["op"], message["pair"], message["instruction"], message["category"]) == (
        "edit",
        "p0",
        "change 0",
        "physics",
    )
    assert message["source"] == world.pairs[0].source.read()
