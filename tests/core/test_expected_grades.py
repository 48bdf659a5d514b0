"""Where a grade stands in a reply, and the mean over a scale of one-digit numbers."""

import pytest

from pytest_imgedit.core.errors import ReplyError
from pytest_imgedit.core.expected_grades import expected_grade, grade_places, one_digit_numbers
from pytest_imgedit.core.reply import Grammar

FIVE = (1.0, 5.0)
LINES = Grammar("lines", ("look", "detail"), FIVE)
NUMBER = Grammar("number", ("look",), FIVE)
JSON = Grammar("json", ("look", "detail"), FIVE, labels=("look_score", "detail_score"))
LIST = Grammar("list", ("look", "detail"), FIVE, labels=("score",))
FINAL = Grammar("final", ("look",), FIVE)
DECIMAL = "expected one digit, without decimals, in one place"


@pytest.mark.parametrize(
    ("scale", "numbers"),
    [
        ((1.0, 5.0), [1, 2, 3, 4, 5]),
        ((0.0, 1.0), [0, 1]),
        ((0.0, 9.0), list(range(10))),
        ((0.0, 10.0), []),
        ((0.5, 5.0), []),
        ((-2.0, 2.0), []),
    ],
)
def test_a_scale_of_one_digit_numbers(scale, numbers):
    assert list(one_digit_numbers(scale)) == numbers


def test_a_mean_is_over_the_numbers_of_the_scale_alone():
    chances = [0.05, 0.0, 0.0, 0.2, 0.6, 0.0, 0.0, 0.1, 0.0, 0.0]
    mean, off_scale = expected_grade(chances, range(1, 6))
    assert mean == pytest.approx((3 * 0.2 + 4 * 0.6) / 0.8)
    assert off_scale == pytest.approx(0.2)
    with pytest.raises(ValueError, match="no number of the scale"):
        expected_grade([0.5] + [0.0] * 9, range(1, 6))


@pytest.mark.parametrize(
    ("grammar", "reply", "grades"),
    [
        (LINES, "look: ^4\ndetail: ^4", "look detail"),
        (LINES, "4 things, 2 good.\n2. **Detail**: **^2**/5\n1. Look：^4.\n", "detail look"),
        (LINES, "<think>look: 4\ndetail: 4 or 5</think>look: ^4\ndetail: ^5/5", "look detail"),
        (LINES, "画质4\n<answer>look: ^4\ndetail: ^3</answer>look: 4", "look detail"),
        (NUMBER, "^4", "look"),
        (NUMBER, "**Score: ^5/5**", "look"),
        (NUMBER, "it is 5 of 5</think>\n\n^5", "look"),
        (JSON, '```json\n{"look_score": ^4, "why": "4", "detail_score": "^4"}\n```', "look detail"),
        (JSON, '{"why": {"4": 4}, "detail_score":^1,"look_score":^2}', "detail look"),
        (LIST, '{"score": [^4, ^4], "reasoning": "[4, 4]"}', "look detail"),
        (FINAL, "The 4 cats are 4.\n**Final Score: ^4**\n4", "look"),
    ],
)
def test_the_place_of_a_grade_is_the_digit_that_the_grammar_reads(grammar, reply, grades):
    plain = reply.replace("^", "")
    places = grade_places(plain, grammar)
    marked = plain
    for place in sorted(places.values(), reverse=True):
        marked = f"{marked[:place]}^{marked[place:]}"
    assert marked == reply
    assert sorted(places, key=places.__getitem__) == grades.split()


@pytest.mark.parametrize(
    ("grammar", "reply", "reason"),
    [
        (LINES, "look: 4.5\ndetail: 4", f"'look' is 4.5, {DECIMAL}"),
        (LINES, "look: 4.0\ndetail: 4", f"'look' is 4, {DECIMAL}"),
        (LINES, "look: 04\ndetail: 4", f"'look' is 4, {DECIMAL}"),
        (FINAL, "Final Score: 4\nFinal Score: 4", f"'look' is 4, {DECIMAL}"),
        (JSON, '{"look_score": "\\u0034", "detail_score": 4}', f"'look' is 4, {DECIMAL}"),
        (LINES, "look: 4", "no line 'detail'"),
        (LINES, "look: 7\ndetail: 4", "'look' is '7'"),
        (NUMBER, "4" * 3, "'look' is '444'"),
        (FINAL, "4 " * 101 + "\nFinal Score: 4", "102 digits that may be a grade"),
    ],
)
def test_a_grade_without_one_place_is_an_error(grammar, reply, reason):
    with pytest.raises(ReplyError) as caught:
        grade_places(reply, grammar)
    assert reason in str(caught.value)
