"""Protocols that compare two edits: what they ask, and which ones are refused."""

from __future__ import annotations

import copy
import re
from types import SimpleNamespace

import pytest
from PIL import Image

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import environments
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import CATEGORIES, EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.requests import Answer, Preparation
from pytest_imgedit.protocols import loading
from pytest_imgedit.protocols.loading import DUELS, IN_TOML, load_duel_protocol, load_protocol
from pytest_imgedit.protocols.protocol import Call
from pytest_imgedit.protocols.toml_protocol import Definition
from pytest_imgedit.run.answers import AnswerReader

EVERY = pytest.mark.parametrize("name", DUELS)
CALLS = {
    "duel": ["duel"],
    "duel-tie": ["duel"],
    "duel-aspects": ["instruction", "quality", "preservation"],
}
MINE = {
    "calls": [
        {
            "name": "duel",
            "user": "{{ instruction }}{{ source }}{{ first }}{{ second }}Which one?",
            "reply": {"form": "choice", "names": ["score"], "scale": [0, 1]},
        }
    ],
    "score": {"item": "score", "scale": [0, 1]},
}


def settings(name="duel", table=None, **judge):
    tables = {name: table} if table else {}
    return Settings.model_validate({"judge": {"duel_protocol": name, **judge}, "protocols": tables})


def duel(name="duel", table=None, **judge):
    return load_duel_protocol(settings(name, table, **judge))


def pair(**values):
    fields = {"id": "a", "category": "physics", "instruction": "drop it", "source": Base64Image("")}
    return EditPair(**{**fields, **values})


def words(call):
    return call.system + "".join(text for kind, text in call.parts if kind == "text")


def changed(path, value, table=MINE):
    """A copy of a protocol with another value at a path of keys."""
    table = copy.deepcopy(table)
    place = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return table


@EVERY
@pytest.mark.parametrize("category", [*CATEGORIES, "default"])
def test_each_call_shows_the_source_and_both_edits_in_order(name, category):
    calls = duel(name).calls(pair(category=category))
    assert [call.name for call in calls] == CALLS[name]
    for call in calls:
        assert call.images == ("source", "first", "second")
        assert "Instruction: drop it" in words(call)
        texts = [text.strip() for kind, text in call.parts if kind == "text"]
        assert texts[:3] == ["Source image:", "Edit A:", "Edit B:"]


@EVERY
@pytest.mark.parametrize("edited_source", [1, 3])
def test_all_sources_are_shown_in_their_order(name, edited_source):
    several = pair(further=(object(), object()), edited_source=edited_source)
    shown = ["source-1", "source-2", "source-3", "first", "second"]
    shown[edited_source - 1] = "source"
    for call in duel(name).calls(several):
        assert list(call.images) == shown
        assert f"Source image {edited_source}, which is edited:" in words(call)
        assert "another source image must look as it does there" in words(call)
        assert "source images" in call.system


@EVERY
def test_the_question_tells_what_is_known_of_the_pair_and_of_the_order(name):
    told = pair(description="a ball on a shelf", reference_text="a ball on the floor")
    for call in duel(name).calls(told):
        assert "The source shows: a ball on a shelf" in words(call)
        assert "A right edit shows: a ball on the floor" in words(call)
        assert "says nothing about them" in words(call)
        assert "no fault, however surreal" in words(call) or call.name not in ("duel", "quality")
    assert "The source shows" not in words(duel(name).calls(pair())[0])


@EVERY
def test_the_form_of_the_reply_is_asked_for_in_the_words_of_the_grammar(name):
    made = duel(name)
    has_tie = name == "duel-tie"
    for call in made.calls(pair()):
        assert call.grammar == Grammar(
            "choice-or-tie" if has_tie else "choice", call.grammar.names, (0, 1)
        )
        asked = f'"better": "<{call.grammar.range}>"'
        assert asked in words(call)
        reminder = made.remind(call, "it is empty")
        assert reminder.startswith("That reply could not be read: it is empty.")
        assert asked in reminder
        assert ("tie" in words(call)) == has_tie
        assert call.max_new_tokens == 256


@EVERY
def test_the_score_is_the_mean_and_swapped_choices_swap_it(name):
    made = duel(name)
    calls = made.calls(pair())
    for numbers in ((1, 1, 1), (1, 0, 0), (0, 0, 1)):
        replies = {
            call.name: {call.grammar.names[0]: float(number)}
            for call, number in zip(calls, numbers, strict=False)
        }
        values = made.checked_item(pair(), replies)
        mean = sum(numbers[: len(calls)]) / len(calls)
        assert values["score"] == pytest.approx(mean)
    assert made.scale == (0, 1)
    names = {call.grammar.names[0] for call in calls}
    assert made.measures.keys() == names


@EVERY
def test_a_pair_is_ready_and_a_change_can_be_seen(name):
    made = duel(name)
    made.check([pair(), pair(id="b", category="social")])
    assert made.sees_change([pair()])


def test_a_protocol_of_the_config_may_leave_out_the_source():
    table = changed(["calls", 0, "user"], "{{ first }}{{ second }}Which one looks right?")
    made = duel("mine", table)
    [call] = made.calls(pair())
    assert call.images == ("first", "second")
    assert made.remind(call, "it is empty") == (
        "That reply could not be read: it is empty. Answer in the form that was asked for, with "
        "A or B as 'better'."
    )
    assert not made.sees_change([pair()])


def test_criteria_and_labels_may_depend_on_the_category():
    table = changed(["calls", 0, "user"], "{{ title }}{{ source }}{{ first }}{{ second }}")
    table["categories"] = {"inherit": "aspects"}
    reply = table["calls"][0]["reply"]
    reply["labels"] = {"physics": ["winner"]}
    made = duel("mine", table)
    [physics] = made.calls(pair())
    [social] = made.calls(pair(category="social"))
    assert words(physics) == "physics"
    assert words(social) == "people and how they act together"
    assert (physics.grammar.called, social.grammar.called) == (("winner",), ("better",))


def test_a_protocol_in_a_file(tmp_path):
    text = loading.files("pytest_imgedit.protocols").joinpath("duel.toml").read_text("utf-8")
    (tmp_path / "mine.toml").write_text(text.replace("Edit A:", "Picture A:"))
    [call] = duel("mine", {"file": str(tmp_path / "mine.toml")}).calls(pair())
    assert "Picture A:" in words(call)


REFUSED = [
    (
        changed(["calls", 0, "user"], "{{ source }}{{ first }}"),
        "call 'duel' shows ['first', 'source'], expected {{ first }} and {{ second }}, without "
        "{{ edited }}, in judge.duel_protocol",
    ),
    (
        changed(["calls", 0, "user"], "{{ edited }}{{ first }}{{ second }}"),
        "call 'duel' shows ['edited', 'first', 'second'], expected",
    ),
    (changed(["calls", 0, "user"], "Which?"), "call 'duel' shows no image, expected"),
    (
        changed(["calls", 0, "user"], "{{ first }}{% if description %}{{ second }}{% endif %}"),
        "call 'duel' shows ['first'], expected",
    ),
    (
        changed(["calls", 0, "reply", "form"], "number"),
        "call 'duel' has replies of the form 'number', expected 'choice' or 'choice-or-tie'",
    ),
    (
        changed(["calls", 0, "reply", "scale"], [0, 10]),
        "call 'duel': the form 'choice' has the scale [0, 10], expected scale = [0, 1]",
    ),
    (
        changed(["calls", 0, "reply", "names"], ["score", "other"]),
        "call 'duel': the form 'choice' has 2 names, expected one: it holds one choice",
    ),
    (
        changed(["calls", 0, "reply", "names"], ["x"], {**MINE, "score": {"item": "x ** 0"}}),
        "[score] has the scale [0, 10], expected",
    ),
    (
        {
            **changed(["calls", 0, "reply", "names"], ["x"]),
            "score": {"item": "x / 2", "scale": [0, 1]},
        },
        "[score] item is 0 for some choices and 0.5 for the opposite ones, expected 1: a formula "
        "such as mean, which favours no side",
    ),
    (changed(["calls", 0, "user"], "{{ fist }}"), "template"),
    ({"file": "no such file.toml"}, "no such file.toml"),
]


@pytest.mark.parametrize(("table", "message"), REFUSED)
def test_a_protocol_that_is_none_of_duels_is_refused_in_one_line(table, message):
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        duel("mine", table)
    location = table.get("file", "[protocols.mine]")
    assert location in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((name, "it judges one edit") for name in (*IN_TOML, "kris", "omnicontext")),
        ("my_module:Duel", "it is a class"),
        ("duels", "no such protocol"),
    ],
)
def test_other_names_are_refused_with_those_that_there_are(name, what):
    message = (
        f"judge.duel_protocol: {name!r}: {what}, expected a protocol that compares two: "
        "duel, duel-tie, duel-aspects, gedit-v2, genarena"
    )
    with pytest.raises(UsageError, match=re.escape(message)):
        duel(name)


def test_a_protocol_of_one_edit_in_the_config_is_refused():
    table = changed(["calls", 0, "user"], "{{ source }}{{ edited }}")
    table["calls"][0]["reply"]["form"] = "number"
    with pytest.raises(
        UsageError, match=r"\[protocols.mine\]: call 'duel' has replies of the form"
    ):
        duel("mine", table)


@EVERY
def test_a_duel_is_no_protocol_of_one_edit(name):
    message = f"judge.protocol: {name!r} compares two edits, expected it as judge.duel_protocol"
    with pytest.raises(UsageError, match=re.escape(message)):
        load_protocol(Settings.model_validate({"judge": {"protocol": name}}))


@pytest.mark.parametrize(
    "table", [MINE, changed(["calls", 0, "user"], "{{ source }}{{ edited }}Is it better?")]
)
def test_a_duel_of_the_config_is_no_protocol_of_one_edit(table):
    made = {"judge": {"protocol": "mine"}, "protocols": {"mine": table}}
    message = "[protocols.mine]: it compares two edits, expected it as judge.duel_protocol"
    with pytest.raises(UsageError, match=re.escape(message)):
        load_protocol(Settings.model_validate(made))


def test_the_variant_decides_the_digest_and_not_what_is_asked():
    strict, compat = duel(), duel(variant="compat")
    assert strict.calls(pair()) == compat.calls(pair())
    assert (strict.label, compat.label) == ("duel@strict", "duel@compat")
    assert strict.sha256 != compat.sha256


#: SHA-256 of the definitions of protocols, but for published rows and inherited categories: stored
#: runs name them.
DIGESTS = {
    "aspects": "67f36e3cb78b1c3701a89ca6d79bf0dd978871e373248399244182d9d4a2f92e",
    "gedit": "bf68e56dc528a820760ab0dabee3f34c958f28dd0eb581998d3a5561884e6d0d",
    "gedit-qwen": "e5a58ed4c1034bb8a1e9ae7c70d5c2705b5deb1b3e972710adaba57fde1d7764",
    "imgedit": "4134082fe68fe01cab4223f7de92e32c3a90831fed80a919b8716e350a4a7f25",
    "seeds": "17d55a10da13b1c6ed9508ac9c8ebd0d51a084b4096fd5979e451504689787a5",
}


@pytest.mark.parametrize("name", IN_TOML)
def test_the_definitions_of_other_protocols_keep_their_digests(name):
    table = loading._builtin(name)
    if "inherit" in table.get("categories", {}):
        del table["categories"]
    definition = Definition.model_validate(table).model_dump(exclude={"published"})
    recipe = {"variant": "strict", "definition": definition, "prompts": {}}
    assert environments.key(recipe) == DIGESTS[name]


def test_both_edits_are_resized_to_the_source():
    images = {
        "source": Image.new("RGB", (24, 16)),
        "first": Image.new("RGB", (48, 32)),
        "second": Image.new("RGB", (12, 8)),
        "reference": Image.new("RGB", (6, 4)),
    }
    shown = Preparation(at_source_size=True).resized(images)
    sizes = {name: image.size for name, image in shown.items()}
    assert sizes == dict.fromkeys(["source", "first", "second"], (24, 16)) | {"reference": (6, 4)}


@pytest.mark.parametrize("by_digits", [False, True])
def test_a_judge_that_expects_grades_reads_a_choice_as_it_stands(by_digits):
    model = SimpleNamespace(expects_grades=True, grades_by_digits=by_digits)
    made = duel()
    reader = AnswerReader(SimpleNamespace(model=model), made)
    call: Call = made.calls(pair())[0]
    answer = Answer('{"reason": "A shows 7 balls", "better": "B"}')
    assert reader.expected(call, answer) == ({}, None)
    record = SimpleNamespace(measured=None, reply=answer.reply)
    assert reader.numbers(call, record) == {"score": 0}
