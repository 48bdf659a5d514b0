"""Further judges and metrics: they score the edits of a run, one after the other."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from run_world import JUDGE, World, failed, judged

from pytest_imgedit.config.options import further_name
from pytest_imgedit.core.errors import StoreError, UsageError
from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.results import ItemError, Measure
from pytest_imgedit.kinds import registry
from pytest_imgedit.kinds.base import Metric
from pytest_imgedit.report.tables import remarks
from pytest_imgedit.run.finish import EndedRun, make_results

OTHER = "openai:http://localhost:1/v1#other"
GRADES = "instruction: {0}\npreservation: {0}\nrealism: {0}"


class Worker:
    """Stands for what a process would build."""

    def __init__(self, *, device, against="source"):
        pass


class Sharpness(Metric):
    """A made-up metric, lower is better."""

    name = "sharpness"
    worker = Worker
    has_weights = False
    measure = Measure(scale=(0.0, None), lower_is_better=True)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Runs with a judge that says 7, another that says 5, and a metric that says 120."""
    monkeypatch.setattr(registry, "known", lambda role: KNOWN.get(role, REAL(role)))
    world = World(tmp_path, judges={"second": {"spec": OTHER}}, metrics={"sharpness": {}})
    world.further = {
        OTHER: lambda message: judged(message, reply=GRADES.format(5)),
        "sharpness": lambda message: judged(message, reply="", score=120.0),
    }
    return world


REAL = registry.known
KNOWN = {"metric": {"sharpness": f"{__name__}:Sharpness"}}


def results_of(world, **raw):
    run = world.run(**raw)
    ended = EndedRun(
        plan=run.plan,
        timing=run.timing,
        workers=run.workers,
        additional_workers=run.additional_workers,
        trials=run.trials,
        run_id="r",
        started=datetime(2026, 1, 1, tzinfo=UTC),
        stopped_by="",
        hosts=[],
    )
    with world.store:
        return make_results(ended)


def test_every_edit_gets_a_value_of_each(world):
    results = results_of(world)
    assert results.run.status == "complete"
    for item in results.items:
        assert item.score == 7.0
        assert (item.value("second.score"), item.value("sharpness")) == (5.0, 120.0)
        assert item.value("second.preservation") == 5.0
    means = {name: measured.rows[OVERALL].mean for name, measured in results.measures.items()}
    assert (means["score"], means["second.score"], means["sharpness"]) == (7.0, 5.0, 120.0)
    assert results.measures["second.score"].is_main
    assert results.measures["sharpness"].lower_is_better


def test_they_load_once_each_after_the_judge_is_gone(world):
    world.run()
    order = [line for line in world.log if "does" not in line]
    assert order[-7:] == [
        "close judge",
        *(f"{what} {OTHER}" for what in ("start", "load", "close")),
        *(f"{what} sharpness" for what in ("start", "load", "close")),
    ]


def test_a_metric_added_later_loads_neither_editor_nor_judge(world):
    raw = {**world.raw}
    world.raw = {}
    world.run()
    world.log.clear()
    results = results_of(world, metrics=raw["metrics"])
    assert [line for line in world.log if line.startswith("load")] == ["load sharpness"]
    assert results.measures["sharpness"].rows[OVERALL].mean == 120.0


def test_a_second_run_asks_nothing(world):
    results_of(world)
    world.log.clear()
    results = results_of(world)
    assert not [line for line in world.log if "does" in line]
    assert results.measures["second.score"].rows[OVERALL].mean == 5.0


def test_a_run_that_was_stopped_asks_for_what_is_missing_only(world):
    def stop(message):
        world.told.stopping = True
        return judged(message, reply=GRADES.format(5))

    world.further[OTHER] = stop
    stopped = results_of(world)
    assert stopped.run.status == "incomplete"
    missing = [item for item in stopped.items if "sharpness" in item.missing]
    assert len(missing) == len(stopped.items)
    assert {item.status for item in stopped.items} == {"scored"}
    world.told.stopping = False
    world.log.clear()
    world.further[OTHER] = lambda message: judged(message, reply=GRADES.format(5))
    results = results_of(world)
    assert results.run.status == "complete"
    assert "openai" not in " ".join(line for line in world.log if "judge does" in line)
    assert [line for line in world.log if line == "sharpness does judge"]
    assert not any(item.missing for item in results.items)


def test_what_fails_is_counted_with_its_reason_and_spoils_no_score(world):
    world.further["sharpness"] = lambda message: (
        failed("crash", "no such thing")
        if any(question["pair_id"] == "p1" for question in message["questions"])
        else judged(message, reply="", score=120.0)
    )
    results = results_of(world)
    row = results.measures["sharpness"].rows["physics"]
    assert (row.n, row.scored, row.errors) == (2, 1, 1)
    assert results.measures["score"].rows["physics"].errors == 0
    (failure,) = [
        end
        for item in results.items
        for end in item.seeds[0].further.values()
        if isinstance(end, ItemError)
    ]
    assert failure.message == "no such thing"
    assert any(
        "metric sharpness: 1 of 4 edits without a value" in line for line in remarks(results)
    )


@pytest.mark.parametrize("fails", [OTHER, "sharpness"])
@pytest.mark.parametrize("when", ["at once", "later", "no worker"])
@pytest.mark.everyday_for(
    "at once-openai:http://localhost:1/v1#other",
    "later-openai:http://localhost:1/v1#other",
    "no worker-sharpness",
)
def test_one_that_cannot_load_is_told_and_takes_no_score_with_it(world, fails, when):
    answer = world.further[fails]
    jobs = []

    def refuse(message):
        jobs.append(message)
        if when == "no worker":
            return failed("no_worker", "could not load: model: weights of another shape")
        if when == "at once" or len(jobs) > 1 or fails == "sharpness":
            raise UsageError("model: weights of another shape")
        return answer(message)

    world.further[fails] = refuse
    world.raw["judges"]["second"]["batch_size"] = 1
    run = world.run()
    [line] = run.failed_scorers
    assert line.endswith("model: weights of another shape")
    assert fails.rpartition("#")[2] in line or "second" in line
    for work in run.plan.works:
        assert work.verdict is not None
        for scored in work.additional_judgements.values():
            assert (scored.verdict is None) == (scored.error is not None)
            assert scored.error is None or scored.error.kind == "no_worker"
    world.further[fails] = answer
    results = results_of(world)
    assert not any(item.missing for item in results.items)


def test_a_full_disk_while_a_further_one_scores_stops_the_run(world):
    def full(message):
        raise StoreError("verdicts.jsonl: No space left on device")

    world.further[OTHER] = full
    with pytest.raises(StoreError):
        world.run()


def test_a_report_says_what_the_store_lacks(world):
    further = {"judges": world.raw.pop("judges"), "metrics": world.raw.pop("metrics")}
    world.run()
    results = results_of(world, **further, run={"stage": "report"})
    assert results.run.status == "complete"
    ends = [end for item in results.items for end in item.seeds[0].further.values()]
    assert {end.kind for end in ends} == {"not_scored"}
    assert all("sharpness" in item.missing for item in results.items)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_value_beyond_the_scale_is_an_error(world, value):
    world.further["sharpness"] = lambda message: judged(message, reply="", score=value)
    results = results_of(world)
    assert all("sharpness" in item.missing for item in results.items)
    ends = [item.seeds[0].further["sharpness"] for item in results.items]
    assert {end.kind for end in ends} == {"bad_score"}
    assert "expected a finite number, 0 or more" in ends[0].message


def test_their_agreement_with_the_judge_is_told(world):
    def graded(grades):
        def answer(message):
            reply = judged(message)
            for question, one in zip(message["questions"], reply["answers"], strict=True):
                one["reply"] = GRADES.format(grades[question["pair_id"]])
            return reply

        return answer

    world.judge = graded({"p0": 2, "p1": 4, "p2": 6, "p3": 8})
    world.further[OTHER] = graded({"p0": 1, "p1": 3, "p2": 6, "p3": 9})
    results = results_of(world)
    agreement = results.further["second"].agreement
    assert (agreement.n, agreement.spearman) == (4, pytest.approx(1.0))
    assert agreement.difference == pytest.approx(-0.25)
    assert results.further["sharpness"].agreement.spearman is None  # all values are alike
    line = next(line for line in remarks(results) if line.startswith("judge second: "))
    assert "Spearman 1.00" in line
    assert "its mean less that of the judge -0.25" in line


def test_a_run_without_a_judge_is_measured_too(world):
    results = results_of(world, judge={"spec": "none"}, judges={})
    assert {item.status for item in results.items} == {"edited"}
    assert results.measures["sharpness"].rows[OVERALL].mean == 120.0
    assert results.further["sharpness"].agreement is None


def test_a_run_that_is_to_edit_only_is_measured_by_nothing(world):
    results = results_of(world, run={"stage": "edit"})
    assert results.further == {}
    assert "sharpness" not in results.measures


def test_a_metric_that_compares_with_the_reference_leaves_other_pairs_out(world):
    with pytest.raises(UsageError, match="metric 'sharpness': no pair has a reference image"):
        world.run(metrics={"sharpness": {"against": "reference"}})


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"judges": {"a b": {}}}, "'a b' cannot be a name"),
        ({"metrics": {"score": {"spec": "sharpness"}}}, "'score' cannot be a name"),
        ({"judges": {"sharpness": {"spec": JUDGE}}}, "a judge has this name too"),
        ({"judges": {"second": {"spec": "none"}}}, "'none' does not score edits"),
        ({"metrics": {"sharp": {}}}, "unknown metric 'sharp', expected one of"),
        ({"judges": {"second": {"reasks": -1}}}, "judges.second.reasks: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(world, tables, line):
    with pytest.raises(UsageError, match=line):
        world.plan(**tables)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("lpips", "lpips"),
        ("qwen-vl:Qwen/Qwen3-VL-30B-A3B", "Qwen3-VL-30B-A3B"),
        ("openai:http://localhost:8000/v1#gpt-5", "gpt-5"),
        ("mine.judges:Strict", "Strict"),
        ("clip-image:/models/clip/", "clip"),
    ],
)
def test_a_spec_names_itself(spec, name):
    assert further_name(spec) == name
