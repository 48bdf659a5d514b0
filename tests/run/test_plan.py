"""What a run is to do, planned without a process."""

import pytest
from run_world import JUDGE, World, pairs_of

from pytest_imgedit.core.errors import ImageError, UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.kinds.openai import OpenAI
from pytest_imgedit.run.first_requests import ask_servers


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def reached(monkeypatch):
    """The models that were asked whether they can be reached."""
    found = []
    monkeypatch.setattr(OpenAI, "reach", lambda model: found.append(model.spec))
    return found


def test_each_pair_has_a_work_for_each_seed_in_the_order_of_the_suite(world):
    works = world.plan(editor={"seeds": 2}).works
    assert [(work.pair.id, work.seed) for work in works] == [
        (f"p{n}", seed) for n in range(4) for seed in (0, 1)
    ]


def test_each_seed_and_pair_has_a_key_of_its_own(world):
    assert len({work.content for work in world.plan(editor={"seeds": 3}).works}) == 12


def test_the_same_run_has_the_same_keys(world):
    first, second = world.plan(), world.plan()
    assert [work.content for work in first.works] == [work.content for work in second.works]


def test_another_editor_has_other_keys(world):
    first, second = world.plan(), world.plan(editor={"spec": "noise"})
    assert not {work.content for work in first.works} & {work.content for work in second.works}


def test_edits_of_the_store_are_taken(world):
    world.run()
    assert all(work.edit is not None for work in world.plan().works)


def test_a_fresh_run_takes_none(world):
    world.run()
    assert not any(work.edit for work in world.plan(run={"fresh": True}).works)


def test_scoring_without_an_edit_is_refused(world):
    with pytest.raises(
        UsageError, match=r"--imgedit-stage=score: .* has no edit of these pairs by this editor"
    ):
        world.plan(run={"stage": "score"})


@pytest.mark.parametrize("stage", ["score", "report"])
def test_stages_that_make_no_edit_say_so_of_each_that_is_missing(world, stage):
    world.run()
    world.pairs = [*world.pairs, *pairs_of("causal", *["social"] * 4)[4:]]
    found = [work.error and work.error.kind for work in world.plan(run={"stage": stage}).works]
    assert found == [None, None, None, None, "not_edited"]


def test_a_run_that_only_edits_has_no_judge(world):
    plan = world.plan(run={"stage": "edit"})
    assert (plan.judge, plan.scorer, list(plan.models)) == (None, None, ["editor"])


def test_an_image_that_cannot_be_read_is_an_error_of_its_pair_alone(world):
    class Broken:
        def read(self):
            raise ImageError("cut short")

    world.pairs[1] = EditPair("broken", "physics", "x", Broken())
    errors = {work.pair.id: work.error for work in world.plan(gates={"max_errors": 1}).works}
    assert str(errors.pop("broken")) == "cut short (edit error: bad_image)"
    assert not any(errors.values())


def test_blocks_are_there_for_a_run_that_ends_once_its_gates_are_decided(world):
    assert world.plan().blocks is None
    assert world.plan(gates={"until": "decided", "fail_under": {"overall": 5.0}}).blocks is not None


def test_the_plan_says_how_many_pairs_there_are(world):
    world.plan()
    assert world.told.notes[0] == "plan: 4 pairs"


def test_a_server_is_asked_where_verdicts_are_missing(world, reached):
    ask_servers(world.plan(), world.told.note)
    assert reached == [JUDGE]


def test_a_server_is_not_asked_where_the_store_has_all(world, reached):
    world.run()
    plan = world.plan()
    with world.store:
        ask_servers(plan, world.told.note)
    assert reached == []


@pytest.mark.parametrize("asked", [{"controls": True}, {"repeats": 1}])
def test_a_server_is_asked_where_its_judge_is_tried(world, reached, asked):
    world.run()
    plan = world.plan(judge=asked)
    with world.store:
        ask_servers(plan, world.told.note)
    assert reached == [JUDGE]


def test_a_report_asks_no_server(world, reached):
    world.run(run={"stage": "edit"})
    ask_servers(world.plan(run={"stage": "report"}), world.told.note)
    assert reached == []
