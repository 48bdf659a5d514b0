"""The seeds of a served editor are tried once a store and recipe."""

import pytest
from run_world import World, edited, failed, png

from pytest_imgedit.core.results import EditorInfo, SeedTrial
from pytest_imgedit.report import tables
from pytest_imgedit.run.seed_trial import result_of

EDITOR = {"spec": "openai-images:http://localhost:1/v1#m", "send_seed": True}


def obeys(edit, number):
    return png(edit["seed"] % 200)


def ignores(edit, number):
    return png(9)


def draws(edit, number):
    return png(number)


class Editor:
    """Draws an image for each edit by its fields and its number, and keeps the seeds."""

    def __init__(self, draw):
        self.draw, self.seeds = draw, []

    def __call__(self, message):
        reply = edited(message)
        for edit, made in zip(message["edits"], reply["edits"], strict=True):
            self.seeds.append((edit["pair_id"], edit["seed"]))
            made["image"] = self.draw(edit, len(self.seeds))
        return reply


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, editor=EDITOR, run={"stage": "edit"})


def run(world, draw, **raw):
    world.edit = Editor(draw)
    done = world.run(**raw)
    return done, result_of(done.plan.editor, world.store)


@pytest.mark.parametrize(
    ("draw", "trial"),
    [
        (obeys, SeedTrial(repeats=True, varies=True)),
        (ignores, SeedTrial(repeats=True, varies=False)),
        (draws, SeedTrial(repeats=False, varies=True)),
    ],
)
def test_seed_is_put_twice_and_another_once(world, draw, trial):
    done, found = run(world, draw)
    seeds = world.edit.seeds
    assert len(seeds) == len(done.plan.works) + 2
    assert len(world.store.edits.records) == len(done.plan.works)
    assert seeds[4] == seeds[0]
    assert seeds[5][0] == seeds[0][0]
    assert seeds[5][1] != seeds[0][1]
    assert found == trial


def test_trial_is_not_made_again(world):
    run(world, ignores)
    done, found = run(world, draws, run={"stage": "edit", "fresh": True})
    assert len(world.edit.seeds) == len(done.plan.works)
    assert found == SeedTrial(repeats=True, varies=False)


def test_other_recipe_has_a_trial_of_its_own(world):
    run(world, ignores)
    _, found = run(world, draws, editor={**EDITOR, "size": "512x512"})
    assert found == SeedTrial(repeats=False, varies=True)


def test_editor_that_is_sent_no_seeds_has_none(world):
    done, found = run(world, draws, editor={"spec": EDITOR["spec"]})
    assert len(world.edit.seeds) == len(done.plan.works)
    assert found is None


def test_trial_that_fails_is_left_to_the_next_run(world):
    world.edit = Editor(obeys)
    make = world.edit

    def answer(message):
        return failed("exception") if len(make.seeds) == 4 else make(message)

    world.edit = answer
    done = world.run()
    assert all(work.edit for work in done.plan.works)
    assert result_of(done.plan.editor, world.store) is None


@pytest.mark.parametrize(
    ("trial", "lines"),
    [
        (None, []),
        (SeedTrial(repeats=True, varies=True), []),
        (SeedTrial(repeats=True, varies=False), ["two seeds gave one image"]),
        (SeedTrial(repeats=False, varies=True), ["one seed gave two images"]),
        (SeedTrial(repeats=False, varies=False), ["one seed gave two images"]),
    ],
)
def test_server_that_ignores_seeds_is_named(trial, lines):
    told = tables._seeds(EditorInfo(spec="openai-images:http://h/v1#m", seeds=trial))
    head = "warning: the server of editor openai-images:http://h/v1#m ignores seeds: "
    assert list(told) == [f"{head}{line}" for line in lines]
