"""Expected grades out of the log probabilities that a server sends."""

from __future__ import annotations

import io
import json
import math

import pytest
from asking import Asked
from PIL import Image
from run_world import World, pairs_of
from scripted_server import scripted_server

from pytest_imgedit.core import wire
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.openai import OpenAI
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.kinds.server_answers import read_completion
from pytest_imgedit.kinds.server_logprobs import with_digits
from pytest_imgedit.run.settings_checks import check_protocol
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.answer_checks import checked_answer

GREEDY = "judge.scoring='greedy' needs none"
#: In the place of a grade, what a judge that is not sure could have written instead.
SPREAD = {"4": 0.5, "5": 0.25, "3": 0.125, "the": 0.0625}


def entry(token, chance, data=None):
    data = list(token.encode()) if data is None else data
    return {"token": token, "logprob": math.log(chance), "bytes": data}


def written(token, spread=None, data=None):
    """A token with the likeliest tokens in its place; without `spread` the judge is sure of it."""
    spread = {token: 0.99, "…": 0.005} if spread is None else spread
    alternatives = [entry(text, chance) for text, chance in spread.items()]
    return {**entry(token, spread.get(token, 0.99), data), "top_logprobs": alternatives}


def spelled(*tokens):
    """Tokens of a reply: texts that the judge is sure of, and pairs of a text and its `spread`."""
    return [written(*((token,) if isinstance(token, str) else token)) for token in tokens]


def completion(reply, tokens, **message):
    choice = {"message": {"content": reply, **message}, "finish_reason": "stop"}
    return json.dumps({"choices": [{**choice, "logprobs": {"content": tokens}}]})


def read(reply, tokens, **message):
    text = completion(reply, tokens, **message)
    return with_digits(read_completion(text), text)


def digits(reply, *tokens, **message):
    """The digits' probabilities, but for zeros, by place."""
    answer = read(reply, spelled(*tokens), **message)
    assert answer.error is None
    return {
        place: {digit: round(chance, 6) for digit, chance in enumerate(chances) if chance}
        for place, chances in answer.digits.items()
    }


SPREAD_DIGITS = {3: 0.125, 4: 0.5, 5: 0.25}


def test_digits_that_are_tokens_alone():
    tokens = ("look", ":", " ", ("4", SPREAD), "\n", "detail", ":", " ", "5", "<|im_end|>")
    assert digits("look: 4\ndetail: 5", *tokens) == {6: SPREAD_DIGITS, 16: {5: 0.99}}


def test_spellings_of_one_digit_add_up():
    spread = {" 4": 0.5, "4": 0.125, " 4\n": 0.0625, "▁4": 0.03125, " 5": 0.125, " 45": 0.125}
    assert digits("look: 4", "look", ":", (" 4", spread)) == {6: {4: 0.71875, 5: 0.125}}


def test_marks_in_the_token_of_a_digit():
    assert digits("look:4\nx", "look", (":4\n", {":4\n": 0.5, ":5": 0.25, "4": 0.125}), "x") == {
        5: {4: 0.5, 5: 0.25}  # "look4" would be no grade
    }
    assert digits('{"a":"4"}', '{"', "a", '":', ('"4"}', {'"4"}': 0.75, '"3"}': 0.125})) == {
        6: {3: 0.125, 4: 0.75}
    }


def test_other_tokens_with_a_digit_are_not_told():
    assert digits("look 4.5 of 10 a5", "look", " 4", ".", "5", " of", " 10", " a5") == {
        5: {4: 0.99},
        7: {5: 0.99},
    }


def test_alternatives_that_are_off_the_digits_do_not_count():
    spread = {"4": 0.5, "10": 0.125, "4.": 0.125, "four": 0.0625, "<|im_end|>": 0.0625, "4/5": 0.1}
    assert digits("4", ("4", spread)) == {0: {4: 0.5}}


def test_the_written_token_counts_if_it_is_not_among_the_likeliest():
    token = {**entry("1", 0.125), "top_logprobs": [entry("4", 0.5), entry("5", 0.25)]}
    chances = read("1", [token]).digits[0]
    assert [round(chances[digit], 6) for digit in (1, 4, 5)] == [0.125, 0.5, 0.25]


def test_tokens_may_be_parts_of_characters():
    first, rest = "画".encode()[:1], "画".encode()[1:]
    # as OpenAI escapes them, as vLLM and SGLang replace them, and as vLLM puts them together
    escaped = [
        written("\\x" + first.hex(), {"a": 0.5, "b": 0.5}, list(first)),
        written("\\x" + rest.hex(), {"a": 0.5, "b": 0.5}, list(rest)),
    ]
    for parts in (escaped, spelled("�", "�"), spelled("", "画")):
        answer = read("画质：4", [*parts, *spelled("质", "：", ("4", SPREAD))])
        assert answer.error is None
        assert answer.digits[3][3:6] == pytest.approx([0.125, 0.5, 0.25])


def test_without_bytes_the_text_of_a_token_counts():
    tokens = spelled("look", ":", (" 4", {" 4": 0.5, " 5": 0.25}))
    for token in [*tokens, *tokens[2]["top_logprobs"]]:
        token["bytes"] = None
    assert read("look: 4", tokens).digits[6][4:6] == pytest.approx([0.5, 0.25])


def test_thoughts_and_blanks_before_a_reply():
    thought = ("<think>", "4", " or", " 5", "</think>", "\n\n")
    inside = digits("<think>4 or 5</think>\n\n4", *thought, ("4", SPREAD))
    assert inside == {7: {4: 0.99}, 12: {5: 0.99}, 23: SPREAD_DIGITS}
    apart = digits("4", *thought, ("4", SPREAD), "\n", "<|im_end|>", reasoning="4 or 5")
    assert apart == {0: SPREAD_DIGITS}
    boxed = digits("4", "<think>", "</think>", "<|begin_of_box|>", ("4", SPREAD), "<|end_of_box|>")
    assert boxed == {0: SPREAD_DIGITS}


BARE = {"token": "4", "logprob": 0.0}


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (None, "the server sent no logprobs, expected those of the tokens of its reply"),
        ([], "the server sent no logprobs, expected those of the tokens of its reply"),
        ([BARE], "the server sent no alternatives to the token '4'"),
        ([{**BARE, "top_logprobs": [BARE]}], "expected at least two top_logprobs"),
        (spelled("5"), "the tokens of the server's logprobs do not spell its reply"),
        (spelled("7", "4"), "the tokens of the server's logprobs do not spell its reply"),
        (spelled("4", "7"), "the tokens of the server's logprobs do not spell its reply"),
        (spelled(("4", {"4": 0.9, "5": 0.9})), "add up to 1.8, expected at most 1"),
        ([{**BARE, "top_logprobs": [BARE, {"token": "5"}]}], "a token is None, expected a number"),
        ([{**BARE, "top_logprobs": [BARE, 5]}], "logprobs hold 5, expected a token"),
        ([{**BARE, "bytes": [4000]}], "bytes of a token are [4000], expected bytes"),
        (["4"], "logprobs hold '4', expected a token"),
    ],
)
def test_logprobs_that_do_not_tell_the_digits_are_an_error(tokens, reason):
    answer = read("4", tokens)
    assert reason in answer.error
    assert answer.error.endswith(GREEDY)
    assert (answer.reply, answer.digits) == ("", {})
    assert answer.final == reason.startswith(("the server sent no", "expected at least two"))


def test_an_answer_that_is_none_or_cut_needs_no_logprobs():
    refused = json.dumps({"choices": [{"message": {"content": None, "refusal": "no"}}]})
    cut = json.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": "length"}]})
    for text in (refused, cut, "<html>"):
        assert with_digits(read_completion(text), text) == read_completion(text)


@pytest.fixture
def server():
    with scripted_server() as server:
        yield server


@pytest.mark.parametrize("params", [{}, {"scoring": "expected"}], ids=["greedy", "expected"])
def test_only_expected_grades_ask_for_logprobs(server, params):
    pytest.importorskip("openai")
    model = make_model("judge", f"openai:{server.url}/v1#m", {"retries": 0, **params})
    judge = Asked(model)
    grey = Image.new("RGB", (16, 12))
    question = Question("a", "physics", "lift it", {"source": grey, "edited": grey}, "", ())
    server.answers.append(json.loads(completion("4", spelled(("4", SPREAD)))))
    server.answers.append((400, {"error": {"message": "logprobs is not supported"}}))
    answer, refused = judge.answer([question])[0], judge.answer([question])[0]
    asked = [json.loads(data) for _, _, data in server.posted]
    wanted = {"logprobs": True, "top_logprobs": 20} if params else {}
    for body in asked:
        assert {key: body[key] for key in body if "logprobs" in key} == wanted
    assert answer.reply == "4"
    assert bool(answer.digits) == bool(params)
    assert refused.error == "the server answered 400: logprobs is not supported"


def test_scoring_decides_a_verdict_unless_it_is_the_default(tmp_path):
    def recipe(params):
        model = make_model("judge", "openai:http://h/v1#m", params)
        return identify(model, tmp_path / "cache.json").recipe

    assert recipe({"scoring": "greedy"}) == recipe({})
    assert recipe({"scoring": "expected"})["params"]["scoring"] == "expected"


# --- a run -------------------------------------------------------------------------------------


def protocol(**reply):
    """A protocol with one call, which shows both images, and the mean of its grades as score."""
    reply = {"form": "lines", "names": ["look", "detail"], "scale": [1, 5], **reply}
    call = {"name": "grades", "user": "{{ source }}{{ edited }}Grade it.", "reply": reply}
    return {
        "calls": [call],
        "score": {"item": "mean", "scale": reply["scale"]},
        "rows": [{"mean": "items"}],
    }


def run_of(tmp_path, text, table=None, **judge):
    """A world with one pair, whose judge gets a completion, and the questions that it was asked."""
    asked = []

    def ask(message):
        asked.extend(message["questions"])
        answer = checked_answer(with_digits(read_completion(text), text), batch_size=1)
        answers = [vars(answer) for _ in message["questions"]]
        return {"op": "judged", "batch_size": 1, "answers": answers}

    settings = {"protocol": "mine", "scoring": "expected", "reasks": 0, **judge}
    table = protocol() if table is None else table
    world = World(tmp_path, pairs_of("physics"), judge=settings, protocols={"mine": table})
    world.judge = ask
    return world, asked


def verdict_of(run):
    [work] = run.plan.works
    return work.judged_by("").verdict


REPLY = "look: 4\ndetail: 5"
TOKENS = spelled(
    *("look", ":", (" 4", {" 4": 0.5, " 5": 0.25, " 2": 0.125, " 7": 0.0625})),
    *("\n", "detail", ":", (" 5", {" 5": 0.75, " 1": 0.125})),
)


def test_a_run_scores_by_expected_grades_and_asks_once(tmp_path, monkeypatch):
    monkeypatch.setattr(OpenAI, "reach", lambda _: None)
    world, asked = run_of(tmp_path, completion(REPLY, TOKENS))
    verdict = verdict_of(world.run())
    look = (4 * 0.5 + 5 * 0.25 + 2 * 0.125) / 0.875
    detail = (5 * 0.75 + 1 * 0.125) / 0.875
    assert verdict.aspects["look"] == pytest.approx(look)
    assert verdict.aspects["detail"] == pytest.approx(detail)
    assert verdict.score == pytest.approx(((look + detail) / 2 - 1) / 4 * 10)
    assert verdict.greedy == pytest.approx((4.5 - 1) / 4 * 10)
    assert verdict.off_scale == pytest.approx(0.125)
    assert verdict.replies == {"grades": REPLY}
    assert verdict_of(world.run()) == verdict
    assert len(asked) == 1


def test_another_scale_asks_again(tmp_path, monkeypatch):
    monkeypatch.setattr(OpenAI, "reach", lambda _: None)
    world, asked = run_of(tmp_path, completion(REPLY, TOKENS))
    world.run()
    verdict = verdict_of(world.run(protocols={"mine": protocol(scale=[0, 9])}))
    assert verdict.off_scale == pytest.approx(0.125)
    look = (4 * 0.5 + 5 * 0.25 + 2 * 0.125 + 7 * 0.0625) / 0.9375
    assert verdict.aspects["look"] == pytest.approx(look)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("reply", "tokens", "table", "kind", "reason"),
    [
        ("look: 4\ndetail: 4.5", None, {}, "unreadable_reply", "'detail' is 4.5, expected one"),
        ("look: 4\ndetail: 9", None, {}, "unreadable_reply", "'detail' is '9'"),
        (REPLY, spelled("look: 4", "\n", "detail", ":", " 5"), {}, "bad_score", "part of a token"),
        (REPLY, [], {}, "judge", "the server sent no logprobs"),
    ],
)
def test_a_grade_without_its_probabilities_is_never_the_written_one(
    tmp_path, monkeypatch, reply, tokens, table, kind, reason
):
    monkeypatch.setattr(OpenAI, "reach", lambda _: None)
    if tokens is None:
        tokens = spelled(*reply)
    world, _ = run_of(tmp_path, completion(reply, tokens))
    [work] = world.run().plan.works
    error = work.judged_by("").error
    assert error.kind == kind
    assert reason in error.message


def test_the_numbers_of_a_list(tmp_path, monkeypatch):
    monkeypatch.setattr(OpenAI, "reach", lambda _: None)
    table = protocol(form="list", labels=["score"])
    tokens = spelled(
        '{"', "score", '":', "[", ("4", SPREAD), ",", ("4", {"4": 0.5, "2": 0.5}), "]}"
    )
    world, _ = run_of(tmp_path, completion('{"score":[4,4]}', tokens), table)
    verdict = verdict_of(world.run())
    assert verdict.aspects["look"] == pytest.approx((4 * 0.5 + 5 * 0.25 + 3 * 0.125) / 0.875)
    assert verdict.aspects["detail"] == pytest.approx(3)


@pytest.mark.parametrize(
    ("table", "judge", "line"),
    [
        (
            protocol(scale=[0, 10]),
            {},
            "judge.scoring='expected': protocol mine grades from 0 to 10 in its call 'grades', "
            "expected a scale of one-digit whole numbers over a server, such as 1 to 5 (10 may be "
            "two tokens): choose another judge.protocol, or judge.scoring='greedy'",
        ),
        (
            protocol(),
            {"variant": "compat"},
            "judge.scoring='expected': judge.variant='compat' reads grades wherever the authors' "
            "script does, expected judge.variant='strict' or judge.scoring='greedy'",
        ),
    ],
    ids=["scale", "variant"],
)
def test_what_has_no_place_for_expected_grades_is_refused_before_anything_starts(
    tmp_path, table, judge, line
):
    world, _ = run_of(tmp_path, completion(REPLY, TOKENS), table, **judge)
    suite = Suite(name="made up", pairs=tuple(world.pairs), sha256="0" * 64, counts={})
    model = make_model("judge", "openai:http://h/v1#m", {"scoring": "expected"})
    with pytest.raises(UsageError) as caught:
        check_protocol(world.settings, suite, model)
    assert str(caught.value) == line
    check_protocol(world.settings, suite, make_model("judge", model.spec, {}))


def test_digits_travel_to_the_controller_as_plain_values():
    answer = checked_answer(Answer("4", digits={0: (0.5,) * 10}), batch_size=1)
    assert answer.digits == {0: [0.5] * 10}
    pipe = io.BytesIO()
    wire.send(pipe, vars(answer))
    pipe.seek(0)
    assert Answer(**wire.receive(pipe)) == answer
    assert "expected an Answer" in checked_answer(Answer("4", digits={0: "much"}), 1).error
