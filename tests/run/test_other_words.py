"""Which other pair shuffled edits and counterfactual instructions are taken from."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.run.trials import _counterfactual
from pytest_imgedit.run.work import Work, _followers


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
    works = [*_counterfactual([Work(own, 0)], [own, *others])]
    assert [work.pair.instruction for work in works] == [text for text in [expected] if text]
    texts = {f"what {other.id} shows" for other in others}
    assert all(work.pair.id == "a" and work.pair.reference_text in texts for work in works)
