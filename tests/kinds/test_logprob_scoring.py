"""Expected grades: where a reply's numbers stand, and the mean over what could have stood there."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from later import Later
from test_invariant import batches
from test_packed import ask

from pytest_imgedit.config.settings import Settings, SuiteSettings
from pytest_imgedit.core.errors import ReplyError, SetupError
from pytest_imgedit.core.images import decode
from pytest_imgedit.core.reply import Grammar, number_places
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.kinds.qwen_decoder.logprob_scoring import Place, expected_grades, find_places
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.scenes import WEIGHTS
from pytest_imgedit.suites.scenes import load

torch = Later("torch")
decoding = Later("pytest_imgedit.kinds.qwen_decoder.decoding")

pytestmark = pytest.mark.everyday

ASPECTS = ("instruction", "realism")


class Letters:
    """A tokenizer of single characters, as many write numbers digit by digit."""

    def encode(self, text, add_special_tokens):
        return [ord(char) for char in text]

    def decode(self, tokens, skip_special_tokens):
        return "".join(map(chr, tokens))


def spread(**chances):
    probabilities = torch.zeros(128)
    for name, chance in chances.items():
        probabilities[ord(name.removeprefix("d"))] = chance
    return probabilities


def expected_grade(chances, place, follows):
    """Grade one place, where `follows` gives the probabilities of what follows a text."""
    (found,) = expected_grades(
        Letters(), [(place, chances)], lambda wanted: [follows(text) for _, text in wanted]
    )
    return found


def never(text):
    raise AssertionError(f"nothing is to be asked after {text!r}")


def no_point(text):
    assert text == "8"  # the number that was chosen, whose continuation is known
    return spread(x=1.0)


def test_expected_grade_by_hand():
    place = Place("realism", 0, "", "8")
    grade, off = expected_grade(spread(d8=0.5, d9=0.25, x=0.25), place, no_point)
    assert grade == pytest.approx((8 * 0.5 + 9 * 0.25) / 0.75)
    assert off == pytest.approx(0.25)


def test_what_starts_with_1_is_divided_between_1_and_10():
    place = Place("realism", 0, "", "9")
    grade, off = expected_grade(spread(d9=0.5, d1=0.5), place, lambda text: spread(d0=0.8, x=0.2))
    assert grade == pytest.approx(9 * 0.5 + 10 * 0.4 + 1 * 0.1)
    assert off == pytest.approx(0, abs=1e-6)


def test_nothing_on_the_scale_is_all_off_the_scale():
    assert expected_grade(spread(x=1.0), Place("realism", 0, "", ""), never) == (0.0, 1.0)


def test_decimals_are_expanded_and_not_floored():
    follows = {
        "8": spread(**{".": 0.9, "x": 0.1}),
        "8.": spread(d5=1.0),
        "9": spread(**{".": 0.2, "x": 0.8}),
        "9.": spread(d5=0.5, d0=0.5),
    }
    place = Place("realism", 0, "", "8.5")
    grade, off = expected_grade(spread(d8=0.75, d9=0.25), place, follows.__getitem__)
    assert grade == pytest.approx(0.75 * (0.9 * 8.5 + 0.1 * 8) + 0.25 * (0.2 * 9.25 + 0.8 * 9))
    assert off == pytest.approx(0, abs=1e-6)


def test_beside_a_10_other_numbers_are_expanded_too():
    follows = {
        "9": spread(**{".": 1.0}),
        "9.": spread(d5=1.0),
        "8": spread(**{".": 1.0}),
        "8.": spread(d5=1.0),
    }
    follows["1"] = spread(d0=1.0)
    place = Place("realism", 0, "", "10")
    grade, off = expected_grade(spread(d1=0.4, d9=0.35, d8=0.25), place, follows.__getitem__)
    assert grade == pytest.approx(10 * 0.4 + 9.5 * 0.35 + 8.5 * 0.25)
    assert off == pytest.approx(0, abs=1e-6)


def test_what_starts_with_1_is_divided_among_10_and_decimals():
    follows = {"1": spread(**{"d0": 0.5, ".": 0.4, "x": 0.1}), "1.": spread(d5=1.0)}
    place = Place("realism", 0, "", "1.5")
    grade, off = expected_grade(spread(d1=1.0), place, follows.__getitem__)
    assert grade == pytest.approx(10 * 0.5 + 1.5 * 0.4 + 1 * 0.1)
    assert off == pytest.approx(0, abs=1e-6)


def test_a_judge_that_is_certain_of_a_decimal_gets_it():
    follows = {"8": spread(**{".": 1.0}), "8.": spread(d5=1.0)}
    place = Place("realism", 0, "", "8.5")
    assert expected_grade(spread(d8=1.0), place, follows.__getitem__) == (pytest.approx(8.5), 0.0)


def test_a_tokenizer_that_splits_digits_is_refused():
    with pytest.raises(SetupError, match="expected one token a digit"):
        expected_grade(spread(x=1.0), Place("realism", 0, " ", "7"), never)


def test_places_are_those_of_the_numbers_tokens():
    reply = "instruction: 10\nRealism: **7**/10"
    places = find_places(Letters(), [ord(char) for char in reply], ASPECTS)
    assert [(place.aspect, place.step, place.lead, place.number) for place in places] == [
        ("instruction", 13, "", "10"),
        ("realism", 27, "", "7"),
    ]
    assert find_places(Letters(), [ord(char) for char in "realism: 7"], ASPECTS) == []


@given(
    st.lists(
        st.sampled_from(
            [
                "instruction: 7",
                "**realism**： 10/10",
                "realism: 3.5",
                "realism: 8（满分：10）",
                "<think>realism: 1</think>",
                "so: 8",
                "",
                "  instruction :  `9`",
            ]
        ),
        max_size=6,
    )
)
def test_each_readable_number_is_found_where_it_stands(lines):
    reply = "\n".join(lines)
    places = number_places(reply, ASPECTS)
    try:
        grades = Grammar("lines", ASPECTS).read(reply)
    except ReplyError:
        return
    for name, grade in grades.items():
        assert reply[places[name] :].startswith(f"{grade:g}")


@pytest.fixture(scope="module")
def questions():
    """Pairs of the embedded suite, one of them not edited, asked about as in a run."""
    protocol = load_protocol(Settings())
    pairs = list(load("n=1,seed=5", SuiteSettings()))[:3]
    return [
        Question(
            pair.id,
            pair.category,
            pair.instruction,
            {
                "source": decode(pair.source.read()),
                "edited": decode((pair.reference if n else pair.source).read()),
            },
            call.system,
            call.parts,
            call.grammar.names,
        )
        for n, pair in enumerate(pairs)
        for call in protocol.calls(pair)
    ]


@pytest.mark.full
def test_the_embedded_judges_expected_grades_agree_with_its_probabilities(questions):
    judge = QwenVLJudge(str(WEIGHTS / "judge"), device="cpu", scoring="expected")
    greedy = QwenVLJudge(str(WEIGHTS / "judge"), device="cpu")
    together = judge.answer(questions)
    assert [answer.reply for answer in together] == [
        answer.reply for answer in greedy.answer(questions)
    ]
    for question, answer in zip(questions, together, strict=True):
        assert set(answer.expected) == set(question.aspects)
        assert 0 <= answer.off_scale < 0.05
        (alone,) = judge.answer([question])
        for name, grade in answer.expected.items():
            assert grade == pytest.approx(alone.expected[name], abs=1e-3)
            assert grade == pytest.approx(
                _by_teacher_forcing(judge, question, answer.reply, name), abs=1e-3
            )


@pytest.mark.full
def test_a_question_without_grades_is_answered_beside_others(tiny, questions):
    options = {"device": "cpu", "max_new_tokens": 4}
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), scoring="expected", **options)
    greedy = QwenVLJudge(str(tiny("judge-qwen3-vl")), **options)
    parts = (("image", "source"), ("text", "Which is better, A or B?"))
    choice = replace(questions[0], parts=parts, aspects=())
    asked = [choice, questions[1], choice]
    answers = judge.answer(asked)
    assert [answer.reply for answer in answers] == [answer.reply for answer in greedy.answer(asked)]
    assert (answers[0].expected, answers[0].off_scale) == ({}, 0)
    assert judge.answer([choice])[0] == answers[0]


def _by_teacher_forcing(judge, question, reply, aspect):
    """The mean grade from one forward pass over the reply up to the number, token probabilities
    summed by hand.
    """
    start = reply[: number_places(reply, question.aspects)[aspect]].rstrip(" ")
    plain = QwenVLJudge(str(WEIGHTS / "judge"), device="cpu", attention="sdpa")
    prompt = plain.preprocess(question).followed_by(
        plain.processor.tokenizer.encode(start, add_special_tokens=False)
    )
    with torch.inference_mode():
        chances = plain.model(**plain.decoder.inputs([prompt])).logits[0, -1].softmax(-1)
    tokens = {grade: judge.processor.tokenizer.encode(f" {grade}") for grade in range(11)}
    mass = {grade: float(chances[ids[0]]) for grade, ids in tokens.items()}
    return math.fsum(grade * p for grade, p in mass.items()) / math.fsum(mass.values())


def test_a_tokenizer_of_digits_looks_at_what_follows_a_1(tiny, questions):
    judge = QwenVLJudge(
        str(tiny("judge-qwen3-vl")), device="cpu", scoring="expected", max_new_tokens=4
    )
    tokenizer = judge.processor.tokenizer
    one = tokenizer.encode("1", add_special_tokens=False)
    assert len(tokenizer.encode("10", add_special_tokens=False)) == 2
    vocabulary = judge.model.config.text_config.vocab_size
    logits = [torch.full((vocabulary,), -20.0) for _ in range(len("realism: 9"))]
    nine = tokenizer.encode("9", add_special_tokens=False)
    reply = tokenizer.encode("realism: 9", add_special_tokens=False)
    logits[len(reply) - 1][nine[0]] = logits[len(reply) - 1][one[0]] = 5.0
    question = Question(
        "p", "social", "x", questions[0].images, "s", questions[0].parts, ("realism",)
    )
    plain = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", attention="sdpa")
    with torch.inference_mode():
        prompt = judge.preprocess(question)
        (answer,) = judge._expect(
            [Answer()],
            [question],
            [prompt],
            decoding.Decoded([reply], [False], [torch.stack(logits[: len(reply)])]),
        )
        inputs = plain.decoder.inputs([plain.preprocess(question).followed_by([*reply[:-1], *one])])
        following = plain.model(**inputs, logits_to_keep=1).logits[0, -1].softmax(-1)
    zero = float(following[tokenizer.encode("0", add_special_tokens=False)[0]])
    assert answer.expected["realism"] == pytest.approx(
        9 * 0.5 + 0.5 * (10 * zero + 1 - zero), abs=1e-3
    )


def test_what_follows_is_asked_of_all_places_at_once():
    follows = {
        "8": spread(**{".": 0.9, "x": 0.1}),
        "8.": spread(d5=1.0),
        "9": spread(**{".": 0.2, "x": 0.8}),
        "9.": spread(d0=1.0),
        "1": spread(d0=1.0),
    }
    calls = []

    def after(wanted):
        calls.append(wanted)
        return [follows[text] for _, text in wanted]

    place, sure = Place("realism", 0, "", "8"), Place("realism", 3, "", "")
    chances = spread(d8=0.5, d9=0.25, d1=0.25)
    grades = expected_grades(
        Letters(), [(place, chances), (sure, spread(d9=1.0)), (place, chances)], after
    )
    assert calls == [
        [(0, "1"), (0, "8"), (2, "1"), (2, "8")],
        [(0, "9"), (2, "9")],
        [(0, "8."), (0, "9."), (2, "8."), (2, "9.")],
    ]
    mean = 0.5 * (0.9 * 8.5 + 0.1 * 8) + 0.25 * 9 + 0.25 * 10
    assert [grade for grade, _ in grades] == [pytest.approx(mean), 9.0, pytest.approx(mean)]


@contextmanager
def looks_of(judge):
    """Note the prompts of each of the judge's decodes."""
    looks, decode = [], judge.decoder.decode

    def noted(prompts, *options, **further):
        looks.append(prompts)
        return decode(prompts, *options, **further)

    with patch.object(judge.decoder, "decode", noted):
        yield looks


def test_a_look_is_what_the_judge_would_have_seen_there(questions):
    """Going on with the first tokens of a reply gives the logits of the next, and the positions of
    the whole text.
    """
    judge = QwenVLJudge(str(WEIGHTS / "judge"), device="cpu")
    prompt = judge.preprocess(questions[1])
    decoded = judge.decoder.decode([prompt], 12, keep_logits=True)
    (tokens,), (logits,) = decoded.tokens, decoded.logits
    for step in (1, 5, len(tokens) - 1):
        (seen,) = judge.decoder.decode(
            [prompt.followed_by(tokens[:step])], 1, keep_logits=True
        ).logits
        torch.testing.assert_close(seen[0], logits[step], rtol=1e-3, atol=1e-3)
    ids = torch.cat([prompt.tokens, torch.tensor(tokens)])[None]
    kinds = (ids == judge.model.config.image_token_id).int()
    positions, _ = judge.model.model.get_rope_index(
        ids,
        mm_token_type_ids=kinds,
        image_grid_thw=torch.stack([picture.grid for picture in prompt.pictures]),
    )
    assert torch.equal(prompt.followed_by(tokens).positions, positions[:, 0])


def test_what_the_judge_wrote_next_is_known_without_a_look(tiny, questions):
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", scoring="expected")
    tokenizer = judge.processor.tokenizer
    reply = tokenizer.encode("realism: 9", add_special_tokens=False)
    point, nine = (tokenizer.encode(text, add_special_tokens=False)[0] for text in ".9")
    logits = torch.zeros(len(reply) + 1, judge.model.config.text_config.vocab_size)
    # It is certain of 9, and of a point behind it.
    logits[len(reply) - 1, nine] = logits[len(reply), point] = 30.0
    question = Question(
        "p", "social", "x", questions[0].images, "s", questions[0].parts, ("realism",)
    )
    prompt = judge.preprocess(question)
    with looks_of(judge) as looks:
        (answer,) = judge._expect(
            [Answer()], [question], [prompt], decoding.Decoded([[*reply, point]], [False], [logits])
        )
    ((look,),) = looks  # at what follows "9."
    assert look.tokens[len(prompt.tokens) :].tolist() == [*reply, point]
    assert answer.off_scale > 0.9  # a random judge hardly writes a digit there


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.full
def test_an_unsure_judges_grades_are_the_same_alone_and_together(tiny, dtype):
    """The replies are forged, so that a random judge has to look at what follows 1, 8, 9 and their
    points.
    """
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", dtype=dtype, scoring="expected")
    tokenizer, words = judge.processor.tokenizer, "realism: 9"
    reply = tokenizer.encode(words, add_special_tokens=False)
    logits = torch.zeros(len(reply), judge.model.config.text_config.vocab_size)
    for digit in "189":
        logits[-1, tokenizer.encode(digit, add_special_tokens=False)[0]] = 9.0
    asked = [replace(one, aspects=("realism",)) for one in ask(17)]
    prompts = [judge.preprocess(one) for one in asked]

    def grades(places):
        decoded = decoding.Decoded(
            [reply for _ in places], [False for _ in places], [logits for _ in places]
        )
        answers = judge._expect(
            [Answer(words) for _ in places],
            [asked[n] for n in places],
            [prompts[n] for n in places],
            decoded,
        )
        return [answer.expected["realism"] for answer in answers]

    with looks_of(judge) as looks:
        alone = [grades([place])[0] for place in range(17)]
        assert {len(several) for several in looks} == {1}
        looks.clear()
        for places in batches():
            assert grades(places) == [alone[place] for place in places]
        assert {len(several) for several in looks} >= set(range(2, 18))
    assert alone[0] == pytest.approx(6, abs=0.1)  # the mean of 1, 8 and 9, hardly divided further
    assert len(set(alone)) == 17
