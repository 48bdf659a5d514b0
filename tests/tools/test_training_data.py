"""What the embedded models are taught with: scenes and their variants, edits, true grades, token
ids.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from later import Later

if TYPE_CHECKING:
    from pytest_imgedit.core.pairs import EditPair

torch = Later("torch")
edits = Later("tools.train_embedded.edits")
evaluate = Later("tools.train_embedded.evaluate")
grades = Later("tools.train_embedded.grades")
records = Later("tools.train_embedded.records")
text = Later("tools.train_embedded.text")

pytestmark = pytest.mark.everyday


@pytest.fixture(scope="module")
def pairs() -> list[EditPair]:
    return [
        records.as_pair(scene, category, language)
        for number in range(150)
        for category, *both in [records.make_scenes(0, number)]
        for scene in both
        for language in records.LANGUAGES
    ]


@pytest.fixture(scope="module")
def texts(pairs: list[EditPair]) -> text.Texts:
    return text.Texts.train(pairs)


@pytest.fixture(scope="module")
def drawn() -> edits.Drawn:
    """One scene of each template, with its variant."""
    rows = []
    for number, (_, template) in enumerate(records.EVERY_TEMPLATE):
        scenes = [
            template(records.Draws(f"{number}", changed))
            for changed in (frozenset[int](), frozenset({1}))
        ]
        rows.append(
            np.stack([records.draw(scene, after) for scene in scenes for after in (False, True)])
        )
    images = torch.from_numpy(np.stack(rows)).permute(0, 1, 4, 2, 3).float() / 255
    return edits.Drawn(*images.unbind(1))


def _take(chance: Random) -> list[object]:
    return [
        chance.random(),
        chance.choice("abcdef"),
        chance.sample(range(9), 3),
        chance.uniform(2, 5),
        chance.randrange(8),
    ]


@given(st.text())
def test_draws_without_a_change_are_those_of_random(seed: str) -> None:
    assert _take(records.Draws(seed)) == _take(Random(seed))


@given(st.text())
def test_a_changed_draw_leaves_those_before_and_after_alone(seed: str) -> None:
    own, changed = Random(seed), records.Draws(seed, frozenset({1}))
    pairs = [(own.random(), changed.random()) for _ in range(4)]
    assert [a == b for a, b in pairs] == [True, False, True, True]
    assert changed.made == 4


class Recording(Random):
    """Remembers what was chosen, but for yes or no."""

    def __init__(self, seed: str) -> None:
        self.drawn: list[float] = []
        super().__init__(seed)

    def _randbelow(self, n: int) -> int:
        self.drawn.append(Random._randbelow(self, n))  # type: ignore[attr-defined]
        return int(self.drawn[-1])

    def uniform(self, a: float, b: float) -> float:
        self.drawn.append(super().uniform(a, b))
        return self.drawn[-1]


def test_templates_that_make_few_scenes_are_not_evaluated_on() -> None:
    """Seeds of the suite are never trained on; where a template makes few scenes, the same scenes
    are.
    """
    repeated = set()
    for _, template in records.EVERY_TEMPLATE:
        streams = [Recording(f"{seed}") for seed in range(1000)]
        for stream in streams:
            template(stream)
        if len({tuple(stream.drawn) for stream in streams}) < 995:
            repeated.add(template)
    assert repeated == set(evaluate.NOT_HELD_OUT)


def test_records_hold_pictures_and_token_ids_of_a_scene_and_its_variant(texts: text.Texts) -> None:
    stream = iter(records.Records(3, texts))
    record = [next(stream) for _ in range(2)][1]
    _, scene, variant = records.make_scenes(3, 1)
    expected = np.stack(
        [records.draw(one, after) for one in (scene, variant) for after in (False, True)]
    )
    assert (record["images"].numpy() == expected).all()
    assert record["tail"].shape == (2 * len(records.LANGUAGES), text.TAIL_TOKENS)


def test_each_grade_and_each_fixed_line_is_one_token(
    texts: text.Texts, pairs: list[EditPair]
) -> None:
    ids = texts.judge(text.reply((7, 10, 0), texts.protocol))["input_ids"]
    assert texts.judge.convert_ids_to_tokens(ids)[1::3] == [" 7", " 10", " 0"]
    assert len({*texts.judge.convert_tokens_to_ids(text.GRADES)}) == 11
    assert texts.judge.decode(ids) == "instruction: 7\npreservation: 10\nrealism: 0"
    system = texts.protocol.calls(pairs[0])[0].system
    assert len(texts.judge(system)["input_ids"]) < 12


def test_encoded_tails_are_the_end_of_the_judges_own_prompt(
    texts: text.Texts, pairs: list[EditPair]
) -> None:
    for pair in pairs[:40]:
        encoded = texts.encode(pair)
        tail = encoded["tail"][: int(encoded["tail_length"])].tolist()
        prompt = texts.prompt(pair)
        assert prompt.endswith(texts.judge.decode(tail))
        assert texts.judge.decode(texts.head[0]) == prompt[: prompt.index("<|image_pad|>")]


def test_texts_that_do_not_fit_are_refused(texts: text.Texts, pairs: list[EditPair]) -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match="do not fit"):
        texts.encode(replace(pairs[0], description="red blue " * 200))


def test_the_rule_takes_its_aspects_and_score_from_the_protocol(pairs: list[EditPair]) -> None:
    protocol = text.aspects()
    assert text.aspects_of(protocol) == grades.ASPECTS
    rows = [[9.0, 4.0, 7.0], [0.0, 10.0, 10.0]]
    values = [{"aspects": dict(zip(grades.ASPECTS, row, strict=True))} for row in rows]
    scores = [protocol.item(pairs[0], graded)["score"] for graded in values]
    assert grades.score(torch.tensor(rows)).tolist() == pytest.approx(scores)


def test_true_grades_of_edits_of_known_worth(drawn: edits.Drawn) -> None:
    def graded(edited: torch.Tensor) -> torch.Tensor:
        return grades.grade(drawn.source, edited, drawn.reference)

    assert graded(drawn.reference).min() == 10
    untouched = graded(drawn.source)
    assert untouched[:, 0].max() < 0.01
    assert untouched[:, 1:].min() == 10
    halves = graded((drawn.source + drawn.reference) / 2)
    assert 4.5 < halves[:, 0].mean() < 6.5
    assert halves[:, 1].min() > 9.5
    for useless in (
        torch.full_like(drawn.source, 0.5),
        torch.rand_like(drawn.source),
        drawn.reference.roll(1, 0),
    ):
        assert grades.score(graded(useless)).mean() < 1.6


def test_instruction_is_the_share_of_the_asked_change_by_hand() -> None:
    source = torch.zeros(1, 3, 64, 64)
    reference, edited = torch.full_like(source, 0.52), torch.full_like(source, 0.39)
    # Asked: 0.52 - 0.02 unseen = 0.50; missing: 0.13 - 0.02 = 0.11; done: 1 - 0.11 / 0.50.
    assert grades.grade(source, edited, reference)[0, 0].item() == pytest.approx(7.8, abs=0.01)


@pytest.mark.parametrize("worse", ["blur", "noise"])
@pytest.mark.everyday_for("blur")
def test_damage_lowers_realism_the_more_the_stronger(drawn: edits.Drawn, worse: str) -> None:
    def damaged(amount: float) -> torch.Tensor:
        if worse == "blur":
            return grades.blur(drawn.reference, amount)
        return drawn.reference + amount / 20 * torch.randn_like(drawn.reference)

    means = [
        grades.grade(drawn.source, damaged(x), drawn.reference)[:, 2].mean().item()
        for x in (0.5, 1, 2)
    ]
    assert 10 > means[0] > means[1] > means[2]


def test_every_kind_of_edit_is_made(drawn: edits.Drawn) -> None:
    torch.manual_seed(0)
    for number, name in enumerate(edits.KINDS):
        only = torch.zeros(len(edits.KINDS))
        only[number] = 1
        made, kinds = edits.make_edits(drawn, only)
        assert made.shape == drawn.source.shape
        assert (kinds == number).all()
        assert made.min() >= 0, name
        assert made.max() <= 1, name
        assert torch.equal(made, edits.quantize(made)), name
        known = {"right": drawn.reference, "untouched": drawn.source}.get(name)
        if known is not None:
            assert (
                (made - known).abs().amax((1, 2, 3)) < 1e-6
            ).float().mean() > 0.5  # some are touched on top


def test_compression_is_the_cosine_transform_of_jpeg() -> None:
    image = torch.rand(1, 3, 16, 16)
    assert edits.compressed(image, 0.0).sub(image).abs().mean() < 0.1
    flat = torch.full((1, 3, 8, 8), 0.5)
    assert edits.compressed(flat, 1.0).std() < 1e-6  # a flat block has one coefficient
