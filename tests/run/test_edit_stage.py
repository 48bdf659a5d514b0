"""The edit stage over workers that are made up."""

from collections import deque

import pytest
from run_world import Drawn, FakePool, World, edited, failed, pairs_of

from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.kinds.controls import IdentityControl
from pytest_imgedit.run.edit import EditStage


class Stage:
    """An edit stage over the pairs of a world; `answers` are the replies in turn, then edits."""

    def __init__(self, world, *answers, slots=1, batch_size=1):
        self.world, self.plan, self.answers = world, world.plan(), deque(answers)
        self.asked, self.done = [], []
        self.pool = FakePool("editor", self.plan.editor.here, self.answer, world.clock, [], slots)
        self.pool.edits_a_call = batch_size
        self.pool.start(slots)
        self.pool.load()
        self.stage = EditStage(self.plan.editor, self.pool, world.store, self.hear)
        self.stage.queue = deque(self.plan.works)
        self.worker = self.pool.workers[0]

    def answer(self, message):
        self.asked.append(" ".join(edit["pair_id"] for edit in message["edits"]))
        answer = self.answers.popleft() if self.answers else edited
        return answer(message) if callable(answer) else answer

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
    stage = Stage(world, edited, failed("oom")).run()
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
    world.pairs = [
        EditPair(f"p{n}", "physics", f"x{n}", source) for n, source in enumerate(sources)
    ]
    stage = Stage(world)
    stage.worker.jobs.append(stage.stage.take(stage.worker))
    assert stage.stage.take(stage.worker)[0][0].pair.id == "p3"


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
    (edit,) = message["edits"]
    assert (message["op"], edit["pair_id"], edit["instruction"], edit["category"]) == (
        "edit",
        "p0",
        "change 0",
        "physics",
    )
    assert edit["source"] == world.pairs[0].source.read()


def spoiled(message):
    """The reply of an editor that fails at the second edit of a batch."""
    reply = edited(message)
    reply["edits"][1] = {"op": "failed", "kind": "exception", "message": "no"}
    return reply


def test_a_batch_holds_as_many_as_the_worker_takes(world):
    stage = Stage(world, batch_size=3).run()
    assert stage.asked == ["p0 p1 p2", "p3"]
    assert [work.edit.batch_size for work in stage.plan.works] == [3, 3, 3, 1]


def test_a_batch_is_no_larger_than_a_fair_share(world):
    stage = Stage(world, slots=2, batch_size=8).run()
    assert stage.asked == ["p0 p1", "p2", "p3"]


def test_a_batch_holds_sources_of_one_size(world):
    sizes = (8, 16, 8, 16, 8)
    world.pairs = [
        EditPair(f"p{n}", "physics", "x", Drawn(n, side)) for n, side in enumerate(sizes)
    ]
    assert Stage(world, batch_size=4).run().asked == ["p1 p3", "p0 p2 p4"]


def test_one_edit_of_a_batch_that_fails_is_the_error_of_its_pair_alone(world):
    stage = Stage(world, spoiled, batch_size=4).run()
    assert stage.asked == ["p0 p1 p2 p3"]
    assert sorted(stage.done) == [
        ("p0", "edit"),
        ("p1", "exception"),
        ("p2", "edit"),
        ("p3", "edit"),
    ]


def test_a_batch_whose_worker_died_is_made_again_one_by_one(world):
    stage = Stage(world, failed("worker_died"), batch_size=3).run()
    assert stage.asked == ["p0 p1 p2", "p3", "p0", "p1", "p2"]
    assert stage.stored == 4


def test_of_a_batch_that_kills_its_worker_the_pair_that_kills_again_alone_ends_in_an_error(world):
    dead = failed("worker_died")
    stage = Stage(world, dead, edited, dead, batch_size=3).run()
    assert stage.done == [("p3", "edit"), ("p0", "worker_died"), ("p1", "edit"), ("p2", "edit")]


def made_in(size):
    """The reply of an editor that makes edits in padded calls of a size."""

    def answer(message):
        reply = edited(message)
        return {
            **reply,
            "edits": [{**made, "batch_size": size} for made in reply["edits"]],
            "batch_size": size,
        }

    return answer


@pytest.fixture
def padded(world, monkeypatch):
    """A world whose editor makes four edits a call and pads what is fewer."""
    monkeypatch.setattr(IdentityControl, "pads_batches", True)
    world.raw["editor"] = {"batch_size": 4}
    return world


def sizes(plan):
    return [work.edit and work.edit.batch_size for work in plan.works]


def test_padded_batches_are_full_whoever_is_free(padded):
    stage = Stage(padded, made_in(4), slots=3, batch_size=4).run()
    assert stage.asked == ["p0 p1 p2 p3"]
    assert stage.stored == 4


def test_an_edit_of_padded_calls_has_the_key_of_their_size_which_a_later_run_finds(padded):
    smaller, again = Stage(padded, made_in(2), batch_size=4).run(), padded.plan()
    assert sizes(again) == [2, 2, 2, 2]
    assert [work.edit.key for work in again.works] == [work.edit.key for work in smaller.plan.works]
    assert (
        "plan: 4 edits of the store, made with batch size 2, stand for those of 4"
        in padded.told.notes
    )


@pytest.mark.parametrize(("made", "later", "found"), [(1, 4, True), (3, 4, False), (4, 2, False)])
def test_edits_of_sizes_to_which_a_batch_may_shrink_count(padded, made, later, found):
    Stage(padded, made_in(made), batch_size=4).run()
    assert sizes(padded.plan(editor={"batch_size": later})) == [made if found else None] * 4


def test_of_two_edits_that_of_the_planned_size_counts(padded):
    Stage(padded, made_in(4), batch_size=4).run()
    padded.raw["run"] = {"stage": "edit", "fresh": True}
    Stage(padded, made_in(2), batch_size=4).run()
    assert sizes(padded.plan(run={"stage": "edit"})) == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("sides", "line"),
    [
        ([8] * 7, "plan: 7 edits in 2 calls of 4, 12% of them padding"),
        (
            [8, 8, 8, 8, 16],
            "plan: 5 edits in 2 calls of 4, 38% of them padding; editor.batch_size=1 needs none",
        ),
    ],
)
def test_the_plan_tells_padding(padded, sides, line):
    padded.pairs = [
        EditPair(f"p{n}", "physics", "x", Drawn(n, side)) for n, side in enumerate(sides)
    ]
    padded.plan()
    assert line in padded.told.notes


def test_calls_of_an_editor_that_pads_nothing_have_the_key_of_the_plan(world):
    world.raw["editor"] = {"batch_size": 4}
    Stage(world, batch_size=3).run()
    assert sizes(world.plan()) == [3, 3, 3, 1]


def with_sources(name, *sides):
    """A pair with sources of these sides, the first of which is edited."""
    source, *further = [Drawn(side, side) for side in sides]
    return EditPair(name, "physics", "x", source, further=tuple(further))


def test_a_batch_holds_pairs_of_as_many_sources_of_the_same_sizes(tmp_path):
    world = World(tmp_path, run={"stage": "edit"})
    world.pairs = [
        with_sources("a", 16, 32),
        with_sources("b", 16),
        with_sources("c", 16, 32),
        with_sources("d", 32, 16),
        with_sources("e", 16),
    ]
    assert Stage(world, batch_size=4).run().asked == ["a c", "d", "b e"]


def test_the_largest_sources_of_a_pair_taken_together_come_first(world):
    world.pairs = [with_sources("a", 24), with_sources("b", 16, 16), with_sources("c", 16, 16, 16)]
    assert Stage(world).run().asked == ["c", "a", "b"]
