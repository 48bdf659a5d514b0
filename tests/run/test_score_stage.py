"""The score stage, and how answers become verdicts, over workers that are made up."""

import math
from collections import deque

import pytest
from run_world import ANSWER, FakePool, World, failed, judged, pairs_of

from pytest_imgedit.core.errors import StoreError
from pytest_imgedit.run.questions import Ask
from pytest_imgedit.run.run import Run
from pytest_imgedit.run.score import Feed, ScoreStage
from pytest_imgedit.run.work import FIRST, missing_edits
from pytest_imgedit.store.journal import Journal, VerdictRecord


class Stage:
    """A score stage over the edits of a world; `answers` are the replies in turn, as functions of
    the message.
    """

    def __init__(self, world, *answers, slots=1, feed=None):
        self.world, self.answers, self.asked, self.done = world, deque(answers), [], []
        world.run(run={"stage": "edit"})
        self.plan = world.plan(run={})
        assert not missing_edits(self.plan.works)
        self.pool = FakePool("judge", self.plan.judge.here, self.answer, world.clock, [], slots)
        self.pool.start(slots)
        self.pool.load()
        self.worker = self.pool.workers[0]
        self.scorer = self.plan.scorer
        self.stage = ScoreStage(self.scorer, self.pool, self.hear, world.clock, feed)

    def answer(self, message):
        self.asked.append([question["pair_id"] for question in message["questions"]])
        return (self.answers.popleft() if self.answers else judged)(message)

    @property
    def judgements(self):
        return self.scorer.judgements(self.plan.works)

    def hear(self, judgement):
        verdict = judgement.verdict
        self.done.append((judgement.pair.id, verdict.score if verdict else judgement.error.kind))

    def run(self, judgements=None):
        with self.world.store:
            self.stage.run(self.judgements if judgements is None else judgements)
            self.stored = len(self.world.store.verdicts.records)
        return self


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_every_edit_gets_a_verdict_that_is_stored(world):
    stage = Stage(world).run()
    assert sorted(stage.done) == [(f"p{n}", 7.0) for n in range(4)]
    assert stage.stored == 4


def test_a_batch_is_as_large_as_the_worker_says_and_sorted_by_category(world):
    world.pairs = pairs_of("social", "physics", "social", "physics", "social", "physics")
    assert [sorted(batch) for batch in Stage(world).run().asked] == [
        ["p0", "p1", "p3", "p5"],
        ["p2", "p4"],
    ]


def test_a_batch_size_that_the_user_sets_is_taken(world):
    world.raw["judge"] = {"batch_size": 3}
    assert [len(batch) for batch in Stage(world).run().asked] == [3, 1]


def test_no_batch_is_larger_than_a_workers_share(world):
    assert [len(batch) for batch in Stage(world, slots=2).run().asked] == [2, 1, 1]


def unreadable(message):
    return judged(message, reply="very good")


def test_an_unreadable_reply_is_asked_again_with_a_reminder(world):
    world.pairs = pairs_of("physics")
    reminded = []

    def listens(message):
        reminded.extend(text for kind, text in message["questions"][0]["parts"] if kind == "text")
        return judged(message)

    stage = Stage(world, unreadable, listens).run()
    assert stage.done == [("p0", 7.0)]
    assert "instruction" in reminded[-1]


def test_a_judge_that_stays_unreadable_is_an_error_with_its_reply(world):
    world.pairs = pairs_of("physics")
    stage = Stage(world, *[unreadable] * 9).run()
    assert stage.done == [("p0", "unreadable_reply")]
    assert stage.plan.works[0].error.reply == "very good"
    assert len(stage.asked) == 1 + world.settings.judge.reasks


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"error": "no image came"}, "judge"),
        ({"score": math.nan}, "bad_score"),
        ({"score": 11.0}, "bad_score"),
        ({"score": 5.0, "aspects": {"realism": math.inf}}, "bad_score"),
        ({"expected": {"instruction": 12.0, "preservation": 5.0, "realism": 5.0}}, "bad_score"),
    ],
)
def test_what_asking_again_would_not_mend_is_an_error_at_once(world, answer, kind):
    world.pairs = pairs_of("physics")
    stage = Stage(world, lambda message: judged(message, **answer)).run()
    assert (stage.done, len(stage.asked)) == ([("p0", kind)], 1)


@pytest.mark.parametrize("cut", [{"cut": True}, {"reply": "<think>instruction: 7"}])
def test_a_reply_that_was_cut_may_be_twice_as_long_twice(world, cut):
    world.pairs, lengths = pairs_of("physics"), []

    def answer(message):
        lengths.append(message["questions"][0]["max_new_tokens"])
        return judged(message, **cut)

    stage = Stage(world, answer, answer, answer).run()
    assert lengths == [0, 256, 512]  # the judge's own limit is 128
    assert stage.done == [("p0", "unreadable_reply")]
    assert stage.stored == 0
    assert Stage(world, answer).run().done == [("p0", 7.0)]


def test_a_reply_of_a_judge_without_a_limit_is_asked_for_again_in_words(tmp_path):
    world = World(tmp_path, pairs=pairs_of("physics"), judge={"spec": "scenes"})
    parts = []

    def answer(message):
        parts.append(str(message["questions"][0]["parts"]))
        return judged(message, cut=True)

    Stage(world, answer, answer, answer).run()
    assert ["too long" in words for words in parts] == [False, True, True]


def test_a_reply_that_was_cut_short_is_asked_again(world):
    world.pairs = pairs_of("physics")
    assert Stage(world, lambda message: judged(message, cut=True)).run().done == [("p0", 7.0)]


def test_a_score_that_the_judge_measures_is_taken_as_it_is(world):
    world.pairs = pairs_of("physics")
    stage = Stage(world, lambda message: judged(message, score=2.5, reply="")).run()
    assert stage.done == [("p0", 2.5)]
    assert stage.plan.works[0].verdict.measured


def test_a_batch_that_fails_is_asked_once_more_one_by_one(world):
    stage = Stage(world, lambda message: failed("exception")).run()
    assert [len(batch) for batch in stage.asked] == [4, 1, 1, 1, 1]
    assert {outcome for _, outcome in stage.done} == {7.0}


def test_an_edit_that_fails_alone_spoils_no_other_verdict(world):
    def chokes(message):
        names = [question["pair_id"] for question in message["questions"]]
        return failed("exception") if "p2" in names else judged(message)

    outcomes = dict(Stage(world, *[chokes] * 9).run().done)
    assert outcomes == {"p0": 7.0, "p1": 7.0, "p2": "exception", "p3": 7.0}


def test_an_edit_whose_image_is_gone_is_the_error_of_its_pair(world):
    stage = Stage(world)
    stage.plan.works[1].source = None
    assert ("p1", "bad_image") in stage.run().done
    assert len(stage.done) == 4


def test_tokens_of_unreadable_replies_are_counted_too(world):
    world.pairs = pairs_of("physics")
    stage = Stage(world, unreadable).run()
    assert stage.scorer.tally.tokens == {
        "tokens_in": 2 * ANSWER["tokens_in"],
        "tokens_out": 2 * ANSWER["tokens_out"],
    }


def test_near_the_end_no_batch_is_handed_out_ahead(world):
    stage = Stage(world, slots=2)
    stage.stage.queue = deque(Ask(judgement, None) for judgement in stage.judgements[:2])
    with world.store:
        stage.worker.jobs.append(stage.stage.take(stage.worker))
        assert stage.stage.take(stage.worker) is None
        assert stage.stage.take(stage.pool.workers[1]) is not None


def test_an_idle_worker_does_not_wait_for_the_images_of_a_whole_batch(world):
    world.pairs = pairs_of(*["physics"] * 50)
    stage = Stage(world)
    stage.worker.batch_size = 24
    stage.stage.queue = deque(Ask(judgement, None) for judgement in stage.judgements)
    sizes = []
    with world.store:
        while taken := stage.stage.take(stage.worker):
            sizes.append(len(taken[0]))
            stage.worker.jobs.append(taken)
    assert sizes == [16, 24, 10]


def fed(world, count, batch_size=8):
    """A stage whose open feed holds so many edits, and whose worker takes batches of a size."""
    world.pairs = pairs_of(*["physics"] * 6)
    feed = Feed()
    stage = Stage(world, feed=feed)
    stage.worker.batch_size = batch_size
    feed.judgements.extend(stage.judgements[:count])
    return stage, feed


@pytest.mark.parametrize(("count", "expected"), [(1, None), (2, 2), (5, 5)])
def test_while_a_feed_is_open_a_batch_waits_until_it_is_a_quarter_full(world, count, expected):
    stage, _ = fed(world, count)
    with world.store:
        taken = stage.stage.take(stage.worker)
    assert (taken and len(taken[0])) == expected


def test_when_a_feed_is_closed_what_is_left_is_judged(world):
    stage, feed = fed(world, 1)
    feed.is_open = False
    with world.store:
        assert len(stage.stage.take(stage.worker)[0]) == 1
    assert not stage.stage.may_get_more()


def test_what_was_fed_is_not_judged_once_the_feed_is_aborted(world):
    stage, feed = fed(world, 5)
    feed.aborted = True
    assert stage.stage.take(stage.worker) is None
    assert not stage.stage.may_get_more()


def test_the_first_verdict_is_known_by_the_clock_of_the_run(world):
    stage = Stage(world).run()
    assert 0 < stage.scorer.first_at <= world.clock.now


def test_verdicts_of_the_store_are_those_that_were_reached(world):
    stage = Stage(world).run()
    scored = [work.verdict.score for work in stage.plan.works]
    plan = world.plan()
    with world.store:
        for judgement in plan.scorer.judgements(plan.works):
            plan.scorer.recall(judgement, "compatible")
    assert [work.verdict.score for work in plan.works] == scored


def test_a_verdict_that_took_a_reminder_counts_only_while_as_many_are_allowed(world):
    world.pairs = pairs_of("physics")
    Stage(world, unreadable).run()
    for reasks, counts in ((1, True), (0, False)):
        plan = world.plan(judge={"reasks": reasks})
        with world.store:
            plan.scorer.recall(plan.works[0].judgement, "compatible")
        assert (plan.works[0].verdict is not None) is counts


@pytest.mark.parametrize("of", ["judge", "further judge"])
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_verdict_that_cannot_be_stored_does_not_count(tmp_path, monkeypatch, of, nth):
    append, appended = Journal.append, []

    def full(journal, records):
        if journal.kind is VerdictRecord:
            appended.append(records)
            if len(appended) == nth + 4 * (of != "judge"):
                raise StoreError("verdicts.jsonl: Disk quota exceeded")
        append(journal, records)

    monkeypatch.setattr(Journal, "append", full)
    other = "openai:http://localhost:1/v1#other"
    world = World(
        tmp_path,
        judge={"batch_size": 1},
        judges={"second": {"spec": other, "batch_size": 1}},
    )
    world.further[other] = judged
    plan = world.plan()
    run = Run(plan, world.context(plan))
    with world.store, pytest.raises(StoreError):
        run.execute()
    name = FIRST if of == "judge" else "second"
    ends = [work.judged_by(name) for work in plan.works]
    assert sum(end.verdict is not None for end in ends) == nth - 1
    assert sum(end.is_open for end in ends) == 5 - nth
    monkeypatch.undo()
    run = world.run()
    assert all(work.verdict and work.judged_by("second").verdict for work in run.plan.works)
    assert run.timing.verdicts_cached == (nth - 1 if of == "judge" else 4)
