"""Protocols in TOML: prompts, replies, score formulas, mistakes."""

from __future__ import annotations

import io
import json
import math

import pytest
from documents import an_item
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import ReplyError, UsageError
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import CATEGORIES, EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.protocols.prompts import Prompts
from pytest_imgedit.protocols.protocol import Protocol
from pytest_imgedit.run.assemble import protocol_table
from pytest_imgedit.scenes import WEIGHTS

ASPECTS = ("instruction", "preservation", "realism")
LINES = Grammar("lines", ASPECTS)


def protocol(name="aspects", variant="strict", **tables):
    """The protocol of a config."""
    judge = {"protocol": name, "variant": variant}
    return load_protocol(Settings.model_validate({"judge": judge, "protocols": tables}))


def asked(name="aspects", **values):
    """The only call about a pair."""
    return protocol(name).calls(pair(**values))[0]


def score(made, **grades):
    """The score of an item whose only call was replied to with these grades."""
    return made.item(pair(), {made.calls(pair())[0].name: grades})["score"]


def pair(**values):
    return EditPair(
        **{
            "id": "a",
            "category": "physics",
            "instruction": "drop it",
            "source": Base64Image(""),
            **values,
        }
    )


@pytest.mark.parametrize("name", ["aspects", "seeds"])
@pytest.mark.parametrize("edited_source", [1, 2, 3])
def test_prompt_shows_all_sources_in_order_and_marks_the_edited_one(name, edited_source):
    several = pair(further=(object(), object()), edited_source=edited_source)
    (call,) = protocol(name).calls(several)
    shown = ["source-1", "source-2", "source-3", "edited"]
    shown[edited_source - 1] = "source"
    assert list(call.images) == shown
    labels = [text.strip() for kind, text in call.parts if kind == "text"][:4]
    marked = [f"Source image {place}:" for place in (1, 2, 3)]
    marked[edited_source - 1] = f"Source image {edited_source}, which is edited:"
    assert labels[:3] == marked
    assert "another source image must look as it does there" in call.parts[-1][1]
    assert "source image," not in call.system


@pytest.mark.parametrize("name", ["aspects", "seeds"])
@pytest.mark.parametrize(
    "category", ["physics", "environment", "social", "causal", "referential", "default"]
)
def test_prompt_shows_both_images_and_five_to_eight_criteria(name, category):
    call = asked(name, category=category)
    assert call.images == ("source", "edited")
    words = "".join(text for kind, text in call.parts if kind == "text")
    assert "drop it" in words
    criteria = protocol(name).definition.categories[category].criteria
    assert 5 <= len(criteria) <= 8
    assert all(criterion in words for criterion in criteria)


@pytest.mark.parametrize("category", sorted(protocol().definition.categories))
def test_the_embedded_judge_knows_each_line_of_the_default_protocol(category):
    tokenizer = json.loads((WEIGHTS / "judge" / "tokenizer.json").read_text())
    known = {token["content"] for token in tokenizer["added_tokens"]}
    call = asked(category=category, instruction="drop it")
    lines = [line for kind, text in call.parts if kind == "text" for line in text.splitlines()]
    unknown = {line.strip() for line in (*call.system.splitlines(), *lines)} - known - {""}
    assert unknown == {"Instruction: drop it"}, (
        "change a copy of the protocol, or retrain the judge"
    )


def test_every_known_category_has_criteria():
    assert set(CATEGORIES) <= set(protocol().definition.categories)


@pytest.mark.parametrize("name", ["aspects", "seeds"])
@pytest.mark.parametrize("category", sorted(protocol().definition.categories))
def test_what_an_instruction_asks_for_is_no_fault_however_surreal(name, category):
    call = asked(name, category=category, instruction="make the cat float")
    words = "".join(text for kind, text in call.parts if kind == "text")
    assert (
        "If the instruction asks for something surreal or impossible, that itself is no fault"
        in words
    )


@pytest.mark.parametrize(
    "word", ["Posture", "Roles", "Identity", "Dignity", "Culture", "Stereotypes and age"]
)
def test_social_asks_for_dignity_culture_and_age_beside_posture_and_roles(word):
    criteria = protocol("seeds").definition.categories["social"].criteria
    assert sum(criterion.startswith(word) for criterion in criteria) == 1


def test_description_and_reference_text_appear_where_there_are_any():
    plain = asked()
    full = asked(description="a ball on a shelf", reference_text="a ball on the floor")
    assert "The source shows" not in str(plain)
    assert "The source shows: a ball on a shelf" in str(full)
    assert "A right edit shows: a ball on the floor" in str(full)


def test_unknown_category_uses_the_default_criteria():
    assert asked(category="style").parts != asked().parts


def test_template_marks_inside_an_instruction_stay_text():
    text = "{{ source }} {% for %} \x00edited\x00"
    call = asked(instruction=text)
    assert call.images == ("source", "edited")
    assert "{{ source }} {% for %} edited" in str(call.parts)


GOOD = [
    ("instruction: 9\npreservation: 8\nrealism: 7", (9, 8, 7)),
    ("Instruction: 9.5\nPRESERVATION: 0\nrealism: 10", (9.5, 0, 10)),
    ("**instruction**: 9/10\n- preservation: **8 / 10**\n`realism`：7", (9, 8, 7)),
    ("The ball fell 3 m.\n\ninstruction: 9\npreservation: 8\nrealism: 7\nDone: 5", (9, 8, 7)),
    (
        "<think>instruction: 1\nrealism: 2</think>instruction: 9\npreservation: 8\nrealism: 7",
        (9, 8, 7),
    ),
    ("instruction: 1\nrealism: 2</think>instruction: 9\npreservation: 8\nrealism: 7", (9, 8, 7)),
]


@pytest.mark.parametrize(("reply", "values"), GOOD)
def test_readable_replies(reply, values):
    assert tuple(LINES.read(reply).values()) == values


BAD = [
    ("", "no line 'instruction'"),
    ("3 people stand there, 9/10", "no line 'instruction'"),
    ("instruction: 9\npreservation: 8", "no line 'realism'"),
    (
        "instruction: 11\npreservation: 8\nrealism: 7",
        "'instruction' is '11', expected one number from 0 to 10",
    ),
    ("instruction: -1\npreservation: 8\nrealism: 7", "'instruction' is '-1'"),
    ("instruction: 85\npreservation: 8\nrealism: 7", "'instruction' is '85'"),
    ("instruction: 9 of 10\npreservation: 8\nrealism: 7", "expected one number"),
    ("instruction: 8-9\npreservation: 8\nrealism: 7", "expected one number"),
    ("instruction: nan\npreservation: 8\nrealism: 7", "expected one number"),
    (
        "instruction: 9\ninstruction: 2\npreservation: 8\nrealism: 7",
        "'instruction' stands there twice",
    ),
    ("instruction: ٩\npreservation: 8\nrealism: 7", "expected one number"),
    ("instruction：8（满分：10）\npreservation: 8\nrealism: 7", "expected one number"),
    ("instruction: 9/5\npreservation: 8\nrealism: 7", "expected one number"),
    ("I cannot grade this image.", "no line 'instruction'"),
    ("<think>instruction: 9\npreservation: 8\nrealism: 7\nNo:", "ends in a thought"),
]


@pytest.mark.parametrize(("reply", "message"), BAD)
def test_unreadable_replies(reply, message):
    with pytest.raises(ReplyError, match=message):
        LINES.read(reply)


@given(st.text())
@pytest.mark.everyday
def test_any_reply_is_read_in_range_or_refused(reply):
    try:
        values = LINES.read(reply)
    except ReplyError:
        return
    assert all(0 <= value <= 10 for value in values.values())


@given(st.lists(st.floats(0, 10).map(lambda value: round(value, 2)), min_size=3, max_size=3))
def test_what_is_written_in_the_format_is_read_back(values):
    reply = "\n".join(f"{name}: {value}" for name, value in zip(ASPECTS, values, strict=True))
    grades = LINES.read(reply)
    assert list(grades.values()) == values
    assert score(protocol(), **grades) == pytest.approx(math.sqrt(values[0] * min(values[1:])))


def test_untouched_image_scores_zero_by_the_formula():
    assert score(protocol(), instruction=0, preservation=10, realism=10) == 0


def test_seeds_is_one_number():
    made = protocol("seeds")
    grades = made.calls(pair())[0].grammar.read("6.5")
    assert made.item(pair(), {"plausibility": grades}) == {"plausibility": 6.5, "score": 6.5}


def test_seeds_gives_five_under_compat_where_the_reply_cannot_be_read():
    assert protocol("seeds", "compat").item(pair(), {})["score"] == 5.0
    assert protocol("aspects", "compat").item(pair(), {}) == {}


def own(**changes):
    call = {"name": "a", "user": "{{ source }}{{ edited }}", "reminder": "again"}
    call |= {name: changes.pop(name) for name in ("user", "system") if name in changes}
    names = changes.pop("names", ["a"])
    return {
        "calls": [{**call, "reply": {"form": "lines", "names": names}}],
        "score": {"item": changes.pop("item", "a")},
        "categories": {"default": {"title": "any", "criteria": ["x"]}},
        **changes,
    }


MISTAKES = [
    pytest.param({"user": "{{ source }}"}, "user shows \\['source'\\], expected", id="image"),
    pytest.param(
        {"user": "{{ source }}{{ edited }}{{ nothing }}"}, "'nothing' is undefined", id="variable"
    ),
    pytest.param(
        {"user": "{% if %}{{ source }}{{ edited }}"},
        r"template \(template line 1\)|template",
        id="syntax",
    ),
    pytest.param({"item": "a + b"}, "'b' is undefined", id="formula"),
    pytest.param({"item": "10 - a * 2"}, "score is -10.0, expected 0 to 10", id="range-at-ten"),
    pytest.param({"file": "x.toml"}, "'calls' beside 'file'", id="file-and-keys"),
    pytest.param(
        {
            "categories": {
                name: {"title": "x", "criteria": ["y"]} for name in ("default", "物理", "physics")
            }
        },
        "given twice",
        id="category-twice",
    ),
    pytest.param({"item": "a * 9"}, "score is [0-9.]+, expected 0 to 10", id="range"),
    pytest.param({"item": "().__class__"}, r"\[protocols.mine\]", id="sandbox"),
    pytest.param({"scores": "a"}, "scores: Extra inputs are not permitted", id="key"),
    pytest.param({"names": []}, "names: ", id="empty"),
    pytest.param(
        {"categories": {"physics": {"title": "x", "criteria": ["y"]}}},
        "no \\[categories.default\\]",
        id="default",
    ),
    pytest.param({"categories": {"inherit": "x"}}, "categories.inherit is 'x'", id="inherit"),
    pytest.param({"unreadable": float("nan")}, "unreadable is nan, expected 'drop'", id="nan"),
    pytest.param({"unreadable": float("inf")}, "unreadable is inf, expected 'drop'", id="inf"),
    pytest.param({"unreadable": 1e9}, "on the scale of call 'a', from 0 to 10", id="off-scale"),
    pytest.param({"item": "2**(10**9)"}, "failed: a power of over", id="power"),
    pytest.param({"item": "a" * 20_000}, "score.item: String should have at most", id="long"),
    pytest.param(
        {"user": "{{ source }}{{ edited }}{{ range(3)|random }}"}, "no filter 'random'", id="random"
    ),
    pytest.param(
        {"user": "{{ source }}{{ edited }}{{ 'a' * 10**9 }}"}, "a value has over", id="huge"
    ),
    pytest.param(
        {
            "user": "{{ source }}{{ edited }}" + "{% set x = 'a' * 99000 %}",
            "categories": {
                name: {"title": "x", "criteria": ["y"]}
                for name in ("default", *(f"c{number}" for number in range(60)))
            },
        },
        "over 10000000 steps and characters for all categories",
        id="categories",
    ),
]


def call_of(name="a", names=("a",), form="lines", **reply):
    """A call of a protocol as a config has it."""
    return {
        "name": name,
        "user": "{{ source }}{{ edited }}",
        "reply": {"form": form, "names": [*names], **reply},
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calls": [call_of(), call_of(names="b")]}, "two calls are named 'a'"),
        (
            {"calls": [call_of(), call_of("b")]},
            "the calls 'a' and 'b' both have a number 'a', expected it in one",
        ),
        ({"calls": [call_of(names="ab", labels=["x", "x"])]}, "the label 'x' is there twice"),
        ({"calls": [call_of(names="ab", labels=["x"])]}, "call 'a': 1 label for 2 names"),
        (
            {"calls": [call_of(names="ab", labels={"physics": ["x"]})]},
            "call 'a': 1 label for 2 names",
        ),
        ({"calls": [call_of(names="ab", form="number")]}, "call 'a': the form 'number' has 2"),
        ({"calls": [call_of(names="ab", form="final")]}, "call 'a': the form 'final' has 2"),
        (
            {"score": {"item": "a", "values": {"a": "a / 2"}}},
            r"would overwrite the number 'a', expected another name in \[score.values\]",
        ),
        ({"score": {"item": "a", "values": {"score": "a"}}}, "would overwrite the number 'score'"),
        (
            {"calls": [call_of(names=("score",))], "score": {"item": "score / 2"}},
            "would overwrite the number 'score', expected another name of that number in the names of "
            "call 'a', or item = 'score'",
        ),
    ],
)
def test_numbers_that_would_overwrite_each_other_are_refused(changes, message):
    with pytest.raises(UsageError, match=rf"\[protocols.mine\]: .*{message}"):
        protocol("mine", mine={**own(), **changes})


def test_a_number_may_be_called_score_if_it_is_the_score():
    made = protocol("mine", mine={**own(item="score"), "calls": [call_of(names=("score",))]})
    assert score(made, score=7) == 7


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes_in_a_protocol_are_usage_errors(changes, message):
    with pytest.raises(UsageError, match=message):
        protocol("mine", mine=own(**changes))


def test_hash_changes_with_any_word():
    assert protocol("mine", mine=own()).sha256 != protocol("mine", mine=own(system="x")).sha256


def test_category_may_be_named_by_an_alias():
    criteria = {"title": "any", "criteria": ["x"]}
    categories = {"default": criteria, "物理": {**criteria, "title": "falling"}}
    made = protocol("mine", mine=own(categories=categories))
    assert made.definition.categories["physics"].title == "falling"


class Own(Protocol):
    """A user's class, whose functions do as they are told."""

    name = "own"
    scale = (0.0, 1.0)

    def __init__(self, values):
        super().__init__("strict", Prompts(None))
        self.values = values

    def calls(self, pair):
        return [] if self.values else 1 / 0

    def item(self, pair, replies):
        return self.values if isinstance(self.values, dict) else 1 / 0

    def tables(self, items):
        return 1 / 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"score": 1.5}, "score is 1.5, expected 0 to 1"),
        ({"score": math.nan}, "score is nan"),
        ({"score": 1, "other": math.inf}, "other is inf"),
        ({"score": "high"}, "no values: ValueError: could not convert"),
        (["score"], "no values: ZeroDivisionError"),
    ],
)
def test_what_a_class_makes_of_replies_is_a_score_or_a_reason(values, message):
    with pytest.raises(ReplyError, match=f"protocol own: {message}"):
        Own(values).checked_item(pair(), {})


def test_a_class_whose_functions_fail_ends_no_run():
    with pytest.raises(UsageError, match="protocol own: it fails on pair 'a': division by zero"):
        Own({}).check([pair()])
    table = protocol_table(Own({}), [], (), sees_change=True)
    assert table.problem == "its tables failed: ZeroDivisionError: division by zero"


PREPARED = Preparation(codec="jpeg", quality=75, max_side=32, at_source_size=True)


def test_images_are_sent_as_the_protocol_says():
    noise = Image.effect_noise((96, 48), 60).convert("RGB")
    images = {"source": noise, "edited": noise.resize((200, 300))}
    resized = PREPARED.resized(images)
    assert {name: image.size for name, image in resized.items()} == dict.fromkeys(images, (32, 16))
    assert images["source"].size == (96, 48)
    sent = PREPARED.sent(resized["source"])
    assert sent.size == (32, 16)
    assert sent.tobytes() != resized["source"].tobytes()
    data = io.BytesIO()
    resized["source"].save(data, "JPEG")
    assert sent.tobytes() == Image.open(data).tobytes()
    assert Preparation().resized(images) == images
    assert Preparation().sent(noise) is noise


def test_rows_are_means_of_items_of_groups_of_all_values_in_percent_and_by_tag():
    rows = [
        {"name": "by item", "mean": "items"},
        {"name": "by group", "by": ["night"]},
        {"name": "flat", "values": ["a", "right"], "mean": "items", "scale": [0, 10]},
        {"name": "right", "values": ["right"], "mean": "items", "scale": [0, 1], "percent": True},
    ]
    made = protocol("mine", mine=own(rows=rows))
    items = [
        an_item("1", "x", 2.0, aspects={"a": 2.0, "right": 1.0}, tags=("night",)),
        an_item("2", "x", 4.0, aspects={"a": 4.0, "right": 1.0}),
        an_item("3", "y", 9.0, aspects={"a": 9.0, "right": 0.0}),
    ]
    table = protocol_table(made, items, (), sees_change=True)
    assert {row.name: row.value for row in table.rows} == pytest.approx(
        {
            "by item": 5.0,
            "by group": 6.0,
            "by group, night": 2.0,
            "flat": 17 / 6,
            "right": 200 / 3,
        }
    )
    assert [row.scale for row in table.rows] == [(0, 10)] * 4 + [(0, 100)]
