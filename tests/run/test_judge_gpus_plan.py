"""What a plan says of GPUs for the judge alone, on machines and by earlier runs that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from documents import MACHINE, a_run
from run_world import World, pairs_of

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.report.write import write_results
from pytest_imgedit.run import judge_gpus
from pytest_imgedit.run.placement import Placement
from pytest_imgedit.workers.gpus import Gpu
from pytest_imgedit.workers.hardware import Hardware, HostHardware

MODELS = {"editor": {"spec": "fakes:Slow"}, "judge": {"spec": "fakes:Constant", "controls": False}}
SERVED = "openai:http://localhost:1/v1#m"


def machine(gpus, own=()):
    """A machine of some GPUs, some of which are the judge's own."""
    names = tuple(str(number) for number in range(gpus))
    known = tuple(Gpu(name=name, product="X", free_gib=80.0, total_gib=80.0) for name in names)
    return Hardware((HostHardware(gpus=names, known=known, judge_gpus=tuple(own)),))


def worker(stage, job, load):
    return {
        "name": f"{stage}-0",
        "device": "GPU 0",
        "stage": stage,
        "jobs": 100,
        "batch_size": 1,
        "busy_s": 100 * job,
        "load_s": load,
        "ready_s": load,
        "gpu_peak": None,
        "host_peak": None,
    }


class Made(World):
    """Plans of twelve edits on four GPUs."""

    def __init__(self, folder):
        super().__init__(folder, pairs_of(*["physics"] * 12), **MODELS)
        self.hardware = machine(4)

    def earlier(
        self, run="r1", edit=10.0, verdict=1.0, load=30.0, product="X", suite="made up", replica=1
    ):
        """Write the results of a run of the models that the settings name."""
        plan = self.plan()
        facts = plan.scorer.facts
        told = {name: facts[name] for name in ("protocol", "variant", "protocol_sha256")}
        workers = [worker("edit", edit, 20.0), worker("score", verdict, load)]
        made = a_run(
            suite={"name": suite, "sha256": "0" * 64, "pairs": 12},
            editor={"spec": "fakes:Slow", **plan.editor.told},
            judge={"spec": "fakes:Constant", **plan.judge.told, **told},
            workers=[each for each in workers if each["busy_s"]],
            run={"id": run, "machine": {**MACHINE, "gpus": [product] if product else []}},
        )
        options = made.run.options.model_copy(
            update={
                "judge": {"batch_size": "auto", "gpus_per_replica": replica},
                "workers": {"gpus_per_worker": 1},
            }
        )
        made = made.model_copy(update={"run": made.run.model_copy(update={"options": options})})
        folder = self.folder / "store" / "runs" / run
        folder.mkdir(parents=True)
        write_results(made, folder)
        return self

    def says(self, **raw):
        """The lines of a plan about the judge's own GPUs, as a run notes them."""
        self.told.notes.clear()
        self.plan(**raw)
        return [line for line in self.told.notes if " takes " in line]


@pytest.fixture
def world(tmp_path):
    return Made(tmp_path)


# 20 s to load, 3 rounds of 10, 30 to load, 3 verdicts a GPU: 83 s
# with one GPU for the judge 4 rounds, and 3 verdicts after them: 63 s
FACTS = "(by run r1: an edit takes 10.0 s, a verdict 1.0 s)"


def test_a_plan_says_what_gpus_for_the_judge_alone_would_save(world):
    assert world.earlier().says() == [
        "plan: editing and judging take about 83 s one after the other, and about 63 s with "
        f"workers.judge_gpus=3 {FACTS}"
    ]


@pytest.mark.parametrize(
    ("own", "setting", "told"),
    [
        ("3", "3", "63 s with workers.judge_gpus=3, and about 83 s on all 4 GPUs without it"),
        (
            "123",
            "1-3",
            "2.4 min with workers.judge_gpus=1-3, and about 83 s on all 4 GPUs without it; about "
            "63 s with 1 GPU for the judge",
        ),
        (
            "23",
            "2-3",
            "81 s with workers.judge_gpus=2-3, as on all 4 GPUs without it; about 63 s with 1 GPU "
            "for the judge",
        ),
    ],
)
def test_a_run_with_such_gpus_is_compared_with_one_without(world, own, setting, told):
    world.earlier()
    world.hardware = machine(4, own)
    said = world.says(workers={"judge_gpus": setting})
    assert said == [f"plan: editing and judging take about {told} {FACTS}"]


def test_over_many_edits_a_swap_is_nothing_and_nothing_is_said(world):
    world.pairs = pairs_of(*["physics"] * 255)
    assert world.earlier().says() == []


def test_verdicts_after_those_on_edits_count(world):
    [line] = world.earlier().says(judge={**MODELS["judge"], "repeats": 1})
    assert "about 86 s one after the other, and about 75 s with" in line


def test_workers_of_several_gpus_are_fewer(world):
    grouped = {"judge": {**MODELS["judge"], "gpus_per_replica": 2}}
    world.earlier(replica=2, load=90.0)
    # 20 s to load, 3 rounds of 10, 90 to load, 6 verdicts each of two; or 90 to load and 12 of one
    [line] = world.says(**grouped)
    assert (
        "about 2.4 min one after the other, and about 1.7 min with workers.judge_gpus=2-3" in line
    )


def test_a_few_seconds_are_nothing(world):
    assert world.earlier(edit=1.0, verdict=0.1, load=9.0).says() == []
    assert len(world.earlier("r2", edit=1.0, verdict=0.1, load=12.0).says()) == 1


def test_a_run_whose_edits_are_stored_only_loses_the_other_gpus(world):
    world.earlier(edit=0.0, verdict=2.0)
    world.run(run={"stage": "edit"})
    assert world.says(run={"stage": "all"}) == []
    world.hardware = machine(4, "3")
    assert world.says(workers={"judge_gpus": "3"}) == [
        "plan: judging takes about 54 s with workers.judge_gpus=3, and about 36 s on all 4 GPUs "
        "without it (by run r1: a verdict takes 2.0 s)"
    ]


def test_figures_are_of_the_newest_run_that_tells_them(world):
    world.earlier("r1").earlier("r2", verdict=0.0).earlier("r3", edit=0.0, verdict=2.0)
    [line] = world.says()
    assert line.endswith("(by runs r2 and r3: an edit takes 10.0 s, a verdict 2.0 s)")


@pytest.mark.parametrize(
    "raw",
    [
        {"editor": {"spec": "fakes:Slow", "delay": 1.0}},
        {"judge": {"spec": "fakes:Constant", "score": 1.0, "controls": False}},
        {"judge": {"spec": "fakes:Constant", "batch_size": 3, "controls": False}},
        {"judge": {"spec": SERVED, "controls": False}},
        {"workers": {"placement": "resident"}},
        {"workers": {"placement": "swap"}},
        {"run": {"stage": "edit"}},
        {"judges": {"second": {"spec": "fakes:Constant"}}},
    ],
    ids=[
        "editor",
        "judge",
        "batch size",
        "served judge",
        "resident",
        "swap",
        "only edits",
        "two judges",
    ],
)
def test_nothing_is_said_of_other_runs(world, raw):
    assert world.earlier().says(**raw) == []


@pytest.mark.parametrize("found", [Placement("resident"), UsageError("GPU 0: does not fit")])
def test_nothing_is_said_of_models_that_fit_together_or_not_at_all(world, monkeypatch, found):
    def place(*_):
        if isinstance(found, UsageError):
            raise found
        return found

    world.earlier()
    monkeypatch.setattr(judge_gpus, "place", place)
    assert world.says() == []


def test_nothing_is_said_of_gpus_whose_type_is_not_known(world):
    [host] = world.hardware.hosts
    world.hardware = Hardware((replace(host, known=()),))
    world.earlier(product="")
    assert world.says() == []


@pytest.mark.parametrize(
    "hardware", [machine(1), machine(0), Hardware(machine(4).hosts, remote=True)]
)
def test_nothing_is_said_where_there_is_no_choice(world, hardware):
    world.earlier()
    world.hardware = hardware
    assert world.says() == []


def test_nothing_is_said_without_an_earlier_run_on_such_gpus(world):
    assert world.says() == []
    assert world.earlier("r1", product="Y").earlier("r2", edit=0.0).says() == []
    assert world.earlier("r3", suite="another").says() == []
    assert len(world.earlier("r4").says()) == 1
