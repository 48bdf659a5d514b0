"""Which other pair shuffled edits and counterfactual instructions are taken from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_imgedit.core.false_instructions import CLASSES, change_word
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.run.judge_trials import _with_another_word, _with_other_words
from pytest_imgedit.run.planned_works import _followers


def pair(name, instruction, source="s", category="physics", reference=None):
    return EditPair(
        name,
        category,
        instruction,
        FileImage(Path(source)),
        reference=FileImage(Path(reference or f"{name}-after")),
        reference_text=f"what {name} shows",
    )


def test_a_follower_is_of_the_same_source_or_else_of_the_same_category():
    pairs = [
        pair("a", "drop it", "s1"),
        pair("b", "lift it", "s2"),
        pair("c", "turn it", "s1", "social"),
        pair("d", "wave", "s3", "causal"),
        pair("e", "lift it up", "s2", reference="b-after"),
    ]
    followers = {name: other.id for name, other in _followers(pairs).items()}
    assert followers == {"a": "c", "c": "a", "e": "a"}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([pair("b", "Lift the ball", "s2"), pair("c", "drop the cup")], "drop the cup"),
        ([pair("b", "lift the cup", "s2")], "lift the cup"),
        ([pair("b", "lift the cup", "s2", "social")], None),
        ([pair("b", "Drop the ball!")], None),
        ([pair("b", "drop the red ball")], None),
        ([pair("b", "the ball falls", reference="a-after")], None),
        ([pair("b", "让球升起", "s2")], "让球升起"),
    ],
    ids=["source first", "category", "neither", "case", "more of it", "result", "script"],
)
def test_another_instruction_is_of_a_near_pair_and_not_also_true(others, expected):
    own = pair("a", "drop the ball", "s")
    found = _with_other_words(own, [own, *others])
    if expected is None:
        assert found is None
    else:
        texts = {f"what {other.id} shows" for other in others}
        assert (found.id, found.instruction) == ("a", expected)
        assert found.reference_text in texts


@pytest.mark.parametrize(
    ("instruction", "changed"),
    [
        ("Put a red ball at the top", {"colours": "Put a blue ball at the top"}),
        ("make the car red instead of blue", {"colours": "make the car green instead of blue"}),
        ("turn the red car blue", {"colours": "turn the red car yellow"}),
        ("her hair is no longer black, not grey", {}),
        ("Red roof", {"colours": "Blue roof"}),
        ("把红色的车变成蓝色", {"colours": "把红色的车变成黄色"}),
        ("把车变成红色，而不是蓝色", {"colours": "把车变成绿色，而不是蓝色"}),
        ("visit 黄河 by day, 白天", {}),
        ("move the cup to the left of the box", {"sides": "move the cup to the right of the box"}),
        ("a hat in the upper right corner", {"sides": "a hat in the upper left corner"}),
        ("turn right now, that is right", {}),
        ("give her a striped top and trousers", {}),
        ("在左边加一只猫", {"sides": "在右边加一只猫"}),
        ("画面上方加云", {"sides": "画面下方加云"}),
        ("add two birds", {"numbers": "add four birds"}),
        ("remove 3 of the cups", {"numbers": "remove 5 of the cups"}),
        ("wait for two hours at 9:30 with f/2.8", {}),
        ("加三只鸟", {"numbers": "加五只鸟"}),
        ("make the dog bigger", {"sizes": "make the dog smaller"}),
        ("it rains no longer", {}),
        ("把杯子变大", {"sizes": "把杯子变小"}),
        ("open the second door", {"order": "open the first door"}),
        ("first, wait a second", {}),
        ("删除第三个人", {"order": "删除第一个人"}),
        ("make it snow", {}),
    ],
)
def test_one_word_of_a_closed_class_is_changed_so_that_the_instruction_is_false(
    instruction, changed
):
    found = {name: change_word(instruction, name) for name in CLASSES}
    assert changed == {
        name: change.instruction
        for name, change in found.items()
        if change and (name in changed or not changed)
    }


@pytest.mark.parametrize("name", CLASSES)
def test_no_word_is_changed_into_itself(name):
    for word, others in {**CLASSES[name].english, **CLASSES[name].chinese}.items():
        assert word not in others


@pytest.mark.parametrize(
    ("result", "expected"),
    [("", ""), ("A Red car.", "A blue car."), ("The car has another colour.", None)],
)
def test_the_expected_result_changes_too_or_the_pair_is_left_out(result, expected):
    asked = replace(pair("a", "paint the car red"), reference_text=result)
    found = _with_another_word(asked, "colours")
    assert (found and found.reference_text) == expected
    if found:
        assert found.instruction == "paint the car blue"
