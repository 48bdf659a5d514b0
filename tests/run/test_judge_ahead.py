"""The judge's process starts before its weights are hashed, where nothing else is to be waited for."""

from types import SimpleNamespace

import pytest
from run_world import Clock, FakePool, World

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.kinds.identity import identify, sketch
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.run.pools import SessionWorkers
from pytest_imgedit.workers.hardware import Hardware, HostHardware


def test_a_plan_starts_the_judge_ahead_where_all_edits_are_stored(tmp_path):
    world = World(tmp_path)
    world.run()
    assert world.started_ahead == []  # edits were made first
    world.plan(judge={"protocol": "seeds"})
    assert world.started_ahead == [4]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"run": {"stage": "report"}}, id="report"),
        pytest.param({"run": {"stage": "edit"}}, id="edits-alone"),
        pytest.param({"run": {"fresh": True}}, id="edits-afresh"),
        pytest.param({"editor": {"seed": 7}}, id="other-edits"),
    ],
)
def test_a_plan_does_not_start_the_judge_ahead(tmp_path, settings):
    world = World(tmp_path, editor={"spec": "noise"})
    world.run()
    editor = {"spec": "noise", **settings.get("editor", {})}
    world.plan(**{**settings, "editor": editor})
    assert world.started_ahead == []


def test_a_run_has_its_judge_start_ahead(bench, monkeypatch):
    started = []
    monkeypatch.setattr(SessionWorkers, "start_ahead", lambda self, jobs: started.append(jobs))
    usual = ("--imgedit-judge=fakes:Constant", "--imgedit-limit=1")
    bench.run(*usual)
    assert started == []
    bench.run(*usual, "--imgedit-set=judge.score=6.0")
    assert started == [5]


def test_a_sketch_lacks_the_digests_that_are_not_known(tmp_path):
    judge = make_model("judge", "scenes", {})
    cache = tmp_path / "digests.json"
    drawn = sketch(judge, cache)
    whole = identify(judge, cache)
    assert drawn is not None
    assert drawn.recipe["files"] == {}
    assert (drawn.here, drawn.libraries) == (whole.here, whole.libraries)
    assert whole.recipe["files"]
    assert sketch(judge, cache) is None


class Ahead:
    """Workers of a session with the embedded judge, whose pools start no process."""

    def __init__(self, folder, judge="scenes"):
        self.log = []
        models = {"judge": make_model("judge", judge, {})}
        store = SimpleNamespace(fingerprints=folder / "digests.json")
        self.workers = SessionWorkers(Settings(), models, Hardware((HostHardware(),)), store)
        self.launcher = self.workers.launcher
        vars(self.workers)["launcher"] = SimpleNamespace(
            hosts=None,
            sketch=self.launcher.sketch,
            identify=self.launcher.identify,
            pool=lambda model, identity: FakePool(
                model.role, identity.here, None, Clock(), self.log
            ),
        )


@pytest.fixture
def ahead(tmp_path):
    made = Ahead(tmp_path)
    yield made
    made.workers.close()


def test_the_pool_that_was_started_ahead_is_launched_once(ahead):
    ahead.workers.start_ahead(3)
    assert ahead.log == ["start judge"]
    launched = ahead.workers.launch("judge")
    launched.start(3)
    assert ahead.log == ["start judge"]
    ahead.workers.launch("judge").start(3)
    assert ahead.log == ["start judge"] * 2


def test_a_pool_that_was_started_ahead_and_not_launched_is_closed(ahead):
    ahead.workers.start_ahead(3)
    ahead.workers.close()
    assert ahead.log == ["start judge", "close judge"]
    ahead.workers.close()
    assert ahead.log == ["start judge", "close judge"]


def test_a_judge_whose_digests_are_known_is_not_started_ahead(ahead, tmp_path):
    ahead.launcher.identify(ahead.workers.models["judge"], tmp_path / "digests.json")
    ahead.workers.start_ahead(3)
    assert ahead.log == []


def test_a_judge_on_other_hosts_is_not_started_ahead(ahead):
    ahead.workers.launcher.hosts = SimpleNamespace()
    ahead.workers.start_ahead(3)
    assert ahead.log == []


def test_a_judge_without_weights_is_not_started_ahead(tmp_path):
    ahead = Ahead(tmp_path, judge="openai:http://localhost:1/v1#m")
    ahead.workers.start_ahead(3)
    assert ahead.log == []
