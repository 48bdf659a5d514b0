"""Stored replies that would not be taken today are counted before a run, and by `imgedit doctor`."""

import pytest
from run_world import JUDGE, World, judged

from pytest_imgedit.run.stored_replies import doubts_of_store

UNFINISHED = (
    "stored replies of a server without the reason why they ended: 4; a lost one looks like a "
    "whole one, and --imgedit-fresh asks again"
)
UNREAD = "stored replies that the grammar of the protocol does not read: 4; a run asks again"
MINE = {
    "calls": [
        {
            "name": "a",
            "user": "{{ source }}{{ edited }}",
            "reply": {"form": "json", "names": ["kept"]},
        }
    ],
    "score": {"item": "kept"},
}


@pytest.fixture
def world(tmp_path):
    return World(
        tmp_path,
        judge={"spec": JUDGE, "protocol": "mine"},
        protocols={"mine": MINE},
        run={"out": tmp_path / "store"},
    )


def judge(world, **fields):
    world.judge = lambda message: judged(message, **fields)


def said(world):
    """The lines of a plan and of the doctor about stored replies."""
    world.told.notes.clear()
    world.plan()
    of_plan = [note for note in world.told.notes if "stored replies" in note]
    of_doctor = list(doubts_of_store(world.settings, world.pairs))
    assert of_plan == [f"plan: {line}" for line in of_doctor]
    return of_doctor


def test_replies_without_a_finish_reason_are_counted(world):
    assert said(world) == []
    judge(world, reply='{"kept": 7}', model="m")
    world.run()
    assert said(world) == [UNFINISHED]
    judge(world, reply='{"kept": 7}', model="m", finish_reason="stop")
    world.run(run={"fresh": True, "out": world.folder / "store"})
    world.raw["run"] = {"out": world.folder / "store"}
    assert said(world) == []


def test_replies_of_this_machine_need_no_finish_reason(world):
    judge(world, reply='{"kept": 7}')
    world.run()
    assert said(world) == []


def test_replies_that_only_compat_reads_are_counted_under_strict(world):
    judge(world, reply="kept: 7", model="m", finish_reason="stop")
    world.run(judge={"spec": JUDGE, "protocol": "mine", "variant": "compat"})
    assert said(world) == []
    world.raw["judge"] = {"spec": JUDGE, "protocol": "mine"}
    assert said(world) == [UNREAD]
    judge(world, reply='{"kept": 7}', model="m", finish_reason="stop")
    run = world.run()
    assert all(work.verdict.score == 7 for work in run.plan.works)
    assert said(world) == []
