"""The canary of a served judge: the same two questions before, during and after a run."""

from dataclasses import replace

import pytest
from run_world import Drawn, World, failed, judged, pairs_of, png

from pytest_imgedit.cli.merge import _canary
from pytest_imgedit.report import tables
from pytest_imgedit.run import canary as canaries
from pytest_imgedit.run.canary import ENOUGH, rounds_of

CATEGORIES = ["physics"] * 60


class Judge:
    """Answers 7 to everything, and keeps the pictures of which it was asked; `change` answers the
    questions of the canary by the number of their round.
    """

    def __init__(self, change=lambda number, answers: None):
        self.change, self.asked, self.rounds = change, [], 0

    def __call__(self, message):
        reply = judged(message, model="m fp_1", finish_reason="stop")
        pictures = [question["images"]["edited"] for question in message["questions"]]
        self.asked.append(pictures)
        if pictures[0] in (png(0), png(1)):  # a source, not an edit
            self.rounds += 1
            return self.change(self.rounds, reply["answers"]) or reply
        return reply


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, pairs=pairs_of(*CATEGORIES))


def run(world, judge, **raw):
    world.judge = judge
    return world.run(**raw)


def test_two_questions_come_before_the_first_and_after_the_last(world):
    judge = Judge()
    done = run(world, judge)
    canary = done.scorer.facts["canary"]
    assert judge.asked[0] == judge.asked[-1] == [png(0), png(1)]
    assert judge.rounds == canary.rounds == rounds_of(60) == 2
    assert sum(map(len, judge.asked)) == 60 + 4
    assert (canary.answers, canary.repeats, canary.differing, canary.failed) == (4, 2, 0, 0)
    assert canary.models == ("m fp_1",)
    assert not canary.has_changed
    assert done.scorer.usage.tokens_in == 640
    assert len(done.plan.store.verdicts.records) == 60
    assert all(work.verdict.score == 7 for work in done.plan.works)


def test_questions_come_again_after_so_many_others(world, monkeypatch):
    monkeypatch.setattr(canaries, "EVERY", 20)
    judge = Judge()
    assert run(world, judge).scorer.facts["canary"].rounds == judge.rounds == rounds_of(60) == 4


def test_reference_takes_the_place_of_an_edit(tmp_path):
    first, *others = pairs_of(*CATEGORIES)
    judge = Judge()
    run(World(tmp_path, pairs=[replace(first, reference=Drawn(99)), *others]), judge)
    assert judge.asked[0] == [png(99), png(1)]


def test_judge_of_this_machine_has_none(tmp_path):
    plan = World(tmp_path, pairs=pairs_of(*CATEGORIES), judge={"spec": "scenes"}).plan()
    assert plan.scorer.start_canary(plan.scorer.judgements(plan.works)) is None


def test_short_run_has_none(tmp_path):
    judge = Judge()
    world = World(tmp_path, pairs=pairs_of(*CATEGORIES[: ENOUGH - 1]))
    assert run(world, judge).scorer.facts["canary"] is None
    assert sum(map(len, judge.asked)) == ENOUGH - 1


def test_resumed_run_with_few_questions_left_has_none(world):
    run(world, Judge())
    judge = Judge()
    assert run(world, judge).scorer.facts["canary"] is None
    assert not judge.asked


def lines(canary):
    return list(tables._canary("judge", canary))


def test_other_words_are_the_noise_of_the_server(world):
    def change(number, answers):
        answers[0]["reply"] += " " * number + "!" * number

    canary = run(world, Judge(change)).scorer.facts["canary"]
    assert (canary.repeats, canary.differing) == (2, 1)
    assert lines(canary)[0] == (
        "judge, canary: 1 of 2 repeated answers differ in their words, the server's own noise"
    )


def test_other_grade_after_the_run_is_a_line_and_a_field(world):
    def change(number, answers):
        if number == 2:
            answers[1]["reply"] = "instruction: 2\npreservation: 7\nrealism: 7"

    canary = run(world, Judge(change)).scorer.facts["canary"]
    (grade,) = canary.grades
    assert (grade.picture, grade.name, grade.before, grade.after) == ("other", "instruction", 7, 2)
    assert canary.has_changed
    assert lines(canary)[1] == (
        "warning: judge, canary: instruction of the other picture was 7 before the run and is 2 "
        "after it: the judge may be another one"
    )


@pytest.mark.parametrize("model", ["m fp_2", "n fp_1"])
def test_other_model_or_fingerprint_is_a_line_and_a_field(world, model):
    def change(number, answers):
        if number == 2:
            for answer in answers:
                answer["model"] = model

    canary = run(world, Judge(change)).scorer.facts["canary"]
    assert canary.models == ("m fp_1", model)
    assert lines(canary)[-1] == (
        f"warning: judge, canary: the server answered as m fp_1, then {model}"
    )


@pytest.mark.parametrize("ends", ["answer", "worker"])
def test_question_without_an_answer_is_counted_and_spoils_nothing(world, ends):
    def change(number, answers):
        if number == 1 and ends == "worker":
            return failed("worker_died")
        if number == 1:
            answers[0] |= {"error": "busy", "reply": ""}
        return None

    done = run(world, Judge(change))
    canary = done.scorer.facts["canary"]
    assert canary.failed == (2 if ends == "worker" else 1)
    assert not canary.has_changed
    assert all(work.verdict.score == 7 for work in done.plan.works)
    assert "without an answer" in lines(canary)[0]


def test_plan_counts_the_questions_of_the_canary(world):
    world.plan()
    assert any(
        "judge: 64 to 304 questions (60 edits, 4 of the canary)" in note
        for note in world.told.notes
    )


def test_further_judge_has_a_canary_of_its_own(world):
    other = Judge()
    spec = "openai:http://localhost:2/v1#n"
    world.further[spec] = other
    done = run(world, Judge(), judges={"second": {"spec": spec}})
    (additional,) = done.plan.additional_scorers
    assert additional.facts["canary"].rounds == other.rounds == 2


def test_merged_shards_add_up_their_canaries(world):
    def change(number, answers):
        for answer in answers:
            answer["model"] = f"m fp_{number}"
        answers[0]["reply"] = f"instruction: {number}\npreservation: 7\nrealism: 7"

    first = run(world, Judge()).scorer.facts["canary"]
    world.raw["run"] = {"fresh": True}
    second = run(world, Judge(change)).scorer.facts["canary"]
    merged = _canary([first, second])
    assert (merged.rounds, merged.answers, merged.repeats, merged.differing) == (4, 8, 4, 1)
    assert merged.models == ("m fp_1", "m fp_2")
    assert merged.grades == second.grades
    assert _canary([]) is None
