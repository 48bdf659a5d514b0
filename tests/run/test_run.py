"""A run from its plan to its items, over pools that are made up."""

import pytest
from run_world import World, edited, failed, judged, pairs_of
from waiting import wait_until

from pytest_imgedit.run.blocks import Blocks
from pytest_imgedit.run.items import make_items
from pytest_imgedit.run.run import BlockRun

SWAP = {"workers": {"placement": "swap"}}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def swapping(tmp_path):
    return World(tmp_path, **SWAP)


def scores(run):
    return [item.score for item in make_items(run.plan.works, True, "the user")]


def test_every_pair_is_edited_and_scored(world):
    assert scores(world.run()) == [7.0] * 4


def test_the_editors_are_gone_before_the_judge_loads(swapping):
    swapping.run()
    order = [line for line in swapping.log if "does" not in line]
    assert order == [
        "start editor",
        "start judge",
        "load editor",
        "close editor",
        "load judge",
        "close judge",
    ]


def test_models_that_fit_together_overlap(world):
    def edit(message):
        if message["edits"][0]["pair_id"] != "p0":  # the judge loads once an edit is done
            wait_until(lambda: "load judge" in world.log)
        return edited(message)

    world.edit = edit
    world.run()
    assert world.log.index("load judge") < world.log.index("close editor")


def test_a_swap_is_counted_and_an_overlap_is_none(tmp_path):
    counts = [
        World(tmp_path / name, **raw).run().timing.swaps for name, raw in (("a", SWAP), ("b", {}))
    ]
    assert counts == [1, 0]


def test_what_is_stored_starts_nothing(world):
    world.run()
    world.log.clear()
    run = world.run()
    assert world.log == []
    assert (run.timing.edits_cached, run.timing.verdicts_cached) == (4, 4)
    assert scores(run) == [7.0] * 4


def test_edits_that_are_stored_need_the_judge_alone(world):
    world.run(run={"stage": "edit"})
    world.log.clear()
    world.run(run={})
    assert [line for line in world.log if "editor" in line] == []
    assert world.log[0] == "start judge"


def test_a_run_that_only_edits_starts_no_judge(world):
    run = world.run(run={"stage": "edit"})
    assert not [line for line in world.log if "judge" in line]
    assert run.timing.edits == 4


def test_a_report_computes_nothing_and_says_what_is_missing(world):
    world.run(run={"stage": "edit"})
    world.log.clear()
    run = world.run(run={"stage": "report"})
    assert world.log == []
    assert {work.error.kind for work in run.plan.works} == {"not_scored"}


def test_hooks_are_called_around_each_stage_and_for_each_pair(swapping):
    swapping.run()
    assert swapping.hooks == [
        *(
            "before edit",
            "edited p0",
            "edited p1",
            "edited p2",
            "edited p3",
            "after edit",
            "before swap",
            "after swap",
        ),
        *(
            "before score",
            "scored p3",
            "scored p0",
            "scored p1",
            "scored p2",
            "after score",
        ),  # by category
    ]


def test_a_resident_run_swaps_nothing(world):
    world.run()
    assert not [line for line in world.hooks if "swap" in line]
    assert sorted(line for line in world.hooks if "scored" in line) == [
        f"scored p{n}" for n in range(4)
    ]


def test_hooks_hear_why_a_pair_failed(swapping):
    swapping.edit = lambda message: failed("exception")
    swapping.run()
    assert "not edited p0: exception" in swapping.hooks


def test_pairs_that_an_earlier_run_has_finished_call_no_hook(swapping):
    swapping.run()
    swapping.hooks.clear()
    swapping.run()
    assert swapping.hooks == []


def test_pairs_that_failed_to_be_edited_are_not_judged(swapping):
    swapping.edit = lambda message: failed("exception")
    run = swapping.run()
    assert not [line for line in swapping.log if "does judge" in line]
    assert {work.error.kind for work in run.plan.works} == {"exception"}


@pytest.mark.parametrize("placement", ["swap", "auto"])
def test_an_error_of_the_editing_itself_leaves_no_worker(tmp_path, placement):
    world = World(tmp_path, workers={"placement": placement})

    def breaks(message):
        raise KeyboardInterrupt

    world.edit = breaks
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert {"close editor", "close judge"} <= set(world.log)


def test_a_run_that_is_stopped_while_it_edits_does_not_score(swapping):
    def stops(message):
        swapping.told.stopping = True
        return failed("exception")

    swapping.edit = stops
    run = swapping.run()
    assert run.trials is None
    assert "load judge" not in swapping.log


def test_a_stopped_run_still_shows_the_verdicts_that_it_had(swapping):
    swapping.run()
    swapping.pairs = [*swapping.pairs, *pairs_of(*["causal"] * 5)[4:]]

    def stops(message):
        swapping.told.stopping = True
        return failed("exception")

    swapping.edit = stops
    assert scores(swapping.run()) == [7.0, 7.0, 7.0, 7.0, None]


def test_repeats_are_judged_after_the_run_and_counted_as_trials(swapping):
    run = swapping.run(judge={"repeats": 2})
    assert len(run.trials.repeats) == 8
    assert run.trials.remaining == 0
    assert ("try the judge", 8) in swapping.told.stages


def test_workers_are_remembered_with_what_they_did(swapping):
    run = swapping.run()
    done = [(stage, worker.slot.name, worker.jobs_done) for stage, worker in run.workers]
    assert done == [("edit", "editor-0", 4), ("score", "judge-0", 4)]


def test_a_judge_that_fails_is_an_error_of_each_pair(swapping):
    swapping.judge = lambda message: failed("no_worker", "could not load")
    items = make_items(swapping.run().plan.works, True, "the user")
    assert [item.status for item in items] == ["judge_error"] * 4


def test_a_run_in_blocks_stops_once_its_gate_is_decided(swapping):
    swapping.pairs = pairs_of(*["physics"] * 60)
    plan = swapping.plan(gates={"until": "decided", "fail_under": {"overall": 1.0}})
    assert isinstance(plan.blocks, Blocks)
    run = BlockRun(plan, plan.blocks, swapping.context(plan))
    with swapping.store:
        run.execute()
    statuses = [item.status for item in make_items(plan.works, True, "the user")]
    assert set(statuses) == {"scored", "not_needed"}
    assert statuses.count("not_needed") > 10


def test_a_pair_is_scored_only_if_every_seed_is(world):
    run = world.run(editor={"seeds": 2})
    run.plan.works[1].judgement.verdict = None
    run.plan.works[1].judgement.fail("exception", "no")
    items = make_items(run.plan.works, True, "the user")
    assert [item.status for item in items] == ["judge_error", "scored", "scored", "scored"]
    assert items[0].score is None


@pytest.mark.parametrize(
    ("edit", "needs_verdict", "status", "stage"),
    [
        (False, True, "interrupted", "edit"),
        (True, True, "interrupted", "score"),
        (True, False, "edited", None),
    ],
)
def test_what_a_stop_cut_off_is_neither_scored_nor_an_error(
    world, edit, needs_verdict, status, stage
):
    world.pairs = pairs_of("physics")
    if edit:
        world.run(run={"stage": "edit"})
    items = make_items(world.plan(run={}).works, needs_verdict, "a full disk")
    assert (items[0].status, items[0].error and items[0].error.stage) == (status, stage)
    if stage:
        assert items[0].error.message == "stopped: a full disk, before this was done"


def test_scores_and_aspects_of_seeds_are_averaged(swapping):
    grades = iter([8, 4])

    def judge(message):
        grade = next(grades)
        return judged(
            message, reply=f"instruction: {grade}\npreservation: {grade}\nrealism: {grade}"
        )

    swapping.judge = judge
    swapping.pairs = pairs_of("physics")
    items = make_items(
        swapping.run(editor={"seeds": 2}, judge={"batch_size": 1}).plan.works, True, "the user"
    )
    assert items[0].score == pytest.approx(6.0)
    assert items[0].aspects["realism"] == pytest.approx(6.0)
