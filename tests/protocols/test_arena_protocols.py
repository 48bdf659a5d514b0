"""The questions of two public arenas about two edits: what is asked, shown, and read."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re

import pytest
from miniatures import ANY_VERSION, make_gedit_v2, make_genarena
from PIL import Image

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import ReplyError, UsageError
from pytest_imgedit.core.images import Base64Image, decode, encode_png
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.repaired_json import repaired
from pytest_imgedit.core.requests import Preparation, Question
from pytest_imgedit.kinds.sent_images import SentImages
from pytest_imgedit.protocols.gedit_v2 import DIMENSIONS
from pytest_imgedit.protocols.loading import ARENAS, load_duel_protocol, load_protocol
from pytest_imgedit.run.answers import AnswerReader
from pytest_imgedit.suites.base import load_suite

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.everyday
MAKE = {"genarena": make_genarena, "gedit-v2": make_gedit_v2}
EVERY = pytest.mark.parametrize("name", ARENAS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in MAKE.items()}


def settings(name, folder, **judge):
    return Settings.model_validate(
        {
            "suite": {"spec": f"{name}:{folder}"},
            "judge": {"duel_protocol": name, "any_version": True, **judge},
        }
    )


@pytest.fixture
def duel(folders):
    def make(name, variant="strict"):
        return load_duel_protocol(settings(name, folders[name], variant=variant))

    return make


def pair(**values):
    fields = {"id": "a", "category": "add", "instruction": "lift {{ it }}"}
    return EditPair(**{**fields, "source": Base64Image(""), **values})


def test_genarena_asks_once_in_separate_parts_without_a_system_prompt(duel):
    (call,) = duel("genarena").calls(pair(further=(object(), object())))
    assert call.system == ""
    assert call.parts == (
        ("text", "[genarena] Which one?"),
        ("text", "[ORIGINAL PROMPT TO MODEL:]"),
        ("text", "lift {{ it }}"),
        ("text", "[INPUT IMAGE FROM PROMPT:]"),
        ("image", "source"),
        ("image", "source-2"),
        ("image", "source-3"),
        ("text", "[RESPONSE A:]"),
        ("image", "first"),
        ("text", "[RESPONSE B:]"),
        ("image", "second"),
    )
    assert call.max_new_tokens == 4096
    assert call.grammar.called == ("better_response",)


def test_gedit_v2_asks_three_questions_of_which_quality_sees_the_edits_alone(duel):
    calls = {call.name: call for call in duel("gedit-v2").calls(pair())}
    assert tuple(calls) == DIMENSIONS
    edits = (("image", "first"), ("text", "\n"), ("text", "B:"), ("text", ""), ("image", "second"))
    for dimension in ("instruction_following", "visual_consistency"):
        call = calls[dimension]
        assert call.system == "You compare."
        assert call.parts == (
            ("text", f"[{dimension}] lift {{{{ it }}}}\nSource:"),
            ("text", ""),
            ("image", "source"),
            ("text", "\n"),
            ("text", "A:"),
            ("text", ""),
            *edits,
        )
    quality = calls["visual_quality"]
    assert quality.system == "You compare pictures.\n"
    asked = '[visual_quality] Which one? Say {"winner": "…"}\n\nA:'
    assert quality.parts == (("text", asked), ("text", ""), *edits)
    for call in calls.values():
        assert call.max_new_tokens == 2048
        assert call.grammar.called == ("winner",)


@EVERY
def test_every_pair_of_the_miniature_can_be_asked_about(duel, folders, name):
    pairs = load_suite(settings(name, folders[name]).suite).pairs
    duel(name).check(pairs)
    assert duel(name).sees_change(pairs)


def sent(preparation, image):
    """An image as a server gets it."""
    question = Question(
        pair_id="a",
        category="add",
        instruction="x",
        images={"first": image},
        parts=(("image", "first"),),
        preparation=preparation,
    )
    return base64.b64decode(asyncio.run(SentImages().base64_of(question, "first", max_pixels=64)))


def noise(width, height):
    return Image.effect_noise((width, height), 60).convert("RGB")


def test_genarena_sends_images_as_they_are_stored_however_large(duel):
    (call,) = duel("genarena").calls(pair())
    stored = encode_png(noise(1500, 40))
    assert sent(call.preparation, stored) == stored


def test_gedit_v2_makes_images_smaller_as_pillow_does_and_sends_png(duel):
    assert {call.preparation for call in duel("gedit-v2").calls(pair())} == {
        Preparation(codec="png", max_side=1024)
    }
    preparation = Preparation(codec="png", max_side=1024)
    small, large = noise(1024, 30), noise(1500, 700)
    assert sent(preparation, encode_png(small)) == encode_png(small)
    shown = decode(sent(preparation, encode_png(large)))
    large.thumbnail((1024, 1024))
    assert shown.size == (1024, 478) == large.size
    assert shown.tobytes() == large.tobytes()


def read(grammar, reply, variant):
    """The choice that a reply is read as; `None` for one that cannot be read."""
    try:
        (number,) = grammar.read(reply, variant).values()
    except ReplyError:
        return None
    return {1.0: "A", 0.0: "B", 0.5: "tie"}[number]


def said(value, key="better_response", **further):
    return json.dumps({"reasoning": {"text": "A is red"}, **further, key: value})


#: Replies, and what they are read as by default and under `compat`.
GENARENA = [
    (said("A"), "A", "A"),
    (said("B", score=2, confidence=0.4), "B", "B"),
    (said(" b "), "B", "B"),
    (f"```json\n{said('B')}\n```", "B", "B"),
    (f"Here it is:\n{said('B')}", "B", "B"),
    (said("B")[:-1], "B", "B"),
    (said("B").replace('"', "'"), "B", "B"),
    ('{"better_response": B, "score": 2}', "B", "B"),
    ('{"better_response": "B" "score": 2}', "B", "B"),
    # defects of the script
    (said("Image B"), "B", "A"),
    (said("B (marginally better)"), "B", "A"),
    (said("Response B"), "B", "B"),
    (said("Both are equal"), None, "A"),
    (said("A or B"), None, "A"),
    (said("Unclear"), None, "A"),
    (said("Tie"), None, None),
    (said("Neither"), None, None),
    (said("BOTH"), None, "B"),
    ("B", "B", None),
    ("The better response is B", "B", None),
    (said("B", score="high"), "B", None),
    (said("B", score=None), "B", None),
    (said("B", confidence="medium"), "B", None),
    (f"{said('A')}\n{said('B')}", None, "B"),
    ('{"better_response": "A", "better_response": "B"}', None, "B"),
    (said("B", key="winner"), "B", None),
    (said(["B"]), "B", None),
    ("", None, None),
    ("I cannot judge these images.", None, None),
    ('{"reasoning": {"text": "A is red and', None, None),
]
GEDIT_V2 = [
    *(
        (said(word, "winner"), choice, choice)
        for word, choice in (
            ("Image A", "A"),
            ("image a", "A"),
            ("A", "A"),
            ("Image B", "B"),
            ("b", "B"),
            ("Tie", "tie"),
            ("equal", "tie"),
            ("BOTH", "tie"),
            ("none", "tie"),
        )
    ),
    (f"```json\n{said('Image B', 'winner')}\n```", "B", "B"),
    (f"```\n{said('Image B', 'winner')}\n```", "B", "B"),
    (f"Image A has a hat.\n\n{said('Image B', 'winner')}", "B", "B"),
    (said("Image B", "winner").replace('"', "'"), "B", "B"),
    (said("Image B", "winner")[:-1], "B", "B"),
    (said("image_b", "winner"), "B", "B"),
    # the script asks again
    (said("Image B.", "winner"), "B", None),
    (said(" B", "winner"), "B", None),
    (said("B is better", "winner"), "B", None),
    (said("Neither", "winner"), "tie", None),
    (said("A tie", "winner"), "tie", None),
    ("Image B", "B", None),
    (said("Image A and Image B are equal", "winner"), "tie", None),
    (said("Choose one from: 'Image A', 'Image B', or 'Tie'", "winner"), None, None),
    ("", None, None),
    ("```json\n```", None, None),
    ("} nothing {", None, None),
]


@pytest.mark.parametrize(("reply", "strict", "compat"), GENARENA)
def test_replies_to_genarena_are_read_by_a_person_or_by_its_script(duel, reply, strict, compat):
    (call,) = duel("genarena").calls(pair())
    assert read(call.grammar, reply, "strict") == strict
    assert read(call.grammar, reply, "compat") == compat


@pytest.mark.parametrize(("reply", "strict", "compat"), GEDIT_V2)
def test_replies_to_gedit_v2_are_read_by_a_person_or_by_its_script(duel, reply, strict, compat):
    for call in duel("gedit-v2").calls(pair()):
        assert read(call.grammar, reply, "strict") == strict
        assert read(call.grammar, reply, "compat") == compat


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure. {"a": "b"} Done.', {"a": "b"}),
        ("{'a': 'it''s'}", {"a": "it''s"}),
        ('{a: b, "c": True, d: null, e: 0.5, f: 5/6,}', {"a": "b", "c": True, "d": None, "e": 0.5, "f": "5/6"}),
        ('{"a": "he said "yes" twice", "b": 2}', {"a": 'he said "yes" twice', "b": 2}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": {"b": "c"', {"a": {"b": "c"}}),
        ('{"a": "cut here, in', {"a": "cut here"}),
        ('{"a": "b" // why\n, "c": "d"}', {"a": "b", "c": "d"}),
        ('{“a”: “b”}', {"a": "b"}),
        ('{"a": "x\\ny", b}', {"a": "x\ny"}),
        ('{"a": 1} {"a": 2}', {"a": 2}),
        ('{"a": 1} {"b": 2}', [{"a": 1}, {"b": 2}]),
        ("no JSON", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_what_is_nearly_json_is_repaired(text, value):
    assert repaired(text) == value


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "{" * 5_000 + "'", '{"' * 20_000, "'{\"a" * 20_000]
)
def test_hostile_replies_are_read_or_refused_in_no_time(duel, text):
    for name in ARENAS:
        for call in duel(name).calls(pair()):
            assert read(call.grammar, text, "compat") is None


@EVERY
def test_the_variant_decides_the_digest_and_not_what_is_asked(duel, name):
    strict, compat = duel(name), duel(name, "compat")
    assert strict.calls(pair()) == compat.calls(pair())
    assert (strict.label, compat.label) == (f"{name}@strict", f"{name}@compat")
    assert strict.sha256 != compat.sha256


def replies_of(protocol, numbers):
    calls = protocol.calls(pair())
    return {
        call.name: {call.grammar.names[0]: number}
        for call, number in zip(calls, numbers, strict=True)
    }


@EVERY
def test_the_score_favours_no_side(duel, name):
    made = duel(name)
    numbers = [1.0, 0.0, 0.0][: len(made.calls(pair()))]
    score = made.checked_item(pair(), replies_of(made, numbers))["score"]
    assert math.isclose(score, sum(numbers) / len(numbers))
    swapped = replies_of(made, [1 - number for number in numbers])
    assert math.isclose(made.checked_item(pair(), swapped)["score"], 1 - score)
    assert made.scale == (0, 1)


def test_gedit_v2_is_measured_by_its_dimensions(duel):
    made = duel("gedit-v2")
    assert tuple(made.measures) == DIMENSIONS
    values = made.checked_item(pair(), replies_of(made, (1.0, 0.5, 0.0)))
    assert values == {**dict(zip(DIMENSIONS, (1.0, 0.5, 0.0), strict=True)), "score": 0.5}


@EVERY
def test_an_order_that_lacks_a_reply_has_no_value_under_compat(duel, name):
    made = duel(name, "compat")
    assert made.checked_item(pair(), {}) == {}
    assert AnswerReader(None, made).is_compat


QUERIES = {"genarena": "?subset=multiref", "gedit-v2": ""}


@pytest.mark.parametrize(
    ("name", "variant", "share"),
    [
        ("genarena", "strict", 1.0),
        ("genarena", "compat", 0.5),  # "Image B" is a vote for A, so that the order decides
        ("gedit-v2", "strict", 1.0),
        ("gedit-v2", "compat", 1.0),
    ],
)
def test_finished_edits_are_put_against_each_other(bench, name, variant, share):
    (bench.path / name).mkdir()
    made = MAKE[name](bench.path / name)
    spec = f"{name}:{made}{QUERIES[name]}"
    pairs = load_suite(settings(name, f"{made}{QUERIES[name]}").suite).pairs
    for model, level in (("dark", 10), ("bright", 240)):
        (bench.path / model).mkdir()
        for number, one in enumerate(pairs):
            image = Image.new("RGB", (64, 48), (level, level, 90 + number))
            image.paste((200, 0, 0), (8, 8, 40, 30))
            image.save(bench.path / model / f"{one.own_id}.png")
    options = (
        f"--imgedit-suite={spec}",
        "--imgedit-judge=duel_judges:Brighter",
        f"--imgedit-variant={variant}",
        f"--imgedit-set=judge.duel_protocol={name}",
        "--imgedit-set=judge.controls=false",
        ANY_VERSION,
    )
    bench.run(
        *options, "--imgedit-editor=folder:dark", "--imgedit-save=main", "--imgedit-save-edits"
    )
    bench.run(
        *options, "--imgedit-editor=folder:bright", "--imgedit-compare=main", "--imgedit-duel"
    )
    told = bench.results["duel"]
    assert (told["protocol"], told["variant"]) == (name, variant)
    measures = {"score", *(DIMENSIONS if name == "gedit-v2" else ())}
    assert {
        key: rows["overall"]["share"] for key, rows in told["measures"].items()
    } == dict.fromkeys(measures, share)


@EVERY
def test_prompts_of_another_version_are_refused_unless_they_are_wanted(folders, name):
    made = load_duel_protocol(settings(name, folders[name], any_version=False))
    with pytest.raises(UsageError, match=r"is of another version, which judge\.any_version=true"):
        made.calls(pair())


@EVERY
def test_a_folder_without_the_prompts_is_refused_with_what_was_expected(tmp_path, name):
    made = load_duel_protocol(settings(name, tmp_path))
    with pytest.raises(UsageError, match=r"expected the benchmark's own prompts \(judge\.prompts"):
        made.calls(pair())
    alone = Settings.model_validate({"judge": {"duel_protocol": name}})
    with pytest.raises(UsageError, match=r"judge\.prompts: not set, expected the folder"):
        load_duel_protocol(alone).calls(pair())


@EVERY
def test_judge_prompts_names_the_clone_for_any_suite(folders, name):
    judge = {"duel_protocol": name, "any_version": True, "prompts": folders[name] / "clone"}
    made = load_duel_protocol(Settings.model_validate({"judge": judge}))
    assert made.calls(pair())


@EVERY
def test_an_arena_is_no_protocol_of_one_edit(name):
    message = f"judge.protocol: {name!r} compares two edits, expected it as judge.duel_protocol"
    with pytest.raises(UsageError, match=re.escape(message)):
        load_protocol(Settings.model_validate({"judge": {"protocol": name}}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("- a\n- b\n", "no YAML table"),
        ("a: [", "no YAML table"),
        ("system_prompt: [a]\nuser_prompt: []\n", "its system_prompt is no text"),
        ("system_prompt: a\n", "no list user_prompt"),
        ("system_prompt: a\nuser_prompt: [a]\n", "a block 'a'"),
        ("user_prompt:\n- image: {source: edited_images, index: 2}\n", "a block {'image': "),
        ("user_prompt:\n- text: 3\n", "a block {'text': 3}"),
    ],
)
def test_a_prompt_file_of_gedit_v2_in_another_form_is_refused(tmp_path, text, found):
    folder = make_gedit_v2(tmp_path)
    place = "clone/src/prompts/assets/vlm/assessment/visual_quality/pairwise/v1.yaml"
    (folder / place).write_text(text)
    made = load_duel_protocol(settings("gedit-v2", folder))
    with pytest.raises(UsageError) as refused:
        made.calls(pair())
    assert f"visual_quality/pairwise/v1.yaml: {found}" in str(refused.value)
    assert "\n" not in str(refused.value)
