"""Replies that choose between two edits: what a person can read, and what is asked again."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.core.errors import CutReply, ReplyError, UsageError
from pytest_imgedit.core.reply import Grammar

FORCED = Grammar("choice", ("score",), (0, 1))
WITH_TIE = Grammar("choice-or-tie", ("score",), (0, 1))
BOTH = pytest.mark.parametrize("grammar", [FORCED, WITH_TIE], ids=["forced", "with tie"])

#: Each chooses B.
READABLE = [
    # JSON, as it comes
    '{"reason": "A lost the house.", "better": "B"}',
    '```json\n{"reason": "A lost the house.", "better": "B"}\n```',
    '```\n{\n  "reason": "A lost the house.",\n  "better": "B"\n}\n```',
    'Here it is: {"reason": "A lost the house.", "better": "B"} I hope that helps.',
    "{'reason': 'A lost the house.', 'better': 'B'}",
    '{"reason": "A lost the house.", "better": "B",}',
    '{"reason": "A lost the house.", "better": "B"',
    '{"reason": "A lost the house.", "better": "B',
    '{"better": "B", "rea',
    '{"better": "B", "reason": "A lost the ho',
    '{"reason": "the word "SALE" is gone in A", "better": "B"}',
    '{"reason": "it says \\"better\\": \\"A\\"", "better": "B"}',
    '{"score_a": 8, "score_b": 3, "better": "B"}',
    '{"reason": "A is better", "better": "B"}',
    '{"better": B}',
    "{better: B}",
    '{"better": ["B"]}',
    '{"better": "Image B"}',
    '{"better": "image_b"}',
    '{"better": "b"}',
    '{"better": "**B**"}',
    '{"better": "Edit B (marginally better)"}',
    '{"better": "B" // it keeps the house\n}',
    '{"better": "B", confidence: 0.8}',
    '{"better": "B" "reason": "A lost the house."}',
    '{"reason": "A lost the house.", better": "B"}',
    '{"reason": "A lost the house.", "better: "B"}',
    "{reason: A lost the house, better: B}",
    '{"Better": "B"}',
    '{"better_edit": "B"}',
    '{"reason": "A lost the house.", "winner": "B"}',
    '{\n "better":\n  "B"\n}',
    "{“better”: “B”}",
    '[{"better": "B"}]',
    '{"result": {"better": "B"}}',
    '{"better": "B"}\n{"better": "B"}',
    '{"reason": "图A丢了房子", "better": "图B"}',
    # a line with the label
    "better: B",
    "Better: **B**",
    "**better**: B",
    "**Better:** B.",
    "- better: Edit B",
    "reason: A lost the house.\nbetter: B",
    "1. reason: A lost the house.\n2. better: B",
    "better = B",
    "better -> B",
    "<better>B</better>",
    "Reason: A lost the house. Better: B",
    "Better: Edit B – it keeps the house.",
    "Better: B. It keeps the house.",
    "Better: Edit B, which keeps the house.",
    "更好：B",
    "better：Ｂ",
    "better: B, because A lost the house.",
    "better: B\n\nA lost the house.",
    "Better edit: B",
    "Answer: B",
    "**Final answer: B**",
    "Winner: Edit B",
    "My choice: B",
    # the choice alone
    "B",
    "b",
    "B.",
    "'B'",
    '"B"',
    "(B)",
    "**B**",
    "[[B]]",
    "### B",
    "\\boxed{B}",
    "$\\boxed{\\text{B}}$",
    "Image B",
    "image_b",
    "Edit B",
    "Edit 2",
    "Response B",
    "Option B.",
    "edited image B",
    "the second",
    "second",
    "second edit",
    "The second one.",
    "B (marginally better)",
    "B (the second edit)",
    "B, slightly",
    "B is better",
    "(B) is better.",
    "Edit B looks much better, overall",
    "B is better than A.",
    "Edit B is slightly better than the other one",
    "B is better because it keeps the house.",
    "I prefer B over A.",
    "- B",
    "The second edit (Edit B) is better.",
    "B > A",
    "A << B",
    "B wins",
    "The better edit is B.",
    "The winner is Edit B!",
    "I choose Edit B.",
    "I would say that B is the better one",
    "Overall, edit B is better.",
    "图B",
    "B更好",
    "第二张",
    "第二张图更好。",
    "选B",
    "答案是B。",
    "因此，图B更好",
    # the choice after or before what is said about the edits
    "Edit A lost the house, which edit B keeps.\n\nB",
    "Edit A lost the house.\nB is better.",
    "B\n\nEdit A lost the house.",
    "Therefore, since A lost the house, [[B]] is my verdict.",
    "**Edit A**\nThe house is gone.\n\n**Edit B**\nIt is there.\n\nbetter: B",
    "Edit A:\nThe house is gone.\nEdit B:\nIt is there.\nB",
    "A\nlost the house.\nB\nkept it.\nSecond edit",
    "### Verdict\n\nBoth keep the sky, but assistant B is sharper.\n\nMy final verdict is: [[B>A]]",
    "**Final Verdict:**\nAssistant B is slightly better due to its light.\n\n[[B>>A]]",
    "**Answer:**\n\nB",
    "**Better:**\nEdit B",
    "Light\nEdit A is better because it has shadows.\nOverall, edit B is better.",
    "Verdict: see below.\nB",
    # thoughts and marks of an answer
    "<think>A is better. No, wait.</think>B",
    "A, no.</think>\nbetter: B",
    "A lost the house. <answer>B</answer>",
    "<|begin_of_box|>B<|end_of_box|>",
]

TIES = [
    '{"reason": "Both lost the house.", "better": "tie"}',
    '{"reason": "Both lost the house.", "better": "Tie (both lost the house)"}',
    '{"better": "none"}',
    '{"better": "Both are equal"}',
    '{"better": "Neither"}',
    "better: tie",
    "tie",
    "Tie.",
    "Tie, both edits are equally good.",
    "About the same",
    "It's a tie.",
    "a draw",
    "equal",
    "both",
    "both are equal",
    "Both images are equally good.",
    "both good",
    "neither",
    "Neither is better",
    "neither A nor B",
    "none",
    "None of them.",
    "A and B are equally good",
    "A and B",
    "The two edits are the same.",
    "They are equally good.",
    "no clear difference",
    "no preference",
    "A = B",
    "[[A=B]]",
    "平局",
    "一样好",
    "两者相当",
    "Both lost the house.\n\ntie",
]

#: What nobody could decide, and a part of what is said about it.
UNREADABLE = [
    ("", "no choice: expected 'better', with A"),
    ("  \n\n", "no choice"),
    ("A or B", "no choice"),
    ("A/B", "no choice"),
    ("A|B", "no choice"),
    ("AB", "no choice"),
    ("A B", "no choice"),
    ("better: A or B", "'better' is 'A or B', expected A"),
    ("better: A/B", "'A/B'"),
    ("better: A, B", "'A, B'"),
    ("better:", "no choice"),
    ("better: C", "'C'"),
    ("better: maybe A", "'maybe A'"),
    ("better: 1", "'1'"),
    ("better: A. B", "'A. B'"),
    ("better: A. No, B.", "'A. No, B.'"),
    ("better: A. Wait, the second one.", "expected A"),
    ('{"better": "A" // or "B"\n}', "expected A"),
    ('{"better": {"A": 0.3, "B": 0.7}}', "expected A"),
    ('{"better": "A","B"', "expected A"),
    ("A. The house is gone.\nB. It is there.", "no choice"),
    ('{"reason": "it is so, better: A"}', "no choice"),
    ("Which is better: A or B?", "no choice"),
    ("[[A]] or [[B]]", "A and B are both chosen"),
    ('better: "A", "B"', "expected A"),
    ('{"better": "A or B"}', "expected A"),
    ('{"better": "A" or "B"}', "expected A"),
    ('{"better": "A", "B"}', "expected A"),
    ('{"better": ["A", "B"]}', "expected A"),
    ('{"reason": "<what decides>", "better": "<A or B>"}', "expected A"),
    ('{"reason": "<what decides>", "better": "<A, B or tie>"}', "expected A"),
    ('{"reason": "A lost the house.", "better":', "'better' is ''"),
    ('{"reason": "A lost the house.", "better": "', "expected A"),
    ('{"reason": "A lost the house.", "bett', "no choice"),
    ('{"reason": "B is better"}', "no choice"),
    ('{"reason":\n"B is better"', "no choice"),
    ('{"reason": "B is better", "better": ""}', "expected A"),
    ('{"reason": "B is better", "better": null}', "'null'"),
    ('{"better": true}', "'true'"),
    ('{"better": 1}', "'1'"),
    ('{"better": "Image C"}', "'\"Image C\"'"),
    ('{"better": "A"}\n{"better": "B"}', "A and B are both chosen"),
    ('{"better": "A"}\n\nB', "A and B are both chosen"),
    ('B\n\n{"better": "A"}', "A and B are both chosen"),
    ("better: A\nbetter: B", "A and B are both chosen"),
    ("better: A\n[[B]]", "A and B are both chosen"),
    ("A\nB", "A and B are both chosen"),
    ("1. B\n2. A", "no choice"),
    ("Image C", "no choice"),
    ("Image 1", "no choice"),
    ("Image 2", "no choice"),
    ("C", "no choice"),
    ("Edit A keeps the house, and edit B has the better light.", "no choice"),
    ("Reason: B is better", "no choice"),
    ("Edit A\nThe house is gone.", "no choice"),
    ("not A", "no choice"),
    ("A is not better", "no choice"),
    ("A (or B)", "no choice"),
    ("A (B is better)", "no choice"),
    ("A (tie)", "no choice"),
    ("A or tie", "no choice"),
    ("A is better than A", "no choice"),
    ("A > A", "no choice"),
    ("A: 7, B: 8", "no choice"),
    ("a photo", "no choice"),
    ("A better image", "no choice"),
    ("I cannot compare these images.", "no choice"),
    ('{"score_a": 8, "score_b": 3}', "no choice"),
    ("better: A\n" * 60, "over 50 times"),
]


def mirrored(text):
    """The same reply for the other edit, where none of its words has a case of its own."""
    other = {"A": "B", "B": "A", "first": "second", "second": "first", "一": "二", "二": "一"}
    other |= {"Ａ": "Ｂ", "Ｂ": "Ａ", "Second": "First", "image_b": "image_a", '"b"': '"a"'}
    other |= {"Edit 2": "Edit 1", "b": "a"}
    pattern = r"(?<![A-Za-z])[AB](?![A-Za-z])|[Ss]econd|first|[一二ＡＢ]|image_b|\"b\"|Edit 2|^b$"
    return re.sub(pattern, lambda match: other[match[0]], text)


@BOTH
@pytest.mark.parametrize("reply", READABLE)
def test_a_choice_is_read_as_a_person_reads_it(grammar, reply):
    assert grammar.read(reply) == {"score": 0}
    assert grammar.read(mirrored(reply)) == {"score": 1}
    assert grammar.read(reply, "compat") == {"score": 0}


def test_every_readable_reply_has_another_one_for_the_other_edit():
    assert all(mirrored(reply) != reply for reply in READABLE)
    assert len(READABLE) >= 60


@pytest.mark.parametrize("reply", TIES)
def test_a_tie_is_one_only_where_it_may_be(reply):
    assert WITH_TIE.read(reply) == {"score": 0.5}
    with pytest.raises(ReplyError, match=r"^'better' is 'tie', expected A or B$"):
        FORCED.read(reply)


@BOTH
@pytest.mark.parametrize(("reply", "message"), UNREADABLE)
def test_what_nobody_can_decide_is_asked_again(grammar, reply, message):
    with pytest.raises(ReplyError, match=re.escape(message)):
        grammar.read(reply)


def test_a_thought_that_does_not_end_is_cut():
    with pytest.raises(CutReply):
        FORCED.read("<think>better: B")


def test_a_call_may_name_the_label():
    grammar = Grammar("choice", ("score",), (0, 1), labels=("better_response",))
    assert grammar.read('{"better_response": "B", "winner": "A"}') == {"score": 0}
    with pytest.raises(ReplyError, match="'better_response', with A or B"):
        grammar.read("who knows")


CHOICES = {
    1.0: ["A", "Edit A", "image_a", "**A**", "(A)", "the first", "A (slightly better)", "图A"],
    0.0: ["B", "Edit B", "image_b", "**B**", "(B)", "the second", "B (slightly better)", "图B"],
    0.5: ["tie", "Tie", "both are equal", "neither", "平局", "equal"],
}
REASONS = ["A lost the house.", "B has better light, A the better sky.", "比较两张图", 'a "sign"']
FRAMES = [
    '{{"reason": "{reason}", "better": "{choice}"}}',
    "{{'reason': '{reason}', 'better': '{choice}'}}",
    '{{"better": "{choice}", "reason": "{reason}"}}',
    '{{\n  "reason": "{reason}",\n  "better": "{choice}",\n}}',
    '{{"reason": "{reason}", "better": "{choice}"',
    "reason: {reason}\nbetter: {choice}",
    "{reason}\n\n{choice}",
    "{reason}\n**Better:** {choice}",
    "{reason} <answer>{choice}</answer>",
    "{reason}\n[[{choice}]]",
]
AROUND = [
    "{}",
    "```json\n{}\n```",
    "\n\n{}\n",
    "<think>A. No, B.</think>\n{}",
    "Let me compare.\n{}",
]


def made_replies(count):
    """Replies in many dresses, each with its number."""
    draw = random.Random(0)
    for _ in range(count):
        number = draw.choice(list(CHOICES))
        inner = draw.choice(FRAMES).format(
            reason=draw.choice(REASONS), choice=draw.choice(CHOICES[number])
        )
        yield draw.choice(AROUND).format(inner), number


def test_300_replies_in_many_dresses():
    for reply, number in made_replies(300):
        assert WITH_TIE.read(reply) == {"score": number}, reply
        if number != 0.5:
            assert FORCED.read(reply) == {"score": number}, reply


@given(st.text(alphabet='AB/|or<>"{}:,. \nbetter', max_size=60))
@pytest.mark.everyday
def test_any_reply_is_a_choice_or_refused(reply):
    try:
        (number,) = FORCED.read(reply).values()
    except ReplyError:
        return
    assert number in (0, 1)


def test_the_grammar_of_a_choice_in_words():
    assert (FORCED.range, WITH_TIE.range) == ("A or B", "A, B or tie")
    assert (FORCED.called, FORCED.graded, FORCED.is_choice) == (("better",), (), True)
    assert FORCED.holds(0)
    assert not FORCED.holds(2)
    assert not Grammar("number", ("score",)).is_choice


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("a", "b"), {}, "the form 'choice' has 2 names, expected one: it holds one choice"),
        (("a",), {"scale": (0, 10)}, "has the scale [0, 10], expected scale = [0, 1]"),
        (("a",), {"whole": True}, "has the scale [0, 1] of whole numbers, expected scale"),
        (("a",), {"labels": ("x", "y")}, "2 labels for 1 name of the form 'choice', expected 1"),
        (("a",), {"compat": "kris-images"}, "expected a rule of the form 'choice': genarena"),
    ],
)
def test_a_choice_has_one_name_and_its_own_scale(names, options, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        Grammar("choice", names, **{"scale": (0, 1), **options})
