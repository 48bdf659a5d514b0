"""OmniContext: its questions, which reply of several attempts counts, its bill, and its rows."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import statistics

import pytest
from api_server import api_server, completion
from documents import an_item
from miniatures import ANY_VERSION, LARGE, SOURCES, make_omnicontext
from PIL import Image

from pytest_imgedit.config.settings import Settings, SuiteSettings
from pytest_imgedit.core.environments import key
from pytest_imgedit.core.errors import ReplyError, UsageError
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.requests import Preparation, Question
from pytest_imgedit.kinds.sent_images import SentImages
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.protocols.omnicontext_rows import EMU, PAPER, TASKS
from pytest_imgedit.protocols.protocol import Call
from pytest_imgedit.run.assemble import protocol_table
from pytest_imgedit.suites.base import load_suite

pytest.importorskip("pyarrow")
SENT = Preparation(codec="jpeg", source_pixels=1024 * 1024, source_multiple=16)
ODD = "I cannot judge these images."
SUITE = ("--imgedit-suite=omnicontext:omni", "--imgedit-editor=miniatures:SideBySide", ANY_VERSION)


@pytest.fixture
def folder(tmp_path):
    return make_omnicontext(tmp_path)


def protocol(folder, variant="strict"):
    settings = {
        "suite": {"spec": f"omnicontext:{folder}"},
        "judge": {"variant": variant, "any_version": True},
    }
    return load_protocol(Settings.model_validate(settings))


def pairs_of(folder, query=""):
    return load_suite(SuiteSettings(spec=f"omnicontext:{folder}{query}")).pairs


def score(number):
    return json.dumps({"score": number, "reasoning": "x"})


def test_pairs_have_all_their_sources_in_order_and_ids_that_differ_between_tasks(folder):
    pairs = pairs_of(folder)
    assert {pair.category: len(pair.images) for pair in pairs} == SOURCES
    assert len({pair.own_id for pair in pairs}) < len(pairs)
    assert [pair.id for pair in pairs][:2] == ["single_character-0000", "single_object-0000"]
    (pair,) = [pair for pair in pairs if pair.category == "scene_object"]
    assert list(pair.images) == ["source", "source-2", "source-3"]
    for number, image in enumerate(pair.images.values()):
        assert image.read() == (folder / "made" / f"scene_object-{number}.png").read_bytes()


def test_english_is_the_default_and_other_languages_are_those_of_the_data(tmp_path):
    folder = make_omnicontext(tmp_path, languages=("en", "zh"))
    assert {pair.fields["language"] for pair in pairs_of(folder)} == {"en"}
    assert {pair.fields["language"] for pair in pairs_of(folder, "?language=zh")} == {"zh"}
    with pytest.raises(UsageError, match="language=cn, expected one of en, zh"):
        pairs_of(folder, "?language=cn")


def change_row(folder, number, **values):
    from pyarrow import Table, parquet

    (path,) = folder.rglob("*.parquet")
    table = parquet.read_table(path)
    rows = table.to_pylist()
    rows[number].update(values)
    parquet.write_table(Table.from_pylist(rows, schema=table.schema), path)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"input_images": None},
            "row 3: no images 'input_images', expected a list of at least one",
        ),
        ({"input_images": []}, "row 3: no images 'input_images', expected a list of at least one"),
        (
            {"input_images": [None]},
            "row 3: image 1 of 'input_images' is missing, expected an image",
        ),
        ({"instruction": None}, "row 3: 'instruction' is None, expected text"),
        ({"key": ""}, "row 3: 'key' is '', expected text"),
        ({"task_type": "single_object"}, "no pairs of multi_character, expected every category"),
    ],
)
def test_rows_that_lack_something_are_refused_by_their_place(folder, values, line):
    change_row(folder, 2, **values)
    with pytest.raises(UsageError, match=line):
        pairs_of(folder)


def test_a_folder_without_parquet_files_names_the_data_set(tmp_path):
    with pytest.raises(UsageError, match=r"no parquet files in .*OmniGen2/OmniContext"):
        pairs_of(tmp_path)


def test_both_calls_show_the_text_then_every_source_then_the_edit(folder):
    strict = protocol(folder)
    for pair in pairs_of(folder):
        kind_of_sc = "Scene" if pair.category.startswith("scene") else "Single_and_Multiple"
        kinds = {"PF": "Single_and_Multiple", "SC": kind_of_sc}
        shown = [("image", name) for name in (*pair.images, "edited")]
        pf, sc = strict.calls(pair)
        for call in (pf, sc):
            text = f"Judge as JSON.\n[omni{call.name}_{kinds[call.name]}] {pair.instruction}"
            assert list(call.parts) == [("text", text), *shown]
            assert (call.preparation, call.max_new_tokens) == (SENT, 1400)
        assert (pf.name, sc.name) == ("PF", "SC")


def test_compat_asks_each_question_three_times_under_keys_of_their_own(folder):
    (pair, *_) = pairs_of(folder)
    once = protocol(folder).calls(pair)
    calls = protocol(folder, "compat").calls(pair)
    assert [call.name for call in calls] == ["PF", "SC", "PF-2", "SC-2", "PF-3", "SC-3"]
    assert len({key(call.recipe) for call in calls}) == 6
    assert [call.recipe for call in calls[:2]] == [call.recipe for call in once]
    assert {call.parts for call in calls} == {call.parts for call in once}


@pytest.mark.parametrize(
    ("preparation", "digest"),
    [
        ({}, "3d5a94ebca490a7463c71308d61ad6411f8f637eee63c849edce658cc5f9e463"),
        (
            {"codec": "jpeg", "max_side": 768, "detail": "high"},
            "36a9f736eeb2f4506243bd48732e4649cb65ff5865298cc409e4f3324d801b90",
        ),
        (
            {"codec": "png", "at_source_size": True},
            "474cf1e53a3743fc3a38f1820b77881a1402bce369a380d5e77918b7f301afa0",
        ),
    ],
)
def test_questions_of_other_protocols_keep_their_keys(preparation, digest):
    parts = (("text", "x"), ("image", "source"))
    call = Call("a", parts, Grammar("number", ("a",)), "", Preparation(**preparation), 5)
    assert key(call.recipe) == digest
    larger = Preparation(**preparation, source_pixels=100)
    assert key(Call("a", parts, call.grammar, "", larger, 5).recipe) != digest


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((70, 49), (64, 48)),
        ((64, 48), (64, 48)),
        ((1024, 1024), (1024, 1024)),
        (LARGE, (1152, 896)),  # 1166.9 and 898.6
        ((8, 200), (16, 192)),
    ],
)
def test_sources_are_made_smaller_and_cut_to_multiples_of_16_but_never_the_edit(size, shown):
    names = ("source", "source-2", "edited", "reference")
    images = dict.fromkeys(names, Image.new("RGB", size))
    sizes = {name: image.size for name, image in SENT.resized(images).items()}
    assert sizes == {"source": shown, "source-2": shown, "edited": size, "reference": size}


@pytest.mark.parametrize("name", ["source-2", "edited"])
@pytest.mark.parametrize("codec", ["jpeg", "png"])
def test_a_served_judge_is_sent_what_a_local_one_is_shown(name, codec):
    preparation = Preparation(codec=codec, source_pixels=900, source_multiple=16)
    data = encode_png(Image.effect_noise((70, 49), 60).convert("RGB"))
    images = dict.fromkeys(("source", "source-2", "edited"), data)
    question = Question("a", "scene", "join", images, preparation=preparation)
    sent = base64.b64decode(asyncio.run(SentImages().base64_of(question, name)))
    local = Question.decoded(question.fields)
    assert Image.open(io.BytesIO(sent)).format == codec.upper()
    assert decode(sent).tobytes() == preparation.sent(local.images[name]).tobytes()
    assert decode(sent).size == ((32, 16) if name == "source-2" else (70, 49))


#: The numbers of each attempt, `None` for a reply that cannot be read; then what counts.
ATTEMPTS = [
    ([(1, 1), (2, 2), (3, 4)], (3, 4)),
    ([(1, 1), (2, 2), (None, 4)], (2, 2)),
    ([(1, 1), (2, 2), (3, None)], (3, 2)),
    ([(1, 2), (None, 3), (None, 4)], (1, 2)),
    ([(None, 1), (None, 1), (3, 4)], (3, 4)),
    ([(None, 5), (None, 6), (3, None)], None),
    ([(1, None), (2, None), (3, None)], None),
    ([(None, None)] * 3, None),
]


@pytest.mark.parametrize(("attempts", "expected"), ATTEMPTS)
def test_the_last_reply_of_the_authors_loop_counts(folder, attempts, expected):
    compat = protocol(folder, "compat")
    replies = {}
    for number, grades in enumerate(attempts, 1):
        for name, grade in zip(("PF", "SC"), grades, strict=True):
            if grade is not None:
                replies[name if number == 1 else f"{name}-{number}"] = {name: float(grade)}
    pair = EditPair("a", "single_object", "x", None)
    if expected is None:
        with pytest.raises(ReplyError, match=r"no reply about .* draws a number here"):
            compat.item(pair, replies)
        return
    found = compat.item(pair, replies)
    assert (found["PF"], found["SC"]) == expected
    assert found["score"] == pytest.approx(math.sqrt(expected[0] * expected[1]))


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        (score(7), 7),
        (f"```json\n{score(7)}\n```", 7),
        ('{"score": 7.5, "reasoning": "two\nlines"}', 7.5),
        ('{"score": 3, "score": 4, "reasoning": "x"}', 4),
        (" 8\n", 8),
        ('{"score": true, "reasoning": "x"}', 1),
        (f"{score(3)} {score(4)}", None),
        ('{"score": "7", "reasoning": "x"}', None),
        ('{"score": [7], "reasoning": "x"}', None),
        ('{"score": 7}', None),
        ('{"score": 11, "reasoning": "x"}', None),
        ("{score: 7, reasoning: fine}", None),
        ('{"score": 7, "reaso', None),
        ("11", None),
        ("[7]", None),
        ("7/10", None),
        ("", None),
    ],
)
def test_compat_reads_a_reply_as_the_script_does(reply, number):
    grammar = Grammar("json", ("PF",), labels=("score",), compat="omnicontext")
    if number is None:
        with pytest.raises(ReplyError):
            grammar.read(reply, "compat")
    else:
        assert grammar.read(reply, "compat") == {"PF": number}


def run(bench, replies, *options, at="[omniPF_Single_and_Multiple] join 7"):
    """Run the miniature with a judge whose replies to one question are given."""
    if not (bench.path / "omni").exists():
        (bench.path / "omni").mkdir()
        make_omnicontext(bench.path / "omni")
    return bench.run(
        *SUITE,
        "--imgedit-judge=miniatures:Attempts",
        f"--imgedit-set=judge.replies={json.dumps(replies)}",
        f"--imgedit-set=judge.asked={json.dumps(at)}",
        *options,
    )


ID = "scene_character_object-0002"


def test_strict_takes_the_first_reply_that_can_be_read(bench):
    result = run(bench, [ODD, score(9), score(1)])
    assert result.ret == 0
    assert bench.items[ID]["aspects"] == {"PF": 9.0, "SC": 5.0}
    assert bench.items[ID]["score"] == pytest.approx(45**0.5)
    assert bench.records("verdicts") == 16
    assert not any("times that of strict" in line for line in result.outlines)


def test_compat_takes_the_last_of_three_and_its_plan_says_what_that_costs(bench):
    options = ([score(9), ODD, score(1)], "--imgedit-variant=compat")
    result = run(bench, *options)
    assert result.ret == 0
    assert bench.items[ID]["aspects"] == {"PF": 1.0, "SC": 5.0}
    assert bench.records("verdicts") == 48
    assert bench.results["protocol"]["touched"] == 0
    result.stdout.fnmatch_lines(
        [
            "*plan: judge: omnicontext@compat asks each question 3 times, as the authors' script "
            "does: the bill is 3 times that of strict without re-asks"
        ]
    )
    assert run(bench, *options).ret == 0
    assert (bench.timing["verdicts"], bench.timing["verdicts_cached"]) == (0, 8)


def test_an_unreadable_last_reply_is_replaced_by_the_one_before_and_counted(bench):
    run(bench, [score(9), score(2), ODD], "--imgedit-variant=compat")
    assert bench.items[ID]["aspects"] == {"PF": 2.0, "SC": 5.0}
    assert bench.results["protocol"]["touched"] == 1


def test_three_unreadable_replies_are_an_error_where_the_script_draws_a_number(bench):
    options = ([ODD] * 3, "--imgedit-variant=compat")
    result = run(bench, *options)
    assert result.ret == 1
    assert bench.items[ID]["status"] == "judge_error"
    error = bench.items[ID]["error"]
    assert error["kind"] == "unreadable_reply"
    assert "no reply about PF can be read" in error["message"]
    assert error["reply"] == " | ".join([ODD] * 3)
    assert bench.results["overall"]["macro"]["errors"] == 1
    run(bench, *options)
    assert bench.items[ID]["error"] == error
    assert bench.timing["verdicts"] == 0


@pytest.mark.parametrize(("variant", "times"), [("strict", 1), ("compat", 3)])
def test_a_served_judge_is_billed_and_asked_as_the_authors_ask(bench, variant, times):
    (bench.path / "omni").mkdir()
    make_omnicontext(bench.path / "omni")
    with api_server(lambda _: (200, completion(score(4)))) as server:
        result = bench.run(
            *SUITE,
            f"--imgedit-judge=openai:{server.url}#m",
            "--imgedit-set=judge.ask_first=false",
            f"--imgedit-variant={variant}",
        )
        bodies = list(server.asked)
    assert len(bodies) == bench.records("verdicts") == 16 * times
    for body in bodies:
        (message,) = body["messages"]
        text, *images = message["content"]
        assert text["type"] == "text"
        assert all(image["image_url"]["url"].startswith("data:image/jpeg") for image in images)
        assert body["max_tokens"] >= 1400
    assert {len(body["messages"][0]["content"]) for body in bodies} == {3, 4, 5}
    billed = f"*plan: judge: {len(bodies)} *({16 * times} for 8 edits), 0 in the store; *"
    result.stdout.fnmatch_lines([billed])


def test_the_editor_gets_every_source(bench):
    run(bench, [score(9)])
    handed = {
        item["category"]: item["seeds"][0]["edit"]["sources"] for item in bench.items.values()
    }
    assert handed == SOURCES
    orders = {tuple(call["order"]) for call in bench.results["protocol"]["calls"]}
    assert ("text", "source", "edited") in orders


def test_published_averages_are_means_of_the_tasks(folder):
    means = {**PAPER, **EMU}
    for model, (average, *values) in means.items():
        if average is None:
            continue
        items = [
            an_item(f"{task}-{number}", task, value, aspects={"PF": value, "SC": value})
            for task, value in zip(TASKS, values, strict=True)
            for number in range(1 + len(task) % 3)
        ]
        table = protocol_table(protocol(folder), items, (), sees_change=True)
        rows = {row.name: row.value for row in table.rows}
        assert rows["Average"] == pytest.approx(average, abs=0.01), model  # all are rounded
        assert {task: rows[task] for task in TASKS} == pytest.approx(
            dict(zip(TASKS, values, strict=True))
        )
        assert rows["Average SC"] == pytest.approx(statistics.fmean(values))


def test_published_rows_name_rows_of_the_table_and_say_what_no_source_states(folder):
    rows = protocol(folder).published
    assert {row.row for row in rows} == {"Average", *TASKS}
    assert {(row.row, row.pairs) for row in rows} == {
        ("Average", 400),
        *((task, 50) for task in TASKS),
    }
    assert {row.provider for row in rows} == {"not stated"}
    assert {row.date for row in rows} == {"not stated", "2025-10"}
