"""What cells of tables say: each spelling of truths, numbers, lists, identifiers and missing
values.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from pytest_imgedit.suites import cells

REFUSED = "refused"
NAN = math.nan
TRUE = (True, 1, 1.0, "true", "True", "TRUE", " true ", "1", "1.0", "yes", "Yes", "YES")
FALSE = (False, 0, 0.0, "false", "False", "FALSE", "0", "0.0", "-0", "no", "No", " no\t")
ABSENT = (None, "", " \t", "\u3000", NAN, "None", "null", "NULL", "nan", "NaN", "NA", "N/A", "<NA>")


def said(read, value):
    try:
        return read(value)
    except ValueError:
        return REFUSED


@pytest.mark.parametrize("value", TRUE, ids=repr)
def test_true_is_true_in_each_spelling(value):
    assert cells.as_truth(value) is True


@pytest.mark.parametrize("value", FALSE, ids=repr)
def test_false_is_false_in_each_spelling(value):
    assert cells.as_truth(value) is False


@pytest.mark.parametrize("value", ABSENT, ids=repr)
def test_a_missing_value_is_missing_for_each_kind_and_no_name(value):
    readers = (cells.as_truth, cells.as_number, cells.as_whole, cells.as_text, cells.as_texts)
    assert [read(value) for read in readers] == [None] * len(readers)
    stands_for_one = isinstance(value, str) and bool(value.strip())
    expected = REFUSED if stands_for_one else None
    assert said(cells.as_name, value) == said(cells.as_identifier, value) == expected


@pytest.mark.parametrize("value", ["none", "Null", "NONE", "na"])
def test_a_word_is_a_text_and_no_number(value):
    assert cells.as_text(value) == cells.as_name(value) == value
    assert cells.as_truth(value) is cells.as_whole(value) is None


@pytest.mark.parametrize(
    "value",
    [2, -1, 0.5, math.inf, "maybe", "t", "on", "2", "truefalse", "１", [], [True], {}, b"1"],
    ids=repr,
)
def test_what_is_neither_true_nor_false_is_refused(value):
    assert said(cells.as_truth, value) == REFUSED


WHOLE = {
    "3": 3,
    "3.0": 3,
    "3.": 3,
    "03": 3,
    " 3 ": 3,
    "+3": 3,
    "-3": -3,
    "3e0": 3,
    "1e3": 1000,
    "1E3": 1000,
    "9007199254740993": 2**53 + 1,
    "9007199254740993.0": REFUSED,
    "1e18": REFUSED,
    "0.5": REFUSED,
    "1e-3": REFUSED,
    "１": REFUSED,
    "1_000": REFUSED,
    "1,000": REFUSED,
    "0x10": REFUSED,
    "inf": REFUSED,
    "-Infinity": REFUSED,
    "1e999": REFUSED,
    "9" * 5000: REFUSED,
    "true": REFUSED,
    "": None,
}


@pytest.mark.parametrize("text", WHOLE, ids=lambda text: ascii(text[:20]))
def test_whole_numbers_as_text(text):
    assert said(cells.as_whole, text) == WHOLE[text]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        (3.0, 3),
        (Decimal("3.00"), 3),
        (2**53 + 1, 2**53 + 1),
        (float(2**53 - 1), 2**53 - 1),
        (float(2**53), REFUSED),
        (1e300, REFUSED),
        (0.5, REFUSED),
        (math.inf, REFUSED),
        (True, REFUSED),
        (10**400, REFUSED),
        ([3], REFUSED),
        (b"3", REFUSED),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_whole_numbers_as_numbers(value, number):
    assert said(cells.as_whole, value) == number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("2.5", 2.5),
        (".5", 0.5),
        ("-1e-2", -0.01),
        (" 4 ", 4.0),
        (7, 7.0),
        ("٣", REFUSED),
        ("1e999", REFUSED),
        (math.inf, REFUSED),
        (True, REFUSED),
    ],
    ids=repr,
)
def test_numbers(value, number):
    assert said(cells.as_number, value) == number


LISTS = {
    '["a", "b"]': ["a", "b"],
    ' ["a","b"] ': ["a", "b"],
    "['a', 'b']": ["a", "b"],
    "['it\\'s', \"b\",]": ["it's", "b"],
    "[]": [],
    "[ ]": [],
    '["a", ""]': ["a"],
    "['a' 'b']": REFUSED,  # as numpy writes: Python would join them
    "['a'\n 'b']": REFUSED,
    '[["a"]]': REFUSED,
    "[['a']]": REFUSED,
    "[1, 2]": REFUSED,
    '["a", null]': REFUSED,
    "['a', None]": REFUSED,
    "[a, b]": REFUSED,
    "['a'] + ['b']": REFUSED,
    "['\\x']": REFUSED,
    "[": REFUSED,
    "[" * 90_000: REFUSED,
    "[" + " " * 90_000 + "x": REFUSED,
    "['" + "a" * 200_000 + "']": REFUSED,
}


@pytest.mark.parametrize("text", LISTS, ids=lambda text: ascii(text[:20]))
def test_lists_as_text(text):
    assert said(cells.as_texts, text) == LISTS[text]
    assert said(lambda cell: cells.as_texts(cell, splits=True), text) == LISTS[text]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a", ["a"]),
        ("a;b", ["a", "b"]),
        ("a, b", ["a", "b"]),
        ("a, b; c", ["a, b", "c"]),
        (";", []),
        (" a ; ; b ", ["a", "b"]),
    ],
)
def test_a_text_is_split_in_tables_alone(text, texts):
    assert cells.as_texts(text, splits=True) == texts
    assert said(cells.as_texts, text) == REFUSED


@pytest.mark.parametrize("value", [7, True, {"a": 1}, [["a"]], [None], [1], ["a", 2.0]], ids=repr)
def test_what_is_no_list_of_texts_is_refused(value):
    assert said(cells.as_texts, value) == REFUSED


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("012", "012"),
        (" a ", "a"),
        ("12.0", "12.0"),
        ("1e3", "1e3"),
        ("false", "false"),
        (12, 12),
        (12.0, 12),
        (0, 0),
        (2**63, 2**63),
        (float(2**60), REFUSED),
        (1.5, REFUSED),
        (math.inf, REFUSED),
        (True, REFUSED),
        ([], REFUSED),
        ({}, REFUSED),
    ],
    ids=repr,
)
def test_identifiers(value, name):
    found = said(cells.as_identifier, value)
    assert (type(found), found) == (type(name), name)


@pytest.mark.parametrize("value", [7, 1.5, True, [], ["a"], {}, b"a"], ids=repr)
def test_what_is_no_text_is_refused(value):
    assert said(cells.as_text, value) == said(cells.as_name, value) == REFUSED


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (["a", 7, None], ["a", 7, None]),
        ([], []),
        (' ["a", "b"] ', ["a", "b"]),
        ("['a', \"b\"]", ["a", "b"]),
        ("[]", []),
        ("[draft] a.png", None),
        ("a.png]", None),
        ("a; b", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_only_a_list_and_a_text_in_brackets_have_parts(value, parts):
    assert cells.as_parts(value) == parts


def test_a_text_in_brackets_that_is_no_list_is_refused():
    for text in ("[a, b]", "['a' 'b']", "[1][]"):
        with pytest.raises(ValueError, match="expected a list of texts"):
            cells.as_parts(text)


def test_a_text_is_kept_as_it_is_and_a_name_without_blanks():
    assert cells.as_text(" 012\n") == " 012\n"
    assert cells.as_name(" 012\n") == "012"


def test_scalars_of_numpy_and_pyarrow_are_those_of_python():
    pa = pytest.importorskip("pyarrow")
    for true, false in ((np.True_, np.False_), (pa.scalar(True), pa.scalar(False))):
        assert cells.as_truth(true) is True
        assert cells.as_truth(false) is False
        assert said(cells.as_whole, true) == REFUSED
    for number in (np.int64(3), np.float32(3), pa.scalar(3), pa.scalar(3.0)):
        assert cells.as_whole(number) == cells.as_identifier(number) == 3
    for missing in (np.float64("nan"), pa.scalar(None), pa.scalar(NAN)):
        assert cells.is_missing(missing)
        assert cells.as_truth(missing) is cells.as_identifier(missing) is None
    for texts in (np.array(["a", "b"]), pa.array(["a", "b"]), pa.scalar(["a", "b"])):
        assert cells.as_texts(texts) == ["a", "b"]
    assert cells.as_texts(np.array([], dtype=str)) == []
    assert said(cells.as_truth, np.array([False])) == REFUSED
