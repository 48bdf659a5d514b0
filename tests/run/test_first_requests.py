"""Each server with something to do is asked once before the first edit."""

from __future__ import annotations

import base64
import io
import itertools
from dataclasses import replace

import pytest
from api_server import api_server, error, graded
from PIL import Image
from run_world import Drawn, World, pairs_of, png

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import SeedTrial
from pytest_imgedit.run.first_requests import ask_servers, doubt_of_model
from pytest_imgedit.run.seed_trial import result_of

MISSING = error(404, "The model `m` does not exist.", code="model_not_found")


@pytest.fixture
def server():
    with api_server() as server:
        yield server


def draws(color_of):
    """Answers edits by an image whose colour is a function of the fields and of the number."""
    count = []

    def answer(fields):
        count.append(fields)
        data = png(color_of(fields, len(count)))
        return 200, {"data": [{"b64_json": base64.b64encode(data).decode()}]}

    return answer


def judged_by(server, folder, pairs=None, **raw):
    judge = {"spec": f"openai:{server.url}#m", "ask_first": True, "retries": 0}
    return World(folder, pairs=pairs, **{"judge": {**judge, **raw.pop("judge", {})}, **raw})


def edited_by(server, folder, **params):
    editor = {"spec": f"openai-images:{server.url}#m", "ask_first": True, "retries": 0, **params}
    return World(folder, editor=editor, run={"stage": "edit"})


def ask(world, **raw):
    plan = world.plan(**raw)
    with world.store:
        ask_servers(plan, world.told.note)
    return plan


def warnings(world):
    return [note for note in world.told.notes if note.startswith("warning: ")]


def shown(body):
    """The sizes of the pictures in a question."""
    parts = body["messages"][-1]["content"]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    data = [base64.b64decode(url.partition("base64,")[2]) for url in urls]
    return [Image.open(io.BytesIO(image)).size for image in data]


def words(body):
    return str([part.get("text") for part in body["messages"][-1]["content"]])


def test_judge_gets_one_question_as_large_as_any_of_the_run(server, tmp_path):
    sides = (16, 400, 64)
    pairs = [
        replace(pair, source=Drawn(n, sides[n]), instruction="change " * (1 + n % 3))
        for n, pair in enumerate(pairs_of("physics", "physics", "physics"))
    ]
    ask(judged_by(server, tmp_path, pairs))
    (body,) = server.asked
    assert shown(body) == [(400, 400), (400, 400)]
    assert "change change change" in words(body)


def test_larger_pictures_are_shrunk_as_the_judge_shrinks_them(server, tmp_path):
    pairs = [replace(pair, source=Drawn(1, 400)) for pair in pairs_of("physics", "physics")]
    ask(judged_by(server, tmp_path, pairs, judge={"max_pixels": 10_000}))
    assert shown(server.asked[0]) == [(100, 100)] * 2


def test_question_is_in_the_bill_and_its_tokens_in_the_usage(server, tmp_path):
    world = judged_by(server, tmp_path)
    plan = ask(world)
    (line,) = [note for note in world.told.notes if note.startswith("plan: judge: ")]
    assert line.startswith("plan: judge: 5 to 21 questions (4 edits, 1 to try the server), 0 in")
    assert plan.scorer.tally.tokens == {"tokens_in": 100, "tokens_out": 10}
    assert plan.scorer.tally.models == {"m-2026": 1}
    assert not world.store.verdicts.records


def test_judge_that_is_not_to_be_asked_is_only_reached(server, tmp_path):
    world = judged_by(server, tmp_path, judge={"ask_first": False})
    ask(world)
    assert (server.got, server.asked) == (["/v1/models"], [])
    assert any("4 to 20 questions (4 edits), 0 in" in note for note in world.told.notes)


@pytest.mark.parametrize("options", [{}, {"fail_under": {"overall": 5.0}}])
def test_nothing_is_asked_where_all_is_stored(server, tmp_path, options):
    world = judged_by(server, tmp_path, judge={"controls": "auto"}, gates=options)
    world.run()
    for stage in ("all", "score", "report"):
        ask(world, run={"stage": stage})
    assert (server.got, server.asked) == ([], [])


def test_edits_alone_ask_no_judge(server, tmp_path):
    ask(judged_by(server, tmp_path), run={"stage": "edit"})
    assert (server.got, server.asked) == ([], [])


def test_stage_without_edits_asks_where_verdicts_are_missing(server, tmp_path):
    world = judged_by(server, tmp_path)
    world.run(run={"stage": "edit"})
    ask(world, run={"stage": "score"})
    assert len(server.asked) == 1


def test_shard_asks_only_where_its_own_pairs_lack_verdicts(server, tmp_path):
    world = judged_by(server, tmp_path)
    every, half = world.pairs, world.pairs[:2]
    world.pairs = half
    world.run()
    ask(world)
    assert server.asked == []
    world.pairs = every[2:]
    ask(world)
    assert len(server.asked) == 1


def test_role_with_an_interpreter_of_its_own_is_not_asked(server, tmp_path):
    world = judged_by(server, tmp_path)
    ask(world, workers={"judge_python": "/usr/bin/python3"})
    assert (server.got, server.asked) == ([], [])
    assert not any("to try the server" in note for note in world.told.notes)


def test_final_answer_ends_the_run_before_the_first_edit(server, tmp_path):
    server.answer = lambda fields: MISSING
    server.models = ("m2",)
    world = judged_by(server, tmp_path)
    with pytest.raises(UsageError, match=r"has no model 'm' .* expected one of 'm2'"):
        ask(world)


def test_failure_that_may_pass_is_a_warning(server, tmp_path):
    server.answer = lambda fields: error(503, "overloaded")
    world = judged_by(server, tmp_path)
    ask(world)
    assert warnings(world) == [
        f"warning: judge openai:{server.url}#m: the first question failed: the server answered "
        "503: overloaded; the run goes on"
    ]


def test_further_judge_and_metric_are_asked_too(tmp_path):
    def answer(fields):
        return graded(fields) if "messages" in fields else (200, {"score": 1.0})

    with api_server(answer) as server:
        judges = {"strict": {"spec": f"openai:{server.url}#other", "ask_first": True}}
        metrics = {"mine": {"spec": f"http-score:{server.url}/score"}}
        world = judged_by(server, tmp_path, judges=judges, metrics=metrics)
        plan = ask(world)
    assert [fields.get("model") for fields in server.asked] == ["m", "other", None]
    assert {"source", "edited"} <= server.asked[2].keys()
    assert plan.additional_scorers[0].tally.tokens["tokens_in"] == 100


def test_each_of_several_servers_is_asked(server, tmp_path):
    with api_server() as second:
        spec = f"openai:{server.url},{second.url}#m"
        world = judged_by(server, tmp_path, judge={"spec": spec})
        plan = ask(world)
        assert (len(server.asked), len(second.asked)) == (1, 1)
        bill = "(4 edits, 2 to try the servers, 1 to compare the servers)"
        assert any(bill in note for note in world.told.notes)
        assert plan.scorer.tally.tokens["tokens_in"] == 200
        second.answer, second.models = lambda fields: MISSING, ("m2",)
        with pytest.raises(UsageError, match=f"{second.url} has no model 'm'"):
            ask(world)


def test_server_after_the_first_may_be_away(server, tmp_path):
    away = "http://127.0.0.1:9/v1"
    world = judged_by(server, tmp_path, judge={"spec": f"openai:{server.url},{away}#m"})
    ask(world)
    (line,) = warnings(world)
    start = f"warning: judge openai:{away}#m: the first question failed: {away} cannot be reached"
    assert line.startswith(start)


def test_section_of_a_further_judge_is_in_the_line(tmp_path):
    def answer(fields):
        if fields["model"] == "other":
            return error(400, "Unsupported parameter: 'temperature'", param="temperature")
        return graded(fields)

    with api_server(answer) as server:
        judges = {"strict": {"spec": f"openai:{server.url}#other", "ask_first": True}}
        with pytest.raises(UsageError, match=r"add to \[judges\.strict\]: temperature ="):
            ask(judged_by(server, tmp_path, judges=judges))


def seeded(fields, number):
    return int(fields["seed"]) * 50


def test_editor_makes_one_small_edit_first(server, tmp_path):
    server.answer = draws(lambda fields, number: 9)
    world = edited_by(server, tmp_path)
    ask(world)
    (fields,) = server.asked
    assert Image.open(io.BytesIO(fields["image"])).size == (512, 512)
    line = "plan: editor: 5 requests (4 edits, 1 to try the server), 0 in the store"
    assert line in world.told.notes
    assert not world.store.edits.records


def test_small_edit_has_as_many_sources_as_the_pair_with_the_most(server, tmp_path):
    server.answer = draws(lambda fields, number: 9)
    world = edited_by(server, tmp_path)
    world.pairs[1] = replace(world.pairs[1], further=(Drawn(70), Drawn(71)))
    world.pairs[2] = replace(world.pairs[2], further=(Drawn(70),))
    plan = world.plan()
    assert len(plan.first_edits.first.sources) == 3
    assert doubt_of_model(plan.editor.model, plan.settings, world.pairs, "editor") == ""
    assert len(server.asked[-1]["image[]"]) == 3


def test_small_edit_has_no_more_sources_than_the_server_takes(server, tmp_path):
    server.answer = draws(lambda fields, number: 9)
    world = edited_by(server, tmp_path, max_sources=2)
    world.pairs[1] = replace(world.pairs[1], further=(Drawn(70), Drawn(71)))
    world.pairs[2] = replace(world.pairs[2], further=(Drawn(70),))
    plan = world.plan()
    assert len(plan.first_edits.first.sources) == 2
    assert doubt_of_model(plan.editor.model, plan.settings, world.pairs, "editor") == ""
    assert len(server.asked[-1]["image[]"]) == 2
    (line,) = [note for note in world.told.notes if "source images" in note]
    assert line.endswith("takes (p1); they end in errors (editor.max_sources = 2)")
    assert edited_by(server, tmp_path).plan().editor.digest == plan.editor.digest


def test_editor_without_missing_edits_is_not_asked(server, tmp_path):
    world = edited_by(server, tmp_path, send_seed=True)
    world.run()
    ask(world)
    assert (server.got, server.asked) == ([], [])
    assert "plan: editor: 0 requests, 4 in the store" in world.told.notes


@pytest.mark.parametrize(
    ("color_of", "trial"),
    [
        (seeded, SeedTrial(repeats=True, varies=True)),
        (lambda fields, number: 9, SeedTrial(repeats=True, varies=False)),
        (lambda fields, number: number, SeedTrial(repeats=False, varies=True)),
    ],
)
def test_small_edits_try_the_seeds_of_an_editor(server, tmp_path, color_of, trial):
    server.answer = draws(color_of)
    world = edited_by(server, tmp_path, send_seed=True)
    plan = ask(world)
    seeds = [fields["seed"] for fields in server.asked]
    assert seeds[0] in seeds[1:]
    assert len(seeds) == 3
    assert len(set(seeds)) == 2
    assert result_of(plan.editor, world.store) == trial
    line = "plan: editor: 7 requests (4 edits, 3 to try the server and its seeds), 0 in the store"
    assert line in world.told.notes
    again = ask(world, run={"stage": "edit", "fresh": True})
    assert len(server.asked) == 4
    assert result_of(again.editor, world.store) == trial


def test_other_recipe_has_a_trial_of_its_own(server, tmp_path):
    server.answer = draws(seeded)
    world = edited_by(server, tmp_path, send_seed=True)
    ask(world)
    ask(world, editor={**world.raw["editor"], "size": "512x512"})
    assert len(server.asked) == 6


def test_editor_that_is_not_asked_first_has_no_trial(server, tmp_path):
    world = edited_by(server, tmp_path, send_seed=True, ask_first=False)
    plan = ask(world)
    assert server.asked == []
    assert result_of(plan.editor, world.store) is None
    assert "plan: editor: 4 requests, 0 in the store" in world.told.notes


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_trial_with_a_failed_edit_is_left_to_the_next_run(server, tmp_path, failing):
    draw = draws(seeded)
    numbers = itertools.count(1)

    def answer(fields):
        drawn = draw(fields)
        refusal = error(400, "no", code="content_policy_violation")
        return refusal if next(numbers) == failing else drawn

    server.answer = answer
    world = edited_by(server, tmp_path, send_seed=True)
    plan = ask(world)
    assert result_of(plan.editor, world.store) is None
    assert warnings(world) == []
    ask(world)
    assert result_of(plan.editor, world.store) == SeedTrial(repeats=True, varies=True)


def test_answer_without_an_image_is_no_problem_and_no_trial(server, tmp_path):
    server.answer = lambda fields: (200, {"data": [{"b64_json": "bm8gaW1hZ2U="}]})
    world = edited_by(server, tmp_path, send_seed=True)
    plan = ask(world)
    assert result_of(plan.editor, world.store) is None
