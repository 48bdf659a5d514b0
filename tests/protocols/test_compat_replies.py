"""What `compat` reads of odd replies, grammar by grammar: the rows are what the authors' functions
return.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import ReplyError, UsageError
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.suites import gedit

NOTHING = {}
THOUGHT = "<think>Final Score: 2, [2, 3], 2 of 5</think>\n"


class AnyPrompts(dict):
    """A text for every name."""

    def __missing__(self, name):
        return "Judge."

    def filled(self, name, values, plain):
        return "Judge."


def protocol(name, variant="compat"):
    settings = {"judge": {"protocol": name, "variant": variant}}
    made = load_protocol(Settings.model_validate(settings))
    if not made.__dict__.get("definition") or made.definition.prompts.files:
        made.prompts = AnyPrompts()
    return made


def pair(category="add"):
    return EditPair("a", category, "x", Base64Image(""))


def grammars(name, category):
    """The grammar of each call about a pair of a category."""
    return {call.name: call.grammar for call in protocol(name).calls(pair(category))}


def read(grammar, reply):
    try:
        return grammar.read(reply, "compat")
    except ReplyError:
        return NOTHING


def values(name, category, call, reply):
    """The numbers of a reply to a call, in the order of the names; `None` for a missing one."""
    grammar = grammars(name, category)[call]
    numbers = read(grammar, reply)
    return tuple(numbers.get(each) for each in grammar.names)


RISE = [
    ("Final Score: 4", 4),
    ("**Final Score**: **4**", 4),
    ("Final Score: 4 (good)", 4),
    ("Final Score: 4 out of 5", 4),
    ("Final Score: 4 — all good", 4),
    ("Final Score: 4. It is right.", 4),
    ("Final Score: 4。", 4),
    ("Final Score: 4stars", 4),
    ("Final Score: 4/5", 4),
    ("Final Score: 4/10", 4),
    ("Final Score: 4.5", 4),
    ("Final Score: 4-5", 4),
    ("Final Score: 4%", 4),
    ("Final Score: 04", 4),
    ("Final Score: ４", 4),
    ("Final Score 4", 4),
    ("final score\n\n4", 4),
    ("# Final Score\n\n**4**", 4),
    ("A final score of 5 is too high. Final Score: 4", 4),
    ("The Final Score follows.\nFinal Score: 4", 4),
    ("Final Score: 2\nOn second thought:\nFinal Score: 4", 2),
    ("Final Scores: 2\nFinal Score: 4", 4),
    ("Final Scores: 4", 4),
    (f"{THOUGHT}Final Score: 4", 2),
    ("<answer>Final Score: 4</answer>", 4),
    ("Final Score: -3\nFinal Score: 4", 4),
    ("Final Score : 4", None),
    ("Final Score：4", None),
    ("__Final Score__: 4", None),
    ("`Final Score`: 4", None),
    ("***Final Score***: 4", None),
    ("Final Score is 4", None),
    ("Final  Score: 4", None),
    ("Final Score: [4]", None),
    ("Final Score: X", None),
    ("4", None),
    ("", None),
    # more than the script's numbers, which it takes
    ("Final Score: 9", None),
    ("Final Score: 0", None),
    ("Final Score: 100", None),
    ("Final Score: 3, 4", None),
    ("Final Score: 4\n\n1. The sky is kept.", None),
]


@pytest.mark.parametrize(("reply", "number"), RISE)
def test_risebench_takes_the_digits_behind_the_first_final_score(reply, number):
    assert values("risebench", "causal", "reasoning", reply) == (number,)


@pytest.mark.parametrize(
    ("reply", "number"), [("Final Score: 0", 0), ("Final Score: 1", 1), ("Final Score: 4/5", 1)]
)
def test_risebench_takes_a_number_above_1_for_1_in_logical_pairs(reply, number):
    assert values("risebench", "logical", "reasoning", reply) == (number,)
    replies = {name: {name: float(number)} for name in ("consistency", "reasoning")}
    assert protocol("risebench").item(pair("logical"), replies)["reasoning"] == 4 * number + 1


#: The replies of each row to the common categories, to those of several images and of knowledge.
KRIS = [
    ('{"consistency_score": 4, "reasoning": "2 dogs"}', 4, 4, 4),
    ('{"reason": "2 dogs", "consistency_score": 4}', 4, 4, 4),
    ('```json\n{"consistency_score": 4}\n```', 4, 4, 4),
    ('{"consistency_score": "4"}', 4, 4, 4),
    ('{"consistency_score": 4.9}', 4, 4, 4),
    ('{"consistency_score": true}', 1, 1, 1),
    ('{"consistency_score": "4/5"}', 4, 4, 4),
    ('{"consistency_score": "4/10"}', 4, 4, 4),
    ('{"consistency_score": "4.5"}', 4, 4, 4),
    ('{"consistency_score": "４"}', 4, 4, 4),
    ('{"consistency_score": 2} {"consistency_score": 4}', 2, 2, 2),
    ('{"consistency_score": 2, "consistency_score": 4}', 4, 4, 4),
    ('{"consistency_score": null, "reasoning": "3 dogs"}', 3, 3, None),
    ('{"note": "2 marks for consistency_score"}', 2, 2, None),
    ('{"scores": {"consistency_score": 4}}', 4, 4, 4),
    ('{"consistency_score": {"of 3": 4}}', 3, 3, 3),
    ('{"consistency_score": 4,}', 4, 4, 4),
    ('{"reasoning": "two\nlines, 2 dogs", "consistency_score": 4}', 2, 2, 2),
    ("2 dogs. consistency_score: 4", 4, 2, 4),
    ("2 dogs. Consistency Score：4", 4, 2, 4),
    ("2 dogs. consistency_score 4", 4, 2, 2),
    ("2 dogs. consistency  score\n : 4", 4, 2, 4),
    ("2 dogs. **Consistency Score:** 4", 2, 2, 2),
    ("2 dogs. **Consistency Score**: 4 out of 5", 4, 4, 4),
    ("2 dogs, and I say 4 / 5.", 4, 4, 4),
    ("I cannot judge the 2 images.", 2, 2, 2),
    ("consistency_score: 45", 4, None, 4),
    ("4.5", 4, 4, 4),
    ("图里有2个人", None, None, None),
    ("4th of 20", None, None, None),
    (f"{THOUGHT}consistency_score: 4", 4, 2, 4),
    ('{"consistency_score": "good"}', None, None, None),
    ("", None, None, None),
    # a number beyond the scale, which the scripts take
    ('{"consistency_score": 9}', None, None, None),
    ('{"consistency_score": 0, "reasoning": "4 dogs"}', None, None, None),
    ('{"consistency_score": -3}', None, None, None),
]


@pytest.mark.parametrize(("reply", "common", "images", "knowledge"), KRIS)
def test_kris_takes_the_object_then_the_key_then_a_digit(reply, common, images, knowledge):
    expected = {
        "color_change": common,
        "viewpoint_change": common,
        "multi-element_composition": images,
        "biology": knowledge,
        "abstract_reasoning": knowledge,
    }
    for category, number in expected.items():
        assert values("kris", category, "consistency", reply) == (number,), category


KRIS_TWO = [
    ('{"instruction_score": 4, "knowledge_score": 2}', 4, 2),
    ('{"knowledge_score": "2", "instruction_score": 4.7}', 4, 2),
    ('{"instruction_score": 4}', 4, None),
    ('{"instruction_score": 4, "knowledge_score": null}', 4, None),
    ('{"instruction_score": null, "knowledge_score": 2}', None, 2),
    ('{"instruction_score": 4} {"knowledge_score": 2}', 4, None),
    ('{"instruction_score": 4, "knowledge_score": 9}', 4, None),
    ('{"instruction_score": 0, "knowledge_score": 2}', None, 2),
    ('{"knowledge_score": 2}', None, None),
    ("knowledge_score: 2", None, 2),
    ("Instruction Score: 4, Knowledge Score: 2", 4, 2),
    ("instruction_score：4\nknowledge_score : 2", 4, 2),
    ("Instruction Score: 4/10", 4, None),
    ("instruction score 4, knowledge score 2", None, None),
    ("**Instruction Score:** 4\n**Knowledge Score:** 2", None, None),
    ('{"instruction_score": "4/5", "knowledge_score": 2}', None, None),
    ('{"instruction_score": 2, "knowledge_score": 2} {"instruction_score": 4}', 2, 2),
    ("Both 4 out of 5.", None, None),
]


@pytest.mark.parametrize(("reply", "instruction", "knowledge"), KRIS_TWO)
def test_kris_keeps_the_grades_that_are_there_of_a_reply_with_two(reply, instruction, knowledge):
    assert values("kris", "biology", "instruction", reply) == (instruction, knowledge)


def test_half_a_reply_leaves_one_grade_out_of_an_item_of_kris():
    numbers = grammars("kris", "biology")["instruction"].read('{"instruction_score": 4}', "compat")
    replies = {"consistency": {"consistency": 5.0}, "instruction": numbers}
    item = protocol("kris").item(pair("biology"), {**replies, "quality": {"quality": 3.0}})
    assert item == {"consistency": 5.0, "instruction": 4.0, "quality": 3.0, "score": 4.0}


GEDIT = [
    ('{"score": [7, 8], "reasoning": "x"}', 7, 8),
    ('Good:\n```json\n{"score": [7.5, 8]}\n```', 7.5, 8),
    ('{"score": 7}', 7, 7),
    ('{"score": [7]}', 7, 7),
    ('{"score": [7, 8, 3]}', 7, 3),
    ('{"score": [2, 3], "score": [7, 8]}', 7, 8),
    ('{"score":\n[7,\n8], "reasoning": "two\nlines"}', 7, 8),
    ('{"score": [true, 8]}', 1, 8),
    ('||V^=^V||{"score": [7, 8]}||V^=^V|| {}', 7, 8),
    ("I give [7, 8].", 7, 8),
    ("[7,8]", 7, 8),
    (" 7 ", 7, 7),
    ("７", 7, 7),
    ('{"score": [2, 3]} {"score": [7, 8]}', None, None),
    ('Good {really}: {"score": [7, 8]}', None, None),
    ("{'score': [7, 8]}", None, None),
    ('{"score": ["7", 8]}', None, None),
    ('{"score": [7, 8],}', None, None),
    ('{"score": []}', None, None),
    ('{"score": {"SC": 7}}', None, None),
    ('{"Score": [7, 8]}', None, None),
    ("On [0, 10] I give [7, 8].", None, None),
    ("[7.5, 8]", None, None),
    ("7/10", None, None),
    ("Sorry, no.", None, None),
    # more than the scale, and an object that is no JSON, which the script takes
    ('{"score": [15, 20]}', None, None),
    ("{score: 7, reasoning: fine}", None, None),
]


@pytest.mark.parametrize("name", ["gedit", "gedit-qwen"])
@pytest.mark.parametrize(("reply", "success", "minimality"), GEDIT)
def test_gedit_takes_what_is_between_the_first_and_the_last_brace(name, reply, success, minimality):
    assert values(name, gedit.GROUPS[0], "SC", reply) == (success, minimality)


def test_an_item_of_gedit_with_one_score_beyond_the_scale_is_left_out():
    numbers = grammars("gedit", gedit.GROUPS[0])["SC"].read('{"score": [15, 3]}', "compat")
    replies = {"SC": numbers, "PQ": {"naturalness": 7.0, "artifacts": 8.0}}
    assert protocol("gedit").item(pair(), replies) == NOTHING


A, B, C = "Prompt Compliance", "Visual Naturalness", "Physical & Detail Coherence"
IMGEDIT = [
    (f"Brief reasoning: fine\n{A}: 4\n{B}: 3\n{C}: 3", 3.33),
    (f"{A}: 4\n{B}: 2", 3.0),
    (f"{A}: 4", 4.0),
    (f"{A}: 4\n{B}: 3\n{C}: 3\nOverall: 5", 3.75),
    (f"People: 2\n{A}: 4", 3.0),
    (f"{A}: 4\n{A}: 2", 3.0),
    (f"{A}: **4**\n{B}: 2\n{C}: 2", 2.0),
    (f"{A}: 4/5\n{B}: 2", 2.0),
    (f"{A}: 4.5\n{B}: 2", 2.0),
    (f"**{A}**: 4\n- {B}: 2", 3.0),
    (f"{A} : 4\n{B} : 2", 3.0),
    (f"  {A}: ４  ", 4.0),
    (f"<think>{A}: 1\n{B}: 1</think>\n{A}: 4", 2.5),
    (f"{A}:4\n{B}：2", None),
    (f"{A}: 4, {B}: 2", None),
    (f"{A}: about: 4", None),
    (f"**{A}:** 4", None),
    (f"{A}: ②\n{B}: 2", None),
    ("4", None),
    ("", None),
    # a number beyond the scale, which the script takes
    (f"{A}: 9\n{B}: 1\n{C}: 2", None),
    (f"{A}: 0\n{B}: 4", None),
]


@pytest.mark.parametrize(("reply", "score"), IMGEDIT)
def test_imgedit_takes_the_mean_of_every_line_with_digits(reply, score):
    made = protocol("imgedit")
    (call,) = made.calls(pair())
    numbers = read(call.grammar, reply)
    item = made.item(pair(), {"grades": numbers} if numbers else {})
    assert item.get("score") == score
    assert {*item} <= {"compliance", "look", "detail", "score"}


def test_half_a_reply_of_imgedit_has_the_aspects_that_are_there():
    made = protocol("imgedit")
    numbers = made.calls(pair())[0].grammar.read(f"**{A}**: 4\n2. {B}: 2\n{C}: 3", "compat")
    assert made.item(pair(), {"grades": numbers}) == {"compliance": 4, "detail": 3, "score": 3}


SEEDS = [
    ("7.25", 7.25),
    ("**7.25**", 7.25),
    ("6.5/10", 6.5),
    ("Score: 4.5", 4.5),
    ("Score : 4.5", 4.5),
    ("评分：8", 8.0),
    ("My verdict: 7", 7.0),
    ("7.", 7.0),
    ("<think>First 3, then 4.</think>7", 7.0),
    ("<answer>7</answer>", 7.0),
    ("The edit is fine.", 5.0),
    ("Score: 4 or 5", 5.0),
    ("Of 2 dogs: 7", 5.0),
    ("7\nbecause", 5.0),
    ("11", 5.0),
    ("-3", 5.0),
    ("7/5", 5.0),
    ("<think>7", 5.0),
    ("", 5.0),
]


@pytest.mark.parametrize(("reply", "score"), SEEDS)
def test_seeds_give_the_baseline_where_no_number_can_be_read(reply, score):
    made = protocol("seeds")
    numbers = read(made.calls(pair("physics"))[0].grammar, reply)
    replies = {"plausibility": numbers} if numbers else {}
    assert made.item(pair(), replies) == {"plausibility": score, "score": score}


@pytest.mark.parametrize(
    ("form", "rules"),
    [("json", "kris-images, kris-knowledge"), ("lines", "imgedit"), ("number", "none")],
)
def test_a_rule_that_the_form_does_not_have_is_refused(form, rules):
    message = f"compat is 'mine', expected a rule of the form '{form}': {rules}"
    with pytest.raises(UsageError, match=message):
        Grammar(form, ("a",), compat="mine")


def test_a_form_without_a_script_is_read_as_under_strict():
    grammar = Grammar("lines", ("a", "b"))
    assert read(grammar, "<think>a: 1</think>a: 7.5\nb: 8") == {"a": 7.5, "b": 8}
    assert read(grammar, "a: 7.5") == NOTHING


def own(form, names, **score):
    reply = {"form": form, "names": names}
    call = {"name": "a", "user": "{{ source }}{{ edited }}", "reply": reply}
    table = {"calls": [call], "score": score}
    settings = {"judge": {"protocol": "own", "variant": "compat"}, "protocols": {"own": table}}
    return load_protocol(Settings.model_validate(settings))


def test_an_item_that_lacks_a_number_of_a_formula_is_left_out():
    numbers = read(own("json", ["a", "b"], item="a").calls(pair())[0].grammar, '{"a": 4}')
    assert numbers == {"a": 4}
    assert own("json", ["a", "b"], item="min(a, b)").item(pair(), {"a": numbers}) == NOTHING
    assert own("json", ["a", "b"], item="a").item(pair(), {"a": numbers})["score"] == 4
    assert (
        own("json", ["a", "b"], item="mean").item(pair(), {"a": {"a": 4, "b": 5}})["score"] == 4.5
    )


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scorers():
    """The script that compares with clones."""
    spec = importlib.util.spec_from_file_location(
        "upstream_scorers", ROOT / "perf" / "upstream_scorers.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("name", ["gedit", "imgedit", "kris", "omnicontext", "risebench"])
def test_each_form_on_which_compat_differs_from_a_script_is_on_the_page_of_its_suite(scorers, name):
    assert scorers.FORMS[name]
    assert scorers.unlisted(name) == []


@pytest.mark.parametrize("name", ["gedit", "imgedit", "kris", "omnicontext", "risebench"])
def test_the_language_of_odd_replies_is_wide_and_read_within_the_scale(scorers, name):
    for kind in scorers.BENCHMARKS[name]:
        replies = [*scorers.replies(kind)]
        assert replies == [*scorers.replies(kind)]
        assert len(replies) == 2000
        assert scorers.forms(kind) >= 60
        assert len({*replies}) > 1000
    grammar = next(iter(grammars(name, "add" if name == "imgedit" else "causal").values()))
    for reply in replies:
        for value in read(grammar, reply).values():
            assert math.isfinite(value)
            assert grammar.holds(value)
