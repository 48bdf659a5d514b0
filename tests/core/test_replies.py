"""What is read of a judge's reply: what was asked for and nothing else."""

from __future__ import annotations

from itertools import product

import pytest

from pytest_imgedit.core.errors import ReplyError, UsageError
from pytest_imgedit.core.reply import Grammar, number_places
from pytest_imgedit.core.reply_marks import ANSWERS, THOUGHTS

LINES = Grammar("lines", ("instruction", "preservation", "realism"))
NUMBER = Grammar("number", ("plausibility",))
KRIS = Grammar("json", ("consistency",), (1, 5), True, ("consistency_score",))
KRIS_TWO = Grammar(
    "json", ("instruction", "knowledge"), (1, 5), True, ("instruction_score", "knowledge_score")
)
GEDIT = Grammar("list", ("success", "minimality"), (0, 10), labels=("score",))
RISE = Grammar("final", ("reasoning",), (1, 5), True)

UNREADABLE = None


def read(grammar, reply):
    """Return the numbers of a reply in their order, or `UNREADABLE`."""
    try:
        return tuple(grammar.read(reply).values())
    except ReplyError:
        return UNREADABLE


#: A number as judges write it where one number is expected, and what a person reads.
ODD = {
    "4-5": UNREADABLE,
    "4–5": UNREADABLE,
    "4,5": UNREADABLE,
    "5%": UNREADABLE,
    "5/100": UNREADABLE,
    "5/7": UNREADABLE,
    "4 or 5": UNREADABLE,
    "4/5/5": UNREADABLE,
    "between 4 and 5": UNREADABLE,
    "five": UNREADABLE,
    "-5": UNREADABLE,
    "−5": UNREADABLE,
    "+5": UNREADABLE,
    "~5": UNREADABLE,
    ">4": UNREADABLE,
    "5x": UNREADABLE,
    "5+": UNREADABLE,
    "0x5": UNREADABLE,
    "1e0": UNREADABLE,
    "1.000.000": UNREADABLE,
    "4.99999999": UNREADABLE,
    "٥": UNREADABLE,
    "⑤": UNREADABLE,
    "½": UNREADABLE,
    "N/A": UNREADABLE,
    "null": UNREADABLE,
    "true": UNREADABLE,
    "NaN": UNREADABLE,
    "1e400": UNREADABLE,
    "": UNREADABLE,
    "5 is impossible here, I give 1": UNREADABLE,
    "4 (but 1 for the sky)": UNREADABLE,
    "4 out of 7": UNREADABLE,
    "5 5": UNREADABLE,
    "99": UNREADABLE,
    "[5]": UNREADABLE,
}
PLAIN = {"4": 4, "4.0": 4, "**4**": 4, "`4`": 4, " 4 ": 4}
#: By grammar: replies in the form that is asked for around one number, what else they hold, and
#: the end of the scale.
FORMS = {
    "lines": (LINES, ["instruction: {}\npreservation: 7\nrealism: 9"], (7, 9), 10),
    "number": (NUMBER, ["{}", "Score: {}", "plausibility: {}", "评分：{}"], (), 10),
    "json": (KRIS, ['{{"consistency_score": "{}", "reasoning": "3 of 5, [1, 2]"}}'], (), 5),
    "list": (GEDIT, ['{{"score": ["{}", 7], "reasoning": "on [0, 10]"}}'], (7,), 10),
    "final": (RISE, ["**Final Score**: {}"], (), 5),
}
THOUGHT = 'The box [3, 9] is 2/5 gone.\nscore: 1\nFinal Score: 1\n{"score": [1, 1]}\nrealism: 1\n'
#: What stands around a reply and does not change what a person reads.
AROUND = {
    "nothing": "{}",
    "thought": f"<think>{THOUGHT}</think>\n{{}}",
    "thinking": f"<thinking>{THOUGHT}</thinking>\n\n{{}}",
    "opening mark in the prompt": f"{THOUGHT}</think>{{}}",
    "thought of Kimi": f"◁think▷{THOUGHT}◁/think▷{{}}",
    "answer": f"{THOUGHT}<answer>{{}}</answer>{THOUGHT}",
    "box": f"{THOUGHT}<|begin_of_box|>{{}}<|end_of_box|>",
    "thought and answer": f"<think>{THOUGHT}</think><answer>\n{{}}\n</answer>",
    "blank lines": "\n\n{}\n\n",
}
#: What makes a reply unreadable, whatever else it holds.
SPOILS = {
    "thought without an end": "<think>{}",
    "nested thoughts": "<think>a<think>b</think>{}</think>",
    "repeated thoughts": "<think>a</think>{}<think>b</think>",
    "crossing thoughts": "<think>a<thinking>b</think>c</thinking>{}",
    "two ends of thoughts": "a</think>{}</think>",
    "an end before the beginning": "</think><think>{}",
}


def filled(template, text):
    """Put a text in place of the braces of a template that holds others."""
    return template.replace("{}", text.replace("{}", ""), 1)


def replies(form):
    """Yield replies in a form around one number each, and that number's text."""
    _, templates, _, _ = FORMS[form]
    for template, text in product(templates, {**ODD, **PLAIN}):
        yield template.format(text), text


@pytest.mark.parametrize("form", FORMS)
def test_odd_replies_are_read_as_a_person_would_or_not_at_all(form):
    grammar, _, others, end = FORMS[form]
    expected = {**ODD, **PLAIN}
    seen = 0
    for (reply, text), around in product(replies(form), AROUND.values()):
        seen += 1
        number = expected[text]
        wanted = UNREADABLE if number is UNREADABLE else (number, *others)
        assert read(grammar, filled(around, reply)) == wanted, filled(around, reply)
    for (reply, _), around in product(replies(form), SPOILS.values()):
        seen += 1
        assert read(grammar, filled(around, reply)) is UNREADABLE, filled(around, reply)
    assert seen >= 300
    whole = FORMS[form][1][0]
    assert read(grammar, whole.format(f"4/{end}")) == (4, *others)
    assert read(grammar, whole.format(f"4 / {end}")) == (4, *others)


#: Replies of which a number was once read that is not the judge's grade.
WRONG_NUMBERS = [
    (GEDIT, "I'm sorry, I can't rate this edit on the scale [0, 10]."),
    (GEDIT, "The edit put a dot at [3, 9]. I cannot judge it."),
    (GEDIT, "Nothing changed within [10, 10], so I decline to score."),
    (GEDIT, '{"score": [1, 1], "reasoning": "bad", "score": [9, 9]}'),
    (GEDIT, '{"score": [4,5, 7,5]}'),
    (GEDIT, '{"reasoning": "the [8, 9] tile", "score": [2, '),
    (GEDIT, '{"score": [[1], [2]]}'),
    (GEDIT, '<think>a <think>b</think> maybe {"score": [9, 9]} no</think> I refuse.'),
    (GEDIT, '<thinking>maybe {"score": [9, 9]}</thinking> I refuse.'),
    (GEDIT, 'Output must be {"score" : [...]}. As in the example [score1, score2]'),
    (GEDIT, "On a scale of [0, 10] the edit is good.\nscore1: 8, score2: 9"),
    (GEDIT, '{"score1": 8, "score2": 9, "reasoning": "on [0, 10]; the sign reads "STOP""}'),
    (GEDIT, '{"reasoning": "oops "quoted", "example": {"score": [9, 9]}'),
    (GEDIT, '{"reasoning": "it says "STOP" {"score": [1, 1]}", "score": [9, 9]}'),
    (GEDIT, 'The form is {"score": [a, b]}. Mine: {"score": [8, 9]}'),
    (GEDIT, '{"score": [8, 9]} or rather "score": [1, 1]'),
    (GEDIT, '{"score": [8, 9]}\n{"score": [1, 1]}'),
    (GEDIT, '[{"score": [8, 9]}, {"score": [7, 7]}]'),
    (GEDIT, '<answer>{"score": [8, 9]}</answer><answer>{"score": [1, 1]}</answer>'),
    (GEDIT, '{"overall_score": [8, 9]}'),
    (GEDIT, '{"score": 8}'),
    (GEDIT, '{"score": [true, 9]}'),
    (KRIS, "3 out of 5 flowers were turned blue although none should be; it is ruined."),
    (KRIS, "Only 2/5 of the wall is kept. I will not grade this."),
    (KRIS, '{"consistency_score": 1-5, "reason": "the scale is "1 to 5""}'),
    (KRIS, "consistency_score: 4-5"),
    (KRIS, "consistency_score: 4,5"),
    (KRIS, '{"consistency_score": 4,5}'),
    (KRIS, '"consistency_score": 1e1'),
    (KRIS, '"consistency_score": 1x'),
    (KRIS, '"consistency_score": 5/100'),
    (KRIS, "consistency_score: 5%"),
    (KRIS, "consistency_score: 1.000.000"),
    (KRIS, '{"consistency_score": 1, "consistency_score": 5}'),
    (KRIS, "consistency_score: 5 is impossible here, I give 1"),
    (KRIS, "consistency_score: 4 or 5"),
    (KRIS, '{"consistency_score": 4.9999999}'),
    (KRIS, '{"consistency_score": 1e1}'),
    (KRIS, '{"inconsistency_score": 5}'),
    (KRIS, "inconsistency_score: 5"),
    (KRIS_TWO, "self_instruction_score: 5, my_knowledge_score: 5"),
    (KRIS_TWO, '{"instruction_score": 5}'),
    (KRIS, "consistency_score: -5"),
    (KRIS, "consistency_score: −5"),
    (KRIS, "consistency_score: 4/10"),
    (KRIS, '{"consistency_score": "4/10"}'),
    (RISE, "Final Score: 4\nFinal Scores: 4/5"),
    (RISE, "Final Score: 4/10"),
    (RISE, "A final score of 5 is out of the question."),
    (RISE, "If the flag were red, I would say Final Score: 5"),
    (NUMBER, "I cannot rate this image, error code: 5"),
    (NUMBER, "Try again at: 8"),
    (NUMBER, "Implausibility: 8"),
    (NUMBER, "Score before: 8"),
    (LINES, "instruction: 5\nINSTRUCTION: 6\npreservation: 5\nrealism: 5"),
    (LINES, "instruction: 5/10\npreservation: 5/5\nrealism: 5"),
    (LINES, "self-instruction: 5\npreservation: 5\nrealism: 5"),
    (LINES, '{"instruction": 5, "preservation": 5, "realism": 5}'),
]


@pytest.mark.parametrize(("grammar", "reply"), WRONG_NUMBERS)
def test_no_number_of_the_prose_is_a_grade(grammar, reply):
    assert read(grammar, reply) is UNREADABLE


@pytest.mark.parametrize(
    ("grammar", "reply", "numbers"),
    [
        (GEDIT, 'Good {really}.\n```json\n{"reasoning": "{a}", "score": [8, 9.5]}\n```', (8, 9.5)),
        (GEDIT, '{"score": [8, 9]} I repeat: {"score": [8, 9]}', (8, 9)),
        (GEDIT, '{"reasoning": "asked for {\\"score\\": [a, b]}", "score": [8, 9]}', (8, 9)),
        (GEDIT, '{"score": [8, 9], "of parts": {"score": [1, 1]}}', (8, 9)),
        (GEDIT, '<answer>{"score": [8, 9]}', (8, 9)),
        (KRIS, '{"consistency_score": 4, "consistency_score": 4}', (4,)),
        (KRIS_TWO, '{"knowledge_score": 2, "instruction_score": "5/5"}', (5, 2)),
        (RISE, "# Final Score\n\n**4**", (4,)),
        (RISE, "Consistent.\n\nFinal Scores: `4`\nFinal Score: 4", (4,)),
        (NUMBER, "**Rating**: 7.5", (7.5,)),
        (LINES, "1. **Instruction**: 8\n2. **Preservation**: 7\n3. **Realism**: 9", (8, 7, 9)),
    ],
)
def test_what_was_asked_for_is_read(grammar, reply, numbers):
    assert read(grammar, reply) == numbers


@pytest.mark.parametrize(("first", "last"), [*THOUGHTS, *ANSWERS])
def test_marks_are_found_in_any_case_and_at_their_place(first, last):
    words = "instruction: 8\npreservation: 7\nrealism: 9"
    is_thought = (first, last) in THOUGHTS
    reply = f"{first.upper()}realism: 1{last}\n{words}"
    if not is_thought:
        reply = f"realism: 1\n{first}{words}{last.upper()}"
    assert read(LINES, reply) == (8, 7, 9)
    places = number_places(reply, LINES.called)
    assert [reply[place] for place in places.values()] == ["8", "7", "9"]


def test_a_reply_whose_answer_cannot_be_found_has_no_places():
    assert number_places("<think>realism: 1", ["realism"]) == {}


@pytest.mark.parametrize(
    ("form", "names", "labels", "message"),
    [
        ("lines", ("a", "A"), (), "the name 'a' is there twice"),
        ("lines", ("a", "b"), ("x", "x"), "the label 'x' is there twice"),
        ("lines", ("a", "b"), ("x",), "1 label for 2 names of the form 'lines', expected 2"),
        ("json", ("a",), ("x", "y"), "2 labels for 1 name of the form 'json', expected 1"),
        ("list", ("a", "b"), ("x", "y"), "2 labels for 2 names of the form 'list', expected 1"),
        ("number", ("a", "b"), (), "the form 'number' has 2 names, expected one"),
        ("final", ("a", "b"), (), "the form 'final' has 2 names, expected one"),
    ],
)
def test_a_grammar_that_no_reply_fits_is_refused(form, names, labels, message):
    with pytest.raises(UsageError, match=message):
        Grammar(form, names, labels=labels)
